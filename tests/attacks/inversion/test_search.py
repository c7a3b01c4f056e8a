"""Whose ratings a fit tells: where the length of factors is open, those with one multiple on the grid."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.client_rules.local_steps import LocalSteps
from attacks.closed_form.uploads.readings import Rows
from attacks.inversion.guess import Guess
from attacks.inversion.search import told
from tests.oracles.local_training import HALF_STARS, Client
from victims.transcript.manifest import Manifest

pytestmark = pytest.mark.usefixtures("optimised")

PLAIN = Manifest(
    format="factorleak-transcript", version=2, protocol="strange", update=None, weighting="observed-only",
    n_users=2, n_items=8, n_attributes=0, factors=4, rounds=[0], rating_levels=HALF_STARS.tolist(),
    declared_rule={},
)  # fmt: skip


@pytest.mark.thorough
def test_two_rates_leave_whole_stars_open_to_their_halves():
    """The first rows are those of 1.5 and 2, a factor twice as long and other rates, too: answered before."""
    rng = np.random.default_rng(5)
    factors = rng.normal(0, 0.4, (2, 8, 4))
    ratings = np.array([[3, 4, 4, 3, 4, 4, 3, 4], [3.5, 4, 4, 3, 4, 4, 3, 4]])
    client = Client(steps=3, rate=0.02)
    copies = [client.train(rng.normal(0, 0.4, 4), r, q)[0] for r, q in zip(ratings, factors, strict=True)]
    item = np.ones((2, 8), bool)
    rows = Rows(np.stack(copies) - factors, factors, np.zeros((2, 8)), item, np.ones(2), 2.2e-16, None)
    rule = LocalSteps()
    family = next(one for one in rule.families(PLAIN) if one.multiples)
    new = told(rule, Guess(family, 3.0), rows, HALF_STARS)
    assert new.explained.tolist() == [True, True]
    assert new.answered.tolist() == [False, True]
    np.testing.assert_array_equal(new.ratings[1], ratings[1])
