"""What no attack should pass, and the ceiling where clients train on ratings of which they send nothing.

DPMF-Yang turns a share of the rated pairs into positives: their rows say that an item is rated, and no number
of stars. DMF with ``positive_share`` sends nothing about them at all. No attack reads those ratings from
rows; it may guess them. The decoder here reads every rating that an explicit row carries. To maximum
likelihood all levels of the others are alike, and it takes the most frequent one. A posteriori it guesses
with all other ratings in hand: how often the client gave each level elsewhere, and how often others gave it
to the item, as if the two were independent given the rating (naive Bayes; as many ratings as there are
levels, with the overall frequencies, are added to both counts).

What it is no limit for: an attack that knows more of how ratings go together than that. Where nothing says
that an item is rated (DMF) the decoder is told so, as the guess beside it is, and of the metrics of rated
sets there is no limit. Under noise ``audit.scoring.decoder`` has the ceilings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.base import Estimates
from audit.scoring.metrics import RATED_SET_METRICS, Metric, score_users
from audit.scoring.truth import Truth
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM, View

TOGETHER = 256  # clients that are laid out at once


class Ceiling(NamedTuple):
    """What a decoder with help reads of each client, by maximum likelihood and a posteriori.

    users (n_users,) ascending; ml, map (n_users,): NaN where the metric is not defined.
    """

    users: Int[np.ndarray, " users"]
    ml: Float[np.ndarray, " users"]
    map: Float[np.ndarray, " users"]


class Limit(NamedTuple):
    """Means of a ``Ceiling`` over the clients that are scored, and what no attack should pass: the better of
    both, or the best guess where that is better, for whoever has help may still guess.
    """

    ml: float
    map: float
    best: float


def limit_of(
    metric: Metric,
    manifest: Manifest,
    ceilings: Mapping[str, Ceiling] | None,
    users: Int[np.ndarray, " users"],
    baseline: Float[np.ndarray, " users"],
) -> Limit | None:
    """Average what a decoder with help reads; a client that it says nothing of counts with the guess.

    Without a defense the decoder that is told all but one answer divides every row by p_i and reads it: all
    there is, unless clients keep some of their ratings to themselves.
    """
    if not (manifest.defenses or manifest.withholds_ratings):
        return Limit(metric.best, metric.best, metric.best)
    found, counted = (ceilings or {}).get(metric.name), ~np.isnan(baseline)
    if found is None or not counted.any():
        return None
    place = np.minimum(np.searchsorted(found.users, users), found.users.size - 1)
    there = found.users[place] == users
    ml, informed = (
        float(np.mean(np.where(np.isnan(part), baseline, part)[counted]))
        for part in (np.where(there, values[place], np.nan) for values in (found.ml, found.map))
    )
    best = min if metric.lower_is_better else max
    return Limit(ml, informed, best(ml, informed, float(np.mean(baseline[counted]))))


def withheld_obstacle(view: View) -> str:
    """Say why there is no limit for a view of a recording that withholds ratings."""
    if view.manifest.defenses:
        names = ", ".join(str(entry.get("name")) for entry in view.manifest.defenses)
        return f"some ratings are never sent, and together with {names} the limit does not model that"
    return "" if _senders(view).size else "the view has no clients"


def withheld_ceilings(view: View, truth: Truth) -> dict[str, Ceiling]:
    """The limit of every metric, for each client of a view."""
    users = _senders(view)
    row = truth.rows(users)
    rated = truth.ratings[row]
    client = np.repeat(np.arange(users.size), np.diff(rated.indptr))
    pair = _pairs(view.manifest.n_items, users[client], rated.indices)
    read = np.isin(pair, _rows_about(view))
    listed = read if view.implicit is None else read | np.isin(pair, _rows_about(view.implicit))
    scores = []
    for guess in (
        _most_frequent(truth),
        guessed(truth, np.array(view.manifest.rating_levels), row[client], rated.indices),
    ):
        value, middle = (np.where(read, rated.data, part) for part in guess)
        blocks = tuple(_blocks(users, rated.indptr, rated.indices, value, middle))
        scores.append(score_users(blocks, view.manifest, truth, users))
    ml, informed = scores
    left_out = () if listed.all() else RATED_SET_METRICS
    return {name: Ceiling(users, ml[name], informed[name]) for name in ml if name not in left_out}


def guessed(
    truth: Truth,
    levels: Float[np.ndarray, " levels"],
    row: Int[np.ndarray, " ratings"],
    item: Int[np.ndarray, " ratings"],
) -> tuple[Float[np.ndarray, " ratings"], Float[np.ndarray, " ratings"]]:
    """The most probable level of some ratings and the median, given all other ratings."""
    table = truth.ratings
    given = np.searchsorted((levels[1:] + levels[:-1]) / 2, table.data)
    owner = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))
    share = (np.bincount(given, minlength=levels.size) + 1) / (given.size + levels.size)
    own = np.eye(levels.size)[np.searchsorted((levels[1:] + levels[:-1]) / 2, _at(truth, row, item))]
    logarithm = -np.log(share)
    for group, mine, n in ((owner, row, table.shape[0]), (table.indices, item, table.shape[1])):
        count = np.bincount(group * levels.size + given, minlength=n * levels.size).reshape(n, -1)
        logarithm = logarithm + np.log(count[mine] - own + levels.size * share)
    posterior = np.exp(logarithm - logarithm.max(axis=1, keepdims=True))
    below = np.cumsum(posterior, axis=1) / posterior.sum(axis=1, keepdims=True)
    return levels[posterior.argmax(axis=1)], levels[(below >= 0.5).argmax(axis=1)]


def _most_frequent(truth: Truth) -> tuple[float, float]:
    """The most frequent rating, and the median of all."""
    level, count = np.unique(truth.ratings.data, return_counts=True)
    return float(level[count.argmax()]), float(np.quantile(truth.ratings.data, 0.5, method="higher"))


def _at(truth: Truth, row: Int[np.ndarray, " n"], item: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Ratings of pairs that are rated."""
    table = truth.ratings
    owner = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))
    keys = _pairs(table.shape[1], owner, table.indices)
    return table.data[np.searchsorted(keys, _pairs(table.shape[1], row, item))]


def _senders(view: View) -> Int[np.ndarray, " users"]:
    """Clients of whom the view has rows about either table of item factors, ascending."""
    return view.users if view.implicit is None else np.union1d(view.users, view.implicit.users)


def _rows_about(view: View) -> Int[np.ndarray, " pairs"]:
    """Pairs of a client and an item that rows of the view are about."""
    n_items, chunks = view.manifest.n_items, view.messages
    found = [np.zeros(0, np.int64)]
    for sender, kind, index in zip(chunks.sender, chunks.kind, chunks.index, strict=True):
        about = kind == ITEM
        found.append(np.unique(_pairs(n_items, sender[about], index[about])))
    return np.unique(np.concatenate(found))


def _pairs(n_items: int, user: Int[np.ndarray, " n"], item: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    return user.astype(np.int64) * n_items + item


def _blocks(
    users: Int[np.ndarray, " users"],
    indptr: Int[np.ndarray, " bounds"],
    items: Int[np.ndarray, " ratings"],
    value: Float[np.ndarray, " ratings"],
    median: Float[np.ndarray, " ratings"],
) -> Iterator[Estimates]:
    """Answers as tables with a row for each of some clients, padded to the longest."""
    edges = [*range(0, users.size, TOGETHER), users.size]
    for first, last in pairwise(edges):
        count = np.diff(indptr[first : last + 1])
        inside: Bool[np.ndarray, "some rows"] = np.arange(max(int(count.max()), 1)) < count[:, None]
        here = slice(indptr[first], indptr[last])
        answer, middle = (np.full(inside.shape, np.nan) for _ in range(2))
        index = np.zeros(inside.shape, np.int32)
        answer[inside], middle[inside], index[inside] = value[here], median[here], items[here]
        kind = np.full((1, inside.shape[1]), ITEM, np.int8)
        yield Estimates(users[first:last], kind, index, answer, median_if_rated=middle)
