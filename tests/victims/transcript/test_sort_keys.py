"""Sorting by several columns of whole numbers, against NumPy's lexsort."""

from __future__ import annotations

import numpy as np
import pytest

from victims.transcript.messages import RUN_ROWS, Messages, ascend_in_runs, repeat_in_runs, runs_of, scattered
from victims.transcript.sort_keys import distinct, equal_to_the_next, order_of, packed, repeated

LEAST, MOST = -(2**31), 2**31 - 1


@pytest.mark.parametrize("cut", [(), (1, 1, 60)])
@pytest.mark.parametrize("spans", [((0, 3), (-2, 2)), ((LEAST, MOST), (0, 2)), ((LEAST, MOST),) * 3])
def test_order_and_repetition(spans, cut):
    rng = np.random.default_rng(0)
    whole = [rng.choice([low, high - 1, high], 100).astype(np.int32) for low, high in spans]
    columns = [np.split(column, cut) for column in whole]
    order = np.lexsort(whole[::-1])
    np.testing.assert_array_equal(order_of(columns), order)
    rows = list(zip(*(column.tolist() for column in whole), strict=True))
    assert repeated(columns) == (len(set(rows)) < len(rows)) is True
    assert equal_to_the_next(columns, order).sum() == len(rows) - len(set(rows))
    first = sorted({row: number for number, row in reversed(list(enumerate(rows)))}.values())
    assert not repeated([[column[first]] for column in whole])
    assert (packed(columns) is None) == (len(spans) == 3)


@pytest.mark.parametrize("spread", [1, 1 << 20])  # a table of all possible rows, and sorting
@pytest.mark.parametrize("cut", [(), (70_000, 70_001, 130_000)])
def test_a_repetition_is_found_wherever_it_is(spread, cut):
    """Shuffled rows of three columns, in chunks and blocks; the first of them has one value alone."""
    rng = np.random.default_rng(1)
    places = rng.permutation(400 * 500)[:150_000]
    whole = [np.full(places.size, 7), places // 500 - 3, places % 500 * spread]
    assert not repeated([np.split(column, cut) for column in whole])
    for first, second in ((0, 149_999), (69_999, 70_000), (5, 6)):
        again = [column.copy() for column in whole]
        for column in again:
            column[first] = column[second]
        assert repeated([np.split(column, cut) for column in again])


@pytest.mark.parametrize("least", [LEAST, -3, MOST - 1000])
@pytest.mark.parametrize("bounds", [(), (None, (-5, 700)), ((LEAST, MOST), None)])
def test_bounds_change_no_answer(least, bounds):
    """Bounds that are close, and ones too wide for a table; least numbers at both ends of 32 bits."""
    rng = np.random.default_rng(2)
    places = rng.permutation(500 * 600)[:100_000]
    whole = [(places // 600 + least).astype(np.int32), (places % 600).astype(np.int32)]
    assert not repeated([np.split(column, (70_000,)) for column in whole], bounds)
    for column in whole:
        column[99_999] = column[5]
    assert repeated([np.split(column, (70_000,)) for column in whole], bounds)


def test_rows_that_lie_anywhere_have_no_runs():
    together = messages([0, 0, 0, 1], [2, 2, 3, 2], [0] * 4, [1, 2, 1, 1])
    assert not scattered(together)
    assert scattered(messages([0] * 4, [2, 3, 2, 3], [0] * 4, [1, 1, 2, 2]))
    assert not scattered(messages([], [], [], []))
    anywhere = messages([0] * 4, [2, 3, 2, 3], [0] * 4, [1, 1, 2, 1])
    assert repeat_in_runs(anywhere, None, [anywhere.kind, anywhere.index])


def test_no_rows():
    nothing = [[np.zeros(0, np.int32)]]
    assert not repeated(nothing)
    assert not repeated([[], []])
    assert not repeated(nothing, [(0, 3)])
    assert order_of(nothing).size == order_of([[], []]).size == 0
    assert distinct(np.zeros(0, np.int32)).size == 0


def test_distinct():
    values = np.random.default_rng(0).integers(-4, 4, 1000)
    np.testing.assert_array_equal(distinct(values), np.unique(values))


def messages(rounds, senders, kinds, index, cut=()) -> Messages:
    columns = [
        tuple(np.split(np.asarray(column, np.int32), cut)) for column in (rounds, senders, kinds, index)
    ]
    return Messages(*columns, gradient=None)


@pytest.mark.parametrize("cut", [(), (2, 2, 3), (1, 2, 3, 4, 5, 6)])
@pytest.mark.parametrize(
    ("rounds", "senders", "apart", "n_runs"),
    [
        ([0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0, 1], True, 4),
        ([0, 0, 0, 0, 0, 0, 0], [3, 3, 1, 1, 1, 3, 3], False, 3),
        ([1, 1, 0, 0, 0, 0, 0], [3, 3, 3, 1, 1, 1, 1], True, 3),
    ],
)
def test_runs(rounds, senders, apart, n_runs, cut):
    runs = runs_of(messages(rounds, senders, [0] * 7, range(7), cut))
    assert (runs.apart, runs.start.size) == (apart, n_runs)
    for start, stop, round_, sender in zip(runs.start, runs.stop, runs.round, runs.sender, strict=True):
        assert set(rounds[start:stop]) == {round_}
        assert set(senders[start:stop]) == {sender}
    assert runs.stop[-1] == 7


@pytest.mark.parametrize("cut", [(), (1, 2, 2, 5)])
@pytest.mark.parametrize(
    ("senders", "kinds", "index", "ascend", "again"),
    [
        ([0, 0, 0, 1, 1, 1], [0, 0, 1, 0, 1, 1], [0, 1, 0, 5, 0, 1], True, False),
        ([0, 0, 0, 1, 1, 1], [0, 0, 1, 0, 1, 1], [1, 0, 0, 5, 0, 1], False, False),
        ([0, 0, 0, 1, 1, 1], [0, 1, 0, 0, 1, 1], [1, 1, 0, 5, 0, 1], False, False),
        ([0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1], [1, 0, 1, 5, 0, 1], False, True),
        ([0, 1, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0], [1, 1, 2, 2, 3, 3], True, False),
        ([0, 1, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0], [1, 1, 2, 2, 1, 3], True, True),
    ],
)
def test_rows_of_a_sender(senders, kinds, index, ascend, again, cut):
    rows = messages([0] * 6, senders, kinds, index, cut)
    columns = (rows.kind, rows.index)
    assert ascend_in_runs(rows, columns) == ascend
    assert repeat_in_runs(rows, runs_of(rows), columns) == again


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("shuffled", [False, True])
def test_many_rows_in_several_blocks(again, shuffled):
    """Each sender's rows in an order of its own; the last row repeats an earlier one of its sender."""
    per, senders = 1000, RUN_ROWS // 1000 + 2
    rng = np.random.default_rng(0)
    sender = np.repeat(np.arange(senders), per)
    index = np.concatenate([rng.permutation(per) for _ in range(senders)])
    if again:
        index[-1] = index[-7]
    order = rng.permutation(sender.size) if shuffled else np.arange(sender.size)
    rows = messages(np.zeros(sender.size), sender[order], np.zeros(sender.size), index[order], (70_000,))
    assert repeat_in_runs(rows, runs_of(rows), (rows.kind, rows.index)) == again
