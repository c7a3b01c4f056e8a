"""User attributes and item features of MovieLens, as in paper 000 section 6.1.

The paper groups ages in seven, keeps gender and occupation, links the ZIP code to the US region and
describes items by the tag genome. The genome's files are not part of any MovieLens rating set, so
items get their genres and the decade of their release instead.

Age groups are the seven codes of MovieLens 1M, the paper's data set, also for MovieLens 100K, which
publishes years: both sets then share one encoding. (The paper says "equal interval", which the codes
of MovieLens 1M do not allow.) Regions are those of the US Census Bureau; military mail, territories
and foreign or malformed codes are "other".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from victims.data.construction import check_cells

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


def age_group(ages: Sequence[int] | np.ndarray) -> np.ndarray:
    """Find the age group of each age.

    References
    ----------
    Paper 000 (arXiv:2210.07775), section 6.1, with the groups of MovieLens 1M (doi:10.1145/2827872).

    Examples
    --------
    >>> age_group([7, 24, 56]).tolist()
    [0, 1, 6]
    """
    return np.searchsorted(AGE_STARTS, np.asarray(ages), side="right") - 1


def region(zip_code: str) -> int:
    """Find the census region of a US ZIP code.

    References
    ----------
    Paper 000 (arXiv:2210.07775), section 6.1.

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
