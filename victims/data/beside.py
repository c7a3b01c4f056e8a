"""Tables beside ratings of one's own: categories of users, features of items, statements of trust."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Int

from victims.common.errors import InputError
from victims.data.rated import USUAL_NAMES
from victims.data.ratings import Loss, Ratings, check_cells, one_hot, those
from victims.data.tables import (
    DATABASES,
    JSON,
    SEVERAL,
    Layout,
    Table,
    chosen,
    ending,
    json_objects,
    read_table,
    shown,
    text_rows,
)

MAX_CATEGORIES = 1000  # of one column; more are no categories
UNKNOWN = "unknown"
PAIRS = 1 << 16  # that are looked up at a time
HEADS = ("user", "trustor", "truster", "source", "from", "follower", "user_id", "userid", "user1")


def with_attributes(ratings: Ratings, path: Path, table: str | None, user: str | None) -> Ratings:
    """Add the categories of users; ``unknown`` is one where somebody has none."""
    content, columns, rows, losses = _joined(path, table, "user", user, ratings.user_ids)
    blocks = {}
    for column in columns:
        cells = np.array([cell.strip() for cell in content.text(column)] + [""], dtype=object)[rows]
        labels, category = np.unique(np.where(cells == "", UNKNOWN, cells).astype(str), return_inverse=True)
        _check_categories(content, column, labels.size)
        blocks[column] = category, tuple(labels.tolist())
    attributes, groups, names = one_hot(blocks)
    return replace(
        ratings,
        attributes=attributes,
        attribute_groups=groups,
        attribute_names=names,
        losses=(*ratings.losses, *losses),
    )


def with_features(ratings: Ratings, path: Path, table: str | None, item: str | None) -> Ratings:
    """Add the features of items: numbers, or categories, several of which may be in one cell."""
    content, columns, rows, losses = _joined(path, table, "item", item, ratings.item_ids)
    features: list[np.ndarray] = []
    names: list[str] = []
    for column in columns:
        cells = [cell.strip() for cell in content.text(column)]
        numbers = pd.to_numeric(pd.Series([cell or "0" for cell in cells]), errors="coerce").to_numpy(float)
        values, labels = (
            (numbers[:, None], [column]) if np.isfinite(numbers).all() else _hot(content, column, cells)
        )
        features.append(values)
        names += labels
    whole = np.concatenate(features, axis=1)
    check_cells(f"{path}", ratings.n_items, whole.shape[1])
    return replace(
        ratings,
        item_features=np.where(rows[:, None] >= 0, whole[rows], 0.0),
        item_feature_names=tuple(names),
        losses=(*ratings.losses, *losses),
    )


def _joined(
    path: Path, table: str | None, what: str, name: str | None, ids: np.ndarray
) -> tuple[Table, list[str], Int[np.ndarray, " ids"], tuple[Loss, ...]]:
    """A table, its columns beside that of users or items, the row of each (-1 where none is), and losses."""
    content = read_table(path, table=table)
    names = [str(column) for column in content.frame.columns]
    given = name is not None and name.strip().lower() in [column.strip().lower() for column in names]
    spellings = (str(name).strip().lower(),) if given else USUAL_NAMES[what]
    key = names[chosen(path, names, {what: spellings})[what]]
    columns = [column for column in names if column != key]
    content.require(key, *columns)
    if content.frame.empty:
        raise InputError(f"{path} must hold at least one row below its header, got none")
    if not columns:
        raise InputError(f"{path} must have a column beside {shown(key)}; it says nothing of a {what}")
    listed = content.identifiers(key).astype(str)
    rows = pd.Index(listed).get_indexer(pd.Index(ids.astype(str)))
    missing, others = int((rows < 0).sum()), len(listed) - int((rows >= 0).sum())
    losses = those(
        Loss(path.name, f"{what}s", missing, rows.size, "not in this table, which says nothing of them"),
        Loss(path.name, "rows", others, len(listed), f"about {what}s without ratings"),
    )
    return content, columns, rows, losses


def _check_categories(table: Table, column: str, count: int) -> None:
    if count > MAX_CATEGORIES:
        raise InputError(
            f"{table.path}: column {shown(column)} must hold numbers or at most {MAX_CATEGORIES:,} "
            f"categories, got {count:,}; leave it out, or group its values"
        )


def _hot(table: Table, column: str, cells: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    parts = [[name.strip() for name in cell.split(SEVERAL) if name.strip()] for cell in cells]
    names = sorted({part for row in parts for part in row})
    _check_categories(table, column, len(names))
    check_cells(f"{table.path}: {column}", len(cells), max(len(names), 1))
    position = {name: at for at, name in enumerate(names)}
    hot = np.zeros((len(cells), len(names)))
    for row, present in enumerate(parts):
        hot[row, [position[part] for part in present]] = 1
    return hot, [f"{column}={name}" for name in names]


def with_trust(ratings: Ratings, path: Path, table: str | None, _: str | None) -> Ratings:
    """Add directed edges between users of the ratings, each once."""
    known = pd.Index(ratings.user_ids.astype(str))
    edges, n_rows, unknown = [], 0, 0
    for pairs in _friends(path) if ending(path) in JSON else _pairs(path, table, known):
        ends = np.stack([known.get_indexer(pd.Index(pairs.iloc[:, side])) for side in (0, 1)], axis=1)
        n_rows += len(pairs)
        there = (ends >= 0).all(axis=1)
        unknown += int((~there).sum())
        edges.append(ends[there])
    found = np.concatenate(edges) if edges else np.zeros((0, 2), int)
    own = found[:, 0] == found[:, 1]
    distinct = np.unique(found[~own], axis=0)
    repeated = int((~own).sum()) - len(distinct)
    reasons = {"of users without ratings": unknown, "of oneself": int(own.sum()), "repeated": repeated}
    lost = (Loss(path.name, "statements of trust", count, n_rows, why) for why, count in reasons.items())
    return replace(ratings, trust=distinct.astype(np.int32), losses=(*ratings.losses, *those(*lost)))


def _pairs(path: Path, table: str | None, known: pd.Index) -> Iterator[pd.DataFrame]:
    """Two columns of text, below a line of names where there is one, which is no line of users."""
    if ending(path) in (".parquet", *DATABASES):
        frame = read_table(path, table=table).frame
        if frame.shape[1] < 2:
            raise InputError(f"{path} must have two columns of users, got {frame.shape[1]}")
        yield frame.iloc[:, :2].apply(lambda column: column.str.strip())
        return
    separator, first = {".csv": ",", ".tsv": "\t"}.get(ending(path), " "), True
    layout = Layout(separator, ("user", "trusts"), quoted=False)
    for rows in text_rows(path, lambda header: {"user": 0, "trusts": 1}, layout):
        pairs = pd.DataFrame(
            {name: column.to_pylist() for name, column in rows.columns.items()}, dtype=object
        )
        pairs = pairs.apply(lambda column: column.str.strip())
        if first and len(pairs) and pairs.iloc[0, 0].lower() in HEADS and pairs.iloc[0, 0] not in known:
            pairs = pairs.iloc[1:]
        first = False
        yield pairs


def _friends(path: Path) -> Iterator[pd.DataFrame]:
    """Yelp's users: JSON lines with ``user_id`` and ``friends``, a list or names between commas."""
    trusted: list[tuple[str, str]] = []
    for line, person in json_objects(path):
        name, friends = person.get("user_id"), person.get("friends", [])
        names = friends.split(",") if isinstance(friends, str) else friends
        if not isinstance(name, str) or not isinstance(names, list):
            raise InputError(f"{path} line {line}: must have user_id and friends; it is no table of friends")
        trusted += [(name, one) for one in map(str.strip, map(str, names)) if one not in ("", "None")]
        if len(trusted) >= PAIRS:
            yield pd.DataFrame(trusted)
            trusted = []
    yield pd.DataFrame(trusted, columns=["user", "trusts"])
