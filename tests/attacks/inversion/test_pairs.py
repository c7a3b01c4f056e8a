"""Several steps on the pairwise loss of implicit feedback, read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.implicit.implicit_recording import OPEN_LABEL
from attacks.inversion.pairs import NO_PAIRS, RATINGS
from factorleak import plugins
from tests.oracles.paired_client import trained

pytestmark = pytest.mark.usefixtures("optimised")
N_ITEMS = 60


def recorded(path: Path, *, each: bool, fresh: bool = True, steps: int = 3, noise: float = 0.0, rule: dict):
    """Six clients in two rounds, who draw one negative for each of four to eight positives."""
    rng = np.random.default_rng(0)
    v, used = rng.normal(0, 0.5, (N_ITEMS, 4)), np.zeros((6, N_ITEMS))
    with fl.Recorder(path, rating_levels=[1.0], rule=rule) as recorder:
        factors, drawn = rng.normal(0, 0.5, (6, 4)), {}
        for user, own in enumerate(used):
            own[rng.choice(N_ITEMS, 4 + user % 5, replace=False)] = 1
        for number in range(2):
            recorder.broadcast(number, v)
            for user, own in enumerate(used):
                a = np.flatnonzero(own)
                if fresh or not number:
                    drawn[user] = rng.permutation(np.flatnonzero(own == 0))[: a.size]
                items = np.concatenate([a, b := drawn[user]])
                place = {int(item): k for k, item in enumerate(items)}
                pairs = [(i, j) for i in a for j in b] if each else zip(a, b, strict=True)
                pairs = [(place[int(i)], place[int(j)]) for i, j in pairs]
                rows, factors[user] = trained(
                    factors[user], v[items], pairs, steps=steps, rate=0.1, decay=0.0, item_decay=0.0
                )
                recorder.upload(number, user, rows + noise * rng.normal(size=rows.shape), items)
    return used


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("each", "attack"),
    [(True, plugins.Inversion()), (False, plugins.Inversion("bpr"))],
    ids=["each", "pairs"],
)
def test_positives_are_named(tmp_path: Path, each: bool, attack: plugins.Inversion):
    """Also by ``any``, where the loss is declared; undeclared reads one step alone."""
    used = recorded(tmp_path / "t", each=each, rule={"loss": "bpr"})
    found = fl.attack(tmp_path / "t", attack)
    assert not found.abstained
    answers = 0
    for column in found.columns():
        told = np.isfinite(column["value"])
        assert (column["value"] == used[column["user"], column["index"]])[told].all()
        answers += int((column["value"][told] > 0).sum())
    assert answers == used.sum()
    assert found.options["hypothesis"].startswith("3 steps on " + ("each negative" if each else "pairs"))


@pytest.mark.thorough
def test_a_number_of_steps_that_is_declared_wrongly_is_not_believed(tmp_path: Path):
    used = recorded(tmp_path / "t", each=True, rule={"loss": "bpr", "local_steps": 2})
    found = fl.attack(tmp_path / "t", plugins.Inversion("bpr"))
    assert not found.abstained
    assert found.options["hypothesis"].startswith("3 steps on each negative")
    rated = sum(int((column["value"] > 0).sum()) for column in found.columns())
    assert rated == used.sum()


@pytest.mark.thorough
def test_negatives_that_are_kept_leave_open_which_they_are(tmp_path: Path):
    """With the factor negated and all labels exchanged the same rows are sent."""
    recorded(tmp_path / "t", each=False, fresh=False, rule={"loss": "bpr", "local_steps": 3})
    found = fl.attack(tmp_path / "t", plugins.Inversion())
    assert set(found.abstained.values()) == {OPEN_LABEL}


@pytest.mark.thorough
def test_other_rows_and_other_grids_are_not_answered(tmp_path: Path):
    recorded(tmp_path / "t", each=True, noise=1e-3, rule={"loss": "bpr", "local_steps": 3})
    found = fl.attack(tmp_path / "t", plugins.Inversion("bpr"))
    assert set(found.abstained.values()) == {NO_PAIRS}
    with fl.Recorder(tmp_path / "stars", rating_levels=[1.0, 2.0]) as recorder:
        recorder.broadcast(0, np.eye(4))
        recorder.upload(0, 0, np.ones((4, 4)), np.arange(4))
    assert set(fl.attack(tmp_path / "stars", plugins.Inversion("bpr")).abstained.values()) == {RATINGS}
