"""What numbers and sizes of recordings are plausible: each rule once, for every file that is read.

Numbers are squared, and squares are multiplied and divided by each other. With magnitudes in ``SMALLEST``
to ``LARGEST`` all of that stays far from the ends of float64. Larger ones come from a training that
diverged, and are refused; smaller ones are what decay leaves of items that nobody rates, or of differences
that cancel, and are read as 0. Sizes that files merely declare may not make a reader of a small file use
much memory.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from victims.common.errors import InputError

LARGEST, SMALLEST = 1e30, 1e-30
LARGEST_LEVEL, SMALLEST_LEVEL = 1e6, 1e-6  # stars; steps between levels are no smaller, either
FINEST_STEP = 1e-6  # of rating levels, as a share of the largest one
DEEPEST = 32  # lists and mappings inside each other
BLOCK = 1 << 16  # numbers of one pass: they stay near the processor

# sizes that are believed without seeing rows, and how many more for each row that is there
UNSEEN = {"n_items": 1 << 24, "n_users": 1 << 24, "n_attributes": 1 << 16}
EACH = 1000
UNSEEN_CELLS, CELLS_EACH = 1 << 23, 100  # of tables of clients x attributes

PLAUSIBLE = f"0 or of a magnitude in {SMALLEST:g}..{LARGEST:g}"


def is_plausible(number: int | float) -> bool:
    """Tell whether a public constant may be used: 0, or of a magnitude whose squares can be divided.

    Examples
    --------
    >>> is_plausible(1e-8), is_plausible(0), is_plausible(1e300), is_plausible(float("nan"))
    (True, True, False, False)
    """
    return number == 0 or SMALLEST <= abs(number) <= LARGEST


def are_plausible(*tables: Any) -> bool:
    """Tell whether all factors of a training are numbers that a recording may hold.

    Examples
    --------
    >>> are_plausible(np.ones((2, 3))), are_plausible(np.ones(2), np.array([1e40]))
    (True, False)
    """
    return all(bool((np.abs(table) <= LARGEST).all()) for table in map(np.asarray, tables))


class Implausible(InputError):
    """A number is not finite, or beyond ``LARGEST``."""


def diverged(name: str, round_: int, rates: str) -> InputError:
    """Make the error of a training whose factors are not plausible."""
    return InputError(
        f"{name} diverged in round {round_}: factors and rows must stay finite, and at most {LARGEST:g} in "
        f"size; record earlier rounds, or lower {rates} or the noise that a defense adds"
    )


def scanned(values: Float[np.ndarray, "rows width"]) -> tuple[int | None, bool]:
    """Find the first row with a number that is not finite or beyond ``LARGEST``, and whether some are tiny.

    One pass over the memory, in blocks that stay near the processor.

    Examples
    --------
    >>> scanned(np.array([[1.0, 0.0], [1e40, 2.0]]))
    (1, False)
    >>> scanned(np.array([[1.0, 1e-40]]))
    (None, True)
    """
    tiny, width = False, values.shape[1]
    flat = values.reshape(-1)  # of one axis, which is quicker to reduce; no copy of what a file holds
    size = np.empty(min(BLOCK, flat.size), values.dtype)
    for low in range(0, flat.size, BLOCK):
        block = flat[low : low + BLOCK]
        magnitude = np.abs(block, out=size[: block.size])
        if not magnitude.max() <= LARGEST:  # also where it is NaN
            return (low + int((~(magnitude <= LARGEST)).argmax())) // width, tiny
        if not tiny and magnitude.min() < SMALLEST:
            tiny = bool(((magnitude > 0) & (magnitude < SMALLEST)).any())
    return None, tiny


def without_tiny(values: Float[np.ndarray, "rows width"]) -> Float[np.ndarray, "rows width"]:
    """Copy numbers, those of a magnitude below ``SMALLEST`` as 0."""
    return np.where(np.abs(values) < SMALLEST, values.dtype.type(0), values)


def depth_of(content: Any, most: int = DEEPEST) -> int:
    """Count how deep lists and mappings are nested; counting ends one above ``most``.

    Examples
    --------
    >>> depth_of([1, {"a": [2]}])
    3
    """
    return sum(1 for _ in islice(_levels(content), most + 2)) - 1


def _levels(content: Any) -> Iterator[list[Any]]:
    """What is nested in lists and mappings, level by level, from the whole on."""
    level = [content]
    while level:
        yield level
        level = [
            entry
            for whole in level
            if isinstance(whole, dict | list | tuple)
            for entry in (whole.values() if isinstance(whole, dict) else whole)
        ]


def first_implausible(content: Any) -> float | int | None:
    """Find a finite number in nested lists and mappings that breaks ``is_plausible``.

    NaN and infinity say "unknown" and "without bound" there.
    """
    for entry in chain.from_iterable(_levels(content)):
        if isinstance(entry, int | float) and not isinstance(entry, bool) and not _may_stand(entry):
            return entry
    return None


def _may_stand(number: int | float) -> bool:
    return is_plausible(number) or (isinstance(number, float) and not math.isfinite(number))


def refuse_absurd_sizes(where: object, sizes: dict[str, int], seen: dict[str, tuple[int, str]]) -> None:
    """Refuse declared sizes that are not plausible beside what a file holds."""
    for name, value in sizes.items():
        rows, what = seen[name]
        limit = UNSEEN[name] + EACH * rows
        if value > limit:
            raise InputError(
                f"{where}: {name} must be at most {limit:,} with {rows:,} {what}, got {value:,}; "
                "correct the manifest"
            )


def refuse_absurd_table(where: object, n_users: int, n_attributes: int, rows: int) -> None:
    """Refuse a table of clients x attributes that is not plausible beside the rows that fill it."""
    limit = UNSEEN_CELLS + CELLS_EACH * rows
    if n_users * n_attributes > limit:
        raise InputError(
            f"{where}: attributes must be plausible beside the rows: {n_users:,} clients x {n_attributes:,} "
            f"attributes make more than {limit:,} numbers with {rows:,} rows; correct the sizes"
        )


def peak_memory() -> int:
    """Measure the most memory that this process held.

    On Linux without that of the process that started it, which ``getrusage`` hands on.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(re.findall(r"VmHWM:\s+(\d+)", status.read_text())[0])
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
