"""Clients that solve for their factor, read back under the rule that says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import factorleak as fl
from attacks.inversion.solved import UNEXPLAINED, WITH_ATTRIBUTES
from factorleak import plugins

pytestmark = pytest.mark.usefixtures("optimised")
LEVELS = [1.0, 2.0, 3.0, 4.0, 5.0]
RULE = {"rule": "semi-als", "order": "batch", "loss": "squared"}


def recorded(
    path: Path, *, ridge: float = 2.0, scale: float = 1.0, told: dict, tied: bool = True
) -> np.ndarray:
    """Six clients of ridge regression; ratings (users, items), 0 unrated."""
    rng = np.random.default_rng(0)
    q, truth = rng.normal(0, 0.5, (40, 5)), np.zeros((6, 40))
    with fl.Recorder(path, rating_levels=LEVELS, rule=RULE, constants=told) as recorder:
        recorder.broadcast(0, q)
        for user, own in enumerate(truth):
            items = rng.choice(40, 4 + 3 * user, replace=False)
            own[items] = rng.choice(LEVELS, items.size)
            v, r = q[items], own[items]
            p = np.linalg.solve(v.T @ v + ridge * np.eye(5), v.T @ r) if tied else rng.normal(0, 0.5, 5)
            recorder.upload(0, user, scale * np.outer(r - v @ p, p), items)
    return truth


def score(found: fl.Reconstruction, truth: np.ndarray) -> tuple[int, int]:
    """Answers, and wrong ones."""
    pairs = [(value, truth[user, index]) for user, _, index, value, _ in found.rows()]
    wrong = sum(int((value != own).sum()) for value, own in pairs)
    return sum(value.size for value, _ in pairs), wrong


@pytest.mark.parametrize(
    ("made", "told", "label"),
    [
        ({"scale": -0.02}, {}, "any ridge and scale"),
    ],
    ids=[
        "no scale, either",
    ],
)
def test_ratings_are_read_from_one_round(tmp_path: Path, made: dict, told: dict, label: str):
    """Also by ``any``, where the rule is declared. Without a scale multiples have to leave the grid."""
    truth = recorded(tmp_path / "t", **made, told=told)
    found = fl.attack(tmp_path / "t", plugins.Inversion())
    answers, wrong = score(found, truth)
    assert wrong == 0
    assert answers >= (0.8 if told else 0.6) * (truth > 0).sum()
    assert found.options["hypothesis"] == f"solved for, {label}"


def test_factors_that_nobody_solved_for_are_not_answered(tmp_path: Path):
    """Declared wrongly: rows of one gradient step at any factor."""
    recorded(tmp_path / "t", told={"upload_scale": 1.0, "upload_regularization": 0.0}, tied=False)
    found = fl.attack(tmp_path / "t", plugins.Inversion("semi-als"))
    assert set(found.abstained.values()) == {UNEXPLAINED}
    assert len(found.abstained) == 6


def test_attributes_are_said_to_be_in_the_way(transcripts: dict):
    view = transcripts["semi-als", "observed-only"].view("server")
    found = plugins.Inversion("semi-als").attack(view, 0)
    assert set(found.abstained.values()) == {WITH_ATTRIBUTES}
