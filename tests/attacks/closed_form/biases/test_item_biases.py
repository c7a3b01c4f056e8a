"""Programs that learn ratings less a number of each item that nobody told: read by what clients share."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from attacks.closed_form.biases.item_biases import Columns, levels_of
from tests.attacks.closed_form.centres.test_centred_recording import HALVES, STARS, K, answers, sizes

USERS, ITEMS = 24, 40


def table_of(levels: np.ndarray) -> np.ndarray:
    """Ratings with a mean of 0.68 of the grid and both of its ends for most items; 0 where unrated."""
    rng = np.random.default_rng(0)
    share = np.clip(rng.normal(0.68, 0.35, (USERS, ITEMS)), 0, 1)
    ratings = levels[np.rint(share * (levels.size - 1)).astype(int)]
    return np.where(rng.random((USERS, ITEMS)) < 0.5, ratings, 0)


def item_means(table: np.ndarray) -> np.ndarray:
    """Of those who rated it; 0 where nobody did."""
    return table.sum(axis=0) / np.maximum((table > 0).sum(axis=0), 1)


def recorded(path, table, levels, biases, *, dtype=np.float64, per_rating=False):
    """One round of clients that learn ratings less the biases (users, items), or (items,)."""
    rng = np.random.default_rng(1)
    q, p = rng.normal(0, 0.3, (ITEMS, K)).astype(dtype), rng.normal(0, 0.3, (USERS, K))
    taken_off = np.broadcast_to(biases, table.shape)
    with fl.Recorder(path, rating_levels=levels) as recorder:
        recorder.broadcast(0, q)
        for user, ratings in enumerate(table):
            items, u = np.flatnonzero(ratings), p[user].copy()
            rows = np.empty((items.size, K))
            for number, j in enumerate(items):
                error = ratings[j] - taken_off[user, j] - q[j].astype(float) @ u
                rows[number] = 2 * error * u
                u = (1 - 1e-4) * u + 0.02 * per_rating * error * q[j] if per_rating else u
            recorder.upload(0, user, rows.astype(dtype), items)
    return path


@pytest.mark.parametrize(
    ("dtype", "per_rating"),
    [
        pytest.param(np.float64, False, id="one step"),
        pytest.param(np.float32, False, id="one step, single precision", marks=pytest.mark.thorough),
        pytest.param(np.float64, True, id="per rating", marks=pytest.mark.thorough),
    ],
)
def test_ratings_less_item_means_are_read(tmp_path, dtype, per_rating):
    table = table_of(STARS)
    path = recorded(tmp_path / "t", table, STARS, item_means(table), dtype=dtype, per_rating=per_rating)
    found = fl.attack(path, "undeclared")
    spans = np.where(table > 0, table, 5).min(axis=0) == 1
    spans &= table.max(axis=0) == 5
    many, right = answers(found, table)
    assert (
        right
        == many
        >= (0.4 if dtype is np.float32 and per_rating else 0.95) * (table[:, spans] > 0).sum()
        > 0
    )
    answered = ~np.isin(found.users, list(found.abstained))
    assert (
        (found.diagnostics["upright"][answered] > 0.94) & (found.diagnostics["upright"][answered] < 1)
    ).all()


@pytest.mark.thorough
def test_biases_that_are_no_means(tmp_path):
    table, rng = table_of(HALVES), np.random.default_rng(4)
    path = recorded(tmp_path / "t", table, HALVES, rng.normal(3, 1, ITEMS))
    many, right = answers(fl.attack(path, "undeclared"), table)
    assert right == many > 0


@pytest.mark.thorough
def test_a_grid_that_is_turned_round_is_answered_as_its_mirror_image(tmp_path):
    """The rows are the same: nothing in them can say so."""
    table = table_of(STARS)
    turned = np.where(table > 0, 6 - table, 0)
    found = fl.attack(recorded(tmp_path / "t", turned, STARS, item_means(turned)), "undeclared")
    many, right = answers(found, table)
    assert right == many > 0


@pytest.mark.thorough
def test_of_ratings_that_say_nothing_the_sizes_of_differences_are_read(tmp_path):
    """Of random ratings the mean does not say which way round they are."""
    rng = np.random.default_rng(0)
    table = np.where(rng.random((USERS, ITEMS)) < 0.5, rng.choice(STARS, (USERS, ITEMS)), 0)
    found = fl.attack(recorded(tmp_path / "t", table, STARS, item_means(table)), "undeclared")
    assert found.scope == Scope.SIZES
    many, right = sizes(found, table)
    assert right == many > 0


@pytest.mark.thorough
def test_numbers_of_each_rating_are_not_read(tmp_path):
    table = table_of(STARS)
    biases = np.random.default_rng(2).normal(3, 1, table.shape)
    found = fl.attack(recorded(tmp_path / "t", table, STARS, biases), "undeclared")
    assert len(found.abstained) == USERS


def test_rows_of_others_are_not_read(tmp_path):
    table = table_of(STARS)
    path = recorded(tmp_path / "t", table, STARS, item_means(table))
    view = fl.open_transcript(path).view("server").shuffled(3)
    assert len(fl.attack(view, "undeclared").abstained) == USERS


def columns_of(table: np.ndarray, biases: np.ndarray) -> Columns:
    """x = r - b = 2 g + 3 h, the same of all clients."""
    owner, item = np.nonzero(table)
    h = np.random.default_rng(0).normal(size=owner.size)
    return Columns(owner, item, (table[owner, item] - biases[item] - 3 * h) / 2, h)


def test_items_without_both_ends_of_the_grid_stay_open():
    table = table_of(STARS)
    table[:, 0] = np.where(table[:, 0] == 5, 4, table[:, 0])
    known = columns_of(table, item_means(table))
    found = levels_of(known, 5, 1e-12)
    assert found is not None
    assert found.read.all()
    assert (found.above[known.item == 0] < 0).all()
    told = found.above >= 0
    right = table[known.owner, known.item] - 1
    assert (found.above == right)[told].all() or (found.above == 4 - right)[told].all()


def test_ratings_farther_apart_than_the_grid_are_not_believed():
    table = table_of(np.arange(1.0, 10.0))
    assert levels_of(columns_of(table, item_means(table)), 5, 1e-12) is None
