"""Steps of Adam and its relatives, beside a program that has them as PyTorch does."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.client_rules.adaptive_steps import ADAGRAD, ADAM, CONSTANTS, RATE, RMSPROP, WEIGHT_DECAY, upload
from tests.oracles.adaptive_client import AdaptiveClient


@pytest.mark.parametrize("optimizer", [ADAM, RMSPROP, ADAGRAD], ids=lambda one: one.name)
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_rows_are_those_of_the_program(optimizer, decay):
    """Epsilon apart; a mean or a sum are the same."""
    rng = np.random.default_rng(0)
    u, v, r = rng.normal(0, 0.3, 4), rng.normal(0, 0.3, (9, 4)), rng.integers(1, 6, 9).astype(float)
    constants = np.zeros(len(CONSTANTS))
    constants[RATE], constants[WEIGHT_DECAY] = np.log(0.02), decay
    made = upload(optimizer, 4, u, r - v @ u, constants, v)
    for mean in (False, True):
        program = AdaptiveClient(optimizer.name, 4, 0.02, mean, decay)
        assert np.allclose(made.rows, program.change(u, r, v), rtol=0, atol=2e-6)
    assert made.path.shape == (4, 4)
    assert (made.path[0] == u).all()


def test_one_step_tells_signs_alone():
    rng = np.random.default_rng(1)
    u, v, r = rng.normal(0, 0.3, 4), rng.normal(0, 0.3, (9, 4)), rng.integers(1, 6, 9).astype(float)
    rows = AdaptiveClient(steps=1).change(u, r, v)
    assert np.allclose(rows, 0.01 * np.outer(np.sign(r - v @ u), np.sign(u)), atol=1e-7)
