"""Several steps with a bias of the client, and uploads that a client clips as a whole, by plain NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attacks.base import Reconstruction
from attacks.inversion.attack import Inversion
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder

pytestmark = [pytest.mark.usefixtures("optimised"), pytest.mark.thorough]
STARS = np.arange(1.0, 6.0)


def recorded(
    path: Path,
    *,
    bias: float | None = None,
    of_items: float = 0.0,
    less: float = 0.0,
    clip: float = np.inf,
    highest: int = 5,
    number: type = np.float64,
    declared: bool = True,
) -> np.ndarray:
    """Six clients of 4 to 9 ratings, four factors, three steps; returns the ratings, 0 where unrated."""
    rng = np.random.default_rng(3)
    q, ratings = rng.normal(0, 0.4, (20, 4)).astype(number), np.zeros((6, 20))
    biases = rng.normal(0, of_items, 20).astype(number)
    with Recorder(path, rating_levels=STARS, rule={"local_steps": 3} if declared else {}) as recorder:
        recorder.broadcast(0, q, **({"biases": biases} if of_items else {}))
        for user in range(6):
            items = np.sort(rng.choice(20, 4 + user, replace=False))
            ratings[user, items] = rng.integers(1, highest + 1, items.size)
            ratings[user, items[:2]] = 1, highest
            copy, p = q[items], rng.normal(0, 0.4, 4).astype(number)
            b = number(0 if bias is None else rng.normal(0, bias))
            for _ in range(3):
                error = (ratings[user, items] - less - biases[items] - copy @ p - b).astype(number)
                copy, p = copy + number(0.02) * error[:, None] * p, p + number(0.02) * error @ copy
                b = b if bias is None else b + number(0.02) * error.sum()
            change = copy - q[items]
            recorder.upload(0, user, change * number(min(1, clip / np.linalg.norm(change))), items)
    return ratings


def answer(path: Path, rule: str) -> Reconstruction:
    return Inversion(rule, rounds=1).attack(open_transcript(path).view("server"), 0)


def score(found: Reconstruction, ratings: np.ndarray) -> tuple[int, int]:
    """Ratings that are right, and wrong."""
    right = wrong = 0
    for user, _, index, value, _ in found.rows():
        right += int((ratings[user, index] == value).sum())
        wrong += int((ratings[user, index] != value).sum())
    return right, wrong


@pytest.mark.parametrize(
    "program",
    [
        {"bias": 0.0},
        {"bias": 0.0, "number": np.float32, "declared": False},
        {"bias": 0.0, "of_items": 0.4},
        {"bias": 0.4, "of_items": 0.4},  # all use both ends of the grid
    ],
    ids=["from 0", "single precision, undeclared", "beside items'", "of its own beside items'"],
)
def test_a_bias_that_moves_is_read(tmp_path: Path, program: dict):
    ratings = recorded(tmp_path / "t", **program)
    right, wrong = score(answer(tmp_path / "t", "any"), ratings)
    assert wrong == 0
    assert right >= 0.8 * (ratings > 0).sum()


@pytest.mark.parametrize(
    "program",
    [
        {"bias": 0.4},  # mirrored
        {"bias": 0.4, "of_items": 0.4, "highest": 4},  # all a level higher
        {"bias": 0.0, "less": 1.0},  # none of 1: as they are
        {"bias": 0.0, "less": 0.5},
    ],
    ids=["no biases of items", "room for a level", "less one", "less a half"],
)
def test_what_a_bias_leaves_open_is_not_answered(tmp_path: Path, program: dict):
    recorded(tmp_path / "t", **program)
    found = answer(tmp_path / "t", "local-biases")
    assert not found.blocks
    assert len(found.abstained) == 6


@pytest.mark.parametrize(
    "program",
    [{"clip": 0.15}, {"clip": 0.05, "declared": False}, {"clip": 0.15, "number": np.float32}],
    ids=["some", "all", "some, single precision"],
)
def test_uploads_that_are_clipped_as_a_whole_are_read(tmp_path: Path, program: dict):
    ratings = recorded(tmp_path / "t", **program)
    right, wrong = score(answer(tmp_path / "t", "local-steps"), ratings)
    assert wrong == 0
    assert right >= 0.8 * (ratings > 0).sum()
