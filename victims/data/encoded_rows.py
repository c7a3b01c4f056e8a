"""Rating rows of any number as codes: nine bytes a row and each identifier once.

Identifiers are dictionary-encoded chunk by chunk and the dictionaries united now and then (Arrow does both);
pairs that repeat are then reduced to their last row, so that a file of repeats takes no more than its pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from victims.common.errors import InputError
from victims.data.construction import Coded, last_of_each
from victims.data.ratings import MAX_LEVELS, MAX_RATING
from victims.data.streams import MIB
from victims.data.tables import MAX_IDENTIFIER, MAX_TEXT_BYTES, shown, too_much_text

MAX_RATINGS = 1 << 27  # pairs; all of the Netflix Prize, five times MovieLens 25M
MAX_IDENTIFIERS = 1 << 24  # users, and items: victims hold dense factors of each
PENDING_BYTES = 128 * MIB
INTEGER = r"^-?[0-9]{1,18}$"


@dataclass(frozen=True)
class Chunk:
    """Some rows of a file."""

    user: pa.Array  # text, numbers or dictionaries of them
    item: pa.Array  # text, numbers or dictionaries of them
    rating: pa.Array  # text, numbers or dictionaries of them
    path: Path
    locate: Callable[[int], str]  # row of the chunk -> where it stands in the file
    # where the file tells when ratings were given: float64, seconds since 1970, NaN where it does not
    time: pa.Array | None = None

    def of_rows(self, rows: np.ndarray) -> Chunk:
        """Some of the rows, which are still found in the file."""
        kept = pa.array(rows)
        columns = {name: getattr(self, name) for name in ("user", "item", "rating", "time")}
        some = {name: column.take(kept) for name, column in columns.items() if column is not None}
        return Chunk(**some, path=self.path, locate=lambda row: self.locate(int(rows[row])))

    def fail(self, column: str, bad: np.ndarray, rule: str) -> None:
        """Raise the error for the first row where ``bad``, if there is one."""
        if bad.any():
            row = int(np.argmax(bad))
            self.refuse(column, row, rule)

    def refuse(self, column: str, row: int, rule: str) -> NoReturn:
        """Raise the error for one cell."""
        cell = getattr(self, column)[row]
        raise InputError(f"{self.path} {self.locate(row)}: {column} must be {rule}, got {_cell(cell)}")


def _cell(cell: pa.Scalar) -> str:
    value = cell.value if isinstance(cell, pa.DictionaryScalar) else cell
    return "nothing" if not value.is_valid else shown(value.as_py())


class RatingRows:
    """Collects the rows of one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._users: list[pa.DictionaryArray] = []
        self._items: list[pa.DictionaryArray] = []
        self._stars: list[np.ndarray] = []
        self._times: list[np.ndarray] = []  # empty where the file tells none
        self._levels: dict[float, int] = {}
        self._pending = self._settled = 0  # bytes
        self.repeated = 0

    def add(self, chunk: Chunk) -> None:
        """Take some rows."""
        if len(chunk.rating) == 0:
            return
        stars = self._coded_stars(chunk)
        users, items = _encoded(chunk, "user"), _encoded(chunk, "item")
        self._users.append(users)
        self._items.append(items)
        self._stars.append(stars)
        if chunk.time is not None:
            times = chunk.time.to_numpy(zero_copy_only=False)
            self._times.append(times)
            self._pending += times.nbytes
        self._pending += stars.nbytes + _bytes(users) + _bytes(items)
        if self._pending > max(PENDING_BYTES, self._settled):
            self._settle()

    def finish(self) -> tuple[Coded, Coded, Coded, np.ndarray | None]:
        """Users, items, ratings and times of all rows; empties the collection."""
        if not self._stars:
            raise InputError(f"{self._path} must hold at least one rating, got none")
        self._unite()
        users, items, stars = self._users.pop(), self._items.pop(), self._stars.pop()
        times = self._times.pop() if self._times else None
        levels = np.array(list(self._levels), np.float64)
        return (
            _sorted_ids(self._path, "user", users),
            _sorted_ids(self._path, "item", items),
            Coded(levels, stars),
            times,
        )

    def _coded_stars(self, chunk: Chunk) -> np.ndarray:
        """Index of the rating level of each row, as uint8."""
        codes, distinct = _coded(_floats_as_double(chunk.rating))
        numbers = pd.to_numeric(pd.Series(distinct.to_pylist(), dtype=object), errors="coerce")
        values = np.append(numbers.to_numpy(np.float64), np.nan)  # code -1: nothing there
        chunk.fail("rating", ~np.isfinite(values)[codes], "a finite number")
        chunk.fail("rating", (values <= 0)[codes], "> 0 (0 means unrated)")
        chunk.fail("rating", (values > MAX_RATING)[codes], f"at most {MAX_RATING:,.0f}")
        levels = [self._levels.setdefault(value, len(self._levels)) for value in values[:-1].tolist()]
        if len(self._levels) > MAX_LEVELS:
            raise InputError(
                f"{self._path} must hold ratings on a grid of at most {MAX_LEVELS} levels, got more distinct "
                f"values, as {list(self._levels)[-1]:g}; round them to the levels that users could choose"
            )
        return np.array([*levels, 0], np.uint8)[codes]

    def _settle(self) -> None:
        """Unite the dictionaries and drop all but the last row of each pair; rows keep their order."""
        self._unite()
        users, items = (np.asarray(column[0].indices) for column in (self._users, self._items))
        kept = np.sort(last_of_each(users.astype(np.int64) << 32 | items))
        if kept.size < users.size:
            self.repeated += users.size - kept.size
            self._users = [_with_codes(self._users[0], users[kept])]
            self._items = [_with_codes(self._items[0], items[kept])]
            self._stars = [self._stars[0][kept]]
            self._times = [times[kept] for times in self._times]
        if kept.size > MAX_RATINGS:
            raise InputError(f"{self._path} must hold at most {MAX_RATINGS:,} ratings; subsample it")
        self._settled = self._stars[0].nbytes + _bytes(self._users[0]) + _bytes(self._items[0])
        self._pending = 0

    def _unite(self) -> None:
        for name, column in (("users", self._users), ("items", self._items)):
            column[:] = [pa.chunked_array(column).combine_chunks()]
            self._check_size(name, column[0].dictionary)
        self._stars = [np.concatenate(self._stars)]
        self._times = [np.concatenate(self._times)] if self._times else []

    def _check_size(self, name: str, ids: pa.Array) -> None:
        if len(ids) > MAX_IDENTIFIERS:
            raise InputError(
                f"{self._path} must have at most {MAX_IDENTIFIERS:,} {name}, got {len(ids):,}; subsample it"
            )
        if (
            not pa.types.is_integer(ids.type)
            and (pc.sum(pc.binary_length(ids)).as_py() or 0) > MAX_TEXT_BYTES
        ):
            raise InputError(too_much_text(self._path, name))


def _coded(column: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Code of each row, -1 where nothing is there, and what the codes mean: only what is used."""
    if not isinstance(column, pa.DictionaryArray):
        encoded = column.dictionary_encode()
        return _codes(encoded), encoded.dictionary
    used, positions = np.unique(_codes(column), return_inverse=True)
    nothing = int(used[0] < 0)
    return positions.astype(np.int32) - np.int32(nothing), column.dictionary.take(pa.array(used[nothing:]))


def _floats_as_double(column: pa.Array) -> pa.Array:
    """Arrow encodes neither half floats nor short decimals."""
    is_float = pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)
    return column.cast(pa.float64()) if is_float else column


def _codes(column: pa.DictionaryArray) -> np.ndarray:
    return np.asarray(column.indices.cast(pa.int32()).fill_null(-1))


def _with_codes(column: pa.DictionaryArray, codes: np.ndarray) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), column.dictionary)


def _bytes(column: pa.DictionaryArray) -> int:
    return int(column.indices.nbytes + column.dictionary.nbytes)


def _encoded(chunk: Chunk, name: str) -> pa.DictionaryArray:
    """Identifiers as codes of a dictionary of int64 or of text without blanks around it."""
    codes, distinct = _coded(_floats_as_double(getattr(chunk, name)))
    if pa.types.is_integer(distinct.type) or pa.types.is_floating(distinct.type):
        chunk.fail(name, codes < 0, "a non-empty identifier")
        ids = _whole_numbers(chunk, name, codes, distinct)
    else:
        # the length first: nothing may be made of a text that is too long
        long = np.append(np.asarray(pc.utf8_length(distinct)) > MAX_IDENTIFIER, False)
        chunk.fail(name, long[codes], f"an identifier of at most {MAX_IDENTIFIER} characters")
        ids = pc.utf8_trim_whitespace(distinct.cast(pa.large_string()))
        empty = np.append(np.asarray(pc.equal(ids, "")), True)
        chunk.fail(name, empty[codes], "a non-empty identifier")
        strange = np.append(np.asarray(pc.match_substring(ids, "\0")), False)
        chunk.fail(name, strange[codes], "an identifier without a NUL character")
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), ids)


def _whole_numbers(chunk: Chunk, name: str, codes: np.ndarray, distinct: pa.Array) -> pa.Array:
    try:
        return distinct.cast(pa.int64())
    except pa.ArrowInvalid:
        numbers = distinct.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        strange = ~((numbers == np.rint(numbers)) & (np.abs(numbers) < 2.0**63))
        chunk.fail(name, strange[codes], "a whole number below 2^63, or text")
        raise InputError(f"{chunk.path}: {name} must be whole numbers below 2^53, or text") from None


def _sorted_ids(path: Path, name: str, column: pa.DictionaryArray) -> Coded:
    """Ascending int64 identifiers where all are integers, else text of one width."""
    ids = column.dictionary
    if pa.types.is_integer(ids.type):
        values = np.asarray(ids)
    elif pc.all(pc.match_substring_regex(ids, INTEGER)).as_py():
        values = np.asarray(ids.cast(pa.int64()))
    else:
        if len(ids) * pc.max(pc.utf8_length(ids)).as_py() * 4 > MAX_TEXT_BYTES:
            raise InputError(too_much_text(path, f"{name}s"))
        values = np.array(ids.to_pylist(), dtype=str)
    distinct, positions = np.unique(values, return_inverse=True)
    return Coded(distinct, positions.astype(np.int32)[np.asarray(column.indices)])
