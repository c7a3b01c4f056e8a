"""A mean of all ratings is broadcast as the bias of every item, and each client keeps one of its own."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from attacks.closed_form.biases.one_bias import views_without_one_bias
from tests.attacks.closed_form.biases.test_own_biases_recording import ITEMS, USERS, K, table_of
from tests.attacks.closed_form.centres.test_centred_recording import STARS

MEAN = 3.8844


def recorded(path, table, biases, *, own):
    """One step over all ratings of clients that may have a bias of their own."""
    rng = np.random.default_rng(3)
    q, p = (rng.normal(0, 0.3, (n, K)) for n in (ITEMS, USERS))
    with fl.Recorder(path, rating_levels=STARS) as recorder:
        recorder.broadcast(0, q, biases=biases)
        for user, ratings in enumerate(table):
            items = np.flatnonzero(ratings)
            error = ratings[items] - biases[items] - own[user] - q[items] @ p[user]
            recorder.upload(0, user, error[:, None] * p[user], items)
    return path


def test_sizes_of_differences_are_read(tmp_path):
    table = table_of(STARS)[:6]
    own = np.random.default_rng(4).normal(0, 0.3, USERS)
    path = recorded(tmp_path / "t", table, np.full(ITEMS, MEAN), own=own)
    found = fl.attack(path, "undeclared")
    assert found.scope == Scope.SIZES
    assert not found.abstained
    for block in found.blocks:
        for user, items, value in zip(block.users, block.index, block.value, strict=True):
            told = np.isfinite(value)
            truth = table[user, items[told]]
            assert told.sum() == (table[user] > 0).sum()
            mirrored = 6 - truth
            apart = [np.ptp(value[told] - one) for one in (truth, mirrored)]
            assert min(apart) < 1e-6


def test_without_own_biases_ratings_are_read(tmp_path):
    table = table_of(STARS)[:6]
    path = recorded(tmp_path / "t", table, np.full(ITEMS, MEAN), own=np.zeros(USERS))
    assert fl.attack(path, "undeclared").scope == Scope.RATINGS_AND_ATTRIBUTES


@pytest.mark.parametrize("biases", [np.zeros(ITEMS), np.r_[0.1, np.zeros(ITEMS - 1)]], ids=["none", "differ"])
def test_other_biases_stay(tmp_path, biases):
    path = recorded(tmp_path / "t", table_of(STARS), biases, own=np.zeros(USERS))
    assert not list(views_without_one_bias(fl.open_transcript(path).view("server")))
