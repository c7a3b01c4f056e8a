"""How defenses look in the figure of a comparison: a colour and a shape each, a size by the bytes sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import seaborn as sns
from matplotlib.lines import Line2D

from reports.compare import QUALITY, SENT, values_of
from reports.figures import MARKERS
from reports.verdicts import Row

SIZES = (18.0, 160.0)  # square points of the smallest and the largest mark
Colour = tuple[float, float, float]


class Mark(NamedTuple):
    """How a defense looks in every panel, and where it lies on the axis of quality."""

    name: str
    colour: Colour
    marker: str
    size: float
    quality: float
    spread: float


class Marks(NamedTuple):
    """One mark per defense, in their order.

    ``unmeasured`` is where a defense lies whose quality was not measured; ``sent`` are the bytes that a mean
    client sends in a round, of the defenses for which that was measured.
    """

    marks: list[Mark]
    unmeasured: float
    sent: list[float]

    @property
    def any_unmeasured(self) -> bool:
        """Whether the quality of some defense was not measured."""
        return any(mark.quality == self.unmeasured for mark in self.marks)


def marks_of(defenses: Mapping[str, Sequence[Row]]) -> Marks:
    """Give every defense a mark."""
    qualities = [values_of(rows, QUALITY) for rows in defenses.values()]
    sizes = [values_of(rows, SENT) for rows in defenses.values()]
    sent = [float(values[0]) for values in sizes if values.size]
    unmeasured = _left_of([float(values.mean()) for values in qualities if values.size])
    colours = sns.color_palette("colorblind", max(len(defenses), 1))
    marks = [
        Mark(
            name,
            colours[n],
            MARKERS[n % len(MARKERS)],
            _area(float(size[0]), sent) if size.size else SIZES[0],
            float(quality.mean()) if quality.size else unmeasured,
            float(quality.std(ddof=1)) if quality.size > 1 else 0.0,
        )
        for n, (name, quality, size) in enumerate(zip(defenses, qualities, sizes, strict=True))
    ]
    return Marks(marks, unmeasured, sent)


def _left_of(qualities: Sequence[float]) -> float:
    """Place of the lane for defenses whose quality was not measured."""
    if not qualities:
        return 0.0
    return min(qualities) - 0.35 * max(max(qualities) - min(qualities), 0.02)


def _area(sent: float, measured: Sequence[float]) -> float:
    low, high = np.log(min(measured)), np.log(max(measured))
    share = 0.5 if high == low else (np.log(sent) - low) / (high - low)
    return float(SIZES[0] + share * (SIZES[1] - SIZES[0]))


def legend_of(marks: Marks) -> list[Line2D]:
    """Draw the marks of a legend: every defense, then the least and the most bytes at their real sizes."""
    return [*map(_handle, marks.marks), *_size_key(marks.sent)]


def _handle(mark: Mark) -> Line2D:
    return Line2D(
        [], [], color="none", marker=mark.marker, markerfacecolor=(*mark.colour, 0.45), markersize=5,
        markeredgecolor=mark.colour, label=mark.name,
    )  # fmt: skip


def _size_key(sent: Sequence[float]) -> Iterable[Line2D]:
    ends = sorted({min(sent), max(sent)}) if sent else []
    for size in ends:
        yield Line2D(
            [], [], color="none", marker="o", markerfacecolor="none", markeredgecolor="0.4",
            markersize=float(np.sqrt(_area(size, sent))), label=f"{size / 1e6:.2g} MB sent by a mean client",
        )  # fmt: skip
