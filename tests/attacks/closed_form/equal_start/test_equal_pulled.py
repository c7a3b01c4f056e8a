"""The published start of paper 001, all factors 0.01, items regularised, and nothing of it declared."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.equal_start.equal_pulled import follow_pulled

STARS, HALVES = np.arange(1.0, 6.0), np.arange(0.5, 5.1, 0.5)
USERS, ITEMS, ROWS, K = 10, 40, 14, 5


class Program(NamedTuple):
    """What clients do in a round: rates, regularisation, and how many ratings make a step."""

    rate: float = 5e-3
    mu: float = 1e-2
    decay: float = 1e-2
    scale: float = -0.01
    after: bool = False
    batch: int = 1
    taken_off: float = 0.0
    dtype: Any = np.float64

    def rows(self, u: np.ndarray, v: np.ndarray, stars: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of a client in the order of its ratings, and its factor after them."""
        kind, out = self.dtype, np.zeros(v.shape, self.dtype)
        for first in range(0, len(v), self.batch):
            here = slice(first, first + self.batch)
            error, before = kind(1) * (stars[here] - self.taken_off - v[here] @ u).astype(kind), u
            u = u + kind(self.rate) * (error @ v[here] - kind(self.decay) * u)
            row = error[:, None] * (u if self.after else before) - kind(self.mu) * v[here]
            out[here] = kind(self.scale) * row
        return out, u


def read(
    path, program: Program, levels: np.ndarray, sizes: list[int], rounds: int = 1, **told
) -> tuple[int, int]:
    """Ratings that are answered, and how many rightly, of the last round of a program that starts at 0.01."""
    rng = np.random.default_rng(3)
    q, p = np.full((ITEMS, K), 0.01, program.dtype), np.full((len(sizes), K), 0.01, program.dtype)
    rated = [rng.permutation(ITEMS)[:n] for n in sizes]
    stars = [rng.choice(levels, n) for n in sizes]
    with fl.Recorder(path, rating_levels=told.pop("grid", levels), n_items=ITEMS, **told) as recorder:
        for round_ in range(rounds):
            last, sums = round_ == rounds - 1, np.zeros_like(q)
            if last:
                recorder.broadcast(round_, q)
            for user, items in enumerate(rated):
                rows, p[user] = program.rows(p[user], q[items], stars[user])
                sums[items] += rows / program.dtype(program.scale)
                if last:
                    recorder.upload(round_, user, rows, items)
            q = q + program.dtype(program.rate) * sums
    truth = {
        (user, int(item)): star
        for user, own in enumerate(zip(rated, stars, strict=True))
        for item, star in zip(*own, strict=True)
    }
    answered = [
        abs(value - truth[int(user), int(item)]) < 1e-3
        for column in fl.attack(path, "undeclared").columns()
        for user, item, value in zip(column["user"], column["index"], column["value"], strict=True)
    ]
    return len(answered), sum(answered)


@pytest.mark.parametrize(
    ("program", "levels", "rounds"),
    [
        (Program(), HALVES, 1),
        (Program(mu=0.3, decay=0.3, scale=1.0), STARS, 2),
    ],
)
def test_constants_that_nobody_told_are_found_with_the_ratings(tmp_path, program, levels, rounds):
    assert read(tmp_path / "run", program, levels, [ROWS] * USERS, rounds) == (ROWS * USERS,) * 2


def test_clients_that_start_alike_need_a_rating_each(tmp_path):
    sizes = [1, 1, 2, 3, 3, 4, 4, 4, 5, 5]
    assert read(tmp_path / "run", Program(), STARS, sizes) == (sum(sizes),) * 2


def test_one_client_alone(tmp_path):
    """Its ratings are no multiple of others on the grid."""
    assert read(tmp_path / "run", Program(), STARS, [ROWS]) == (ROWS, ROWS)


@pytest.mark.thorough
def test_multiples_are_told_by_a_declared_scale_or_the_highest_level(tmp_path):
    """Whole stars on a grid of halves: half of each is on it, too, and nobody would have more than 2.5."""
    whole = np.array([1.0, 2.0, 5.0])
    sizes, every = [ROWS] * USERS, ROWS * USERS
    assert read(tmp_path / "open", Program(), whole, sizes, grid=HALVES) == (every, every)
    assert read(tmp_path / "low", Program(), whole[:2], sizes, grid=HALVES)[0] == 0
    told = {"upload_scale": -0.01}
    assert read(tmp_path / "told", Program(), whole, sizes, grid=HALVES, constants=told) == (every, every)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "told"),
    [
        pytest.param(Program(taken_off=3.3), {}, marks=pytest.mark.thorough),
        (Program(taken_off=3.3, rate=1e-4, dtype=np.float32), {}),
        pytest.param(Program(batch=3), {}, marks=pytest.mark.thorough),
        (Program(batch=ROWS), {}),
        (Program(), {"grid": np.array([1.5, 2.5, 3.5])}),
    ],
    ids=["less a number", "less a number, short steps", "minibatches", "one step", "another grid"],
)
def test_other_programs_are_not_answered_wrongly(tmp_path, program, told):
    answered, right = read(tmp_path / "run", program, STARS, [ROWS] * USERS, **told)
    assert answered == right


def followed(program: Program, levels: np.ndarray, shuffled: bool = False, offset: float = 0.0, **told):
    """What is told of clients whose rows are given as numbers."""
    rng = np.random.default_rng(8)
    stars, v = rng.choice(levels, (USERS, ROWS)), np.full((USERS, ROWS, 1), 0.02)
    pairs = zip(v, stars, strict=True)
    g = np.stack([program.rows(np.full(1, 0.02), one, own)[0][:, 0] for one, own in pairs])
    order = rng.permuted(np.tile(np.arange(ROWS), (USERS, 1)), axis=1 if shuffled else 0)
    every, off = np.ones(g.shape, bool), np.full(g.shape, offset)
    eps = float(np.finfo(program.dtype).eps)
    return stars, follow_pulled(g.astype(float), v[..., 0], off, every, order, levels, eps, **told)


def test_an_offset_that_everybody_knows():
    stars, found = followed(Program(taken_off=1.0), STARS, offset=1.0)
    assert found.told.all()
    np.testing.assert_allclose(found.value, stars, atol=1e-8)
    np.testing.assert_allclose(found.pull, -Program().scale * Program().mu, rtol=1e-6)


@pytest.mark.parametrize(
    ("program", "how"),
    [
        (Program(), {"shuffled": True}),
        (Program(), {"offset": 1.0}),
        (Program(taken_off=1.0), {}),
        (Program(rate=1e-7, dtype=np.float32), {}),  # steps are too short to tell a shift by a level
        (Program(after=True), {"after": False}),
    ],
    ids=["another order", "wrong offset", "less a level", "hardly a step", "rows after the step"],
)
def test_what_rows_do_not_tell_is_left_open(program, how):
    assert not followed(program, STARS, **how)[1].told.any()


def test_no_rows():
    none = np.zeros((3, 4))
    found = follow_pulled(none, none, none, none > 0, none.astype(int), STARS, 2.0**-52)
    assert not found.told.any()
    assert np.isnan(found.value).all()
