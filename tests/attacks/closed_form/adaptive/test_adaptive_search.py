"""Optimizer, steps and rate, where the rate is no round number."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.client_rules.adaptive_steps import RATE
from attacks.closed_form.adaptive.adaptive_choice import Effort, asked_of
from attacks.closed_form.adaptive.adaptive_fit import Rule
from attacks.closed_form.adaptive.adaptive_search import KINDS, search
from tests.oracles.adaptive_client import AdaptiveClient

RATE_OF_NONE = 0.004827  # no round number is within a hundredth


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("client", "name"),
    [
        (AdaptiveClient("rmsprop", 2, RATE_OF_NONE, kept=0.9), "rmsprop"),
        (AdaptiveClient("adam", 2, RATE_OF_NONE, decay=0.01), "adamw"),
    ],
    ids=["rmsprop as Keras has it", "adamw"],
)
def test_a_rate_that_is_no_round_number_is_found(tmp_path, client, name):
    client.recorded(tmp_path / "t", 6, seed=3)
    found = search(fl.open_transcript(tmp_path / "t").view("server"), 0.0)
    assert found is not None
    kind, rule, way = found
    assert (kind.name, rule.n_steps, way) == (name, 2, 1)
    assert kind.optimizer.second == (client.kept if name == "rmsprop" else 0.999)
    assert rule.rate == pytest.approx(RATE_OF_NONE, rel=1e-6)


@pytest.mark.thorough
def test_a_rate_that_is_a_thousandth_off_is_put_right_by_fits(tmp_path):
    """Adagrad: with the rate held fewer clients are told than with the rate open, and none wrongly."""
    ratings = AdaptiveClient("adagrad", 3, RATE_OF_NONE).recorded(tmp_path / "t", 10, seed=0)
    view = fl.open_transcript(tmp_path / "t").view("server")
    _, every = asked_of(view, 0.0)
    rule = Rule(next(kind.optimizer for kind in KINDS if kind.name == "adagrad"), 3, 1.001 * RATE_OF_NONE)
    effort = Effort(10**7)
    told = [fit for own in every if (fit := effort.any(own, rule)) is not None and fit.told]
    held = [own for own in every if effort.fitted(own, rule) is not None]
    assert len(told) > len(held)
    counts = {tuple(sorted(own[own > 0].tolist())) for own in ratings}
    assert {tuple(sorted(fit.ratings.tolist())) for fit in told} <= counts
    assert np.exp([fit.constants[RATE] for fit in told]) == pytest.approx(RATE_OF_NONE, rel=1e-6)
