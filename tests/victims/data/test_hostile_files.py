"""Databases and Parquet that would compute, or grow, without end: an error in bounded memory and time."""

from __future__ import annotations

import gzip
import sqlite3
import subprocess
import sys
from contextlib import closing

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

MOST_MEMORY = 1 << 30  # bytes in all, of which the libraries alone take a quarter
MOST_SECONDS = 60  # a hang would take for ever; what is measured takes three
ENDLESS = (
    "WITH RECURSIVE more(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM more) "
    "SELECT n AS user, 1 AS item, 3 AS rating FROM more"
)
CASES = {
    "a computed name": (
        "duckdb",
        ["CREATE TABLE r(item INT, rating INT, \"user\" VARCHAR AS (repeat('x', 10000000)))",
         "INSERT INTO r(item, rating) SELECT i, 3 FROM range(2000) t(i)"],
        "", "column 'user' is computed by what the file says",
    ),
    "a computed rating of SQLite": (
        "sqlite",
        ["CREATE TABLE r(user INT, item INT, rating INT AS (length(hex(zeroblob(100000000))) % 5 + 1))",
         "INSERT INTO r(user, item) SELECT value, value % 7 FROM (SELECT 1 AS value UNION SELECT 2)"],
        ":rating=rating", "must name a column 'rating' in its header",
    ),
    "an endless view": ("duckdb", ["CREATE TABLE t(a INT)", f"CREATE VIEW r AS {ENDLESS}"],
                        ":table=r", "must hold a table 'r', got 't'; views are not read"),
    "an endless view of SQLite": ("sqlite", ["CREATE TABLE t(a INT)", f"CREATE VIEW r AS {ENDLESS}"],
                                  ":table=r", "must hold a table 'r', got 't'; views are not read"),
    "run lengths": (
        "duckdb", ["CREATE TABLE r AS SELECT 1 AS user, 2 AS item, 3 AS rating FROM range(6000000)"],
        "", "must not grow to more than",
    ),
    "run lengths of text": (
        "duckdb",
        ["CREATE TABLE r(user VARCHAR, item INT, rating INT)",
         *8 * ["INSERT INTO r SELECT repeat('a', 100000), 2, 3 FROM range(1000)"]],
        "", "4,096 characters",
    ),
    "long texts of SQLite": (
        "sqlite",
        ["CREATE TABLE r(user TEXT, item INT, rating INT)",
         "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t WHERE i < 300) "
         "INSERT INTO r SELECT printf('%.*c', 900000, 'a'), i % 7, 3 FROM t"],
        "", "4,096 characters",
    ),
}  # fmt: skip
LOAD = """
import re, sys
from pathlib import Path
from victims.common.errors import InputError
from victims.data.loaders import load
try:
    load(sys.argv[1])
except InputError as error:
    kibibytes = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())
    print(int(kibibytes[1]) * 1024 if kibibytes else 0, error)
"""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[] if case == "an endless view of SQLite" else [pytest.mark.thorough])
        for case in CASES
    ],
)
def test_it_ends_in_an_error(tmp_path, case):
    """Before: a computed column was computed for every row, and texts were decoded, until memory was full."""
    form, statements, options, says = CASES[case]
    path = tmp_path / f"t.{form}"
    with closing((sqlite3 if form == "sqlite" else duckdb).connect(str(path))) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit() if form == "sqlite" else None
    message, memory = ended_in(f"{path}{options}")
    assert says in message
    assert memory < MOST_MEMORY


def ended_in(data: str) -> tuple[str, int]:
    """What another process says that loads some data, and the most memory that it had."""
    child = [sys.executable, "-c", LOAD, data]
    ended = subprocess.run(child, capture_output=True, text=True, timeout=MOST_SECONDS, check=True)
    memory, _, message = ended.stdout.partition(" ")
    return message, int(memory)


def varint(number: int) -> bytes:
    """As the compact protocol of Parquet writes an i32 or i64: zigzag, seven bits a byte."""
    number <<= 1
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def test_a_footer_that_understates_its_pages(tmp_path):
    """Texts of many megabytes: their page declares them, the footer a few."""
    path = tmp_path / "r.parquet"
    table = pa.table({"user": 4 * ["y" * (300 << 20)], "item": range(4), "rating": range(1, 5)})
    form = {"use_dictionary": False, "write_statistics": False, "data_page_size": 2 << 30}
    pq.write_table(table, path, compression="zstd", **form)
    content = path.read_bytes()
    declared = pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size
    small = 1 << 28  # takes as many bytes in the footer
    at = content.rindex(varint(declared))
    assert len(varint(small)) == len(varint(declared))
    path.write_bytes(content[:at] + varint(small) + content[at + len(varint(small)) :])
    message, memory = ended_in(str(path))
    assert "cannot be read as Parquet: Out of Memory" in message
    assert memory < MOST_MEMORY


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("grows.csv.gz", "must not grow to more than 200 times"),
        ("long.parquet", "at most 256 characters"),
        ("many.parquet", "must not grow to more than 200 times"),
    ],
)
def test_small_files_in_little_memory(tmp_path, name, says):
    """A million rows of a long identifier, an archive and run lengths that grow."""
    rows = 1_000_000
    if name == "long.parquet":
        long = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array(["x" * 4000]))
        ones = pa.array(np.ones(rows, np.int32))
        table = pa.table({"user": long, "item": ones, "rating": ones})
        pq.write_table(table, tmp_path / name, compression="zstd", store_schema=False)
    elif name == "many.parquet":
        many = pa.array(np.zeros(6 * rows, np.int8))
        pq.write_table(pa.table(dict.fromkeys(("user", "item", "rating"), many)), tmp_path / name)
    else:
        with gzip.open(tmp_path / name, "wb") as file:
            file.write(b"user,item,rating\n" + b"1,1,5\n" * 12 * rows)
    message, memory = ended_in(str(tmp_path / name))
    assert says in message
    assert memory < MOST_MEMORY
