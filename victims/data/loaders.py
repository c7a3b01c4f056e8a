"""The one function that finds the right reader, ``load``, and tables beside ratings of one's own.

``synthetic``, the name of a fetched data set, or a path: a directory is recognised by the files in it, a file
by its name. Options follow as for every other component, ``ratings.csv:user=uid,item=sku,min_ratings=5``:
categories of users, features of items and statements of trust are files beside the ratings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from jaxtyping import Int

from victims.common.errors import InputError
from victims.common.validation import at_least, require_fields
from victims.data.fetch import FETCHABLE, cached
from victims.data.published import (
    DOUBAN,
    YELP_REVIEWS,
    douban,
    filmtrust_tab,
    find_file,
    is_there,
    movielens_1m,
    movielens_100k,
    movielens_100k_atomic,
    movielens_csv,
    path_of,
    whitespace,
    yelp,
)
from victims.data.rated import USUAL_NAMES, Columns, rated_file
from victims.data.ratings import Loss, Ratings, check_cells, one_hot, those
from victims.data.subsets import community, parse_community, with_enough
from victims.data.synthetic import generate, is_synthetic, parse_synthetic
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


OPTIONS = re.compile(r"[a-z_]+=[^,=]*(,[a-z_]+=[^,=]*)*")
COLUMNS = ("user", "item", "rating", "time")
DIRECTORIES: dict[str, Callable[[Path], Ratings]] = {
    "u.data": movielens_100k,
    "ml-100k.inter": movielens_100k_atomic,
    "ratings.dat": movielens_1m,
    "ratings.csv": movielens_csv,
    "ratings.tab": filmtrust_tab,
    "ratings.txt": whitespace,
    YELP_REVIEWS: yelp,
    **{name: partial(douban, name=name) for name in DOUBAN},
}
SUFFIXES = (".csv", ".tsv", ".inter", ".parquet", *JSON, *DATABASES)


@dataclass(frozen=True)
class DataSource:
    """Ratings of one's own, and how to read them."""

    place: str  # A path, the name of a fetched data set, or ``synthetic``
    user: str | None = None  # names of columns; None guesses them by their usual names
    item: str | None = None
    rating: str | None = None
    time: str | None = None
    implicit: bool = False  # every row is an interaction, rated 1; a rating column, if named, holds counts
    min_ratings: int = 1  # users, and items, with fewer ratings are left out, until none is left
    min_item_ratings: int = 1
    attributes: str | None = None  # a table of users: a column of users, and columns of categories
    features: str | None = (
        None  # a table of items: a column of items, and columns of numbers or of categories
    )
    trust: str | None = None  # pairs of users, the first of whom trusts the second
    table: str | None = None  # name of the table, where the file is a database
    community: str | None = None  # ``USERSxITEMSxRATINGS``: a part whose users trust each other

    def __post_init__(self) -> None:
        require_fields(self, "the data", min_ratings=at_least(1), min_item_ratings=at_least(1))

    @property
    def columns(self) -> dict[str, str]:
        """The columns that are named: what they hold to their name."""
        return {name: given for name in COLUMNS if (given := getattr(self, name)) is not None}


KEYS = tuple(one.name for one in fields(DataSource) if one.name != "place")


def source_of(text: str, options: Mapping[str, Any] | None = None) -> DataSource:
    """Parse a path or name with what follows it.

    Examples
    --------
    >>> source_of("r.csv:user=uid,min_ratings=5").min_ratings
    5
    """
    place, colon, tail = text.rpartition(":")
    given: dict[str, Any] = {}
    if not colon or not OPTIONS.fullmatch(tail) or place == "synthetic" or _is_file(text):
        place, tail = text, ""
    for key, _, value in (pair.partition("=") for pair in tail.split(",") if pair):
        if key in given:
            raise InputError(f"--data {place!r:.80} has the option {key} twice; give it once")
        given[key] = value
    given |= dict(options or {})
    for key in given:
        if key not in KEYS:
            near = get_close_matches(key, KEYS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(KEYS)}"
            raise InputError(f"--data {place!r:.80} has no option {key!r:.40}; {hint}")
    return DataSource(place, **{key: _value(key, value) for key, value in given.items()})


def _is_file(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):
        return False


def _value(key: str, value: Any) -> Any:
    if key == "implicit":
        if str(value).lower() not in ("true", "false"):
            raise InputError(f"implicit of the data must be true or false, got {value!r:.40}")
        return str(value).lower() == "true"
    if key.startswith("min_"):
        if not re.fullmatch(r"-?[0-9]{1,9}", str(value)):
            raise InputError(f"{key} of the data must be a whole number below 10^9, got {value!r:.40}")
        return int(value)
    return str(value)


def load(text: str, options: Mapping[str, Any] | None = None) -> Ratings:
    """Load ratings from a name or a path."""
    if is_synthetic(text):
        if options:
            raise InputError(
                f"{text!r:.80} takes no options of files, got {', '.join(options)}; leave them out"
            )
        return generate(parse_synthetic(text))
    source = source_of(text, options)
    sizes = None if source.community is None else parse_community(source.community)
    path = path_of(source.place)
    if not is_there(path):
        if source.place not in FETCHABLE:
            raise InputError(
                f"--data {shown(source.place)} is neither a file nor a known name; use --data synthetic, "
                f"a fetched name ({', '.join(FETCHABLE)}) or a path"
            )
        path = cached(source.place)
    try:
        ratings = _reader(path, source)(path)
        place = path_of(source.place)
        folder = place if place.is_dir() else place.parent
        for add, file, key in (
            (with_attributes, source.attributes, source.user),
            (with_features, source.features, source.item),
            (with_trust, source.trust, None),
        ):
            if file is not None:
                ratings = add(ratings, *_found(folder, file), key)
        ratings = with_enough(ratings, source.min_ratings, source.min_item_ratings)
        return ratings if sizes is None else community(ratings, sizes)
    except MemoryError:
        raise InputError(f"{path} does not fit in memory; subsample it") from None
    except pa.ArrowException as error:
        raise InputError(f"{path} cannot be read: {error}; convert it") from None


def _found(folder: Path, name: str) -> tuple[Path, str | None]:
    """A file beside the ratings, or where the name itself leads; ``FILE#TABLE`` of a database."""
    file, mark, table = name.rpartition("#")
    for path in (folder / name, path_of(name)):
        if is_there(path):
            return path, None
    for path in (folder / file, path_of(file)) if mark and file else ():
        if is_there(path):
            return path, table
    raise InputError(f"{folder / name} must be there, as it is named beside the ratings; correct the name")


def _reader(path: Path, source: DataSource) -> Callable[[Path], Ratings]:
    named = source.implicit or bool(source.columns) or source.table is not None
    if path.is_dir():
        if named:
            raise InputError(f"{path}: columns are named for a single file; give the file itself")
        for name, reader in DIRECTORIES.items():
            if find_file(path, name):
                return reader
        raise InputError(
            f"{path} must contain one of {', '.join(DIRECTORIES)} (or .gz), none is there; "
            "give the file itself if it has another name"
        )
    name = path.name.removesuffix(".gz")
    if name in DIRECTORIES and not named:
        return lambda file: DIRECTORIES[name](file.parent)
    suffix = ending(path)
    if suffix == ".txt":
        if named:
            raise InputError(
                f"{path} has no header that names columns; give it one, and the ending .csv or .tsv"
            )
        return whitespace
    if suffix not in SUFFIXES:
        raise InputError(
            f"{path} has no known format; expected {', '.join(SUFFIXES)}, .txt or one of the published "
            f"file names {', '.join(DIRECTORIES)}"
        )
    columns = Columns(source.columns, source.implicit)
    return lambda file: rated_file(file, columns, source.table).ratings(Path(name).stem)
