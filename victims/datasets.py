"""Loaders of published rating files, and the one function that finds the right one.

``load`` takes what the command line calls ``--data``: ``synthetic``, the name of a fetched data set,
or a path. A directory is recognised by the files in it, a file by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from victims import movielens
from victims.errors import InputError
from victims.fetch import FETCHABLE, cached
from victims.ratings import Ratings, from_triples, one_hot, without
from victims.synthetic import generate, parse_synthetic
from victims.tables import (
    TextFormat,
    categories,
    fail,
    identifiers,
    integers,
    numeric,
    read_parquet_table,
    read_text_table,
)

ML_100K_GENRES = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary",
    "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller",
    "War", "Western",
)  # fmt: skip
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
    path = Path(source).expanduser()
    if not path.exists():
        if source in FETCHABLE:
            path = cached(source)
        else:
            raise InputError(
                f"--data {source!r} is neither a file nor a known name; use --data synthetic, "
                f"a fetched name ({', '.join(FETCHABLE)}) or a path"
            )
    try:
        return _recognise(path)(path)
    except MemoryError:
        raise InputError(f"{path} does not fit in memory; subsample it") from None


def _find(directory: Path, *names: str) -> Path | None:
    for name in names:
        for candidate in (directory / name, directory / f"{name}.gz"):
            if candidate.is_file():
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


def _triples(frame: pd.DataFrame, path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Users, items and ratings of a frame with columns user, item, rating."""
    if frame.empty:
        raise InputError(f"{path} must hold at least one rating, got none")
    values = numeric(frame, "rating", path)
    bad = np.flatnonzero(values <= 0)
    if bad.size:
        fail(frame, "rating", path, int(bad[0]), "> 0 (0 means unrated)")
    return identifiers(frame, "user", path), identifiers(frame, "item", path), values


def _read_required(directory: Path, name: str, layout: TextFormat) -> tuple[pd.DataFrame, Path]:
    path = _find(directory, name)
    if path is None:
        raise InputError(f"{directory} must contain {name} (or {name}.gz) of the published set")
    return read_text_table(path, layout), path


def movielens_100k(directory: Path) -> Ratings:
    """MovieLens 100K: ``u.data``, ``u.user`` and ``u.item`` as published."""
    frame, path = _read_required(directory, "u.data", TextFormat("\t", ("user", "item", "rating", "time")))
    people, people_path = _read_required(
        directory, "u.user", TextFormat("|", ("user", "age", "gender", "occupation", "zip"))
    )
    flags = tuple(f"genre {k}" for k in range(len(ML_100K_GENRES)))
    films, films_path = _read_required(
        directory,
        "u.item",
        TextFormat("|", ("item", "title", "date", "video", "url", *flags), "iso-8859-1"),
    )
    hot = np.stack([integers(films, flag, films_path, low=0, high=1) for flag in flags], axis=1)
    genres = [[ML_100K_GENRES[k] for k in np.flatnonzero(row)] for row in hot]
    years = [movielens.year_of_title(title) for title in films["title"]]
    return _movielens("ml-100k", (frame, path), (people, people_path), (films, films_path),
                      genres, years)  # fmt: skip


def published_split(source: str, ratings: Ratings) -> tuple[Ratings, Ratings] | None:
    """The split of MovieLens 100K with ten test ratings per user (``ua.test``), where its file is there.

    Returns
    -------
    (train, test) or None
        Same users, items and attributes.
    """
    path = Path(source).expanduser()
    file = _find(path, "ua.test") if path.is_dir() else None
    if file is None or ratings.name != "ml-100k":
        return None
    frame = read_text_table(file, TextFormat("\t", ("user", "item", "rating", "time")))
    known = {ids: {str(name): place for place, name in enumerate(names)} for ids, names in (
        ("user", ratings.user_ids), ("item", ratings.item_ids))}  # fmt: skip
    pairs = [frame[column].astype(str).map(known[column]) for column in ("user", "item")]
    if any(part.isna().any() for part in pairs):
        raise InputError(f"{file} must name users and items of u.data only")
    tested = pairs[0].to_numpy(np.int64) * ratings.n_items + pairs[1].to_numpy(np.int64)
    is_test = np.isin(ratings.users.astype(np.int64) * ratings.n_items + ratings.items, tested)
    return without(ratings, is_test), without(ratings, ~is_test)


def movielens_100k_atomic(directory: Path) -> Ratings:
    """MovieLens 100K in the tab-separated files with typed headers that ``data fetch`` brings."""
    layout = TextFormat("\t")
    frame, path = _read_required(directory, "ml-100k.inter", layout)
    people, people_path = _read_required(directory, "ml-100k.user", layout)
    films, films_path = _read_required(directory, "ml-100k.item", layout)
    frame = _named(frame, path)
    people = people.rename(columns=lambda name: name.partition(":")[0].removesuffix("_code"))
    people = people.rename(columns={"user_id": "user"})
    films = films.rename(columns=lambda name: name.partition(":")[0])
    films = films.rename(columns={"item_id": "item"})
    genres = [row.split() for row in films["class"]]
    years = [int(year) if year.isdigit() else None for year in films["release_year"]]
    return _movielens("ml-100k", (frame, path), (people, people_path), (films, films_path),
                      genres, years)  # fmt: skip


def movielens_1m(directory: Path) -> Ratings:
    """MovieLens 1M: ``ratings.dat``, ``users.dat`` and ``movies.dat`` as published."""
    frame, path = _read_required(
        directory, "ratings.dat", TextFormat("::", ("user", "item", "rating", "time"))
    )
    people, people_path = _read_required(
        directory, "users.dat", TextFormat("::", ("user", "gender", "age", "occupation", "zip"))
    )
    films, films_path = _read_required(
        directory, "movies.dat", TextFormat("::", ("item", "title", "genres"), "iso-8859-1")
    )
    genres = [row.split("|") for row in films["genres"]]
    years = [movielens.year_of_title(title) for title in films["title"]]
    return _movielens("ml-1m", (frame, path), (people, people_path), (films, films_path),
                      genres, years)  # fmt: skip


def _movielens(
    name: str,
    rated: tuple[pd.DataFrame, Path],
    people: tuple[pd.DataFrame, Path],
    films: tuple[pd.DataFrame, Path],
    genres: list[list[str]],
    years: list[int | None],
) -> Ratings:
    """Join ratings, users and films; the catalogue is every film in the film list."""
    users, items, values = _triples(*rated)
    user_ids = identifiers(people[0], "user", people[1])
    item_ids = identifiers(films[0], "item", films[1])
    user_order, item_order = np.argsort(user_ids), np.argsort(item_ids)
    occupations = tuple(sorted(set(people[0]["occupation"]), key=lambda o: (len(o), o)))
    ages = integers(people[0], "age", people[1], low=0, high=130)
    blocks = {
        "age": (movielens.age_group(ages)[user_order], movielens.AGE_LABELS),
        "gender": (
            categories(people[0], "gender", people[1], movielens.GENDERS)[user_order],
            movielens.GENDERS,
        ),
        "occupation": (
            categories(people[0], "occupation", people[1], occupations)[user_order],
            occupations,
        ),
        "region": (
            np.array([movielens.region(code) for code in people[0]["zip"]])[user_order],
            movielens.REGIONS,
        ),
    }
    attributes, groups, names = one_hot(blocks)
    features, feature_names = movielens.genre_and_decade(genres, years)
    return from_triples(
        name,
        users,
        items,
        values,
        user_ids=user_ids[user_order],
        item_ids=item_ids[item_order],
        attributes=attributes,
        attribute_groups=groups,
        attribute_names=names,
        item_features=features[item_order],
        item_feature_names=feature_names,
    )


def movielens_csv(directory: Path) -> Ratings:
    """MovieLens CSV (ml-latest, ml-latest-small): ``ratings.csv`` and, if there, ``movies.csv``."""
    path = _find(directory, "ratings.csv")
    films_path = _find(directory, "movies.csv")
    if path is None or films_path is None:
        return delimited(path or directory)
    frame = _named(read_text_table(path, TextFormat(",", quoted=True)), path)
    users, items, values = _triples(frame, path)
    films = read_text_table(films_path, TextFormat(",", quoted=True))
    for column in ("movieId", "title", "genres"):
        if column not in films:
            raise InputError(f"{films_path} line 1: must name a column {column!r}")
    films = films.rename(columns={"movieId": "item"})
    item_ids = identifiers(films, "item", films_path)
    order = np.argsort(item_ids)
    genres = [[g for g in row.split("|") if not g.startswith("(")] for row in films["genres"]]
    years = [movielens.year_of_title(title) for title in films["title"]]
    features, names = movielens.genre_and_decade(genres, years)
    return from_triples(
        directory.resolve().name,
        users,
        items,
        values,
        item_ids=item_ids[order],
        item_features=features[order],
        item_feature_names=names,
    )


def whitespace(path: Path) -> Ratings:
    """``user item rating`` on each line without header: FilmTrust and Epinions."""
    if path.is_dir():
        path = _find(path, "ratings.txt") or path
    frame = read_text_table(path, TextFormat(" ", ("user", "item", "rating")))
    name = path.parent.resolve().name if path.name.startswith("ratings.") else path.stem
    return from_triples(name, *_triples(frame, path))


def filmtrust_tab(directory: Path) -> Ratings:
    """FilmTrust in the tab-separated file with three header lines that ``data fetch`` brings."""
    layout = TextFormat("\t", ("user", "item", "rating"), skip_lines=3)
    frame, path = _read_required(directory, "ratings.tab", layout)
    return from_triples("filmtrust", *_triples(frame, path))


def delimited(path: Path) -> Ratings:
    """CSV or TSV whose first line names columns user, item and rating (or MovieLens' names)."""
    name = path.name.removesuffix(".gz")
    layout = TextFormat("\t" if name.endswith(".tsv") else ",", quoted=True)
    frame = _named(read_text_table(path, layout), path)
    return from_triples(Path(name).stem, *_triples(frame, path))


def parquet(path: Path) -> Ratings:
    """Parquet with columns user, item and rating."""
    return from_triples(path.stem, *_triples(_named(read_parquet_table(path), path), path))


def _named(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Keep the user, item and rating columns under these names."""
    found: dict[str, str] = {}
    for wanted, spellings in COLUMN_NAMES.items():
        match = [c for c in frame.columns if str(c).strip().lower() in spellings]
        if not match:
            raise InputError(
                f"{path} must name a column {wanted!r} in its header, "
                f"got {', '.join(map(repr, list(frame.columns)[:10]))}"
            )
        found[match[0]] = wanted
    return frame[list(found)].rename(columns=found)


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
