"""Several passes that one pass explains as well: half of all ratings, where digits are few."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.client_rules.local_passes import LocalPasses
from attacks.closed_form.uploads.readings import Rows
from attacks.inversion.guess import Guess
from attacks.inversion.passes import told_in_order
from tests.oracles.pass_programs import Passer
from victims.transcript.manifest import Manifest

LEVELS = np.arange(0.5, 5.1, 0.5)
PASSES, RATE, K, RATINGS = 4, 0.002, 10, 18


def manifest() -> Manifest:
    return Manifest(
        format="factorleak-transcript", version=2, protocol="strange", update=None, weighting="observed-only",
        n_users=1, n_items=1, n_attributes=0, factors=K, rounds=[0], rating_levels=LEVELS.tolist(),
        declared_rule={},
    )  # fmt: skip


def sent(passes: int, digits: type) -> tuple[Rows, np.ndarray]:
    """One client's rows, as many passes having made them; all its ratings are whole."""
    rng = np.random.default_rng(0)
    v = rng.normal(0, K**-0.5, (RATINGS, K)).astype(np.float16).astype(float)
    u, ratings = rng.normal(0, K**-0.5, K), rng.choice([2.0, 3.0, 4.0, 5.0], RATINGS)
    change, _ = Passer(rate=RATE, passes=passes).train(u, v, ratings, LEVELS)
    rows = change.astype(digits).astype(float)
    everyone = np.ones((1, RATINGS), bool)
    return Rows(rows[None], v[None], np.zeros((1, RATINGS)), everyone, np.ones(1), 1.2e-7, None), ratings


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("passes", "digits", "answered"), [(1, np.float16, False), (PASSES, np.float32, True)]
)
def test_half_of_all_ratings_is_no_answer_where_one_pass_explains_the_rows(passes, digits, answered):
    rows, ratings = sent(passes, digits)
    rule = LocalPasses()
    told = told_in_order(rule, Guess(rule.families(manifest())[0], float(PASSES)), rows, LEVELS)
    assert told.left.item() <= told.allowed.item()  # several passes explain either
    assert told.answered.item() == answered
    assert not answered or (told.ratings[0] == ratings).all()
