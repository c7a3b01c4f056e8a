"""The tag genome, re-created at small size in its published form."""

from __future__ import annotations

import gzip
from dataclasses import replace

import numpy as np
import pytest

from audit.rating_data import ratings_of
from victims.common.errors import InputError
from victims.data.published import with_tag_genome

TAGS = ["007", "sci-fi, hard", "noir"]


@pytest.fixture
def genome(tmp_path, ratings):
    """Both files for all items but the last, tags and films out of order; and the relevances."""
    relevance = np.random.default_rng(4).random((ratings.n_items - 1, len(TAGS))).round(5)
    lines = [
        f"{ratings.item_ids[item]},{tag + 1},{relevance[item, tag]}"
        for tag in (2, 0, 1)
        for item in reversed(range(ratings.n_items - 1))
    ]
    scores = "\n".join(["movieId,tagId,relevance", "999999,1,0.5", *lines]) + "\n"
    (tmp_path / "genome-scores.csv.gz").write_bytes(gzip.compress(scores.encode()))
    names = [f'{tag + 1},"{TAGS[tag]}"' for tag in (1, 2, 0)]
    (tmp_path / "genome-tags.csv").write_text("\n".join(["tagId,tag", *names]) + "\n")
    return tmp_path, relevance


def test_relevances_by_item_and_tag(ratings, genome):
    directory, relevance = genome
    found = with_tag_genome(ratings, directory)
    assert found.item_feature_names == tuple(TAGS)
    np.testing.assert_allclose(found.item_features[:-1], relevance)
    np.testing.assert_allclose(found.item_features[-1], relevance.mean(axis=0))
    assert found.notes[-1].startswith(f"1 of {ratings.n_items} items have no tags")
    np.testing.assert_array_equal(found.values, ratings.values)


def test_their_components(ratings, genome):
    directory, relevance = genome
    found = ratings_of(ratings, item_components=2, item_tags=directory)
    assert found.item_features.shape == (ratings.n_items, 2)
    np.testing.assert_allclose(found.item_features[-1], 0, atol=1e-12)
    total = ((relevance - relevance.mean(axis=0)) ** 2).sum()
    smallest = np.linalg.eigvalsh(np.cov(relevance.T, ddof=0))[0] * len(relevance)
    np.testing.assert_allclose((found.item_features**2).sum(), total - smallest)


@pytest.mark.parametrize(
    ("line", "message"),
    [("{item},9,0.5", "tag of genome-tags.csv"), ("{item},1,1.5", "between 0 and 1"), ("{item},1,x", "x")],
)
def test_what_is_wrong_is_named(ratings, genome, line, message):
    directory, _ = genome
    (directory / "genome-scores.csv.gz").unlink()
    text = "movieId,tagId,relevance\n" + line.format(item=ratings.item_ids[0]) + "\n"
    (directory / "genome-scores.csv").write_text(text)
    with pytest.raises(InputError, match=f"line 2.*{message}"):
        with_tag_genome(ratings, directory)


def test_other_peoples_items(ratings, genome):
    strangers = replace(ratings, item_ids=np.array([f"film {n}" for n in range(ratings.n_items)]))
    with pytest.raises(InputError, match="tags of no item"):
        with_tag_genome(strangers, genome[0])


def test_a_missing_file(ratings, tmp_path):
    with pytest.raises(InputError, match=r"genome-tags\.csv"):
        with_tag_genome(ratings, tmp_path)
