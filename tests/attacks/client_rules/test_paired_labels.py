"""The pairwise loss, held against a program of plain loops and against finite differences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attacks.client_rules.paired_labels import PairedLabels
from tests.attacks.client_rules.test_local_passes import manifest
from tests.oracles.paired_client import trained


@pytest.mark.parametrize(
    ("negatives", "labels", "pairs"),
    [
        (0, [1, 0, 0, 1, 0, 1], [(i, j) for i in (0, 3, 5) for j in (1, 2, 4)]),
        (1, [1, 0, 0, 1, 1, 0], [(0, 1), (3, 2), (4, 5)]),
        (2, [1, 0, 0, 0, 1, 0], [(0, 1), (0, 2), (4, 3), (4, 5)]),
    ],
    ids=["each with each", "pairs", "two negatives"],
)
def test_the_rule_is_that_of_a_program_that_was_written_apart(negatives, labels, pairs):
    rng = np.random.default_rng(0)
    u, v = rng.normal(0, 0.8, 3), rng.normal(0, 0.8, (6, 3))
    change, factor = trained(u, v, pairs, steps=3, rate=0.1, decay=0.3, item_decay=0.2)
    padded = jnp.pad(jnp.asarray(v), ((0, 3), (0, 0))), jnp.pad(jnp.asarray(labels, float), (0, 3))
    constants = jnp.array([np.log(0.1), 0.03, 0.02, np.log(2.0), 3.0])
    rows, after = PairedLabels(negatives).upload(jnp.asarray(u), padded[1], padded[0], constants)
    np.testing.assert_allclose(rows[:6], 2 * change, atol=1e-14)
    np.testing.assert_allclose(after, factor, atol=1e-14)
    assert not np.asarray(rows[6:]).any()


def test_with_all_labels_exchanged_and_the_factor_negated_the_same_rows_are_sent():
    rng = np.random.default_rng(1)
    u, v, y = (jnp.asarray(one) for one in (rng.normal(size=3), rng.normal(size=(5, 3)), [1.0, 0, 0, 1, 0]))
    constants = jnp.array([np.log(0.1), 0.0, 0.0, 0.0, 2.0])
    rows, after = PairedLabels().upload(u, y, v, constants)
    others, other = PairedLabels().upload(-u, 1 - y, v, constants)
    np.testing.assert_allclose(others, rows, atol=1e-14)
    np.testing.assert_allclose(other, -after, atol=1e-14)


@pytest.mark.parametrize("negatives", [1])
def test_slopes_are_those_of_finite_differences(negatives: int):
    """By the factor, labels between 0 and 1, and constants."""
    rng = np.random.default_rng(2)
    v = jnp.asarray(np.vstack([rng.normal(0, 0.5, (4, 3)), np.zeros((1, 3))]))

    def both(at):
        labels, constants = jnp.append(at[3:7], 0.0), jnp.append(at[7:], 2.0)
        return jnp.vstack(PairedLabels(negatives).upload(at[:3], labels, v, constants)).ravel()

    at, by = np.concatenate([rng.normal(size=3), [0.9, 0.2, 0.6, 0.1], [-1, 0.01, 0.02, 0.3]]), 1e-6
    plain = jax.jit(both)
    slope = np.stack([(plain(at + one) - plain(at - one)) / (2 * by) for one in by * np.eye(at.size)], axis=1)
    np.testing.assert_allclose(jax.jacfwd(both)(at), slope, rtol=1e-6, atol=1e-8)
    assert (np.abs(slope).max(axis=0) > 1e-3).all()


def test_a_declaration_says_how_many_steps():
    assert {family.first for family in PairedLabels().families(manifest(local_steps=7))} == {7.0}
    families = PairedLabels().families(manifest())
    assert [family.values[0] for family in families] == [1.0, 1.0]
    assert all(len(one.free) == len(one.start(2.0, 1.0, 1.0)) for one in families)
