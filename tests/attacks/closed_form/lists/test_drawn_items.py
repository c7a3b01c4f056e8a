"""Items that clients drew and gave the rounded mean of their ratings: never called rated."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.base import Estimates, Reconstruction
from attacks.closed_form.lists.drawn_items import unless_drawn
from tests.attacks.closed_form.uploads.test_averaged_rows import CLIENTS, STARS, answers, record
from victims.transcript.view import ITEM

NEAR_MEAN, SPREAD = [1.0, 3, 3, 3, 3, 5], [1.0, 2, 3, 4, 5, 5]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("drawn", [12, 24])
def test_drawn_items_are_not_called_rated(tmp_path, dtype, drawn):
    lists = record(tmp_path / "t", dtype, drawn=drawn, mean=lambda ratings: np.rint(ratings.mean()))
    told = answers(tmp_path / "t")
    assert all(round(value) == lists[client].get(item) for (client, item), value in told.items())
    assert len(told) >= 0.5 * CLIENTS * 12


def read(*ratings):
    """A reconstruction that says these, client by client."""
    users = np.arange(len(ratings))
    items = np.arange(len(ratings[0]))[None]
    block = Estimates(users, np.full_like(items, ITEM), items, np.array(ratings))
    return Reconstruction("undeclared", users, (block,), {}, {})


def values(found):
    return found.blocks[0].value


def test_a_client_of_five_may_have_most_ratings_at_its_mean():
    found = read(NEAR_MEAN, *[SPREAD] * 4)
    assert unless_drawn(found, STARS) is found


def test_where_all_have_every_one_is_silent_about_that_level():
    """A client of two neighbours says nothing: it always has. Of one with a single level nothing is left."""
    two, one = [4.0, 4, 4, 4, 5, 5], [4.0] * 6
    found = unless_drawn(read(*[NEAR_MEAN] * 4, two, one), STARS)
    rest = [[1.0, *[np.nan] * 4, 5.0]] * 4 + [[*[np.nan] * 4, 5.0, 5.0], [np.nan] * 6]
    np.testing.assert_equal(values(found), rest)
    assert list(found.abstained) == [5]
    assert unless_drawn(read(two, one), STARS).abstained == {}


def test_a_client_whose_rows_tell_what_it_did_not_rate_is_left():
    told = [0.0, 0, 3, 3, 3, 4]
    found = unless_drawn(read(*[NEAR_MEAN] * 4, told), STARS)
    np.testing.assert_equal(values(found)[-1], told)
