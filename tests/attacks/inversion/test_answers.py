"""Answers as they come in, and what is left of them where nothing tells a shift."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.client_rules.local_steps import RATE, LocalSteps
from attacks.closed_form.numbers.integer_relation import Relation
from attacks.inversion.answers import SEVERAL, Found
from attacks.inversion.least_squares import Unknowns
from attacks.inversion.told import Told
from tests.attacks.client_rules.test_local_passes import manifest
from victims.transcript.reader import open_transcript

CLIENTS, N, K = 4, 12, 3


@pytest.mark.parametrize(("used", "answered"), [([3.0, 7.0], False), ([1.0, 2, 4, 7, 10], True)])
def test_what_a_span_tells_is_open_where_levels_leave_another_shift(tmp_path, used, answered):
    """3 and 7 are 7 and 9 less 5.5, times two; five levels with both ends of the grid are nothing else."""
    rng, levels = np.random.default_rng(0), np.arange(1.0, 11.0)
    q = rng.normal(0, 0.5, (N, K))
    with fl.Recorder(tmp_path / "t", rating_levels=levels) as recorder:
        recorder.broadcast(0, q)
        for user in range(CLIENTS):
            recorder.upload(0, user, rng.normal(0, 1, (N, K)), np.arange(N))
    found = Found(open_transcript(tmp_path / "t").view("server"))
    value, none = np.resize(used, (CLIENTS, N)), np.zeros(CLIENTS)
    index = np.broadcast_to(np.arange(N), value.shape)
    found.add_by_span(found.users, index, Relation(value, none == 0, none, none, none + 1))
    told = found.reconstruction("inversion", "", {})
    assert len(told.abstained) == (0 if answered else CLIENTS)


def test_who_has_other_constants_than_most_is_asked_again(tmp_path):
    """A rate that nobody else has is no reason to believe the ratings that come with it."""
    rng = np.random.default_rng(0)
    with fl.Recorder(tmp_path / "t", rating_levels=np.arange(1.0, 6.0)) as recorder:
        recorder.broadcast(0, rng.normal(0, 0.5, (N, K)))
        for user in range(CLIENTS):
            recorder.upload(0, user, rng.normal(0, 1, (N, K)), np.arange(N))
    found = Found(open_transcript(tmp_path / "t").view("server"))
    family = LocalSteps().families(manifest())[0]
    constants = np.tile(family.start(3.0, 0.1, 1.0), (CLIENTS, 1, 1))
    constants[2, 0, RATE] += 0.1
    at = Unknowns(np.zeros((CLIENTS, 1, K)), np.zeros((CLIENTS, 1, N)), constants)
    none = np.zeros(CLIENTS)
    new = Told(np.full((CLIENTS, N), 5.0), at, none, none, none > 0, none.astype(int) + 9, none > 0)
    found.add_by_fit(found.users, np.broadcast_to(np.arange(N), (CLIENTS, N)), new)
    shared = found.common(family)
    assert shared is None  # all are answered
    taken = found.ask_again(constants[0, 0], family)
    assert found.answered.tolist() == [True, True, False, True]
    assert sorted(found.constants) == [0, 1, 3]
    assert [user for block in found.blocks for user in block.users] == [0, 1, 3]
    found.reasons[2] = SEVERAL
    found.restore(taken)
    assert not found.answered[2]
    found.reasons[2] = "no ratings explain its rows"
    found.restore(taken)
    assert found.answered.all()
    assert len(found.reconstruction("inversion", "", {}).abstained) == 0
