"""Rows sorted by several columns of whole numbers at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

BLOCK_ROWS = 1 << 16  # packed together: what is made of them stays near the processor
PLACES_EACH, FREE_PLACES, MOST_PLACES = 32, 1 << 20, 1 << 28  # bytes of a table, for each row and in all
PLACES_BOUNDED = (
    2  # for each row, where bounds are given: a larger table costs more than looking for closer ones
)
HALF = 1 << 31
Column = Sequence[np.ndarray]  # in the chunks of a file
Bounds = tuple[int, int]  # least and largest number of a column


def packed(columns: Sequence[Column]) -> Int[np.ndarray, " rows"] | None:
    """Pack some columns into one number a row that sorts as they do, the first counting most.

    Sorting one number is several times as fast as sorting columns.

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


def _spans(
    chunks: Sequence[tuple[np.ndarray, ...]], bounds: Sequence[Bounds | None] = ()
) -> tuple[list[int], list[int]]:
    """The least number of each column, and how many there are up to its largest."""
    columns = list(zip(*chunks, strict=True))
    known = bounds or (None,) * len(columns)
    found = [
        _bounds(column) if given is None else given for column, given in zip(columns, known, strict=True)
    ]
    return [low for low, _ in found], [high - low + 1 for low, high in found]


def _bounds(column: Sequence[np.ndarray]) -> Bounds:
    return min(int(part.min()) for part in column), max(int(part.max()) for part in column)


def _pack(
    chunk: Sequence[np.ndarray], least: Sequence[int], spans: Sequence[int], key: Int[np.ndarray, " rows"]
) -> None:
    """The key of some rows, into the place that is given, whose type holds all keys; columns of one number
    alone cost nothing.
    """
    first = True
    for part, low, span in zip(chunk, least, spans, strict=True):
        if span == 1:
            continue
        if first:
            np.subtract(part, low, out=key, dtype=key.dtype)
        else:
            key *= span
            key += part
            if low:
                key -= low
        first = False
    if first:
        key[:] = 0


def order_of(columns: Sequence[Column]) -> Int[np.ndarray, " rows"]:
    """Sort row numbers by some columns, the first counting most; equal rows stay in their order."""
    key = packed(columns)
    if key is not None:
        return np.argsort(key, kind="stable")
    return np.lexsort([np.concatenate(list(column)) for column in columns][::-1])


def repeated(columns: Sequence[Column], bounds: Sequence[Bounds | None] = ()) -> bool:
    """Whether two rows have the same numbers.

    Where a table of all possible rows is not much larger than the rows, each row marks its place in it: that
    takes a thirtieth of the time of sorting.
    """
    chunks = _chunks(columns)
    if not chunks:
        return False
    n_rows = sum(chunk[0].size for chunk in chunks)
    least, spans = _spans(chunks, bounds)
    if bounds and math.prod(spans) > PLACES_BOUNDED * n_rows + FREE_PLACES:
        least, spans = _spans(chunks)
    places = math.prod(spans)
    if places <= min(PLACES_EACH * n_rows + FREE_PLACES, MOST_PLACES):
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
    most = min(BLOCK_ROWS, max(chunk[0].size for chunk in chunks))
    # products of 32 bits take half the time of those of 64, and indices of 64 half of that of 32
    key, place = np.empty(most, np.int32 if _narrow(least, spans) else np.int64), np.empty(most, np.intp)
    for chunk in chunks:
        for low in range(0, chunk[0].size, BLOCK_ROWS):
            block = [part[low : low + BLOCK_ROWS] for part in chunk]
            here, at = key[: block[0].size], place[: block[0].size]
            _pack(block, least, spans, here)
            at[:] = here
            there[at] = True
    return int(np.count_nonzero(there))


def _narrow(least: Sequence[int], spans: Sequence[int]) -> bool:
    """Whether 32 bits hold every number of the columns."""
    return all(low >= -HALF and low + span <= HALF for low, span in zip(least, spans, strict=True))


def equal_to_the_next(
    columns: Sequence[Column], order: Int[np.ndarray, " rows"]
) -> Bool[np.ndarray, " rows_but_one"]:
    """Tell which rows, in an order, have the same numbers as the row that follows."""
    same = np.ones(max(order.size - 1, 0), bool)
    for column in columns if order.size else ():
        whole = np.concatenate(list(column))[order]
        same &= whole[1:] == whole[:-1]
    return same


def distinct(values: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " distinct"]:
    """List the different numbers, ascending; quickly where equal ones lie together.

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
