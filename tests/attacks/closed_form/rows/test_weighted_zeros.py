"""A program that sends a row for every item, unrated ones as zeros of some weight; nothing declared."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from attacks.closed_form import undeclared

STARS = np.arange(1.0, 6.0)
USERS, ITEMS, K = 12, 60, 4


def recorded(path, alpha: float, scale: float, dtype=np.float64, noise: float = 0.0, **told) -> np.ndarray:
    """One round of clients that solve for their factor; their ratings, 0 where unrated."""
    rng = np.random.default_rng(1)
    q = rng.normal(0, 0.4, (ITEMS, K)).astype(dtype)
    table = np.where(rng.random((USERS, ITEMS)) < 0.3, rng.choice(STARS, (USERS, ITEMS)), 0)
    with fl.Recorder(path, rating_levels=STARS, **told) as recorder:
        recorder.broadcast(0, q)
        for user, ratings in enumerate(table):
            weight = np.where(ratings > 0, 1, alpha)
            p = np.linalg.solve(q.T @ (weight[:, None] * q) + np.eye(K), q.T @ (weight * ratings))
            rows = scale * (weight * (ratings - q @ p))[:, None] * p
            order = rng.permutation(ITEMS)
            recorder.upload(0, user, (rows + rng.normal(0, noise, rows.shape))[order].astype(dtype), order)
            recorder.truth(user, np.flatnonzero(ratings), ratings[ratings > 0])
    return table


@pytest.mark.parametrize(
    ("alpha", "scale", "dtype"), [(0.1, -2.0, np.float64), (1.0, 0.3, np.float64), (0.05, -1.0, np.float32)]
)
def test_lists_and_ratings_are_read(tmp_path, alpha, scale, dtype):
    """No weight, no scale: unrated rows share a line, and the others meet the grid."""
    table = recorded(tmp_path / "run", alpha, scale, dtype)
    found = fl.attack(tmp_path / "run", "undeclared")
    assert not found.abstained
    answers = 0
    for user, _, index, value, _ in found.rows():
        np.testing.assert_allclose(value, table[user, index], atol=0.05)
        answers += value.size
    assert answers >= 0.98 * USERS * ITEMS


def test_lists_and_ratings_are_a_leak_and_rows_for_all_items_none(tmp_path):
    recorded(tmp_path / "run", 0.1, -2.0)
    rows = fl.audit_recording(tmp_path / "run", attacks=["undeclared", "rated-set"])
    read = rows[rows["attack"] == "undeclared"].set_index("metric")
    assert read.loc["rated_set_f1", "verdict"] == read.loc["rated_rating_accuracy", "verdict"] == "LEAK"
    assert set(rows[rows["attack"] == "rated-set"]["verdict"]) == {"NOT TESTED"}


@pytest.mark.thorough
def test_noise_is_no_line(tmp_path):
    recorded(tmp_path / "run", 0.1, -2.0, noise=0.5)
    assert len(fl.attack(tmp_path / "run", "undeclared").abstained) == USERS


@pytest.mark.parametrize("constants", [{}, {"alpha": 0.3, "upload_scale": 5.0}, {"alpha": 0.1}])
def test_rows_of_unrated_items_are_declared_and_their_weight_and_scale_are_not(tmp_path, constants):
    """Neither told, both wrong, one of them told: the line says it."""
    table = recorded(tmp_path / "run", 0.1, -2.0, weighting="include-unrated", constants=constants)
    found = fl.attack(tmp_path / "run", "undeclared")
    assert not found.abstained
    for user, _, index, value, _ in found.rows():
        np.testing.assert_allclose(value, table[user, index], atol=0.05)


@pytest.mark.parametrize(("weight", "dtype"), [(40.0, np.float64), (1.0, np.float32), (10.0, np.float16)])
def test_lists_of_implicit_feedback_are_read(tmp_path, weight, dtype):
    """All ratings are 1, of weight 1 + weight beside zeros of weight 1; somebody has a single one."""
    rng = np.random.default_rng(2)
    q = np.abs(rng.normal(0, 0.3, (ITEMS, 8))) + 0.1
    positive = rng.random((USERS, ITEMS)) < np.linspace(0.05, 0.5, USERS)[:, None]
    positive[0] = np.arange(ITEMS) == 7
    with fl.Recorder(tmp_path / "run", rating_levels=[1.0], weighting="include-unrated") as recorder:
        recorder.broadcast(0, q)
        for user, here in enumerate(positive):
            c = 1 + weight * here
            p = np.linalg.solve(q.T @ (c[:, None] * q) + np.eye(8), q.T @ (c * here))
            recorder.upload(0, user, (-2 * (c * (here - q @ p))[:, None] * p).astype(dtype))
    found = fl.attack(tmp_path / "run", "undeclared")
    assert not found.abstained
    for user, _, index, value, _ in found.rows():
        np.testing.assert_array_equal(value > 0.5, positive[user, index])


@pytest.mark.thorough
def test_equal_predictions_are_no_line_of_unrated_items(tmp_path):
    """Rows of rated items alone, at item factors that are all alike: equal ratings make equal rows."""
    rng = np.random.default_rng(3)
    with fl.Recorder(tmp_path / "run", rating_levels=STARS) as recorder:
        recorder.broadcast(0, np.full((ITEMS, K), 0.01))
        for user in range(USERS):
            ratings = rng.choice(STARS, 20)
            recorder.upload(0, user, (ratings - 0.0004)[:, None] * np.full(K, 0.01), np.arange(20))
    for _, _, _, value, _ in fl.attack(tmp_path / "run", "undeclared").rows():
        assert (value != 0).all()


def test_what_fits_the_declared_weighting_is_not_read_as_another(tmp_path, monkeypatch):
    """Nobody has the highest level. Before: of one recording 26 unrated items were answered with 5 stars."""
    monkeypatch.setattr(undeclared, "bias_column", None)  # which rows of rated items are asked about
    rng = np.random.default_rng(4)
    rule = {"rule": "semi-als", "order": "batch", "upload": "gradient", "loss": "squared", "link": "identity"}
    told = {"alpha": 1.0, "lambda_factors": 1e-3, "upload_scale": -1.0, "upload_regularization": 0.0}
    v = rng.normal(0, 0.3, (27, K)).astype(np.float32)
    table = np.zeros((15, 27))
    with fl.Recorder(
        tmp_path / "run",
        rating_levels=range(1, 11),
        weighting="include-unrated",
        rule=rule,
        constants=told,
    ) as recorder:
        recorder.broadcast(0, v)
        for user, ratings in enumerate(table):
            ratings[rng.choice(27, int(rng.integers(1, 5)), replace=False)] = rng.choice([2, 4, 6, 7, 8])
            p = np.linalg.solve(v.T @ v + 1e-3 * np.eye(K), v.T @ ratings)
            recorder.upload(0, user, (-(ratings - v @ p)[:, None] * p).astype(np.float32), np.arange(27))
    found = fl.attack(tmp_path / "run", "undeclared")
    assert found.scope == Scope.DIFFERENCES
    for users, _, items, value, _ in found.rows():
        assert ((value > 0.5) == (table[users, items] > 0)).all()
