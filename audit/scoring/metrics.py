"""How right a reconstruction is, client by client: the table of all metrics.

Names are public (docs/reference/metrics.md). A new metric is a function of ``Answers`` here, one of a
``Population`` in ``audit.scoring.baselines``, and one entry of ``METRICS``, which says how it is scored and
judged. Who may name it in ``--fail-on``, and which tables show it, ARCHITECTURE.md says.

Each metric uses the answer to its own question, where a reconstruction carries one: ``rating_accuracy`` and
``users_fully_recovered`` the answer itself, ``rated_rating_accuracy`` the best rating given that the item is
rated, ``rating_mae`` the median of that posterior, the rated-set metrics the probability that the item is
rated. Without them (other software, the paper's solvers) the answer itself stands for all.

Answers that identify a client's ratings up to a shift, or up to shift and sign (``attacks.base.RELATIVE``),
are scored by differences of two of its ratings, or by absolute differences, which neither changes.

Chai et al. 2020 count a user's factor among what must stay private (section 1). ``factor_cosine`` is the
absolute cosine of the angle between the recovered and the true p_i: the direction that a single row of a
client reveals, whose length and sign it does not.
``factor_relative_error`` is |recovered - true| / |true|, which asks for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from jaxtyping import Float, Int

from attacks.base import RELATIVE, Estimates, Scope
from audit.scoring import baselines
from audit.scoring.answers import Answers, Factors, Pairs, active_hits, mean_hits, parts_of, ratio
from audit.scoring.baselines import FALSE_POSITIVE_RATE, Candidates
from audit.scoring.truth import Truth
from victims.transcript.manifest import Manifest

PerUser = Float[np.ndarray, " users"]
UserScores = dict[str, PerUser]
"""Metric name -> its value for each client; NaN where it is not defined."""


def rating_accuracy(answers: Answers) -> PerUser:
    """Share of all items, or of those that are rated or answered, whose answer is right."""
    right = answers.right.sum(axis=1)
    if answers.manifest.weighting == "include-unrated":
        # an item without a row is answered "unrated": right unless it is rated
        return (right + answers.n_unanswered_unrated) / answers.manifest.n_items
    return ratio(right, answers.given.sum(axis=1) + answers.n_missed)


def rated_rating_accuracy(answers: Answers) -> PerUser:
    """Share of the rated items whose rating is right."""
    return ratio(answers.right_if_rated.sum(axis=1), answers.n_rated)


def rating_mae(answers: Answers) -> PerUser:
    """Mean absolute error of the ratings; one without an answer counts as 0 stars."""
    most = answers.manifest.rating_levels[-1]
    errors = np.where(answers.rated, np.abs(np.clip(answers.stars, 0, most) - answers.actual), 0)
    missed = answers.truth.ratings.sum(axis=1)[answers.row] - answers.actual.sum(axis=1)
    return ratio(errors.sum(axis=1) + missed, answers.n_rated)


def difference_accuracy(answers: Answers, absolute: bool = False) -> PerUser:
    """Share of the pairs of a client's ratings whose difference, or absolute difference, is right."""
    pairs = Pairs(np.nonzero(answers.rated)[0], answers.n_rated.astype(int))
    shift = (answers.rounded - answers.actual)[answers.rated]  # equal where the difference is right
    right = pairs.count_equal(shift)
    if absolute:  # with either sign; where there is no difference, both are right
        reversed_shift = (answers.rounded + answers.actual)[answers.rated]
        right = right + pairs.count_equal(reversed_shift) - pairs.count_equal(shift, reversed_shift)
    return np.where(answers.given.any(axis=1), pairs.share(right), np.nan)


def rated_set_auc(answers: Answers) -> PerUser:
    """Area under the ROC curve of "is it rated" over all items; those without a row rank last, tied."""
    n_given_rated = answers.rated.sum(axis=1)
    ranks = _ranks(np.where(answers.given, answers.strength, np.inf))
    wins = (ranks * answers.rated).sum(axis=1) - n_given_rated * (n_given_rated + 1) / 2
    wins += n_given_rated * answers.n_unanswered_unrated + answers.n_missed * answers.n_unanswered_unrated / 2
    return ratio(wins, answers.n_rated * (answers.manifest.n_items - answers.n_rated))


def rated_set_f1(answers: Answers) -> PerUser:
    """F1 of the items that are claimed to be rated."""
    hits = (answers.claimed & answers.rated).sum(axis=1)
    return ratio(2 * hits, answers.claimed.sum(axis=1) + answers.n_rated)


def tpr_at_low_fpr(answers: Answers) -> PerUser:
    """Share of the rated items that rank above all but 0.1 % of the unrated ones."""
    n_unrated = answers.manifest.n_items - answers.n_rated
    allowed = np.floor(FALSE_POSITIVE_RATE * n_unrated).astype(np.int64)
    unrated = -np.sort(-np.where(answers.given & ~answers.rated, answers.strength, -np.inf), axis=1)
    column = np.minimum(allowed, unrated.shape[1] - 1)
    threshold = np.take_along_axis(unrated, column[:, None], axis=1)
    threshold[allowed >= unrated.shape[1]] = -np.inf
    above = (answers.rated & (answers.strength > threshold)).sum(axis=1)
    return np.where(n_unrated > 0, ratio(above, answers.n_rated), np.nan)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1 in each row, equal values their mean; ``scipy.stats`` takes a second to import."""
    order = np.argsort(values, axis=1)
    ascending = np.take_along_axis(values, order, axis=1)
    position = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    changes = ascending[:, 1:] != ascending[:, :-1]
    ends = np.ones((values.shape[0], 1), bool)
    first = np.maximum.accumulate(np.where(np.hstack([ends, changes]), position, 0), axis=1)
    last = np.where(np.hstack([changes, ends]), position, values.shape[1])
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first + last) / 2 + 1, axis=1)
    return ranks


def attribute_accuracy(answers: Answers) -> PerUser:
    """Share of the attributes, each 0 or 1, that are right; NaN where the answer is about ratings alone."""
    right = ((answers.attributes > 0.5) == (answers.actual_attributes > 0.5)).mean(axis=1)
    return np.where(answers.says_attributes, right, np.nan)


def attribute_groups(answers: Answers, block: int | None = None) -> PerUser:
    """Share of the one-hot blocks, or one block, whose largest estimate is at the active attribute."""
    groups = answers.manifest.attribute_groups
    chosen = groups if block is None else [groups[block]]
    hits = [active_hits(answers.attributes, answers.actual_attributes, group) for group in chosen]
    return np.where(answers.says_attributes, mean_hits(hits) if block is None else hits[0], np.nan)


def users_fully_recovered(answers: Answers) -> PerUser:
    """1 where all ratings and attributes of a client are right."""
    right = (rating_accuracy(answers) == 1).astype(float)
    if not answers.manifest.n_attributes:
        return right
    attributes = attribute_accuracy(answers)
    return np.where(np.isnan(attributes), np.nan, right * (attributes == 1))


def factor_cosine(factors: Factors) -> PerUser:
    """|cos| of the angle between the recovered factor and the true one."""
    return factors.cosine(factors.recovered)


def factor_relative_error(factors: Factors) -> PerUser:
    """Distance of the recovered factor from the true one, as a share of the true one's length."""
    return factors.relative_error(factors.recovered)


@dataclass(frozen=True)
class Metric:
    """What is measured of each client, and how it is judged."""

    name: str  # public
    unit: str
    score: Callable[..., PerUser]  # of ``Answers``, or of ``Factors``
    baselines: Callable[..., Candidates]  # of a ``Population``, or of ``Factors``
    scopes: tuple[Scope, ...]  # answers of which kinds it is asked of; none: of factors
    best: float = 1.0  # when all answers are right; 0 for an error, which is better where it is lower
    binary: bool = False  # 0 or 1 for each client: a sample in which all are 0 bounds little
    # how many ratings of a client are taken as known, where the metric is the share of the others that are
    # exactly right (``statistics.ratings_test``); None where it is no such share, or counts near misses
    known_ratings: Callable[[Manifest], int | None] = lambda manifest: None
    of_attributes: bool = False  # where clients have attributes, an answer without any has no value
    defined: Callable[[Manifest], bool] = lambda manifest: True
    by_block: bool = False  # also reported for each one-hot block of attributes, as NAME/NUMBER

    @property
    def lower_is_better(self) -> bool:
        """Whether it is an error."""
        return self.best == 0

    @property
    def of_factors(self) -> bool:
        """Whether it is about the clients' factors."""
        return not self.scopes

    @property
    def of_lists(self) -> bool:
        """Whether it asks which items are rated, and not how."""
        return Scope.RATED_SET in self.scopes


WHOLE = (Scope.RATINGS_AND_ATTRIBUTES,)
ATTRIBUTES = (*WHOLE, *RELATIVE)
LISTS = (*ATTRIBUTES, Scope.RATED_SET)
DIFFERENCES, SIZES = "rating_difference_accuracy", "rating_difference_size_accuracy"


def _many_levels(manifest: Manifest) -> bool:
    """Whether ratings differ; each of implicit feedback is 1, so that who names an item knows its rating."""
    return len(manifest.rating_levels) != 1


def _more_than_lists(manifest: Manifest) -> bool:
    """Whether answers about the items of an upload say more than which of them are rated."""
    return manifest.weighting != "observed-only" or _many_levels(manifest)


#: In the order of the result tables.
METRICS = (
    Metric(
        "rating_accuracy", "share of items", rating_accuracy, baselines.rating_accuracy, WHOLE,
        known_ratings=lambda manifest: 0 if manifest.weighting == "observed-only" else None,
        defined=_more_than_lists,
    ),
    Metric(
        "rated_rating_accuracy", "share of ratings", rated_rating_accuracy, baselines.rated_rating_accuracy,
        WHOLE, known_ratings=lambda _: 0, defined=_many_levels,
    ),
    Metric(
        "rating_mae", "stars", rating_mae, baselines.rating_mae, WHOLE, best=0.0, defined=_more_than_lists
    ),
    Metric(
        DIFFERENCES, "share of pairs of ratings", difference_accuracy, baselines.differences,
        (Scope.DIFFERENCES,), known_ratings=lambda _: 1,
    ),
    Metric(
        SIZES, "share of pairs of ratings", partial(difference_accuracy, absolute=True),
        baselines.difference_sizes, (Scope.SIZES,),
        # a rating that is turned at the middle leaves distances to middle ones as they are
        known_ratings=lambda manifest: 2 if len(manifest.rating_levels) <= 2 else None,
    ),
    Metric("rated_set_auc", "area", rated_set_auc, baselines.rated_set_auc, LISTS),
    Metric("rated_set_f1", "F1", rated_set_f1, baselines.rated_set_f1, LISTS),
    Metric("tpr_at_fpr_0.1pct", "share of rated items", tpr_at_low_fpr, baselines.tpr_at_low_fpr, LISTS),
    Metric(
        "attribute_accuracy", "share of attributes", attribute_accuracy, baselines.attribute_accuracy,
        ATTRIBUTES, of_attributes=True, defined=lambda manifest: manifest.n_attributes > 0,
    ),
    Metric(
        "attribute_group_accuracy", "share of one-hot blocks", attribute_groups, baselines.attribute_groups,
        ATTRIBUTES, of_attributes=True, defined=lambda manifest: bool(manifest.attribute_groups),
        by_block=True,
    ),
    Metric(
        "users_fully_recovered", "share of clients", users_fully_recovered, baselines.users_fully_recovered,
        WHOLE, binary=True, of_attributes=True,
        defined=lambda manifest: manifest.n_attributes > 0 or _more_than_lists(manifest),
    ),
    Metric("factor_cosine", "cosine", factor_cosine, baselines.factor_cosine, ()),
    Metric(
        "factor_relative_error", "share of the length", factor_relative_error,
        baselines.factor_relative_error, (), best=0.0,
    ),
)  # fmt: skip
ERRORS = frozenset(metric.name for metric in METRICS if metric.lower_is_better)
RATED_SET_METRICS = tuple(metric.name for metric in METRICS if metric.of_lists)
RATING_METRICS = ("rating_accuracy", "rated_rating_accuracy", "rating_mae", *RATED_SET_METRICS)
FACTOR_METRICS = tuple(metric.name for metric in METRICS if metric.of_factors)


def metrics_of(manifest: Manifest, scope: Scope = Scope.RATINGS_AND_ATTRIBUTES) -> list[Metric]:
    """List the metrics that are asked of answers about a protocol, in the order of the result tables."""
    metrics = []
    for metric in METRICS:
        if scope not in metric.scopes or not metric.defined(manifest):
            continue
        metrics.append(metric)
        for block in range(len(manifest.attribute_groups) if metric.by_block else 0):
            score, guesses = partial(metric.score, block=block), partial(metric.baselines, block=block)
            metrics.append(replace(metric, name=f"{metric.name}/{block}", score=score, baselines=guesses))
    return metrics


def score_users(
    blocks: Sequence[Estimates],
    manifest: Manifest,
    truth: Truth,
    users: Int[np.ndarray, " users"],
    scope: Scope = Scope.RATINGS_AND_ATTRIBUTES,
) -> UserScores:
    """Score every client of ``users``; one without estimates gets NaN throughout."""
    truth.refuse_unless_of(users)
    metrics = metrics_of(manifest, scope)
    scores: UserScores = {metric.name: np.full(users.size, np.nan) for metric in metrics}
    for part in parts_of(blocks):
        answered = ~np.isnan(part.value).all(axis=1)
        if not answered.any():
            continue
        rows = np.searchsorted(users, part.users)[answered]
        answers = Answers(part, manifest, truth)
        for metric in metrics:
            scores[metric.name][rows] = metric.score(answers)[answered]
    return scores
