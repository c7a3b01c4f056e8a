"""Personalized sampling: each rating takes part with a probability that its budget sets (PDPMF).

Jorgensen, Yu, Cormode 2015 (doi:10.1109/ICDE.2015.7113353) and paper 002, Eq. (5): with noise for budget t, a
rating of budget epsilon_ij < t takes part with probability (e^epsilon_ij - 1) / (e^t - 1), else always; t is
the mean budget of the training ratings. One draw serves the whole training.

What this does not hide: which of its rated items a client uploads. Sampling amplifies privacy only where
nobody sees who was sampled, and here every upload names its sender and item: the sampled ratings are
protected by the noise at t alone, which may be several times their budget, and the others are left out of the
recommender for good.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from defenses.accounting.budgets import Specification, draw, threshold_share
from victims.common.seeds import Purpose, generator
from victims.common.validation import one_of, require_fields
from victims.data.ratings import Ratings
from victims.data.subsets import without
from victims.protocols.base import Attacker, Defense


def probabilities(budget: Float[np.ndarray, " ratings"], threshold: float) -> Float[np.ndarray, " ratings"]:
    """pi of Eq. (5), in (0, 1].

    References
    ----------
    Paper 002 (arXiv:2212.00306), Eq. (5).

    Examples
    --------
    >>> probabilities(np.array([0.5, 1.0, 2.0]), 1.0).round(3).tolist()
    [0.378, 1.0, 1.0]
    """
    return np.where(budget < threshold, np.expm1(budget) / np.expm1(threshold), 1.0)


@dataclass(frozen=True)
class PersonalizedSampling(Specification, Defense):
    """Budgets of ``defenses.accounting.budgets``.

    Attributes
    ----------
    budget : "mean-rated" or "mean"
        Whether t is the mean over the training ratings, as in section 5.1.2 and the program of the paper's
        authors, which depends on who rated what; or over all pairs of user and item, which does not. Noise
        is made for it by ``objective-noise`` with the same ``budget``.

    References
    ----------
    Z. Jorgensen, T. Yu, G. Cormode 2015, doi:10.1109/ICDE.2015.7113353; paper 002 (arXiv:2212.00306),
    Eq. (5).
    """

    budget: Literal["mean-rated", "mean"] = "mean-rated"
    name: str = "personalized-sampling"
    attackers = (Attacker("trajectory", 2), Attacker("rated-set"))  # What is left is uploaded as before

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fields(self, "personalized-sampling", budget=one_of("mean-rated", "mean"))

    def on_device(self, ratings: Ratings, seed: int) -> Ratings:
        """The ratings that take part."""
        weights = draw(self, ratings, seed)
        threshold = self.epsilon * threshold_share(self.budget, weights, ratings)
        taking_part = probabilities(self.epsilon * weights.of(ratings), threshold)
        drawn = generator(seed, Purpose.PERSONALIZED_SAMPLE).random(ratings.n_ratings)
        return replace(without(ratings, drawn >= taking_part), sampled_from=ratings)

    def public(self) -> dict[str, Any]:
        """The largest budget; weights stay with the users."""
        return {"name": self.name, "epsilon": self.epsilon}
