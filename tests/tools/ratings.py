"""Damages rating files of every published format and counts what the readers say.

    python -m tests.tools.ratings --files 2000 --seed 0

Each damaged file is read in a process with 4 GB of address space; one that ends with anything but ratings or
an ``InputError``, or takes more than a minute, counts as crashed and its bytes are kept. Exit code 1 then.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ADDRESS_SPACE = 4 << 30  # bytes
SECONDS = 60
BATCH = 100  # files in one process
FLAGS = "|".join("0" * 18)
ABSURD = (
    b"", b"-1", b"0", b"1e308", b"inf", b"nan", b"True", b'"', b'"a\nb"', b"\xff", b"\0", b"\r", b"\n\n",
    b",", b"9" * 400, b"x" * 300, b"'" * 70_000, "\u202e".encode(), b"\xef\xbb\xbf", b"\xff\xfe",
    b"1,2,3,4,5,6,7", b"::",
)  # fmt: skip
TYPES = (
    pa.bool_(), pa.timestamp("s"), pa.duration("ms"), pa.date32(), pa.binary(), pa.list_(pa.int8()),
    pa.float16(), pa.float64(), pa.uint64(), pa.int8(), pa.decimal128(20, 2), pa.string(), pa.large_string(),
    pa.null(),
)  # fmt: skip


def published() -> dict[str, dict[str, bytes]]:
    """Path to load -> files of a small valid set in that format."""
    rng = np.random.default_rng(1)
    rows = [(int(u), int(i), int(s)) for u, i, s in zip(*rng.integers(1, 6, (3, 200)), strict=True)]

    def text(separator: str, header: str = "", extra: str = "") -> bytes:
        return (header + "".join(separator.join(map(str, row)) + extra + "\n" for row in rows)).encode()

    people = "".join(f"{k}|24|M|writer|85711\n" for k in range(1, 6)).encode()
    films = "".join(f"{k}|Caf\xe9 (199{k})|||url|1|{FLAGS}\n" for k in range(1, 6)).encode("latin-1")
    atoms = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    return {
        "ml-100k": {"u.data": text("\t", extra="\t880"), "u.user": people, "u.item": films},
        "atomic": {
            "ml-100k.inter": text("\t", atoms, "\t880"),
            "ml-100k.user": ("user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token\n"
                + people.decode().replace("|", "\t")).encode(),
            "ml-100k.item": ("item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
                + "".join(f"{k}\tA\t1995\tDrama War\n" for k in range(1, 6))).encode(),
        },
        "ml-1m": {
            "ratings.dat.gz": gzip.compress(text("::", extra="::9")),
            "users.dat": "".join(f"{k}::F::18::{k}::48067\n" for k in range(1, 6)).encode(),
            "movies.dat": "".join(f"{k}::Caf\xe9 (1990)::War|Drama\n" for k in range(1, 6)).encode("latin-1"),
        },
        "latest": {
            "ratings.csv": text(",", "userId,movieId,rating,timestamp\r\n", ",9\r"),
            "movies.csv": ("movieId,title,genres\n"
                + "".join(f'{k},"A, the (1990)",Drama\n' for k in range(1, 6))).encode(),
        },
        "tab": {"ratings.tab": text("\t", "user\tmovie\tscore\nc\tc\tc\nrow=1\tcol=1\tclass\n")},
        "spaces/ratings.txt": {"ratings.txt": text(" ")},
        "csv/a.csv": {"a.csv": text(",", "user,item,rating,note\n", ',"a\nb"')},
        "gz/a.csv.gz": {"a.csv.gz": gzip.compress(text(",", "user,item,rating\n"))},
        "tsv/a.tsv": {"a.tsv": text("\t", "user\titem\trating\n")},
        "parquet/a.parquet": {"a.parquet": parquet(rows, rng)},
        "lines/a.jsonl": {"a.jsonl": json_lines(rows, ("user", "item", "rating"))},
        "yelp/yelp_academic_dataset_review.json:trust=yelp_academic_dataset_user.json": {
            "yelp_academic_dataset_review.json": json_lines(
                [(f"u{u}", f"b{i}", float(s), "2018-07-07 22:09:11", "x[{") for u, i, s in rows],
                ("user_id", "business_id", "stars", "date", "text"),
            ),
            "yelp_academic_dataset_user.json": json_lines(
                [(f"u{k}", ", ".join(f"u{f}" for f in range(k))) for k in range(1, 6)], ("user_id", "friends")
            ),
        },
        "douban": {
            "bookreviews_cleaned.txt": text("\t", "user_id\tbook_id\trating\ttime\n", "\t2011-02-01"),
        },
        "sqlite/a.sqlite": {"a.sqlite": database("sqlite", tuple(rows))},
        "duckdb/a.duckdb": {"a.duckdb": database("duckdb", tuple(rows))},
        "beside/a.csv:attributes=users.csv,features=items.csv,trust=trust.txt,min_ratings=2": {
            "a.csv": text(",", "user,item,rating\n"),
            "users.csv": b"user,sex,town\n1,f,a\n2,m,\n3,f,b\n",
            "items.csv": b"item,price,kind\n1,2.5,a|b\n2,1,b\n3,,\n",
            "trust.txt": b"1 2\n2 3\n3 3\n",
        },
        "counts/a.csv:rating=plays,implicit=true": {"a.csv": text(",", "user,item,plays\n")},
    }  # fmt: skip


def json_lines(rows: list, names: tuple[str, ...]) -> bytes:
    """An object a row."""
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows).encode()


@cache
def database(form: str, rows: tuple[tuple[int, int, int], ...]) -> bytes:
    """The rows in a table of a database file."""
    import duckdb

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a.{form}"
        with closing((sqlite3 if form == "sqlite" else duckdb).connect(str(path))) as connection:
            connection.execute('CREATE TABLE ratings ("user" INTEGER, item INTEGER, rating INTEGER)')
            connection.executemany("INSERT INTO ratings VALUES (?, ?, ?)", list(rows))
            connection.commit()
        return path.read_bytes()


def parquet(rows: list[tuple[int, int, int]], rng: np.random.Generator) -> bytes:
    """The rows with columns of types drawn at random; integers and text if drawn so."""
    columns = {}
    for name, values in zip(("user", "item", "rating"), zip(*rows, strict=True), strict=True):
        column = pa.array(values)
        if rng.random() < 0.3:
            kind = TYPES[rng.integers(len(TYPES))]
            try:
                column = column.cast(kind)
            except pa.ArrowException:
                column = pa.nulls(len(values), kind)
        encodes = (
            not column.null_count and not pa.types.is_nested(column.type) and column.type != pa.float16()
        )
        columns[name] = column.dictionary_encode() if encodes and rng.random() < 0.2 else column
    file = io.BytesIO()
    compression = ("none", "snappy", "zstd", "gzip")[rng.integers(4)]
    pq.write_table(pa.table(columns), file, compression=compression, use_dictionary=bool(rng.random() < 0.5))
    return file.getvalue()


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """The same with one to three things done to it."""
    for _ in range(rng.integers(1, 4)):
        content = DAMAGES[rng.integers(len(DAMAGES))](content, rng)
    return content


def flipped(content: bytes, rng: np.random.Generator) -> bytes:
    """Some bytes replaced."""
    data = np.frombuffer(content, np.uint8).copy()
    if data.size:
        data[rng.integers(data.size, size=rng.integers(1, 9))] = rng.integers(256)
    return data.tobytes()


def flipped_at_end(content: bytes, rng: np.random.Generator) -> bytes:
    """Bytes replaced where Parquet describes itself."""
    return content[:-400] + flipped(content[-400:], rng)


def cut(content: bytes, rng: np.random.Generator) -> bytes:
    """The end, the start or a piece left out."""
    low, high = sorted(rng.integers(len(content) + 1, size=2))
    return (content[:low], content[low:], content[:low] + content[high:])[rng.integers(3)]


def repeated(content: bytes, rng: np.random.Generator) -> bytes:
    """A piece again and again, up to 16 MiB."""
    low, high = sorted(rng.integers(len(content) + 1, size=2))
    times = int(min(10 ** rng.integers(1, 8), (16 << 20) // max(1, high - low)))
    return content[:high] + content[low:high] * times + content[high:]


def absurd(content: bytes, rng: np.random.Generator) -> bytes:
    """A field replaced by what it should not hold."""
    start = rng.integers(max(1, len(content) - 4096))
    fields = re.split(rb"([\t\n,| :])", content[start : start + 4096])
    fields[rng.integers(len(fields))] = ABSURD[rng.integers(len(ABSURD))]
    return content[:start] + b"".join(fields) + content[start + 4096 :]


DAMAGES: tuple[Callable[[bytes, np.random.Generator], bytes], ...] = (
    flipped, flipped_at_end, cut, repeated, absurd, absurd,
)  # fmt: skip


def write_case(folder: Path, rng: np.random.Generator) -> Path:
    """One damaged set in a folder; the path to load."""
    sets = published()
    source = list(sets)[rng.integers(len(sets))]
    files = sets[source]
    chosen = list(files)[rng.integers(len(files))]
    content = files[chosen]
    if chosen.endswith(".parquet"):
        content = parquet([(k, k % 7, 1 + k % 5) for k in range(rng.integers(1, 3000))], rng)
        content = content if rng.random() < 0.3 else damaged(content, rng)
    elif chosen.endswith(".gz") and rng.random() < 0.7:
        content = gzip.compress(damaged(gzip.decompress(content), rng), 1)
    else:
        content = damaged(content, rng)
    place = folder / source
    home = place.parent if "/" in source else place
    home.mkdir(parents=True)
    for name, data in files.items():
        (home / name).write_bytes(content if name == chosen else data)
    return place


def read_all(sources: list[str]) -> None:
    """In the limited process: a line of JSON for each file."""
    from victims.common.errors import InputError
    from victims.common.limits import peak_memory
    from victims.data.loaders import load

    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    for source in sources:
        signal.alarm(SECONDS)
        try:
            load(source)
            said = "read"
        except InputError as error:
            said = str(error).replace(source, "FILE")
        except Exception as error:
            said = f"crashed: {type(error).__name__}: {error}"
        signal.alarm(0)
        print(json.dumps([said, peak_memory()]), flush=True)


def rule_of(message: str) -> str:
    """The words of a refusal without names and numbers."""
    if "\n" in message:
        return "SEVERAL LINES"
    found = re.search(r"(must|cannot|is not|rates|does not|no known)\b.*", message)
    words = re.sub(
        r"'[^']*'|\"[^\"]*\"|0x\w+|[\d.,e+-]*\d[\d.,]*",
        "_",
        found.group() if found else message.partition(" ")[2],
    )
    return " ".join(re.split(r", got|;|: ", words)[0].split()[:7])


def soak(files: int, seed: int, keep: Path) -> tuple[Counter[str], str]:
    """Counts of the outcomes, and the peak memory with what was said there."""
    rng = np.random.default_rng(seed)
    counts: Counter[str] = Counter()
    peak, hungriest = 0, ""
    for start in range(0, files, BATCH):
        with tempfile.TemporaryDirectory() as scratch:
            waiting = [str(write_case(Path(scratch) / str(k), rng)) for k in range(min(BATCH, files - start))]
            while waiting:
                done = subprocess.run(
                    [sys.executable, "-m", "tests.tools.ratings", "--read", *waiting],
                    capture_output=True, text=True, check=False,
                )  # fmt: skip
                answers = [json.loads(line) for line in done.stdout.splitlines()]
                if len(answers) < len(waiting):
                    answers.append([f"crashed: exit {done.returncode} {done.stderr[-300:]}", 0])
                for source, (said, used) in zip(waiting, answers, strict=False):
                    if used > peak:
                        peak, hungriest = used, said
                    kind = (
                        said if said == "read" or said.startswith("crashed") else f"refused: {rule_of(said)}"
                    )
                    counts[kind] += 1
                    if kind.startswith("crashed"):
                        folder = Path(scratch) / Path(source).relative_to(scratch).parts[0]
                        shutil.copytree(folder, keep / f"{seed}-{start}-{folder.name}", dirs_exist_ok=True)
                waiting = waiting[len(answers) :]
    return counts, f"{peak / 2**20:.0f} MiB at {hungriest!r}"


def main() -> int:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "soak-ratings")
    parser.add_argument("--read", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read_all(options.read)
        return 0
    counts, peak = soak(options.files, options.seed, options.keep)
    for kind, count in counts.most_common():
        print(f"{count:6d}  {kind}")
    crashed = sum(count for kind, count in counts.items() if kind.startswith("crashed"))
    refused = sum(count for kind, count in counts.items() if kind.startswith("refused"))
    print(
        f"{options.files} files: {refused} refused by a rule, {counts['read']} read, {crashed} crashed; "
        f"peak memory {peak}"
    )
    return 1 if crashed else 0


if __name__ == "__main__":
    sys.exit(main())
