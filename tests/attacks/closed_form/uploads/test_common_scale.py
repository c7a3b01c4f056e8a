"""Scales that clients share: of means over minibatches, and declared ones that nobody shows."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.uploads.common_scale import Scale, Told, contradicted, shown_scale
from tests.tools.identify import counted

HALVES = np.arange(1, 11) / 2
SIZES = (4, 3, 5, 6, 7, 9, 12, 13, 18, 16)


def means(path, *, batch=6, declared=-2.0, whole=(0, 4, 9), used=(5.0, 3.0, 4.0, 1.0), own=None):
    """Means over minibatches times -2; some clients use a few levels alone. Returns the ratings."""
    rng, k = np.random.default_rng(2), 5
    v = rng.normal(0, 0.5, (40, k))
    ratings = np.zeros((len(SIZES), 40))
    constants = {"upload_scale": declared, "upload_regularization": 0.0}
    with fl.Recorder(path, rating_levels=HALVES, constants=constants) as recorder:
        recorder.broadcast(0, v)
        for user, n in enumerate(SIZES):
            items, u = rng.permutation(40)[:n], rng.normal(0, 0.5, k)
            r = rng.choice(HALVES, n) if user not in whole else rng.choice(used, n)
            rows = np.zeros((n, k))
            for first in range(0, n, batch):
                here = slice(first, min(first + batch, n))
                error = r[here] - v[items[here]] @ u
                by = error.size if own is None else own(n)
                rows[here] = -2 * error[:, None] / by * u
                u = u + 0.02 * error / by @ v[items[here]]
            recorder.upload(0, user, rows, items)
            ratings[user, items] = r
    return ratings


def test_means_over_minibatches_have_a_scale(tmp_path):
    """A client of four whole stars is read by the scale of means that others show, not at half of them."""
    ratings = means(tmp_path / "t")
    found = fl.attack(tmp_path / "t", "undeclared")
    answered, wrong = counted(found, ratings, HALVES)
    assert wrong == 0
    assert answered >= 0.7 * (ratings > 0).sum()
    assert 0 not in found.abstained


def test_a_declared_scale_that_others_contradict_reads_nobody(tmp_path):
    """Rows of a client are divided by the square of its ratings: declared, three of 4.5 would be 1.5."""
    ratings = means(tmp_path / "t", batch=99, own=lambda n: n**2, whole=(1,), used=(1.5, 3.0, 4.5))
    answered, wrong = counted(fl.attack(tmp_path / "t", "undeclared"), ratings, HALVES)
    assert wrong == 0
    assert answered >= 0.7 * (ratings > 0).sum()


@pytest.mark.parametrize(
    ("n_rated", "steps"),
    [
        ([2.0, 4.0, 8.0, 9.0], [1.0, 1.0, 3.0, 4.0]),  # eight ratings in fours are two steps
        ([2.0, 4.0, 2.0, 4.0], [1.0, 1.0, 1.0, 1.0]),  # all ratings in one
    ],
)
def test_no_size_of_minibatches(n_rated, steps):
    told = Told(np.array([0.5, 0.25, 0.25, 1.0]), np.array(n_rated), np.array(steps))
    shown = shown_scale(told)
    assert shown is None or shown.batch == np.inf


def test_the_scale_of_minibatches_is_open_for_uneven_ones():
    scale = Scale("mean", 2.0, 1.0, 4.0)
    np.testing.assert_array_equal(scale.of(np.array([1.0, 4.0, 6.0, 8.0])), [2.0, 0.5, np.nan, 0.5])
    assert not scale.like(Scale("mean", 2.0, 1.0))


def test_one_client_contradicts_nothing():
    one = Told(np.array([0.2]), np.array([5.0]), np.ones(1))
    assert not contradicted(Scale("sum", 1.0, 1.0), one)
