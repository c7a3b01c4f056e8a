"""Items that clients draw in each round, and give ratings that they make up, beside those that they rated."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl

CLIENTS, ITEMS, RATED, FACTORS = 10, 400, 20, 4


def _recorded(path, rounds, *, drawn="anew", made_up="anew", sample=1.0, grows=False, less=0.0):
    """Clients of one step; the ratings, 0 where unrated."""
    rng = np.random.default_rng(2)
    q, p = rng.normal(0, 0.3, (ITEMS, FACTORS)), rng.normal(0, 0.3, (CLIENTS, FACTORS))
    table, levels = np.zeros((CLIENTS, ITEMS)), range(1, 6)
    for own in table:
        own[rng.permutation(ITEMS)[:RATED]] = rng.integers(1, 6, RATED)
    lists = [rng.permutation(np.flatnonzero(own == 0))[:RATED] for own in table]
    invented = rng.integers(1, 6, table.shape)
    with fl.Recorder(path, rating_levels=levels, rule={"rule": "sgd", "order": "batch"}) as recorder:
        for t in range(rounds):
            recorder.broadcast(t, q)
            for user, own in enumerate(table):
                rated = np.flatnonzero(own)
                if drawn == "anew":
                    lists[user] = rng.permutation(np.flatnonzero(own == 0))[:RATED]
                if made_up == "anew":
                    invented[user] = rng.integers(1, 6, ITEMS)
                if drawn == "none":
                    lists[user] = rated[:0]
                    there = rng.random(rated.size) < sample if sample < 1 else np.full(rated.size, True)
                    rated = rated[there] if not grows else rated[: RATED - rounds + t + 1]
                items = np.sort(np.concatenate([rated, lists[user]]))
                stars = np.where(own[items] > 0, own[items], invented[user, items])
                error = stars - less - q[items] @ p[user]
                recorder.upload(t, user, error[:, None] * p[user], items)
                p[user] += 0.02 * error @ q[items]
            q = q + rng.normal(0, 0.02, q.shape)
    return table


def _answers(path, attack, table):
    """Right and wrong ratings of rated items, and unrated ones called rated."""
    parts = [(user, index, value) for user, _, index, value, _ in fl.attack(path, attack).rows() if user.size]
    if not parts:
        return 0, 0, 0
    user, index, value = (np.concatenate(column) for column in zip(*parts, strict=True))
    actual, told = table[user, index], np.rint(value)
    rated = actual > 0
    wrong = told[rated] != actual[rated]
    return int((~wrong).sum()), int(wrong.sum()), int((told[~rated] != 0).sum())


@pytest.mark.parametrize("attack", ["undeclared", "inversion"])
@pytest.mark.parametrize("made_up", ["anew", "once"])
def test_items_that_are_always_there_are_answered(tmp_path, attack, made_up):
    table = _recorded(tmp_path / "t", 3, made_up=made_up)
    right, wrong, made = _answers(tmp_path / "t", attack, table)
    assert right >= RATED
    assert (wrong, made) == (0, 0)


@pytest.mark.parametrize("less", [3.2])
def test_of_ratings_less_a_number_made_up_ones_are_not_called_rated(tmp_path, less):
    """Whatever is answered, values or how far they are from each other; by accident, 1 in 100."""
    table = _recorded(tmp_path / "t", 3, less=less)
    right, wrong, made = _answers(tmp_path / "t", "undeclared", table)
    assert made <= 0.01 * (right + wrong + made)


@pytest.mark.parametrize("attack", ["undeclared", "inversion"])
@pytest.mark.parametrize(("rounds", "least"), [(2, 0), (8, CLIENTS * RATED)])
def test_ratings_that_never_change_are_answered(tmp_path, attack, rounds, least):
    """Of two rounds a fifth of the made-up ratings stay by accident, of eight none."""
    table = _recorded(tmp_path / "t", rounds, drawn="once")
    right, wrong, made = _answers(tmp_path / "t", attack, table)
    assert (right, wrong, made) == (least, 0, 0)


@pytest.mark.parametrize("program", [{}, {"sample": 0.7}, {"grows": True}], ids=["all", "samples", "grows"])
def test_lists_of_rated_items_alone_are_answered(tmp_path, program):
    """A sample of the ratings in each round: no more items are always there than by accident."""
    table = _recorded(tmp_path / "t", 3, drawn="none", **program)
    right, wrong, made = _answers(tmp_path / "t", "undeclared", table)
    assert right >= 0.6 * CLIENTS * RATED
    assert (wrong, made) == (0, 0)
