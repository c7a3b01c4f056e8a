"""Score how many items an attack says that each client rated."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from audit.scoring.truth import Truth

NEAR = 0.1  # of a list's length


def length_scores(
    told: Float[np.ndarray, " users"], users: Int[np.ndarray, " users"], truth: Truth
) -> tuple[Float[np.ndarray, " users"], Float[np.ndarray, " users"]]:
    """Say for each client whether the number is right within a tenth."""
    length = np.diff(truth.ratings.indptr)[truth.rows(users)].astype(float)
    hits = np.abs(length[:, None] - np.unique(length)) <= NEAR * length[:, None]
    best = hits[:, hits.sum(axis=0).argmax()] if users.size else np.zeros(0)
    return (np.abs(told - length) <= NEAR * length).astype(float), best.astype(float)
