"""What a solver ended with: judged without a solver, and held against the rows of all clients."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from attacks.root_finding.judgement import off_the_grid

STARS = np.arange(1.0, 6.0)


def _all_items(rated: list[float], others: float) -> np.ndarray:
    """Numbers of sixty items, of which three are rated; those of the others are next to nothing."""
    return np.concatenate([rated, others * np.linspace(-1, 1, 57)])


@pytest.mark.parametrize("rated", [[1.55, -0.72, 1.31], [4.02, 0.74, 3.24], [2.34, 0.64, 1.81]])
def test_unrated_items_vouch_for_nobody(rated):
    """A solver that stopped on its way has them next to nothing, too, and ratings of another length."""
    value = _all_items(rated, 0.04)
    assert off_the_grid(value, np.ones(60, bool), STARS, unrated=True, start=3.0, converged=False)


def test_ratings_beside_unrated_items_are_believed():
    value = _all_items([4.998, 1.001, 4.0], 0.001)
    assert not off_the_grid(value, np.ones(60, bool), STARS, unrated=True, start=3.0, converged=False)


def test_what_stands_at_the_start_beside_unrated_items_is_no_answer():
    """The start is a level; a solver that did not move from it has all items there."""
    at_start = np.full(30, 3.0)
    assert off_the_grid(at_start, np.ones(30, bool), STARS, unrated=True, start=3.0, converged=False)


RULE = {"order": "batch", "local_steps": 1, "batch_size": "all", "reduction": "sum", "upload": "gradient"}
RULE |= {"rule": "semi-als", "loss": "squared", "link": "identity", "clip": "none"}
ALPHA, RIDGE = 0.1, 0.3


def _recorded(path, learned, weight=np.ones_like, *, ridge=RIDGE, alpha=None, levels=5):
    """Eight clients of rows that ``learned`` makes of their ratings; the ratings, 0 where unrated."""
    rng = np.random.default_rng(0)
    q, table = rng.normal(0, 0.5, (24, 4)), np.zeros((8, 24))
    constants = {"lambda_factors": ridge, "upload_scale": 1.0, "upload_regularization": 0.0}
    constants |= {} if alpha is None else {"alpha": alpha}
    kind = "observed-only" if alpha is None else "include-unrated"
    with fl.Recorder(
        path, rating_levels=range(1, 6), weighting=kind, rule=RULE, constants=constants
    ) as recorder:
        recorder.broadcast(0, q)
        for user, own in enumerate(table):
            rated = rng.permutation(24)[:8]
            own[rated] = rng.integers(1, levels + 1, 8)
            items = np.sort(rated) if alpha is None else np.arange(24)
            stars = own[items]
            y = np.where(stars > 0, learned(stars), 0.0)
            c = np.where(stars > 0, weight(stars), ALPHA)
            v = q[items]
            p = np.linalg.solve(v.T @ (c[:, None] * v) + RIDGE * np.eye(4), v.T @ (c * y))
            recorder.upload(0, user, (c * (y - v @ p))[:, None] * p, items)
    return table


def _answers(found, table):
    """Rated items right and wrong, and unrated ones called rated."""
    user, _, index, value, _ = (np.concatenate(column) for column in zip(*found.rows(), strict=True))
    actual, told = table[user, index], np.rint(value)
    rated = actual > 0
    return (
        int((told == actual)[rated].sum()),
        int((told != actual)[rated].sum()),
        int((told[~rated] != 0).sum()),
    )


def test_unrated_items_are_not_called_rated_by_a_second_root(tmp_path):
    """p . q - alpha / (1 - alpha) solves (24) for an item that is not rated, as 0 does."""
    solver = "root-hybr"
    table = _recorded(tmp_path / "t", np.asarray, alpha=ALPHA)
    assert _answers(fl.attack(tmp_path / "t", solver, answer="any", jobs=1), table)[2] > 0
    right, wrong, made = _answers(fl.attack(tmp_path / "t", solver, jobs=1), table)
    assert (right > 0, wrong, made) == (True, 0, 0)


LEARNED = {
    "mirrored": {"learned": lambda stars: 5 - stars},
    "fifths": {"learned": lambda stars: stars / 5},
    "less the lowest level": {"learned": lambda stars: stars - 1},
    "less the mean": {"learned": lambda stars: stars - stars[stars > 0].mean()},
    "weighted": {"weight": lambda stars: np.maximum(stars, 1)},
    "weighted by logarithms": {"weight": lambda stars: 1 + np.log(np.maximum(stars, 1))},
    "regularised otherwise": {"ridge": 1.2 * RIDGE},
}
UNRATED = {"heavier": {"alpha": ALPHA / 3}, "lighter": {"alpha": 3 * ALPHA}}
PROGRAMS = {f"{name}, rated items": given for name, given in LEARNED.items()}
PROGRAMS |= {f"{name}, all items": {"alpha": ALPHA} | given for name, given in (LEARNED | UNRATED).items()}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_nobody_is_answered_wrongly_where_the_declaration_is_wrong(tmp_path, program):
    table = _recorded(tmp_path / "t", **{"learned": np.asarray, **program})
    found = fl.attack(tmp_path / "t", "root-hybr", jobs=1)
    if found.abstained.keys() >= set(range(8)):
        return
    assert found.scope == Scope.RATINGS_AND_ATTRIBUTES
    assert _answers(found, table)[1:] == (0, 0)


def test_differences_alone_are_told_where_nobody_has_a_highest_level(tmp_path):
    """Ratings less the lowest level of clients of whom none has the highest are on the grid as well."""
    _recorded(tmp_path / "t", np.asarray, levels=4)
    assert fl.attack(tmp_path / "t", "root-hybr", jobs=1).scope == Scope.DIFFERENCES
