"""Rows of a file as text, and checks that name the file, line and rule of the first bad cell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd

from victims.common.errors import InputError
from victims.data.streams import MIB

MAX_IDENTIFIER = 256  # characters
MAX_TEXT_BYTES = 256 * MIB  # of distinct identifiers, in an array of one width
LONGEST_VALUE = 60  # characters of a value in a message


@dataclass(frozen=True)
class Table:
    """Rows of a file, all cells as text, and where in the file they stand."""

    frame: pd.DataFrame
    path: Path
    locate: Callable[[int], str]  # row of the frame -> ``line 5``

    def __getitem__(self, column: str) -> pd.Series:
        """A column."""
        return self.frame[column]

    def text(self, column: str) -> list[str]:
        """A column, nothing where a line ended before it."""
        return self.frame[column].fillna("").astype(str).tolist()

    def require(self, *columns: str) -> None:
        """Refuse a table that lacks one of the columns, or has it twice."""
        for column in columns:
            count = list(self.frame.columns).count(column)
            if count != 1:
                rule = "must name a column" if count == 0 else "must name only one column"
                raise InputError(f"{self.path} line 1: {rule} {column!r}")

    def renamed(self, names: Callable[[str], str]) -> Table:
        """The same under other column names."""
        return Table(self.frame.rename(columns=names), self.path, self.locate)


def chosen(
    path: Path,
    header: Sequence[str],
    names: Mapping[str, Sequence[str]],
    optional: Collection[str] = (),
) -> dict[str, int]:
    """Find the index in the header of each column that is looked for under any of its spellings."""
    columns: dict[str, int] = {}
    for wanted, spellings in names.items():
        matches = [column for column, name in enumerate(header) if str(name).strip().lower() in spellings]
        if not matches and wanted in optional:
            continue
        if not matches:
            heads = ", ".join(map(shown, header[:10]))
            raise InputError(
                f"{path} must name a column {wanted!r} in its header, got {heads}; give it as {wanted}=NAME"
            )
        if len(matches) > 1:
            heads = " and ".join(shown(header[column]) for column in matches[:2])
            raise InputError(f"{path} must name one column {wanted!r} in its header, got {heads}; rename one")
        columns[wanted] = matches[0]
    return columns


def integers(table: Table, column: str, *, low: int, high: int) -> np.ndarray:
    """Read a column as int64."""
    numbers = numeric(table, column)
    bad = np.flatnonzero((numbers != np.rint(numbers)) | (numbers < low) | (numbers > high))
    if bad.size:
        fail(table, column, int(bad[0]), f"an integer between {low} and {high}")
    return numbers.astype(np.int64)


def numeric(table: Table, column: str) -> np.ndarray:
    """Read a column as finite float64."""
    numbers = pd.to_numeric(table[column], errors="coerce").to_numpy(np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        fail(table, column, int(bad[0]), "a finite number")
    return numbers


def identifiers(table: Table, column: str) -> np.ndarray:
    """Read a column as int64 where every identifier is an integer, else as text; never empty, none twice."""
    values = table[column]
    text = values.astype(str).str.strip()
    bad = np.flatnonzero((text == "").to_numpy() | values.isna().to_numpy())
    if bad.size:
        fail(table, column, int(bad[0]), "a non-empty identifier")
    bad = np.flatnonzero((text.str.len() > MAX_IDENTIFIER).to_numpy())
    if bad.size:
        fail(table, column, int(bad[0]), f"an identifier of at most {MAX_IDENTIFIER} characters")
    if len(text) * text.str.len().max() * 4 > MAX_TEXT_BYTES:
        raise InputError(too_much_text(table.path, f"column {column}"))
    all_integers = text.str.fullmatch(r"-?\d{1,18}").all()
    ids = text.astype(np.int64).to_numpy() if all_integers else text.to_numpy(dtype=str)
    bad = np.flatnonzero(pd.Series(ids).duplicated().to_numpy())
    if bad.size:
        fail(table, column, int(bad[0]), "an identifier that no line above has")
    return ids


def too_much_text(path: Path, name: str) -> str:
    """Write the message about identifiers that are too long for their number."""
    return f"{path}: the identifiers of {name} must fit into {MAX_TEXT_BYTES // MIB} MiB; number them"


def categories(table: Table, column: str, names: Sequence[str]) -> np.ndarray:
    """Find the index in ``names`` of every entry of a column."""
    index = pd.Index(names).get_indexer(pd.Index(table[column]))
    bad = np.flatnonzero(index < 0)
    if bad.size:
        fail(table, column, int(bad[0]), f"one of {', '.join(names)}")
    return index


def fail(table: Table, column: str, row: int, rule: str) -> NoReturn:
    """Raise the error for one bad cell, with its line."""
    value = table[column].iloc[row]
    raise InputError(f"{table.path} {table.locate(row)}: {column} must be {rule}, got {shown(value)}")


def shown(value: object) -> str:
    """Write a value of a file for a message: as Python writes it, and not longer than a line takes.

    Examples
    --------
    >>> shown("x" * 1000)[-12:]
    'xxxxxxxxx...'
    """
    text = repr(value[: 2 * LONGEST_VALUE] if isinstance(value, str | bytes) else value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."
