"""Rows sorted by several columns of whole numbers at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

Column = Sequence[np.ndarray]  # in the chunks of a file


def packed(columns: Sequence[Column]) -> Int[np.ndarray, " rows"] | None:
    """One number a row that sorts as some columns do, the first counting most: sorted several times as fast.

    None where 64 bits do not hold it.

    Examples
    --------
    >>> packed([[np.array([0, 1])], [np.array([7, 5])]])
    array([2, 3])
    """
    chunks = [chunk for chunk in zip(*columns, strict=True) if chunk[0].size]
    bounds = [[(int(part.min()), int(part.max())) for part in chunk] for chunk in chunks]
    least = [min(low for low, _ in column) for column in zip(*bounds, strict=True)]
    most = [max(high for _, high in column) for column in zip(*bounds, strict=True)]
    spans = [high - low + 1 for low, high in zip(least, most, strict=True)]
    if math.prod(spans) >= 1 << 63:
        return None
    key = np.empty(sum(chunk[0].size for chunk in chunks), np.int64)
    start = 0
    for chunk in chunks:
        here = key[start : start + chunk[0].size]
        np.subtract(chunk[0], least[0], out=here, dtype=np.int64)
        for part, low, span in zip(chunk[1:], least[1:], spans[1:], strict=True):
            if span > 1:
                here *= span
                here += part
                here -= low
        start += here.size
    return key


def order_of(columns: Sequence[Column]) -> Int[np.ndarray, " rows"]:
    """Row numbers by some columns, the first counting most; equal rows stay in their order."""
    key = packed(columns)
    if key is not None:
        return np.argsort(key, kind="stable")
    return np.lexsort([np.concatenate(list(column)) for column in columns][::-1])


def repeated(columns: Sequence[Column]) -> bool:
    """Whether two rows have the same numbers."""
    key = packed(columns)
    if key is None:
        return bool(equal_to_the_next(columns, order_of(columns)).any())
    key.sort()
    return bool((key[1:] == key[:-1]).any())


def equal_to_the_next(
    columns: Sequence[Column], order: Int[np.ndarray, " rows"]
) -> Bool[np.ndarray, " rows_but_one"]:
    """Which rows, in an order, have the same numbers as the row that follows."""
    same = np.ones(max(order.size - 1, 0), bool)
    for column in columns if order.size else ():
        whole = np.concatenate(list(column))[order]
        same &= whole[1:] == whole[:-1]
    return same


def distinct(values: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " distinct"]:
    """The different numbers, ascending; quick where equal ones lie together.

    Examples
    --------
    >>> distinct(np.array([3, 3, 3, 1, 1, 3]))
    array([1, 3])
    """
    if (values == values[:1]).all():
        return values[:1]
    first = np.ones(values.size, bool)
    first[1:] = values[1:] != values[:-1]
    return np.unique(values[first])
