"""Steps of a client that are hardly longer than the last digit of its rows."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.uploads.fitted_chain import BEGIN, LONG, chain_of, fitted
from attacks.closed_form.uploads.moving_factor import follow
from attacks.closed_form.uploads.readings import Rows

SINGLE = float(np.finfo(np.float32).eps)
STARS = np.arange(1.0, 6.0)


def passes(sizes, *, k=8, rate=5e-4, decay=0.0, batch=1, seed=0):
    """One step after every rating, or a few of them, rows in single precision; and the ratings."""
    rng = np.random.default_rng(seed)
    shape = (len(sizes), max(sizes))
    rows, factors = np.zeros((*shape, k), np.float32), np.zeros((*shape, k))
    item, ratings = np.zeros(shape, bool), np.zeros(shape)
    for user, size in enumerate(sizes):
        u, v = rng.normal(0, 0.02, k), rng.normal(0, 0.02, (size, k))
        r = rng.choice(STARS, size)
        for first in range(0, size, batch):
            here = slice(first, min(first + batch, size))
            error = r[here] - v[here] @ u
            rows[user, here] = error[:, None] * u
            u = (1 - decay) * u + rate * error @ v[here]
        factors[user, :size], item[user, :size], ratings[user, :size] = v, True, r
    order = np.where(item, np.arange(shape[1]), 0)
    none = np.zeros(shape)
    sent = rows.astype(float)
    return Rows(sent, factors, none, item, np.full(len(sizes), np.nan), SINGLE, order), ratings


def test_all_rows_together_tell_what_no_two_do():
    rows, ratings = passes([30, 40, 60], rate=2e-4)
    assert not follow(rows.rows, rows.factors, rows.item, rows.precision).whole.any()
    chain = chain_of(rows)
    assert chain.whole.all()
    root = np.sqrt(2e-4)
    value = chain.scalar / root + chain.along * root
    value *= np.sign(value.sum(axis=1))[:, None]
    np.testing.assert_allclose(value[rows.item], ratings[rows.item], atol=2e-3)
    np.testing.assert_array_equal(chain.step[2], np.arange(60))


def test_the_decay_is_fitted_where_rows_ask_for_it():
    rows, _ = passes([40, 60], rate=5e-3, decay=2e-3)
    chain, told = fitted(rows)
    assert told.all()
    np.testing.assert_allclose(chain.shrink, 1 - 2e-3, atol=2e-5)


def test_rows_of_another_rule_are_not_told():
    rows, _ = passes([30], seed=2)
    rows.rows[0, 7, 3] *= 1 + 1e-4
    assert not fitted(rows)[1].any()
    assert not chain_of(rows).whole.any()


def test_long_clients_are_judged_by_all_of_their_rows():
    """Their first rows are asked first: one breaks the rule among these, one after them, one nowhere."""
    rows, _ = passes([LONG * BEGIN + 8] * 3, rate=2e-4, seed=2)
    for user, row in ((0, 7), (1, LONG * BEGIN)):
        rows.rows[user, row, 3] *= 1 + 1e-4
    chain, told = fitted(rows)
    assert told.tolist() == [False, False, True]
    assert chain.whole.tolist() == told.tolist()


@pytest.mark.parametrize(("batch", "rate"), [(1, 5e-4), (4, 1e-4)])
def test_an_order_that_is_not_seen_is_found(batch, rate):
    """Directions name the next row less clearly than in double precision; the fit says that it is right."""
    rows, _ = passes([24, 36], k=3, rate=rate, batch=batch, seed=2)
    mixed = np.random.default_rng(0).permutation(36)
    mixed = rows._replace(**{name: getattr(rows, name)[:, mixed] for name in ("rows", "factors", "item")})
    assert not fitted(mixed)[1].any()
    assert not follow(mixed.rows, mixed.factors, mixed.item, mixed.precision).whole.all()
    chain = chain_of(mixed)
    assert chain.whole.all()
    np.testing.assert_array_equal(chain.n_steps, np.array([24, 36]) // batch)
    unseen = chain_of(mixed._replace(sequence=None))
    np.testing.assert_array_equal(unseen.step, chain.step)


def test_steps_that_are_told_already_are_left_as_they_are():
    rows, _ = passes([20], k=6, rate=0.05)
    before = follow(rows.rows, rows.factors, rows.item, rows.precision)
    assert before.whole.all()
    for one, other in zip(chain_of(rows), before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_recording_of_small_steps_is_read(tmp_path):
    """Nothing is declared; means over ratings, sixteen factors near 0, single precision."""
    rng = np.random.default_rng(5)
    table = rng.choice(STARS, (12, 60), p=(0.1, 0.1, 0.2, 0.35, 0.25)) * (rng.random((12, 60)) < 0.4)
    v = rng.normal(0, 0.03, (60, 16))
    with fl.Recorder(tmp_path / "t", rating_levels=STARS, n_items=60) as recorder:
        recorder.broadcast(0, v.astype(np.float32))
        for user, own in enumerate(table):
            items, u = np.flatnonzero(own), rng.normal(0, 0.03, 16)
            rows = np.zeros((items.size, 16))
            for number, item in enumerate(items):
                error = own[item] - u @ v[item]
                rows[number] = -2 * error * u / items.size
                u = u + 1e-3 * error * v[item]
            recorder.upload(0, user, rows.astype(np.float32), items)
    found = fl.attack(tmp_path / "t", "undeclared")
    (block,) = found.columns()
    assert block["value"].size == (table > 0).sum()
    np.testing.assert_allclose(block["value"], table[block["user"], block["index"]], atol=0.05)


def test_an_answer_that_is_kept_is_the_same_and_nobody_changes_it():
    rows, _ = passes([12, 20], rate=2e-4)
    first = chain_of(rows)
    expected = first.scalar.copy()
    first.scalar[:] = 7.0
    again, other = chain_of(rows), chain_of(rows._replace(rows=2 * rows.rows))
    np.testing.assert_array_equal(again.scalar, expected)
    assert not np.array_equal(other.scalar, expected)


def half_precision(path, *, size, mean, rng):
    """A step after every rating or minibatch, in an order of the client's own; rows in half precision."""
    v, table = rng.normal(0, 0.5, (60, 8)), np.zeros((16, 60))
    with fl.Recorder(path, rating_levels=np.arange(1, 11) / 2) as recorder:
        recorder.broadcast(0, v.astype(np.float32))
        for user in range(len(table)):
            order, u = rng.permutation(60)[: rng.integers(12, 30)], rng.normal(0, 0.5, 8)
            # every other client rates in whole stars
            table[user, order] = rng.choice(STARS if user % 2 else np.arange(1, 11) / 2, order.size)
            rows = []
            for first in range(0, order.size, size):
                here = order[first : first + size]
                error = table[user, here] - v[here] @ u
                step = 0.05 / (here.size if mean else 1)
                rows.append(2 / (here.size if mean else 1) * error[:, None] * u)
                u = u + step * error @ v[here]
            sent = np.concatenate(rows).astype(np.float16).astype(np.float32)
            recorder.upload(0, user, sent, order)
    return table


@pytest.mark.parametrize(
    ("size", "mean", "least"),
    [
        (1, False, 0.8),
    ],
    ids=[
        "per rating",
    ],
)
def test_steps_are_read_in_half_precision(tmp_path, size, mean, least):
    """No row had been taken for rounded; means of a last minibatch with one rating had halved others."""
    answered = there = 0
    for seed in range(2):
        path = tmp_path / str(seed)
        table = half_precision(path, size=size, mean=mean, rng=np.random.default_rng(seed))
        for user, _, index, value, _ in fl.attack(path, "undeclared").rows():
            np.testing.assert_allclose(value, table[user, index], atol=0.25)
            answered += value.size
        there += int((table > 0).sum())
    assert answered > least * there
