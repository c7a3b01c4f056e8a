"""Item features from the tag genome: how relevant each tag is to each film, as MovieLens publishes it.

Two files: ``genome-tags.csv`` (tagId, tag) and ``genome-scores.csv`` (movieId, tagId, relevance in 0..1),
with the films' numbers of MovieLens. Paper 000 takes the first 20 principal components of the 1,128 tags.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from victims.common.errors import InputError
from victims.data.delimited import chunks, read_text_table
from victims.data.rating_files import required
from victims.data.ratings import Ratings
from victims.data.tables import fail, integers, numeric
from victims.data.text_lines import TextFormat

CSV = TextFormat(",", quoted=True)
LARGEST_NUMBER = 2**31 - 1
MOST_TAGS = 100_000


def with_tag_genome(ratings: Ratings, directory: Path) -> Ratings:
    """Replace the item features by the relevance of tags.

    References
    ----------
    J. Vig, S. Sen, J. Riedl, "The Tag Genome", ACM TiiS 2(3), 2012, doi:10.1145/2362394.2362395; paper 000
    (arXiv:2210.07775), section 6.1.
    """
    tags = read_text_table(required(directory, "genome-tags.csv"), CSV)
    tags.require("tagId", "tag")
    numbers = integers(tags, "tagId", low=0, high=LARGEST_NUMBER)
    if numbers.size > MOST_TAGS or np.unique(numbers).size < numbers.size:
        raise InputError(f"{tags.path} must list each of at most {MOST_TAGS:,} tags once; get it again")
    names = np.array(tags.text("tag"))[np.argsort(numbers)]
    relevance = _relevance(required(directory, "genome-scores.csv"), ratings, np.sort(numbers))
    told = ~np.isnan(relevance).all(axis=1)
    if not told.any():
        raise InputError(
            f"{directory} has tags of no item of {ratings.name}; the items must be MovieLens' numbers"
        )
    known = np.nan_to_num(relevance[told])  # a pair that the file leaves out is not relevant
    relevance[~told] = known.mean(axis=0)
    relevance[told] = known
    lacking = int((~told).sum())
    note = f"{lacking:,} of {told.size:,} items have no tags and get the mean of the others"
    return replace(
        ratings,
        item_features=relevance,
        item_feature_names=tuple(map(str, names)),
        notes=(*ratings.notes, *([note] if lacking else [])),
    )


def _relevance(path: Path, ratings: Ratings, numbers: np.ndarray) -> np.ndarray:
    """(n_items, n_tags), NaN where the file says nothing."""
    row_of = {str(name): row for row, name in enumerate(ratings.item_ids)}
    found = np.full((ratings.n_items, numbers.size), np.nan)
    for table in chunks(path, CSV):
        table.require("movieId", "tagId", "relevance")
        rows = np.array([row_of.get(name, -1) for name in table.text("movieId")])
        tag = integers(table, "tagId", low=0, high=LARGEST_NUMBER)
        column = np.minimum(np.searchsorted(numbers, tag), numbers.size - 1)
        strange = np.flatnonzero(numbers[column] != tag)
        if strange.size:
            fail(table, "tagId", int(strange[0]), "a tag of genome-tags.csv")
        value = numeric(table, "relevance")
        bad = np.flatnonzero((value < 0) | (value > 1))
        if bad.size:
            fail(table, "relevance", int(bad[0]), "between 0 and 1")
        ours = rows >= 0
        found[rows[ours], column[ours]] = value[ours]
    return found
