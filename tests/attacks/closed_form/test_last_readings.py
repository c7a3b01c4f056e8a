"""Rows among made-up ones, and sums of two: read by ``undeclared``, none wrongly."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.chains.pulled_group import one_line
from attacks.closed_form.rows.rated_twice import ratings_beside_sums
from tests.oracles.gap_programs import GapProgram, all_of_it, beside_noise, some_twice

WHOLE = (1.0, 2.0, 3.0, 4.0, 5.0)


def answers_of(found: fl.Reconstruction) -> list[tuple[int, int, float]]:
    """Client, item and rating of what is told."""
    columns = [c for c in found.columns() if c["value"].size]
    user, item, value = (np.concatenate([c[name] for c in columns]) for name in ("user", "index", "value"))
    told = np.isfinite(value)
    return list(zip(user[told].tolist(), item[told].tolist(), value[told].tolist(), strict=True))


@pytest.mark.parametrize("dtype", [pytest.param(np.float64, marks=pytest.mark.thorough), np.float32])
@pytest.mark.parametrize(("step", "every"), [(some_twice, 10), (beside_noise, 3)])
def test_rows_of_one_rating_are_read(tmp_path, step, every, dtype):
    program = GapProgram(step, all_of_it, factors=5, n_users=6, levels=WHOLE, dtype=dtype)
    ratings = program.record(tmp_path / "t")
    told = answers_of(fl.attack(tmp_path / "t", "undeclared"))
    wrong = [(user, item) for user, item, value in told if abs(value - ratings[user, item]) > 0.25]
    assert not wrong
    assert len(told) >= 0.9 * (1 - 1 / every) * (ratings > 0).sum()


@pytest.mark.parametrize("step", [some_twice, beside_noise])
def test_shuffled_rows_are_not_read(tmp_path, step):
    GapProgram(step, all_of_it, factors=5, n_users=6, levels=WHOLE).record(tmp_path / "t")
    view = fl.open_transcript(tmp_path / "t").view("server").shuffled(3)
    assert len(fl.attack(view, "undeclared").abstained) == view.users.size


def test_ratings_and_their_doubles_explain_the_same_rows():
    rng = np.random.default_rng(0)
    h, r = rng.normal(size=20), rng.choice([2.0, 4.0], 20)
    g = np.append((r - h)[:19], 6 - 2 * h[19])
    assert len(ratings_beside_sums(g, h, 0 * h, np.arange(1.0, 6))) > 1


def test_errors_of_no_grid_are_explained_by_nothing():
    rng = np.random.default_rng(0)
    assert not ratings_beside_sums(rng.normal(size=20), rng.normal(size=20), np.zeros(20), np.arange(1.0, 6))


def test_errors_of_a_sigmoid_near_0_are_not_called_ratings_beside_sums():
    """To 0.001 of a star they are linear, which is more than double precision leaves."""
    rng = np.random.default_rng(0)
    predicted, r = rng.normal(0, 0.1, 25), rng.choice([3.0, 4.0, 5.0], 25)
    error = r / 5 - 1 / (1 + np.exp(-predicted))
    levels = np.arange(1, 11) / 2
    assert ratings_beside_sums(error, predicted, 0 * error, levels, digit=1e-3)
    assert not ratings_beside_sums(error, predicted, 0 * error, levels)


def test_parallel_rows_without_a_multiple_are_no_pulled_group():
    rng = np.random.default_rng(0)
    sent = np.outer(rng.normal(size=9), rng.normal(size=5))
    assert not one_line(sent, rng.normal(size=(9, 5)), 1e-12).any()
