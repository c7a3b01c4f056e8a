"""Answers as they come in, and what is left of them where nothing tells a shift."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.integer_relation import Relation
from attacks.inversion.answers import Found
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
