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
    """Make a path of what a user wrote, ``~`` included.

    Parameters
    ----------
    source : str

    Returns
    -------
    Path

    Raises
    ------
    InputError
        If ``~name`` names no user of this machine.
    """
    try:
        return Path(source).expanduser()
    except RuntimeError:
        raise InputError(
            f"--data {shown(source)} names no user of this machine; write the path out"
        ) from None


def is_there(path: Path) -> bool:
    """Tell whether something stands at a path.

    Parameters
    ----------
    path : Path

    Returns
    -------
    bool

    Raises
    ------
    InputError
        If that cannot be found out.
    """
    try:
        return path.exists()
    except OSError as error:  # a name too long, a folder that may not be entered
        raise InputError(f"{path} cannot be read: {reason_of(error)}; check the name") from None


def find_file(directory: Path, *names: str) -> Path | None:
    """Find the first of some names in a directory, plain or gzip-compressed.

    Parameters
    ----------
    directory : Path
    *names : str
        Without ``.gz``.

    Returns
    -------
    Path or None
        None where there is none of them.

    Raises
    ------
    InputError
        As ``is_there``.
    """
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
    times : (n_rows,) float64, or None
        Seconds since 1970, NaN where that is not told.
    notes : tuple of str
    losses : tuple of Loss
    """

    path: Path
    users: Coded
    items: Coded
    values: Coded
    repeated: int
    times: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()


def read_rated(path: Path, rows: Iterable[Chunk], wanted: Wanted | None = None) -> Rated:
    """Read all rows of a file chunk by chunk; what ``wanted`` decided on the way is among the notes.

    Parameters
    ----------
    path : Path
    rows : iterable of Chunk
        Of that file.
    wanted : Wanted, optional
        Which found the columns of the chunks.

    Returns
    -------
    Rated

    Raises
    ------
    InputError
        If there is no row, or one breaks a rule of ``RatingRows``.
    """
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
    """Read rows of a delimited file, found by the names in its header where it has one.

    Parameters
    ----------
    path : Path
    layout : TextFormat
    wanted : Wanted

    Yields
    ------
    Chunk

    Raises
    ------
    InputError
        As ``chunks``, or if a column is missing.
    """
    columns: dict[str, int] = {}
    for table in chunks(path, layout):
        columns = columns or wanted.columns(path, list(table.frame.columns))
        cells = {name: _text_array(table.frame.iloc[:, column]) for name, column in columns.items()}
        yield wanted.chunk(cells, path, table.locate)


def _text_array(column: pd.Series) -> pa.Array:
    cells = pa.array(column, pa.large_string(), from_pandas=True)
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def rated_text(path: Path, layout: TextFormat, wanted: Wanted | None = None) -> Rated:
    """Read the rows of a delimited file.

    Parameters
    ----------
    path : Path
    layout : TextFormat
    wanted : Wanted, optional
        By default columns are guessed.

    Returns
    -------
    Rated

    Raises
    ------
    InputError
        As ``text_chunks`` and ``read_rated``.
    """
    wanted = wanted or Wanted()
    return read_rated(path, text_chunks(path, layout, wanted), wanted)


def simple(name: str, rated: Rated) -> Ratings:
    """Make ratings without a catalogue of users or items.

    Parameters
    ----------
    name : str
        Of the data set.
    rated : Rated

    Returns
    -------
    Ratings
        Whose users and items are those that occur; without attributes and features.

    Raises
    ------
    InputError
        As ``from_triples``.
    """
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
    """Find a file of a published set, plain or gzip-compressed.

    Parameters
    ----------
    directory : Path
    name : str
        Without ``.gz``.

    Returns
    -------
    Path

    Raises
    ------
    InputError
        If it is missing.
    """
    path = find_file(directory, name)
    if path is None:
        raise InputError(f"{directory} must contain {name} (or {name}.gz) of the published set")
    return path
