"""Positives told from sampled negatives: programs of plain NumPy with implicit feedback."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.links.label_split import sides


def rows_of(loss: str, u: np.ndarray, v: np.ndarray, y: np.ndarray) -> np.ndarray:
    """One gradient of the item factors; each positive is paired with every negative under BPR."""
    x = v @ u
    likely = 1 / (1 + np.exp(-x))
    if loss == "bpr":
        f = np.zeros(x.size)
        negatives = np.flatnonzero(y == 0).reshape((y == 1).sum(), -1)
        for i, others in zip(np.flatnonzero(y), negatives, strict=True):
            for j in others:
                wrong = 1 / (1 + np.exp(x[i] - x[j]))
                f[i], f[j] = f[i] + wrong, f[j] - wrong
    else:
        f = (y - likely) * (likely * (1 - likely) if loss == "squared" else 1)
    return -f[:, None] * u


@pytest.mark.parametrize(
    ("loss", "negatives", "read"),
    [("bernoulli", 4, True), ("squared", 2, True), ("bpr", 3, True), ("bpr", 1, False), ("noise", 4, False)],
)
def test_positives_and_negatives(loss: str, negatives: int, read: bool, tmp_path: Path):
    """As many negatives as positives leave open which is which; noise is of no loss."""
    rng = np.random.default_rng(0)
    v, used = rng.normal(0, 0.5, (60, 4)), np.zeros((20, 60))
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0]) as recorder:
        recorder.broadcast(0, v)
        for user in range(20):
            n = int(rng.integers(2, 12))
            items = rng.choice(60, n * (1 + negatives), replace=False)
            y = (np.arange(items.size) < n).astype(float)
            used[user, items[:n]] = 1
            u = rng.normal(0, 0.5, 4)
            rows = rng.normal(size=(items.size, 1)) * u if loss == "noise" else rows_of(loss, u, v[items], y)
            recorder.upload(0, user, rows, items)
    found = fl.attack(tmp_path / "t", "undeclared")
    answers = list(found.columns()) if read else []
    assert (len(found.abstained) == 0) == read
    for column in answers:
        assert (column["value"] == used[column["user"], column["index"]]).all()


def told(y: np.ndarray | None, dtype: type) -> float:
    """Share of 100 clients of six rows, of labels or of stars, whose rows are found to be of labels."""
    rng = np.random.default_rng(0)
    h = rng.normal(0, 0.6, (100, 6))
    error = rng.choice(np.arange(-2.0, 3), h.shape) - h if y is None else y - 1 / (1 + np.exp(-h))
    rows = error.astype(dtype).astype(float)
    step = np.zeros(h.shape, int)
    return float(sides(rows, h, 0 * h, step, float(np.finfo(dtype).eps))[1].mean())


@pytest.mark.parametrize(("dtype", "most"), [(np.float16, 0.03), (np.float32, 0.0), (np.float64, 0.0)])
def test_ratings_are_not_of_labels(dtype: type, most: float):
    """Predictions that separate the signs leave nothing of y - p: 4 % in single precision, before."""
    assert told(None, dtype) <= most
    assert told(np.tile([1.0, 0, 0, 1, 0, 0], (100, 1)), dtype) > 0.95
