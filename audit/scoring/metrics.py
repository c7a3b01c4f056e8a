"""How right a reconstruction is, client by client: the table of all metrics.

Names are public (docs/reference/metrics.md). A new metric is a function of ``Answers`` here, one of a
``Population`` in ``audit.scoring.baselines``, and one entry of ``METRICS``, which says how it is scored and
judged. Who may name it in ``--fail-on``, and which tables show it, ARCHITECTURE.md says.

Each metric uses the answer to its own question, where a reconstruction carries one: ``rating_accuracy`` and
``users_fully_recovered`` the answer itself, ``rated_rating_accuracy`` the best rating given that the item is
rated, ``rating_mae`` the median of that posterior, the rated-set metrics the probability that the item is
rated. Without them (other software, the paper's solvers) the answer itself stands for all.

Of answers that leave open by how many levels all of a client's ratings are to be shifted, or whether they
are upside down as well (``attacks.base.RELATIVE``), it is asked which differences of two of its ratings are
right, or which absolute differences: a number that is added to all answers takes nothing away from that.

Paper 001 counts a user's learned latent vector among what must stay private (its section 1).
``factor_cosine`` is the cosine of the angle between p_i as recovered and as it was, without its sign: the
line that every single row of a client gives away, length and sign being what it leaves open.
``factor_relative_error`` is |recovered - true| / |true|, which asks for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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


def rating_accuracy(of: Answers) -> PerUser:
    """Share of all items, or of those that are rated or answered, whose answer is right."""
    right = of.right.sum(axis=1)
    if of.manifest.weighting == "include-unrated":
        # an item without a row is answered "unrated": right unless it is rated
        return (right + of.n_unanswered_unrated) / of.manifest.n_items
    return ratio(right, of.given.sum(axis=1) + of.n_missed)


def rated_rating_accuracy(of: Answers) -> PerUser:
    """Share of the rated items whose rating is right."""
    return ratio(of.right_if_rated.sum(axis=1), of.n_rated)


def rating_mae(of: Answers) -> PerUser:
    """Mean absolute error of the ratings; one without an answer counts as 0 stars."""
    most = of.manifest.rating_levels[-1]
    error = np.where(of.rated, np.abs(np.clip(of.stars, 0, most) - of.actual), 0)
    missed = of.truth.ratings.sum(axis=1)[of.row] - of.actual.sum(axis=1)
    return ratio(error.sum(axis=1) + missed, of.n_rated)


def difference_accuracy(of: Answers, absolute: bool = False) -> PerUser:
    """Share of the pairs of a client's ratings whose difference is right, or its size."""
    pairs = Pairs(np.nonzero(of.rated)[0], of.n_rated.astype(int))
    away = (of.rounded - of.actual)[of.rated]
    right = pairs.alike(away)
    if absolute:  # either way round; where there is no difference, both are right
        turned = (of.rounded + of.actual)[of.rated]
        right = right + pairs.alike(turned) - pairs.alike(away, turned)
    return np.where(of.given.any(axis=1), pairs.share(right), np.nan)


def rated_set_auc(of: Answers) -> PerUser:
    """Area under the ROC curve of "is it rated" over all items; those without a row rank last, tied."""
    n_given_rated = of.rated.sum(axis=1)
    ranks = _ranks(np.where(of.given, of.strength, np.inf))
    wins = (ranks * of.rated).sum(axis=1) - n_given_rated * (n_given_rated + 1) / 2
    wins += n_given_rated * of.n_unanswered_unrated + of.n_missed * of.n_unanswered_unrated / 2
    return ratio(wins, of.n_rated * (of.manifest.n_items - of.n_rated))


def rated_set_f1(of: Answers) -> PerUser:
    """F1 of the items that are claimed to be rated."""
    hits = (of.claimed & of.rated).sum(axis=1)
    return ratio(2 * hits, of.claimed.sum(axis=1) + of.n_rated)


def tpr_at_low_fpr(of: Answers) -> PerUser:
    """Share of the rated items that rank above all but 0.1 % of the unrated ones."""
    n_unrated = of.manifest.n_items - of.n_rated
    allowed = np.floor(FALSE_POSITIVE_RATE * n_unrated).astype(np.int64)
    unrated = -np.sort(-np.where(of.given & ~of.rated, of.strength, -np.inf), axis=1)
    column = np.minimum(allowed, unrated.shape[1] - 1)
    threshold = np.take_along_axis(unrated, column[:, None], axis=1)
    threshold[allowed >= unrated.shape[1]] = -np.inf
    above = (of.rated & (of.strength > threshold)).sum(axis=1)
    return np.where(n_unrated > 0, ratio(above, of.n_rated), np.nan)


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


def attribute_accuracy(of: Answers) -> PerUser:
    """Share of the attributes, each 0 or 1, that are right; NaN where the answer is about ratings alone."""
    right = ((of.attributes > 0.5) == (of.actual_attributes > 0.5)).mean(axis=1)
    return np.where(of.says_attributes, right, np.nan)


def attribute_groups(of: Answers, block: int | None = None) -> PerUser:
    """Share of the one-hot blocks, or one block, whose largest estimate is at the active attribute."""
    groups = of.manifest.attribute_groups
    chosen = groups if block is None else [groups[block]]
    hits = [active_hits(of.attributes, of.actual_attributes, group) for group in chosen]
    return np.where(of.says_attributes, mean_hits(hits) if block is None else hits[0], np.nan)


def users_fully_recovered(of: Answers) -> PerUser:
    """1 where all ratings and attributes of a client are right."""
    right = (rating_accuracy(of) == 1).astype(float)
    if not of.manifest.n_attributes:
        return right
    attributes = attribute_accuracy(of)
    return np.where(np.isnan(attributes), np.nan, right * (attributes == 1))


def factor_cosine(of: Factors) -> PerUser:
    """|cos| of the angle between the recovered factor and the true one."""
    return of.cosine(of.read)


def factor_relative_error(of: Factors) -> PerUser:
    """Distance of the recovered factor from the true one, as a share of the true one's length."""
    return of.error(of.read)


def _no_single_ratings(_: Manifest) -> None:
    return None


@dataclass(frozen=True)
class Metric:
    """What is measured of each client, and how it is judged."""

    name: str  # public
    unit: str
    score: Callable[..., PerUser]  # of ``Answers``, or of ``Factors``
    baselines: Callable[..., Candidates]  # of a ``Population``, or of ``Factors``
    scopes: tuple[Scope, ...]  # answers of which kinds it is asked of; none: of factors
    # of answers that are all right: what nothing passes where no defense sets a lower ceiling. 0 is that of
    # an error, which is better where it is lower
    best: float = 1.0
    # of a client it is 0 or 1, so that a sample in which nobody has it bounds little
    yes_or_no: bool = False
    # how many ratings of a client are taken as known where the metric is the share of the others that is
    # exactly right (``statistics.ratings_test``); None where it is no such share, or counts near misses
    known_ratings: Callable[[Manifest], int | None] = _no_single_ratings
    of_attributes: bool = False  # where clients have attributes, an answer without any has no value
    defined: Callable[[Manifest], bool] = lambda manifest: True
    by_block: bool = False  # it is also reported for each one-hot block of attributes, as NAME/NUMBER

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

#: In the order of the result tables.
METRICS = (
    Metric(
        "rating_accuracy", "share of items", rating_accuracy, baselines.rating_accuracy, WHOLE,
        known_ratings=lambda manifest: 0 if manifest.weighting == "observed-only" else None,
    ),
    Metric(
        "rated_rating_accuracy", "share of ratings", rated_rating_accuracy, baselines.rated_rating_accuracy,
        WHOLE, known_ratings=lambda _: 0,
    ),
    Metric("rating_mae", "stars", rating_mae, baselines.rating_mae, WHOLE, best=0.0),
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
        WHOLE, yes_or_no=True, of_attributes=True,
    ),
    Metric("factor_cosine", "cosine", factor_cosine, baselines.factor_cosine, ()),
    Metric(
        "factor_relative_error", "share of the length", factor_relative_error,
        baselines.factor_relative_error, (), best=0.0,
    ),
)  # fmt: skip
ERRORS = frozenset(one.name for one in METRICS if one.lower_is_better)
RATED_SET_METRICS = tuple(one.name for one in METRICS if one.of_lists)
RATING_METRICS = ("rating_accuracy", "rated_rating_accuracy", "rating_mae", *RATED_SET_METRICS)
FACTOR_METRICS = tuple(one.name for one in METRICS if one.of_factors)


def metrics_of(manifest: Manifest, scope: Scope = Scope.RATINGS_AND_ATTRIBUTES) -> list[Metric]:
    """List the metrics that are asked of answers about a protocol, in the order of the result tables."""
    asked = []
    for one in METRICS:
        if scope not in one.scopes or not one.defined(manifest):
            continue
        asked.append(one)
        for block in range(len(manifest.attribute_groups) if one.by_block else 0):
            score, guess = partial(one.score, block=block), partial(one.baselines, block=block)
            asked.append(replace(one, name=f"{one.name}/{block}", score=score, baselines=guess))
    return asked


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
    values: UserScores = {one.name: np.full(users.size, np.nan) for one in metrics}
    for part in parts_of(blocks):
        answered = ~np.isnan(part.value).all(axis=1)
        if not answered.any():
            continue
        here = np.searchsorted(users, part.users)[answered]
        answers: Any = Answers(part, manifest, truth)
        for one in metrics:
            values[one.name][here] = one.score(answers)[answered]
    return values
