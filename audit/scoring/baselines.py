"""The best guess without the transcript, client by client.

A baseline knows the sizes, the rating grid and the marginals of the scored population: how often each
rating level and attribute occurs and how popular each item is. That is more than most adversaries know,
so an advantage over the best of these guesses is a lower bound. In observed-only the guesser is also
told which items were rated when it guesses their ratings, as Eq. (43) averages over those.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float

from audit.scoring.attribute_metrics import attribute_table, group_scores
from audit.scoring.metrics import FALSE_POSITIVE_RATE, LOWER_IS_BETTER, UserScores, metric_names
from audit.scoring.truth import Truth
from victims.transcript.manifest import Manifest

Guesses = dict[str, dict[str, Float[np.ndarray, " users"]]]


def guesses(manifest: Manifest, truth: Truth, users: np.ndarray) -> Guesses:
    """Score every guess without the transcript."""
    row = truth.rows(users)
    found = _rating_guesses(manifest, truth, row) | _rated_set_guesses(manifest, truth, row)
    perfect = found["rating_accuracy"].get("majority", np.zeros(users.size)) == 1
    if manifest.n_attributes:
        found |= _attribute_guesses(manifest, truth, row)
        perfect &= found["attribute_accuracy"]["majority"] == 1
    found["users_fully_recovered"] = {"majority": perfect.astype(np.float64)}
    return {name: found[name] for name in metric_names(manifest)}


def best_guess(
    metric: str, candidates: dict[str, Float[np.ndarray, " users"]]
) -> tuple[str, Float[np.ndarray, " users"]]:
    """Choose the candidate with the best mean over the clients for which it is defined."""
    sign = -1 if metric in LOWER_IS_BETTER else 1
    defined = {name: values for name, values in candidates.items() if ~np.isnan(values).all()}
    if not defined:
        return next(iter(candidates.items()))
    return max(defined.items(), key=lambda pair: sign * np.nanmean(pair[1]))


def _rating_guesses(manifest: Manifest, truth: Truth, row: np.ndarray) -> Guesses:
    ratings = truth.ratings[row]
    n_users, n_levels = row.size, len(manifest.rating_levels)
    n_rated = np.diff(ratings.indptr)
    owner = np.repeat(np.arange(n_users), n_rated)
    levels, counts = np.unique(truth.ratings.data, return_counts=True)
    mode = levels[counts.argmax()] if levels.size else np.nan
    ordered = np.sort(truth.ratings.data)
    median = ordered[ordered.size // 2] if ordered.size else np.nan

    def per_user(entry: np.ndarray) -> np.ndarray:
        total = np.bincount(owner, entry, minlength=n_users)
        return np.where(n_rated > 0, total / np.maximum(n_rated, 1), np.nan)

    majority = per_user(ratings.data == mode)
    uniform = np.where(n_rated > 0, 1 / n_levels, np.nan)
    found: Guesses = {
        "rated_rating_accuracy": {"uniform": uniform, "majority": majority},
        "rating_mae": {"median": per_user(np.abs(ratings.data - median))},
    }
    if manifest.weighting == "observed-only":
        found["rating_accuracy"] = {"uniform": uniform, "majority": majority}
    else:
        found["rating_accuracy"] = {
            "uniform": np.full(n_users, 1 / (n_levels + 1)),
            "all-zero": 1 - n_rated / manifest.n_items,
        }
    return found


def _rated_set_guesses(manifest: Manifest, truth: Truth, row: np.ndarray) -> Guesses:
    """Rank items by the number of other clients who rated them.

    Counts are over sorted popularity, never over clients x items.
    """
    ratings = truth.ratings[row]
    n_rated = np.diff(ratings.indptr).astype(np.float64)
    n_unrated = manifest.n_items - n_rated
    owner = np.repeat(np.arange(row.size), np.diff(ratings.indptr))
    popularity = np.zeros(max(manifest.n_items, truth.ratings.shape[1]), np.int32)
    popularity[: truth.ratings.shape[1]] = np.bincount(
        truth.ratings.indices, minlength=truth.ratings.shape[1]
    )
    own = popularity[ratings.indices]
    others = own - 1  # this client's own rating does not count

    ascending = np.sort(popularity)
    base = int(popularity.max(initial=0)) + 2
    key = np.sort(owner * base + own)
    first = (np.cumsum(n_rated) - n_rated)[owner].astype(np.int64)

    def unrated_with(side: Literal["left", "right"]) -> np.ndarray:
        everything = np.searchsorted(ascending, others, side=side)
        rated = np.searchsorted(key, owner * base + others, side=side) - first
        return everything - rated

    wins = (unrated_with("left") + unrated_with("right")) / 2
    pairs = n_rated * n_unrated
    auc = np.bincount(owner, wins, minlength=row.size) / np.maximum(pairs, 1)

    position = np.empty(popularity.size, np.int32)
    position[np.argsort(-popularity, kind="stable")] = np.arange(popularity.size)
    rank = np.sort(owner * popularity.size + position[ratings.indices]) - owner * popularity.size
    before = rank - (np.arange(owner.size) - first)  # more popular items that are unrated
    allowed = np.floor(FALSE_POSITIVE_RATE * n_unrated)
    reached = np.bincount(owner, before <= allowed[owner], minlength=row.size)
    size = max(1, round(float(np.diff(truth.ratings.indptr).mean())))
    hits = np.bincount(owner, position[ratings.indices] < size, minlength=row.size)

    rated, both = n_rated > 0, pairs > 0
    share = n_rated / manifest.n_items
    return {
        "rated_set_auc": {
            "uniform": np.where(both, 0.5, np.nan),
            "popularity": np.where(both, auc, np.nan),
        },
        "rated_set_f1": {
            "everything": np.where(rated, 2 * share / (1 + share), np.nan),
            "popularity": np.where(rated, 2 * hits / (size + n_rated), np.nan),
        },
        "tpr_at_fpr_0.1pct": {
            "uniform": np.where(both, FALSE_POSITIVE_RATE, np.nan),
            "popularity": np.where(both, reached / np.maximum(n_rated, 1), np.nan),
        },
    }


def _attribute_guesses(manifest: Manifest, truth: Truth, row: np.ndarray) -> Guesses:
    everyone = attribute_table(truth, manifest, np.arange(truth.users.size))
    actual = everyone[row]
    share = everyone.mean(axis=0)
    found: Guesses = {
        "attribute_accuracy": {
            "uniform": np.full(row.size, 0.5),
            "all-zero": (actual <= 0.5).mean(axis=1),
            "majority": ((actual > 0.5) == (share > 0.5)).mean(axis=1),
        }
    }
    if manifest.attribute_groups:
        majority = group_scores(np.broadcast_to(share, actual.shape), actual, manifest)
        sizes = [max(len(group), 1) for group in manifest.attribute_groups]
        for name, values in majority.items():
            number = name.partition("/")[2]
            chance = 1 / sizes[int(number)] if number else float(np.mean([1 / n for n in sizes]))
            found[name] = {
                "uniform": np.where(np.isnan(values), np.nan, chance),
                "majority": values,
            }
    return found


def null_mean(scores: UserScores, metric: str, n_users: int) -> Float[np.ndarray, " users"]:
    """Give every client the null's mean, for it may have been run on a sample of clients only."""
    values = scores.values[metric]
    return np.full(n_users, np.nan if np.isnan(values).all() else np.nanmean(values))
