"""Claims of defenses, and settings that have no account."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audit.accounts import accounts_of
from audit.factories import make_defenses
from defenses.heterogeneous import ObjectiveNoise, draw
from defenses.shared_noise import Promising
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.recording import record

ENDS = [
    "laplace:scale=1e9,clip=1e-9",
    "laplace:scale=1e-9,clip=1e9",
    "gaussian:scale=1e9,clip=1e-9",
    "gaussian:scale=1e-9,clip=1e9",
    "objective-noise:epsilon=1e9",
    "objective-noise:epsilon=1e-9,noise=composed,epochs=1000",
]
BEYOND = [
    ("laplace:scale=1e308", "scale"),
    ("laplace:scale=1,clip=1e308", "clip"),
    ("gaussian:scale=1e-320", "scale"),
    ("gaussian:clip=1e-320", "clip"),
    ("objective-noise:epsilon=1e300", "epsilon"),
    ("hdpmf:epsilon=1e-310", "epsilon"),
]


@pytest.mark.parametrize("text", ENDS)
@pytest.mark.filterwarnings("error")
def test_accounts_and_uploads_are_numbers(ratings, tmp_path, text):
    defenses = make_defenses(text)
    ((_, (account,)),) = accounts_of("mf", [DecentralisedMF()], defenses, ratings, n_rounds=1, seed=0)
    for line in account.lines:
        told = np.array([line.epsilon, line.at_delta])
        assert (np.isnan(told) | (told >= 0)).all()  # NaN: nothing is proved
    record(DecentralisedMF(factors=2), ratings, tmp_path / "t", rounds=[0, 1], defenses=defenses)


@pytest.mark.parametrize(("text", "name"), BEYOND)
def test_beyond_is_one_line(text, name):
    """Before: warnings of NumPy, or an internal error, in the account."""
    with pytest.raises(InputError, match=f"^{name} of .* must be .*between 1e-09 and 1e"):
        make_defenses(text)


def test_weights_that_leave_nothing(ratings):
    (defense,) = make_defenses(
        "objective-noise:epsilon=1e-9,budget=smallest,user_low=1e-300,user_middle=1e-290"
    )
    with pytest.raises(InputError, match="budget of one draw of objective-noise must be >= 1e-30"):
        defense.threshold(ratings, 0)


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
