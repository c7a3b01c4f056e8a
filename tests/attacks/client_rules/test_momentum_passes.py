"""Passes with momentum, held against a program of plain loops."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from attacks.client_rules.momentum_passes import MomentumPasses, momentum_to_try
from tests.attacks.client_rules.test_local_passes import LEVELS, manifest
from tests.oracles.pass_programs import Passer


@pytest.mark.parametrize(
    "client",
    [
        Passer(momentum=0.7, nesterov=True, batch=3, mean=True, decay=0.3, item_decay=0.2),
        Passer(momentum=0.8, coasts=False, passes=1),
        Passer(momentum=0.8, coasts=False, nesterov=True, batch=2, decay=0.1),
    ],
    ids=[
        "Nesterov, minibatches",
        "the factor alone",
        "Nesterov, the factor alone",
    ],
)
def test_the_rule_is_that_of_a_program_that_was_written_apart(client: Passer):
    rng = np.random.default_rng(0)
    u, v, r = rng.normal(0, 0.5, 3), rng.normal(0, 0.5, (7, 3)), rng.choice(LEVELS, 7)
    change, factor = client.train(u, v, r, LEVELS)
    decay, item_decay = client.rate * client.decay, client.rate * client.item_decay
    numbers = [np.log(client.rate), 0, decay, item_decay, client.momentum, client.passes]
    numbers += [client.nesterov, client.coasts]
    padded = np.pad(v, ((0, 2), (0, 0))), np.pad(r, (0, 2))
    rule = MomentumPasses(client.batch, client.mean)
    rows, after = rule.upload(*(jnp.asarray(part) for part in (u, padded[1], padded[0], numbers)))
    np.testing.assert_allclose(rows[:7], change, atol=1e-14)
    np.testing.assert_allclose(after, factor, atol=1e-14)
    assert not np.asarray(rows[7:]).any()


def test_a_family_starts_with_as_many_constants_as_it_frees():
    for family in MomentumPasses().families(manifest()):
        assert len(family.free) == len(family.start(2.0, 1.0, 1.0))


def test_a_declaration_says_what_is_tried():
    assert momentum_to_try(manifest(batch_size=8, reduction="mean")) == (MomentumPasses(8, mean=True),)
    assert momentum_to_try(manifest(order="per-rating", loss="squared")) == (MomentumPasses(),)
    assert not momentum_to_try(manifest(upload="gradient"))
    assert not momentum_to_try(manifest(link="sigmoid"))
    assert not momentum_to_try(manifest(batch_size="all"))
