"""Wall and processor time of calls, several of which are compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU time."""
    start, used = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - start, time.process_time() - used


def medians(times: list[tuple[float, float]]) -> np.ndarray:
    """Of the wall and of the CPU times."""
    return np.array([statistics.median(column) for column in zip(*times, strict=True)])
