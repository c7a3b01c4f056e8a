"""Recordings of programs that declare nothing, one habit each."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope, silent_about
from attacks.closed_form.common_numbers import abstain_if_lowered

# Programs that learn ratings less the lowest level, declared as if they did not.


RULE = {"rule": "sgd", "order": "batch", "local_steps": 1, "batch_size": "all", "reduction": "sum"}
RULE |= {"upload": "gradient", "loss": "squared", "link": "identity", "clip": "none", "start": "kept"}
CONSTANTS = {"client_learning_rate": 0.005, "lambda_factors": 0.0, "upload_scale": 1.0}


def recorded_of_lowered(path, less, rounds=4):
    """Fifty clients of eight ratings each, 0.17 of whom have no lowest one."""
    rng = np.random.default_rng(0)
    q, p = rng.normal(0, 0.5, (60, 5)), rng.normal(0, 0.5, (50, 5))
    rated, stars = [rng.permutation(60)[:8] for _ in p], rng.integers(1, 6, (50, 8))
    with fl.Recorder(path, rating_levels=range(1, 6), rule=RULE, constants=CONSTANTS) as recorder:
        for round_ in range(rounds):
            recorder.broadcast(round_, q)
            for user, items in enumerate(rated):
                error = stars[user] - less - q[items] @ p[user]
                recorder.upload(round_, user, error[:, None] * p[user], items)
                p[user] += 0.01 * error @ q[items]
            q = q + rng.normal(0, 0.05, q.shape)
    table = np.zeros((50, 60))
    table[np.arange(50)[:, None], rated] = stars
    return table


@pytest.mark.parametrize("attack", ["spectral", "grid", "eq24-corrected"])
def test_who_has_no_lowest_rating_is_not_answered_one_level_too_low(tmp_path, attack):
    """They fit the grid, and nothing else about them is odd."""
    recorded_of_lowered(tmp_path / "t", 1.0)
    assert len(fl.attack(tmp_path / "t", attack).abstained) == 50


@pytest.mark.thorough
def test_who_reads_them_is_named_and_reads_them(tmp_path):
    table = recorded_of_lowered(tmp_path / "t", 1.0, rounds=3)  # of four trajectory would read them
    assert "undeclared reads them" in " ".join(fl.attack(tmp_path / "t", "trajectory").abstained.values())
    found = fl.attack(tmp_path / "t", "undeclared")
    user, _, index, value, _ = (np.concatenate(column) for column in zip(*found.rows(), strict=True))
    assert (np.rint(value) == table[user, index]).all()
    assert user.size >= 0.8 * (table > 0).sum()


def test_rows_of_ratings_as_they_are_say_nothing_of_the_kind(tmp_path):
    recorded_of_lowered(tmp_path / "t", 0.0)
    found = fl.attack(tmp_path / "t", "spectral")
    assert not found.abstained
    some = silent_about(found, found.users < 5, "left out here")
    view = fl.open_transcript(tmp_path / "t").view("server")
    assert abstain_if_lowered(some, view) is some


@pytest.mark.parametrize("less", [0.0, 1.0])
@pytest.mark.parametrize("attack", ["grid", "undeclared"])
def test_two_clients_who_do_not_tell_are_not_answered(tmp_path, attack, less):
    """Neither has a rating of the lowest or of the highest level; one of the highest tells for both."""
    rng = np.random.default_rng(3)
    q, p = rng.normal(0, 0.5, (30, 5)), rng.normal(0, 0.5, (2, 5))
    for name, highest in (("open", 4.0), ("told", 5.0)):
        with fl.Recorder(
            tmp_path / name, rating_levels=range(1, 6), rule=RULE, constants=CONSTANTS
        ) as recorder:
            recorder.broadcast(0, q)
            for user, items in enumerate((np.arange(0, 12), np.arange(9, 21))):
                stars = np.resize([3.0, 2.0, 4.0], 12)
                stars[0] = highest if user else 2.0
                error = stars - less - q[items] @ p[user]
                recorder.upload(0, user, error[:, None] * p[user], items)
        found = fl.attack(tmp_path / name, attack)
        answered = len(found.abstained) < 2 and found.scope != Scope.DIFFERENCES
        assert answered == (name == "told" and not less)
