"""Published rating sets: FilmTrust, Epinions, Yelp, Douban, and MovieLens with its attributes and features.

As in Mai & Pang 2022, section 6.1, ages are grouped in seven, gender and occupation kept, the ZIP code linked
to the US region, and items described by the tag genome. The genome's files are not part of any MovieLens
rating set, so items get their genres and the decade of their release instead.

Age groups are the seven codes of MovieLens 1M, the paper's data set, also for MovieLens 100K, which
publishes years: both sets then share one encoding. (The paper says "equal interval", which the codes
of MovieLens 1M do not allow.) Regions are those of the US Census Bureau; military mail, territories
and foreign or malformed codes are "other".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from victims.common.errors import InputError
from victims.common.files import reason_of
from victims.data.rated import Columns, Rated, rated_file, rated_text
from victims.data.ratings import Coded, Ratings, check_cells, one_hot
from victims.data.subsets import without
from victims.data.tables import Layout, Table, chosen, read_table, shown, text_rows

YELP_REVIEWS = "yelp_academic_dataset_review.json"
DOUBAN = ("bookreviews_cleaned.txt", "moviereviews_cleaned.txt", "musicreviews_cleaned.txt")


def path_of(source: str) -> Path:
    """Make a path of what a user wrote, ``~`` included."""
    try:
        return Path(source).expanduser()
    except RuntimeError:
        raise InputError(
            f"--data {shown(source)} names no user of this machine; write the path out"
        ) from None


def is_there(path: Path) -> bool:
    """Tell whether something stands at a path."""
    try:
        return path.exists()
    except OSError as error:  # a name too long, a folder that may not be entered
        raise InputError(f"{path} cannot be read: {reason_of(error)}; check the name") from None


def find_file(directory: Path, name: str) -> Path | None:
    """Find a file in a directory, plain or gzip-compressed."""
    return next(filter(is_there, (directory / name, directory / f"{name}.gz")), None)


def required(directory: Path, name: str) -> Path:
    """Find a file of a published set, plain or gzip-compressed."""
    path = find_file(directory, name)
    if path is None:
        raise InputError(f"{directory} must contain {name} (or {name}.gz) of the published set")
    return path


def whitespace(path: Path) -> Ratings:
    """Read ``user item rating`` on each line without header: FilmTrust and Epinions."""
    if path.is_dir():
        path = required(path, "ratings.txt")
    name = path.parent.resolve().name if path.name.startswith("ratings.") else path.stem
    return rated_text(path, Layout(" ", ("user", "item", "rating"), quoted=False)).ratings(name)


def filmtrust_tab(directory: Path) -> Ratings:
    """Read FilmTrust in the tab-separated file with three header lines that ``data fetch`` brings."""
    layout = Layout("\t", ("user", "item", "rating"), skip_lines=3, quoted=False)
    return rated_text(required(directory, "ratings.tab"), layout).ratings("filmtrust")


def yelp(directory: Path) -> Ratings:
    """Read Yelp's reviews, https://business.yelp.com/data/resources/open-dataset/, as JSON lines.

    ``trust=yelp_academic_dataset_user.json`` adds friends.
    """
    columns = Columns({"user": "user_id", "item": "business_id", "rating": "stars", "time": "date"})
    return rated_file(required(directory, YELP_REVIEWS), columns).ratings("yelp")


def douban(directory: Path, name: str) -> Ratings:
    """Read reviews of books, movies or music on Douban: tab-separated, with ``rating`` 1..5 and a day.

    Reviews without stars (empty, 0 or -1) are left out and counted. The files are published by the authors of
    F. Zhu et al., IJCAI 2020, doi:10.24963/ijcai.2020/415.
    """
    what = name.removesuffix("reviews_cleaned.txt")
    named = {"user": "user_id", "item": f"{what}_id", "rating": "rating", "time": "time"}
    columns = Columns(named, some_unrated=True)
    return rated_text(required(directory, name), Layout("\t"), columns).ratings(f"douban-{what}")


AGE_STARTS = (0, 18, 25, 35, 45, 50, 56)
AGE_LABELS = ("under 18", "18-24", "25-34", "35-44", "45-49", "50-55", "56+")
GENDERS = ("F", "M")
REGIONS = ("northeast", "midwest", "south", "west", "other")

# Inclusive ranges of the first three digits of a ZIP code (USPS publication of three-digit prefixes)
# by region of the Census Bureau; a prefix in no range is "other".
ZIP_RANGES: dict[str, tuple[tuple[int, int], ...]] = {
    "northeast": ((5, 5), (10, 89), (100, 196)),
    "south": (
        (197, 339), (341, 399), (400, 427), (569, 569), (700, 799), (885, 885),
    ),
    "midwest": ((430, 567), (570, 588), (600, 699)),
    "west": ((590, 599), (800, 884), (889, 961), (967, 968), (970, 999)),
}  # fmt: skip
ML_100K_GENRES = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary",
    "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller",
    "War", "Western",
)  # fmt: skip
ML_100K_RATINGS = Layout("\t", ("user", "item", "rating", "time"), quoted=False)
MAX_OCCUPATIONS = 1000
LARGEST_NUMBER = 2**31 - 1
MOST_TAGS = 100_000


def age_group(ages: Sequence[int] | np.ndarray) -> np.ndarray:
    """Find the age group of each age: those of MovieLens 1M (doi:10.1145/2827872).

    Examples
    --------
    >>> age_group([7, 24, 56]).tolist()
    [0, 1, 6]
    """
    return np.searchsorted(AGE_STARTS, np.asarray(ages), side="right") - 1


def region(zip_code: str) -> int:
    """Find the census region of a US ZIP code (section 6.1).

    Examples
    --------
    >>> [REGIONS[region(code)] for code in ("10003", "94043", "V3N4P", "09055")]
    ['northeast', 'west', 'other', 'other']
    """
    if re.fullmatch(r"\d{5}(-?\d{4})?", zip_code):
        prefix = int(zip_code[:3])
        for index, name in enumerate(REGIONS[:-1]):
            if any(low <= prefix <= high for low, high in ZIP_RANGES[name]):
                return index
    return REGIONS.index("other")


def genre_and_decade(
    genres: Sequence[Sequence[str]], years: Sequence[int | None]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Encode multi-hot genres followed by a one-hot decade; an unknown year has no decade.

    Examples
    --------
    >>> genre_and_decade([["Drama"], ["Comedy", "Drama"]], [1994, None])[1]
    ('genre=Comedy', 'genre=Drama', 'decade=1990')
    """
    genre_names = sorted({genre for row in genres for genre in row})
    decade_names = sorted({year // 10 * 10 for year in years if year is not None})
    column = {genre: k for k, genre in enumerate(genre_names)}
    decade_column = {decade: len(column) + k for k, decade in enumerate(decade_names)}
    check_cells("genres and decades", len(genres), len(column) + len(decade_column))
    features = np.zeros((len(genres), len(column) + len(decade_column)))
    for row, (names, year) in enumerate(zip(genres, years, strict=True)):
        features[row, [column[name] for name in names]] = 1
        if year is not None:
            features[row, decade_column[year // 10 * 10]] = 1
    names = [f"genre={name}" for name in genre_names] + [f"decade={d}" for d in decade_names]
    return features, tuple(names)


def year_of_title(title: str) -> int | None:
    """Read the last year in parentheses in a MovieLens title.

    Examples
    --------
    >>> [year_of_title(title) for title in ("Toy Story (1995)", "Aladdin (1996) (V)", "unknown")]
    [1995, 1996, None]
    """
    years = re.findall(r"\((\d{4})(?:[-\u2013]\d{0,4})?\)", title)
    return int(years[-1]) if years else None


def movielens_100k(directory: Path) -> Ratings:
    """Read MovieLens 100K: ``u.data``, ``u.user`` and ``u.item`` as published."""
    rated = rated_text(required(directory, "u.data"), ML_100K_RATINGS)
    people = read_table(
        required(directory, "u.user"),
        Layout("|", ("user", "age", "gender", "occupation", "zip"), quoted=False),
    )
    flags = tuple(f"genre {k}" for k in range(len(ML_100K_GENRES)))
    films = read_table(
        required(directory, "u.item"),
        Layout("|", ("item", "title", "date", "video", "url", *flags), "iso-8859-1", quoted=False),
    )
    hot = np.stack([films.integers(flag, low=0, high=1) for flag in flags], axis=1)
    genres = [[ML_100K_GENRES[k] for k in np.flatnonzero(row)] for row in hot]
    return _movielens("ml-100k", rated, people, films, genres, _years(films))


def published_split(source: str, ratings: Ratings) -> tuple[Ratings, Ratings] | None:
    """Read the split of MovieLens 100K with ten test ratings per user, where ``ua.test`` is there."""
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
    """Read MovieLens 100K in the tab-separated files with typed headers that ``data fetch`` brings."""
    layout = Layout("\t", quoted=False)
    rated = rated_text(required(directory, "ml-100k.inter"), layout)
    people = read_table(required(directory, "ml-100k.user"), layout)
    people = people.renamed(lambda name: name.partition(":")[0].removesuffix("_code"))
    people = people.renamed(lambda name: "user" if name == "user_id" else name)
    people.require("user", "age", "gender", "occupation", "zip")
    films = read_table(required(directory, "ml-100k.item"), layout)
    films = films.renamed(lambda name: "item" if name == "item_id:token" else name.partition(":")[0])
    films.require("item", "class", "release_year")
    genres = [row.split() for row in films.text("class")]
    years = [int(year) if year.isascii() and year.isdigit() else None for year in films.text("release_year")]
    return _movielens("ml-100k", rated, people, films, genres, years)


def movielens_1m(directory: Path) -> Ratings:
    """Read MovieLens 1M: ``ratings.dat``, ``users.dat`` and ``movies.dat`` as published."""
    rated = rated_text(
        required(directory, "ratings.dat"), Layout("::", ("user", "item", "rating", "time"), quoted=False)
    )
    people = read_table(
        required(directory, "users.dat"),
        Layout("::", ("user", "gender", "age", "occupation", "zip"), quoted=False),
    )
    films = read_table(
        required(directory, "movies.dat"),
        Layout("::", ("item", "title", "genres"), "iso-8859-1", quoted=False),
    )
    genres = [row.split("|") for row in films.text("genres")]
    return _movielens("ml-1m", rated, people, films, genres, _years(films))


def _years(films: Table) -> list[int | None]:
    return [year_of_title(title) for title in films.text("title")]


def _movielens(
    name: str,
    rated: Rated,
    people: Table,
    films: Table,
    genres: list[list[str]],
    years: list[int | None],
) -> Ratings:
    """Join ratings, users and films; the catalogue is every film in the film list."""
    user_ids, item_ids = people.identifiers("user"), films.identifiers("item")
    user_order, item_order = np.argsort(user_ids), np.argsort(item_ids)
    users = _listed(rated.path, "user", rated.users, user_ids, people.path)
    items = _listed(rated.path, "item", rated.items, item_ids, films.path)
    occupations = tuple(sorted(set(people.text("occupation")), key=lambda o: (len(o), o)))
    if len(occupations) > MAX_OCCUPATIONS:
        raise InputError(
            f"{people.path} must name at most {MAX_OCCUPATIONS} occupations, got {len(occupations):,}"
        )
    ages = people.integers("age", low=0, high=130)
    blocks = {
        "age": (age_group(ages)[user_order], AGE_LABELS),
        "gender": (people.categories("gender", GENDERS)[user_order], GENDERS),
        "occupation": (people.categories("occupation", occupations)[user_order], occupations),
        "region": (
            np.array([region(code) for code in people.text("zip")])[user_order],
            REGIONS,
        ),
    }
    attributes, groups, names = one_hot(blocks)
    features, feature_names = genre_and_decade(genres, years)
    return rated.ratings(
        name,
        users=users,
        items=items,
        user_ids=user_ids[user_order],
        item_ids=item_ids[item_order],
        attributes=attributes,
        attribute_groups=groups,
        attribute_names=names,
        item_features=features[item_order],
        item_feature_names=feature_names,
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
    """Read MovieLens CSV (ml-latest, ml-latest-small): ``ratings.csv`` and, if there, ``movies.csv``."""
    path = find_file(directory, "ratings.csv")
    films_path = find_file(directory, "movies.csv")
    if path is None or films_path is None:
        return rated_file(required(directory, "ratings.csv"), Columns()).ratings("ratings")
    rated = rated_text(path, Layout())
    films = read_table(films_path, Layout())
    films.require("movieId", "title", "genres")
    films = films.renamed(lambda name: "item" if name == "movieId" else name)
    item_ids = films.identifiers("item")
    items = _listed(path, "item", rated.items, item_ids, films_path)
    order = np.argsort(item_ids)
    genres = [[g for g in row.split("|") if not g.startswith("(")] for row in films.text("genres")]
    features, names = genre_and_decade(genres, _years(films))
    return rated.ratings(
        directory.resolve().name,
        items=items,
        item_ids=item_ids[order],
        item_features=features[order],
        item_feature_names=names,
    )


def with_tag_genome(ratings: Ratings, directory: Path) -> Ratings:
    """Replace the item features by the relevance of tags, 0..1 (Mai & Pang 2022, section 6.1).

    ``genome-tags.csv`` (tagId, tag) and ``genome-scores.csv`` (movieId, tagId, relevance) are those of
    J. Vig, S. Sen, J. Riedl, "The Tag Genome", ACM TiiS 2(3), 2012, doi:10.1145/2362394.2362395.
    """
    tags = read_table(required(directory, "genome-tags.csv"), Layout())
    tags.require("tagId", "tag")
    numbers = tags.integers("tagId", low=0, high=LARGEST_NUMBER)
    if numbers.size > MOST_TAGS or np.unique(numbers).size < numbers.size:
        raise InputError(f"{tags.path} must list each of at most {MOST_TAGS:,} tags once; get it again")
    names = np.array(tags.text("tag"))[np.argsort(numbers)]
    relevance = _relevance(required(directory, "genome-scores.csv"), ratings, np.sort(numbers))
    known = ~np.isnan(relevance).all(axis=1)
    if not known.any():
        raise InputError(
            f"{directory} has tags of no item of {ratings.name}; the items must be MovieLens' numbers"
        )
    relevance[known] = np.nan_to_num(relevance[known])  # a pair that the file leaves out is not relevant
    relevance[~known] = relevance[known].mean(axis=0)
    lacking = int((~known).sum())
    note = f"{lacking:,} of {known.size:,} items have no tags and get the mean of the others"
    return replace(
        ratings,
        item_features=relevance,
        item_feature_names=tuple(map(str, names)),
        notes=(*ratings.notes, *([note] if lacking else [])),
    )


def _relevance(path: Path, ratings: Ratings, numbers: np.ndarray) -> np.ndarray:
    """(n_items, n_tags), NaN where the file says nothing."""
    row_of = pd.Index(ratings.item_ids.astype(str))
    found = np.full((ratings.n_items, numbers.size), np.nan)
    names = {name: (name.lower(),) for name in ("movieId", "tagId", "relevance")}
    for part in text_rows(path, lambda header: chosen(path, header, names), Layout()):
        frame = pd.DataFrame(
            {name: column.to_pylist() for name, column in part.columns.items()}, dtype=object
        )
        table = Table(frame, path, part.locate)
        tag = table.integers("tagId", low=0, high=LARGEST_NUMBER)
        column = np.minimum(np.searchsorted(numbers, tag), numbers.size - 1)
        table.check("tagId", numbers[column] != tag, "a tag of genome-tags.csv")
        value = pd.to_numeric(frame["relevance"], errors="coerce").to_numpy(np.float64)
        table.check("relevance", ~((value >= 0) & (value <= 1)), "between 0 and 1")
        rows = row_of.get_indexer(pd.Index(frame["movieId"]))
        found[rows[rows >= 0], column[rows >= 0]] = value[rows >= 0]
    return found
