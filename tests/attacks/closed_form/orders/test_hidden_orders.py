"""Several passes over the ratings in orders that nobody sees, read by ``undeclared``."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.orders.hidden_orders import read_hidden_orders
from attacks.closed_form.uploads.readings import Rows
from factorleak import plugins
from tests.attacks.closed_form.rows.test_parallel_groups import manifest
from tests.oracles.shuffled_passes import ShuffledPasses, made_up, recorded

USERS = 12


def score(found: fl.Reconstruction, table: np.ndarray) -> tuple[int, int]:
    """Answers, and how many of them are right."""
    if not found.blocks:
        return 0, 0
    columns = list(found.columns())
    user, item, value = (np.concatenate([c[name] for c in columns]) for name in ("user", "index", "value"))
    return user.size, int((np.abs(value - table[user, item]) < 0.25).sum())


@pytest.mark.parametrize(
    ("client", "least"),
    [
        pytest.param(ShuffledPasses(0.01, passes=5), 0.7, marks=pytest.mark.thorough),
        (ShuffledPasses(0.01, batch=8), 0.8),
        pytest.param(ShuffledPasses(0.05, batch=32, mean=True), 0.5, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_short_steps_in_any_order(tmp_path, client, least):
    """Ninety ratings each, of a model in a late round. Before: nobody was answered but under means.

    A few of the largest errors may be clipped ones; a rating at the end of the grid is right all the same.
    """
    table = recorded(tmp_path / "t", client, made_up(USERS, 300, factors=8, seed=1), range(USERS), 2)
    answers, right = score(fl.attack(tmp_path / "t", "undeclared"), table)
    assert right == answers >= least * (table > 0).sum()


@pytest.mark.thorough
def test_shuffled_rows_are_not_read(tmp_path):
    data = made_up(4, 300, factors=8, seed=1)
    recorded(tmp_path / "t", ShuffledPasses(0.005), data, range(4), 2)
    view = fl.open_transcript(tmp_path / "t").view("server").shuffled(3)
    assert len(fl.attack(view, "undeclared").abstained) == 4


def changes_of(copies: np.ndarray, factors: np.ndarray, there: np.ndarray) -> Rows:
    """What clients send of copies that moved."""
    sent = np.where(there[..., None], copies - factors, 0)
    return Rows(sent, factors, np.zeros(there.shape), there, np.full(len(there), np.nan), 2.0**-52, None)


def half_stars() -> plugins.Manifest:
    return manifest().model_copy(update={"rating_levels": [0.5 * n for n in range(1, 11)]})


@pytest.mark.parametrize(
    ("used", "least"),
    [
        (np.arange(1, 11) / 2, 0.4),
    ],
)
def test_ratings_of_which_half_are_on_the_grid_stay_open(used, least):
    """Whole stars of a grid of halves: half of them had been answered, of 4 clients of a random program.

    Every second level: 0.2, 0.6 and 1 were answered for 0.6, 0.8 and 1 behind a sigmoid, 29 of 64 wrongly.
    """
    rng, users, n, k = np.random.default_rng(1), 24, 14, 5
    factors, ratings = rng.normal(0, 0.3, (users, n, k)), rng.choice(used, (users, n))
    copies = factors.copy()
    for w, r in zip(copies, ratings, strict=True):
        u = rng.normal(0, 0.3, k)
        for j in np.concatenate([rng.permutation(n) for _ in range(3)]):
            error = r[j] - w[j] @ u
            w[j], u = w[j] + 0.005 * error * u, u + 0.005 * error * w[j]
    [found] = read_hidden_orders([changes_of(copies, factors, np.ones((users, n), bool))], half_stars())
    told = np.isfinite(found.value)
    assert (found.value == ratings)[told].all()
    assert told.mean() >= least
    assert told.any() == (least > 0)


def test_two_clients_of_each_round_tell_it_together():
    """Few take part in each round, and three have to agree: nobody was answered before."""
    rng, n, k, rounds = np.random.default_rng(3), 20, 12, []
    ratings = rng.integers(1, 11, (4, n)) / 2
    for here in ([0, 1], [2, 3]):
        factors = rng.normal(0, 0.3, (4, n, k))
        copies = factors.copy()
        for user in here:
            p = rng.normal(0, 0.3, k)
            copies[user] += ShuffledPasses(0.003).rows(p, factors[user], ratings[user], rng)
        there = np.isin(np.arange(4), here)[:, None] & np.ones((4, n), bool)
        rounds.append(changes_of(copies, factors, there))
    alone = [one for rows in rounds for one in read_hidden_orders([rows], half_stars())]
    assert not any(np.isfinite(one.value).any() for one in alone)
    value = np.stack([one.value for one in read_hidden_orders(rounds, half_stars())])
    told = np.isfinite(value)
    assert (value == ratings)[told].all()
    assert told.sum() > 0.8 * ratings.size
    assert not told.all(axis=0).any()


def test_one_clipped_error_of_a_client_stays_open():
    """Few errors are as large as 2, and cut to it: before, one of 192 answers was the next level."""
    rng, users, n = np.random.default_rng(8), 12, 16
    factors = np.abs(rng.normal(0, 0.4, (users, n, 5))) + 0.5
    copies, ratings = factors.copy(), np.zeros((users, n))
    for w, r in zip(copies, ratings, strict=True):
        u = np.abs(rng.normal(0, 0.4, 5)) + 0.5
        r[:] = np.clip(np.rint(w @ u + rng.normal(0, 0.9, n)), 1, 5)
        for j in np.concatenate([rng.permutation(n) for _ in range(2)]):
            error = np.clip(r[j] - w[j] @ u, -2, 2)
            w[j], u = w[j] + 0.003 * error * u, u + 0.003 * error * w[j]
    there = np.ones((users, n), bool)
    stars = manifest().model_copy(update={"rating_levels": [1.0, 2, 3, 4, 5]})
    [found] = read_hidden_orders([changes_of(copies, factors, there)], stars)
    told = np.isfinite(found.value)
    assert told.mean() > 0.7
    assert (found.value == ratings)[told].all()


@pytest.mark.parametrize("seed", [0, 2, 20])
def test_ratings_of_a_smaller_minibatch_stay_open(seed):
    """Two passes by four in one order, means: four of 450 answers, of the last one, had been wrong.

    Of the last seed one more had been: the second order says another level than the first.
    """
    rng, sizes, k = np.random.default_rng(seed), np.resize([24, 21, 31, 28, 32, 36], 12), 4
    there = np.arange(36) < sizes[:, None]
    factors = np.abs(rng.normal(0, 0.5, (12, 36, k))) + 0.4
    often = np.array([1, 1, 2, 2, 4, 5, 8, 12, 8, 5])
    ratings = rng.choice(np.arange(1, 11) / 2, there.shape, p=often / often.sum())
    copies = factors.copy()
    for w, r, n in zip(copies, ratings, sizes, strict=True):
        u = np.abs(rng.normal(0, 0.5, k)) + 0.4
        for first in (*range(0, n, 4), *range(0, n, 4)):
            some = slice(first, min(first + 4, n))
            error = 0.01 * (r[some] - w[some] @ u)[:, None] / (some.stop - first)
            w[some], u = w[some] + error * u, u + (error * w[some]).sum(axis=0)
    [found] = read_hidden_orders([changes_of(copies, factors, there)], half_stars())
    told = np.isfinite(found.value)
    assert told.any()
    assert (found.value == ratings)[told].all()


@pytest.mark.thorough
def test_errors_of_another_rule_are_not_read(tmp_path):
    """Rows that are parallel but for a tenth, about numbers that are no ratings."""
    rng = np.random.default_rng(0)
    q = rng.normal(0, 0.4, (120, 6))
    with fl.Recorder(tmp_path / "t", rating_levels=np.arange(1, 6)) as recorder:
        recorder.broadcast(0, q)
        for user in range(USERS):
            items, p = rng.permutation(120)[:40], rng.normal(0, 0.4, 6)
            rows = (rng.uniform(1, 5, 40) - q[items] @ p)[:, None] * p
            recorder.upload(
                0, user, 0.01 * (rows + rng.normal(0, 0.1 * np.abs(rows).mean(), rows.shape)), items
            )
    assert len(fl.attack(tmp_path / "t", "undeclared").abstained) == USERS


@pytest.mark.parametrize("halves", [8])
def test_whole_stars_of_a_grid_of_halves_are_not_halved(tmp_path, halves):
    """Clients with fewer ratings than factors, five steps over all ratings: half as large they fit better."""
    rng = np.random.default_rng(0)
    items, k, rate = 50, 10, 0.001 / 8
    v, start = rng.normal(0, 0.3, (items, k)), rng.normal(0, 0.3, (9 + halves, k))
    table = np.zeros((len(start), items))
    with fl.Recorder(tmp_path / "t", rating_levels=np.arange(0.5, 5.1, 0.5)) as recorder:
        recorder.broadcast(0, v)
        for user in range(len(start)):
            u, rated = start[user], rng.permutation(items)[:8]
            table[user, rated] = rng.choice([3.0, 4.0, 5.0] if user < 9 else [2.5, 3.0, 4.5, 5.0], 8)
            copy = v[rated].copy()
            for _ in range(5):
                error = table[user, rated] - copy @ u
                copy, u = copy + rate * error[:, None] * u, u + rate * (error @ copy - 0.01 * u)
            recorder.upload(0, user, copy - v[rated], rated)
    answers, right = score(fl.attack(tmp_path / "t", "undeclared"), table)
    assert right == answers >= 8 * halves * 0.8


@pytest.mark.parametrize(
    "levels",
    [
        [1.0, 2.0, 3.0, 1e6],
    ],
    ids=[
        "wide",
    ],
)
def test_grids_of_many_steps_are_not_searched(tmp_path, levels):
    """Before: 78 GB for a grid of four levels, and 7 s for each client of one of a thousand."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(12, 4))
    with fl.Recorder(tmp_path / "t", rating_levels=levels) as recorder:
        recorder.broadcast(0, factors)
        for client in range(6):
            recorder.upload(0, client, rng.normal(size=(12, 1)) * rng.normal(size=4), np.arange(12))
    assert len(fl.attack(tmp_path / "t", "undeclared").abstained) == 6
