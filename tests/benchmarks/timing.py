"""Processor time of calls beside their floors, taken in turn in one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

NUMBER = 8  # bytes of a float64
BLOCK = 8 << 20  # bytes


class Line(NamedTuple):
    """What was measured: processor seconds of a call and of its floor, and MB above the start where asked."""

    name: str
    seconds: float
    floor: float
    megabytes: float | None = None


def seconds(call: Callable[[], object]) -> float:
    """Processor time of all threads."""
    start = time.process_time()
    call()
    return time.process_time() - start


def beside(name: str, call: Callable[[], object], floor: Callable[[], object], times: int = 5) -> Line:
    """The least of some calls and of as many floors, after one of each that does not count."""
    both = [(seconds(call), seconds(floor)) for _ in range(times + 1)][1:]
    return Line(name, min(one for one, _ in both), min(other for _, other in both))


def summing(parts: list[np.ndarray]) -> Callable[[], object]:
    """The floor of what reads rows: ``numpy.sum`` over them."""
    return lambda: [np.sum(part) for part in parts]


def copying(size: int) -> Callable[[], None]:
    """The floor of what reads and writes so many bytes together."""
    source = np.ones(max(size // 2 // NUMBER, 1))
    into = np.zeros_like(source)
    return lambda: np.copyto(into, source)


def written(path: Path, size: int) -> None:
    """The floor of what writes a file: as many bytes, into the page cache."""
    block = memoryview(np.random.default_rng(0).bytes(BLOCK))
    with path.open("wb", buffering=0) as file:
        for low in range(0, size, len(block)):
            file.write(block[: min(len(block), size - low)])
    path.unlink()
