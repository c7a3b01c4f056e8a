"""Rows sorted by several columns of whole numbers at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

BLOCK_ROWS = 1 << 16  # packed together: what is made of them stays near the processor
PLACES_EACH, FREE_PLACES, MOST_PLACES = 32, 1 << 20, 1 << 28  # bytes of a table, for each row and in all
Column = Sequence[np.ndarray]  # in the chunks of a file


def packed(columns: Sequence[Column]) -> Int[np.ndarray, " rows"] | None:
    """One number a row that sorts as some columns do, the first counting most: sorted several times as fast.

    None where 64 bits do not hold it.

    Examples
    --------
    >>> packed([[np.array([0, 1])], [np.array([7, 5])]])
    array([2, 3])
    """
    chunks = _chunks(columns)
    least, spans = _spans(chunks)
    if math.prod(spans) >= 1 << 63:
        return None
    key = np.empty(sum(chunk[0].size for chunk in chunks), np.int64)
    start = 0
    for chunk in chunks:
        here = key[start : start + chunk[0].size]
        _pack(chunk, least, spans, here)
        start += here.size
    return key


def _chunks(columns: Sequence[Column]) -> list[tuple[np.ndarray, ...]]:
    """The columns chunk by chunk, without empty ones."""
    return [chunk for chunk in zip(*columns, strict=True) if chunk[0].size]


def _spans(chunks: Sequence[tuple[np.ndarray, ...]]) -> tuple[list[int], list[int]]:
    """The least number of each column, and how many there are up to its largest."""
    bounds = [[(int(part.min()), int(part.max())) for part in chunk] for chunk in chunks]
    least = [min(low for low, _ in column) for column in zip(*bounds, strict=True)]
    most = [max(high for _, high in column) for column in zip(*bounds, strict=True)]
    return least, [high - low + 1 for low, high in zip(least, most, strict=True)]


def _pack(
    chunk: Sequence[np.ndarray], least: Sequence[int], spans: Sequence[int], key: Int[np.ndarray, " rows"]
) -> None:
    """The key of some rows, into the place that is given; columns of one number alone cost nothing."""
    first = True
    for part, low, span in zip(chunk, least, spans, strict=True):
        if span == 1:
            continue
        if first:
            np.subtract(part, low, out=key, dtype=np.int64)
        else:
            key *= span
            key += part
            if low:
                key -= low
        first = False
    if first:
        key[:] = 0


def order_of(columns: Sequence[Column]) -> Int[np.ndarray, " rows"]:
    """Row numbers by some columns, the first counting most; equal rows stay in their order."""
    key = packed(columns)
    if key is not None:
        return np.argsort(key, kind="stable")
    return np.lexsort([np.concatenate(list(column)) for column in columns][::-1])


def repeated(columns: Sequence[Column]) -> bool:
    """Whether two rows have the same numbers.

    Where a table of all possible rows is not much larger than the rows, each row marks its place in it: that
    takes a thirtieth of the time of sorting.
    """
    chunks = _chunks(columns)
    least, spans = _spans(chunks)
    n_rows, places = sum(chunk[0].size for chunk in chunks), math.prod(spans)
    if n_rows and places <= min(PLACES_EACH * n_rows + FREE_PLACES, MOST_PLACES):
        return _marked(chunks, least, spans, places) < n_rows
    key = packed(columns)
    if key is None:
        return bool(equal_to_the_next(columns, order_of(columns)).any())
    key.sort()
    return bool((key[1:] == key[:-1]).any())


def _marked(
    chunks: Sequence[tuple[np.ndarray, ...]], least: Sequence[int], spans: Sequence[int], places: int
) -> int:
    """How many places of the table some row has."""
    there = np.zeros(places, bool)
    key = np.empty(min(BLOCK_ROWS, max(chunk[0].size for chunk in chunks)), np.int64)
    for chunk in chunks:
        for low in range(0, chunk[0].size, BLOCK_ROWS):
            block = [part[low : low + BLOCK_ROWS] for part in chunk]
            here = key[: block[0].size]
            _pack(block, least, spans, here)
            there[here] = True
    return int(np.count_nonzero(there))


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
