"""Steps with a bias of the client, held against a program of plain loops."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from attacks.client_rules.biased_steps import BiasedSteps
from victims.transcript.manifest import Manifest


def trained(u, b, v, r, *, rate: float, decay: float, moves: bool):
    """Three steps, one item after the other; what is left of known biases starts from 0."""
    v, u, c = v.copy(), u.copy(), np.zeros(len(r))
    for _ in range(3):
        errors = [r[j] - b - c[j] - sum(v[j] * u) for j in range(len(r))]
        pull = sum(e * item for e, item in zip(errors, v, strict=True))
        v = np.array([item + rate * (e * u - decay * item) for e, item in zip(errors, v, strict=True)])
        u = u + rate * (pull - decay * u)
        b = b + rate * (sum(errors) - decay * b)
        c = c + rate * np.array(errors) * moves
    return v, u, b


@pytest.mark.parametrize("moves", [False, True])
def test_the_rule_is_that_of_a_program_that_was_written_apart(moves: bool):
    rng = np.random.default_rng(0)
    u, v, r, b = rng.normal(0, 0.5, 3), rng.normal(0, 0.5, (7, 3)), rng.choice([1.0, 2, 3, 4, 5], 7), 0.3
    copies, factor, bias = trained(u, b, v, r, rate=0.05, decay=0.1, moves=moves)
    numbers = [np.log(0.05), 0.05 * 0.1, b, 3, float(moves)]
    factors = np.concatenate([v, np.ones((7, 1))], axis=1)
    factors, target = np.pad(factors, ((0, 2), (0, 0))), np.pad(r, (0, 2))
    start = np.append(u, 9.0)  # the last is not looked at
    rows, after = BiasedSteps().upload(*(jnp.asarray(part) for part in (start, target, factors, numbers)))
    np.testing.assert_allclose(rows[:7, :3], copies - v, atol=1e-14)
    np.testing.assert_allclose(after, np.append(factor, bias), atol=1e-14)
    assert not np.asarray(rows[7:]).any()
    assert not np.asarray(rows[:, 3]).any()


@pytest.mark.parametrize("moves", [False, True])
def test_shifted_and_mirrored_ratings_make_the_same_rows_without_decay_alone(moves: bool):
    rng = np.random.default_rng(1)
    u, v, r, b = rng.normal(0, 0.5, 3), rng.normal(0, 0.5, (7, 3)), rng.choice([1.0, 2, 3, 4, 5], 7), 0.3
    for decay, same in ((0.0, True), (0.5, False)):
        first, higher, mirrored = (
            trained(*start, rate=0.05, decay=decay, moves=moves)[0]
            for start in ((u, b, v, r), (u, b + 1, v, r + 1), (-u, 6 - b, v, 6 - r))
        )
        assert (np.abs(higher - first).max() < 1e-14) == same
        assert (np.abs(mirrored - first).max() < 1e-14) == same


def test_a_bias_of_the_clients_own_leaves_shifts_open():
    manifest = Manifest(
        format="factorleak-transcript", version=2, protocol="strange", update=None, weighting="observed-only",
        n_users=1, n_items=1, n_attributes=0, factors=3, rounds=[0], rating_levels=[1, 2],
        declared_rule={"local_steps": 7},
    )  # fmt: skip
    families = BiasedSteps().families(manifest)
    assert {family.first for family in families} == {7.0}
    assert [family.shifts for family in families] == [bool(family.own) for family in families]
    assert all(len(family.free) == len(family.start(2.0, 1.0, 1.0)) for family in families)
