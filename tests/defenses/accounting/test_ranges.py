"""Noise, bounds and budgets at the ends of their ranges: numbers, no overflow; beyond them one line."""

from __future__ import annotations

import numpy as np
import pytest

from audit.epsilon.accounts import accounts_of
from audit.factories import make_defenses
from victims.common.errors import InputError
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
