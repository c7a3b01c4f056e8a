"""Several gradient steps of a client on copies of its own between broadcast and upload (federated averaging).

All ratings take part in each step, of factor and items at once:

    e_j = r_j - u . v_j,    u <- (1 - a) u + rho eta sum_j e_j v_j,    v_j <- (1 - b) v_j + eta e_j u,

and the upload is sigma (v_j after the last step - v_j as broadcast). Where the client does not move its copy
of the items, predictions use the broadcast ones throughout, and the upload is the sum of the same steps.
A mean over the ratings, a loss with a factor 2 and a gradient in place of a change are other eta and sigma.

With momentum m each step is the one above plus m times the step before, from none on in every round: what
PyTorch's SGD does whose state is made anew. Nesterov's looks ahead: with z all that would be added in this
way, it adds the plain step plus m z. Both are linear in what an item has as well.

Symbols: eta item rate, rho factor rate over item rate, a and b weight decay of factor and items.

References
----------
H. B. McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
arXiv:1602.05629, Algorithm 1; the step is that of Chai et al. 2021 (arXiv:1906.05108), Eq. (2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attacks.client_rules.differentiable import Family, declared_steps
from victims.transcript.manifest import Manifest

TRIED = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 20)  # steps, where nobody declares how many
MODERATE = 0.3  # of its size, that the factor moves in all steps together
USUAL_MOMENTUM = 0.9  # where nobody declares it
MOST_KEPT = 0.999  # of a step, in the next; a fit may try more
RATE, RATIO, FACTOR_DECAY, ITEM_DECAY, SCALE, MOMENTUM, STEPS, MOVES, AHEAD = range(9)
CONSTANTS = (
    "log_item_rate",
    "log_rate_ratio",
    "factor_decay",
    "item_decay",
    "log_scale",
    "momentum",
    "local_steps",
    "moves_items",
    "looks_ahead",
)
NESTEROV = ", Nesterov's"
COPIES = {True: "copies of the items that move", False: "the items as broadcast"}
OPEN = (  # which constants are unknown, beside the rate
    ("one rate", ()),
    ("one rate and weight decay", (FACTOR_DECAY, ITEM_DECAY)),
    ("two rates", (RATIO,)),
    ("one rate, a scale of each client", (SCALE,)),  # uploads that are clipped, each by one number
    ("any rates, decay and scale", (RATIO, FACTOR_DECAY, ITEM_DECAY, SCALE)),
)
OPEN_WITH_MOMENTUM = (
    ("one rate", ()),
    ("one rate and momentum", (MOMENTUM,)),
    ("one rate and weight decay", (FACTOR_DECAY, ITEM_DECAY)),
    ("two rates", (RATIO,)),
)


@dataclass(frozen=True)
class LocalSteps:
    """The rule; its constants are ``CONSTANTS``, the last three of which are never fitted."""

    # whether steps have momentum: as declared, else ``USUAL_MOMENTUM`` or what is fitted
    momentum: bool = False
    mixes_rows: bool = True

    @property
    def name(self) -> str:
        """With momentum or without."""
        return "local-momentum" if self.momentum else "local-steps"

    def families(self, manifest: Manifest) -> tuple[Family, ...]:
        """Copies that move or not, constants that are open, any number of steps."""
        declared = declared_steps(manifest)
        first = float(declared) if declared is not None and declared > 1 else None
        values = tuple(sorted({*map(float, TRIED), *(() if first is None else (first,))}))
        moves = (False, True) if manifest.rule.moves_items is False else (True, False)
        momentum = (declared_momentum(manifest) or USUAL_MOMENTUM) if self.momentum else 0.0
        with_it = f", momentum {momentum:g}" if self.momentum else ""
        open_of, aheads = (OPEN_WITH_MOMENTUM, (False, True)) if self.momentum else (OPEN, (False,))
        return tuple(
            Family(
                f"steps on {COPIES[moving]}, {words}{'' if MOMENTUM in open_ else with_it}{NESTEROV * ahead}",
                tuple(constant in (RATE, *open_) for constant in range(len(CONSTANTS))),
                values,
                first,
                partial(_start, moving, ahead, open_, momentum),
                _carried,
                multiples=RATIO in open_,
                own=(SCALE,) if open_ == (SCALE,) else (),
            )
            for ahead, (words, open_), moving in product(aheads, open_of, moves)
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

        def step(_: Array, state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            u, v, of_factor, of_items = state
            seen = jnp.where(constants[MOVES] > 0, v, factors)
            error = ratings - seen @ u
            for_items = rate * error[:, None] * u - constants[ITEM_DECAY] * v
            for_factor = factor_rate * error @ seen - constants[FACTOR_DECAY] * u
            of_items = constants[MOMENTUM] * of_items + for_items
            of_factor = constants[MOMENTUM] * of_factor + for_factor
            ahead = constants[AHEAD] > 0
            u = u + jnp.where(ahead, for_factor + constants[MOMENTUM] * of_factor, of_factor)
            v = v + jnp.where(ahead, for_items + constants[MOMENTUM] * of_items, of_items)
            return u, v, of_factor, of_items

        n_steps = constants[STEPS].astype(int)
        start = (factor, factors, jnp.zeros_like(factor), jnp.zeros_like(factors))
        factor, items, _, _ = jax.lax.fori_loop(0, n_steps, step, start)
        return jnp.exp(constants[SCALE]) * (items - factors), factor


def scaled_by_client(family: Family, constants: Float[np.ndarray, " c"]) -> Family:
    """Steps whose constants are known, of clients whose rows have a scale of their own.

    A client that clips its upload, all of it by one length, multiplies its rows by what nobody else does.
    """
    n_steps = constants[STEPS : STEPS + 1]
    lasting = float(_lasting(constants[MOMENTUM : MOMENTUM + 1], n_steps)[0])

    def start(_value: float, sigma: float, _stiffness: float) -> tuple[float, ...]:
        one = constants.copy()
        one[SCALE] = np.log(sigma / lasting) - constants[RATE]
        return tuple(one.tolist())

    return family._replace(
        free=tuple(constant == SCALE for constant in range(len(CONSTANTS))),
        start=start,
        multiples=False,
    )


def declared_momentum(manifest: Manifest) -> float | None:
    """The momentum that a recording declares."""
    told = (manifest.rule.model_extra or {}).get("momentum")
    return float(told) if isinstance(told, (int, float)) and 0 < told < 1 else None


def _lasting(
    momentum: Float[np.ndarray, " clients"], n_steps: Float[np.ndarray, " clients"]
) -> Float[np.ndarray, " clients"]:
    """How many plain steps steps with momentum amount to, where errors hardly change."""
    kept = np.clip(momentum, 0, MOST_KEPT)
    return (n_steps - kept * (1 - kept**n_steps) / (1 - kept)) / (1 - kept)


def _start(
    moving: bool,
    ahead: bool,
    open_: tuple[int, ...],
    momentum: float,
    n_steps: float,
    sigma: float,
    stiffness: float,
) -> tuple[float, ...]:
    """Rates by which the factor moves moderately, where they are not tied to what multiplies the rows."""
    lasting = float(_lasting(np.array([momentum]), np.array([n_steps]))[0])
    rate = sigma / lasting
    moderate = MODERATE / (lasting * max(stiffness, MODERATE))
    scale = 1.0
    if SCALE in open_ and moving:
        rate, scale = moderate, rate / moderate
    ratio = moderate / rate if RATIO in open_ else 1.0
    rates = (float(np.log(rate)), float(np.log(ratio)), 0.0, 0.0, float(np.log(scale)))
    return (*rates, momentum, n_steps, float(moving), float(ahead))


def _carried(constants: Float[np.ndarray, "*clients c"], n_steps: float) -> Float[np.ndarray, "*clients c"]:
    """As far in more or fewer steps."""
    out = constants.copy()
    numbers = constants.reshape(-1, constants.shape[-1])
    momentum, before = numbers[:, MOMENTUM], numbers[:, STEPS]
    ratio = _lasting(momentum, before) / _lasting(momentum, np.full_like(before, n_steps))
    ratio = ratio.reshape(constants.shape[:-1])
    out[..., RATE] += np.log(ratio)
    out[..., FACTOR_DECAY : ITEM_DECAY + 1] *= ratio[..., None]
    out[..., STEPS] = n_steps
    return out
