"""Steps of Adam and its relatives, beside a program that has them as PyTorch does."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attacks.client_rules.adaptive_rule import ADAPTIVE, AdaptiveSteps
from attacks.client_rules.adaptive_rule import CONSTANTS as OF_RULE
from attacks.client_rules.adaptive_steps import ADAGRAD, ADAM, CONSTANTS, RATE, RMSPROP, WEIGHT_DECAY, upload
from tests.attacks.client_rules.test_local_passes import manifest
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


@pytest.mark.parametrize("rule", ADAPTIVE, ids=lambda one: one.name)
def test_the_rule_is_that_of_the_program(rule: AdaptiveSteps):
    """Epsilon apart; on padded rows; of the factor by a single rating, where it is an item's equal."""
    rng = np.random.default_rng(2)
    u, v, r = rng.normal(0, 0.3, 4), rng.normal(0, 0.3, (7, 4)), rng.integers(1, 6, 7).astype(float)
    program = AdaptiveClient(rule.optimizer.name, 4, 0.02, False, rule.decay)
    constants = np.zeros(len(OF_RULE))
    constants[[RATE, WEIGHT_DECAY, -1]] = np.log(0.02), rule.decay, 4
    constants = jnp.asarray(constants)
    rows, after = rule.upload(jnp.asarray(u), jnp.pad(r, (0, 2)), jnp.pad(v, ((0, 2), (0, 0))), constants)
    np.testing.assert_allclose(rows[:7], program.change(u, r, v), rtol=0, atol=2e-6)
    assert not np.asarray(rows[7:]).any()
    swapped = rule.upload(jnp.asarray(v[0]), jnp.asarray(r[:1]), jnp.asarray(u[None]), constants)
    one = rule.upload(jnp.asarray(u), jnp.asarray(r[:1]), jnp.asarray(v[:1]), constants)
    # of one rating, factor and item change places
    np.testing.assert_allclose(one[1] - u, swapped[0][0], atol=1e-14)
    np.testing.assert_allclose(one[0][0], swapped[1] - v[0], atol=1e-14)
    assert (np.abs(np.asarray(after) - u) > 0.01).all()


def test_slopes_are_those_of_finite_differences():
    """Of all rows of Adagrad by factor, ratings and constants, beside a row of padding."""
    rule = ADAPTIVE[-1]
    rng = np.random.default_rng(3)
    v = np.vstack([rng.normal(0, 0.3, (5, 3)), np.zeros((1, 3))])
    u, r = rng.normal(0, 0.3, 3), rng.integers(1, 6, 5).astype(float)
    constants = np.array([np.log(0.05), 1e-3, 0.01, 0.02, rule.decay, 3.0])

    def rows(at):
        u, r, some = jnp.split(at, (3, 8))
        return rule.upload(u, jnp.append(r, 0.0), jnp.asarray(v), jnp.append(some, 3.0))[0].ravel()

    at, by = np.concatenate([u, r, constants[:-1]]), 1e-6
    plain = jax.jit(rows)
    moved = by * np.eye(at.size)
    slope = np.stack([(plain(at + one) - plain(at - one)) / (2 * by) for one in moved], axis=1)
    np.testing.assert_allclose(jax.jacfwd(rows)(at), slope, rtol=1e-5, atol=1e-7)


def test_a_declaration_says_how_many_steps():
    for rule in ADAPTIVE:
        (family,) = rule.families(manifest(local_steps=6))
        assert family.first == 6.0
        assert len(family.free) == len(family.start(2.0, 1.0, 1.0)) == len(OF_RULE)
    assert [rule.families(manifest())[0].start(2.0, 1.0, 1.0)[WEIGHT_DECAY] for rule in ADAPTIVE] == [
        0,
        0.01,
        0,
        0,
    ]
