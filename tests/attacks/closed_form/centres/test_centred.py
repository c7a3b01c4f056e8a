"""What rows of ratings less an unknown number tell: ratings up to a shift and a mirror image."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.closed_form.centres.centred import Centred, read_centred
from attacks.closed_form.uploads.readings import Rows

STARS, HALVES = np.arange(1.0, 6.0), np.arange(0.5, 5.01, 0.5)
K = 6


def rows_of(rows: np.ndarray, factors: np.ndarray, dtype=np.float64) -> Rows:
    """One client that sent these rows."""
    sent = rows.astype(dtype).astype(float)[None]
    there = np.ones(sent.shape[:2], bool)
    precision = float(np.finfo(dtype).eps)
    return Rows(sent, factors[None], np.zeros(there.shape), there, np.full(1, np.nan), precision, None)


def one_step(y: np.ndarray, v: np.ndarray, p: np.ndarray) -> np.ndarray:
    return -2 * (y - v @ p)[:, None] * p


def with_pull(y: np.ndarray, v: np.ndarray, p: np.ndarray) -> np.ndarray:
    return one_step(y, v, p) + 0.1 * v


def per_rating(y: np.ndarray, v: np.ndarray, p: np.ndarray) -> np.ndarray:
    out = np.empty(v.shape)
    for row, (one, factor) in enumerate(zip(y, v, strict=True)):
        error = one - factor @ p
        out[row] = -2 * error * p
        p = (1 - 1e-4) * p + 0.02 * error * factor
    return out


def same_up_to_a_mirror(found: Centred, ratings: np.ndarray, step: float) -> bool:
    up = np.rint((ratings - ratings.min()) / step).astype(int)
    up //= np.gcd.reduce(up)
    return bool(found.told[0]) and any((found.above[0] == one).all() for one in (up, up.max() - up))


@pytest.mark.parametrize("program", [one_step, with_pull, per_rating])
def test_mirrored_ratings_make_the_same_rows(program):
    """6 - r less 6 - m, with the factor negated: the same to the last digit. Nothing can tell them apart."""
    rng = np.random.default_rng(0)
    v, p, r, m = rng.normal(0, 0.3, (12, K)), rng.normal(0, 0.3, K), rng.choice(STARS, 12), 3.53
    rows, mirrored = program(r - m, v, p), program((6 - r) - (6 - m), v, -p)
    np.testing.assert_allclose(rows, mirrored, rtol=0, atol=1e-14)


@pytest.mark.parametrize("levels", [STARS, HALVES], ids=["stars", "half stars"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("program", [one_step, with_pull, per_rating])
def test_ratings_are_read_up_to_a_shift_and_a_mirror_image(program, dtype, levels):
    """Less the mean of all, less the client's own, divided by a deviation: nobody is read wrongly."""
    rng = np.random.default_rng(1)
    read = []
    for centre, scale in ((3.53, 1.0), (3.0, 1.0), (None, 1.0), (None, 1.3)):
        for _ in range(3):
            r = rng.choice(levels, 14)
            v, p = rng.normal(0, 0.3, (14, K)).astype(dtype).astype(float), rng.normal(0, 0.3, K)
            y = (r - (r.mean() if centre is None else centre)) / scale
            found = read_centred(rows_of(program(y, v, p), v, dtype), levels)
            read.append(bool(found.told[0]))
            assert not read[-1] or same_up_to_a_mirror(found, r, levels[1] - levels[0])
    # chains of directions in single precision lose their order in some clients
    assert np.mean(read) >= (0.7 if program is per_rating and dtype == np.float32 else 1.0)


def test_where_zero_lies_is_told():
    """``start`` is r - m of the lowest rating, or m - r of the highest."""
    rng = np.random.default_rng(2)
    r, v = np.array([2.0, 5.0, 3.0, 4.0, 2.0, 5.0]), rng.normal(0, 0.4, (6, K))
    found = read_centred(rows_of(one_step(r - 3.53, v, rng.normal(0, 0.4, K)), v), STARS)
    assert found.told[0]
    turned = found.above[0, 0] > 0
    assert found.start[0] == pytest.approx(3.53 - 5.0 if turned else 2.0 - 3.53)
    assert 1 / found.numbers[0].prod() == pytest.approx(-2.0)


def test_multiples_are_given_in_lowest_terms():
    """Ratings 1, 3 and 5 are ratings 1, 2 and 3 with a scale of a quarter."""
    rng = np.random.default_rng(3)
    r, v = np.array([1.0, 5.0, 3.0, 5.0, 1.0, 3.0, 3.0]), rng.normal(0, 0.4, (7, K))
    found = read_centred(rows_of(one_step(r - 3, v, rng.normal(0, 0.4, K)), v), STARS)
    assert found.told[0]
    assert found.reach[0] == 2
    assert 1 / found.numbers[0].prod() == pytest.approx(4 * -2.0)


def test_rows_of_errors_of_one_size_tell_nothing():
    """Signs of the errors lie on two levels, whatever the ratings."""
    rng = np.random.default_rng(4)
    v, p, r = rng.normal(0, 0.3, (20, K)), rng.normal(0, 0.3, K), rng.choice(STARS, 20)
    rows = np.sign(r - 3 - v @ p)[:, None] * p
    assert not read_centred(rows_of(rows, v), STARS).told[0]


def test_equal_factors_and_one_level_tell_nothing():
    rng = np.random.default_rng(5)
    p, r = rng.normal(0, 0.3, K), rng.choice(STARS, 12)
    v = np.full((12, K), 0.1)
    assert not read_centred(rows_of(one_step(r - 3, v, p), v), STARS).told[0]
    v = rng.normal(0, 0.3, (12, K))
    assert not read_centred(rows_of(one_step(np.ones(12), v, p), v), STARS).told[0]


def test_rows_about_nothing_are_not_read():
    """Sixty clients of 4 to 20 rows of one direction and random length, and of noise."""
    rng = np.random.default_rng(6)
    for _ in range(30):
        n = int(rng.integers(4, 21))
        v, p = rng.normal(0, 0.3, (n, K)), rng.normal(0, 0.3, K)
        assert not read_centred(rows_of(rng.normal(size=(n, 1)) * p, v), HALVES).told[0]
        assert not read_centred(rows_of(rng.normal(size=(n, K)), v), HALVES).told[0]


@pytest.mark.parametrize(
    "levels", [STARS, HALVES, np.array([1.0, 2.0])], ids=["stars", "half stars", "likes"]
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("squared", [True, False], ids=["squared", "cross-entropy"])
def test_behind_a_sigmoid_from_lowest_to_highest(squared, dtype, levels):
    """PMF's (r - 1) / (K - 1) and likes as 0 and 1: the number taken off is the middle of the grid."""
    rng, middle, read = np.random.default_rng(2), (levels[0] + levels[-1]) / 2, []
    for _ in range(6):
        r = np.concatenate([levels[[0, -1]], rng.choice(levels, 18)])
        v, p = rng.normal(0, 0.7, (20, K)).astype(dtype).astype(float), rng.normal(0, 0.7, K)
        guess = 1 / (1 + np.exp(-v @ p))
        error = (r - levels[0]) / np.ptp(levels) - guess
        rows = -(error * (guess * (1 - guess) if squared else 1))[:, None] * p
        found = read_centred(rows_of(rows, v, dtype), levels)
        assert not read_centred(rows_of(rows, v, dtype), levels, linear=True).told[0]
        read.append(bool(found.told[0]))
        assert not read[-1] or same_up_to_a_mirror(found, r, levels[1] - levels[0])
        assert not read[-1] or found.start[0] == levels[0] - middle
    assert np.mean(read) >= 0.8
