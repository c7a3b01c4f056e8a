"""Programs that learn ratings less a number that nobody told, recorded as they run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope

STARS, HALVES = np.arange(1.0, 6.0), np.arange(0.5, 5.01, 0.5)
USERS, ITEMS, K = 40, 60, 5


def table_of(levels: np.ndarray, seed: int = 0, middle: float = 0.66, quality: float = 0.22) -> np.ndarray:
    """Ratings of items that differ in quality, about 30 a client; 0 where unrated."""
    rng = np.random.default_rng(seed)
    worth = middle + rng.normal(0, quality, ITEMS) + rng.normal(0, 0.08, (USERS, 1))
    share = np.clip(worth + rng.normal(0, 0.2, (USERS, ITEMS)), 0, 1)
    ratings = levels[np.rint(share * (levels.size - 1)).astype(int)]
    return np.where(rng.random((USERS, ITEMS)) < 0.5, ratings, 0)


def recorded(path: Path, table, levels, learned, *, dtype=np.float64, per_rating=False, rounds=1) -> Path:
    """``learned`` gives what a client learns of its ratings."""
    rng = np.random.default_rng(1)
    p = rng.normal(0, 0.3, (USERS, K))
    with fl.Recorder(path, rating_levels=levels) as recorder:
        for round_ in range(rounds):
            q = rng.normal(0, 0.3, (ITEMS, K)).astype(dtype)
            recorder.broadcast(round_, q)
            for user, row in enumerate(table):
                (items,) = np.nonzero(row)
                y, v = learned(row[items]), q[items].astype(float)
                if not per_rating:
                    rows = -2 * (y - v @ p[user])[:, None] * p[user]
                else:
                    rows = np.empty(v.shape)
                    for number, (one, factor) in enumerate(zip(y, v, strict=True)):
                        error = one - factor @ p[user]
                        rows[number] = -2 * error * p[user]
                        p[user] = (1 - 1e-4) * p[user] + 0.02 * error * factor
                recorder.upload(round_, user, rows.astype(dtype), items)
    return path


def answers(found: fl.Reconstruction, table: np.ndarray) -> tuple[int, int]:
    """Answers, and how many are right."""
    columns = list(found.columns())
    if not columns:
        return 0, 0
    user, item, value = (np.concatenate([c[name] for c in columns]) for name in ("user", "index", "value"))
    return user.size, int((np.abs(value - table[user, item]) < 0.25).sum())


def sizes(found: fl.Reconstruction, table: np.ndarray) -> tuple[int, int]:
    """Pairs of a client's ratings that are answered, and of how many the distance is right."""
    many = right = 0
    for block in found.blocks:
        index = np.broadcast_to(block.index, block.value.shape)
        for user, item, value in zip(block.users, index, block.value, strict=True):
            told = ~np.isnan(value)
            actual = table[user, item[told]]
            apart, true = (np.abs(one[:, None] - one) for one in (value[told], actual))
            many += apart.size
            right += int((np.abs(apart - true) < 0.25).sum())
    return many, right


def less_the_mean(table):
    mean = table[table > 0].mean()
    return lambda r: r - mean


def less_the_middle(table):
    middle = (table[table > 0].min() + table.max()) / 2
    return lambda r: r - middle


def less_its_own_mean(_):
    return lambda r: r - r.mean()


def z_scores(_):
    return lambda r: (r - r.mean()) / r.std()


@pytest.mark.parametrize(
    ("less", "least", "dtype", "per_rating"),
    [
        (less_the_mean, 0.95, np.float32, True),
        pytest.param(less_the_mean, 0.95, np.float32, False, marks=pytest.mark.thorough),
        pytest.param(less_the_mean, 0.95, np.float64, True, marks=pytest.mark.thorough),
        pytest.param(less_the_middle, 0.7, np.float32, True, marks=pytest.mark.thorough),
        pytest.param(z_scores, 0.2, np.float64, True, marks=pytest.mark.thorough),
    ],
)
def test_centred_ratings_are_read(tmp_path, less, least, dtype, per_rating):
    """Nothing told: all of what is answered is right; of own means whoever has both ends of the grid."""
    table = table_of(STARS)
    path = recorded(tmp_path / "t", table, STARS, less(table), dtype=dtype, per_rating=per_rating)
    found = fl.attack(path, "undeclared")
    many, right = answers(found, table)
    assert right == many >= (0.5 * least if per_rating else least) * (table > 0).sum()
    answered = ~np.isin(found.users, list(found.abstained))
    upright = found.diagnostics["upright"][answered]
    assert ((upright > 0.94) & (upright < 1)).all()
    probability = np.concatenate([columns["probability"] for columns in found.columns()])
    assert ((probability > 0.94) & (probability < 1)).all()


@pytest.mark.parametrize("less", [less_the_mean, pytest.param(less_the_middle, marks=pytest.mark.thorough)])
def test_half_stars(tmp_path, less):
    table = table_of(HALVES)
    many, right = answers(
        fl.attack(recorded(tmp_path / "t", table, HALVES, less(table)), "undeclared"), table
    )
    assert right == many >= 0.7 * (table > 0).sum()


@pytest.mark.thorough
def test_likes_and_dislikes(tmp_path):
    """As +1 and -1, up to one bit of all: clicks among impressions are few, and were turned round before."""
    grid = np.array([1.0, 2.0])
    for middle, least in ((0.9, 0.9), (0.1, 0.9), (0.66, 0.95)):
        table = table_of(grid, middle=middle, quality=0.35)
        path = recorded(tmp_path / f"{middle}", table, grid, lambda r: 2 * r - 3)
        found = fl.attack(path, "undeclared")
        assert found.scope == Scope.SIZES
        many, right = sizes(found, table)
        assert right == many > 0
        assert answers(found, table)[0] >= least * (table > 0).sum()


@pytest.mark.parametrize("less", [less_the_mean])
def test_a_grid_that_is_turned_round_is_answered_as_its_mirror_image(tmp_path, less):
    """Nobody's rows can say so. It is the one assumption, and ``upright`` is its probability, below 1."""
    table = table_of(STARS)
    turned = np.where(table > 0, 6 - table, 0)
    found = fl.attack(recorded(tmp_path / "t", turned, STARS, less(turned)), "undeclared")
    many, right = answers(found, table)
    assert right == many > 0
    assert np.nanmax(found.diagnostics["upright"]) < 1


@pytest.mark.parametrize(
    "less",
    [
        pytest.param(less_the_mean, marks=pytest.mark.thorough),
        pytest.param(less_the_middle, marks=pytest.mark.thorough),
        less_its_own_mean,
    ],
)
def test_of_ratings_that_say_nothing_the_sizes_of_differences_are_read(tmp_path, less):
    """Uniform ratings: their mean is the middle of the grid, and items do not differ."""
    rng = np.random.default_rng(3)
    table = np.where(rng.random((USERS, ITEMS)) < 0.5, rng.choice(STARS, (USERS, ITEMS)), 0)
    found = fl.attack(recorded(tmp_path / "t", table, STARS, less(table)), "undeclared")
    assert found.scope == Scope.SIZES
    many, right = sizes(found, table)
    assert right == many > 0.9 * USERS * 20**2
    assert found.factors is None or np.isnan(found.factors.value).all()


def test_stars_less_three_that_are_stars_as_well(tmp_path):
    """Fours and fives less three are ones and twos, and so fit the grid without any centre."""
    table = table_of(STARS)
    table[:5] = np.where(table[:5] > 0, np.clip(table[:5], 4, 5), 0)
    found = fl.attack(recorded(tmp_path / "t", table, STARS, less_the_middle(table)), "undeclared")
    many, right = answers(found, table)
    assert right == many > 0


def test_ratings_as_they_are_have_no_other_probability(tmp_path):
    table = table_of(STARS)
    found = fl.attack(recorded(tmp_path / "t", table, STARS, lambda r: r), "undeclared")
    assert answers(found, table) == ((table > 0).sum(),) * 2
    assert (found.diagnostics["upright"] == 1).all()
    assert all(np.isnan(columns["probability"]).all() for columns in found.columns())


def test_factors_have_the_sign_of_the_ratings(tmp_path):
    """And clients are read in the first round that tells them."""
    table = table_of(STARS)
    path = recorded(tmp_path / "t", table, STARS, less_the_middle(table), rounds=2)
    found = fl.attack(path, "undeclared")
    assert found.factors is not None
    own = np.random.default_rng(1).normal(0, 0.3, (USERS, K))
    np.testing.assert_allclose(found.factors.value, own[found.factors.users], atol=1e-8)
    assert found.factors.users.size == USERS - len(found.abstained)
