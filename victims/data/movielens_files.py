"""MovieLens as published: ratings joined with the tables of users and films beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from victims.common.errors import InputError
from victims.data import movielens
from victims.data.construction import Coded, from_triples, one_hot
from victims.data.delimited import read_text_table
from victims.data.plain_files import delimited
from victims.data.rating_files import Rated, find_file, path_of, rated_text, required
from victims.data.ratings import Ratings
from victims.data.subsets import without
from victims.data.tables import Table, categories, identifiers, integers, shown
from victims.data.text_lines import TextFormat

ML_100K_GENRES = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary",
    "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller",
    "War", "Western",
)  # fmt: skip
ML_100K_RATINGS = TextFormat("\t", ("user", "item", "rating", "time"))
MAX_OCCUPATIONS = 1000


def movielens_100k(directory: Path) -> Ratings:
    """Read MovieLens 100K: ``u.data``, ``u.user`` and ``u.item`` as published.

    References
    ----------
    F. M. Harper and J. A. Konstan, "The MovieLens Datasets: History and Context", doi:10.1145/2827872.
    """
    rated = rated_text(required(directory, "u.data"), ML_100K_RATINGS)
    people = read_text_table(
        required(directory, "u.user"), TextFormat("|", ("user", "age", "gender", "occupation", "zip"))
    )
    flags = tuple(f"genre {k}" for k in range(len(ML_100K_GENRES)))
    films = read_text_table(
        required(directory, "u.item"),
        TextFormat("|", ("item", "title", "date", "video", "url", *flags), "iso-8859-1"),
    )
    hot = np.stack([integers(films, flag, low=0, high=1) for flag in flags], axis=1)
    genres = [[ML_100K_GENRES[k] for k in np.flatnonzero(row)] for row in hot]
    return _movielens("ml-100k", rated, people, films, genres, _years(films))


def published_split(source: str, ratings: Ratings) -> tuple[Ratings, Ratings] | None:
    """Read the split of MovieLens 100K with ten test ratings per user (``ua.test``), where its file is there.

    References
    ----------
    F. M. Harper and J. A. Konstan, "The MovieLens Datasets: History and Context", doi:10.1145/2827872.
    """
    path = path_of(source)
    file = find_file(path, "ua.test") if path.is_dir() else None
    if file is None or ratings.name != "ml-100k":
        return None
    rated = rated_text(file, ML_100K_RATINGS)
    users, items = _index_in(ratings.user_ids, rated.users), _index_in(ratings.item_ids, rated.items)
    if (users < 0).any() or (items < 0).any():
        raise InputError(f"{file} must name users and items of u.data only; get both files again")
    is_test = np.isin(
        ratings.users.astype(np.int64) * ratings.n_items + ratings.items, users * ratings.n_items + items
    )
    return without(ratings, is_test), without(ratings, ~is_test)


def _index_in(ids: np.ndarray, column: Coded) -> np.ndarray:
    """Index in ``ids`` of each row, -1 where it is none of them."""
    index = {str(name): row for row, name in enumerate(ids)}
    return np.array([index.get(str(name), -1) for name in column.ids])[column.codes]


def movielens_100k_atomic(directory: Path) -> Ratings:
    """Read MovieLens 100K in the tab-separated files with typed headers that ``data fetch`` brings.

    References
    ----------
    F. M. Harper and J. A. Konstan, "The MovieLens Datasets: History and Context", doi:10.1145/2827872.
    """
    layout = TextFormat("\t")
    rated = rated_text(required(directory, "ml-100k.inter"), layout)
    people = read_text_table(required(directory, "ml-100k.user"), layout)
    people = people.renamed(lambda name: name.partition(":")[0].removesuffix("_code"))
    people = people.renamed(lambda name: "user" if name == "user_id" else name)
    people.require("user", "age", "gender", "occupation", "zip")
    films = read_text_table(required(directory, "ml-100k.item"), layout)
    films = films.renamed(lambda name: "item" if name == "item_id:token" else name.partition(":")[0])
    films.require("item", "class", "release_year")
    genres = [row.split() for row in films.text("class")]
    years = [int(year) if year.isascii() and year.isdigit() else None for year in films.text("release_year")]
    return _movielens("ml-100k", rated, people, films, genres, years)


def movielens_1m(directory: Path) -> Ratings:
    """Read MovieLens 1M: ``ratings.dat``, ``users.dat`` and ``movies.dat`` as published.

    References
    ----------
    F. M. Harper and J. A. Konstan, "The MovieLens Datasets: History and Context", doi:10.1145/2827872.
    """
    rated = rated_text(
        required(directory, "ratings.dat"), TextFormat("::", ("user", "item", "rating", "time"))
    )
    people = read_text_table(
        required(directory, "users.dat"), TextFormat("::", ("user", "gender", "age", "occupation", "zip"))
    )
    films = read_text_table(
        required(directory, "movies.dat"), TextFormat("::", ("item", "title", "genres"), "iso-8859-1")
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
        times=rated.times,
        repeated=rated.repeated,
        notes=rated.notes,
        losses=rated.losses,
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
    """Read MovieLens CSV (ml-latest, ml-latest-small): ``ratings.csv`` and, if there, ``movies.csv``.

    References
    ----------
    F. M. Harper and J. A. Konstan, "The MovieLens Datasets: History and Context", doi:10.1145/2827872.
    """
    path = find_file(directory, "ratings.csv")
    films_path = find_file(directory, "movies.csv")
    if path is None or films_path is None:
        return delimited(path or directory)
    rated = rated_text(path, TextFormat(",", quoted=True))
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
        times=rated.times,
        repeated=rated.repeated,
        notes=rated.notes,
        losses=rated.losses,
    )
