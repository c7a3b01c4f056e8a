"""Ratings of which none is the highest level, where nobody tells the scale of the rows."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Estimates, Reconstruction, Scope
from attacks.closed_form.fit.shunned_level import OPEN_SCALE, unless_shunned
from victims.transcript.recorder import Recorder


@pytest.fixture
def view(tmp_path):
    """Of one client, on a grid of halves."""
    rng = np.random.default_rng(0)
    with Recorder(tmp_path / "t", rating_levels=np.arange(1, 11) / 2) as recorder:
        recorder.broadcast(0, rng.normal(size=(8, 4)))
        recorder.upload(0, 0, rng.normal(size=(8, 4)), np.arange(8))
    return fl.open_transcript(tmp_path / "t").view("server")


def read(view, stars) -> Reconstruction:
    """What somebody has read of the client."""
    block = Estimates(view.users, np.zeros((1, 8), np.int8), np.arange(8)[None], np.array([stars], float))
    return Reconstruction("undeclared", view.users, (block,), {}, {}, {})


@pytest.mark.parametrize(
    ("stars", "open_"),
    [([1.5, 1.5, 1, 1.5, 1.5, 2.5, 1.5, 1.5], True), ([3, 1, 2, 4, 3, 4.5, 3, 2.5], False)],
    ids=["a half of whole stars", "with halves"],
)
def test_differences_that_have_another_multiple_are_open(view, stars, open_):
    """3 3 2 3 3 5 3 3 had been answered, by half, of the only client of a recording that was read."""
    nobody = np.zeros(1, bool)
    found = unless_shunned(read(view, stars), view, nobody, unscaled=True)
    assert found.abstained == ({0: OPEN_SCALE} if open_ else {})
    assert unless_shunned(read(view, stars), view, nobody).scope == Scope.DIFFERENCES
