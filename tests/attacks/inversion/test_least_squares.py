"""The fit against a second method, and against itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares

from attacks.client_rules.local_steps import CONSTANTS, RATE, SCALE, STEPS, LocalSteps
from attacks.inversion.least_squares import Problem, Unknowns, fit
from tests.oracles.local_training import Client


def constants(client: Client, scale: float = 1.0) -> np.ndarray:
    eta = client.rate
    decay = client.decay * eta
    numbers = (np.log(eta), np.log(client.ratio), decay * client.ratio, decay, np.log(scale))
    return np.array([*numbers, client.momentum, client.steps, client.moves, client.nesterov])


@pytest.mark.parametrize(
    "client",
    [
        Client(),
        Client(steps=7, decay=0.2, ratio=0.5),
        Client(steps=2, moves=False),
        Client(steps=6, decay=0.2, momentum=0.9),
        Client(steps=6, decay=0.2, momentum=0.9, nesterov=True),
    ],
)
def test_the_rule_is_that_of_a_program_that_was_written_apart(client: Client):
    rng = np.random.default_rng(0)
    p, r, q = rng.normal(0, 0.4, 5), rng.choice([1.0, 2, 3, 4, 5], 20), rng.normal(0, 0.4, (20, 5))
    copy, factor = client.train(p, r, q)
    rows, after = LocalSteps().upload(*(jnp.asarray(part) for part in (p, r, q, constants(client, 3.0))))
    np.testing.assert_allclose(rows, 3 * (copy - q), atol=1e-13)
    np.testing.assert_allclose(after, factor, atol=1e-13)


def test_a_second_method_finds_the_same():
    """SciPy reaches the same least sum of squares from the same start, with noise in the rows."""
    rng = np.random.default_rng(1)
    rule, client = LocalSteps(), Client(steps=5, rate=0.05)
    p, r, q = rng.normal(0, 0.4, 3), rng.choice([1.0, 2, 3, 4, 5], 6), rng.normal(0, 0.4, (6, 3))
    rows = client.train(p, r, q)[0] - q + 1e-3 * rng.normal(size=q.shape)
    known, upload = constants(client), jax.jit(rule.upload)
    start = Unknowns(p[None] + 0.05, r[None] + 0.2, known[None])
    free = Unknowns(np.ones((1, 3)), np.ones((1, 6)), np.eye(len(CONSTANTS))[[RATE]])
    ours = fit(rule, Problem(rows[None], q[None]), start, free, 200)

    def left(theta: np.ndarray) -> np.ndarray:
        numbers = known.copy()
        numbers[RATE] = theta[9]
        sent, _ = upload(theta[:3], theta[3:9], q, numbers)
        return (np.asarray(sent) - rows).ravel() / np.sqrt(np.mean(rows**2))

    theirs = least_squares(
        left, np.concatenate([p + 0.05, r + 0.2, [known[RATE]]]), xtol=1e-14, ftol=1e-14, max_nfev=200
    )
    assert ours.left[0] == pytest.approx(np.sqrt(np.mean(theirs.fun**2)), rel=1e-6)
    np.testing.assert_allclose(ours.at.ratings[0], theirs.x[3:9], atol=1e-3)


def test_what_is_held_stays_and_a_start_without_numbers_is_told():
    rng = np.random.default_rng(2)
    q = rng.normal(0, 0.4, (2, 6, 3))
    start = Unknowns(rng.normal(size=(2, 3)), rng.normal(size=(2, 6)), np.stack([constants(Client())] * 2))
    start.constants[1, SCALE] = np.inf
    free = Unknowns(np.ones((2, 3)), np.zeros((2, 6)), np.zeros((2, len(CONSTANTS))))
    found = fit(LocalSteps(), Problem(rng.normal(size=q.shape), q), start, free, 5)
    assert (found.at.ratings == start.ratings).all()
    assert (found.at.constants[:, STEPS] == 3).all()
    assert np.isfinite(found.left[0])
    assert not np.isfinite(found.left[1])
