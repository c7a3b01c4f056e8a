"""Predictions through a link between a lowest and a highest rating."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.links.link_fit import Client, fitted_trials
from attacks.closed_form.links.link_grid import ratings_through_links
from attacks.closed_form.links.links import LINKS, links_of
from tests.oracles.pass_programs import Passer, Passes

# Positives told from sampled negatives: programs of plain NumPy with implicit feedback.


def rows_of(loss: str, u: np.ndarray, v: np.ndarray, y: np.ndarray) -> np.ndarray:
    """One gradient of the item factors; each positive is paired with every negative under BPR."""
    x = v @ u
    likely = 1 / (1 + np.exp(-x))
    if loss == "bpr":
        f = np.zeros(x.size)
        negatives = np.flatnonzero(y == 0).reshape((y == 1).sum(), -1)
        for i, others in zip(np.flatnonzero(y), negatives, strict=True):
            for j in others:
                wrong = 1 / (1 + np.exp(x[i] - x[j]))
                f[i], f[j] = f[i] + wrong, f[j] - wrong
    else:
        f = (y - likely) * (likely * (1 - likely) if loss == "squared" else 1)
    return -f[:, None] * u


@pytest.mark.parametrize(
    ("loss", "negatives", "read"),
    [("bernoulli", 4, True), ("squared", 2, True), ("bpr", 3, True), ("bpr", 1, False), ("noise", 4, False)],
)
def test_positives_and_negatives(loss: str, negatives: int, read: bool, tmp_path: Path):
    """As many negatives as positives leave open which is which; noise is of no loss."""
    rng = np.random.default_rng(0)
    v, used = rng.normal(0, 0.5, (60, 4)), np.zeros((20, 60))
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0]) as recorder:
        recorder.broadcast(0, v)
        for user in range(20):
            n = int(rng.integers(2, 12))
            items = rng.choice(60, n * (1 + negatives), replace=False)
            y = (np.arange(items.size) < n).astype(float)
            used[user, items[:n]] = 1
            u = rng.normal(0, 0.5, 4)
            rows = rng.normal(size=(items.size, 1)) * u if loss == "noise" else rows_of(loss, u, v[items], y)
            recorder.upload(0, user, rows, items)
    found = fl.attack(tmp_path / "t", "undeclared")
    answers = list(found.columns()) if read else []
    assert (len(found.abstained) == 0) == read
    for column in answers:
        assert (column["value"] == used[column["user"], column["index"]]).all()


# Ratings on the other side of a link: one step, chains of steps.


STARS = np.arange(1.0, 6.0)


def answers(path: Path, ratings: np.ndarray) -> tuple[int, int]:
    """Right and wrong answers of ``undeclared``."""
    columns = list(fl.attack(path, "undeclared").columns())
    if not columns:
        return 0, 0
    user, item, value = (np.concatenate([c[name] for c in columns]) for name in ("user", "index", "value"))
    good = np.abs(value - ratings[user, item]) < 0.25
    return int(good.sum()), int((~good).sum())


@pytest.mark.parametrize("loss", ["sigmoid", "cross-entropy"])
@pytest.mark.parametrize("batch", [0, 1, 4])
def test_losses_through_a_link_are_read(loss: str, batch: int, tmp_path: Path):
    """One pass: one direction, or a chain of them. No constant and no link is told."""
    program = Passes(Passer(0.02, 1, batch, loss, moves=False), n_rated=(12, 20), spread=0.6, scale=-3.0)
    ratings = program.record(tmp_path / "t")
    right, wrong = answers(tmp_path / "t", ratings)
    assert wrong == 0
    assert right >= 0.9 * (ratings > 0).sum()


def test_a_sigmoid_that_ends_above_the_highest_level(tmp_path):
    """fastai's y_range of 0 to 5.5, a mean of squared errors."""
    rng = np.random.default_rng(3)
    q, p, ratings = rng.normal(0, 0.5, (50, 5)), rng.normal(0, 0.5, (10, 5)), np.zeros((10, 50))
    with fl.Recorder(tmp_path / "t", rating_levels=STARS) as recorder:
        recorder.broadcast(0, q)
        for user, own in enumerate(ratings):
            items = rng.choice(50, rng.integers(10, 20), replace=False)
            own[items] = rng.choice(STARS, items.size)
            share = 1 / (1 + np.exp(-q[items] @ p[user]))
            slope = 5.5 * share * (1 - share)
            rows = -2 * ((own[items] - 5.5 * share) * slope / items.size)[:, None] * p[user]
            recorder.upload(0, user, rows, items)
    right, wrong = answers(tmp_path / "t", ratings)
    assert wrong == 0
    assert right > 0.9 * (ratings > 0).sum()


def test_ratings_and_their_mirror_image_make_the_same_rows():
    """(r - 1) / 4 - sigmoid(x) of u is what 6 - r leaves of -u: open, unless a bias tells."""
    rng = np.random.default_rng(1)
    h, r, bias = rng.normal(size=(1, 20)), rng.choice(STARS, (1, 20)), rng.normal(size=(1, 20))
    every = np.ones(h.shape, bool)
    for known in (0 * bias, bias):
        rows = (r - 1) / 4 - 1 / (1 + np.exp(-1.3 * h - known))
        found = ratings_through_links(0.2 * rows, h, known, every, STARS, 2e-16)
        assert found.told[0] == known.any()
    assert (found.value == r).all()
    assert LINKS[found.link[0]] == "cross-entropy of (r - lowest) / range"


def test_rows_about_nothing_are_no_answer():
    """40 clients of 4 to 11 random rows: an answer to any has a probability below 4e-3."""
    rng = np.random.default_rng(2)
    g, h = rng.normal(size=(40, 11)), rng.normal(size=(40, 11))
    valid = np.arange(11) < rng.integers(4, 12, (40, 1))
    assert not ratings_through_links(g, h, 0 * g, valid, STARS, 2e-16).told.any()


def test_small_predictions_make_no_link(tmp_path):
    """Whole stars of a grid of halves leave a multiple open each; through a link they were (r + 5) / 2."""
    rng = np.random.default_rng(11)
    q, table = rng.normal(0, 0.1, (40, 20)).astype(np.float32), np.zeros((8, 40))
    with fl.Recorder(tmp_path / "run", rating_levels=np.arange(0.5, 5.1, 0.5)) as recorder:
        recorder.broadcast(0, q)
        for user in range(8):
            p, items = rng.normal(0, 0.1, 20).astype(np.float32), rng.permutation(40)[:9]
            stars = rng.choice([2.0, 3.0, 4.0, 5.0], 9).astype(np.float32)
            error = stars - q[items] @ p
            recorder.upload(0, user, np.float32(2 / 9) * error[:, None] * p, items)
            recorder.truth(user, items, stars)
            table[user, items] = stars
    for user, _, index, value, _ in fl.attack(tmp_path / "run", "undeclared").rows():
        np.testing.assert_allclose(value, table[user, index], atol=1e-3)


@pytest.mark.parametrize("levels", [STARS[:1], STARS[:2], np.array([1.0, 2.0, 4.0])])
def test_a_single_level_is_a_grid_for_links_too(levels):
    """Rows of implicit feedback, dealt out for a baseline, ended in a traceback."""
    along = np.linspace(-1, 1, 9)
    client = Client(0.5 - along**2, along, np.zeros(9))
    for one in links_of(levels):
        named = fitted_trials([client], one, levels)[0].named
        assert np.isin(named, levels).all()
