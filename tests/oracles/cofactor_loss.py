"""The loss that users of Yang et al. 2022 descend, written once more for automatic differentiation.

Eq. (14) with its sign restored, for users who each hold copies of their own:

    1/2 sum over explicit (g(U^ . V) - R)^2
    - lambda [sum over positives ln g(U . Z) + sum over negatives ln(1 - W g(U . Z))]
    + lambda_U/2 |U|^2 + lambda_V/2 |V|^2 + lambda_Z/2 |Z|^2 + lambda_Q/2 |Q|^2

with U^ = U + mean of the user's Q_k.

Nothing here uses the formulas of ``cofactor_round``: each tests the other.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from victims.protocols.cofactor_draws import EXPLICIT, POSITIVE, Samples
from victims.protocols.cofactor_round import Rules

jax.config.update("jax_enable_x64", True)


def loss(
    rules: Rules,
    samples: Samples,
    clients: Float[Array, "users K"],
    offsets: Float[Array, "explicit K"],
    items: Float[Array, "explicit K"],
    implicit: Float[Array, "implicit K"],
) -> Float[Array, ""]:
    """Value of the loss; regularization counts once for each factor."""
    is_explicit = samples.kind == EXPLICIT
    user, n_users = samples.user[is_explicit], clients.shape[0]
    counts = jnp.maximum(jnp.bincount(user, length=n_users), 1)
    mean = jax.ops.segment_sum(offsets, user, n_users) / counts[:, None]
    scores = jnp.sum((clients + mean)[user] * items, axis=1)
    predicted = scores if rules.link == "identity" else jax.nn.sigmoid(scores)
    fit = 0.5 * jnp.sum((predicted - samples.target[is_explicit]) ** 2)
    chance = jax.nn.sigmoid(jnp.sum(clients[samples.user[~is_explicit]] * implicit, axis=1))
    wanted = np.asarray(samples.kind[~is_explicit] == POSITIVE)
    likelihood = jnp.sum(jnp.log(chance[wanted])) + jnp.sum(
        jnp.log1p(-rules.negative_weight * chance[~wanted])
    )
    ridges = (rules.users, rules.items, rules.implicit, rules.offsets)
    ridge = sum(
        weight / 2 * jnp.sum(table**2)
        for weight, table in zip(ridges, (clients, items, implicit, offsets), strict=True)
    )
    return fit - rules.implicit_weight * likelihood + ridge
