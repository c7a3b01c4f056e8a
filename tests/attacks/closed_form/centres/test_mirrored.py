"""Ratings read up to a shift and a mirror image, put on the grid or left open."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.closed_form.centres.mirrored import Patterns, centre_of, higher_centre
from attacks.closed_form.centres.unmirrored import OPEN_SHIFT, unmirrored

STARS = np.arange(1.0, 6.0)


def patterns(ratings: np.ndarray, centre, turned, items=None) -> Patterns:
    """What is read of clients with these ratings (clients, rows) less a number; some of them turned round."""
    n_clients, n_rows = ratings.shape
    lowest, highest = ratings.min(axis=1), ratings.max(axis=1)
    up, down = ratings - lowest[:, None], highest[:, None] - ratings
    start = np.where(turned, centre - highest, lowest - centre)
    above = np.where(np.asarray(turned)[:, None], down, up).astype(int)
    owner = np.repeat(np.arange(n_clients), n_rows)
    item = np.tile(np.arange(n_rows), n_clients) if items is None else items.ravel()
    reach, times = above.max(axis=1), np.ones(n_clients, int)
    return Patterns(owner, item, above.ravel(), start, times, reach, np.full(n_clients, n_rows))


def stars(rng, n_clients: int, n_rows: int, middle: float = 3.6) -> np.ndarray:
    """Ratings of the same items, which differ in quality."""
    worth = rng.normal(middle, 1.0, n_rows)
    return np.clip(np.rint(worth + rng.normal(0, 0.8, (n_clients, n_rows))), 1, 5)


@pytest.mark.parametrize(("centre", "placed"), [(3.53, True), (3.0, True), (2.5, False)])
def test_a_number_that_all_take_off_has_one_place_on_the_grid(centre, placed):
    """Some clients have not the whole scale; those who have tell it; r - 1 less 2.5 is r less 3.5."""
    rng = np.random.default_rng(0)
    ratings = stars(rng, 30, 20)
    ratings[:10] = np.maximum(ratings[:10], 2)
    found = centre_of(patterns(ratings, centre, rng.random(30) < 0.5), STARS)
    assert found.placed is placed
    assert found.value == pytest.approx(min(centre, 6 - centre))


def test_half_stars_less_3_are_not_read_as_lower_ones_less_2_and_a_half():
    """The mirror image of 3 is 2.5 there, whole levels away: only both ends of the grid tell."""
    rng, levels = np.random.default_rng(6), np.arange(1, 11) / 2
    ratings = np.clip(np.rint(2 * stars(rng, 30, 20, 3.9)) / 2 + rng.choice([-0.5, 0.0, 0.5], (30, 20)), 1, 5)
    ratings[0, :2] = 0.5, 5
    found = patterns(2 * ratings, 2 * 3.0, rng.random(30) < 0.5)
    found = found._replace(start=found.start / 2)
    answer = unmirrored(found, levels, np.random.default_rng(0))
    assert answer.sizes_alone
    assert (np.abs(answer.per_step) == 0.5).all()


def test_it_is_open_where_nobody_has_the_whole_scale():
    rng = np.random.default_rng(1)
    ratings = np.clip(stars(rng, 30, 20), 2, 4)
    assert not centre_of(patterns(ratings, 3.53, rng.random(30) < 0.5), STARS).placed


@pytest.mark.parametrize(("centre", "placed"), [(3.53, True), (2.9, True), (3.0, False)])
def test_one_client_with_the_whole_scale_is_enough_where_others_have_its_sign(centre, placed):
    """Where the number is its own mirror image, others do not say that the client is read rightly."""
    rng = np.random.default_rng(8)
    ratings = np.clip(stars(rng, 8, 20), 2, 5)
    ratings[0, :2] = 1, 5
    found = centre_of(patterns(ratings, centre, rng.random(8) < 0.5), STARS)
    assert found.placed is placed
    assert found.value == pytest.approx(min(centre, 6 - centre)) or not placed


def test_clients_own_means_are_no_common_number():
    """Not even where all of them are equal: means of a few ratings often are."""
    rng = np.random.default_rng(2)
    for ratings in (stars(rng, 30, 20), np.tile([1.0, 5, 3, 4, 4, 1, 5], (5, 1))):
        centre = ratings.mean(axis=1)
        assert not centre_of(patterns(ratings, centre, rng.random(len(ratings)) < 0.5), STARS).placed


@pytest.mark.parametrize(("middle", "right"), [(3.7, 3.53), (2.3, 6 - 3.53)])
def test_of_two_mirror_images_the_higher_one_is_taken(middle, right):
    """Ratings that are low are taken for their mirror image: an assumption, and the probability says so."""
    rng = np.random.default_rng(3)
    ratings = stars(rng, 40, 20, middle)
    found = patterns(ratings, 3.53, rng.random(40) < 0.5)
    centre, probability = higher_centre(found, centre_of(found, STARS).value, STARS)
    assert centre == pytest.approx(right)
    assert 0.95 < probability < 1


def test_ratings_about_the_middle_do_not_say():
    rng = np.random.default_rng(4)
    found = patterns(rng.choice(STARS, (60, 20)), 3.53, np.zeros(60, bool))
    assert higher_centre(found, 3.53, STARS)[1] < 0.9


@pytest.mark.parametrize("centre", [3.0, 3.5, "own"])
def test_clients_who_rated_the_same_items_are_read(centre):
    """Of those with both ends of the grid, or of all where the number is one for all."""
    rng = np.random.default_rng(5)
    ratings = stars(rng, 40, 30)
    turned = rng.random(40) < 0.5
    found = patterns(ratings, ratings.mean(axis=1) if centre == "own" else centre, turned)
    answer = unmirrored(found, STARS, np.random.default_rng(0))
    value = answer.lowest[:, None] + answer.per_step[:, None] * found.above.reshape(ratings.shape)
    told = ~np.isnan(answer.lowest)
    assert (value[told] == ratings[told]).all()
    assert told.sum() >= 30
    whole = (np.ptp(ratings, axis=1) == 4) | (centre != "own")
    assert not (told & ~whole).any()
    assert all((OPEN_SHIFT in reason) for reason, one in zip(answer.reason, whole, strict=True) if not one)
    assert ((answer.probability[told] > 0.94) & (answer.probability[told] < 1)).all()


def test_of_random_ratings_the_sizes_of_differences_are_told():
    """Less the middle: neither items nor means say which way round they are."""
    rng = np.random.default_rng(6)
    found = patterns(rng.choice(STARS, (40, 30)), 3.0, rng.random(40) < 0.5)
    answer = unmirrored(found, STARS, np.random.default_rng(0))
    assert answer.sizes_alone
    assert not any(answer.reason)
    assert np.isnan(answer.probability).all()
    assert set(answer.lowest) <= {1.0, 5.0}
    assert (answer.per_step == np.where(answer.lowest == 1, 1.0, -1.0)).all()


def test_nobody_read_is_nobody_answered():
    found = patterns(stars(np.random.default_rng(7), 4, 10), 3.0, np.zeros(4, bool))
    answer = unmirrored(found._replace(times=np.zeros(4, int)), STARS, np.random.default_rng(0))
    assert np.isnan(answer.lowest).all()
    assert all(answer.reason)
