"""The client's step of every protocol whose clients keep their factor, restated from the papers.

All of them are p <- P(shrink p + pull sum_j w_j (s_j - p . t_j) t_j):

- FedMVMF, sgd (paper 000, Eq. 9, 10) and FedMF (paper 001, Eq. 2): shrink = 1 - 2 gamma lambda, pull = 2
gamma, t_j as broadcast before the uploads, w = lambda_1 for attributes, no projection;
- MF on the unit ball (paper 002, Algorithm 1): shrink = 1 - 2 eta lambda n for n ratings, pull = 2 eta, t_j
  as broadcast after the server's step, P the projection to the unit ball; eta is divided by 5 after a
  quarter and after three quarters of the epochs.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from victims.transcript.manifest import Manifest

DROP, DROPS = 5.0, (0.25, 0.75)
NEEDED = {
    "mf": ("learning_rate", "epochs", "regularization"),
    "fedmf": ("client_learning_rate", "lambda_factors"),
    "fedmvmf": ("client_learning_rate", "lambda_factors"),
}


class Step(NamedTuple):
    """shrink (users, T), pull (T,); whether p is projected, and whether t_j is that of the next round."""

    shrink: Float[Array, "*users T"]
    pull: Float[Array, " T"]
    projected: Bool[Array, ""]
    after: Bool[Array, ""]


def unknown_step(manifest: Manifest) -> str:
    """Why the client's step is not known, or nothing."""
    needed = NEEDED.get(manifest.protocol)
    if manifest.update != "sgd" or needed is None:
        return f"the clients' step of {manifest.protocol}/{manifest.update} is not one that this attack knows"
    if manifest.weighting != "observed-only":
        return "this attack knows the step of observed-only alone"
    if manifest.n_attributes:
        needed = (*needed, "lambda_attributes")
    missing = [name for name in needed if name not in manifest.hyperparameters]
    return f"{' and '.join(missing)} are not public" if missing else ""


def rate_of(manifest: Manifest, rounds: Int[np.ndarray, "*T"]) -> Float[np.ndarray, "*T"]:
    """eta of paper 002 in the given rounds; its recommender and its clients step with the same."""
    known = manifest.hyperparameters
    passed = sum((rounds >= share * known["epochs"]).astype(int) for share in DROPS)
    return np.asarray(known["learning_rate"] / DROP**passed)


def step_of(manifest: Manifest, rounds: Int[np.ndarray, " T"], rows: Int[np.ndarray, " users"]) -> Step:
    """The step of clients with that many rated items in those rounds."""
    known = manifest.hyperparameters
    if manifest.protocol == "mf":
        rate = rate_of(manifest, rounds)
        shrink = 1 - 2 * rate * known["regularization"] * rows[:, None]
    else:
        rate = np.full(rounds.size, known["client_learning_rate"])
        shrink = np.broadcast_to(1 - 2 * rate * known["lambda_factors"], (rows.size, rounds.size))
    projected = manifest.protocol == "mf"
    return Step(*(jnp.asarray(part) for part in (shrink, 2 * rate, projected, projected)))


def advance(
    step: Step,
    factor: Float[Array, " K"],
    value: Float[Array, " n"],
    row_weight: Float[Array, " n"],
    factors: Float[Array, "n K"],
    shrink: Float[Array, ""],
    pull: Float[Array, ""],
) -> Float[Array, " K"]:
    """One client's next factor; rows of padding have factor 0."""
    moved = shrink * factor + pull * (row_weight * (value - factors @ factor)) @ factors
    square = jnp.sum(moved**2)
    # the root of a number that is surely not 0, so that its derivative is finite
    length = jnp.sqrt(jnp.maximum(square, 1.0))
    return jnp.where(step.projected, moved / length, moved)
