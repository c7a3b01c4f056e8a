"""Databases that would compute, or grow, without end: an error within bounded memory and time."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing

import duckdb
import pytest

MOST_MEMORY = 1 << 30  # bytes in all, of which the libraries alone take a quarter
MOST_SECONDS = 60  # a hang would take for ever; what is measured takes three
ENDLESS = (
    "WITH RECURSIVE more(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM more) "
    "SELECT n AS user, 1 AS item, 3 AS rating FROM more"
)
CASES = {
    "a computed rating": (
        "duckdb",
        ["CREATE TABLE r(user INT, item INT, rating INT AS (length(repeat('x', 10000000)) % 5 + 1))",
         "INSERT INTO r(user, item) SELECT i, i % 7 FROM range(2000) t(i)"],
        "", "column 'rating' is computed by what the file says",
    ),
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
        "", "user must have at most 4,096 characters",
    ),
    "long texts of SQLite": (
        "sqlite",
        ["CREATE TABLE r(user TEXT, item INT, rating INT)",
         "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t WHERE i < 300) "
         "INSERT INTO r SELECT printf('%.*c', 900000, 'a'), i % 7, 3 FROM t"],
        "", "user must have at most 4,096 characters",
    ),
}  # fmt: skip
REPEATED = ("a computed name", "an endless view")  # a computed rating, and a view of SQLite, say the same
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


# the largest file; "run lengths" and "long texts of SQLite" show the same of numbers and of another database
LONG = "run lengths of text"


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.thorough] if case in (LONG, *REPEATED) else []) for case in CASES],
)
def test_it_ends_in_an_error(tmp_path, case):
    """Before: a computed column was computed for every row, and texts were decoded, until memory was full."""
    form, statements, options, says = CASES[case]
    path = tmp_path / f"t.{form}"
    with closing((sqlite3 if form == "sqlite" else duckdb).connect(str(path))) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit() if form == "sqlite" else None
    child = [sys.executable, "-c", LOAD, f"{path}{options}"]
    ended = subprocess.run(child, capture_output=True, text=True, timeout=MOST_SECONDS, check=True)
    memory, _, message = ended.stdout.partition(" ")
    assert says in message
    assert int(memory) < MOST_MEMORY
