"""Guesses without a number that a client computed."""

from __future__ import annotations

import numpy as np
import pytest

from audit.factories import make_attack
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder


@pytest.mark.parametrize("name", ["guess-uniform", "guess-majority", "guess-popularity"])
def test_clients_who_miss_the_last_round_are_guessed_about(tmp_path, name):
    """Programs draw other clients in every round; each is answered about what it sent last."""
    lists = {(0, 0): [1, 2, 3], (0, 1): [4, 5], (1, 1): [6], (1, 2): [0, 7], (2, 0): [8]}
    rng = np.random.default_rng(0)
    with Recorder(tmp_path / "t", rating_levels=[1, 2, 3, 4, 5]) as recorder:
        for round_ in range(3):
            recorder.broadcast(round_, rng.normal(size=(10, 2)))
        for (round_, client), items in lists.items():
            recorder.upload(round_, client, rng.normal(size=(len(items), 2)), np.array(items))
    found = make_attack(name).attack(open_transcript(tmp_path / "t").view("server"), 0)
    answered = {
        user: sorted(index[np.isfinite(value)].tolist())
        for block in found.blocks
        for user, index, value in zip(
            block.users.tolist(), np.broadcast_to(block.index, block.value.shape), block.value, strict=True
        )
    }
    assert answered == {0: [8], 1: [6], 2: [0, 7]}
    assert not found.abstained
