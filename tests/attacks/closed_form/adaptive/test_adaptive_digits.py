"""One step of Adam and its relatives: gradients by their last digits, and what is read of these."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.adaptive.adaptive_digits import FORMS, digits
from attacks.closed_form.adaptive.adaptive_gradients import gradient_views
from attacks.closed_form.adaptive.adaptive_recording import ONE_STEP
from tests.oracles.adaptive_client import AdaptiveClient

RNG = np.random.default_rng(0)
V, U, R = RNG.normal(0, 0.3, (15, 5)), RNG.normal(0, 0.3, 5), RNG.integers(1, 6, 15).astype(float)
GRADIENT = np.outer(R - V @ U, U)


def below_the_root(start: float, dtype: type = float) -> np.ndarray:
    """A step of Keras' or TensorFlow's kind, rows being differences of copies."""
    v = V.astype(dtype)
    return (v + 0.01 * GRADIENT / np.sqrt(GRADIENT**2 + start)).astype(dtype) - v


@pytest.mark.parametrize(
    ("rows", "form"),
    [
        (AdaptiveClient(steps=1).change(U, R, V), (1, False)),
        (AdaptiveClient(steps=1, rate=1e-4, mean=False).change(U, R, V), (1, False)),
        (AdaptiveClient("rmsprop", steps=1).change(U, R, V), (1, False)),
        (AdaptiveClient("adagrad", steps=1).change(U, R, V), (1, False)),
        (AdaptiveClient(steps=1, decay=0.01).change(U, R, V), (1, True)),
        (below_the_root(1e-7), (2, False)),
        (below_the_root(0.1, np.float32), (2, False)),
    ],
    ids=["adam", "small rate", "rmsprop", "adagrad", "adamw", "eps below the root", "single precision"],
)
def test_gradients_are_told_as_well_as_is_said(rows, form):
    """Up to one number, eps; eight deviations of 15 rows are less than one chance in a trillion."""
    told = digits(rows, V.astype(rows.dtype), *form)
    assert told is not None
    ratio = told.gradient / GRADIENT
    off = np.abs(ratio / np.median(ratio) - 1).max(axis=1)
    assert (np.sign(told.gradient) == np.sign(GRADIENT)).all()
    assert (off <= 8 * (told.error + np.median(told.error)) + 1e-9).all()
    assert told.error.max() < 1e-4


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(
    "rows",
    [
        0.01 * np.sign(GRADIENT),
        0.01 * GRADIENT,
        (V + 0.01 * GRADIENT) - V,
        AdaptiveClient(steps=2).change(U, R, V),
        AdaptiveClient(steps=1).change(U, R, V) + RNG.normal(0, 1e-14, V.shape),
        np.where(V > 0.5, 0.0, AdaptiveClient(steps=1).change(U, R, V)),
        AdaptiveClient(steps=1).change(U, R, V).astype(np.float32),
    ],
    ids=["signs", "gradients", "differences", "two steps", "noise", "zeros", "single precision"],
)
def test_other_rows_tell_nothing(rows, form):
    assert digits(rows, V.astype(rows.dtype), *form) is None


def test_few_rows_tell_nothing():
    rows = AdaptiveClient(steps=1).change(U, R, V)
    assert digits(rows[:2], V[:2], 1, False) is None
    assert digits(rows[:, :2], V[:, :2], 1, False) is None
    assert digits(rows[:3], V[:3], 1, False) is not None


@pytest.mark.parametrize(
    ("client", "least"),
    [
        (AdaptiveClient(steps=1, decay=0.01, mean=False), 0.98),
        pytest.param(AdaptiveClient("rmsprop", steps=1, rate=0.001), 0.98, marks=pytest.mark.thorough),
        pytest.param(AdaptiveClient("adagrad", steps=1, rate=1e-3), 0.9, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_ratings_of_one_step_are_read(tmp_path, client, least):
    """Nothing declared, as changes or as weights: none wrongly."""
    truth = client.recorded(tmp_path / "t", 4, 0, weights=client.mean)
    found = fl.attack(tmp_path / "t", "undeclared")
    answers = [(one["value"], truth[one["user"], one["index"]]) for one in found.columns()]
    value, own = (np.concatenate(part) for part in zip(*answers, strict=True))
    told = np.isfinite(value)
    assert (np.abs(value - own)[told] < 0.1).all()
    assert told.sum() >= least * (truth > 0).sum()


@pytest.mark.thorough
def test_who_has_too_few_rows_is_left_open(tmp_path):
    """Among those who are read; two rows are no table that judges itself."""
    rng, client = np.random.default_rng(4), AdaptiveClient(steps=1)
    v = rng.normal(0, 0.3, (30, 4))
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0, 2.0, 3.0, 4.0, 5.0]) as recorder:
        recorder.broadcast(0, v)
        for user in range(6):
            items = np.arange(2) if user == 0 else rng.choice(30, 10, replace=False)
            r = rng.integers(1, 6, items.size).astype(float)
            recorder.upload(0, user, client.change(rng.normal(0, 0.3, 4), r, v[items]), items)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert found.abstained[0] == ONE_STEP
    assert len(found.abstained) <= 2
    assert all(column.size == 6 for column in found.diagnostics.values())


def test_other_recordings_show_no_gradients(tmp_path):
    """Steps of two, and single precision, have no such view."""
    AdaptiveClient(steps=2).recorded(tmp_path / "two", 8, 0)
    AdaptiveClient(steps=1).recorded(tmp_path / "single", 8, 0, dtype=np.float32)
    for name in ("two", "single"):
        assert not list(gradient_views(fl.open_transcript(tmp_path / name).view("server")))
