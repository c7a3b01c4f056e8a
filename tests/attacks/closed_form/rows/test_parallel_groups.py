"""Several users on one client: the items that one of them alone rated."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.rows.row_readings import best_reading
from attacks.closed_form.uploads.readings import Rows, some_of
from victims.transcript.manifest import Manifest

LEVELS = np.arange(1.0, 6.0)
SILOS, ITEMS, K = 4, 80, 4


def silos(users, seed=0, noise=0.0, levels=LEVELS, less=0.0):
    """Rows of silos, and the ratings (silos, users, items) of which they are sums."""
    rng = np.random.default_rng(seed)
    v, u = rng.normal(0, 0.4, (ITEMS, K)), rng.normal(0, 0.5, (SILOS, users, K))
    shape = SILOS, users, ITEMS
    ratings = np.where(rng.random(shape) < 0.4 / users, rng.choice(levels, shape), 0)
    error = np.where(ratings > 0, ratings - less - u @ v.T, 0)
    sent = np.einsum("sui,suk->sik", error, u)
    item = (ratings > 0).any(axis=1)
    sent += noise * rng.normal(size=sent.shape) * item[..., None]
    factors = np.broadcast_to(v, sent.shape) * item[..., None]
    return Rows(sent, factors, np.zeros(item.shape), item, np.ones(SILOS), 2.0**-52, None), ratings


def manifest(levels=LEVELS):
    return Manifest(
        format="factorleak-transcript", version=1, protocol="x", update="sgd", weighting="observed-only",
        n_users=SILOS, n_items=ITEMS, n_attributes=0, factors=K, rounds=[0], hyperparameters={},
        rating_levels=list(levels), attribute_groups=[], parties={"server": -1}, adversary="all",
        recorded_by="x",
    )  # fmt: skip


@pytest.mark.parametrize("users", [2, 3])
def test_lone_items_are_read_and_no_others(users):
    rows, ratings = silos(users)
    found = best_reading(rows, manifest(), 0.25)
    lone = (ratings > 0).sum(axis=1) == 1
    told = np.isfinite(found.value)
    assert found.answered.all()
    assert (told & ~lone).sum() == 0
    assert told[lone].mean() >= 0.9
    np.testing.assert_allclose(found.value[told], ratings.sum(axis=1)[told], atol=1e-6)


def test_noise_leaves_no_group():
    rows, _ = silos(2, noise=0.05)
    assert not best_reading(rows, manifest(), 0.25).answered.any()


def test_numbers_that_are_near_the_grid_alone_are_no_ratings():
    """Two minibatches behind a sigmoid: exact rows, and numbers off the grid by more than last digits."""
    rng, clients, n, k = np.random.default_rng(0), 400, 16, 8
    v, p = rng.uniform(0, 0.4, (clients, n, k)), rng.uniform(0, 0.4, (clients, 2, k))
    p = np.repeat(p, n // 2, axis=1)
    error = rng.choice([0.8, 1.0], (clients, n)) - 1 / (1 + np.exp(-(v * p).sum(axis=2)))
    there, none = np.ones((clients, n), bool), np.zeros((clients, n))
    sent = Rows(error[..., None] * p, v, none, there, np.full(clients, np.nan), 2.0**-52, None)
    assert not best_reading(sent, manifest(), 0.25).answered.any()


def test_what_everybody_sends_is_nobodys_own():
    """SCAFFOLD: every client's rows hold the mean of all clients' rows of the round before."""
    rng, items = np.random.default_rng(0), np.arange(ITEMS)
    v, u = rng.normal(0, 0.4, (ITEMS, K)), rng.normal(0, 0.5, (SILOS, K))
    rated = items % SILOS == np.arange(SILOS)[:, None]  # one alone rated each item
    ratings = np.where(rated, rng.choice(LEVELS, rated.shape), 0)
    own = (np.where(rated, ratings - u @ v.T, 0)[..., None] * u[:, None]) / SILOS
    mixed = own.sum(axis=0) + np.where(rated[..., None], rng.normal(0, 0.1, own.shape), 0)
    factors, none = np.broadcast_to(v, mixed.shape), np.zeros(rated.shape)
    rows = Rows(mixed, factors, none, np.ones_like(rated), np.ones(SILOS), 2.0**-52, None)
    assert not best_reading(rows, manifest(), 0.25).answered.any()
    # alone, with nobody to hold it against, it would be taken for a silo
    assert best_reading(some_of(rows, np.arange(1)), manifest(), 0.25).answered.any()


def test_a_single_level_names_no_group():
    """Minibatches of implicit feedback: numbers of negatives, too, are linear in predictions."""
    rng = np.random.default_rng(0)
    v, u = rng.normal(0, 0.4, (ITEMS, K)), rng.normal(0, 0.3, (SILOS, 2, K))
    group = np.arange(ITEMS) % 2
    p = u[:, group]
    sent = -(0.5 + (p * v).sum(axis=2) / 4)[..., None] * p
    item, none = np.ones((SILOS, ITEMS), bool), np.zeros((SILOS, ITEMS))
    rows = Rows(sent, np.broadcast_to(v, sent.shape), none, item, np.full(SILOS, np.nan), 2.0**-52, None)
    assert not best_reading(rows, manifest([1.0]), 0.25).answered.any()


@pytest.mark.parametrize(
    ("used", "less", "told"),
    [
        (range(1, 11), 0.0, True),
        ((3, 5), 2.5, False),
    ],
    ids=str,
)
def test_less_an_untold_number_groups_are_open(tmp_path, used, less, told):
    """Ratings above 2, less 3, are 1 to 8, less 1; 3 and 5, less 2.5, are two levels, less nothing."""
    levels = np.arange(1.0, 11.0)
    rows, ratings = silos(2, levels=np.array(used, float), less=less)
    with fl.Recorder(tmp_path / "t", rating_levels=levels) as recorder:
        recorder.broadcast(0, np.random.default_rng(0).normal(0, 0.4, (ITEMS, K)))
        for silo, (sent, here) in enumerate(zip(rows.rows, rows.item, strict=True)):
            recorder.upload(0, silo, sent[here], np.flatnonzero(here))
    found = fl.attack(tmp_path / "t", "undeclared")
    wrong = answered = 0
    for silo, _, item, value, _ in found.rows():
        here = np.isfinite(value)
        answered += int(here.sum())
        of_users = np.abs(ratings[silo[here], :, item[here]] - value[here, None]).min(axis=1)
        wrong += int((of_users > 0.1).sum())
    assert wrong == 0
    assert (answered > 0) == told
