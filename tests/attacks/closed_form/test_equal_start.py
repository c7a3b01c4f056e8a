"""Clients that start at one factor: rows of the first step, in the order of the rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from attacks.closed_form.equal_start import equal_unscaled
from attacks.closed_form.equal_start.equal_orders import equal_orders
from attacks.closed_form.equal_start.equal_pulled import follow_pulled
from attacks.closed_form.equal_start.equal_readings import with_scale
from attacks.closed_form.equal_start.equal_step import equal_step
from attacks.closed_form.equal_start.equal_unscaled import follow_unscaled
from attacks.closed_form.rows.row_readings import one_step
from attacks.closed_form.uploads.readings import Rows
from tests.attacks.closed_form.test_uploads import answers_of_item_rows as answers
from victims.transcript.manifest import Manifest

# The published start of Chai et al. 2021, all factors 0.01, items regularised, and nothing of it declared.


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


# Chai et al.'s published start, rows sent by item, steps made in another order that nobody sees.


ITEMS_EQUAL_ORDERS, K_EQUAL_ORDERS, SIZES = 30, 5, [12, 12, 11, 10, 9, 8, 6, 4, 3, 1]


def recorded(
    path, program: Program, levels: np.ndarray, grid: np.ndarray, sizes: list[int] = SIZES
) -> list[dict[int, float]]:
    """One round; ratings by item of each client."""
    rng = np.random.default_rng(1)
    n_items = max(ITEMS_EQUAL_ORDERS, *sizes)
    q = np.full((n_items, K_EQUAL_ORDERS), 0.01, program.dtype)
    rated = []
    with fl.Recorder(path, rating_levels=grid, n_items=n_items) as recorder:
        recorder.broadcast(0, q)
        for user, n in enumerate(sizes):
            items, stars = rng.permutation(n_items)[:n], rng.choice(levels, n)
            rows, _ = program.rows(np.full(K_EQUAL_ORDERS, 0.01, program.dtype), q[items], stars)
            order = np.argsort(items)
            recorder.upload(0, user, rows[order], items[order])
            rated.append(dict(zip(items.tolist(), stars.tolist(), strict=True)))
    return rated


def scored(
    path, program: Program, levels: np.ndarray, grid: np.ndarray, sizes: list[int] = SIZES
) -> tuple[int, int]:
    """Answers, and how many are right, of clients that use some levels of a grid."""
    rated = recorded(path, program, levels, grid, sizes)
    found = fl.attack(path, "undeclared")
    right = [
        abs(value - rated[user].get(item, -9)) < 0.1
        for part in found.columns()
        for user, item, value in zip(part["user"], part["index"], part["value"], strict=True)
        if user not in found.abstained
    ]
    return len(right), sum(right)


@pytest.mark.parametrize(
    ("program", "levels"),
    [
        pytest.param(Program(after=True, mu=0.1), HALVES, marks=pytest.mark.thorough),
        (Program(dtype=np.float32), STARS),
    ],
    ids=[
        "half stars, strong pull",
        "single precision",
    ],
)
def test_rows_are_put_in_order(tmp_path, program: Program, levels: np.ndarray):
    """Nobody was answered before."""
    answered, right = scored(tmp_path / "t", program, levels, levels)
    assert right == answered >= 0.9 * sum(SIZES)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("levels", "after"),
    [
        (np.array([1.0, 2.0]), False),
    ],
    ids=[
        "two levels-before the step",
    ],
)
def test_long_lists_in_single_precision(tmp_path, levels: np.ndarray, after: bool):
    """Few clients start with three levels that others start with, and rounding lets two rows be the next."""
    sizes = [60, 55, 50, 45, 40, 30, 25, 25, 20, 20]
    answered, right = scored(
        tmp_path / "t", Program(mu=0.0, dtype=np.float32, after=after), levels, levels, sizes
    )
    assert right == answered >= 0.9 * sum(sizes)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "levels"),
    [
        (Program(batch=2), STARS),
        (Program(taken_off=1.0), STARS),
    ],
    ids=["minibatches", "ratings less one"],
)
def test_what_is_no_such_chain_has_no_wrong_answer(tmp_path, program: Program, levels: np.ndarray):
    answered, right = scored(tmp_path / "t", program, levels, STARS)
    assert right == answered


def test_ratings_less_one_none_of_them_one_are_differences(tmp_path):
    rated = recorded(tmp_path / "t", Program(taken_off=1.0), np.arange(2.0, 6.0), STARS)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert found.scope == Scope.DIFFERENCES
    off = [
        rated[user][item] - round(value)
        for part in found.columns()
        for user, item, value in zip(part["user"], part["index"], part["value"], strict=True)
    ]
    assert set(off) == {1}


def test_orders_are_those_of_the_steps():
    """From the numbers alone; rows of another rule have none."""
    rng = np.random.default_rng(0)
    h, g, order = np.full((9, 8), 0.02), np.zeros((9, 8)), np.argsort(rng.random((9, 8)), axis=1)
    for user in range(9):
        length = 0.02
        for k, stars in enumerate(rng.choice(STARS, 8)):
            error = stars - length * 0.02
            g[user, order[user, k]] = 0.3 * error * length
            length += 0.01 * error * 0.02
    every = np.ones((9, 8), bool)
    found = equal_orders(g, h, every, STARS, 2.0**-52)
    assert found is not None
    assert np.array_equal(np.argsort(found.sequence, axis=1), order)
    assert equal_orders(rng.normal(size=g.shape), h, every, STARS, 2.0**-52) is None


# Rows of equal factors with a scale that is known: what is no such row has no answer.


CLIENTS, RATINGS = 4, 60


def of_likes(seed: int, dtype: type, factors: int) -> tuple[Rows, np.ndarray]:
    """One step of clients whose likes, 1 or 2, go through a sigmoid as 0 or 1; predictions are near 0."""
    rng = np.random.default_rng(seed)
    likes = rng.integers(0, 2, (CLIENTS, RATINGS)).astype(float)
    v, u = rng.normal(0, 0.01, (CLIENTS, RATINGS, factors)), rng.normal(0, 0.01, (CLIENTS, 1, factors))
    product = (v * u).sum(axis=2) + rng.normal(0, 0.003, likes.shape)  # with a bias of each item
    sent = ((likes - 1 / (1 + np.exp(-product)))[..., None] * u / RATINGS).astype(dtype).astype(float)
    everyone = np.ones(likes.shape)
    order = np.tile(np.arange(RATINGS), (CLIENTS, 1))
    precision = float(np.finfo(dtype).eps)
    return Rows(sent, v, everyone, everyone > 0, np.ones(CLIENTS), precision, order), likes + 1


@pytest.mark.parametrize(("dtype", "factors"), [(np.float32, 1), (np.float32, 16), (np.float16, 1)])
def test_errors_that_shrink_to_nothing_are_no_ratings(dtype, factors):
    """With the lowest level taken off, numbers next to 0 are all on it: nothing tells them from any other."""
    manifest = Manifest.model_construct(rating_levels=(1.0, 2.0))
    with np.errstate(all="ignore"):
        for seed in range(3):
            rows, truth = of_likes(seed, dtype, factors)
            for after in (False, True):
                found = with_scale(one_step(rows), rows, manifest, 0.25, after=after)
                value = found.value[found.answered]
                assert (np.abs(value - truth[found.answered]) < 0.1).all()


# One step from Chai et al.'s published start, all factors equal: rows of as many sizes as there are levels.


def record(path, *, levels=STARS, factors=4, start=0.1, mean=False, dtype=np.float64, pull=0.0, less=0.0):
    """Clients who start as the items do and step once over all their ratings; nothing is declared."""
    rng = np.random.default_rng(1)
    v, ratings = np.full(factors, start), np.zeros((12, 60))
    with fl.Recorder(path, rating_levels=levels) as recorder:
        recorder.broadcast(0, np.tile(v, (60, 1)).astype(dtype))
        for user, own in enumerate(ratings):
            rated = rng.choice(60, rng.integers(1, 15), replace=False)
            own[rated] = rng.choice(levels, rated.size)
            error = own[rated] - less - v @ v - pull
            rows = -0.013 * error[:, None] * v / (rated.size if mean else 1)
            recorder.upload(0, user, rows.astype(dtype), rated)
    return ratings


@pytest.mark.thorough
@pytest.mark.parametrize(
    "how",
    [
        pytest.param({}, marks=pytest.mark.thorough),
        pytest.param({"factors": 10, "start": 0.01}, marks=pytest.mark.thorough),
        {"mean": True, "levels": HALVES},
        {"dtype": np.float32},
        {"pull": 0.05, "start": -0.1},
    ],
    ids=str,
)
def test_sizes_of_rows_are_ratings(tmp_path, how):
    """Before: nobody was answered, for ratings and their mirror image lie on the grid."""
    ratings = record(tmp_path / "t", **how)
    assert answers(fl.attack(tmp_path / "t", "undeclared"), ratings) == ((ratings > 0).sum(), 0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "how",
    [{"less": 3.0}, pytest.param({"dtype": np.float16}, marks=pytest.mark.thorough)],
    ids=str,
)
def test_ratings_less_a_number_and_rough_rows_are_left_open(tmp_path, how):
    ratings = record(tmp_path / "t", **how)
    assert answers(fl.attack(tmp_path / "t", "undeclared"), ratings) == (0, 0)


def test_two_sizes_of_rough_rows_are_no_evidence():
    rng = np.random.default_rng(0)
    ratings = np.array([[1.0, 4.0, 4.0, 1.0]])
    rows = 2.0 * (ratings - 0.04)
    there = ratings > 0
    assert np.array_equal(equal_step(rows, there, 0.04, STARS, 1e-15), ratings)
    assert equal_step(rows, there, 0.04, STARS, 1e-4) is None
    assert equal_step(rows, ~there, 0.04, STARS, 1e-15) is None
    assert equal_step(rng.normal(size=(1, 4)), there, 0.04, STARS, 1e-15) is None


# The published start and order of Chai et al. 2021, all factors 0.01, and nothing declared.


USERS_EQUAL_UNSCALED, ITEMS_EQUAL_UNSCALED, K_EQUAL_UNSCALED = 14, 40, 5


def recorded_of_equal_unscaled(
    path, dtype, scale: float, mu: float, after: bool, half: bool = False, **told
) -> None:
    """The second round of a program whose factors all start at 0.01."""
    rng = np.random.default_rng(3)
    levels = np.arange(0.5, 5.1, 0.5) if half else np.arange(1.0, 6.0)
    q, p = (
        np.full((ITEMS_EQUAL_UNSCALED, K_EQUAL_UNSCALED), 0.01, dtype),
        np.full((USERS_EQUAL_UNSCALED, K_EQUAL_UNSCALED), 0.01, dtype),
    )
    rated = [rng.permutation(ITEMS_EQUAL_UNSCALED)[:18] for _ in range(USERS_EQUAL_UNSCALED)]
    stars = [rng.choice(levels, 18) for _ in range(USERS_EQUAL_UNSCALED)]
    with fl.Recorder(path, rating_levels=levels, **told) as recorder:
        for round_ in range(2):
            sums = np.zeros_like(q)
            if round_:
                recorder.broadcast(round_, q)
            for user in range(USERS_EQUAL_UNSCALED):
                rows = np.zeros((18, K_EQUAL_UNSCALED), dtype)
                for k, (item, rating) in enumerate(zip(rated[user], stars[user], strict=True)):
                    error, before = dtype(rating) - p[user] @ q[item], p[user].copy()
                    p[user] += dtype(2e-3) * (error * q[item] - dtype(1e-4) * before)
                    rows[k] = -2 * error * (p[user] if after else before) + dtype(2 * mu) * q[item]
                sums[rated[user]] += rows
                if round_:
                    recorder.upload(round_, user, dtype(scale) * rows, rated[user])
                    recorder.truth(user, rated[user], stars[user])
            q = q - dtype(1e-3) * sums


def read_of_equal_unscaled(path) -> tuple[int, int]:
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
    recorded_of_equal_unscaled(tmp_path / "run", dtype, scale, mu, after)
    answered, right = read_of_equal_unscaled(tmp_path / "run")
    assert answered == right == USERS_EQUAL_UNSCALED


def test_wrong_scale_is_not_believed(tmp_path):
    """Near four times the true one: halves of ratings would meet a grid of half stars."""
    told = {"rule": {"rule": "sgd", "order": "per-rating"}, "constants": {"upload_scale": -7.4}}
    recorded_of_equal_unscaled(tmp_path / "run", np.float64, 1.0, 1e-4, True, half=True, **told)
    answered, right = read_of_equal_unscaled(tmp_path / "run")
    assert answered == right >= USERS_EQUAL_UNSCALED - 1


@pytest.mark.thorough
def test_noise_is_not_answered(tmp_path):
    rng = np.random.default_rng(1)
    with fl.Recorder(tmp_path / "run", rating_levels=np.arange(1.0, 6.0)) as recorder:
        recorder.broadcast(0, np.full((ITEMS_EQUAL_UNSCALED, K_EQUAL_UNSCALED), 0.01))
        for user in range(USERS_EQUAL_UNSCALED):
            rows = rng.uniform(0.01, 0.05, (18, 1)) * np.ones(K_EQUAL_UNSCALED)
            recorder.upload(0, user, rows, rng.permutation(ITEMS_EQUAL_UNSCALED)[:18])
    assert len(fl.attack(tmp_path / "run", "undeclared").abstained) == USERS_EQUAL_UNSCALED


@pytest.mark.thorough
def test_clipped_errors_name_no_level(tmp_path):
    """Clipped at 2.5, twice as large: ratings 3, 4 and 5 were answered as 5, 1 and 2 as 2 and 4."""
    rng = np.random.default_rng(1)
    q, stars = (
        np.full((ITEMS_EQUAL_UNSCALED, K_EQUAL_UNSCALED), 0.01),
        [rng.choice(np.arange(1.0, 6.0), 18) for _ in range(6)],
    )
    for name, bound in (("clipped", 2.5), ("whole", np.inf)):
        with fl.Recorder(tmp_path / name, rating_levels=np.arange(1.0, 6.0)) as recorder:
            recorder.broadcast(0, q)
            for user, ratings in enumerate(stars):
                p, rows, items = np.full(K_EQUAL_UNSCALED, 0.01), [], np.arange(18)
                for item, rating in zip(items, ratings, strict=True):
                    error = min(rating - p @ q[item], bound)
                    rows.append(error * p - 1e-4 * q[item])
                    p = p + 5e-3 * (error * q[item] - 1e-4 * p)
                recorder.upload(0, user, np.array(rows), items)
                recorder.truth(user, items, ratings)
    assert len(fl.attack(tmp_path / "clipped", "undeclared").abstained) == 6
    assert read_of_equal_unscaled(tmp_path / "whole") == (6, 6)


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
