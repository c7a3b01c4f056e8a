"""Loaders of published rating files, and the one function that finds the right one.

``load`` takes what the command line calls ``--data``: ``synthetic``, the name of a fetched data set,
or a path. A directory is recognised by the files in it, a file by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from victims.common.errors import InputError
from victims.data.beside import beside
from victims.data.communities import community, parse_community
from victims.data.databases import duckdb_rows, sqlite_rows
from victims.data.fetch import FETCHABLE, cached
from victims.data.filters import with_enough
from victims.data.movielens_files import movielens_1m, movielens_100k, movielens_100k_atomic, movielens_csv
from victims.data.plain_files import database, delimited, filmtrust_tab, json_lines, parquet, whitespace
from victims.data.published import DOUBAN, YELP_REVIEWS, douban, yelp
from victims.data.rating_files import find_file, is_there, path_of
from victims.data.ratings import Ratings
from victims.data.source import DataSource, source_of
from victims.data.synthetic import generate, is_synthetic, parse_synthetic
from victims.data.tables import shown
from victims.data.wanted import Wanted


def load(text: str, options: Mapping[str, Any] | None = None) -> Ratings:
    """Load ratings from a name or a path."""
    if is_synthetic(text):
        if options:
            raise InputError(
                f"{text!r:.80} takes no options of files, got {', '.join(options)}; leave them out"
            )
        return generate(parse_synthetic(text))
    source = source_of(text, options)
    sizes = None if source.community is None else parse_community(source.community)
    path = path_of(source.place)
    if not is_there(path):
        if source.place in FETCHABLE:
            path = cached(source.place)
        else:
            raise InputError(
                f"--data {shown(source.place)} is neither a file nor a known name; use --data synthetic, "
                f"a fetched name ({', '.join(FETCHABLE)}) or a path"
            )
    try:
        ratings = _recognise(path, source)(path)
        ratings = with_enough(beside(ratings, source), source.min_ratings, source.min_item_ratings)
        return ratings if sizes is None else community(ratings, sizes)
    except MemoryError:
        raise InputError(f"{path} does not fit in memory; subsample it") from None
    except pa.ArrowException as error:
        raise InputError(f"{path} cannot be read: {error}; convert it") from None


def _recognise(path: Path, source: DataSource) -> Callable[[Path], Ratings]:
    told = source.implicit or bool(source.columns) or source.table is not None
    if path.is_dir():
        if told:
            raise InputError(f"{path}: columns are named for a single file; give the file itself")
        for name, loader in DIRECTORIES.items():
            if find_file(path, name):
                return loader
        raise InputError(
            f"{path} must contain one of {', '.join(DIRECTORIES)} (or .gz), none is there; "
            "give the file itself if it has another name"
        )
    name = path.name.removesuffix(".gz")
    if name in DIRECTORIES and not told:
        return lambda file: DIRECTORIES[name](file.parent)
    suffix = Path(name).suffix.lower()
    if suffix not in (*SUFFIXES, ".txt"):
        raise InputError(
            f"{path} has no known format; expected {', '.join([*SUFFIXES, '.txt'])} or one of the published "
            f"file names {', '.join(DIRECTORIES)}"
        )
    if source.table is not None and suffix not in DATABASES:
        raise InputError(f"{path} is no database, so it has no table {shown(source.table)}; leave it out")
    if suffix == ".txt":
        if told:
            raise InputError(
                f"{path} has no header that names columns; give it one, and the ending .csv or .tsv"
            )
        return whitespace
    return lambda file: SUFFIXES[suffix](file, Wanted.of(source), source.table)


DIRECTORIES: dict[str, Callable[[Path], Ratings]] = {
    "u.data": movielens_100k,
    "ml-100k.inter": movielens_100k_atomic,
    "ratings.dat": movielens_1m,
    "ratings.csv": movielens_csv,
    "ratings.tab": filmtrust_tab,
    "ratings.txt": whitespace,
    YELP_REVIEWS: yelp,
    **{name: partial(douban, name=name) for name in DOUBAN},
}
DATABASES = (".sqlite", ".sqlite3", ".db", ".duckdb", ".ddb")
SUFFIXES: dict[str, Callable[[Path, Wanted, str | None], Ratings]] = {
    ".csv": lambda path, wanted, table: delimited(path, wanted),
    ".tsv": lambda path, wanted, table: delimited(path, wanted),
    ".inter": lambda path, wanted, table: delimited(path, wanted),
    ".parquet": lambda path, wanted, table: parquet(path, wanted),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), lambda path, wanted, table: json_lines(path, wanted)),
    **dict.fromkeys((".sqlite", ".sqlite3", ".db"), partial(database, rows=sqlite_rows)),
    **dict.fromkeys((".duckdb", ".ddb"), partial(database, rows=duckdb_rows)),
}
