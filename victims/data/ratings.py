"""One frozen object for ratings, user attributes and item features.

``Ratings`` is the only form in which victims and scoring see data. Rows are stored in CSR order
(by user, then by item), so that every per-user quantity is a segment sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.data.losses import Loss

MAX_RATING = 1e9  # stars; squares of ratings are summed
MAX_LEVELS = 101  # a 0-100 scale in whole points; more distinct values are not a rating grid


def rating_grid(values: Float[np.ndarray, " ratings"]) -> tuple[float, ...]:
    """Return the ascending rating levels that contain every value.

    Whole and half steps are filled between the smallest and the largest value (a level that nobody
    happened to use is still a level); any other grid is the set of distinct values.

    Examples
    --------
    >>> rating_grid(np.array([1.0, 2.5]))
    (1.0, 1.5, 2.0, 2.5)
    """
    distinct = np.unique(values)
    if distinct.size == 0:
        return ()
    if not np.isfinite(distinct).all() or distinct[0] <= 0:
        raise InputError(
            f"ratings must be finite and > 0 because 0 means unrated, got {distinct[0]:g}; "
            "shift or rescale the ratings"
        )
    if distinct.size > MAX_LEVELS:
        raise InputError(
            f"ratings must lie on a grid of at most {MAX_LEVELS} levels, got {distinct.size} "
            "distinct values; round them to the levels that users could choose"
        )
    for step in (1.0, 0.5):
        count = round(min((distinct[-1] - distinct[0]) / step, MAX_LEVELS)) + 1
        grid = distinct[0] + step * np.arange(min(count, MAX_LEVELS))
        if count <= MAX_LEVELS and np.all(np.isin(distinct, grid)):
            return tuple(float(level) for level in grid)
    return tuple(float(level) for level in distinct)


@dataclass(frozen=True, eq=False)
class Ratings:
    """Sparse user x item ratings with one-hot user attributes and item features.

    Two are the same if they are one object; compare their arrays otherwise.

    Attributes
    ----------
    name : str
        Name of the data set.
    indptr : (n_users + 1,) int64
        Row pointer: the ratings of user ``i`` are ``[indptr[i], indptr[i + 1])``.
    items : (n_ratings,) int32
        Item index of each rating, ascending inside a user.
    values : (n_ratings,) float64
        Ratings in stars, each one of ``levels``.
    levels : tuple of float
        Ascending rating grid, all > 0. 0 is reserved for "unrated".
    attributes : (n_users, n_attributes) float64
        One-hot user attributes, 0 or 1.
    attribute_groups : tuple of tuple of int
        Column indices of each one-hot block.
    attribute_names : tuple of str
        One name per column, ``block=value``.
    item_features : (n_items, n_item_features) float64
        Item features (genres and decade, or their principal components).
    item_feature_names : tuple of str
    user_ids, item_ids : (n_users,), (n_items,)
        Identifiers in the source.
    notes : tuple of str
        What the loader decided (for instance which column holds the users).
    times : (n_ratings,) float64, or None
        When each rating was given, in seconds since 1970; NaN where that is not told. None where no time is.
    trust : (n_edges, 2) int32
        Users by their index: the first trusts the second.
    losses : tuple of Loss
        What the loader left out or could not tell, and why.
    sampled_from : Ratings, optional
        All training ratings, where a defense on the devices has some of them take no part.
    """

    name: str
    indptr: Int[np.ndarray, " users_plus_1"]
    items: Int[np.ndarray, " ratings"]
    values: Float[np.ndarray, " ratings"]
    levels: tuple[float, ...]
    attributes: Float[np.ndarray, "users attributes"]
    attribute_groups: tuple[tuple[int, ...], ...]
    attribute_names: tuple[str, ...]
    item_features: Float[np.ndarray, "items features"]
    item_feature_names: tuple[str, ...]
    user_ids: np.ndarray
    item_ids: np.ndarray
    notes: tuple[str, ...] = field(default=())
    times: Float[np.ndarray, " ratings"] | None = None
    trust: Int[np.ndarray, "edges 2"] = field(default_factory=lambda: np.zeros((0, 2), np.int32))
    losses: tuple[Loss, ...] = field(default=())
    sampled_from: Ratings | None = None

    def __repr__(self) -> str:
        """One line for people: sizes, grid, density."""
        return f"Ratings({self.describe()})"

    @property
    def n_users(self) -> int:
        """Number of users."""
        return self.indptr.size - 1

    @property
    def n_items(self) -> int:
        """Number of items in the catalogue, rated or not."""
        return int(self.item_ids.size)

    @property
    def n_ratings(self) -> int:
        """Number of ratings."""
        return int(self.items.size)

    @property
    def n_attributes(self) -> int:
        """Number of attribute columns."""
        return int(self.attributes.shape[1])

    @property
    def users(self) -> Int[np.ndarray, " ratings"]:
        """User index of each rating, ascending."""
        return np.repeat(np.arange(self.n_users, dtype=np.int32), np.diff(self.indptr))

    def matrix(self) -> sp.csr_array:
        """Ratings as a (n_users, n_items) CSR matrix; absent means unrated."""
        return sp.csr_array((self.values, self.items, self.indptr), shape=(self.n_users, self.n_items))

    def describe(self) -> str:
        """One line for people: sizes, grid, density."""
        counts = np.diff(self.indptr)
        grid = f"{self.levels[0]:g}..{self.levels[-1]:g}" if self.levels else "none"
        return (
            f"{self.name}: {self.n_users:,} users, {self.n_items:,} items, {self.n_ratings:,} "
            f"ratings {grid}, {counts.min()}-{counts.max()} a user, "
            f"{self.n_attributes} attributes, {self.item_features.shape[1]} item features"
        )
