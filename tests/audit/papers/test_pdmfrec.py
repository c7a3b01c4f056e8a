"""Duriakova et al.'s Table 2: the cut, the choice by validation alone, and its command."""

from __future__ import annotations

import numpy as np
import pytest

from audit.papers.pdmfrec import Factors, disjoint_batches, pmf_epoch, pmf_start
from audit.papers.pdmfrec import run as run_grid
from audit.papers.plans import PartsPlan
from reports.paper_tables import chosen, parts_frame
from victims.common.errors import InputError
from victims.data.subsets import rotations

DATA = "synthetic:users=15,items=20,ratings_per_user=8"


def test_every_rating_is_tested_once_and_never_seen_before(ratings):
    pairs = [
        [set(zip(part.users.tolist(), part.items.tolist(), strict=True)) for part in rotation]
        for rotation in rotations(ratings, 3)
    ]
    everything = set(zip(ratings.users.tolist(), ratings.items.tolist(), strict=True))
    for train, validation, test in pairs:
        assert len(train) + len(validation) + len(test) == len(everything)
        assert train | validation | test == everything
        assert abs(len(test) - len(everything) / 5) < 1
    assert sum(len(test) for *_, test in pairs) == len(everything)
    assert all(pairs[k][1] == pairs[(k + 1) % 5][2] for k in range(5))
    with pytest.raises(InputError, match="count of rotations must be >= 3"):
        next(rotations(ratings, 0, 2))


def test_a_batch_of_pmf_is_its_ratings_one_after_the_other(ratings):
    batches = disjoint_batches(ratings, 1)
    assert np.sort(np.concatenate(batches)).tolist() == list(range(ratings.n_ratings))
    now = pmf_start(ratings, 3, 0.5, 1)
    after = pmf_epoch(now, ratings, batches, 0.02, 0.1, 1, 0)
    found = None
    for backwards in (False, True):  # inside a batch the order does not matter
        clients, items = now.clients.copy(), now.items.copy()
        for at in _order_of_batches(len(batches)):
            for entry in batches[at][::-1] if backwards else batches[at]:
                u, v = clients[ratings.users[entry]].copy(), items[ratings.items[entry]].copy()
                error = ratings.values[entry] - u @ v
                clients[ratings.users[entry]] = u - 0.02 * (-error * v + 0.1 * u)
                items[ratings.items[entry]] = v - 0.02 * (-error * u + 0.1 * v)
        found = Factors(clients, items)
        np.testing.assert_allclose(after.clients, found.clients, atol=1e-12)
        np.testing.assert_allclose(after.items, found.items, atol=1e-12)
    far = Factors(now.clients * 1e200, now.items * 1e200)
    with pytest.raises(InputError, match="pmf diverged in epoch 4; lower learning_rate"):
        pmf_epoch(far, ratings, batches, 9.0, 0.1, 1, 4)


def _order_of_batches(count):
    from victims.common.seeds import Purpose, generator

    return generator(1, Purpose.PMF_START, 2, 0).permutation(count)


def test_rate_and_rounds_are_chosen_by_validation_alone():
    rows = []
    for rate, rounds, validation, test in ((0.1, 1, 0.9, 0.5), (0.1, 2, 0.8, 0.7), (0.2, 1, 0.85, 0.1)):
        for metric, value in (("validation_mae", validation), ("mae", test), ("rmse", test)):
            row = {"victim": f"pmf rate={rate}", "seed": 0, "rounds": rounds, "metric": metric}
            rows.append({**row, "value": value, "baseline": 1.0, "status": "ran"})
    frame = parts_frame(rows)
    assert chosen(frame)[["rate", "rounds", "mae"]].values.tolist() == [[0.1, 2, 0.7]]
    assert chosen(frame, 1)[["rate", "mae"]].values.tolist() == [[0.2, 0.1]]


def test_the_command_makes_the_table_and_goes_on(run, tmp_path):
    words = ["papers", "predict", "--victim", "pdmfrec", "--data", DATA, "--out", tmp_path / "P", "--jobs", 1]
    words += ["--runs", "2", "--epochs", "3", "--rates", "0.01,9", "--set", "factors=3"]
    code, text, _ = run(*words)
    assert code == 0
    for method in ("pdmfrec ", "pdmfrec-sim ", "pdmfrec-sim-all ", "pmf ", "training mean"):
        assert method in text
    assert "lower learning_rate (now 9)" in text
    cells = {path: path.stat().st_mtime_ns for path in (tmp_path / "P" / "cells").iterdir()}
    assert run(*words)[1].splitlines()[:8] == text.splitlines()[:8]
    assert cells == {path: path.stat().st_mtime_ns for path in (tmp_path / "P" / "cells").iterdir()}
    for wrong, message in (
        (["--method", "hdpmf"], "methods of a prediction with pdmfrec must"),
        (["--runs", "6"], "from 1 to 5"),
    ):
        code, _, error = run(*words, *wrong)
        assert (code, message in error) == (2, True)
    code, _, error = run("papers", "predict", "--victim", "fedmf")
    assert (code, "--victim must be mf, pdmfrec or dpmf-yang" in error) == (2, True)


def test_a_cell_measures_what_is_predicted(ratings, tmp_path):
    """The training mean, and a rate so small that nothing moves: the error of the start."""
    plan = PartsPlan(("pmf",), "x", (1e-12,), (1,), 1, 0, {"factors": "3", "init_scale": "1.5"})
    rows = {row["metric"]: row for row in run_grid(plan, ratings, tmp_path, jobs=1)}
    train, validation, test = next(rotations(ratings, 0))
    start = pmf_start(train, 3, 1.5, 0)
    for metric, held, size in (
        ("mae", test, lambda e: np.abs(e).mean()),
        ("rmse", test, lambda e: np.sqrt(np.mean(e**2))),
        ("validation_mae", validation, lambda e: np.abs(e).mean()),
    ):
        predicted = np.clip((start.clients[held.users] * start.items[held.items]).sum(axis=1), 1, 5)
        assert rows[metric]["value"] == pytest.approx(size(predicted - held.values))
        assert rows[metric]["baseline"] == pytest.approx(size(train.values.mean() - held.values))
