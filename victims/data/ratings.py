"""One frozen object for ratings, user attributes and item features.

``Ratings`` is the only form in which victims and scoring see data. Rows are stored in CSR order
(by user, then by item), so that every per-user quantity is a segment sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int

from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.common.validation import at_least, between, require, strictly_between

MAX_CELLS = 1 << 27  # of dense attributes or features: 1 GiB of float64
MAX_RATING = 1e9  # stars; squares of ratings are summed
MAX_LEVELS = 101  # a 0-100 scale in whole points; more distinct values are not a rating grid


def rating_grid(values: Float[np.ndarray, " ratings"]) -> tuple[float, ...]:
    """Return the ascending rating levels that contain every value.

    Whole and half steps are filled between the smallest and the largest value (a level that nobody
    happened to use is still a level); any other grid is the set of distinct values.

    Raises
    ------
    InputError
        If there are more than 101 distinct values, or one is not a finite number above 0.

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
        What the loader decided (for instance what it did with repeated pairs).
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


@dataclass(frozen=True)
class Coded:
    """A column of rows as codes, each identifier kept once.

    Attributes
    ----------
    ids : (n_ids,)
        Distinct, of any sortable type.
    codes : (n_rows,) int
        Index in ``ids`` of each row.
    """

    ids: np.ndarray
    codes: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray | Coded) -> Coded:
        """The column of plain values, or the one that is coded already."""
        return values if isinstance(values, Coded) else cls(*np.unique(values, return_inverse=True))


def from_triples(
    name: str,
    users: np.ndarray | Coded,
    items: np.ndarray | Coded,
    values: np.ndarray | Coded,
    *,
    user_ids: np.ndarray | None = None,
    item_ids: np.ndarray | None = None,
    levels: tuple[float, ...] | None = None,
    attributes: Float[np.ndarray, "users attributes"] | None = None,
    attribute_groups: tuple[tuple[int, ...], ...] = (),
    attribute_names: tuple[str, ...] = (),
    item_features: Float[np.ndarray, "items features"] | None = None,
    item_feature_names: tuple[str, ...] = (),
    repeated: int = 0,
    notes: tuple[str, ...] = (),
) -> Ratings:
    """Build ``Ratings`` from one row per rating.

    ``users`` and ``items`` hold identifiers of any sortable type, ``values`` the ratings; each may be coded.
    A pair that occurs more than once keeps its last row, and a note says how many rows that dropped, with the
    ``repeated`` ones that were left out before. ``user_ids`` and ``item_ids`` fix the order of rows and
    columns and may name users or items without ratings.

    Raises
    ------
    InputError
        If there is no rating, or the values do not lie on a grid (see ``rating_grid``).
    """
    users, items, values = Coded.of(users), Coded.of(items), Coded.of(values)
    if values.codes.size == 0:
        raise InputError(f"{name} must hold at least one rating, got none")
    user_ids = np.unique(users.ids) if user_ids is None else user_ids
    item_ids = np.unique(items.ids) if item_ids is None else item_ids
    n_users, n_items = user_ids.size, item_ids.size
    key = _positions(user_ids, users.ids)[users.codes]
    key *= n_items
    key += _positions(item_ids, items.ids)[items.codes]
    kept = last_of_each(key)
    key = key[kept]
    repeated += values.codes.size - kept.size
    if repeated:
        notes += (f"{repeated:,} repeated user-item rows dropped, the last of each pair kept",)
    return Ratings(
        name=name,
        indptr=np.searchsorted(key, np.arange(n_users + 1) * n_items),
        items=(key % n_items).astype(np.int32),
        values=np.asarray(values.ids, np.float64)[values.codes[kept]],
        levels=rating_grid(np.asarray(values.ids, np.float64)) if levels is None else levels,
        attributes=np.zeros((n_users, 0)) if attributes is None else attributes,
        attribute_groups=attribute_groups,
        attribute_names=attribute_names,
        item_features=np.zeros((n_items, 0)) if item_features is None else item_features,
        item_feature_names=item_feature_names,
        user_ids=user_ids,
        item_ids=item_ids,
        notes=notes,
    )


def last_of_each(keys: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " distinct"]:
    """Places of the last row of each key, by ascending key.

    Examples
    --------
    >>> last_of_each(np.array([7, 5, 7])).tolist()
    [1, 2]
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    return order[np.append(ordered[1:] != ordered[:-1], True)]


def _positions(ids: np.ndarray, values: np.ndarray) -> Int[np.ndarray, " values"]:
    """Positions of ``values`` in ``ids``, which need not be sorted."""
    order = np.argsort(ids, kind="stable")
    found = order[np.minimum(np.searchsorted(ids, values, sorter=order), ids.size - 1)]
    strange = np.flatnonzero(ids[found] != values)
    if strange.size:
        raise InputError(f"{str(values[strange[0]])!r} is rated but is not among the known identifiers")
    return found


def one_hot(
    blocks: dict[str, tuple[np.ndarray, tuple[str, ...]]],
) -> tuple[np.ndarray, tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """Encode one category index per user and block.

    Parameters
    ----------
    blocks : dict
        Block name -> (category index of every user, category names).

    Returns
    -------
    attributes, attribute_groups, attribute_names
        As in ``Ratings``.
    """
    columns: list[np.ndarray] = []
    groups: list[tuple[int, ...]] = []
    names: list[str] = []
    for block, (category, labels) in blocks.items():
        check_cells(block, category.size, len(labels))
        start = len(names)
        columns.append((category[:, None] == np.arange(len(labels))).astype(np.float64))
        groups.append(tuple(range(start, start + len(labels))))
        names.extend(f"{block}={label}" for label in labels)
    return np.concatenate(columns, axis=1), tuple(groups), tuple(names)


def check_cells(what: str, rows: int, columns: int) -> None:
    """Refuse a dense table that would take more than ``MAX_CELLS``.

    Raises
    ------
    InputError
        With the sizes.
    """
    if rows * columns > MAX_CELLS:
        raise InputError(
            f"{what} of {rows:,} rows must have at most {MAX_CELLS // rows:,} distinct values, got "
            f"{columns:,}; merge the rare ones"
        )


def with_principal_components(ratings: Ratings, n_components: int) -> Ratings:
    """Replace the item features by their first principal components (paper 000, section 6.1).

    Raises
    ------
    InputError
        If ``n_components`` is not between 1 and the number of item features.
    """
    features = ratings.item_features
    require(f"features of {ratings.name}", "n_components", n_components, between(1, features.shape[1]))
    left, scale, _ = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)
    return replace(
        ratings,
        item_features=left[:, :n_components] * scale[:n_components],
        item_feature_names=tuple(f"component {k + 1}" for k in range(n_components)),
    )


def split(ratings: Ratings, test_fraction: float, seed: int) -> tuple[Ratings, Ratings]:
    """Hold out a share of every user's ratings; a user always keeps at least one for training.

    Returns
    -------
    train, test : Ratings
        Same users, items and attributes.
    """
    require("a split", "test_fraction", test_fraction, strictly_between(0, 1))
    wanted = np.rint(test_fraction * np.diff(ratings.indptr)).astype(np.int64)
    return _held_out(ratings, wanted, generator(seed, Purpose.HELD_OUT_SHARE))


def leave_out(ratings: Ratings, n_held_out: int, seed: int) -> tuple[Ratings, Ratings]:
    """Hold out that many ratings of every user; a user always keeps at least one for training.

    Returns
    -------
    train, test : Ratings
        Same users, items and attributes.
    """
    require("ratings held out of every user", "number", n_held_out, at_least(1))
    rng = generator(seed, Purpose.HELD_OUT_NUMBER)
    return _held_out(ratings, np.full(ratings.n_users, n_held_out), rng)


def _held_out(
    ratings: Ratings, wanted: Int[np.ndarray, " users"], rng: np.random.Generator
) -> tuple[Ratings, Ratings]:
    shuffled = np.lexsort((rng.random(ratings.n_ratings), ratings.users))
    rank = np.empty(ratings.n_ratings, np.int64)
    rank[shuffled] = np.arange(ratings.n_ratings)
    held_out = np.minimum(wanted, np.diff(ratings.indptr) - 1)
    users = ratings.users
    is_test = rank - ratings.indptr[users] < held_out[users]
    return _select(ratings, ~is_test), _select(ratings, is_test)


def without(ratings: Ratings, entries: Bool[np.ndarray, " ratings"]) -> Ratings:
    """The same users and items without some of the ratings; a user may end with none."""
    return _select(ratings, ~entries)


def of_users(ratings: Ratings, users: Int[np.ndarray, " some"]) -> Ratings:
    """Some users as a community of their own, in ascending order; all items stay."""
    chosen = np.unique(users)
    part = _select(ratings, np.isin(ratings.users, chosen))
    indptr = np.concatenate([[0], np.cumsum(np.diff(part.indptr)[chosen])])
    return replace(
        part,
        indptr=indptr,
        attributes=ratings.attributes[chosen],
        user_ids=ratings.user_ids[chosen],
    )


def most_rated(ratings: Ratings, n_items: int) -> Ratings:
    """The items with most ratings, and all users; ties go to the lower item."""
    require(f"most rated items of {ratings.name}", "n_items", n_items, between(1, ratings.n_items))
    counts = np.bincount(ratings.items, minlength=ratings.n_items)
    chosen = np.sort(np.argsort(-counts, kind="stable")[:n_items])
    part = _select(ratings, np.isin(ratings.items, chosen))
    return replace(
        part,
        items=np.searchsorted(chosen, part.items).astype(ratings.items.dtype),
        item_features=ratings.item_features[chosen],
        item_ids=ratings.item_ids[chosen],
    )


def _select(ratings: Ratings, keep: np.ndarray) -> Ratings:
    indptr = np.zeros_like(ratings.indptr)
    np.cumsum(np.bincount(ratings.users[keep], minlength=ratings.n_users), out=indptr[1:])
    return replace(ratings, indptr=indptr, items=ratings.items[keep], values=ratings.values[keep])
