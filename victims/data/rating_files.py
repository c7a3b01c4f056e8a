"""The rows of rating files, whichever their format, and the folders that they lie in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from victims.common.errors import InputError
from victims.common.files import reason_of
from victims.data.construction import Coded, from_triples
from victims.data.delimited import chunks
from victims.data.encoded_rows import Chunk, RatingRows
from victims.data.losses import Loss, those
from victims.data.ratings import Ratings
from victims.data.tables import shown
from victims.data.text_lines import TextFormat
from victims.data.wanted import Wanted


def path_of(source: str) -> Path:
    """Make a path of what a user wrote, ``~`` included."""
    try:
        return Path(source).expanduser()
    except RuntimeError:
        raise InputError(
            f"--data {shown(source)} names no user of this machine; write the path out"
        ) from None


def is_there(path: Path) -> bool:
    """Tell whether something stands at a path."""
    try:
        return path.exists()
    except OSError as error:  # a name too long, a folder that may not be entered
        raise InputError(f"{path} cannot be read: {reason_of(error)}; check the name") from None


def find_file(directory: Path, *names: str) -> Path | None:
    """Find the first of some names in a directory, plain or gzip-compressed."""
    for name in names:
        for candidate in (directory / name, directory / f"{name}.gz"):
            if is_there(candidate):
                return candidate
    return None


@dataclass(frozen=True)
class Rated:
    """The rows of a rating file, coded."""

    path: Path
    users: Coded
    items: Coded
    values: Coded
    repeated: int  # rows of the same pairs that are left out already
    times: np.ndarray | None = None  # seconds since 1970, NaN where that is not told
    notes: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()


def read_rated(path: Path, rows: Iterable[Chunk], wanted: Wanted | None = None) -> Rated:
    """Read all rows of a file chunk by chunk; what ``wanted`` decided on the way is among the notes."""
    collected = RatingRows(path)
    for chunk in rows:
        collected.add(chunk)
    users, items, values, times = collected.finish()
    lost = wanted.lost(path) if wanted else ()
    if times is not None:
        missing = int(np.isnan(times).sum())
        lost += those(Loss(path.name, "times", missing, times.size, "empty, 0 or no time; the rows stay"))
        times = None if missing == times.size else times
    notes = tuple(wanted.notes) if wanted else ()
    return Rated(path, users, items, values, collected.repeated, times, notes, lost)


def text_chunks(path: Path, layout: TextFormat, wanted: Wanted) -> Iterator[Chunk]:
    """Read rows of a delimited file, found by the names in its header where it has one."""
    columns: dict[str, int] = {}
    for table in chunks(path, layout):
        columns = columns or wanted.columns(path, list(table.frame.columns))
        cells = {name: _text_array(table.frame.iloc[:, column]) for name, column in columns.items()}
        yield wanted.chunk(cells, path, table.locate)


def _text_array(column: pd.Series) -> pa.Array:
    cells = pa.array(column, pa.large_string(), from_pandas=True)
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def rated_text(path: Path, layout: TextFormat, wanted: Wanted | None = None) -> Rated:
    """Read the rows of a delimited file."""
    wanted = wanted or Wanted()
    return read_rated(path, text_chunks(path, layout, wanted), wanted)


def simple(name: str, rated: Rated) -> Ratings:
    """Make ratings without a catalogue of users or items."""
    return from_triples(
        name,
        rated.users,
        rated.items,
        rated.values,
        times=rated.times,
        repeated=rated.repeated,
        notes=rated.notes,
        losses=rated.losses,
    )


def required(directory: Path, name: str) -> Path:
    """Find a file of a published set, plain or gzip-compressed."""
    path = find_file(directory, name)
    if path is None:
        raise InputError(f"{directory} must contain {name} (or {name}.gz) of the published set")
    return path
