"""Files of user, item and rating alone."""

from __future__ import annotations

from pathlib import Path

from victims.data.databases import Reader, database_chunks
from victims.data.json_lines import json_chunks
from victims.data.parquet import parquet_chunks
from victims.data.rating_files import find_file, rated_text, read_rated, required, simple
from victims.data.ratings import Ratings
from victims.data.text_lines import TextFormat
from victims.data.wanted import Wanted


def whitespace(path: Path) -> Ratings:
    """Read ``user item rating`` on each line without header: FilmTrust and Epinions."""
    if path.is_dir():
        path = find_file(path, "ratings.txt") or path
    name = path.parent.resolve().name if path.name.startswith("ratings.") else path.stem
    return simple(name, rated_text(path, TextFormat(" ", ("user", "item", "rating"))))


def filmtrust_tab(directory: Path) -> Ratings:
    """Read FilmTrust in the tab-separated file with three header lines that ``data fetch`` brings."""
    layout = TextFormat("\t", ("user", "item", "rating"), skip_lines=3)
    return simple("filmtrust", rated_text(required(directory, "ratings.tab"), layout))


def delimited(path: Path, wanted: Wanted | None = None) -> Ratings:
    """Read CSV or TSV whose first line names its columns."""
    name = path.name.removesuffix(".gz")
    layout = TextFormat("\t" if name.lower().endswith((".tsv", ".inter")) else ",", quoted=True)
    return simple(Path(name).stem, rated_text(path, layout, wanted))


def parquet(path: Path, wanted: Wanted | None = None) -> Ratings:
    """Read Parquet with the columns of ratings."""
    wanted = wanted or Wanted()
    return simple(path.stem, read_rated(path, parquet_chunks(path, wanted), wanted))


def json_lines(path: Path, wanted: Wanted) -> Ratings:
    """Read JSON lines, an object a rating."""
    name = Path(path.name.removesuffix(".gz")).stem
    return simple(name, read_rated(path, json_chunks(path, wanted), wanted))


def database(path: Path, wanted: Wanted, table: str | None, rows: Reader) -> Ratings:
    """Read a table of a SQLite or DuckDB file."""
    return simple(path.stem, read_rated(path, database_chunks(rows, path, wanted, table), wanted))
