"""The published program of paper 001 at a random start, nothing declared: a step after every rating, and rows
that hold a multiple of their factor that nobody told."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.uploads.pull_of_steps import pull_of_hidden_steps, pull_of_steps
from attacks.closed_form.uploads.readings import Rows

STARS = np.arange(1.0, 6.0)
USERS, ITEMS, K = 12, 40, 4


def recorded(path, rate: float, mu: float, after: bool, dtype=np.float64, hidden: bool = False) -> None:
    """One round of a program that steps with its factor and sends rows about the one before or after it."""
    rng = np.random.default_rng(4)
    q, p = rng.normal(0, 0.3, (ITEMS, K)).astype(dtype), rng.normal(0, 0.3, (USERS, K)).astype(dtype)
    with fl.Recorder(path, rating_levels=STARS) as recorder:
        recorder.broadcast(7, q)
        for user, start in enumerate(p):
            u = start
            items, stars = rng.permutation(ITEMS)[:16], rng.choice(STARS, 16).astype(dtype)
            rows = np.zeros((16, K), dtype)
            for first in range(16):
                here = slice(first, first + 1)
                v = q[items[here]]
                error, before = stars[here] - v @ u, u
                u = u + dtype(rate) * (2 * error @ v - dtype(2e-4) * u)
                rows[here] = rate * (-2 * error[:, None] * (u if after else before) + dtype(2 * mu) * v)
            sent = np.argsort(items) if hidden else np.arange(16)
            recorder.upload(7, user, rows[sent], items[sent])
            recorder.truth(user, items, stars)


@pytest.mark.parametrize(
    ("rate", "mu", "after", "dtype", "least", "hidden"),
    [
        (1e-2, 1e-4, True, np.float64, 0.98, False),
        (1e-3, 1e-2, False, np.float64, 0.98, False),
        (1e-2, 0.0, True, np.float32, 0.9, False),
        (1e-2, 1e-3, False, np.float32, 0.9, False),
        (1e-2, 1e-3, False, np.float64, 0.98, True),
        (1e-2, 1e-4, True, np.float64, 0.98, True),
        (3e-2, 1e-3, False, np.float32, 0.9, True),
    ],
)
def test_published_program_is_read(tmp_path, rate, mu, after, dtype, least, hidden):
    recorded(tmp_path / "run", rate, mu, after, dtype, hidden)
    found = fl.attack(tmp_path / "run", "undeclared")
    scores = fl.score(found, transcript=tmp_path / "run").set_index("metric")
    assert scores.loc["rated_rating_accuracy", "value"] >= least


def test_minibatches_and_noise_tell_no_multiple():
    """Rows of one minibatch are parallel but for the multiple; noise has no number in common."""
    rng = np.random.default_rng(0)
    v = rng.normal(size=(USERS, 16, K))
    there, none = np.ones((USERS, 16), bool), np.zeros((USERS, 16))
    order = np.tile(np.arange(16), (USERS, 1))
    known = Rows(rng.normal(size=v.shape), v, none, there, np.full(USERS, np.nan), 2.0**-52, order)
    assert pull_of_steps(known) is None
    assert pull_of_steps(known._replace(sequence=None)) is None
    assert pull_of_hidden_steps(known) is None
    error = rng.normal(size=(USERS, 16))
    parallel = error[..., None] * rng.normal(size=(USERS, 1, K))
    assert pull_of_steps(known._replace(rows=parallel)) is None
    told = pull_of_steps(known._replace(rows=parallel + 0.3 * v))
    assert told is not None
    assert abs(told - 0.3) < 1e-9
    assert pull_of_hidden_steps(known._replace(rows=parallel)) is None
    told = pull_of_hidden_steps(known._replace(rows=parallel + 0.3 * v))
    assert told is not None
    assert abs(told - 0.3) < 1e-9
