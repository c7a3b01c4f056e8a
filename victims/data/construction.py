"""Ratings from one row per rating, and one-hot attributes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.data.losses import Loss, those
from victims.data.ratings import Ratings, rating_grid

MAX_CELLS = 1 << 27  # of dense attributes or features: 1 GiB of float64


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
