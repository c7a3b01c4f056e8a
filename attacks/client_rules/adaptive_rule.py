"""Steps of Adam and its relatives over all ratings as a rule that can be differentiated and compiled.

The steps are those of ``attacks.client_rules.adaptive_steps``, on JAX arrays. What multiplies the loss goes
out, and the first step tells signs alone, so that rows have next to nothing of the direction of the client's
factor: fits begin where ``attacks.inversion.adaptive.adaptive_numbers`` says, not from what a short step
would tell.

References
----------
D. P. Kingma, J. Ba 2015, arXiv:1412.6980, Algorithm 1; I. Loshchilov, F. Hutter 2019, arXiv:1711.05101.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Float

from attacks.client_rules.adaptive_steps import (
    ADAGRAD,
    ADAM,
    EPSILON,
    RATE,
    RMSPROP,
    WEIGHT_DECAY,
    Client,
    Optimizer,
    begun,
    stepped,
)
from attacks.client_rules.adaptive_steps import CONSTANTS as OF_STEP
from attacks.client_rules.differentiable import Family, declared_steps
from victims.transcript.manifest import Manifest

TRIED = (2.0, 3.0, 4.0, 5.0, 10.0)  # steps, where nobody declares how many
USUAL_DECAY = 0.01  # of AdamW
STEPS = len(OF_STEP)
CONSTANTS = (*OF_STEP, "local_steps")


@dataclass(frozen=True)
class AdaptiveSteps:
    """The rule; its constants are ``CONSTANTS``, of which rate and epsilon are fitted."""

    name: str = "adam"  # ``adam``, ``adamw``, ``rmsprop`` or ``adagrad``
    optimizer: Optimizer = ADAM
    decay: float = 0.0  # weight decay beside the step, as programs have it by default
    mixes_rows: bool = False

    def families(self, manifest: Manifest) -> tuple[Family, ...]:
        """One, with any number of steps."""
        declared = declared_steps(manifest)
        first = float(declared) if declared is not None and declared > 1 else None
        return (
            Family(
                f"steps of {self.name}",
                tuple(constant in (RATE, EPSILON) for constant in range(len(CONSTANTS))),
                tuple(sorted({*TRIED, *(() if first is None else (first,))})),
                first,
                partial(_start, self.decay),
                _carried,
            ),
        )

    def upload(
        self,
        factor: Float[Array, " K"],
        ratings: Float[Array, " n"],
        factors: Float[Array, "n K"],
        constants: Float[Array, " c"],
    ) -> tuple[Float[Array, "n K"], Float[Array, " K"]]:
        """The rows, and the factor after the last step."""

        def once(number: Array, client: Client) -> Client:
            return stepped(self.optimizer, client, ratings, constants[:STEPS], number + 1)

        client = jax.lax.fori_loop(0, constants[STEPS].astype(int), once, begun(factor, factors))
        return client.items - factors, client.factor


ADAPTIVE = (
    AdaptiveSteps(),
    AdaptiveSteps("adamw", ADAM, USUAL_DECAY),
    AdaptiveSteps("rmsprop", RMSPROP),
    AdaptiveSteps("adagrad", ADAGRAD),
)


def _start(decay: float, n_steps: float, sigma: float, stiffness: float) -> tuple[float, ...]:
    """A rate of which all steps together move an entry by about sigma."""
    del stiffness
    out = np.zeros(len(CONSTANTS))
    out[RATE], out[WEIGHT_DECAY], out[STEPS] = np.log(sigma / n_steps), decay, n_steps
    return tuple(out.tolist())


def _carried(constants: Float[np.ndarray, "*clients c"], n_steps: float) -> Float[np.ndarray, "*clients c"]:
    """As far in more or fewer steps."""
    out = constants.copy()
    out[..., RATE] += np.log(constants[..., STEPS] / n_steps)
    out[..., STEPS] = n_steps
    return out
