"""Recordings of implicit feedback in several rounds: positives told from negatives, in any precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.implicit.implicit_recording import OPEN_LABEL
from attacks.closed_form.links.label_split import sides

N_CLIENTS, N_ITEMS, K = 6, 60, 4


def record(path: Path, fresh: bool, dtype: type, pull: float = 0.0) -> np.ndarray:
    """Clients of BPR with one negative for each positive, in two rounds; who used what comes back."""
    rng = np.random.default_rng(0)
    v = rng.normal(0, 0.5, (N_ITEMS, K))
    used = np.zeros((N_CLIENTS, N_ITEMS))
    for own in used:
        own[rng.choice(N_ITEMS, int(rng.integers(3, 9)), replace=False)] = 1
    p = rng.normal(0, 0.5, (N_CLIENTS, K))
    drawn = [rng.permutation(np.flatnonzero(own == 0))[: int(own.sum())] for own in used]
    with fl.Recorder(path, rating_levels=[1.0]) as recorder:
        for number in range(2):
            recorder.broadcast(number, v)
            for user, own in enumerate(used):
                a = np.flatnonzero(own)
                b = rng.permutation(np.flatnonzero(own == 0))[: a.size] if fresh else drawn[user]
                wrong = 1 / (1 + np.exp((v[a] - v[b]) @ p[user]))
                rows = np.outer(np.concatenate([-wrong, wrong]), p[user]) + pull * v[[*a, *b]]
                recorder.upload(number, user, rows.astype(dtype), np.concatenate([a, b]))
                p[user] += 0.05 * wrong @ (v[a] - v[b])
    return used


@pytest.mark.parametrize(
    ("dtype", "pull"), [(np.float64, 0.0), (np.float16, 0.0), (np.float64, 0.1), (np.float32, 0.1)]
)
def test_one_negative_for_each_positive(dtype: type, pull: float, tmp_path: Path):
    """Also of regularised rows, whose labels nobody told before."""
    used = record(tmp_path / "t", True, dtype, pull)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert not found.abstained
    for column in found.columns():
        assert (column["value"] == used[column["user"], column["index"]]).all()
        assert (column["probability"] > 0.99).all()


@pytest.mark.parametrize("attack", ["undeclared", "grid"])
def test_negatives_that_are_kept(attack: str, tmp_path: Path):
    """With the factor negated and all labels exchanged the same rows are sent."""
    record(tmp_path / "t", False, np.float64)
    assert len(fl.attack(tmp_path / "t", attack).abstained) == N_CLIENTS


@pytest.mark.parametrize("n", [4000])
def test_long_lists(n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One step of clients who list many items: before, rows squared were asked for, 75 GB of 100,000."""
    monkeypatch.setattr("attacks.closed_form.implicit.implicit_recording.follow", None)
    rng = np.random.default_rng(0)
    v = rng.normal(0, 0.5, (n, 2))
    used = rng.random((3, n)) < [[0.1], [0.2], [0.3]]
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0]) as recorder:
        recorder.broadcast(0, v)
        for user, own in enumerate(used):
            p = rng.normal(size=2)
            recorder.upload(0, user, (1 / (1 + np.exp(-v @ p)) - own)[:, None] * p, np.arange(n))
    assert set(fl.attack(tmp_path / "t", "undeclared").abstained.values()) == {OPEN_LABEL}


def test_few_of_many_clients_are_of_labels_by_accident(tmp_path: Path):
    """Two positives and their two negatives of three clients among forty whose rows are of noise."""
    rng = np.random.default_rng(0)
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0]) as recorder:
        recorder.broadcast(0, rng.normal(size=(30, 3)))
        for user in range(40):
            error = np.array([0.5, -0.5, 0.2, -0.2]) if user < 3 else rng.normal(size=4)
            recorder.upload(0, user, error[:, None] * rng.normal(size=3), rng.choice(30, 4, replace=False))
    reasons = fl.attack(tmp_path / "t", "undeclared").abstained
    assert len(reasons) == 40
    assert OPEN_LABEL not in reasons.values()


@pytest.mark.parametrize("labels", [False, True])
def test_a_few_are_asked_before_all_are(labels: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Sixty clients: where none of those who are asked has two labels, nobody else is looked at."""
    rng, asked = np.random.default_rng(0), []
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0]) as recorder:
        recorder.broadcast(0, v := rng.normal(0, 0.5, (N_ITEMS, K)))
        for user in range(60):
            p, items = rng.normal(0, 0.5, K), rng.choice(N_ITEMS, 12, replace=False)
            wrong = 1 / (1 + np.exp(-v[items] @ p)) - (np.arange(12) < 5)
            noise = 0.0 if labels else rng.normal(0, 1.0, (12, K))
            recorder.upload(0, user, wrong[:, None] * p + noise, items)

    def counted(scalar: np.ndarray, *rest: object) -> tuple[np.ndarray, np.ndarray]:
        asked.append(scalar.shape[0])
        return sides(scalar, *rest)

    monkeypatch.setattr("attacks.closed_form.implicit.implicit_recording.sides", counted)
    reasons = fl.attack(tmp_path / "t", "undeclared").abstained
    assert (max(asked) == 60) == labels
    assert (OPEN_LABEL in reasons.values() or len(reasons) < 60) == labels


def test_equal_factors_put_negatives_on_the_level(tmp_path: Path):
    """A step after every label, all factors equal: one length meets the level in all rows without errors."""
    rng, step = np.random.default_rng(1), 0.02
    v, p = np.full((N_ITEMS, K), 0.01), np.full((N_CLIENTS, K), 0.01)
    rule = {"rule": "sgd", "order": "per-rating", "loss": "logistic", "link": "sigmoid", "upload": "gradient"}
    constants = {"upload_scale": -1.0, "upload_regularization": 0.0, "client_learning_rate": step}
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0], rule=rule, constants=constants) as recorder:
        recorder.broadcast(0, v)
        for user in range(N_CLIENTS):
            items, rows = rng.permutation(N_ITEMS)[:20], []
            for label, item in zip([1, 0] * 10, items, strict=True):
                error = label - 1 / (1 + np.exp(-v[item] @ p[user]))
                rows.append(-error * p[user])
                p[user] += step * error * v[item]
            recorder.upload(0, user, rows, items)
    assert len(fl.attack(tmp_path / "t", "undeclared").abstained) == N_CLIENTS


def record_steps(path: Path, weight: float, noise: float) -> np.ndarray:
    """Five local steps of a loss of labels over 3 negatives for each positive; weights are sent, once."""
    rng = np.random.default_rng(3)
    v = rng.normal(0, 0.3, (N_ITEMS, K))
    used = np.zeros((12, N_ITEMS))
    for own in used:
        own[rng.choice(N_ITEMS, int(rng.integers(6, 14)), replace=False)] = 1
    with fl.Recorder(path, rating_levels=[1.0], rule={"upload": "weights"}) as recorder:
        recorder.broadcast(0, v)
        for user, own in enumerate(used):
            a = np.flatnonzero(own)
            items = rng.permutation([*a, *rng.choice(np.flatnonzero(own == 0), 3 * a.size, replace=False)])
            p, q, y = rng.normal(0, 0.6, K), v[items].copy(), own[items]
            for _ in range(5):
                x = q @ p
                error = np.where(y > 0, weight, 1.0) * (y - 1 / (1 + np.exp(-x)))
                p, q = p + 0.02 * error @ q, q + 0.02 * error[:, None] * p
            q += rng.normal(0, noise, q.shape)
            recorder.upload(0, user, q, items)
            recorder.truth(user, a, np.ones(a.size))
    return used


@pytest.mark.parametrize(
    ("weight", "noise"),
    [
        (1.0, 0.0),
        (1.5, 0.0),
    ],
)
def test_labels_lie_apart_after_several_steps(weight: float, noise: float, tmp_path: Path):
    """No two numbers explain such rows; also under noise, and with weighted positives."""
    used = record_steps(tmp_path / "t", weight, noise)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert len(found.abstained) <= 1
    for column in found.columns():
        assert (column["value"] == used[column["user"], column["index"]]).all()


def test_numbers_on_both_sides_of_zero_are_no_labels(tmp_path: Path):
    """Errors of positives alone, 1 - p q where factors are long, have either sign and any size."""
    rng = np.random.default_rng(5)
    v = rng.normal(0, 1, (N_ITEMS, K))
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0]) as recorder:
        recorder.broadcast(0, v)
        for user in range(N_CLIENTS):
            p, items = rng.normal(0, 1, K), rng.choice(N_ITEMS, 20, replace=False)
            rows = (1 - v[items] @ p)[:, None] * p + rng.normal(0, 0.01, (20, K))
            recorder.upload(0, user, rows, items)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert OPEN_LABEL not in found.abstained.values()
    assert all((column["value"] > 0).all() for column in found.columns())


def test_one_level_and_entries_that_are_zero(tmp_path: Path):
    """An `IndexError`: passes were looked for on a grid of one level."""
    rng = np.random.default_rng(7)
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0]) as recorder:
        recorder.broadcast(0, rng.normal(size=(N_ITEMS, K)))
        for user in range(N_CLIENTS):
            rows = rng.normal(size=(20, 1)) * rng.normal(size=K) + rng.normal(0, 0.1, (20, K))
            rows[rng.random(rows.shape) < 0.1] = 0
            recorder.upload(0, user, rows, rng.choice(N_ITEMS, 20, replace=False))
    assert len(fl.attack(tmp_path / "t", "undeclared").abstained) == N_CLIENTS


def test_nobody_is_told_to_have_no_positive(tmp_path: Path):
    """Sigmoids are 1: positives are moved by weight decay alone, and were called unrated."""
    rng, k, rate = np.random.default_rng(9), 32, 0.1
    v = (0.8 + rng.normal(0, 0.01, (N_ITEMS, k))).astype(np.float16).astype(float)
    p = 0.8 + rng.normal(0, 0.01, (12, k))
    used = [rng.choice(N_ITEMS, 10, replace=False) for _ in p]
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0]) as recorder:
        for number in range(2):
            recorder.broadcast(number, v)
            for user, own in enumerate(used):
                items = [*own, *rng.choice(np.setdiff1d(np.arange(N_ITEMS), own), 20, replace=False)]
                error = (np.arange(30) < 10) - 1 / (1 + np.exp(-v[items] @ p[user]))
                rows = np.zeros((N_ITEMS, k))
                rows[items] = rate * (error[:, None] * p[user] - 0.1 * v[items])
                recorder.upload(number, user, rows.astype(np.float16).astype(np.float32))
                p[user] += rate * (error @ v[items] - 0.1 * p[user])
    found = fl.attack(tmp_path / "t", "undeclared")
    answered = set(found.users.tolist()) - set(found.abstained)
    assert answered == {user for c in found.columns() for user in c["user"][c["value"] > 0].tolist()}
