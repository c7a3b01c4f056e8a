"""Passes of a client over its ratings with momentum, a minibatch or one rating at a time.

The steps are those of ``attacks.client_rules.local_passes`` under squared errors; what is added to the factor
u is not its gradient g but a velocity,

    z <- m z + g,    u <- u + z,   or, looking ahead (Nesterov),   u <- u + g + m z,

from none on in every round. Items have velocities of their own: either all of them go on moving in every step
(what PyTorch's SGD does with dense gradients), or they have none and move in their own steps alone.

References
----------
B. T. Polyak 1964, doi:10.1016/0041-5553(64)90137-5; I. Sutskever et al., "On the importance of initialization
and momentum in deep learning", ICML 2013; the form is that of PyTorch's ``torch.optim.SGD``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attacks.client_rules.differentiable import Family, declared_steps
from attacks.client_rules.local_steps import USUAL_MOMENTUM, declared_momentum
from victims.transcript.manifest import Manifest

TRIED = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0)  # passes, where nobody declares how many
RATE, RATIO, FACTOR_DECAY, ITEM_DECAY, MOMENTUM, PASSES, AHEAD, COASTS = range(8)
CONSTANTS = (
    "log_item_rate",
    "log_rate_ratio",
    "factor_decay",
    "item_decay",
    "momentum",
    "passes",
    "looks_ahead",
    "items_coast",
)
OPEN = (  # which constants are unknown
    ("one rate and momentum", (RATE, MOMENTUM)),
    ("one rate, weight decay and momentum", (RATE, FACTOR_DECAY, ITEM_DECAY, MOMENTUM)),
)


@dataclass(frozen=True)
class MomentumPasses:
    """The rule; its constants are ``CONSTANTS``, of which all from ``passes`` on are never fitted."""

    batch_size: int = 1  # ratings of a minibatch
    mean: bool = False  # whether the loss of a minibatch is a mean
    mixes_rows: bool = False
    name: str = "momentum-passes"

    def families(self, manifest: Manifest) -> tuple[Family, ...]:
        """Constants that are open, Nesterov's momentum or not, items that coast or not, any passes."""
        momentum = declared_momentum(manifest) or USUAL_MOMENTUM
        return tuple(
            family_of(manifest, number, momentum, ahead=ahead, coasts=coasts)
            for number in range(len(OPEN))
            for coasts in (True, False)
            for ahead in (False, True)
        )

    def upload(
        self,
        factor: Float[Array, " K"],
        ratings: Float[Array, " n"],
        factors: Float[Array, "n K"],
        constants: Float[Array, " c"],
    ) -> tuple[Float[Array, "n K"], Float[Array, " K"]]:
        """The rows, and the factor after the last pass; ratings in the order of the steps."""
        n, k = factors.shape
        size = min(self.batch_size, n)
        lack = -n % size
        blocks = jnp.pad(factors, ((0, lack), (0, 0))).reshape(-1, size, k)
        target = jnp.pad(ratings, (0, lack)).reshape(-1, size)
        there = jnp.any(blocks != 0, axis=2)
        n_steps = jnp.sum(jnp.any(there, axis=1))  # of a pass; the rest is padding, at the end
        rate, ratio = jnp.exp(constants[RATE]), jnp.exp(constants[RATIO])
        m, ahead, coasts = constants[MOMENTUM], constants[AHEAD] > 0, constants[COASTS] > 0
        of_items = jnp.where(coasts, m, 0.0)

        def moved(x: Array, z: Array, g: Array, kept: Array) -> tuple[Array, Array]:
            new = kept * z + g
            return x + jnp.where(ahead, g + kept * new, new), new

        def step(state: tuple[Array, Array, Array], block: tuple[Array, ...]) -> tuple[tuple, tuple]:
            u, z, last = state
            w, y, r, some, number = block
            count = jnp.sum(some)
            error = rate * jnp.where(some, r - w @ u, 0.0) / (jnp.maximum(count, 1) if self.mean else 1)
            new_u, new_z = moved(u, z, ratio * error @ w - constants[FACTOR_DECAY] * u, m)
            w, y = moved(w, y, error[:, None] * u - constants[ITEM_DECAY] * w, of_items)
            # until the next step of this minibatch, or the end
            rest = jnp.where(last, n_steps - 1 - number, n_steps - 1)
            rest = jnp.maximum(rest, 0)
            coasted = jnp.where(ahead, m, 1.0) * m * (1 - m**rest) / (1 - m)
            w, y = w + jnp.where(coasts, coasted, 0.0) * y, m**rest * y
            return (jnp.where(count > 0, new_u, u), jnp.where(count > 0, new_z, z), last), (w, y)

        def once(number: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
            u, z, w, y = state
            last = number == passes - 1
            (u, z, _), (w, y) = jax.lax.scan(step, (u, z, last), (w, y, target, there, steps))
            return u, z, w, y

        passes, steps = constants[PASSES].astype(int), jnp.arange(len(blocks))
        start = (factor, jnp.zeros_like(factor), blocks, jnp.zeros_like(blocks))
        u, _, w, _ = jax.lax.fori_loop(0, passes, once, start)
        return w.reshape(-1, k)[:n] - factors, u


def momentum_passes(manifest: Manifest) -> MomentumPasses:
    """The rule with what is declared of its minibatches."""
    said = manifest.rule
    size = said.batch_size if isinstance(said.batch_size, int) and said.order != "per-rating" else 1
    return MomentumPasses(size, said.reduction == "mean" and size != 1)


def momentum_to_try(manifest: Manifest) -> tuple[MomentumPasses, ...]:
    """The rule, where a declaration leaves it."""
    said = manifest.rule
    other = said.upload == "gradient" or said.batch_size == "all" or said.loss not in (None, "squared")
    return () if other or said.link not in (None, "identity") else (momentum_passes(manifest),)


def passes_tried(manifest: Manifest) -> tuple[float, ...]:
    """List how many passes are tried: the usual numbers, and the declared one."""
    declared = declared_steps(manifest)
    return tuple(sorted({*TRIED, *(() if declared is None else (float(declared),))}))


def family_of(manifest: Manifest, number: int, momentum: float, *, ahead: bool, coasts: bool) -> Family:
    """Passes of one kind of momentum."""
    declared = declared_steps(manifest)
    words, open_ = OPEN[number]
    kind = f"{'Nesterov, ' if ahead else ''}{'all' if coasts else 'the factor alone'}"
    return Family(
        f"passes with momentum ({kind}), {words}",
        tuple(constant in open_ for constant in range(len(CONSTANTS))),
        passes_tried(manifest),
        None if declared is None else float(declared),
        partial(_start, momentum, ahead, coasts),
        _carried,
    )


def _start(
    momentum: float, ahead: bool, coasts: bool, passes: float, sigma: float, stiffness: float
) -> tuple[float, ...]:
    """One rate, sigma."""
    del stiffness
    return (float(np.log(sigma)), 0.0, 0.0, 0.0, momentum, passes, float(ahead), float(coasts))


def _carried(constants: Float[np.ndarray, "*clients c"], passes: float) -> Float[np.ndarray, "*clients c"]:
    """As far in more or fewer passes."""
    out = constants.copy()
    out[..., RATE] += np.log(constants[..., PASSES] / passes)
    out[..., PASSES] = passes
    return out
