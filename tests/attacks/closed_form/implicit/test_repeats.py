"""Negatives drawn with repetition, several for each positive: how often items come names the positives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.implicit.implicit_recording import OPEN_LABEL
from attacks.closed_form.implicit.repeats import nats_of, repeats_of


def record(path: Path, uneven: bool) -> np.ndarray:
    """One round of ten clients with 9 of 60 items, four negatives for each, some of them twice.

    ``uneven`` positives come as often as they were used, and each negative once.
    """
    rng = np.random.default_rng(0)
    v, used = rng.normal(0, 0.02, (60, 4)), np.zeros((10, 60), bool)
    with fl.Recorder(path, rating_levels=[1.0]) as recorder:
        recorder.broadcast(0, v)
        for user, own in enumerate(used):
            own[rng.choice(60, 9, replace=False)] = True
            times = rng.integers(1, 5, 9) if uneven else np.full(9, 4)
            positive = np.repeat(np.flatnonzero(own), times)
            negative = rng.choice(np.flatnonzero(~own), positive.size, replace=not uneven)
            p = rng.normal(0, 0.3, 4)
            error = 1 / (1 + np.exp((v[positive] - v[negative]) @ p))
            rows = np.zeros((60, 4))
            np.add.at(rows, positive, -error[:, None] * p)
            np.add.at(rows, negative, error[:, None] * p)
            items = np.unique(np.concatenate([positive, negative]))
            recorder.upload(0, user, rows[items], items)
    return used


def test_positives_that_all_come_four_times(tmp_path: Path):
    used = record(tmp_path / "t", uneven=False)
    found = fl.attack(tmp_path / "t", "undeclared")
    columns = list(found.columns())
    user, item, value = (np.concatenate([c[name] for c in columns]) for name in ("user", "index", "value"))
    told = np.isfinite(value)
    assert ((value[told] > 0.5) == used[user[told], item[told]]).all()
    assert (used[user[told], item[told]]).sum() >= 0.9 * used.sum()


def test_positives_that_come_unevenly_are_not_named(tmp_path: Path):
    """Negatives that come once each are no positives that come equally often."""
    record(tmp_path / "t", uneven=True)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert set(found.abstained.values()) == {OPEN_LABEL}


@pytest.mark.parametrize("seed", range(5))
def test_sizes_of_a_trained_model_are_no_multiples(seed):
    rng = np.random.default_rng(seed)
    g = np.concatenate([rng.uniform(0.2, 1, 8), -rng.uniform(0.2, 1, 24)])
    assert repeats_of(g, g > 0) == (0, 0)


def test_how_improbable_equal_draws_are():
    """Of four draws of two items, 6 of 16 hit both twice."""
    assert nats_of(2, 2) == pytest.approx(np.log(16 / 6))
