"""Of whom more is read than the mean says: the worst-off tenth, clients and items in thirds.

These numbers describe. They have an interval and a guess, but no advantage and no verdict, so that no bar and
no correction for many answers speaks of them. The worst-off tenth is chosen after the fact, and lies above
the mean by chance alone: beside it stands the tenth for which a guess is most right.

Groups with fewer clients than a verdict takes are left out, and so are thirds where all are alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.base import Estimates, Reconstruction
from audit.scoring.answers import Answers, parts_of, ratio
from audit.scoring.statistics import CONFIDENCE, FEWEST, RESAMPLE_CELLS, RESAMPLES
from audit.scoring.truth import Truth
from audit.scoring.verdicts import PerClient, Score
from victims.common.seeds import Purpose, generator
from victims.transcript.manifest import Manifest

OF_RATINGS = "rated_rating_accuracy"
SPLIT = (OF_RATINGS, "rated_set_auc", "attribute_group_accuracy")
TENTH, WORST = 0.1, "worst_tenth"
BY_ACTIVITY = ("few_ratings", "some_ratings", "many_ratings")
BY_POPULARITY = ("rare_items", "common_items", "popular_items")
GROUP_METRICS = (
    *(f"{metric}/{group}" for metric in SPLIT for group in (WORST, *BY_ACTIVITY)),
    *(f"{OF_RATINGS}/{group}" for group in BY_POPULARITY),
)


@dataclass(frozen=True)
class GroupScore:
    """A metric of some clients, or of answers about some items."""

    metric: str  # one of ``GROUP_METRICS``
    value: float  # mean over clients, and its 95 % percentile bootstrap interval
    ci_low: float
    ci_high: float
    # of the best guess, for the same clients and items; of the worst tenth, for its own tenth
    baseline: float
    baseline_name: str
    n_users: int  # clients of the group, and how many of them got no answer
    n_abstained: int


def group_scores(
    scores: Sequence[Score], found: Reconstruction, manifest: Manifest, truth: Truth, seed: int = 0
) -> list[GroupScore]:
    """Score groups of clients and of items."""
    users = np.unique(found.users)
    split = [(one, one.clients) for one in scores if one.metric in SPLIT and one.clients is not None]
    split = [(one, each) for one, each in split if not np.isnan(one.summary.value)]
    if users.size < FEWEST or not split:
        return []
    row = truth.rows(users)
    n_rated = np.diff(truth.ratings.indptr)[row]
    draws = list(_draws(users.size, seed))
    out = []
    for one, each in split:
        out.append(_worst(one.metric, each, draws))
        guess = each.guesses[one.baseline_name]
        columns = {
            f"{one.metric}/{name}": _Column(np.where(third, each.values, np.nan), guess, one.baseline_name)
            for name, third in _thirds(n_rated, BY_ACTIVITY).items()
        }
        out += _means(columns, each.silent, draws)
        if one.metric == OF_RATINGS:
            out += _of_items(found.blocks, manifest, truth, users, each, draws)
    return [one for one in out if one.n_users >= FEWEST]


class _Column(NamedTuple):
    """Values (n_users,), NaN outside of the group; the guess beside them, and its name."""

    values: Float[np.ndarray, " users"]
    guess: Float[np.ndarray, " users"]
    name: str


def _draws(n_users: int, seed: int) -> Iterator[Float[np.ndarray, "resamples users"]]:
    """How often each client is in each bootstrap sample, some samples at a time."""
    rng = generator(seed, Purpose.BOOTSTRAP)
    step = max(1, RESAMPLE_CELLS // n_users)
    for first in range(0, RESAMPLES, step):
        size = min(step, RESAMPLES - first)
        drawn = rng.integers(n_users, size=(size, n_users)) + n_users * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * n_users).reshape(size, n_users).astype(np.float64)


def _worst(metric: str, each: PerClient, draws: Sequence[np.ndarray]) -> GroupScore:
    defined = ~np.isnan(each.values)
    count = int(np.ceil(TENTH * defined.sum()))
    order = np.argsort(-each.values[defined], kind="stable")
    ranked = each.values[defined][order]
    resampled = []
    for drawn in draws:
        taken = np.minimum(np.cumsum(drawn[:, defined][:, order], axis=1), count)
        taken = taken[taken[:, -1] > 0]  # of a resample without any of these clients nothing is said
        resampled.append(np.diff(taken, axis=1, prepend=0) @ ranked / taken[:, -1])
    guesses = {
        name: float(np.sort(values[defined & ~np.isnan(values)])[-count:].mean())
        for name, values in each.guesses.items()
        if not np.isnan(values[defined]).all()
    }
    name = max(guesses, key=guesses.__getitem__)
    low, high = _ends(np.concatenate(resampled))
    silent = int(each.silent[defined][order][:count].sum())
    value = float(ranked[:count].mean())
    return GroupScore(f"{metric}/{WORST}", value, low, high, guesses[name], name, int(defined.sum()), silent)


def _means(
    columns: Mapping[str, _Column],
    silent: np.ndarray,
    draws: Sequence[np.ndarray],
) -> list[GroupScore]:
    """Means of columns over the clients where they are defined, and of the guesses beside them."""
    if not columns:
        return []
    table = np.stack([column.values for column in columns.values()], axis=1)
    inside = ~np.isnan(table)
    filled, weight = np.where(inside, table, 0.0), inside.astype(np.float64)
    resampled = np.concatenate([ratio(drawn @ filled, drawn @ weight) for drawn in draws])
    out = []
    for place, (metric, (values, guess, name)) in enumerate(columns.items()):
        members = inside[:, place]
        if not members.any():
            continue
        low, high = _ends(resampled[:, place])
        out.append(
            GroupScore(
                metric, float(values[members].mean()), low, high, float(guess[members].mean()),
                name, int(members.sum()), int((members & silent).sum()),
            )
        )  # fmt: skip
    return out


def _ends(resampled: Float[np.ndarray, " resamples"]) -> tuple[float, float]:
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.nanpercentile(resampled, [tail, 100 - tail])
    return float(low), float(high)


def _thirds(counts: Int[np.ndarray, " some"], names: Sequence[str]) -> dict[str, np.ndarray]:
    """Who is in the lowest third, the middle one and the highest; nothing where all are alike."""
    first, second = np.quantile(counts, [1 / 3, 2 / 3])
    groups = (counts <= first, (counts > first) & (counts <= second), counts > second)
    there = {name: group for name, group in zip(names, groups, strict=True) if group.any()}
    return there if len(there) > 1 else {}


def _of_items(
    blocks: Sequence[Estimates],
    manifest: Manifest,
    truth: Truth,
    users: Int[np.ndarray, " users"],
    each: PerClient,
    draws: Sequence[np.ndarray],
) -> list[GroupScore]:
    """Ratings right by how many clients rated the item; each class holds about a third of all ratings."""
    raters = np.bincount(truth.ratings.indices, minlength=truth.ratings.shape[1])
    classes = _thirds(raters[truth.ratings.indices], BY_POPULARITY)  # quantiles over ratings
    if not classes:
        return []
    edges = [-1, *(raters[truth.ratings.indices][one].max() for one in classes.values())]
    item_classes = [(raters > low) & (raters <= high) for low, high in pairwise(edges)]
    right, rated = _right_by_class(blocks, manifest, truth, users, item_classes)
    columns = {}
    for label, one, hits, there in zip(classes, item_classes, right.T, rated.T, strict=True):
        guess, name = _guess_of(truth, users, one, len(manifest.rating_levels))
        columns[f"{OF_RATINGS}/{label}"] = _Column(
            np.where(each.silent, guess, ratio(hits, there)), guess, name
        )
    return _means(columns, each.silent, draws)


def _right_by_class(
    blocks: Sequence[Estimates],
    manifest: Manifest,
    truth: Truth,
    users: Int[np.ndarray, " users"],
    classes: Sequence[np.ndarray],
) -> tuple[Float[np.ndarray, "users classes"], Float[np.ndarray, "users classes"]]:
    """Ratings read right of each client, and ratings that there are, by class of items."""
    ratings = truth.ratings[truth.rows(users)]
    owner = np.repeat(np.arange(users.size), np.diff(ratings.indptr))
    rated = np.stack(
        [np.bincount(owner, one[ratings.indices], minlength=users.size) for one in classes], axis=1
    )
    right = np.zeros_like(rated)
    for block in parts_of(blocks):
        hit = Answers(block, manifest, truth).right_if_rated
        place = np.searchsorted(users, block.users)
        for number, one in enumerate(classes):
            inside = one[np.minimum(block.index, one.size - 1)]
            right[place, number] += (hit & inside).sum(axis=1)
    return right, rated


def _guess_of(
    truth: Truth, users: Int[np.ndarray, " users"], items: Bool[np.ndarray, " items"], n_levels: int
) -> tuple[Float[np.ndarray, " users"], str]:
    """The better of the commonest rating and any rating, for each client's ratings of some items."""
    levels, counts = np.unique(truth.ratings.data, return_counts=True)
    ratings = truth.ratings[truth.rows(users)]
    owner = np.repeat(np.arange(users.size), np.diff(ratings.indptr))
    inside = items[ratings.indices]
    commonest = inside & (ratings.data == levels[counts.argmax()])
    majority = ratio(*(np.bincount(owner, one, minlength=users.size) for one in (commonest, inside)))
    uniform = np.where(np.isnan(majority), np.nan, 1 / n_levels)
    better = np.isnan(majority).all() or np.nanmean(majority) >= 1 / n_levels
    return (majority, "majority") if better else (uniform, "uniform")
