"""The client's step of a recording's protocol, ready for JAX.

Which protocol has which step is the table of ``attacks.client_rules.protocols``.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from attacks.client_rules.protocols import CLIENT_RULES, DECLARED_RULES, ClientRule, not_public
from victims.transcript.manifest import Manifest

NEEDED = "their step from round to round, or four consecutive rounds of rated items"


PIECES = 8  # that a pass over single ratings in an unknown order is taken as


class Step(NamedTuple):
    """The step of some clients in T rounds."""

    shrink: Float[Array, "*users T"]  # what a factor is multiplied by
    pull: Float[Array, " T"]  # what the gradient is multiplied by
    projected: Bool[Array, ""]  # whether p is kept on the unit ball
    after: Bool[Array, ""]  # whether t_j is that of the next round
    shares: Float[Array, " pieces"]  # of the step, one after the other: a single 1 where it is taken at once


def unknown_step(manifest: Manifest) -> str:
    """Say why the clients' step is not known to an adversary."""
    rule = _rule(manifest)
    if rule is None or (manifest.version == 1 and manifest.update != "sgd"):
        if manifest.rule_name == "unknown":
            return f"the clients' rule is not declared (rule), and this attack needs {NEEDED}"
        named = f"{manifest.protocol}/{manifest.rule_name}"
        return f"the clients' step of {named} is not one that this attack knows"
    if manifest.weighting != "observed-only":
        return "this attack knows the step of observed-only alone"
    if manifest.rule.reduction == "mean":
        return "this attack does not know the step of a mean over the client's ratings"
    attributes = ("lambda_attributes",) if manifest.n_attributes else ()
    return not_public(manifest, (*rule.constants, *attributes))


def _rule(manifest: Manifest) -> ClientRule | None:
    """Version 1 names a protocol, version 2 the rule."""
    if manifest.version == 1:
        return CLIENT_RULES.get(manifest.protocol)
    return DECLARED_RULES.get(manifest.rule_name)


def step_of(manifest: Manifest, rounds: Int[np.ndarray, " T"], n_rated: Int[np.ndarray, " users"]) -> Step:
    """Collect the step of some clients in some rounds."""
    rule = _rule(manifest)
    assert rule is not None
    rate = rule.learning_rate(manifest, rounds)
    shrink = rule.shrink(manifest, rate, n_rated)
    n_pieces = PIECES if one_by_one(manifest) else 1
    shares = np.full(n_pieces, 1 / n_pieces)
    return Step(
        *(jnp.asarray(constant) for constant in (shrink, 2 * rate, rule.unit_ball, rule.after_server, shares))
    )


def one_by_one(manifest: Manifest) -> bool:
    """Tell whether clients step after every rating, in an order that nobody sees.

    Such a pass is, on average over the orders, nearly that of short steps over all ratings; the order adds
    what is left to chance.
    """
    return manifest.rule.order == "per-rating"


def gram_of(weighted: Float[Array, "*rounds n K"], factors: Float[Array, "*rounds n K"]) -> Array:
    """Sum w_j t_j t_j' over a client's rows."""
    return jnp.einsum("...nk,...nl->...kl", weighted, factors)


def target_of(weighted: Float[Array, "*rounds n K"], value: Float[Array, " n"]) -> Array:
    """Sum w_j s_j t_j over a client's rows."""
    return jnp.einsum("...nk,n->...k", weighted, value)


def move(
    step: Step,
    factor: Float[Array, " K"],
    gram: Float[Array, "K K"],
    target: Float[Array, " K"],
    shrink: Float[Array, ""],
    pull: Float[Array, ""],
) -> Float[Array, " K"]:
    """Compute one client's next factor from sums over its rows."""

    def piece(p: Array, share: Array) -> tuple[Array, None]:
        moved = (1 - share * (1 - shrink)) * p + share * pull * (target - gram @ p)
        square = jnp.sum(moved**2)
        # the root of a number that is surely not 0, so that its derivative is finite
        length = jnp.sqrt(jnp.maximum(square, 1.0))
        return jnp.where(step.projected, moved / length, moved), None

    if step.shares.size == 1:
        return piece(factor, step.shares[0])[0]
    return jax.lax.scan(piece, factor, step.shares)[0]
