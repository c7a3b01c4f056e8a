"""Which columns of a file hold what: named by whoever gives the file, or guessed by their usual names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from victims.common.errors import InputError
from victims.data.encoded_rows import Chunk
from victims.data.losses import Loss, those
from victims.data.source import DataSource
from victims.data.tables import chosen, shown
from victims.data.times import seconds_of

USUAL_NAMES = {
    "user": ("user", "user_id", "userid", "user_id:token"),
    "item": ("item", "item_id", "itemid", "movieid", "movie_id", "item_id:token"),
    "rating": ("rating", "score", "rating:float"),
    "time": ("time", "timestamp", "timestamp:float"),
}


@dataclass
class Wanted:
    """The columns that are looked for in one file, and what was decided while it was read."""

    # ``user``, ``item``, ``rating`` or ``time`` -> the column's name; the others are guessed
    given: Mapping[str, str] = field(default_factory=dict)
    implicit: bool = False  # rows are interactions
    notes: list[str] = field(default_factory=list)  # for whoever gave the file
    left_out: dict[str, int] = field(default_factory=dict)  # why rows were left out -> how many
    _rows: int = 0

    @classmethod
    def of(cls, source: DataSource) -> Wanted:
        """What the options of a source ask for."""
        return cls(source.columns, source.implicit)

    def columns(self, path: Path, header: Sequence[str]) -> dict[str, int]:
        """Find the columns in the header of a file; they are told where they were guessed."""
        names = {
            name: (self.given[name].strip().lower(),) if name in self.given else usual
            for name, usual in USUAL_NAMES.items()
        }
        optional = {"rating", "time"} - set(self.given)
        if self.implicit and "rating" in optional:
            del names["rating"]  # counts are named, or every row is one
        times = [name for name in header if str(name).strip().lower() in names["time"]]
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
        guessed = {name: str(header[at]).strip() for name, at in found.items() if name not in self.given}
        if any(name != column for name, column in guessed.items()):
            words = ", ".join(f"{name} is {shown(column)}" for name, column in guessed.items())
            self.notes.append(f"columns guessed: {words}")
        return found

    def chunk(self, cells: Mapping[str, pa.Array], path: Path, locate: Callable[[int], str]) -> Chunk:
        """Some rows of the columns that were found."""
        columns = dict(cells)
        self._rows += len(columns["user"])
        if "time" in columns:
            columns["time"] = self._seconds(columns, path, locate)
        if not self.implicit:
            return Chunk(**columns, path=path, locate=locate)
        if "rating" not in columns:
            columns["rating"] = pa.array(np.ones(len(columns["user"])))
            return Chunk(**columns, path=path, locate=locate)
        whole = Chunk(**columns, path=path, locate=locate)
        count = _numbers(whole.rating)
        whole.fail("rating", ~(np.isfinite(count) & (count >= 0)), "a count >= 0")
        rows = np.flatnonzero(count > 0)
        self.leave_out("their count is 0", count.size - rows.size)
        return replace(whole.of_rows(rows), rating=pa.array(np.ones(rows.size)))

    def _seconds(self, columns: Mapping[str, pa.Array], path: Path, locate: Callable[[int], str]) -> pa.Array:
        """Times as seconds; where their column was only guessed, what is no time is none."""
        seconds, bad = seconds_of(columns["time"])
        if bad.any() and "time" in self.given:
            row = int(np.argmax(bad))
            raise InputError(
                f"{path} {locate(row)}: time must be seconds since 1970, or a date as 2018-07-07 22:09:11, "
                f"got {shown(columns['time'][row].as_py())}"
            )
        return pa.array(np.where(bad, np.nan, seconds))

    def leave_out(self, why: str, count: int) -> None:
        """Count rows that are left out."""
        self.left_out[why] = self.left_out.get(why, 0) + count

    def lost(self, path: Path) -> tuple[Loss, ...]:
        """What was left out, once every row was read."""
        rows = self._rows
        return those(*(Loss(path.name, "rows", count, rows, why) for why, count in self.left_out.items()))


def _numbers(column: pa.Array) -> np.ndarray:
    """Counts as float64, NaN where there is none."""
    if isinstance(column, pa.DictionaryArray):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        text = pc.utf8_trim_whitespace(column)
        number = pc.match_substring_regex(text, r"^[0-9]{1,15}(\.[0-9]+)?$")
        column = pc.if_else(number, text, None)
    return column.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
