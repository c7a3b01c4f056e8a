"""What a reconstruction says of itself, and what contradicts itself."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.base import Estimates, Linked, Outcome, Reconstruction, all_abstain
from victims.common.errors import InputError

USERS = np.arange(5000)


def whole() -> Reconstruction:
    kind, index = np.zeros((1, 40), np.int8), np.arange(40)[None]
    return Reconstruction("test", USERS, (Estimates(USERS, kind, index, np.ones((5000, 40))),))


def test_a_repr_is_one_short_line_with_counts():
    """Before: 49,479 characters for a small one."""
    text = repr(whole())
    assert "users=5000" in text
    assert max(len(text), len(repr(whole().blocks[0]))) < 110
    assert "\n" not in text


def test_whether_there_is_something_to_score():
    assert whole().applies
    assert not all_abstain("test", USERS, "why", {}).applies
    assert all_abstain("test", USERS, "why", {}, outcome=Outcome.NOTHING_FOUND).applies
    assert not all_abstain("test", USERS[:0], "why", {}).applies
    everybody = dict.fromkeys(USERS.tolist(), "each for a reason of its own")
    assert not Reconstruction("test", USERS, (), everybody).applies
    linked = Linked(np.zeros(2, int), np.full(1, -1))
    assert Reconstruction("test", USERS, (), everybody, linked=linked).applies


def test_the_reason_for_everybody_is_the_obstacle():
    assert all_abstain("test", USERS[:0], "why", {}).obstacle == "why"
    assert all_abstain("test", USERS, "why", {}, outcome=Outcome.NOTHING_FOUND).obstacle == ""


def test_contradictions_are_refused():
    with pytest.raises(InputError, match="must abstain on all 5000 clients, got 0"):
        Reconstruction("test", USERS, (), outcome=Outcome.NOT_APPLICABLE)
    with pytest.raises(InputError, match="obstacle of a reconstruction must be empty"):
        Reconstruction("test", USERS, (), obstacle="why")
