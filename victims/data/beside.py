"""Tables beside ratings of one's own: categories of users, features of items, statements of trust."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int

from victims.common.errors import InputError
from victims.data.construction import check_cells, one_hot
from victims.data.delimited import chunks
from victims.data.json_lines import json_objects
from victims.data.losses import Loss, those
from victims.data.rating_files import is_there, path_of
from victims.data.ratings import Ratings
from victims.data.small_tables import DATABASES, JSON, SEVERAL, ending, read_small_table
from victims.data.source import DataSource
from victims.data.tables import Table, chosen, identifiers, shown
from victims.data.text_lines import TextFormat
from victims.data.wanted import USUAL_NAMES

MAX_CATEGORIES = 1000  # of one column; more are no categories
UNKNOWN = "unknown"
PAIRS = 1 << 16  # that are looked up at a time
HEADS = ("user", "trustor", "truster", "source", "from", "follower", "user_id", "userid", "user1")


def beside(ratings: Ratings, source: DataSource) -> Ratings:
    """Add what the files that a source names say of users, of items, and of who trusts whom."""
    if source.attributes is not None:
        ratings = _with_attributes(ratings, _found(source, source.attributes), source.user)
    if source.features is not None:
        ratings = _with_features(ratings, _found(source, source.features), source.item)
    if source.trust is not None:
        ratings = _with_trust(ratings, _found(source, source.trust))
    return ratings


class Place(NamedTuple):
    """A file, and the table in it where it is a database with several."""

    path: Path
    table: str | None = None


def _found(source: DataSource, name: str) -> Place:
    """A file beside the ratings, or where the name itself leads; ``FILE#TABLE`` of a database."""
    place = path_of(source.place)
    folder = place if place.is_dir() else place.parent
    file, mark, table = name.rpartition("#")
    for path in (folder / name, path_of(name)):
        if is_there(path):
            return Place(path)
    for path in (folder / file, path_of(file)) if mark and file else ():
        if is_there(path):
            return Place(path, table)
    raise InputError(f"{folder / name} must be there, as it is named beside the ratings; correct the name")


def _table(place: Place, what: str, name: str | None) -> tuple[Table, str, list[str]]:
    """A table, the column of its users or items, and its other columns."""
    path, table = place.path, read_small_table(*place)
    names = [str(column) for column in table.frame.columns]
    spellings = (name.strip().lower(),) if name is not None else USUAL_NAMES[what]
    if name is not None and name.strip().lower() not in [column.strip().lower() for column in names]:
        spellings = USUAL_NAMES[what]
    key = names[chosen(path, names, {what: spellings})[what]]
    rest = [column for column in names if column != key]
    table.require(key, *rest)
    if table.frame.empty:
        raise InputError(f"{path} must hold at least one row below its header, got none")
    if not rest:
        raise InputError(f"{path} must have a column beside {shown(key)}; it says nothing of a {what}")
    return table, key, rest


def _rows_of(ids: np.ndarray, table: Table, key: str) -> tuple[Int[np.ndarray, " ids"], int]:
    """The row about each identifier, -1 where there is none, and how many rows are about others."""
    listed = identifiers(table, key).astype(str)
    rows = pd.Index(listed).get_indexer(pd.Index(ids.astype(str)))
    return rows, len(listed) - int((rows >= 0).sum())


def _lost(path: Path, what: str, rows: np.ndarray, others: int) -> tuple[Loss, ...]:
    """Users or items that the table does not have, and rows about those who have no ratings."""
    missing = int((rows < 0).sum())
    listed = rows.size - missing + others
    return those(
        Loss(path.name, what, missing, rows.size, "not in this table, which says nothing of them"),
        Loss(path.name, "rows", others, listed, f"about {what} without ratings"),
    )


def _with_attributes(ratings: Ratings, place: Place, user: str | None) -> Ratings:
    table, key, columns = _table(place, "user", user)
    rows, others = _rows_of(ratings.user_ids, table, key)
    blocks = {column: _categories(table, column, rows) for column in columns}
    attributes, groups, names = one_hot(blocks)
    return replace(
        ratings,
        attributes=attributes,
        attribute_groups=groups,
        attribute_names=names,
        losses=(*ratings.losses, *_lost(place.path, "users", rows, others)),
    )


def _categories(table: Table, column: str, rows: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """The category of each user, and the names of all; ``unknown`` is one where somebody has none."""
    cells = np.array([cell.strip() for cell in table.text(column)] + [""], dtype=object)[rows]
    cells = np.where(cells == "", UNKNOWN, cells).astype(str)
    names, category = np.unique(cells, return_inverse=True)
    if names.size > MAX_CATEGORIES:
        raise InputError(
            f"{table.path}: column {shown(column)} must hold at most {MAX_CATEGORIES:,} categories, got "
            f"{names.size:,}; leave it out, or group its values"
        )
    return category, tuple(names.tolist())


def _with_features(ratings: Ratings, place: Place, item: str | None) -> Ratings:
    table, key, columns = _table(place, "item", item)
    rows, others = _rows_of(ratings.item_ids, table, key)
    features: list[np.ndarray] = []
    names: list[str] = []
    for column in columns:
        cells = [cell.strip() for cell in table.text(column)]
        values, labels = _numbers(cells, column) or _hot(table, column, cells)
        features.append(values)
        names += labels
    whole = np.concatenate(features, axis=1)
    check_cells(f"{place.path}", ratings.n_items, whole.shape[1])
    return replace(
        ratings,
        item_features=np.where(rows[:, None] >= 0, whole[rows], 0.0),
        item_feature_names=tuple(names),
        losses=(*ratings.losses, *_lost(place.path, "items", rows, others)),
    )


def _numbers(cells: Sequence[str], column: str) -> tuple[np.ndarray, list[str]] | None:
    """A column of finite numbers, 0 where a cell is empty; None where it is none."""
    numbers = pd.to_numeric(pd.Series([cell or "0" for cell in cells]), errors="coerce").to_numpy(float)
    return (numbers[:, None], [column]) if np.isfinite(numbers).all() else None


def _hot(table: Table, column: str, cells: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """A column of categories, several of which may be in one cell."""
    parts = [[name.strip() for name in cell.split(SEVERAL) if name.strip()] for cell in cells]
    names = sorted({part for row in parts for part in row})
    if len(names) > MAX_CATEGORIES:
        raise InputError(
            f"{table.path}: column {shown(column)} must hold numbers or at most {MAX_CATEGORIES:,} "
            f"categories, got {len(names):,}; leave it out"
        )
    check_cells(f"{table.path}: {column}", len(cells), max(len(names), 1))
    position = {name: at for at, name in enumerate(names)}
    hot = np.zeros((len(cells), len(names)))
    for row, present in enumerate(parts):
        hot[row, [position[part] for part in present]] = 1
    return hot, [f"{column}={name}" for name in names]


def _with_trust(ratings: Ratings, place: Place) -> Ratings:
    """Directed edges between users of the ratings, each once."""
    path = place.path
    known = pd.Index(ratings.user_ids.astype(str))
    edges, n_rows, unknown = [], 0, 0
    for pairs in _friends(path) if ending(path) in JSON else _pairs(place, known):
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


def _pairs(place: Place, known: pd.Index) -> Iterator[pd.DataFrame]:
    """Two columns of text, below a line of names where there is one, which is no line of users."""
    path, first = place.path, True
    if ending(path) in (".parquet", *DATABASES):
        yield _two_columns(read_small_table(*place))
        return
    separator = {".csv": ",", ".tsv": "\t"}.get(ending(path), " ")
    for part in chunks(path, TextFormat(separator, ("user", "trusts"))):
        pairs = part.frame.iloc[:, :2].astype(str).apply(lambda column: column.str.strip())
        if first and len(pairs) and pairs.iloc[0, 0].lower() in HEADS and pairs.iloc[0, 0] not in known:
            pairs = pairs.iloc[1:]
        first = False
        yield pairs


def _two_columns(table: Table) -> pd.DataFrame:
    if table.frame.shape[1] < 2:
        raise InputError(f"{table.path} must have two columns of users, got {table.frame.shape[1]}")
    return table.frame.iloc[:, :2].apply(lambda column: column.str.strip())


def _friends(path: Path) -> Iterator[pd.DataFrame]:
    """Yelp's users: JSON lines with ``user_id`` and ``friends``, a list or names between commas."""
    trusted: list[tuple[str, str]] = []
    for line_number, person in json_objects(path):
        name, friends = person.get("user_id"), person.get("friends", [])
        names = friends.split(",") if isinstance(friends, str) else friends
        if not isinstance(name, str) or not isinstance(names, list):
            raise InputError(
                f"{path} line {line_number}: must have user_id and friends; it is no table of friends"
            )
        trusted += [(name, one) for one in map(str.strip, map(str, names)) if one not in ("", "None")]
        if len(trusted) >= PAIRS:
            yield pd.DataFrame(trusted)
            trusted = []
    yield pd.DataFrame(trusted, columns=["user", "trusts"])
