"""Local updates of a client on copies of its own between broadcast and upload (federated averaging).

The client goes through its ratings in one order, once or several times. A minibatch b (all ratings, so many,
or one) moves its factor u and its copies w_j of the items of b, both from the same point:

    u <- (1 - a) u + rho eta sum_b f_j w_j,     w_j <- (1 - d) w_j + eta f_j u,      f_j = f(r_j, u . w_j),

f minus the derivative of the loss by the product of the factors (``LOSSES``), over the number of ratings of
the minibatch where the loss is a mean. The upload is sigma (w_j after the last step - w_j as broadcast).
Where the client does not move its copies, predictions use the broadcast ones throughout, and the upload is
the sum of the same steps. Of steps over all ratings a mean, a loss with a factor 2 and a gradient in place of
a change are other eta and sigma.

With momentum m (steps over all ratings alone) each step is the one above plus m times the step before, from
none on in every round: what PyTorch's SGD does whose state is made anew. Nesterov's looks ahead: with z all
that would be added in this way, it adds the plain step plus m z.

Symbols: eta item rate, rho factor rate over item rate, a and d weight decay of factor and items.

References
----------
H. B. McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
arXiv:1602.05629, Algorithm 1 (B and E); the step is that of Chai et al. 2021 (arXiv:1906.05108), Eq. (2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attacks.client_rules.differentiable import Family, declared_steps
from victims.transcript.manifest import Manifest

STEPS_TRIED = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 20)  # over all ratings, where nobody declares how many
PASSES_TRIED = (2, 3, 4, 5, 10)
MODERATE = 0.3  # of its size, that the factor moves in all steps together
USUAL_MOMENTUM = 0.9  # where nobody declares it
MOST_KEPT = 0.999  # of a step, in the next; a fit may try more
CONSTANTS = (
    *("log_item_rate", "log_rate_ratio", "factor_decay", "item_decay", "log_scale", "momentum"),
    *("steps", "moves_items", "looks_ahead", "first", "range", "loss"),
)
(RATE, RATIO, FACTOR_DECAY, ITEM_DECAY, SCALE, MOMENTUM, STEPS, MOVES, AHEAD, FIRST, RANGE, LOSS) = range(12)
NESTEROV = ", Nesterov's"
COPIES = {True: "copies of the items that move", False: "the items as broadcast"}
OPEN = (  # which constants are unknown, beside the rate
    ("one rate", ()),
    ("one rate and weight decay", (FACTOR_DECAY, ITEM_DECAY)),
    ("two rates", (RATIO,)),
    ("any rates, decay and scale", (RATIO, FACTOR_DECAY, ITEM_DECAY, SCALE)),
)
OPEN_WITH_MOMENTUM = (OPEN[0], ("one rate and momentum", (MOMENTUM,)), *OPEN[1:3])
OPEN_OF_PASSES = (*OPEN[:2], ("two rates and weight decay", (RATIO, FACTOR_DECAY, ITEM_DECAY)))
LOSSES = ("squared", "sigmoid", "cross-entropy")  # "sigmoid": squared errors of a sigmoid
Loss = Literal["squared", "sigmoid", "cross-entropy"]
NAMES = ("per-rating", "minibatch", "sigmoid", "cross-entropy")  # of rules that take the declared minibatch


@dataclass(frozen=True)
class LocalUpdates:
    """The rule; its constants are ``CONSTANTS``, of which all from ``steps`` on are never fitted."""

    batch_size: int = 0  # ratings of a minibatch; 0 for all
    # one of ``LOSSES``; a constant of the families, so that compiled programs serve all of them
    loss: Loss = field(default="squared", compare=False)
    mean: bool = False  # whether the loss of a minibatch is a mean
    # whether steps have momentum: as declared, else ``USUAL_MOMENTUM`` or what is fitted
    momentum: bool = False
    mixes_rows: bool = field(init=False)  # squared errors of all ratings in every step

    def __post_init__(self) -> None:
        object.__setattr__(self, "mixes_rows", self.batch_size == 0 and self.loss == "squared")

    @property
    def name(self) -> str:
        """Of steps over all ratings, or of loss and minibatches."""
        if self.mixes_rows:
            return "local-momentum" if self.momentum else "local-steps"
        of_step = {0: "all ratings", 1: "one rating"}.get(self.batch_size, f"{self.batch_size} ratings")
        return f"{self.loss}, {of_step} a step"

    def families(self, manifest: Manifest) -> tuple[Family, ...]:
        """Constants that are open, any number of steps or passes."""
        return tuple(self._steps(manifest) if self.mixes_rows else self._passes(manifest))

    def _steps(self, manifest: Manifest) -> Iterator[Family]:
        """Copies that move or not, constants that are open."""
        declared = declared_steps(manifest)
        first = float(declared) if declared is not None and declared > 1 else None
        values = tuple(sorted({*map(float, STEPS_TRIED), *(() if first is None else (first,))}))
        momentum = (declared_momentum(manifest) or USUAL_MOMENTUM) if self.momentum else 0.0
        with_it = f", momentum {momentum:g}" if self.momentum else ""
        for ahead in (False, True) if self.momentum else (False,):
            for words, open_ in OPEN_WITH_MOMENTUM if self.momentum else OPEN:
                for moving in (False, True) if manifest.rule.moves_items is False else (True, False):
                    if not moving and open_ != (RATIO,):
                        continue  # without a copy that moves, the scale of rows is a rate of its own
                    said = words + ("" if MOMENTUM in open_ else with_it) + NESTEROV * ahead
                    yield Family(
                        f"steps on {COPIES[moving]}, {said}",
                        _free(open_),
                        values,
                        first,
                        partial(_start, open_, momentum, (float(moving), float(ahead), 0.0, 1.0, 0.0)),
                        _carried,
                        multiples=RATIO in open_,
                    )

    def _passes(self, manifest: Manifest) -> Iterator[Family]:
        """Constants that are open, ratings over the highest or between the two ends behind a sigmoid."""
        declared = declared_steps(manifest)
        first = None if declared is None else float(declared)
        values = tuple(map(float, PASSES_TRIED)) if first is None else (first,)
        low, high = manifest.rating_levels[0], manifest.rating_levels[-1]
        maps = ((0.0, 1.0),) if self.loss == "squared" else ((0.0, high), (low, high - low))
        for words, open_ in OPEN_OF_PASSES:
            for low_, range_ in maps:
                if range_ > 0:
                    yield Family(
                        f"passes, {words}"
                        + ("" if range_ == 1 else f", ratings less {low_:g} over {range_:g}"),
                        _free(open_),
                        values,
                        first,
                        partial(_start, (), 0.0, (1.0, 0.0, low_, range_, float(LOSSES.index(self.loss)))),
                        _carried,
                        multiples=RATIO in open_,
                    )

    def upload(
        self,
        factor: Float[Array, " K"],
        ratings: Float[Array, " n"],
        factors: Float[Array, "n K"],
        constants: Float[Array, " c"],
    ) -> tuple[Float[Array, "n K"], Float[Array, " K"]]:
        """The rows, and the factor after the last step; ratings in the order of the steps."""
        n, k = factors.shape
        size = min(self.batch_size or n, n)
        lack = -n % size
        blocks = jnp.pad(factors, ((0, lack), (0, 0))).reshape(-1, size, k)
        target = jnp.pad(ratings, (0, lack)).reshape(-1, size)
        rate, ratio = jnp.exp(constants[RATE]), jnp.exp(constants[RATIO])
        m, ahead = constants[MOMENTUM], constants[AHEAD] > 0

        def moved(x: Array, z: Array, g: Array) -> tuple[Array, Array]:
            if not self.momentum:
                return x + g, z
            z = m * z + g
            return x + jnp.where(ahead, g + m * z, z), z

        def step(state: tuple[Array, Array], block: tuple[Array, ...]) -> tuple[tuple, tuple]:
            u, of_factor = state
            w, of_items, known, r = block
            seen = jnp.where(constants[MOVES] > 0, w, known)
            error = rate * self.error(r, seen @ u, constants)
            if not self.mixes_rows:
                some = jnp.any(known != 0, axis=1)
                count = jnp.sum(some)
                error = jnp.where(some, error, 0.0) / (jnp.maximum(count, 1) if self.mean else 1)
            pull = ratio * error @ seen - constants[FACTOR_DECAY] * u
            if not self.mixes_rows:  # a minibatch of padding is none
                pull = jnp.where(count > 0, pull, 0.0)
            w, of_items = moved(w, of_items, error[:, None] * u - constants[ITEM_DECAY] * w)
            return moved(u, of_factor, pull), (w, of_items)

        def once(_: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
            u, of_factor, w, of_items = state
            (u, of_factor), (w, of_items) = jax.lax.scan(step, (u, of_factor), (w, of_items, blocks, target))
            return u, of_factor, w, of_items

        start = (factor, jnp.zeros_like(factor), blocks, jnp.zeros_like(blocks))
        u, _, w, _ = jax.lax.fori_loop(0, constants[STEPS].astype(int), once, start)
        return jnp.exp(constants[SCALE]) * (w.reshape(-1, k)[:n] - factors), u

    def error(
        self, ratings: Float[Array, " b"], product: Float[Array, " b"], constants: Float[Array, " c"]
    ) -> Float[Array, " b"]:
        """f, of the loss that ``constants`` name."""
        if self.mixes_rows:
            return ratings - product
        p = jax.nn.sigmoid(product)
        error = (ratings - constants[FIRST]) / constants[RANGE] - p
        through = jnp.where(constants[LOSS] == LOSSES.index("sigmoid"), error * p * (1 - p), error)
        return jnp.where(constants[LOSS] == LOSSES.index("squared"), ratings - product, through)


def passes_named(name: str, manifest: Manifest) -> LocalUpdates:
    """A rule by one of ``NAMES``, with what is declared of its minibatches."""
    said = manifest.rule
    one = said.order == "per-rating" or name == "per-rating" or said.batch_size is None
    of_step = 1 if one else 0 if said.batch_size == "all" else int(said.batch_size or 1)
    loss: Loss = name if name in ("sigmoid", "cross-entropy") else "squared"  # type: ignore[assignment]
    return LocalUpdates(of_step, loss, said.reduction == "mean" and of_step != 1)


def passes_to_try(manifest: Manifest) -> tuple[LocalUpdates, ...]:
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
    return tuple(rule for name in names if not (rule := passes_named(name, manifest)).mixes_rows)


def declared_momentum(manifest: Manifest) -> float | None:
    """The momentum that a recording declares."""
    told = (manifest.rule.model_extra or {}).get("momentum")
    return float(told) if isinstance(told, (int, float)) and 0 < told < 1 else None


def _free(open_: tuple[int, ...]) -> tuple[bool, ...]:
    """The rate, and what else is open."""
    return tuple(constant in (RATE, *open_) for constant in range(len(CONSTANTS)))


def _lasting(
    momentum: Float[np.ndarray, " clients"], n_steps: Float[np.ndarray, " clients"]
) -> Float[np.ndarray, " clients"]:
    """How many plain steps steps with momentum amount to, where errors hardly change."""
    kept = np.clip(momentum, 0, MOST_KEPT)
    return (n_steps - kept * (1 - kept**n_steps) / (1 - kept)) / (1 - kept)


def _start(
    open_: tuple[int, ...],
    momentum: float,
    fixed: tuple[float, ...],
    n_steps: float,
    sigma: float,
    stiffness: float,
) -> tuple[float, ...]:
    """Rates by which the factor moves moderately, where they are not tied to what multiplies the rows."""
    lasting = float(_lasting(np.array([momentum]), np.array([n_steps]))[0])
    rate, scale = sigma / lasting, 1.0
    moderate = MODERATE / (lasting * max(stiffness, MODERATE))
    if SCALE in open_:
        rate, scale = moderate, rate / moderate
    ratio = moderate / rate if RATIO in open_ else 1.0
    rates = (float(np.log(rate)), float(np.log(ratio)), 0.0, 0.0, float(np.log(scale)))
    return (*rates, momentum, n_steps, *fixed)


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
