"""Several gradient steps over all ratings, a bias of the client among what moves (federated averaging).

All ratings take part in each step, of factor, bias and copies at once:

    e_j = r_j - b - c_j - u . v_j,   u <- (1 - a) u + eta sum_j e_j v_j,   v_j <- (1 - a) v_j + eta e_j u,
    b <- (1 - a) b + eta sum_j e_j,   and where the copies of known biases move, too,   c_j <- c_j + eta e_j,

and the upload is v_j after the last step less v_j as broadcast. Biases of items that are broadcast are taken
off the ratings before, so that c_j starts from 0.

A client's bias that nobody knows hides much where biases do not decay: ratings all a level higher with a bias
that is one higher make the same rows, and without biases of items so do ratings mirrored at any point with
the factor negated and the bias mirrored. Bias and factor of a client in its first round often start from one
number for all, 0: that is a rule of its own, under which neither is the case.

Symbols: eta rate, a weight decay.

References
----------
B. McMahan et al., arXiv:1602.05629, Algorithm 1; biases as in Y. Koren, R. Bell, C. Volinsky 2009,
doi:10.1109/MC.2009.263.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attacks.client_rules.differentiable import Family, declared_steps
from victims.transcript.manifest import Manifest

TRIED = (2.0, 3.0, 4.0, 5.0, 10.0)  # steps, where nobody declares how many
RATE, DECAY, BIAS, STEPS, MOVES_BIASES = range(5)
CONSTANTS = ("log_rate", "weight_decay", "bias", "local_steps", "moves_biases")
OPEN = (  # which constants are unknown, beside the rate
    ("one rate, a bias that starts from 0", ()),
    ("one rate and weight decay, a bias that starts from 0", (DECAY,)),
    ("one rate, any bias", (BIAS,)),
)


@dataclass(frozen=True)
class BiasedSteps:
    """The rule; its constants are ``CONSTANTS``, the last two of which are never fitted."""

    mixes_rows: bool = True
    name: str = "local-biases"

    def families(self, manifest: Manifest) -> tuple[Family, ...]:
        """Biases that start from 0 or not, copies of known ones that move or not, any number of steps."""
        declared = declared_steps(manifest)
        first = float(declared) if declared is not None and declared > 1 else None
        values = tuple(sorted({*TRIED, *(() if first is None else (first,))}))
        return tuple(
            Family(
                f"steps on copies of the items that move{', as their biases do' * moving}, {words}",
                tuple(constant in (RATE, *open_) for constant in range(len(CONSTANTS))),
                values,
                first,
                partial(_start, moving),
                _carried,
                own=(BIAS,) if BIAS in open_ else (),
                shifts=BIAS in open_,
                constant_columns=1,
            )
            for words, open_ in OPEN
            for moving in (False, True)
        )

    def upload(
        self,
        factor: Float[Array, " L"],
        ratings: Float[Array, " n"],
        factors: Float[Array, "n L"],
        constants: Float[Array, " c"],
    ) -> tuple[Float[Array, "n L"], Float[Array, " L"]]:
        """The rows, and the factor after the last step.

        The last of the L = K + 1 columns is 1 for each item, in any mixture of the rows; it does not move,
        and what ``factor`` has there is not looked at: the bias is a constant.
        """
        rate, keep = jnp.exp(constants[RATE]), 1 - constants[DECAY]
        v_start, ones = factors[:, :-1], factors[:, -1]

        def step(_: Array, state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            u, v, b, c = state
            error = rate * (ratings - v @ u - b * ones - c)
            moved = jnp.where(constants[MOVES_BIASES] > 0, c + error, c)
            return keep * u + error @ v, keep * v + error[:, None] * u, keep * b + error @ ones, moved

        start = (factor[:-1], v_start, constants[BIAS], jnp.zeros_like(ratings))
        u, v, b, _ = jax.lax.fori_loop(0, constants[STEPS].astype(int), step, start)
        return jnp.pad(v - v_start, ((0, 0), (0, 1))), jnp.append(u, b)


def _start(moving: bool, n_steps: float, sigma: float, stiffness: float) -> tuple[float, ...]:
    """One rate, by which all steps make rows of that size."""
    del stiffness
    return (float(np.log(sigma / n_steps)), 0.0, 0.0, n_steps, float(moving))


def _carried(constants: Float[np.ndarray, "*clients c"], n_steps: float) -> Float[np.ndarray, "*clients c"]:
    """As far in more or fewer steps."""
    out = constants.copy()
    ratio = constants[..., STEPS] / n_steps
    out[..., RATE] += np.log(ratio)
    out[..., DECAY] *= ratio
    out[..., STEPS] = n_steps
    return out
