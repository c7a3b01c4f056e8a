"""t of paper 002: the budget that noise is made for, and that ratings are sampled by."""

from __future__ import annotations

from typing import Literal

from defenses.accounting.budgets import Weights
from victims.data.ratings import Ratings

Threshold = Literal["largest", "mean", "mean-rated", "smallest", "smallest-rated"]


def threshold_share(budget: Threshold, weights: Weights, ratings: Ratings) -> float:
    """t / epsilon; those that end in ``-rated`` are over training ratings, which hang on who rated what."""
    training = ratings if ratings.sampled_from is None else ratings.sampled_from
    match budget:
        case "largest":
            return 1.0
        case "mean":
            return float(weights.user.mean() * weights.item.mean())
        case "mean-rated":
            return float(weights.of(training).mean())
        case "smallest":
            return float(weights.user.min() * weights.item.min())
        case "smallest-rated":
            return float(weights.of(training).min())
