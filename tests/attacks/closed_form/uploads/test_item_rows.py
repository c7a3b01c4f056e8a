"""Rows of items as clients computed them: how many digits they have."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.uploads.item_rows import digit_of, fixed_point_of

LEVELS = np.arange(1.0, 6.0)


def stepped(path, upload: str, dtype: type = np.float64, rate: float = 0.002) -> np.ndarray:
    """Clients that step after every rating and send changes of their copies, or the copies; their ratings."""
    rng = np.random.default_rng(4)
    q = rng.normal(0, 0.3, (40, 4)).astype(dtype)
    ratings = np.where(rng.random((24, 40)) < 0.35, rng.choice(LEVELS, (24, 40)), 0.0)
    with fl.Recorder(path, rating_levels=LEVELS, rule={"upload": upload}) as recorder:
        recorder.broadcast(0, q)
        for user, own in enumerate(ratings):
            (rated,) = np.nonzero(own)
            p, copies = rng.normal(0, 0.3, 4).astype(dtype), q.copy()
            for item in rng.permutation(rated):
                error = dtype(rate * (own[item] - p @ q[item]))
                copies[item] = q[item] + error * p
                p = p + error * q[item]
            recorder.upload(0, user, (copies if upload == "weights" else copies - q)[rated], rated)
    return ratings


def answers(found: fl.Reconstruction, ratings: np.ndarray) -> tuple[int, int]:
    """Ratings that are answered, and of these wrongly."""
    answered = wrong = 0
    for told in found.columns():
        here = np.isfinite(told["value"])
        true = ratings[told["user"][here], told["index"][here]]
        answered += int(here.sum())
        wrong += int((np.abs(told["value"][here] - true) > 0.25).sum())
    return answered, wrong


@pytest.mark.parametrize("upload", ["weights"])
def test_changes_are_read_to_the_digits_of_what_they_change(tmp_path, upload):
    """Steps after every rating: where a row points is known to the digits of the copies, not to its own."""
    ratings = stepped(tmp_path / "t", upload)
    told, wrong = answers(fl.attack(tmp_path / "t", "undeclared"), ratings)
    assert told >= 0.98 * (ratings > 0).sum()
    assert not wrong
    assert fl.identify(tmp_path / "t").rule.items() >= {"order": "per-rating", "batch_size": 1}.items()


@pytest.mark.thorough
@pytest.mark.parametrize("upload", ["delta", "weights"])
def test_changes_in_single_precision_are_not_answered_wrongly(tmp_path, upload):
    ratings = stepped(tmp_path / "t", upload, np.float32, rate=0.02)
    assert not answers(fl.attack(tmp_path / "t", "undeclared"), ratings)[1]


def test_gradients_have_the_digits_of_their_type():
    """Of any length, and also those that are short beside their factors; one row is no evidence."""
    rng = np.random.default_rng(0)
    v, g = rng.normal(size=(5, 8, 4)), rng.normal(size=(5, 8, 4))
    for size in (1e-9, 1e-3, 1.0, 1e200):
        assert digit_of(size * g, v) == np.finfo(float).eps
    assert digit_of(np.full((1, 1, 3), 0.5), np.ones((1, 1, 3))) == np.finfo(float).eps
    assert digit_of(np.full((1, 1, 3), 1e28), np.zeros((1, 1, 3))) == np.finfo(float).eps
    assert digit_of(g.astype(np.float32), v) == np.finfo(np.float32).eps
    assert digit_of(g.astype(np.float32).astype(float), v) == np.finfo(np.float32).eps
    for kind in (np.float32, float):
        assert digit_of(g.astype(np.float16).astype(kind), v) == np.finfo(np.float16).eps / 8
    assert digit_of(np.zeros((1, 0, 4)), np.zeros((1, 0, 4))) == np.finfo(float).eps
    unbounded = np.full((1, 2, 3), np.inf)
    assert digit_of(unbounded, -unbounded) == np.finfo(float).eps


def test_changes_have_those_of_the_factors_in_double_precision_alone():
    rng = np.random.default_rng(0)
    v, g = rng.normal(size=(5, 8, 4)), rng.normal(size=(5, 8, 4))
    assert 1e3 < digit_of(v + 1e-4 * g - v, v) / np.finfo(float).eps < 1e5
    v, g = v.astype(np.float32), g.astype(np.float32)
    assert digit_of(v + np.float32(1e-4) * g - v, v) == np.finfo(np.float32).eps


def six_decimals(rows: np.ndarray) -> np.ndarray:
    return rows.round(6)


def sixteen_bits(rows: np.ndarray) -> np.ndarray:
    return (np.rint(rows * 2**16) / 2**16).astype(np.float32)


@pytest.mark.parametrize("rounded", [six_decimals])
@pytest.mark.parametrize("seen", [True, False], ids=["order seen", "order hidden"])
def test_rows_that_were_rounded_to_so_many_places(tmp_path, rounded, seen):
    """As for encryption or masks; a step after every rating. Before: a third to two thirds were read."""
    rng = np.random.default_rng(2)
    q = rng.normal(0, 0.3, (80, 6))
    ratings = np.zeros((30, 80))
    with fl.Recorder(tmp_path / "t", rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, q)
        for user, own in enumerate(ratings):
            rated, p = rng.choice(80, rng.integers(2, 25), replace=False), rng.normal(0, 0.3, 6)
            own[rated] = rng.choice(LEVELS, rated.size)
            rows = np.zeros((rated.size, 6))
            for at in range(rated.size) if seen else rng.permutation(rated.size):
                error = own[rated[at]] - q[rated[at]] @ p
                rows[at], p = error * p, p + 0.01 * error * q[rated[at]]
            recorder.upload(0, user, rounded(rows), rated)
    told, wrong = answers(fl.attack(tmp_path / "t", "undeclared"), ratings)
    assert told >= 0.9 * (ratings > 0).sum()
    assert not wrong


def test_the_last_place_of_rows():
    """A rounded row says it, in either base; a single number said often, and random ones, do not."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(3, 5, 4))
    assert fixed_point_of(rows.round(7)) == 1e-7
    assert fixed_point_of(np.rint(rows * 2.0**24) / 2.0**24) == 2.0**-24
    assert fixed_point_of(sixteen_bits(rows)) == 2.0**-16
    assert fixed_point_of(rows) < 1e-14
    assert fixed_point_of(np.full((2, 3, 4), 0.5)) == 0
    assert fixed_point_of(np.zeros((2, 3, 4))) == 0
    assert fixed_point_of(np.full((1, 1, 1), np.inf)) == 0
    assert digit_of(rows.round(4), rng.normal(size=rows.shape)) > 1e-5
