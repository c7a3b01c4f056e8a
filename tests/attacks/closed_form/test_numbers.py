"""Integer relations of real numbers."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.closed_form.numbers.integer_relation import ratings_in_span
from tests.oracles.local_training import HALF_STARS, Client

# Ratings as the only integers in a span, under everything that is linear in them.


STARS = np.arange(1.0, 6.0)


def found(
    rows: np.ndarray, factors: np.ndarray, levels: np.ndarray, dtype: type, bias: np.ndarray | None = None
):
    none = np.zeros((1, len(rows))) if bias is None else bias[None]
    item = np.ones((1, len(rows)), bool)
    digit = float(np.finfo(dtype).eps)
    return ratings_in_span(rows[None].astype(float), factors[None].astype(float), none, item, levels, digit)


def a_client(seed: int, n: int = 30, k: int = 5, levels: np.ndarray = HALF_STARS):
    rng = np.random.default_rng(seed)
    return rng.normal(0, 0.4, k), rng.choice(levels, n), rng.normal(0, 0.4, (n, k))


@pytest.mark.parametrize(
    "client",
    [
        Client(steps=1),
        Client(steps=2, rate=0.005),
        Client(steps=20, rate=0.01),
        Client(steps=5, decay=0.1, mean=True, rate=0.5),
        Client(steps=5, momentum=0.9),
        Client(steps=4, moves=False, ratio=3.0),
        Client(steps=3, dtype=np.float32),
        Client(steps=5, momentum=0.5, dtype=np.float32),
    ],
    ids=str,
)
@pytest.mark.parametrize("scale", [1.0, -37.5])
def test_every_linear_program_is_read_without_a_constant(client: Client, scale: float):
    for seed in range(5):
        p, r, q = a_client(seed)
        q = q.astype(client.dtype)
        copy, _ = client.train(p, r, q)
        answer = found(client.dtype(scale) * (copy - q), q, HALF_STARS, client.dtype)
        assert answer.told[0]
        assert (answer.value[0] == r).all()


def test_any_way_of_the_clients_factor():
    rng = np.random.default_rng(0)
    p, r, q = a_client(0, k=8)
    copy = q.copy()
    for _ in range(6):  # no rule at all moves it
        copy = copy + 0.05 * (r - copy @ p)[:, None] * p
        p = rng.normal(0, 0.4, 8)
    answer = found(copy - q, q, HALF_STARS, np.float64)
    assert (answer.value[0] == r).all()


def test_known_biases_of_the_items():
    p, r, q = a_client(1)
    bias = np.random.default_rng(1).normal(0, 0.5, r.size)
    copy, _ = Client().train(p, r - bias, q)
    assert (found(copy - q, q, HALF_STARS, np.float64, bias).value[0] == r).all()
    assert not found(copy - q, q, HALF_STARS, np.float64).told[0]


@pytest.mark.parametrize(("dtype", "few", "enough"), [(np.float64, 7, 8), (np.float32, 9, 18)])
def test_how_many_ratings_it_takes(dtype: type, few: int, enough: int):
    """Five factors span six dimensions; the less exact the rows, the more equations are needed."""
    for n, told in ((few, False), (enough, True)):
        p, r, q = a_client(2, n=n, levels=STARS)
        q = q.astype(dtype)
        copy, _ = Client(dtype=dtype).train(p, r, q)
        answer = found(copy - q, q, STARS, dtype)
        assert bool(answer.told[0]) == told
        assert not told or (answer.value[0] == r).all()


def test_multiples_on_the_grid_are_no_answer():
    p, r, q = a_client(3, levels=np.array([1.0, 2.0]))
    copy, _ = Client().train(p, r, q)
    assert not found(copy - q, q, STARS, np.float64).told[0]  # twice as much is on the grid, too
    assert (found(copy - q, q, np.array([1.0, 2.0, 3.0]), np.float64).value[0] == r).all()


def _noise(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rows + 1e-6 * np.abs(rows).max() * rng.normal(size=rows.shape)


def _random(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=rows.shape)


def _parallel(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(len(rows), 1)) * rng.normal(size=rows.shape[1])


@pytest.mark.parametrize("spoilt", [_noise, _random, _parallel])
def test_nothing_is_read_where_rows_are_something_else(spoilt):
    """Chance: 40 clients, none of whom may be answered; an accident has a probability below e^-20 each."""
    rng = np.random.default_rng(4)
    for seed in range(40):
        p, r, q = a_client(seed, levels=STARS)
        copy, _ = Client().train(p, r, q)
        assert not found(spoilt(copy - q, rng), q, STARS, np.float64).told[0]


def test_a_step_after_every_rating_and_a_link_are_not_taken_for_it():
    for seed in range(10):
        p, r, q = a_client(seed, levels=STARS)
        rows, u = [], p
        for value, v in zip(r, q, strict=True):
            rows.append((value - u @ v) * u)
            u = u + 0.02 * (value - u @ v) * v
        assert not found(np.array(rows), q, STARS, np.float64).told[0]
        likely = 1 / (1 + np.exp(-q @ p))
        assert not found((r / 5 - likely)[:, None] * p, q, STARS, np.float64).told[0]


@pytest.mark.parametrize("levels", [np.array([1.0, np.pi]), np.array([3.0]), np.array([0.001, 5.0])])
def test_grids_of_no_unit(levels: np.ndarray):
    p, r, q = a_client(5, levels=levels)
    copy, _ = Client().train(p, r, q)
    assert not found(copy - q, q, levels, np.float64).told[0]


@pytest.mark.parametrize(("used", "own"), [([2.5, 3.0, 5.0], 0.0), ([3.0, 4.0, 5.0], -1.0)])
def test_known_biases_are_taken_off_once(used: list[float], own: float):
    """Half of (ratings + 1) is on a grid of halves: answered for a client with a bias of -1 of its own."""
    rng = np.random.default_rng(2)
    r, p, q = rng.choice(used, 26), rng.normal(0, 0.4, 3), rng.normal(0, 0.4, (26, 3))
    bias = rng.normal(0, 0.4, 26)
    rows = 0.04 * (r - own - bias - q @ p)[:, None] * p
    answer = found(rows, q, HALF_STARS, np.float64, bias)
    assert answer.told[0] == (own == 0)
    assert not answer.told[0] or (answer.value[0] == r).all()
