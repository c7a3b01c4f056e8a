"""Candidates of an item's weight, weighed by how levels go together."""

from __future__ import annotations

import numpy as np

from attacks.trajectory import item_quality
from attacks.trajectory.item_quality import candidate_shares

STARS = np.arange(1.0, 4.0)
TOLD = [np.array([[6.0, 2, 0]]), np.array([[0.0, 2, 6]])] * 10
OPEN = np.array([[6.0, 0, 0], [0, 6.0, 0]])


def shares():
    """Of the candidates of the open item."""
    return candidate_shares([*TOLD, OPEN], [np.zeros(1)] * 20 + [np.zeros(2)], STARS, np.ones(3))[-1]


def test_more_passes_change_nothing(monkeypatch):
    at_rest = shares()
    monkeypatch.setattr(item_quality, "STILL", 1e-12)
    assert np.abs(shares() - at_rest).max() < 1e-4


def test_a_fit_that_does_not_come_to_rest_says_nothing(monkeypatch):
    monkeypatch.setattr(item_quality, "PASSES", 1)
    assert shares().tolist() == [0.5, 0.5]
