"""The rows of rating files, whichever their format, and the folders that they lie in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from victims.common.errors import InputError
from victims.common.files import reason_of
from victims.data.construction import Coded, from_triples
from victims.data.delimited import chunks
from victims.data.encoded_rows import Chunk, RatingRows
from victims.data.ratings import Ratings
from victims.data.tables import chosen, shown
from victims.data.text_lines import TextFormat

COLUMN_NAMES = {
    "user": ("user", "user_id", "userid", "user_id:token"),
    "item": ("item", "item_id", "itemid", "movieid", "movie_id", "item_id:token"),
    "rating": ("rating", "score", "rating:float"),
}


def path_of(source: str) -> Path:
    """The path that a user wrote, ``~`` included."""
    try:
        return Path(source).expanduser()
    except RuntimeError:
        raise InputError(
            f"--data {shown(source)} names no user of this machine; write the path out"
        ) from None


def is_there(path: Path) -> bool:
    """Whether something stands there; InputError where that cannot be found out."""
    try:
        return path.exists()
    except OSError as error:  # a name too long, a folder that may not be entered
        raise InputError(f"{path} cannot be read: {reason_of(error)}; check the name") from None


def find_file(directory: Path, *names: str) -> Path | None:
    """The first of some names in a directory, plain or gzip-compressed."""
    for name in names:
        for candidate in (directory / name, directory / f"{name}.gz"):
            if is_there(candidate):
                return candidate
    return None


@dataclass(frozen=True)
class Rated:
    """The rows of a rating file, coded.

    Attributes
    ----------
    path : Path
    users, items, values : Coded
    repeated : int
        Rows of the same pairs that are left out already.
    """

    path: Path
    users: Coded
    items: Coded
    values: Coded
    repeated: int


def read_rated(path: Path, rows: Iterable[Chunk]) -> Rated:
    """All rows of a file, read chunk by chunk."""
    collected = RatingRows(path)
    for chunk in rows:
        collected.add(chunk)
    return Rated(path, *collected.finish(), collected.repeated)


def _text_chunks(path: Path, layout: TextFormat) -> Iterator[Chunk]:
    """User, item and rating of a delimited file, found by the names in its header where it has one."""
    for table in chunks(path, layout):
        columns = chosen(path, list(table.frame.columns), COLUMN_NAMES)
        cells = {name: _text_array(table.frame.iloc[:, column]) for name, column in columns.items()}
        yield Chunk(**cells, path=path, locate=table.locate)


def _text_array(column: pd.Series) -> pa.Array:
    cells = pa.array(column, pa.large_string(), from_pandas=True)
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def rated_text(path: Path, layout: TextFormat) -> Rated:
    """User, item and rating of a delimited file."""
    return read_rated(path, _text_chunks(path, layout))


def simple(name: str, rated: Rated) -> Ratings:
    """Ratings without a catalogue of users or items."""
    return from_triples(name, rated.users, rated.items, rated.values, repeated=rated.repeated)


def required(directory: Path, name: str) -> Path:
    """A file of a published set, plain or gzip-compressed; InputError where it is missing."""
    path = find_file(directory, name)
    if path is None:
        raise InputError(f"{directory} must contain {name} (or {name}.gz) of the published set")
    return path
