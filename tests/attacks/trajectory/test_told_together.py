"""What the trajectories of many clients tell together of programs that learn something else than ratings."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.trajectory.answers import lowered_before_stretching
from attacks.trajectory.trajectory_model import Fitted, model_of
from audit.scoring.truth import read_truth
from tests.attacks.closed_form.test_common_numbers import right_differences
from tests.attacks.closed_form.test_uploads import DECLARED
from tests.attacks.closed_form.test_uploads import recorded_of_repeated_noise as recorded
from victims.transcript.beside import truth_path

RIGHT, WRONG = (
    DECLARED | {"constants": DECLARED["constants"] | {"upload_scale": scale}} for scale in (-2.0, 1.0)
)
LESS = {"r - 1": lambda stars: stars - 1, "(r - 1) / 4": lambda stars: (stars - 1) / 4}


def some(n):
    """Draws of ``n`` levels out of five for each client."""
    return lambda rng: rng.permutation(np.arange(1, 6))[:n]


def answers(path):
    """Answers of trajectory, wrong ones, and ratings."""
    found = fl.attack(path, "trajectory")
    ratings = read_truth(truth_path(path)).ratings.toarray()
    wrong = [np.round(value) != ratings[user, item] for user, _, item, value, _ in found.rows()]
    told = np.concatenate([np.zeros(0, bool), *wrong])
    return told.size, int(told.sum()), int((ratings > 0).sum())


@pytest.mark.parametrize(
    ("learned", "declared", "levels"),
    [
        (LESS["r - 1"], None, 5),
        (LESS["r - 1"], WRONG, 5),
        (LESS["(r - 1) / 4"], RIGHT, 5),
        pytest.param(LESS["(r - 1) / 4"], None, 3, marks=pytest.mark.thorough),
    ],
    ids=["r - 1, nothing", "r - 1, another scale", "(r - 1) / 4, declared", "(r - 1) / 4, three levels"],
)
def test_who_has_the_lowest_level_tells_that_it_is_taken_off(tmp_path, learned, declared, levels):
    """Under noise that repeats; whoever has none was answered one level too low."""
    recorded(tmp_path / "t", learned=learned, used=some(levels), declared=declared)
    told, wrong, there = answers(tmp_path / "t")
    assert not wrong
    assert told > 0.55 * there if levels == 3 else told > 0.9 * there


@pytest.mark.parametrize("learned", [LESS["r - 1"], lambda stars: stars], ids=["r - 1", "r"])
def test_it_is_open_where_nobody_tells(tmp_path, learned):
    """Neither the lowest nor the highest level is there; a declared scale says nothing of that."""
    for name, declared in (("open", None), ("said", RIGHT)):
        recorded(tmp_path / name, learned=learned, used=lambda _: [2, 3, 4], declared=declared)
        assert right_differences(tmp_path / name, "trajectory") > 0.9


@pytest.mark.parametrize("less", [2.0, 3.53, 2.5])
@pytest.mark.parametrize("levels", [2, 3])
def test_other_shifts_are_answered_for_nobody(tmp_path, less, levels):
    """Some levels of a client less a number are on a multiple of the grid: two always are."""
    recorded(tmp_path / "t", learned=lambda stars: stars - less, used=some(levels))
    assert answers(tmp_path / "t")[1] == 0


@pytest.mark.parametrize("less", [2.0, pytest.param(3.0, marks=pytest.mark.thorough)])
def test_a_shift_by_whole_levels_is_not_taken_for_the_lowest_one(tmp_path, less):
    """Ratings less two look like ratings less one to all but the few who have one of the lowest level."""

    def used(rng):
        return [1.0, 2.0] if rng.random() < 0.1 else [less, *rng.permutation(np.arange(less + 1, 6))[:2]]

    recorded(tmp_path / "t", learned=lambda stars: stars - less, used=used, declared=RIGHT)
    assert answers(tmp_path / "t")[1] == 0


@pytest.mark.thorough
def test_equal_ratings_say_nothing_for_the_declared_scale(tmp_path):
    """A fifth of each rating beside much noise: whose ratings are all 5 is at the lowest level."""

    def used(rng):
        return [5.0] if rng.random() < 0.2 else rng.permutation(np.arange(1.0, 6))[:2]

    recorded(tmp_path / "t", b=1e9, learned=lambda stars: stars / 5, used=used, declared=RIGHT)
    assert answers(tmp_path / "t")[1] == 0


@pytest.mark.parametrize("levels", [2, 3, 5])
def test_ratings_as_they_are_are_read_as_before(tmp_path, levels):
    recorded(tmp_path / "t", used=some(levels), declared=RIGHT)
    told, wrong, there = answers(tmp_path / "t")
    assert not wrong
    assert told > 0.95 * there


def test_a_stretched_zero_is_of_no_level(tmp_path):
    """Values of three clients with one, of whom nobody is answered then; two may be an accident."""

    recorded(tmp_path / "t", declared=RIGHT)
    model = model_of(fl.open_transcript(tmp_path / "t").view("server"), max_rounds=4, n_starts=1, max_steps=1)
    model = model._replace(stretched=True)
    value, zeros, one = (
        np.array([[0.4, 0.9, 1e-9]] * 2 + [[0.7, 0.2, 0.1]] * 3),
        np.zeros((5, 3), int),
        np.ones(5),
    )
    yes, no = np.ones((5, 3), bool), np.zeros(5, bool)
    start, path, counted = np.zeros((5, 2)), np.zeros((5, 0, 2)), np.ones(5, int)
    fit = Fitted(
        np.arange(5), zeros, zeros, yes, ~no, value, value, start, path, value, one, counted, no, no
    )  # fmt: skip
    assert not lowered_before_stretching(model, [fit])
    value[2, 0] = 0.0
    reasons = lowered_before_stretching(model, [fit])
    assert list(reasons) == [0, 1, 2, 3, 4]
    assert "stretched ratings of 3 clients are 0" in reasons[4]
