"""Seeded synthetic ratings with planted factors.

Users with attributes, items with genres, long-tailed popularity and activity, and some users with a
single rating: small enough for a first run, awkward enough to be honest.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from victims.common.errors import InputError
from victims.common.seeds import LARGEST_SEED, Purpose, generator
from victims.common.validation import at_least, between, require, require_fields, whole
from victims.data.ratings import Ratings, check_cells, from_triples, one_hot


@dataclass(frozen=True)
class Synthetic:
    """Sizes of a synthetic data set."""

    users: int = 200  # >= 2
    items: int = 300  # >= 2
    ratings_per_user: float = 30.0  # mean of the log-normal number of ratings, >= 1
    single: float = 0.02  # share of users who rated exactly one item, 0..1 (at least one user when above 0)
    factors: int = 4  # planted dimensions, >= 1
    noise: float = 0.5  # standard deviation of the rating noise, in stars
    half_stars: bool = False  # grid 0.5..5 in half stars instead of 1..5
    seed: int = 0

    def __post_init__(self) -> None:
        require_fields(self, "synthetic", users=whole(2, 1_000_000), items=whole(2, 1_000_000))
        require_fields(
            self,
            "synthetic",
            ratings_per_user=between(1, self.items),
            single=between(0, 1),
            factors=whole(1, 1000),
            noise=at_least(0),
            seed=whole(0, LARGEST_SEED),
        )


def is_synthetic(text: str) -> bool:
    """Tell whether ``--data`` asks for synthetic ratings."""
    return text == "synthetic" or text.startswith("synthetic:")


def parse_synthetic(text: str) -> Synthetic:
    """Read ``synthetic`` or ``synthetic:users=500,items=800,seed=3``.

    Examples
    --------
    >>> parse_synthetic("synthetic:users=50,items=70").users
    50
    """
    types = {f.name: type(f.default) for f in fields(Synthetic)}
    values: dict[str, int | float | bool] = {}
    for assignment in filter(None, text.partition(":")[2].split(",")):
        name, _, value = assignment.partition("=")
        if name not in types:
            raise InputError(f"synthetic has no size {name!r}; it takes {', '.join(types)}")
        try:
            values[name] = types[name](int(value) if types[name] is bool else value)
        except ValueError:
            kind = types[name].__name__
            raise InputError(f"synthetic {name} must be of type {kind}, got {value!r}") from None
    return Synthetic(**values)  # type: ignore[arg-type]


def generate(spec: Synthetic) -> Ratings:
    """Draw the ratings; the same ``spec`` gives the same bytes."""
    rng = generator(spec.seed, Purpose.SYNTHETIC_RATINGS)
    blocks = {
        "age": (rng.integers(0, 7, spec.users), tuple(str(k) for k in range(7))),
        "gender": (rng.choice(2, spec.users, p=[0.3, 0.7]), ("F", "M")),
        "region": (rng.integers(0, 4, spec.users), ("north", "east", "south", "west")),
    }
    attributes, groups, names = one_hot(blocks)
    genres = (rng.random((spec.items, 6)) < 0.25).astype(np.float64)
    scale = 1 / np.sqrt(spec.factors)
    user_factors = attributes @ rng.normal(0, 0.6, (attributes.shape[1], spec.factors))
    user_factors += rng.normal(0, 0.8, (spec.users, spec.factors))
    item_factors = genres @ rng.normal(0, 0.6, (6, spec.factors))
    item_factors += rng.normal(0, 0.8, (spec.items, spec.factors))

    popularity = 1 / (1 + np.arange(spec.items)) ** 0.7
    rng.shuffle(popularity)
    counts = np.exp(rng.normal(np.log(spec.ratings_per_user) - 0.32, 0.8, spec.users))
    counts = np.clip(np.rint(counts), 2, spec.items).astype(np.int64)
    n_single = int(np.ceil(spec.single * spec.users))
    counts[rng.choice(spec.users, n_single, replace=False)] = 1

    users = np.repeat(np.arange(spec.users), counts)
    items = _distinct_items(rng, popularity, counts)
    appeal = 0.5 * np.log(popularity / popularity.mean())
    score = (
        3.4 + 0.3 * appeal[items] + scale * np.einsum("rk,rk->r", user_factors[users], item_factors[items])
    )
    step = 0.5 if spec.half_stars else 1.0
    levels = np.arange(0.5 if spec.half_stars else 1.0, 5.01, step)
    noisy = score + rng.normal(0, spec.noise, users.size)
    values = np.clip(np.rint(noisy / step) * step, levels[0], levels[-1])
    return from_triples(
        "synthetic",
        users,
        items,
        values,
        user_ids=np.arange(spec.users),
        item_ids=np.arange(spec.items),
        levels=tuple(float(level) for level in levels),
        attributes=attributes,
        attribute_groups=groups,
        attribute_names=names,
        item_features=genres,
        item_feature_names=tuple(f"genre {k}" for k in range(6)),
    )


def with_sybils(ratings: Ratings, count: int) -> Ratings:
    """Append clients whom nobody is behind: each rates every item, at the middle level.

    So every sum has ``count`` contributors more, which passes any threshold up to ``count`` + 1. Whoever
    invents them knows no rating; the middle level is what it can say of all items. They train the model, too.
    """
    require("sybils", "count", count, whole(1, 1_000_000))
    n_items, n_users = ratings.n_items, ratings.n_users
    check_cells("sybils", count, n_items)
    middle = ratings.levels[len(ratings.levels) // 2]
    attributes = np.zeros((count, ratings.n_attributes))
    attributes[:, [group[0] for group in ratings.attribute_groups]] = 1
    added = count * n_items
    return replace(
        ratings,
        indptr=np.append(ratings.indptr, ratings.n_ratings + n_items * np.arange(1, count + 1)),
        items=np.append(ratings.items, np.tile(np.arange(n_items, dtype=ratings.items.dtype), count)),
        values=np.append(ratings.values, np.full(added, middle)),
        attributes=np.concatenate([ratings.attributes, attributes]),
        user_ids=np.append(ratings.user_ids.astype(str), [f"sybil {number}" for number in range(count)]),
        notes=(*ratings.notes, f"clients {n_users} to {n_users + count - 1} are Sybils that rate every item"),
        times=None if ratings.times is None else np.append(ratings.times, np.full(added, np.nan)),
    )


def _distinct_items(rng: np.random.Generator, popularity: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Draw ``counts[i]`` distinct items for every user by popularity (Gumbel top-k, in slices)."""
    drawn: list[np.ndarray] = []
    logits = np.log(popularity)
    slice_size = max(1, 4_000_000 // popularity.size)
    for start in range(0, counts.size, slice_size):
        wanted = counts[start : start + slice_size]
        keys = logits + rng.gumbel(size=(wanted.size, popularity.size))
        order = np.argsort(-keys, axis=1)
        drawn.append(order[np.arange(popularity.size) < wanted[:, None]])
    return np.concatenate(drawn)
