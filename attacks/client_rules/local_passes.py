"""Passes of a client over its ratings between broadcast and upload, a minibatch or one rating at a time.

The client goes through its ratings in one order in every pass. A minibatch b moves its factor u and its
copies w_j of the factors of the items of b, both from the same point:

    u <- (1 - a) u + rho eta sum_b f_j w_j,     w_j <- (1 - d) w_j + eta f_j u,      f_j = f(r_j, u . w_j),

f minus the derivative of the loss by the product of the factors (``LOSSES``), over the number of ratings of
the minibatch where the loss is a mean. The upload is sigma (w_j after the last pass - w_j as broadcast).

Symbols: eta item rate, rho factor rate over item rate, a and d weight decay of factor and items.

References
----------
H. B. McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
arXiv:1602.05629, Algorithm 1 (B and E); the step is that of Chai et al. 2021 (arXiv:1906.05108), Eq. (2).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attacks.client_rules.differentiable import Family, declared_steps
from victims.transcript.manifest import Manifest

TRIED = (2.0, 3.0, 4.0, 5.0, 10.0)  # passes, where nobody declares how many
(RATE, RATIO, FACTOR_DECAY, ITEM_DECAY, SCALE, PASSES, FIRST, RANGE, LOSS) = range(9)
CONSTANTS = (
    "log_item_rate",
    "log_rate_ratio",
    "factor_decay",
    "item_decay",
    "log_scale",
    "passes",
    "first",
    "range",
    "loss",
)
OPEN = (  # which constants are unknown
    ("one rate", (RATE,)),
    ("one rate and weight decay", (RATE, FACTOR_DECAY, ITEM_DECAY)),
    ("two rates and weight decay", (RATE, RATIO, FACTOR_DECAY, ITEM_DECAY)),
)
LOSSES = ("squared", "sigmoid", "cross-entropy")  # "sigmoid": squared errors of a sigmoid
Loss = Literal["squared", "sigmoid", "cross-entropy"]


@dataclass(frozen=True)
class LocalPasses:
    """The rule; its constants are ``CONSTANTS``, of which all from ``log_scale`` on are never fitted."""

    batch_size: int = 1  # ratings of a minibatch; 0 for all
    # one of ``LOSSES``; a constant of the families, so that compiled programs serve all of them
    loss: Loss = field(default="squared", compare=False)
    mean: bool = False  # whether the loss of a minibatch is a mean
    mixes_rows: bool = False

    @property
    def name(self) -> str:
        """Of its loss and minibatches."""
        of_step = {0: "all ratings", 1: "one rating"}.get(self.batch_size, f"{self.batch_size} ratings")
        return f"{self.loss}, {of_step} a step"

    def families(self, manifest: Manifest) -> tuple[Family, ...]:
        """Constants that are open, any number of passes."""
        declared = declared_steps(manifest)
        first = None if declared is None else float(declared)
        values = TRIED if first is None else (first,)
        low, high = manifest.rating_levels[0], manifest.rating_levels[-1]
        maps = ((0.0, 1.0),) if self.loss == "squared" else ((0.0, high), (low, high - low))
        return tuple(
            Family(
                f"passes, {words}" + ("" if range_ == 1 else f", ratings less {low_:g} over {range_:g}"),
                tuple(constant in open_ for constant in range(len(CONSTANTS))),
                values,
                first,
                partial(_start, low_, range_, float(LOSSES.index(self.loss))),
                _carried,
                multiples=RATIO in open_,
            )
            for words, open_ in OPEN
            for low_, range_ in maps
            if range_ > 0
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
        size = min(self.batch_size or n, n)
        lack = -n % size
        blocks = jnp.pad(factors, ((0, lack), (0, 0))).reshape(-1, size, k)
        target = jnp.pad(ratings, (0, lack)).reshape(-1, size)
        there = jnp.any(blocks != 0, axis=2)
        rate, ratio = jnp.exp(constants[RATE]), jnp.exp(constants[RATIO])
        keep_factor, keep_item = 1 - constants[FACTOR_DECAY], 1 - constants[ITEM_DECAY]

        def step(u: Array, block: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            w, r, some = block
            count = jnp.sum(some)
            error = jnp.where(some, self.error(r, w @ u, constants), 0.0)
            error = rate * error / (jnp.maximum(count, 1) if self.mean else 1)
            moved = jnp.where(count > 0, keep_factor * u + ratio * error @ w, u)
            return moved, keep_item * w + error[:, None] * u

        def once(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            u, w = state
            return jax.lax.scan(step, u, (w, target, there))

        u, w = jax.lax.fori_loop(0, constants[PASSES].astype(int), once, (factor, blocks))
        return jnp.exp(constants[SCALE]) * (w.reshape(-1, k)[:n] - factors), u

    def error(
        self, ratings: Float[Array, " b"], product: Float[Array, " b"], constants: Float[Array, " c"]
    ) -> Float[Array, " b"]:
        """f, of the loss that ``constants`` name."""
        p = jax.nn.sigmoid(product)
        error = (ratings - constants[FIRST]) / constants[RANGE] - p
        through = jnp.where(constants[LOSS] == LOSSES.index("sigmoid"), error * p * (1 - p), error)
        return jnp.where(constants[LOSS] == LOSSES.index("squared"), ratings - product, through)


NAMES = ("per-rating", "minibatch", "sigmoid", "cross-entropy")  # of rules that take the declared minibatch


def passes_named(name: str, manifest: Manifest) -> LocalPasses:
    """A rule by one of ``NAMES``, with what is declared of its minibatches."""
    said = manifest.rule
    one = said.order == "per-rating" or name == "per-rating" or said.batch_size is None
    of_step = 1 if one else 0 if said.batch_size == "all" else int(said.batch_size or 1)
    loss: Loss = name if name in ("sigmoid", "cross-entropy") else "squared"  # type: ignore[assignment]
    return LocalPasses(of_step, loss, said.reduction == "mean" and of_step != 1)


def passes_to_try(manifest: Manifest) -> tuple[LocalPasses, ...]:
    """The rules that a declaration leaves, the likeliest first."""
    said = manifest.rule
    if said.upload == "gradient":  # of the last pass, at the factors that were broadcast: undeclared reads it
        return ()
    names: tuple[str, ...] = ("minibatch", "sigmoid", "cross-entropy")
    if said.loss in ("logistic", "bernoulli"):
        names = ("cross-entropy", "sigmoid")
    elif said.link == "sigmoid":
        names = ("sigmoid", "cross-entropy")
    elif said.loss is not None or said.link is not None:
        names = ("minibatch",)
    rules = (passes_named(name, manifest) for name in names)
    # squared errors of steps over all ratings are LocalSteps
    return tuple(rule for rule in rules if (rule.batch_size, rule.loss) != (0, "squared"))


def _start(
    first: float, range_: float, loss: float, passes: float, sigma: float, stiffness: float
) -> tuple[float, ...]:
    """One rate, by which all passes make rows of that size."""
    del stiffness
    return (float(np.log(sigma / passes)), 0.0, 0.0, 0.0, 0.0, passes, first, range_, loss)


def _carried(constants: Float[np.ndarray, "*clients c"], passes: float) -> Float[np.ndarray, "*clients c"]:
    """As far in more or fewer passes."""
    out = constants.copy()
    ratio = constants[..., PASSES] / passes
    out[..., RATE] += np.log(ratio)
    out[..., FACTOR_DECAY : ITEM_DECAY + 1] *= ratio[..., None]
    out[..., PASSES] = passes
    return out
