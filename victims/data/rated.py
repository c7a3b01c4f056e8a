"""Rating rows of a table: which columns hold what, their cells checked, and all rows as codes.

Columns are named by whoever gives the file, or guessed by their usual names. Identifiers are
dictionary-encoded part by part and the dictionaries united now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float

from victims.common.errors import InputError
from victims.data.ratings import MAX_LEVELS, MAX_RATING, Coded, Loss, Ratings, from_triples, those
from victims.data.tables import (
    MAX_IDENTIFIER,
    MAX_RATINGS,
    MAX_TEXT_BYTES,
    MIB,
    Choose,
    Layout,
    Rows,
    chosen,
    read_rows,
    shown,
    text_rows,
    too_much_text,
)

USUAL_NAMES = {
    "user": ("user", "user_id", "userid", "user_id:token"),
    "item": ("item", "item_id", "itemid", "movieid", "movie_id", "item_id:token"),
    "rating": ("rating", "score", "rating:float"),
    "time": ("time", "timestamp", "timestamp:float"),
}
MAX_IDENTIFIERS = 1 << 24  # users, and items: victims hold dense factors of each
PENDING_BYTES = 128 * MIB
EARLIEST, LATEST = -2_208_988_800.0, 4_102_444_800.0  # 1900 and 2100, seconds
MILLISECONDS = 1e3  # timestamps beyond the latest that are plausible as milliseconds are read as such
NO_STARS = pa.array(["", "0", "-1", "0.0", "-1.0"], pa.large_string())


@dataclass
class Columns:
    """The columns that are looked for in one file, and what was decided while it was read."""

    given: Mapping[str, str] = field(
        default_factory=dict
    )  # what it holds -> its name; the others are guessed
    implicit: bool = False  # rows are interactions, and a rating column holds their counts
    some_unrated: bool = False  # rows without stars (``NO_STARS``) are left out and counted
    notes: list[str] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)  # why rows were left out -> how many

    def choose(self, path: Path, header: Sequence[str]) -> dict[str, int]:
        """Find the columns in the header of a file."""
        names: dict[str, Sequence[str]] = {
            name: (self.given[name].strip().lower(),) if name in self.given else usual
            for name, usual in USUAL_NAMES.items()
        }
        optional = {"rating", "time"} - set(self.given)
        if self.implicit and "rating" in optional:
            del names["rating"]  # counts are named, or every row is one
        times = [name for name in header if name.strip().lower() in names["time"]]
        if len(times) > 1 and "time" in optional:
            del names["time"]
            self.notes.append(
                f"several columns may be the time, none is taken: {', '.join(map(shown, times))}"
            )
        found = chosen(path, header, names, optional)
        if len(set(found.values())) < len(found):
            words = ", ".join(f"{name}={header[at]}" for name, at in found.items())
            raise InputError(f"{path}: a column must hold one thing, got {words:.120}; name others")
        if "rating" not in found and not self.implicit:
            if len(header) > len(found):
                heads = ", ".join(map(shown, header[:10]))
                raise InputError(
                    f"{path} must name a column 'rating' in its header, got {heads}; give it as rating=NAME, "
                    "or say implicit=true"
                )
            self.implicit = True
            self.notes.append("no rating column: every row is an interaction, rated 1")
        guessed = {name: header[at].strip() for name, at in found.items() if name not in self.given}
        if any(name != column for name, column in guessed.items()):
            words = ", ".join(f"{name} is {shown(column)}" for name, column in guessed.items())
            self.notes.append(f"columns guessed: {words}")
        return found

    def kept(self, rows: Rows) -> Rows:
        """The rows that are ratings, with times in seconds; what is no time is none in a guessed column."""
        columns = dict(rows.columns)
        if "time" in columns:
            seconds, bad = seconds_of(columns["time"])
            if "time" in self.given:
                rows.check("time", bad, "seconds since 1970, or a date as 2018-07-07 22:09:11")
            columns["time"] = pa.array(np.where(bad, np.nan, seconds))
        if self.implicit and "rating" in columns:
            count = _numbers(columns["rating"])
            rows.check("rating", ~(np.isfinite(count) & (count >= 0)), "a count >= 0")
            rows = self._without(rows._replace(columns=columns), count == 0, "their count is 0")
            columns = dict(rows.columns)
        if self.implicit:
            columns["rating"] = pa.array(np.ones(len(columns["user"])))
        rows = rows._replace(columns=columns)
        if self.some_unrated:
            stars = pc.utf8_trim_whitespace(columns["rating"].cast(pa.large_string()))
            rows = self._without(rows, np.asarray(pc.is_in(stars, NO_STARS)), "without stars")
        return rows

    def _without(self, rows: Rows, gone: Bool[np.ndarray, " rows"], why: str) -> Rows:
        self.left_out[why] = self.left_out.get(why, 0) + int(gone.sum())
        kept = np.flatnonzero(~gone)
        columns = {name: column.take(pa.array(kept)) for name, column in rows.columns.items()}
        return Rows(rows.path, columns, lambda row: rows.locate(int(kept[row])))


@dataclass(frozen=True)
class Rated:
    """The rows of a rating file, coded."""

    path: Path
    users: Coded
    items: Coded
    values: Coded
    times: np.ndarray | None  # seconds since 1970, NaN where that is not known
    notes: tuple[str, ...]
    losses: tuple[Loss, ...]

    def ratings(self, name: str, **catalogue: object) -> Ratings:
        """Make ratings, with what is known of users and items beside them."""
        columns = {"users": self.users, "items": self.items, "values": self.values} | catalogue
        return from_triples(name, **columns, times=self.times, notes=self.notes, losses=self.losses)  # type: ignore[arg-type]


def rated_file(path: Path, columns: Columns, table: str | None = None) -> Rated:
    """Read the ratings of a file that names its columns."""
    return _collected(path, columns, lambda choose: read_rows(path, choose, table))


def rated_text(path: Path, layout: Layout, columns: Columns | None = None) -> Rated:
    """Read the ratings of delimited text."""
    return _collected(path, columns or Columns(), lambda choose: text_rows(path, choose, layout))


def _collected(path: Path, columns: Columns, read: Callable[[Choose], Iterator[Rows]]) -> Rated:
    """Check and encode all rows."""
    codes: dict[str, list[pa.DictionaryArray]] = {"user": [], "item": []}
    stars: list[np.ndarray] = []
    times: list[np.ndarray] = []
    levels: dict[float, int] = {}
    n_read = n_kept = pending = united = 0
    for found in read(lambda header: columns.choose(path, header)):
        rows = columns.kept(found)
        n_read += len(found.columns["user"])
        n_kept += len(rows.columns["user"])
        if n_kept > MAX_RATINGS:
            raise InputError(f"{path} must hold at most {MAX_RATINGS:,} ratings; subsample it")
        if not len(rows.columns["user"]):
            continue
        stars.append(_stars(rows, levels))
        for name, parts in codes.items():
            parts.append(_encoded(rows, name))
            pending += parts[-1].nbytes + parts[-1].dictionary.nbytes
        if "time" in rows.columns:
            times.append(rows.columns["time"].to_numpy(zero_copy_only=False))
        if pending > max(PENDING_BYTES, united):
            united, pending = sum(_unite(path, name, parts) for name, parts in codes.items()), 0
    if not stars:
        raise InputError(f"{path} must hold at least one rating, got none")
    for name, parts in codes.items():
        _unite(path, name, parts)
    losses = tuple(Loss(path.name, "rows", count, n_read, why) for why, count in columns.left_out.items())
    time = np.concatenate(times) if times else None
    if time is not None:
        missing = int(np.isnan(time).sum())
        losses += (Loss(path.name, "times", missing, time.size, "empty, 0 or no time; the rows stay"),)
        time = None if missing == time.size else time
    return Rated(
        path,
        _sorted(path, "user", *codes["user"]),
        _sorted(path, "item", *codes["item"]),
        Coded(np.array(list(levels), np.float64), np.concatenate(stars)),
        time,
        tuple(columns.notes),
        those(*losses),
    )


def _distinct(column: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Code of each row, -1 where nothing is there, and what the codes mean."""
    encoded = column.dictionary_encode()
    return np.asarray(encoded.indices.cast(pa.int32()).fill_null(-1)), encoded.dictionary


def _stars(rows: Rows, levels: dict[float, int]) -> np.ndarray:
    """Index of the rating level of each row, as uint8; levels that are new join the others."""
    codes, distinct = _distinct(rows.columns["rating"])
    numbers = pd.to_numeric(pd.Series(distinct.to_pylist(), dtype=object), errors="coerce")
    values = np.append(numbers.to_numpy(np.float64), np.nan)  # code -1: nothing there
    rows.check("rating", ~np.isfinite(values)[codes], "a finite number")
    rows.check("rating", (values <= 0)[codes], "> 0 (0 means unrated)")
    rows.check("rating", (values > MAX_RATING)[codes], f"at most {MAX_RATING:,.0f}")
    index = [levels.setdefault(value, len(levels)) for value in values[:-1].tolist()]
    if len(levels) > MAX_LEVELS:
        raise InputError(
            f"{rows.path} must hold ratings on a grid of at most {MAX_LEVELS} levels, got more distinct "
            f"values, as {list(levels)[-1]:g}; round them to the levels that users could choose"
        )
    return np.array([*index, 0], np.uint8)[codes]


def _encoded(rows: Rows, name: str) -> pa.DictionaryArray:
    """Identifiers as codes of a dictionary of text without blanks around it."""
    codes, distinct = _distinct(rows.columns[name])
    if pa.types.is_floating(distinct.type):
        numbers = np.append(distinct.to_numpy(zero_copy_only=False), 0)
        whole = (numbers == np.rint(numbers)) & (np.abs(numbers) < 2.0**53)
        rows.check(name, ~whole[codes], "a whole number below 2^53, or text")
        distinct = distinct.cast(pa.int64())
    ids = distinct.cast(pa.large_string())
    # the length first: nothing may be made of a text that is too long
    long = np.append(np.asarray(pc.utf8_length(ids)) > MAX_IDENTIFIER, False)
    rows.check(name, long[codes], f"an identifier of at most {MAX_IDENTIFIER} characters")
    ids = pc.utf8_trim_whitespace(ids)
    empty = np.append(np.asarray(pc.equal(ids, "")), True)
    rows.check(name, empty[codes], "a non-empty identifier")
    strange = np.append(np.asarray(pc.match_substring(ids, "\0")), False)
    rows.check(name, strange[codes], "an identifier without a NUL character")
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), ids)


def _unite(path: Path, name: str, parts: list[pa.DictionaryArray]) -> int:
    """Make one array of the parts, whose bytes are returned."""
    parts[:] = [pa.chunked_array(parts).combine_chunks()]
    ids = parts[0].dictionary
    if len(ids) > MAX_IDENTIFIERS:
        raise InputError(
            f"{path} must have at most {MAX_IDENTIFIERS:,} {name}s, got {len(ids):,}; subsample it"
        )
    if (pc.sum(pc.binary_length(ids)).as_py() or 0) > MAX_TEXT_BYTES:
        raise too_much_text(path, f"{name}s")
    return int(parts[0].nbytes + ids.nbytes)


def _sorted(path: Path, name: str, column: pa.DictionaryArray) -> Coded:
    """Ascending int64 identifiers where all are integers, else text of one width."""
    ids = column.dictionary
    if pc.all(pc.match_substring_regex(ids, r"^-?[0-9]{1,18}$")).as_py():
        values = np.asarray(ids.cast(pa.int64()))
    else:
        if len(ids) * pc.max(pc.utf8_length(ids)).as_py() * 4 > MAX_TEXT_BYTES:
            raise too_much_text(path, f"{name}s")
        values = np.array(ids.to_pylist(), dtype=str)
    distinct, positions = np.unique(values, return_inverse=True)
    return Coded(distinct, positions.astype(np.int32)[np.asarray(column.indices)])


def _numbers(column: pa.Array) -> Float[np.ndarray, " rows"]:
    """Counts as float64, NaN where there is none."""
    return pd.to_numeric(pd.Series(column.to_pandas()), errors="coerce").to_numpy(np.float64)


def seconds_of(column: pa.Array) -> tuple[Float[np.ndarray, " rows"], Bool[np.ndarray, " rows"]]:
    """Read a column of times, seconds since 1970 or dates as text, and tell which cells are no time.

    Examples
    --------
    >>> seconds_of(pa.array(["881250949", "2018-07-07 22:09:11", ""]))[0].tolist()
    [881250949.0, 1531001351.0, nan]
    """
    cells = pd.Series(column.to_pandas())
    empty = cells.isna() | (cells.astype(str).str.strip() == "")
    seconds = pd.to_numeric(cells.mask(empty), errors="coerce").to_numpy(np.float64, copy=True)
    text = np.isnan(seconds) & ~empty.to_numpy()
    if text.any():
        dates = pd.to_datetime(cells[text].astype(str), utc=True, errors="coerce", format="ISO8601")
        # milliseconds hold every year that text can name; nanoseconds end in 2262
        moments = dates.dt.tz_localize(None).to_numpy().astype("datetime64[ms]")
        seconds[text] = np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / MILLISECONDS)
    empty |= seconds == 0  # how data sets write that they do not know
    seconds[empty] = np.nan
    late = (np.abs(seconds) > LATEST) & ~text
    seconds[late] /= MILLISECONDS
    return seconds, ~empty.to_numpy() & ~((seconds >= EARLIEST) & (seconds <= LATEST))
