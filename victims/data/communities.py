"""A part of a large data set whose users trust each other, as small as the sample of a paper.

Paper 004 (doi:10.3390/app122111118) "samples 30,000 records randomly" of Epinions and has 1,336 users and
6,584 items: 30,000 random records of any Epinions file have many times more, so that its sample must have
been drawn otherwise. This is a stated rule that gives those sizes, not theirs.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Int

from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.data.subsets import most_rated, of_items, of_users, without

WORDS = re.compile(r"([0-9]{1,9})x([0-9]{1,9})x([0-9]{1,9})(?:x([0-9]{1,9}))?")


class Community(NamedTuple):
    """Sizes of the part, and the seed that it is drawn with."""

    n_users: int
    n_items: int
    n_ratings: int
    seed: int = 0


def parse_community(text: str) -> Community:
    """Read sizes of the form ``USERSxITEMSxRATINGS`` or ``USERSxITEMSxRATINGSxSEED``.

    Examples
    --------
    >>> parse_community("1336x6584x30000")
    Community(n_users=1336, n_items=6584, n_ratings=30000, seed=0)
    """
    found = WORDS.fullmatch(text)
    sizes = [int(size) for size in found.groups() if size] if found else [0]
    if min(sizes[:3]) < 1:
        raise InputError(
            f"community of the data must be USERSxITEMSxRATINGS, each >= 1, got {text!r:.40}; "
            "write community=1336x6584x30000"
        )
    return Community(*sizes)


def community(ratings: Ratings, sizes: Community) -> Ratings:
    """Users around one who is drawn, along trust; the items that they rated most; some of those ratings.

    From a user drawn at random among those who trust anybody, users are visited breadth first along
    statements of trust in both directions, in random order, until there are enough; the most rated items of
    these users are kept, then ratings drawn at random, and last the users and items that still have one.
    """
    if not len(ratings.trust):
        raise InputError(
            f"{ratings.name} has no statements of trust, which a community needs; add trust=FILE"
        )
    rng = generator(sizes.seed, Purpose.DENSE_SUBSET)
    some = of_users(ratings, _around(ratings, sizes.n_users, rng))
    rated = np.unique(some.items).size
    some = most_rated(some, min(sizes.n_items, rated))
    if some.n_ratings > sizes.n_ratings:
        order = rng.permutation(some.n_ratings)
        dropped = np.zeros(some.n_ratings, bool)
        dropped[order[sizes.n_ratings :]] = True
        some = without(some, dropped)
    some = of_users(some, np.flatnonzero(np.diff(some.indptr)))
    return of_items(some, np.unique(some.items))


def _around(ratings: Ratings, n_users: int, rng: np.random.Generator) -> Int[np.ndarray, " users"]:
    """Users met first, breadth first from one who is drawn."""
    pairs = np.concatenate([ratings.trust, ratings.trust[:, ::-1]])
    shape = ratings.n_users, ratings.n_users
    near = sp.csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=shape)
    seen = np.zeros(ratings.n_users, bool)
    found: list[int] = []
    for begin in rng.permutation(np.unique(ratings.trust[:, 0])).tolist():
        edge = [] if seen[begin] else [begin]
        while edge and len(found) < n_users:
            seen[edge] = True
            found += edge[: n_users - len(found)]
            reached = np.unique(near.indices[_of_rows(near, edge)])
            edge = rng.permutation(reached[~seen[reached]]).tolist()
        if len(found) >= n_users:
            break
    return np.sort(np.array(found, np.int64))


def _of_rows(matrix: sp.csr_array, rows: list[int]) -> Int[np.ndarray, " entries"]:
    """Positions of the entries of some rows."""
    low, high = matrix.indptr[rows], matrix.indptr[np.array(rows) + 1]
    size = high - low
    return np.arange(size.sum()) + np.repeat(low - (np.cumsum(size) - size), size)
