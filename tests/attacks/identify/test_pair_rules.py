"""Steps on a pairwise loss, told from what clients upload."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.identify.pair_rules import pairs_fit
from tests.oracles.paired_client import trained
from tests.tools.identify import counted

pytestmark = pytest.mark.usefixtures("optimised")
N_ITEMS = 60


def recorded(path, *, steps: int, each: bool, weight: float = 0.0):
    """Eight clients in two rounds, negatives drawn anew; ``weight`` is that of a cross-entropy beside."""
    rng = np.random.default_rng(0)
    v, used = rng.normal(0, 0.5, (N_ITEMS, 4)), np.zeros((8, N_ITEMS))
    factors = rng.normal(0, 0.5, (8, 4))
    with fl.Recorder(path, rating_levels=[1.0]) as recorder:
        for user, own in enumerate(used):
            own[rng.choice(N_ITEMS, 4 + user % 4, replace=False)] = 1
        for number in range(2):
            recorder.broadcast(number, v)
            for user, own in enumerate(used):
                a = np.flatnonzero(own)
                items = np.concatenate([a, rng.choice(np.flatnonzero(own == 0), a.size, replace=False)])
                every = range(a.size)
                pairs = [(i, a.size + j) for i in every for j in every if each or i == j]
                u = factors[user]
                rows, factors[user] = trained(
                    u, v[items], pairs, steps=steps, rate=0.1, decay=0.0, item_decay=0.0
                )
                error = own[items] - 1 / (1 + np.exp(-v[items] @ u))
                recorder.upload(number, user, rows + weight * error[:, None] * u, items)
    return used


@pytest.mark.thorough
def test_pairs_are_named_and_attacks_run_under_them(tmp_path):
    """Loss, steps and whose negatives; inversion and undeclared answer under it where nothing is declared; a
    declared logistic loss is contradicted.
    """
    used = recorded(tmp_path / "t", steps=1, each=False)
    view = fl.open_transcript(tmp_path / "t").view("server")
    found = fl.identify(view)
    so = {"rule": "sgd", "loss": "bpr", "local_steps": 1, "order": "batch", "batch_size": "all"}
    assert found.rule == so | {"negatives": 1, "reduction": "sum"}
    for attack in ("inversion", "undeclared"):
        answered, wrong = counted(fl.attack(found.applied(view), attack), used, (0.0, 1.0))
        assert answered > 0
        assert not wrong
    wrongly = view.manifest.rule.model_copy(update={"loss": "logistic"})
    manifest = view.declared(declared_rule=wrongly).manifest
    assert [one.key for one in found.contradictions(manifest)] == ["loss"]


@pytest.mark.thorough
def test_other_losses_of_labels_and_ratings_are_not_called_pairs(tmp_path):
    """A cross-entropy beside the pairs, which no client's rows are without; several levels."""
    recorded(tmp_path / "t", steps=1, each=False, weight=0.01)
    assert fl.identify(tmp_path / "t").rule.get("loss") != "bpr"
    with fl.Recorder(tmp_path / "stars", rating_levels=[1.0, 2.0]) as recorder:
        recorder.broadcast(0, np.eye(4))
        recorder.upload(0, 0, np.ones((4, 4)), np.arange(4))
    assert pairs_fit(fl.open_transcript(tmp_path / "stars").view("server")) is None
