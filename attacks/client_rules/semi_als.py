"""Clients that solve for their factor in every round, and send the gradient at it (FedMVMF, semi-als).

Mai & Pang 2022, Eq. (8), for a client with ratings r_j of factors q_j and attributes x_a of factors u_a:

    p = (Q'C r + lambda_1 U'x) (Q'C Q + lambda_1 U'U + lambda_2 I)^-1,    f(j) = sigma c_j (r_j - p . q_j) p.

c is 1 in observed-only; in include-unrated 1 where rated and alpha elsewhere, smoothed to c = alpha + (1 -
alpha) clip(r, 0, 1), Eq. (42) as corrected (as printed an unrated item would predict a gradient of 0). Rows
of attributes are those of items with factor and value times the root of lambda_1, over that root.

In observed-only orthogonal mixtures of ratings and factors make the same mixture of rows. All rows of a round
are parallel: n + min(n, K) - 1 numbers about n ratings, as the start has no part in them. Each length of p
has a ridge under which it makes the same rows: one that nobody told is told by the rating grid alone.

Symbols: sigma scale of the upload.

References
----------
P. Mai, Y. Pang, "PrivMVMF: Privacy-Preserving Multi-View Matrix Factorization for Recommender
Systems", arXiv:2210.07775, Eq. (8), (42).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from attacks.client_rules.differentiable import Family
from victims.transcript.manifest import Manifest

RIDGES = (0.01, 0.1, 1.0, 10.0, 100.0)  # where fits start, where nobody declares it
RIDGE, SCALE, ALPHA = range(3)
CONSTANTS = ("log_ridge", "log_scale", "alpha")


def smooth_weight(
    value: Float[Array, " rows"], alpha: Float[Array, ""], item: Bool[Array, " rows"]
) -> Float[Array, " rows"]:
    """Compute c = alpha + (1 - alpha) clip(r, 0, 1) for items (Eq. 42, corrected), and 1 for attributes."""
    return jnp.where(item, alpha + (1 - alpha) * jnp.clip(value, 0, 1), 1.0)


def solved_factor(
    value: Float[Array, " rows"],
    factors: Float[Array, "rows K"],
    weight: Float[Array, " rows"],
    ridge: Float[Array, ""],
) -> Float[Array, " K"]:
    """Solve Eq. (8) for the client's factor p, given its ratings and attributes.

    References
    ----------
    P. Mai, Y. Pang, arXiv:2210.07775, Eq. (8).
    """
    weighted = weight[:, None] * factors
    square = factors.T @ weighted + ridge * jnp.eye(factors.shape[1])
    return jnp.linalg.solve(square, weighted.T @ value)


@dataclass(frozen=True)
class SemiALS:
    """The rule; its constants are ``CONSTANTS``, the last of which is never fitted."""

    mixes_rows: bool = True
    name: str = "semi-als"

    def families(self, manifest: Manifest) -> tuple[Family, ...]:
        """As declared, then with an open ridge, then with an open scale, too."""
        declared = manifest.hyperparameters.get("lambda_factors", 0.0)
        first = float(declared) if declared > 0 else None
        tried: tuple[tuple[str, tuple[int, ...]], ...] = (("any ridge and scale", (RIDGE, SCALE)),)
        if manifest.scale_known:
            tried = ((("any ridge", (RIDGE,))), *tried)
            tried = tried if first is None else (("as declared", ()), *tried)
        every = tuple(sorted({*RIDGES, *(() if first is None else (first,))}))
        return tuple(
            Family(
                f"solved for, {words}",
                tuple(constant in open_ for constant in range(len(CONSTANTS))),
                every if open_ or first is None else (first,),
                first,
                partial(_start, SCALE in open_),
                multiples=SCALE in open_,
                tied=True,
            )
            for words, open_ in tried
        )

    def upload(
        self,
        factor: Float[Array, " K"],
        ratings: Float[Array, " n"],
        factors: Float[Array, "n K"],
        constants: Float[Array, " c"],
    ) -> tuple[Float[Array, "n K"], Float[Array, " K"]]:
        """The rows, and the factor that the client solved for; ``factor`` has no part in them."""
        del factor
        weight = smooth_weight(ratings, constants[ALPHA], jnp.ones(ratings.shape, bool))
        p = solved_factor(ratings, factors, weight, jnp.exp(constants[RIDGE]))
        error = jnp.exp(constants[SCALE]) * weight * (ratings - factors @ p)
        return error[:, None] * p, p


def _start(scaled: bool, ridge: float, sigma: float, stiffness: float) -> tuple[float, float, float]:
    """That ridge, and the scale that makes rows of that size."""
    del stiffness
    return float(np.log(ridge)), float(np.log(sigma)) if scaled else 0.0, 1.0
