"""Other multiples of ratings, fitted where few digits may not tell them apart."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from attacks.client_rules.local_steps import LocalSteps
from attacks.closed_form.uploads.readings import Rows
from attacks.inversion.compression import uncompressed
from attacks.inversion.guess import Guess
from attacks.inversion.least_squares import Unknowns
from attacks.inversion.multiples import unless_multiples
from attacks.inversion.told import Told
from tests.attacks.client_rules.test_local_passes import LEVELS, manifest


@pytest.mark.parametrize(
    ("rating", "allowed", "several"),
    [
        ([1.0, 5.0, 2.0, 3.0, 3.0], 0.02, False),
    ],
    ids=[
        "no multiple",
    ],
)
def test_a_multiple_that_explains_as_much_leaves_a_client_open(rating, allowed: float, several: bool):
    """Three steps of a client whose rate is fitted; what bends the rows is a hundredth of them."""
    rng = np.random.default_rng(0)
    u, v, r = rng.normal(0, 0.4, 3), rng.normal(0, 0.4, (5, 3)), np.broadcast_to(rating, 5).astype(float)
    guess = Guess(LocalSteps().families(manifest())[0], 3.0)
    constants = np.array(guess.constants_of(0.03, 1.0))
    sent = np.asarray(LocalSteps().upload(*(jnp.asarray(one) for one in (u, r, v, constants)))[0])
    rows = Rows(sent[None], v[None], np.zeros((1, 5)), np.ones((1, 5), bool), np.ones(1), 1e-16, None)
    none, at = np.zeros(1), Unknowns(u[None, None], r[None, None], constants[None, None])
    new = Told(r[None], at, none, none + allowed, none > 0, none.astype(int) + 9, none > 0)
    found = unless_multiples(LocalSteps(), guess, new, uncompressed(rows), np.ones(1), rows, LEVELS)
    assert found.several.tolist() == [several]
    assert found.explained.all()
