"""The published start and order of paper 001, all factors 0.01, and nothing declared."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.equal_start import equal_unscaled
from attacks.closed_form.equal_start.equal_unscaled import follow_unscaled

USERS, ITEMS, K = 14, 40, 5


def recorded(path, dtype, scale: float, mu: float, after: bool, half: bool = False, **told) -> None:
    """The second round of a program whose factors all start at 0.01."""
    rng = np.random.default_rng(3)
    levels = np.arange(0.5, 5.1, 0.5) if half else np.arange(1.0, 6.0)
    q, p = np.full((ITEMS, K), 0.01, dtype), np.full((USERS, K), 0.01, dtype)
    rated = [rng.permutation(ITEMS)[:18] for _ in range(USERS)]
    stars = [rng.choice(levels, 18) for _ in range(USERS)]
    with fl.Recorder(path, rating_levels=levels, **told) as recorder:
        for round_ in range(2):
            sums = np.zeros_like(q)
            if round_:
                recorder.broadcast(round_, q)
            for user in range(USERS):
                rows = np.zeros((18, K), dtype)
                for k, (item, rating) in enumerate(zip(rated[user], stars[user], strict=True)):
                    error, before = dtype(rating) - p[user] @ q[item], p[user].copy()
                    p[user] += dtype(2e-3) * (error * q[item] - dtype(1e-4) * before)
                    rows[k] = -2 * error * (p[user] if after else before) + dtype(2 * mu) * q[item]
                sums[rated[user]] += rows
                if round_:
                    recorder.upload(round_, user, dtype(scale) * rows, rated[user])
                    recorder.truth(user, rated[user], stars[user])
            q = q - dtype(1e-3) * sums


def read(path) -> tuple[int, int]:
    """Ratings that are answered, and those of them that are right."""
    found = fl.attack(path, "undeclared")
    truth = fl.score(found, transcript=path).set_index("metric")
    share = truth.loc["rated_rating_accuracy", "value"]
    return found.users.size - len(found.abstained), round(share * found.users.size)


@pytest.mark.parametrize(
    ("dtype", "scale", "mu", "after"),
    [
        (np.float64, -0.5, 0.0, False),
        (np.float32, 1.0, 1e-4, True),
    ],
)
def test_order_alone_tells_the_ratings(tmp_path, dtype, scale, mu, after):
    recorded(tmp_path / "run", dtype, scale, mu, after)
    answered, right = read(tmp_path / "run")
    assert answered == right == USERS


def test_wrong_scale_is_not_believed(tmp_path):
    """Near four times the true one: halves of ratings would meet a grid of half stars."""
    told = {"rule": {"rule": "sgd", "order": "per-rating"}, "constants": {"upload_scale": -7.4}}
    recorded(tmp_path / "run", np.float64, 1.0, 1e-4, True, half=True, **told)
    answered, right = read(tmp_path / "run")
    assert answered == right >= USERS - 1


@pytest.mark.thorough
def test_noise_is_not_answered(tmp_path):
    rng = np.random.default_rng(1)
    with fl.Recorder(tmp_path / "run", rating_levels=np.arange(1.0, 6.0)) as recorder:
        recorder.broadcast(0, np.full((ITEMS, K), 0.01))
        for user in range(USERS):
            rows = rng.uniform(0.01, 0.05, (18, 1)) * np.ones(K)
            recorder.upload(0, user, rows, rng.permutation(ITEMS)[:18])
    assert len(fl.attack(tmp_path / "run", "undeclared").abstained) == USERS


@pytest.mark.thorough
def test_clipped_errors_name_no_level(tmp_path):
    """Clipped at 2.5, twice as large: ratings 3, 4 and 5 were answered as 5, 1 and 2 as 2 and 4."""
    rng = np.random.default_rng(1)
    q, stars = np.full((ITEMS, K), 0.01), [rng.choice(np.arange(1.0, 6.0), 18) for _ in range(6)]
    for name, bound in (("clipped", 2.5), ("whole", np.inf)):
        with fl.Recorder(tmp_path / name, rating_levels=np.arange(1.0, 6.0)) as recorder:
            recorder.broadcast(0, q)
            for user, ratings in enumerate(stars):
                p, rows, items = np.full(K, 0.01), [], np.arange(18)
                for item, rating in zip(items, ratings, strict=True):
                    error = min(rating - p @ q[item], bound)
                    rows.append(error * p - 1e-4 * q[item])
                    p = p + 5e-3 * (error * q[item] - 1e-4 * p)
                recorder.upload(0, user, np.array(rows), items)
                recorder.truth(user, items, ratings)
    assert len(fl.attack(tmp_path / "clipped", "undeclared").abstained) == 6
    assert read(tmp_path / "whole") == (6, 6)


def test_many_levels_are_not_asked_of_all_who_tell_nothing(monkeypatch):
    """A hundred levels, and forty clients whose rows are of noise: those with most rows are asked alone."""
    rng, nearest, asked = np.random.default_rng(0), equal_unscaled.nearest_numbers, []
    monkeypatch.setattr(
        equal_unscaled, "nearest_numbers", lambda *a: asked.append(a[0].shape[1]) or nearest(*a)
    )
    g, h, there = rng.normal(size=(40, 12)), np.full((40, 12), 0.02), np.ones((40, 12), bool)
    there[:30, 7:] = False
    order = np.tile(np.arange(12), (40, 1))
    assert not follow_unscaled(g, h, there, order, np.arange(1.0, 101.0)).told.any()
    assert asked == [12] * equal_unscaled.SILENT
