"""Passes over ratings, held against a program of plain loops."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from attacks.client_rules.local_passes import LOSSES, NAMES, LocalPasses, passes_named, passes_to_try
from tests.oracles.pass_programs import Passer
from victims.transcript.manifest import Manifest

LEVELS = np.arange(1.0, 6.0)


def manifest(**rule) -> Manifest:
    return Manifest(
        format="factorleak-transcript", version=2, protocol="strange", update=None, weighting="observed-only",
        n_users=1, n_items=1, n_attributes=0, factors=3, rounds=[0], rating_levels=LEVELS.tolist(),
        declared_rule=rule,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("client", "rule"),
    [
        (Passer(), LocalPasses()),
        (Passer(batch=3, mean=True, decay=0.3, item_decay=0.2), LocalPasses(3, mean=True)),
        (Passer(batch=2, loss="sigmoid", passes=2), LocalPasses(2, "sigmoid")),
        (Passer(batch=0, loss="cross-entropy"), LocalPasses(0, "cross-entropy")),
    ],
    ids=lambda one: one.name if isinstance(one, LocalPasses) else "",
)
def test_the_rule_is_that_of_a_program_that_was_written_apart(client: Passer, rule: LocalPasses):
    rng = np.random.default_rng(0)
    u, v, r = rng.normal(0, 0.5, 3), rng.normal(0, 0.5, (7, 3)), rng.choice(LEVELS, 7)
    change, factor = client.train(u, v, r, LEVELS)
    decay, item_decay = client.rate * client.decay, client.rate * client.item_decay
    numbers = [np.log(client.rate), 0, decay, item_decay, np.log(2), client.passes, 0, 5.0]
    numbers.append(LOSSES.index(rule.loss))
    padded = np.pad(v, ((0, 2), (0, 0))), np.pad(r, (0, 2))
    rows, after = rule.upload(*(jnp.asarray(part) for part in (u, padded[1], padded[0], numbers)))
    np.testing.assert_allclose(rows[:7], 2 * change, atol=1e-14)
    np.testing.assert_allclose(after, factor, atol=1e-14)
    assert not np.asarray(rows[7:]).any()


@pytest.mark.parametrize("name", NAMES)
def test_a_family_starts_with_as_many_constants_as_it_frees(name: str):
    for family in passes_named(name, manifest()).families(manifest()):
        assert len(family.free) == len(family.start(2.0, 1.0, 1.0))


def test_a_declaration_says_what_is_tried_first():
    assert [
        rule.name for rule in passes_to_try(manifest(batch_size=8, reduction="mean", loss="squared"))
    ] == ["squared, 8 ratings a step"]
    assert passes_to_try(manifest(link="sigmoid", order="per-rating"))[0].name == "sigmoid, one rating a step"
    assert not passes_to_try(manifest(upload="gradient"))
    assert len(passes_to_try(manifest())) == 3
