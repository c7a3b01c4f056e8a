"""Steps of a client on the pairwise loss of Bayesian personalised ranking, its negatives among its rows.

What a client rates are labels: y_j is 1 of an item that it used and 0 of a negative that it drew, and may lie
between. Each step moves factor u and copies w_j of the items by all pairs, from the same point:

    x_ab = u . (w_a - w_b),   f_ab = y_a (1 - y_b) s(-x_ab),   e_a = sum_b f_ab - sum_b f_ba,
    u <- (1 - a) u + eta sum_j e_j w_j,     w_j <- (1 - d) w_j + eta e_j u,

s the logistic function: e is minus the derivative of sum_ab -y_a (1 - y_b) ln s(x_ab) by the products. Which
negatives belong to which positive is a fact of the rule: every one to each, or a positive and its m negatives
stand one below another. The upload is sigma (w_j after the last step - w_j as broadcast).

With the factor negated and all labels exchanged the same rows are sent; no fit tells which is which.

Symbols: eta rate, a and d weight decay of factor and items.

References
----------
S. Rendle et al., "BPR: Bayesian Personalized Ranking from Implicit Feedback", arXiv:1205.2618, Section 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attacks.client_rules.differentiable import Family, declared_steps
from victims.transcript.manifest import Manifest

TRIED = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0)  # steps, where nobody declares how many
RATE, FACTOR_DECAY, ITEM_DECAY, SCALE, STEPS = range(5)
CONSTANTS = ("log_rate", "factor_decay", "item_decay", "log_scale", "local_steps")
OPEN = (("one rate", ()), ("one rate and weight decay", (FACTOR_DECAY, ITEM_DECAY)))


@dataclass(frozen=True)
class PairedLabels:
    """The rule; its constants are ``CONSTANTS``, the last two of which are never fitted."""

    # of each positive, which stand below it; 0 where all of a client belong to each of its positives
    negatives: int = 0
    mixes_rows: bool = False
    name: str = "bpr"

    def families(self, manifest: Manifest) -> tuple[Family, ...]:
        """Constants that are open, any number of steps."""
        declared = declared_steps(manifest)
        first = None if declared is None else float(declared)
        values = tuple(sorted({*TRIED, *(() if first is None else (first,))}))
        words_of = {0: "each negative with each positive", 1: "pairs"}
        pairs = words_of.get(self.negatives, f"{self.negatives} negatives for each positive")
        return tuple(
            Family(
                f"steps on {pairs}, {words}",
                tuple(constant in (RATE, *open_) for constant in range(len(CONSTANTS))),
                values,
                first,
                _start,
                _carried,
            )
            for words, open_ in OPEN
        )

    def upload(
        self,
        factor: Float[Array, " K"],
        ratings: Float[Array, " n"],
        factors: Float[Array, "n K"],
        constants: Float[Array, " c"],
    ) -> tuple[Float[Array, "n K"], Float[Array, " K"]]:
        """The rows, and the factor after the last step; ``ratings`` are labels."""
        n = ratings.size
        size = min(self.negatives + 1, n) if self.negatives else n
        lack = -n % size
        rate = jnp.exp(constants[RATE])
        keep_factor, keep_item = 1 - constants[FACTOR_DECAY], 1 - constants[ITEM_DECAY]
        there = jnp.any(factors != 0, axis=1)

        def blocks(part: Array) -> Array:
            return jnp.pad(part, (0, lack)).reshape(-1, size)

        positive, negative = (blocks(jnp.where(there, part, 0.0)) for part in (ratings, 1 - ratings))

        def step(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            u, w = state
            x = blocks(w @ u)
            pull = positive[:, :, None] * negative[:, None] * jax.nn.sigmoid(x[:, None] - x[:, :, None])
            error = rate * (pull.sum(axis=2) - pull.sum(axis=1)).ravel()[:n]
            return keep_factor * u + error @ w, keep_item * w + error[:, None] * u

        u, w = jax.lax.fori_loop(0, constants[STEPS].astype(int), step, (factor, factors))
        return jnp.exp(constants[SCALE]) * (w - factors), u


def _start(n_steps: float, sigma: float, stiffness: float) -> tuple[float, ...]:
    """One rate, by which all steps make rows of that size."""
    del stiffness
    return (float(np.log(sigma / n_steps)), 0.0, 0.0, 0.0, n_steps)


def _carried(constants: Float[np.ndarray, "*clients c"], n_steps: float) -> Float[np.ndarray, "*clients c"]:
    """As far in more or fewer steps."""
    out = constants.copy()
    ratio = constants[..., STEPS] / n_steps
    out[..., RATE] += np.log(ratio)
    out[..., FACTOR_DECAY : ITEM_DECAY + 1] *= ratio[..., None]
    out[..., STEPS] = n_steps
    return out
