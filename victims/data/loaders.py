"""Loaders of published rating files, and the one function that finds the right one.

``load`` takes what the command line calls ``--data``: ``synthetic``, the name of a fetched data set,
or a path. A directory is recognised by the files in it, a file by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from victims.common.errors import InputError
from victims.common.files import reason_of
from victims.data import movielens
from victims.data.delimited import (
    Table,
    TextFormat,
    categories,
    chosen,
    chunks,
    identifiers,
    integers,
    read_text_table,
    shown,
)
from victims.data.encoded_rows import Chunk, RatingRows
from victims.data.fetch import FETCHABLE, cached
from victims.data.parquet import parquet_chunks
from victims.data.ratings import Coded, Ratings, from_triples, one_hot, without
from victims.data.synthetic import generate, parse_synthetic

ML_100K_GENRES = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary",
    "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller",
    "War", "Western",
)  # fmt: skip
ML_100K_RATINGS = TextFormat("\t", ("user", "item", "rating", "time"))
MAX_OCCUPATIONS = 1000
COLUMN_NAMES = {
    "user": ("user", "user_id", "userid", "user_id:token"),
    "item": ("item", "item_id", "itemid", "movieid", "movie_id", "item_id:token"),
    "rating": ("rating", "score", "rating:float"),
}


def load(source: str) -> Ratings:
    """Load ratings from a name or a path.

    Parameters
    ----------
    source : str
        ``synthetic`` (optionally with sizes, ``synthetic:users=500``), ``ml-100k`` or ``filmtrust``
        once fetched, or a directory or file in a published format: MovieLens 100K, 1M or CSV,
        FilmTrust, Epinions, or CSV / Parquet with columns user, item, rating. Text files may be
        gzip-compressed.

    Raises
    ------
    InputError
        If nothing is there, the format is not recognised, or a row breaks a rule.
    """
    if source == "synthetic" or source.startswith("synthetic:"):
        return generate(parse_synthetic(source))
    path = _path_of(source)
    if not _is_there(path):
        if source in FETCHABLE:
            path = cached(source)
        else:
            raise InputError(
                f"--data {shown(source)} is neither a file nor a known name; use --data synthetic, "
                f"a fetched name ({', '.join(FETCHABLE)}) or a path"
            )
    try:
        return _recognise(path)(path)
    except MemoryError:
        raise InputError(f"{path} does not fit in memory; subsample it") from None
    except pa.ArrowException as error:
        raise InputError(f"{path} cannot be read: {error}; convert it") from None


def _path_of(source: str) -> Path:
    try:
        return Path(source).expanduser()
    except RuntimeError:
        raise InputError(
            f"--data {shown(source)} names no user of this machine; write the path out"
        ) from None


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a name too long, a folder that may not be entered
        raise InputError(f"{path} cannot be read: {reason_of(error)}; check the name") from None


def _find(directory: Path, *names: str) -> Path | None:
    for name in names:
        for candidate in (directory / name, directory / f"{name}.gz"):
            if _is_there(candidate):
                return candidate
    return None


def _recognise(path: Path) -> Callable[[Path], Ratings]:
    if path.is_dir():
        for name, loader in DIRECTORIES.items():
            if _find(path, name):
                return loader
        raise InputError(
            f"{path} must contain one of {', '.join(DIRECTORIES)} (or .gz), none is there; "
            "give the file itself if it has another name"
        )
    name = path.name.removesuffix(".gz")
    if name in DIRECTORIES:
        return lambda file: DIRECTORIES[name](file.parent)
    suffix = Path(name).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"{path} has no known format; expected {', '.join(SUFFIXES)} or one of the published "
            f"file names {', '.join(DIRECTORIES)}"
        )
    return SUFFIXES[suffix]


@dataclass(frozen=True)
class Rated:
    """The rows of a rating file, coded; ``repeated`` rows of the same pairs are left out already."""

    path: Path
    users: Coded
    items: Coded
    values: Coded
    repeated: int


def _read_rated(path: Path, rows: Iterable[Chunk]) -> Rated:
    collected = RatingRows(path)
    for chunk in rows:
        collected.add(chunk)
    return Rated(path, *collected.finish(), collected.repeated)


def _text_chunks(path: Path, layout: TextFormat) -> Iterator[Chunk]:
    """User, item and rating of a delimited file, found by the names in its header where it has one."""
    for table in chunks(path, layout):
        places = chosen(path, list(table.frame.columns), COLUMN_NAMES)
        cells = {name: _text_array(table.frame.iloc[:, place]) for name, place in places.items()}
        yield Chunk(**cells, path=path, place=table.place)


def _text_array(column: pd.Series) -> pa.Array:
    cells = pa.array(column, pa.large_string(), from_pandas=True)
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def _rated_text(path: Path, layout: TextFormat) -> Rated:
    return _read_rated(path, _text_chunks(path, layout))


def _simple(name: str, rated: Rated) -> Ratings:
    """Ratings without a catalogue of users or items."""
    return from_triples(name, rated.users, rated.items, rated.values, repeated=rated.repeated)


def _required(directory: Path, name: str) -> Path:
    path = _find(directory, name)
    if path is None:
        raise InputError(f"{directory} must contain {name} (or {name}.gz) of the published set")
    return path


def movielens_100k(directory: Path) -> Ratings:
    """MovieLens 100K: ``u.data``, ``u.user`` and ``u.item`` as published."""
    rated = _rated_text(_required(directory, "u.data"), ML_100K_RATINGS)
    people = read_text_table(
        _required(directory, "u.user"), TextFormat("|", ("user", "age", "gender", "occupation", "zip"))
    )
    flags = tuple(f"genre {k}" for k in range(len(ML_100K_GENRES)))
    films = read_text_table(
        _required(directory, "u.item"),
        TextFormat("|", ("item", "title", "date", "video", "url", *flags), "iso-8859-1"),
    )
    hot = np.stack([integers(films, flag, low=0, high=1) for flag in flags], axis=1)
    genres = [[ML_100K_GENRES[k] for k in np.flatnonzero(row)] for row in hot]
    return _movielens("ml-100k", rated, people, films, genres, _years(films))


def published_split(source: str, ratings: Ratings) -> tuple[Ratings, Ratings] | None:
    """The split of MovieLens 100K with ten test ratings per user (``ua.test``), where its file is there.

    Returns
    -------
    (train, test) or None
        Same users, items and attributes.
    """
    path = _path_of(source)
    file = _find(path, "ua.test") if path.is_dir() else None
    if file is None or ratings.name != "ml-100k":
        return None
    rated = _rated_text(file, ML_100K_RATINGS)
    pairs = [_known(rated.users, ratings.user_ids), _known(rated.items, ratings.item_ids)]
    if any((part < 0).any() for part in pairs):
        raise InputError(f"{file} must name users and items of u.data only")
    is_test = np.isin(
        ratings.users.astype(np.int64) * ratings.n_items + ratings.items,
        pairs[0] * ratings.n_items + pairs[1],
    )
    return without(ratings, is_test), without(ratings, ~is_test)


def _known(column: Coded, ids: np.ndarray) -> np.ndarray:
    """Index in ``ids`` of each row, -1 where it is none of them."""
    places = {str(name): place for place, name in enumerate(ids)}
    return np.array([places.get(str(name), -1) for name in column.ids])[column.codes]


def movielens_100k_atomic(directory: Path) -> Ratings:
    """MovieLens 100K in the tab-separated files with typed headers that ``data fetch`` brings."""
    layout = TextFormat("\t")
    rated = _rated_text(_required(directory, "ml-100k.inter"), layout)
    people = read_text_table(_required(directory, "ml-100k.user"), layout)
    people = people.renamed(lambda name: name.partition(":")[0].removesuffix("_code"))
    people = people.renamed(lambda name: "user" if name == "user_id" else name)
    people.require("user", "age", "gender", "occupation", "zip")
    films = read_text_table(_required(directory, "ml-100k.item"), layout)
    films = films.renamed(lambda name: "item" if name == "item_id:token" else name.partition(":")[0])
    films.require("item", "class", "release_year")
    genres = [row.split() for row in films.text("class")]
    years = [int(year) if year.isascii() and year.isdigit() else None for year in films.text("release_year")]
    return _movielens("ml-100k", rated, people, films, genres, years)


def movielens_1m(directory: Path) -> Ratings:
    """MovieLens 1M: ``ratings.dat``, ``users.dat`` and ``movies.dat`` as published."""
    rated = _rated_text(
        _required(directory, "ratings.dat"), TextFormat("::", ("user", "item", "rating", "time"))
    )
    people = read_text_table(
        _required(directory, "users.dat"), TextFormat("::", ("user", "gender", "age", "occupation", "zip"))
    )
    films = read_text_table(
        _required(directory, "movies.dat"), TextFormat("::", ("item", "title", "genres"), "iso-8859-1")
    )
    genres = [row.split("|") for row in films.text("genres")]
    return _movielens("ml-1m", rated, people, films, genres, _years(films))


def _years(films: Table) -> list[int | None]:
    return [movielens.year_of_title(title) for title in films.text("title")]


def _movielens(
    name: str,
    rated: Rated,
    people: Table,
    films: Table,
    genres: list[list[str]],
    years: list[int | None],
) -> Ratings:
    """Join ratings, users and films; the catalogue is every film in the film list."""
    user_ids, item_ids = identifiers(people, "user"), identifiers(films, "item")
    user_order, item_order = np.argsort(user_ids), np.argsort(item_ids)
    users = _listed(rated.path, "user", rated.users, user_ids, people.path)
    items = _listed(rated.path, "item", rated.items, item_ids, films.path)
    occupations = tuple(sorted(set(people.text("occupation")), key=lambda o: (len(o), o)))
    if len(occupations) > MAX_OCCUPATIONS:
        raise InputError(
            f"{people.path} must name at most {MAX_OCCUPATIONS} occupations, got {len(occupations):,}"
        )
    ages = integers(people, "age", low=0, high=130)
    blocks = {
        "age": (movielens.age_group(ages)[user_order], movielens.AGE_LABELS),
        "gender": (categories(people, "gender", movielens.GENDERS)[user_order], movielens.GENDERS),
        "occupation": (categories(people, "occupation", occupations)[user_order], occupations),
        "region": (
            np.array([movielens.region(code) for code in people.text("zip")])[user_order],
            movielens.REGIONS,
        ),
    }
    attributes, groups, names = one_hot(blocks)
    features, feature_names = movielens.genre_and_decade(genres, years)
    return from_triples(
        name,
        users,
        items,
        rated.values,
        user_ids=user_ids[user_order],
        item_ids=item_ids[item_order],
        attributes=attributes,
        attribute_groups=groups,
        attribute_names=names,
        item_features=features[item_order],
        item_feature_names=feature_names,
        repeated=rated.repeated,
    )


def _listed(path: Path, what: str, column: Coded, ids: np.ndarray, listed: Path) -> Coded:
    """The users or items of a rating file, as the table beside it writes them, which must list them all."""
    names = column.ids.astype(str) if ids.dtype.kind == "U" else column.ids
    strange = ~np.isin(names, ids) if names.dtype.kind == ids.dtype.kind else ~np.isin(names, ids.astype(str))
    if strange.any():
        name = shown(str(names[np.argmax(strange)]))
        raise InputError(f"{path} rates {what} {name}, which {listed} must list")
    return Coded(names, column.codes)


def movielens_csv(directory: Path) -> Ratings:
    """MovieLens CSV (ml-latest, ml-latest-small): ``ratings.csv`` and, if there, ``movies.csv``."""
    path = _find(directory, "ratings.csv")
    films_path = _find(directory, "movies.csv")
    if path is None or films_path is None:
        return delimited(path or directory)
    rated = _rated_text(path, TextFormat(",", quoted=True))
    films = read_text_table(films_path, TextFormat(",", quoted=True))
    films.require("movieId", "title", "genres")
    films = films.renamed(lambda name: "item" if name == "movieId" else name)
    item_ids = identifiers(films, "item")
    items = _listed(path, "item", rated.items, item_ids, films_path)
    order = np.argsort(item_ids)
    genres = [[g for g in row.split("|") if not g.startswith("(")] for row in films.text("genres")]
    features, names = movielens.genre_and_decade(genres, _years(films))
    return from_triples(
        directory.resolve().name,
        rated.users,
        items,
        rated.values,
        item_ids=item_ids[order],
        item_features=features[order],
        item_feature_names=names,
        repeated=rated.repeated,
    )


def whitespace(path: Path) -> Ratings:
    """``user item rating`` on each line without header: FilmTrust and Epinions."""
    if path.is_dir():
        path = _find(path, "ratings.txt") or path
    name = path.parent.resolve().name if path.name.startswith("ratings.") else path.stem
    return _simple(name, _rated_text(path, TextFormat(" ", ("user", "item", "rating"))))


def filmtrust_tab(directory: Path) -> Ratings:
    """FilmTrust in the tab-separated file with three header lines that ``data fetch`` brings."""
    layout = TextFormat("\t", ("user", "item", "rating"), skip_lines=3)
    return _simple("filmtrust", _rated_text(_required(directory, "ratings.tab"), layout))


def delimited(path: Path) -> Ratings:
    """CSV or TSV whose first line names columns user, item and rating (or MovieLens' names)."""
    name = path.name.removesuffix(".gz")
    layout = TextFormat("\t" if name.endswith(".tsv") else ",", quoted=True)
    return _simple(Path(name).stem, _rated_text(path, layout))


def parquet(path: Path) -> Ratings:
    """Parquet with columns user, item and rating."""
    return _simple(path.stem, _read_rated(path, parquet_chunks(path, COLUMN_NAMES)))


DIRECTORIES: dict[str, Callable[[Path], Ratings]] = {
    "u.data": movielens_100k,
    "ml-100k.inter": movielens_100k_atomic,
    "ratings.dat": movielens_1m,
    "ratings.csv": movielens_csv,
    "ratings.tab": filmtrust_tab,
    "ratings.txt": whitespace,
}
SUFFIXES: dict[str, Callable[[Path], Ratings]] = {
    ".csv": delimited,
    ".tsv": delimited,
    ".txt": whitespace,
    ".parquet": parquet,
}
