"""Several steps of Adam and its relatives, told from what clients upload."""

from __future__ import annotations

import json

import numpy as np
import pytest

import factorleak as fl
from attacks.identify.optimizer_rules import ONCE
from tests.oracles.adaptive_client import LEVELS, AdaptiveClient
from tests.tools.identify import counted


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("client", "name"),
    [
        (AdaptiveClient("adam", 2), "adam"),
        pytest.param(AdaptiveClient("adam", 2, decay=0.01), "adamw", marks=pytest.mark.thorough),
        pytest.param(AdaptiveClient("adagrad", 2), "adagrad", marks=pytest.mark.thorough),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
@pytest.mark.usefixtures("optimised")
def test_the_optimizer_is_named_and_attacks_run_under_it(tmp_path, client, name):
    """With its steps and rate; inversion answers under it, none wrongly; sgd is not so."""
    ratings = client.recorded(tmp_path / "t", 6, seed=1)
    view = fl.open_transcript(tmp_path / "t").view("server")
    found = fl.identify(view)
    steps = {"local_steps": client.steps, "order": "batch", "batch_size": "all", "moves_items": True}
    assert found.rule == {"rule": name, "loss": "squared", "link": "identity"} | steps
    assert found.constants["client_learning_rate"] == pytest.approx(0.01)
    assert not found.undecided
    answered, wrong = counted(fl.attack(found.applied(view), "inversion"), ratings, LEVELS)
    assert answered > 0
    assert not wrong
    wrongly = view.declared(declared_rule=view.manifest.rule.model_copy(update={"rule": "sgd"}), update="sgd")
    assert [one.key for one in found.contradictions(wrongly.manifest)] == ["rule"]
    assert found.applied(wrongly).manifest.update is None


@pytest.mark.parametrize("optimizer", ["adam"])
def test_one_step_is_that_of_all_of_them(tmp_path, optimizer):
    """Signs: nothing is told but that, and no attack is run under another rule."""
    AdaptiveClient(optimizer, 1).recorded(tmp_path / "t", 8, seed=0)
    view = fl.open_transcript(tmp_path / "t").view("server")
    found = fl.identify(view)
    assert not found.rule
    assert found.undecided == (ONCE,)
    assert found.applied(view) is view
    assert "undecided" in json.dumps(found.summary())


@pytest.mark.thorough
def test_rows_of_that_look_that_are_no_such_steps_tell_no_rule(tmp_path):
    """Signs of rank one with sizes at random, of which no optimizer is one."""
    rng = np.random.default_rng(0)
    q = rng.normal(0, 0.3, (40, 4))
    with fl.Recorder(tmp_path / "t", rating_levels=list(LEVELS)) as recorder:
        recorder.broadcast(0, q)
        for user in range(2):
            items = rng.choice(40, 10, replace=False)
            signs = np.outer(np.sign(rng.normal(size=10)), np.sign(rng.normal(size=4)))
            recorder.upload(0, user, 0.02 * signs * rng.uniform(0.8, 1, (10, 4)), items)
    found = fl.identify(tmp_path / "t")
    assert not found.rule
    assert not found.undecided
