"""How right a reconstruction is, client by client.

Names are public (see README). Rounding and clipping as in paper 000, Eq. (43): ratings as
``audit.scoring.answers_said`` has it, attributes to 0 or 1.

Each metric uses the answer to its own question, where a reconstruction carries one: ``rating_accuracy`` and
``users_fully_recovered`` the answer itself, ``rated_rating_accuracy`` the best rating given that the item is
rated, ``rating_mae`` the median of that posterior, the rated-set metrics the probability that the item is
rated. Without them (other software, the paper's solvers) the answer itself stands for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from attacks.base import OPTIONAL, Estimates
from audit.scoring.answers_said import claimed_rated, if_rated, rated_strength, round_ratings
from audit.scoring.attribute_metrics import score_attributes
from audit.scoring.ratios import ratio
from audit.scoring.truth import Truth
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM

LOWER_IS_BETTER = frozenset({"rating_mae", "factor_relative_error"})
YES_OR_NO = frozenset({"users_fully_recovered"})
"""Metrics that are 0 or 1 of a client."""
FALSE_POSITIVE_RATE = 0.001
RATED_SET_METRICS = ("rated_set_auc", "rated_set_f1", "tpr_at_fpr_0.1pct")
RATING_METRICS = ("rating_accuracy", "rated_rating_accuracy", "rating_mae", *RATED_SET_METRICS)
BLOCK_ROWS = 1 << 21  # rows of one block that are scored at a time
DENSE = 16  # times the rows of a client that a table of all items may have columns


@dataclass(frozen=True)
class UserScores:
    """Metric name -> (n_users,) values; NaN where a metric is not defined for a client."""

    users: Int[np.ndarray, " users"]
    values: dict[str, Float[np.ndarray, " users"]]


def score_users(
    blocks: tuple[Estimates, ...], manifest: Manifest, truth: Truth, users: np.ndarray
) -> UserScores:
    """Score every client of ``users``; one without estimates gets NaN throughout."""
    truth.rows(users)
    names = metric_names(manifest)
    values = {name: np.full(users.size, np.nan) for name in names}
    for block in blocks:
        step = max(1, BLOCK_ROWS // max(block.value.shape[1], 1))
        for start in range(0, block.users.size, step):
            part = _slice(block, start, start + step)
            answered = ~np.isnan(part.value).all(axis=1)
            if not answered.any():
                continue
            row = np.searchsorted(users, part.users)
            for name, score in _score_block(part, manifest, truth).items():
                values[name][row[answered]] = score[answered]
    return UserScores(users, values)


def metric_names(manifest: Manifest) -> list[str]:
    """List the metrics that are defined for a protocol, in the order of the result tables."""
    names = list(RATING_METRICS)
    if manifest.n_attributes:
        names.append("attribute_accuracy")
    if manifest.attribute_groups:
        names.append("attribute_group_accuracy")
        names += [f"attribute_group_accuracy/{k}" for k in range(len(manifest.attribute_groups))]
    return [*names, "users_fully_recovered"]


def of_attributes(metric: str, manifest: Manifest) -> bool:
    """Say whether a metric has no value where nothing is said of attributes."""
    return metric.startswith("attribute_") or (metric in YES_OR_NO and manifest.n_attributes > 0)


def of_the_set(metric: str) -> bool:
    """Say whether a metric asks which items are rated, and not how."""
    return metric in RATED_SET_METRICS


def _slice(block: Estimates, start: int, stop: int) -> Estimates:
    def cut(array: np.ndarray) -> np.ndarray:
        return array if array.shape[0] == 1 else array[start:stop]

    given = {name: getattr(block, name) for name in OPTIONAL}
    return Estimates(
        block.users[start:stop],
        cut(block.kind),
        cut(block.index),
        block.value[start:stop],
        **{name: None if part is None else part[start:stop] for name, part in given.items()},
    )


def _score_block(
    block: Estimates, manifest: Manifest, truth: Truth
) -> dict[str, Float[np.ndarray, " users"]]:
    row = truth.rows(block.users)
    scores = _score_items(block, manifest, truth, row)
    perfect = (scores["rating_accuracy"] == 1).astype(float)
    if manifest.n_attributes:
        attributes = score_attributes(block, manifest, truth, row)
        asked = attributes["attribute_accuracy"]
        perfect = np.where(np.isnan(asked), np.nan, perfect * (asked == 1))
        scores |= attributes
    scores["users_fully_recovered"] = perfect
    return scores


def _score_items(
    block: Estimates, manifest: Manifest, truth: Truth, row: np.ndarray
) -> dict[str, np.ndarray]:
    shape = block.value.shape
    given = ~np.isnan(block.value) & (block.kind == ITEM)
    value = np.where(given, block.value, 0.0)
    actual = np.where(given, lookup(truth, row, block.index, shape), 0.0)
    answer = round_ratings(value, manifest.rating_levels)
    rated = actual > 0
    n_rated = np.diff(truth.ratings.indptr)[row].astype(np.float64)
    found = rated.sum(axis=1)
    right = (answer == actual) & given
    right_rated = (rated & given & (if_rated(block, answer, manifest) == actual)).sum(axis=1)
    if manifest.weighting == "include-unrated":
        # an item without a row is answered "unrated": right unless it is rated
        silent_unrated = manifest.n_items - given.sum(axis=1) - (n_rated - found)
        accuracy = (right.sum(axis=1) + silent_unrated) / manifest.n_items
    else:
        accuracy = ratio(right.sum(axis=1), given.sum(axis=1) + (n_rated - found))
    stars = _first(block.median_if_rated, block.rating_if_rated, value)
    error = np.where(rated, np.abs(np.clip(stars, 0, manifest.rating_levels[-1]) - actual), 0)
    missed_stars = truth.ratings.sum(axis=1)[row] - actual.sum(axis=1)
    claimed = claimed_rated(block, answer, manifest) & given
    scores = {
        "rating_accuracy": accuracy,
        "rated_rating_accuracy": ratio(right_rated, n_rated),
        "rating_mae": ratio(error.sum(axis=1) + missed_stars, n_rated),
        "rated_set_f1": ratio(2 * (claimed & rated).sum(axis=1), claimed.sum(axis=1) + n_rated),
    }
    strength = rated_strength(block, value, answer, manifest)
    scores |= _rank_scores(strength, given, rated, n_rated, manifest.n_items)
    return scores


def _first(*answers: np.ndarray | None) -> np.ndarray:
    """Row by row the first answer that is given."""
    given = [answer for answer in answers if answer is not None]
    found = given[-1]
    for answer in given[-2::-1]:
        found = np.where(np.isnan(answer), found, answer)
    return found


def lookup(
    truth: Truth, row: np.ndarray, index: np.ndarray, shape: tuple[int, ...]
) -> Float[np.ndarray, "users rows"]:
    """Look up the rating of each (client, item)."""
    n_columns = truth.ratings.shape[1]
    index = np.minimum(index, n_columns)  # beyond the last rated item: the empty last column
    if index.shape[0] == 1 and n_columns <= DENSE * index.size + BLOCK_ROWS // row.size:
        dense = np.zeros((row.size, n_columns + 1))
        dense[:, :n_columns] = truth.ratings[row].toarray()
        return dense[:, index[0]]
    if not truth.ratings.nnz:
        return np.zeros(shape)
    indptr, columns = truth.ratings.indptr, truth.ratings.indices.astype(np.int64)
    owner = np.repeat(np.arange(truth.users.size), np.diff(indptr))
    key = owner * (n_columns + 1) + columns
    wanted = row[:, None] * (n_columns + 1) + index
    place = np.minimum(np.searchsorted(key, wanted), key.size - 1)
    return np.where(key[place] == wanted, truth.ratings.data[place], 0.0).reshape(shape)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1 in each row, equal values their mean; ``scipy.stats`` takes a second to import."""
    order = np.argsort(values, axis=1)
    ascending = np.take_along_axis(values, order, axis=1)
    place = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    another = ascending[:, 1:] != ascending[:, :-1]
    ends = np.ones((values.shape[0], 1), bool)
    first = np.maximum.accumulate(np.where(np.hstack([ends, another]), place, 0), axis=1)
    last = np.where(np.hstack([another, ends]), place, values.shape[1])
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first + last) / 2 + 1, axis=1)
    return ranks


def _rank_scores(
    strength: np.ndarray,
    given: np.ndarray,
    rated: np.ndarray,
    n_rated: np.ndarray,
    n_items: int,
) -> dict[str, np.ndarray]:
    """AUC and TPR at FPR 0.1 % over all items; items without a row rank last, tied."""
    n_unrated = n_items - n_rated
    given_rated = rated.sum(axis=1)
    given_unrated = given.sum(axis=1) - given_rated
    silent_unrated = n_unrated - given_unrated
    missed = n_rated - given_rated
    ranks = _ranks(np.where(given, strength, np.inf))
    wins = (ranks * rated).sum(axis=1) - given_rated * (given_rated + 1) / 2
    wins += given_rated * silent_unrated + missed * silent_unrated / 2
    allowed = np.floor(FALSE_POSITIVE_RATE * n_unrated).astype(np.int64)
    unrated = -np.sort(-np.where(given & ~rated, strength, -np.inf), axis=1)
    column = np.minimum(allowed, unrated.shape[1] - 1)
    threshold = np.take_along_axis(unrated, column[:, None], axis=1)
    threshold[allowed >= unrated.shape[1]] = -np.inf
    above = (rated & (strength > threshold)).sum(axis=1)
    return {
        "rated_set_auc": ratio(wins, n_rated * n_unrated),
        "tpr_at_fpr_0.1pct": np.where(n_unrated > 0, ratio(above, n_rated), np.nan),
    }
