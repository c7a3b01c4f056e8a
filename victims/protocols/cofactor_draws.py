"""What users who learn together draw (Yang et al. 2022): who receives whose gradients, and sampled negatives.

Trust, sections 3.3 and 4.1.3: the paper sends to ``d`` users of ``{j | i trusts j}`` and says nothing about
users who trust more, fewer or none: of FilmTrust's 1,508 users with ratings 986 trust nobody who has rated
anything. So who is chosen among more than d, and who fills up fewer, are options.

Feedback, sections 4.1.2 and 4.3: a share alpha of the observed pairs become positives and lose their rating;
the rest keep it. As many negatives as positives are drawn uniformly for every user, among the items that it
did not rate: the paper says "uniformly", and not whether an item with an explicit rating may be a negative.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int

from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.protocols.network import Edges

BLOCK = 512  # users whose similarities are held at once
Fallback = Literal["nobody", "random", "similarity"]


def trusted(ratings: Ratings, degree: int, fallback: Fallback, seed: int, draw: int) -> Edges:
    """At most ``degree`` receivers of every user, each once."""
    n_users = ratings.n_users
    degree = min(degree, n_users - 1)
    rng = generator(seed, Purpose.TRUSTED_RECEIVERS, draw)
    edges = np.unique(ratings.trust[ratings.trust[:, 0] != ratings.trust[:, 1]], axis=0)
    edges = edges[np.lexsort((rng.random(len(edges)), edges[:, 0]))]
    rank = np.arange(len(edges)) - np.searchsorted(edges[:, 0], edges[:, 0])
    edges = edges[rank < degree]
    if fallback != "nobody":
        lacking = degree - np.bincount(edges[:, 0], minlength=n_users)
        fill = _random if fallback == "random" else _similar
        edges = np.concatenate([edges, fill(ratings, edges, lacking, rng)])
    return edges_of(edges)


def walked(graph: Edges, degree: int, length: int, seed: int, draw: int) -> Edges:
    """Users met on ``degree`` random walks of ``length`` steps from every user.

    A walk goes along the edges of ``graph``, each as likely as its weight, and ends where there is none. A
    user met on several walks, or twice on one, counts as often; the walker itself does not receive.
    """
    if graph.sender.size == 0:
        return graph
    graph = _by_sender(graph)
    senders = np.unique(graph.sender)
    rng = generator(seed, Purpose.RANDOM_WALKS, draw)
    first = np.searchsorted(graph.sender, np.arange(int(graph.sender.max()) + 2))
    reached = np.cumsum(graph.weight)
    start, at = np.repeat(senders, degree), np.repeat(senders, degree)
    met = []
    for _ in range(length):
        going = at < first.size - 1
        going[going] = first[at[going]] < first[at[going] + 1]
        start, at = start[going], at[going]
        low = np.where(first[at] > 0, reached[first[at] - 1], 0.0)
        high = reached[first[at + 1] - 1]
        edge = np.searchsorted(reached, low + rng.random(at.size) * (high - low), side="right")
        at = graph.receiver[np.clip(edge, first[at], first[at + 1] - 1)]
        met.append(np.stack([start, at], axis=1))
    pairs = np.concatenate(met)
    pairs, times = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0, return_counts=True)
    return edges_of(pairs, times.astype(np.float64))


def edges_of(pairs: Int[np.ndarray, "edges 2"], weight: Float[np.ndarray, " edges"] | None = None) -> Edges:
    """Make a graph of distinct pairs of sender and receiver, in any order."""
    order = np.lexsort((pairs[:, 0], pairs[:, 1]))
    times = np.ones(len(pairs)) if weight is None else weight[order]
    return Edges(pairs[order, 0].astype(np.int32), pairs[order, 1].astype(np.int32), times)


def _by_sender(graph: Edges) -> Edges:
    order = np.lexsort((graph.receiver, graph.sender))
    return Edges(*(column[order] for column in graph))


def _random(
    ratings: Ratings,
    edges: Int[np.ndarray, "edges 2"],
    lacking: Int[np.ndarray, " users"],
    rng: np.random.Generator,
) -> Int[np.ndarray, "more 2"]:
    """Distinct users drawn at random, who are neither trusted nor the user itself."""
    n_users = ratings.n_users
    taken = np.union1d(
        edges[:, 0].astype(np.int64) * n_users + edges[:, 1], np.arange(n_users) * (n_users + 1)
    )
    return draw_absent(taken, lacking, n_users, rng)


def _similar(
    ratings: Ratings,
    edges: Int[np.ndarray, "edges 2"],
    lacking: Int[np.ndarray, " users"],
    rng: np.random.Generator,
) -> Int[np.ndarray, "more 2"]:
    """The users with the largest cosine of rated sets, the lower number first among equals."""
    rated = ratings.matrix()
    rated.data = np.ones_like(rated.data)
    length = np.sqrt(np.maximum(np.diff(ratings.indptr), 1))
    rated = sp.csr_array(sp.diags_array(1 / length) @ rated)
    found = []
    wanting = np.flatnonzero(lacking)
    for block in np.split(wanting, np.arange(BLOCK, wanting.size, BLOCK)):
        cosine = (rated[block] @ rated.T).toarray()
        cosine[np.arange(block.size), block] = -1
        inside = np.isin(edges[:, 0], block)
        cosine[np.searchsorted(block, edges[inside, 0]), edges[inside, 1]] = -1
        nearest = np.argsort(-cosine, axis=1, kind="stable")
        chosen = np.arange(nearest.shape[1]) < lacking[block][:, None]
        found.append(np.stack([np.repeat(block, lacking[block]), nearest[chosen]], axis=1))
    return np.concatenate([np.zeros((0, 2), np.int64), *found])


def draw_absent(
    taken: Int[np.ndarray, " taken"],
    counts: Int[np.ndarray, " rows"],
    n_columns: int,
    rng: np.random.Generator,
) -> Int[np.ndarray, "drawn 2"]:
    """Draw distinct columns of every row uniformly among those that are not taken."""
    free = n_columns - np.bincount(taken // n_columns, minlength=counts.size)
    wanted = np.minimum(counts, free)
    # few columns are free, or nearly all of them are drawn: shuffle what is free
    crowded = (wanted > free // 2) | (free < n_columns // 2)
    drawn = [np.zeros(0, np.int64)]
    for row in np.flatnonzero(crowded):
        low, high = np.searchsorted(taken, [row * n_columns, (row + 1) * n_columns])
        open_ = np.setdiff1d(np.arange(n_columns), taken[low:high] - row * n_columns)
        drawn.append(row * n_columns + rng.permutation(open_)[: wanted[row]])
    left, found = np.where(crowded, 0, wanted), np.zeros(0, np.int64)
    while left.any():  # a quarter of the columns is free at least, so that tries end soon
        tried = np.repeat(np.arange(counts.size, dtype=np.int64), left) * n_columns
        tried += rng.integers(0, n_columns, tried.size)
        position = np.minimum(np.searchsorted(taken, tried), taken.size - 1)
        fresh = tried[taken[position] != tried] if taken.size else tried
        found = np.union1d(found, fresh)
        left = np.where(crowded, 0, wanted) - np.bincount(found // n_columns, minlength=counts.size)
    keys = np.sort(np.concatenate([*drawn, found]))
    return np.stack([keys // n_columns, keys % n_columns], axis=1)


EXPLICIT, POSITIVE, NEGATIVE = range(3)
RatingMap = Literal["max", "min-max"]


class Samples(NamedTuple):
    """What users step on in a round, ascending by user, then kind, then item."""

    user: Int[np.ndarray, " samples"]
    item: Int[np.ndarray, " samples"]
    kind: Int[np.ndarray, " samples"]  # ``EXPLICIT``, ``POSITIVE`` or ``NEGATIVE``
    target: Float[np.ndarray, " samples"]  # ratings in 0..1 where explicit, else 0


def unit_ratings(
    values: Float[np.ndarray, " ratings"], levels: tuple[float, ...], rating_map: RatingMap
) -> Float[np.ndarray, " ratings"]:
    """Ratings on the scale 0..1.

    Examples
    --------
    >>> unit_ratings(np.array([0.5, 4.0]), (0.5, 4.0), "max").tolist()
    [0.125, 1.0]
    >>> unit_ratings(np.array([0.5, 4.0]), (0.5, 4.0), "min-max").tolist()
    [0.0, 1.0]
    """
    if rating_map == "max" or levels[-1] == levels[0]:
        return values / levels[-1]
    return (values - levels[0]) / (levels[-1] - levels[0])


def in_stars(
    unit: Float[np.ndarray, "*shape"], levels: tuple[float, ...], rating_map: RatingMap
) -> Float[np.ndarray, "*shape"]:
    """Turn numbers on the scale 0..1 back into stars; the inverse of ``unit_ratings``.

    Examples
    --------
    >>> in_stars(np.array([0.0, 1.0]), (0.5, 4.0), "min-max").tolist()
    [0.5, 4.0]
    """
    if rating_map == "max" or levels[-1] == levels[0]:
        return unit * levels[-1]
    return levels[0] + unit * (levels[-1] - levels[0])


def positives(ratings: Ratings, share: float, seed: int) -> np.ndarray:
    """Draw which of the observed pairs become implicit feedback: a share of all of them."""
    order = generator(seed, Purpose.IMPLICIT_SHARE).permutation(ratings.n_ratings)
    chosen = np.zeros(ratings.n_ratings, bool)
    chosen[order[: round(share * ratings.n_ratings)]] = True
    return chosen


def observed(ratings: Ratings, share: float, rating_map: RatingMap, seed: int) -> Samples:
    """Explicit and positive samples, which stay the same in all rounds."""
    implicit = positives(ratings, share, seed)
    target = np.where(implicit, 0.0, unit_ratings(ratings.values, ratings.levels, rating_map))
    kind = np.where(implicit, POSITIVE, EXPLICIT).astype(np.int8)
    return _sorted(Samples(ratings.users, ratings.items.astype(np.int32), kind, target))


def explicit_only(ratings: Ratings, share: float, rating_map: RatingMap, seed: int) -> Samples:
    """The explicit samples of ``observed``, for a protocol that knows no implicit feedback."""
    samples = observed(ratings, share, rating_map, seed)
    return Samples(*(column[samples.kind == EXPLICIT] for column in samples))


def with_negatives(samples: Samples, ratings: Ratings, seed: int, draw: int) -> Samples:
    """Add as many sampled negatives to every user as it has positives, or all its unrated items if fewer."""
    counts = np.bincount(samples.user[samples.kind == POSITIVE], minlength=ratings.n_users)
    if not counts.any():
        return samples
    rated = ratings.users.astype(np.int64) * ratings.n_items + ratings.items
    rng = generator(seed, Purpose.SAMPLED_NEGATIVES, draw)
    drawn = draw_absent(rated, counts, ratings.n_items, rng).astype(np.int32)
    more = len(drawn)
    return _sorted(
        Samples(
            np.concatenate([samples.user, drawn[:, 0]]),
            np.concatenate([samples.item, drawn[:, 1]]),
            np.concatenate([samples.kind, np.full(more, NEGATIVE, np.int8)]),
            np.concatenate([samples.target, np.zeros(more)]),
        )
    )


def _sorted(samples: Samples) -> Samples:
    order = np.lexsort((samples.item, samples.kind, samples.user))
    return Samples(*(column[order] for column in samples))
