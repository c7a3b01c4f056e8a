"""What is fixed while a view is decoded, what is learned on the way, and where the decoder stands.

Mai & Pang 2022, Eq. (8)-(10), (18), (22). A client's rating or attribute z has weight c(z) (alpha for
"unrated", else 1) and in round t uploads f = y p + noise with y = c(z) (z - p . q) and independent noise on
every coordinate, Laplace's of scale b unless the manifest names another law
(``attacks.likelihood.noise_laws``). Ratings and attributes are the same in all rounds; p^t follows from them.
Given p^t the rows are independent, so their posteriors are exact (``attacks.likelihood.observation``). What
is left is one K-dimensional unknown per client, tied by the update rule (``attacks.likelihood.update_rule``).

All functions are batched over clients and traced once per shape. Arrays with one entry per row have the
slots last and the clients before them, so that loops over slots are the inner, vectorised ones; they are
in the precision of ``Rows``, what is left per client is in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from attacks.likelihood.batches import Rows
from attacks.likelihood.noise_laws import LAPLACE, Law
from attacks.metadata.rating_prior import log_shares
from victims.transcript.manifest import Manifest

jax.config.update("jax_enable_x64", True)

AnyArray = Array | np.ndarray
SPAN = 4.0  # ratings are measured in quarters of the grid's span where priors have random effects


@dataclass(frozen=True)
class Model:
    """What is fixed while a view is decoded; hashable, because compiled functions depend on it."""

    tied: bool  # p follows from the answers by (8); otherwise p is free at the start of each run
    runs: tuple[int, ...]  # run of each round; a single one where p is tied
    levels: tuple[float, ...]  # candidates for an item: 0 for unrated first, where it is one
    weighted: tuple[bool, ...]  # which candidates have weight alpha
    blocks: tuple[int, ...]  # one-hot block of each attribute
    loose: tuple[bool, ...]  # blocks of a single attribute outside all groups, which may be inactive
    clip: float | None = None  # norm (the law's) that the clients clip their rows to before they add noise
    law: Law = LAPLACE  # of the noise

    @property
    def n_runs(self) -> int:
        """Number of runs of rounds that the update rule connects."""
        return self.runs[-1] + 1

    @property
    def starts(self) -> tuple[bool, ...]:
        """Whether each round is the first of its run."""
        return tuple(a != b for a, b in zip(self.runs, (-1, *self.runs[:-1]), strict=True))

    @property
    def effects(self) -> tuple[int, int]:
        """How many features a client's and an item's random effects in the prior multiply.

        Items have too few raters to show a dispersion; and where p is free its length is open, which a
        dispersion of the client's own would leave more open still.
        """
        return (3 if self.tied else 2), 2

    def features(self) -> Float[np.ndarray, "candidates 3"]:
        """What random effects of the prior multiply: is rated; the rating's place on the grid from -SPAN/2 to
        SPAN/2; its square, less what the first two tell of it in usual ratings (0 for unrated).
        """
        levels = np.array(self.levels)
        rated = levels > 0
        lowest, highest = levels[rated].min(), levels.max()
        position = SPAN * ((levels - lowest) / max(highest - lowest, 1e-300) - 0.5)
        if highest == lowest:
            position = np.zeros_like(levels)
        linear = np.stack([np.ones(position.shape), position], axis=1)
        root = np.sqrt(np.exp(log_shares(levels[rated])))[:, None]
        fit = np.linalg.lstsq(root * linear[rated], root[:, 0] * position[rated] ** 2, rcond=None)[0]
        return np.stack([rated * 1.0, rated * position, rated * (position**2 - linear @ fit)], axis=1)


def model_of(
    manifest: Manifest,
    rounds: Int[np.ndarray, " rounds"],
    *,
    tied: bool,
    linked: bool,
    clip: float | None = None,
    law: Law = LAPLACE,
) -> Model:
    """Make the model of a view from its manifest."""
    blocks = np.full(manifest.n_attributes, -1)
    loose: list[bool] = []
    for group in manifest.attribute_groups:
        if group:
            blocks[list(group)] = len(loose)
            loose.append(False)
    for column in np.flatnonzero(blocks < 0):
        blocks[column] = len(loose)
        loose.append(True)
    breaks = np.diff(rounds) != 1 if linked else np.full(rounds.size - 1, not tied)
    runs = np.concatenate([[0], np.cumsum(breaks)]).astype(int)
    unrated = [0.0] if manifest.weighting == "include-unrated" else []
    levels = [*unrated, *manifest.rating_levels]
    return Model(
        tied,
        tuple(runs.tolist()),
        tuple(float(level) for level in levels),
        tuple([True] * len(unrated) + [False] * len(manifest.rating_levels)),
        tuple(blocks.tolist()),
        tuple(loose),
        clip,
        law,
    )


class Constants(NamedTuple):
    """lambda_1, lambda_2, gamma, alpha, the noise scale (stars), and what is taken off every rating (stars),
    scalars.
    """

    lambda_attributes: Float[AnyArray, ""]
    lambda_factors: Float[AnyArray, ""]
    rate: Float[AnyArray, ""]
    alpha: Float[AnyArray, ""]
    noise: Float[AnyArray, ""]
    lowered: Float[AnyArray, ""] = np.zeros(())


class Prior(NamedTuple):
    """log pi_ij(z) = level_z + features(z) . (a_i + a_j), and attributes."""

    level: Float[AnyArray, " candidates"]
    # the random effects a of activity, mean and dispersion (``Model.effects``)
    user: Float[AnyArray, "users user_effects"]
    item: Float[AnyArray, "items item_effects"]
    attribute: Float[AnyArray, "*users attributes"]  # log odds inside a block
    start_mean: Float[AnyArray, " L"]  # normal law of the free factors
    start_precision: Float[AnyArray, "L L"]  # normal law of the free factors


class Point(NamedTuple):
    """Where the decoder stands: p (users, rounds, K) and lam (users, L)."""

    p: Float[AnyArray, "users rounds K"]
    lam: Float[AnyArray, "users L"]


class Answers(NamedTuple):
    """Posterior over candidates, in 0..1."""

    items: Float[AnyArray, "candidates users slots"]
    attributes: Float[AnyArray, "users attributes"]


@partial(jax.jit, static_argnums=0)
def log_prior(model: Model, prior: Prior, rows: Rows) -> Float[Array, "candidates users slots"]:
    """Log prior of every slot, normalised, in the precision of the rows."""
    features, item = model.features(), jnp.asarray(prior.item)
    logits = prior.level[:, None, None]
    for owner, width in zip((prior.user[:, None], item[rows.item]), model.effects, strict=True):
        for feature in range(width):  # not a matrix product, which XLA fuses wrongly here (jaxlib 0.10.2)
            logits += jnp.asarray(features)[:, feature, None, None] * owner[..., feature]
    return jax.nn.log_softmax(logits, axis=0).astype(rows.items.dtype)
