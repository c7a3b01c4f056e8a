"""The one function that finds the right reader: ``load`` takes what the command line calls ``--data``.

``synthetic``, the name of a fetched data set, or a path: a directory is recognised by the files in it, a file
by its name. Options follow as for every other component, ``ratings.csv:user=uid,item=sku,min_ratings=5``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from victims.common.errors import InputError
from victims.common.validation import at_least, require_fields
from victims.data.beside import with_attributes, with_features, with_trust
from victims.data.fetch import FETCHABLE, cached
from victims.data.movielens import movielens_1m, movielens_100k, movielens_100k_atomic, movielens_csv
from victims.data.published import (
    DOUBAN,
    YELP_REVIEWS,
    douban,
    filmtrust_tab,
    find_file,
    is_there,
    path_of,
    whitespace,
    yelp,
)
from victims.data.rated import Columns, rated_file
from victims.data.ratings import Ratings
from victims.data.subsets import community, parse_community, with_enough
from victims.data.synthetic import generate, is_synthetic, parse_synthetic
from victims.data.tables import DATABASES, JSON, ending, shown

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
