"""Files of user, item and rating alone."""

from __future__ import annotations

from pathlib import Path

from victims.data.parquet import parquet_chunks
from victims.data.rating_files import COLUMN_NAMES, find_file, rated_text, read_rated, required, simple
from victims.data.ratings import Ratings
from victims.data.text_lines import TextFormat


def whitespace(path: Path) -> Ratings:
    """``user item rating`` on each line without header: FilmTrust and Epinions."""
    if path.is_dir():
        path = find_file(path, "ratings.txt") or path
    name = path.parent.resolve().name if path.name.startswith("ratings.") else path.stem
    return simple(name, rated_text(path, TextFormat(" ", ("user", "item", "rating"))))


def filmtrust_tab(directory: Path) -> Ratings:
    """FilmTrust in the tab-separated file with three header lines that ``data fetch`` brings."""
    layout = TextFormat("\t", ("user", "item", "rating"), skip_lines=3)
    return simple("filmtrust", rated_text(required(directory, "ratings.tab"), layout))


def delimited(path: Path) -> Ratings:
    """CSV or TSV whose first line names columns user, item and rating (or MovieLens' names)."""
    name = path.name.removesuffix(".gz")
    layout = TextFormat("\t" if name.endswith(".tsv") else ",", quoted=True)
    return simple(Path(name).stem, rated_text(path, layout))


def parquet(path: Path) -> Ratings:
    """Parquet with columns user, item and rating."""
    return simple(path.stem, read_rated(path, parquet_chunks(path, COLUMN_NAMES)))
