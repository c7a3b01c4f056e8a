"""Which defenses promise a budget to each rating, and which budget."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audit.factories import make_defenses
from defenses.heterogeneous import ObjectiveNoise, draw
from defenses.shared_noise import Promising
from victims.data.synthetic import Synthetic, generate


@pytest.fixture(scope="module")
def ratings():
    return generate(Synthetic(users=40, items=30, ratings_per_user=8.0, seed=1))


def expected(defense, ratings, seed):
    weights = draw(defense, ratings, seed)
    return defense.epsilon * weights.user[ratings.users] * weights.item[ratings.items]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("none", []),
        ("laplace:scale=1", []),
        ("stretching", []),
        ("personalized-sampling", []),
        ("hdpmf", ["objective-noise"]),
        ("pdpmf", ["objective-noise"]),
        ("dpmf-hua", ["objective-noise"]),
    ],
)
def test_the_noise_alone_promises(text, names):
    assert [one.name for one in make_defenses(text) if isinstance(one, Promising)] == names


def test_a_promise_does_not_hang_on_a_name(ratings):
    defense = replace(ObjectiveNoise(epsilon=2.0), name="another")
    assert isinstance(defense, Promising)
    np.testing.assert_array_equal(defense.promised(ratings, 3), expected(defense, ratings, 3))


@pytest.mark.parametrize("budget", ["largest", "mean"])
def test_each_rating_is_promised_its_own_budget(ratings, budget):
    defense = ObjectiveNoise(epsilon=0.5, budget=budget)
    found = defense.promised(ratings, 3)
    np.testing.assert_array_equal(found, expected(defense, ratings, 3))
    assert (found != defense.promised(ratings, 4)).any()


def test_where_all_are_treated_alike_all_are_promised_the_smallest(ratings):
    defense = ObjectiveNoise(epsilon=0.5, budget="smallest")
    smallest = expected(defense, ratings, 3).min()
    np.testing.assert_array_equal(defense.promised(ratings, 3), np.full(ratings.n_ratings, smallest))
    assert smallest >= defense.threshold(ratings, 3)  # which is over all pairs, rated or not
