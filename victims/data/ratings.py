"""One frozen object for ratings, user attributes and item features, and how it is made of rows.

``Ratings`` is the only form in which victims and scoring see data. Rows are stored in CSR order
(by user, then by item), so that every per-user quantity is a segment sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int

from victims.common.errors import InputError

MAX_RATING = 1e9  # stars; squares of ratings are summed
MAX_LEVELS = 101  # a 0-100 scale in whole points; more distinct values are not a rating grid
MAX_CELLS = 1 << 27  # of dense attributes or features: 1 GiB of float64


@dataclass(frozen=True)
class Loss:
    """Something that was counted and left out, or is not known."""

    where: str  # the file, or the data set
    what: str  # in the plural: rows, times, users,
    count: int  # how many are lost
    of: int  # of how many
    why: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.where}: {self.count:,} of {self.of:,} {self.what} lost: {self.why}"


def those(*losses: Loss) -> tuple[Loss, ...]:
    """Keep the losses that count something.

    Examples
    --------
    >>> found = those(Loss("a.csv", "rows", 2, 9, "no stars"), Loss("a.csv", "users", 0, 9, ""))
    >>> [str(loss) for loss in found]
    ['a.csv: 2 of 9 rows lost: no stars']
    """
    return tuple(loss for loss in losses if loss.count)


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

    def interactions(self) -> Ratings:
        """The same pairs as implicit feedback, each rated 1."""
        return replace(self, values=np.ones_like(self.values), levels=(1.0,))

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
    """A column of rows as codes, each identifier kept once."""

    ids: np.ndarray  # distinct, of any sortable type
    codes: np.ndarray  # index in ``ids`` of each row

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
    times: Float[np.ndarray, " rows"] | None = None,
    repeated: int = 0,
    notes: tuple[str, ...] = (),
    losses: tuple[Loss, ...] = (),
) -> Ratings:
    """Build ``Ratings`` from one row per rating.

    A pair that occurs more than once keeps its last row, and the others are a loss.
    """
    users, items, values = Coded.of(users), Coded.of(items), Coded.of(values)
    sizes = [column.codes.size for column in (users, items, values)]
    if len(set(sizes)) > 1:
        raise InputError(f"{name} must have a user, an item and a rating in each row, got {sizes} of them")
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
    again = Loss(name, "rows", repeated, kept.size + repeated, "the same user and item come again below")
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
        losses=(*losses, *those(again)),
        times=None if times is None else times[kept],
    )


def last_of_each(keys: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " distinct"]:
    """Find the last row of each key, by ascending key.

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
    positions = order[np.minimum(np.searchsorted(ids, values, sorter=order), ids.size - 1)]
    strange = np.flatnonzero(ids[positions] != values)
    if strange.size:
        raise InputError(f"{str(values[strange[0]])!r} is rated but is not among the known identifiers")
    return positions


def one_hot(
    blocks: dict[str, tuple[np.ndarray, tuple[str, ...]]],
) -> tuple[np.ndarray, tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """Encode one category index per user and block."""
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
    """Refuse a dense table that would take more than ``MAX_CELLS``."""
    if rows * columns > MAX_CELLS:
        raise InputError(
            f"{what} of {rows:,} rows must have at most {MAX_CELLS // rows:,} distinct values, got "
            f"{columns:,}; merge the rare ones"
        )
