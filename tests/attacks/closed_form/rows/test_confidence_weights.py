"""Programs after Hu, Koren and Volinsky: ratings weigh errors, and every rated item has the target 1."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl

STARS, HALVES = np.arange(1.0, 6.0), np.arange(0.5, 5.1, 0.5)
USERS, ITEMS, K = 8, 60, 4


def recorded(
    path, alpha: float, levels: np.ndarray, dtype=np.float64, unrated=True, power=1.0, grid=None, weights=None
):
    """One round of clients that solve for their factors; their ratings, 0 where unrated."""
    rng = np.random.default_rng(3)
    q = rng.normal(0, 0.4, (ITEMS, K)).astype(dtype)
    table = np.where(rng.random((USERS, ITEMS)) < 0.3, rng.choice(levels, (USERS, ITEMS)), 0)
    with fl.Recorder(path, rating_levels=levels if grid is None else grid) as recorder:
        recorder.broadcast(0, q)
        for user, ratings in enumerate(table):
            weight, liked = 1 + alpha * ratings**power, ratings > 0
            if weights is not None:
                weight = np.where(liked, np.array(weights)[ratings.astype(int) - 1], 1.0)
            p = np.linalg.solve(q.T @ (weight[:, None] * q) + np.eye(K), q.T @ (weight * liked))
            rows = (-2 * (weight * (liked - q @ p))[:, None] * p).astype(dtype)
            sent = np.arange(ITEMS) if unrated else np.flatnonzero(liked)
            recorder.upload(0, user, rows[sent], sent)
    return table


def answers(path, table: np.ndarray) -> tuple[int, int]:
    """Ratings that are answered, and answers that are wrong."""
    found = fl.attack(path, "undeclared")
    many = wrong = 0
    for user, _, item, value, _ in found.rows():
        many += int((value > 0.25).sum())
        wrong += int((np.abs(value - table[user, item]) > 0.1).sum())
    return many, wrong


@pytest.mark.parametrize("unrated", [True, False])
@pytest.mark.parametrize(
    ("alpha", "levels", "dtype"),
    [(40.0, STARS, np.float64), (1.0, HALVES, np.float64), (0.5, STARS, np.float32)],
)
def test_confidences_are_read(tmp_path, alpha, levels, dtype, unrated):
    """Nobody was answered, or the list alone."""
    table = recorded(tmp_path / "t", alpha, levels, dtype, unrated)
    many, wrong = answers(tmp_path / "t", table)
    assert wrong == 0
    assert many >= 0.8 * (table > 0).sum()


@pytest.mark.thorough
@pytest.mark.parametrize("power", [2.0, 0.5])
def test_other_weights_have_no_wrong_answer(tmp_path, power):
    table = recorded(tmp_path / "t", 1.0, STARS, power=power)
    assert answers(tmp_path / "t", table)[1] == 0


def test_without_both_ends_of_the_grid_it_is_open(tmp_path):
    """r + 1 with another alpha has the same weights up to a factor."""
    table = recorded(tmp_path / "t", 0.5, np.arange(1.0, 5.0), grid=STARS)
    assert answers(tmp_path / "t", table) == (0, 0)


def test_few_weights_are_of_some_alpha_by_accident(tmp_path):
    """1, 2 and 3 are the weights of levels 1, 3 and 5 if alpha is 1."""
    table = recorded(tmp_path / "t", 1.0, STARS[:3], grid=STARS, weights=(1.0, 2.0, 3.0))
    assert answers(tmp_path / "t", table)[1] == 0


def test_rows_that_predict_the_same_of_all_items_are_not_answered(tmp_path):
    """(c - r) u: any levels are weights of some alpha; all answers had been upside down."""
    rng = np.random.default_rng(8)
    q, levels = rng.normal(0, 0.6, (60, 5)), np.arange(1.0, 6.0)
    with fl.Recorder(tmp_path / "t", rating_levels=levels) as recorder:
        recorder.broadcast(0, q)
        for user in range(4):
            items = rng.choice(60, 14, replace=False)
            ratings = np.r_[levels, rng.choice(levels, 9)]
            recorder.upload(0, user, (12 - ratings)[:, None] * rng.normal(0, 0.6, 5), items)
    assert len(fl.attack(tmp_path / "t", "undeclared").abstained) == 4


@pytest.mark.thorough
def test_where_clients_tell_several_alphas_only_they_are_read(tmp_path):
    """1 + r is twice 1 + (r - 1) / 2: with the others' alpha ratings were read a level too low."""
    rng = np.random.default_rng(3)
    q, table = rng.normal(0, 0.4, (ITEMS, K)), np.zeros((16, ITEMS))
    with fl.Recorder(tmp_path / "t", rating_levels=STARS) as recorder:
        recorder.broadcast(0, q)
        for user, own in enumerate(table):
            items = rng.choice(ITEMS, 18, replace=False)
            own[items] = rng.choice(STARS if user % 4 < 2 else STARS[1:], items.size)
            weight, liked = 1 + (0.5, 1.0)[user % 2] * own, own > 0
            p = np.linalg.solve(q.T @ (weight[:, None] * q) + np.eye(K), q.T @ (weight * liked))
            recorder.upload(0, user, (-2 * (weight * (liked - q @ p))[:, None] * p)[items], items)
    many, wrong = answers(tmp_path / "t", table)
    assert wrong == 0
    assert many >= 0.3 * (table > 0).sum()
