"""Several gradient steps of a client on copies of its own between broadcast and upload (federated averaging).

All ratings take part in each step, of factor and items at once:

    e_j = r_j - u . v_j,    u <- (1 - a) u + rho eta sum_j e_j v_j,    v_j <- (1 - b) v_j + eta e_j u,

and the upload is sigma (v_j after the last step - v_j as broadcast). Where the client does not move its copy
of the items, predictions use the broadcast ones throughout, and the upload is the sum of the same steps.
A mean over the ratings, a loss with a factor 2 and a gradient in place of a change are other eta and sigma.

Symbols: eta item rate, rho factor rate over item rate, a and b weight decay of factor and items.

References
----------
H. B. McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
arXiv:1602.05629, Algorithm 1; the step is that of paper 001 (arXiv:1906.05108), Eq. (2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attacks.client_rules.differentiable import Family
from victims.transcript.manifest import Manifest

TRIED = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 20)  # steps, where nobody declares how many
MODERATE = 0.3  # of its size, that the factor moves in all steps together
RATE, RATIO, FACTOR_DECAY, ITEM_DECAY, SCALE, STEPS, MOVES = range(7)
CONSTANTS = (
    "log_item_rate",
    "log_rate_ratio",
    "factor_decay",
    "item_decay",
    "log_scale",
    "local_steps",
    "moves_items",
)
COPIES = {True: "copies of the items that move", False: "the items as broadcast"}
OPEN = (  # which constants are unknown, beside the rate
    ("one rate", ()),
    ("one rate and weight decay", (FACTOR_DECAY, ITEM_DECAY)),
    ("two rates", (RATIO,)),
    ("any rates, decay and scale", (RATIO, FACTOR_DECAY, ITEM_DECAY, SCALE)),
)


@dataclass(frozen=True)
class LocalSteps:
    """The rule; its constants are ``CONSTANTS``, the last two of which are never fitted."""

    name: str = "local-steps"
    mixes_rows: bool = True

    def families(self, manifest: Manifest) -> tuple[Family, ...]:
        """Copies that move or not, constants that are open, any number of steps."""
        declared = manifest.rule.local_steps
        first = float(declared) if declared is not None and declared > 1 else None
        values = tuple(sorted({*map(float, TRIED), *(() if first is None else (first,))}))
        moves = (False, True) if manifest.rule.moves_items is False else (True, False)
        return tuple(
            Family(
                f"steps on {COPIES[moving]}, {words}",
                tuple(constant in (RATE, *open_) for constant in range(len(CONSTANTS))),
                values,
                first,
                partial(_start, moving, open_),
                _carried,
            )
            for (words, open_), moving in product(OPEN, moves)
            if moving
            or open_ == (RATIO,)  # without a copy that moves, the scale of rows is a rate of its own
        )

    def upload(
        self,
        factor: Float[Array, " K"],
        ratings: Float[Array, " n"],
        factors: Float[Array, "n K"],
        constants: Float[Array, " c"],
    ) -> tuple[Float[Array, "n K"], Float[Array, " K"]]:
        """The rows, and the factor after the last step."""
        rate = jnp.exp(constants[RATE])
        factor_rate = rate * jnp.exp(constants[RATIO])
        keep_factor, keep_item = 1 - constants[FACTOR_DECAY], 1 - constants[ITEM_DECAY]

        def step(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            u, v = state
            seen = jnp.where(constants[MOVES] > 0, v, factors)
            error = ratings - seen @ u
            moved = keep_item * v + rate * error[:, None] * u
            return keep_factor * u + factor_rate * error @ seen, moved

        n_steps = constants[STEPS].astype(int)
        factor, items = jax.lax.fori_loop(0, n_steps, step, (factor, factors))
        return jnp.exp(constants[SCALE]) * (items - factors), factor


def _start(
    moving: bool, open_: tuple[int, ...], n_steps: float, sigma: float, stiffness: float
) -> tuple[float, ...]:
    """Rates by which the factor moves moderately, where they are not tied to what multiplies the rows."""
    rate = sigma / n_steps
    moderate = MODERATE / (n_steps * max(stiffness, MODERATE))
    scale = 1.0
    if SCALE in open_ and moving:
        rate, scale = moderate, rate / moderate
    ratio = moderate / rate if RATIO in open_ else 1.0
    return (float(np.log(rate)), float(np.log(ratio)), 0.0, 0.0, float(np.log(scale)), n_steps, float(moving))


def _carried(constants: Float[np.ndarray, "*clients c"], n_steps: float) -> Float[np.ndarray, "*clients c"]:
    """As far in more or fewer steps."""
    out = constants.copy()
    ratio = constants[..., STEPS] / n_steps
    out[..., RATE] += np.log(ratio)
    out[..., FACTOR_DECAY : ITEM_DECAY + 1] *= ratio[..., None]
    out[..., STEPS] = n_steps
    return out
