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
    """Read ``user item rating`` on each line without header: FilmTrust and Epinions.

    Parameters
    ----------
    path : Path
        Of the file, or of a folder with ``ratings.txt``.

    Returns
    -------
    Ratings
        Without attributes and features.

    Raises
    ------
    InputError
        If the file cannot be read or a row breaks a rule.
    """
    if path.is_dir():
        path = find_file(path, "ratings.txt") or path
    name = path.parent.resolve().name if path.name.startswith("ratings.") else path.stem
    return simple(name, rated_text(path, TextFormat(" ", ("user", "item", "rating"))))


def filmtrust_tab(directory: Path) -> Ratings:
    """Read FilmTrust in the tab-separated file with three header lines that ``data fetch`` brings.

    Parameters
    ----------
    directory : Path
        With ``ratings.tab``.

    Returns
    -------
    Ratings
        Without attributes and features.

    Raises
    ------
    InputError
        If the file is missing or a row breaks a rule.
    """
    layout = TextFormat("\t", ("user", "item", "rating"), skip_lines=3)
    return simple("filmtrust", rated_text(required(directory, "ratings.tab"), layout))


def delimited(path: Path, wanted: Wanted | None = None) -> Ratings:
    """Read CSV or TSV whose first line names its columns.

    Parameters
    ----------
    path : Path
        Plain or gzip-compressed; ``.tsv`` and ``.inter`` are separated by tabs.
    wanted : Wanted, optional
        By default columns are guessed.

    Returns
    -------
    Ratings
        Without attributes and features.

    Raises
    ------
    InputError
        If the file cannot be read, a column is missing, or a row breaks a rule.
    """
    name = path.name.removesuffix(".gz")
    layout = TextFormat("\t" if name.lower().endswith((".tsv", ".inter")) else ",", quoted=True)
    return simple(Path(name).stem, rated_text(path, layout, wanted))


def parquet(path: Path, wanted: Wanted | None = None) -> Ratings:
    """Read Parquet with the columns of ratings.

    Parameters
    ----------
    path : Path
    wanted : Wanted, optional
        By default columns are guessed.

    Returns
    -------
    Ratings
        Without attributes and features.

    Raises
    ------
    InputError
        As ``parquet_chunks``, or if a row breaks a rule.
    """
    wanted = wanted or Wanted()
    return simple(path.stem, read_rated(path, parquet_chunks(path, wanted), wanted))


def json_lines(path: Path, wanted: Wanted) -> Ratings:
    """Read JSON lines, an object a rating.

    Parameters
    ----------
    path : Path
        Plain or gzip-compressed.
    wanted : Wanted

    Returns
    -------
    Ratings
        Without attributes and features.

    Raises
    ------
    InputError
        As ``json_chunks``, or if a row breaks a rule.
    """
    name = Path(path.name.removesuffix(".gz")).stem
    return simple(name, read_rated(path, json_chunks(path, wanted), wanted))


def database(path: Path, wanted: Wanted, table: str | None, rows: Reader) -> Ratings:
    """Read a table of a SQLite or DuckDB file.

    Parameters
    ----------
    path : Path
    wanted : Wanted
    table : str or None
        None where there is one only.
    rows : callable
        ``sqlite_rows`` or ``duckdb_rows``.

    Returns
    -------
    Ratings
        Without attributes and features.

    Raises
    ------
    InputError
        As ``database_chunks``, or if a row breaks a rule.
    """
    return simple(path.stem, read_rated(path, database_chunks(rows, path, wanted, table), wanted))
