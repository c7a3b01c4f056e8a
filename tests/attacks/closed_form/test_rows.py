"""Rows with weights, scales and shifts that nobody declared."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from attacks.closed_form import undeclared
from attacks.closed_form.rows.unrated_rows import read_unrated
from attacks.closed_form.rows.whole_minibatches import whole_minibatch_views
from tests.oracles.aligned import item_answers

# Programs after Hu, Koren and Volinsky: ratings weigh errors, and every rated item has the target 1.


STARS, HALVES = np.arange(1.0, 6.0), np.arange(0.5, 5.1, 0.5)
USERS, ITEMS, K = 8, 60, 4


def recorded(
    path, alpha: float, levels: np.ndarray, dtype=np.float64, unrated=True, power=1.0, grid=None, weights=None
):
    """One round of clients that solve for their factors; their ratings, 0 where unrated."""
    rng = np.random.default_rng(3)
    q = rng.normal(0, 0.4, (ITEMS, K)).astype(dtype)
    table = np.where(rng.random((USERS, ITEMS)) < 0.3, rng.choice(levels, (USERS, ITEMS)), 0)
    with fl.Recorder(path, rating_levels=levels if grid is None else grid) as recorder:
        recorder.broadcast(0, q)
        for user, ratings in enumerate(table):
            weight, liked = 1 + alpha * ratings**power, ratings > 0
            if weights is not None:
                weight = np.where(liked, np.array(weights)[ratings.astype(int) - 1], 1.0)
            p = np.linalg.solve(q.T @ (weight[:, None] * q) + np.eye(K), q.T @ (weight * liked))
            rows = (-2 * (weight * (liked - q @ p))[:, None] * p).astype(dtype)
            sent = np.arange(ITEMS) if unrated else np.flatnonzero(liked)
            recorder.upload(0, user, rows[sent], sent)
    return table


def answers(path, table: np.ndarray) -> tuple[int, int]:
    """Ratings that are answered, and answers that are wrong."""
    found = fl.attack(path, "undeclared")
    many = wrong = 0
    for user, _, item, value, _ in found.rows():
        many += int((value > 0.25).sum())
        wrong += int((np.abs(value - table[user, item]) > 0.1).sum())
    return many, wrong


@pytest.mark.parametrize("unrated", [True, False])
@pytest.mark.parametrize(
    ("alpha", "levels", "dtype"),
    [(40.0, STARS, np.float64), (1.0, HALVES, np.float64), (0.5, STARS, np.float32)],
)
def test_confidences_are_read(tmp_path, alpha, levels, dtype, unrated):
    """Nobody was answered, or the list alone."""
    table = recorded(tmp_path / "t", alpha, levels, dtype, unrated)
    many, wrong = answers(tmp_path / "t", table)
    assert wrong == 0
    assert many >= 0.8 * (table > 0).sum()


@pytest.mark.thorough
@pytest.mark.parametrize("power", [2.0, 0.5])
def test_other_weights_have_no_wrong_answer(tmp_path, power):
    table = recorded(tmp_path / "t", 1.0, STARS, power=power)
    assert answers(tmp_path / "t", table)[1] == 0


def test_without_both_ends_of_the_grid_it_is_open(tmp_path):
    """r + 1 with another alpha has the same weights up to a factor."""
    table = recorded(tmp_path / "t", 0.5, np.arange(1.0, 5.0), grid=STARS)
    assert answers(tmp_path / "t", table) == (0, 0)


def test_few_weights_are_of_some_alpha_by_accident(tmp_path):
    """1, 2 and 3 are the weights of levels 1, 3 and 5 if alpha is 1."""
    table = recorded(tmp_path / "t", 1.0, STARS[:3], grid=STARS, weights=(1.0, 2.0, 3.0))
    assert answers(tmp_path / "t", table)[1] == 0


def test_rows_that_predict_the_same_of_all_items_are_not_answered(tmp_path):
    """(c - r) u: any levels are weights of some alpha; all answers had been upside down."""
    rng = np.random.default_rng(8)
    q, levels = rng.normal(0, 0.6, (60, 5)), np.arange(1.0, 6.0)
    with fl.Recorder(tmp_path / "t", rating_levels=levels) as recorder:
        recorder.broadcast(0, q)
        for user in range(4):
            items = rng.choice(60, 14, replace=False)
            ratings = np.r_[levels, rng.choice(levels, 9)]
            recorder.upload(0, user, (12 - ratings)[:, None] * rng.normal(0, 0.6, 5), items)
    assert len(fl.attack(tmp_path / "t", "undeclared").abstained) == 4


@pytest.mark.thorough
def test_where_clients_tell_several_alphas_only_they_are_read(tmp_path):
    """1 + r is twice 1 + (r - 1) / 2: with the others' alpha ratings were read a level too low."""
    rng = np.random.default_rng(3)
    q, table = rng.normal(0, 0.4, (ITEMS, K)), np.zeros((16, ITEMS))
    with fl.Recorder(tmp_path / "t", rating_levels=STARS) as recorder:
        recorder.broadcast(0, q)
        for user, own in enumerate(table):
            items = rng.choice(ITEMS, 18, replace=False)
            own[items] = rng.choice(STARS if user % 4 < 2 else STARS[1:], items.size)
            weight, liked = 1 + (0.5, 1.0)[user % 2] * own, own > 0
            p = np.linalg.solve(q.T @ (weight[:, None] * q) + np.eye(K), q.T @ (weight * liked))
            recorder.upload(0, user, (-2 * (weight * (liked - q @ p))[:, None] * p)[items], items)
    many, wrong = answers(tmp_path / "t", table)
    assert wrong == 0
    assert many >= 0.3 * (table > 0).sum()


# Numbers taken off all ratings: who seems to be on the grid is contradicted by the others.


LEVELS, ITEMS_OFF_GRID, K_OFF_GRID = np.arange(1.0, 6.0), 60, 5


def answers_of_off_grid(
    path, learned, seed, *, levels=2, order="batch", mean=False, pull=0.0, dtype=np.float64, users=30
):
    """Answers of undeclared about one round of clients that use so many levels, wrong ones, and ratings."""
    rng = np.random.default_rng(seed)
    q, p = (
        rng.normal(0, 0.4, (ITEMS_OFF_GRID, K_OFF_GRID)).astype(dtype).astype(float),
        rng.normal(0, 0.4, (users, K_OFF_GRID)),
    )
    table = np.zeros((users, ITEMS_OFF_GRID))
    with fl.Recorder(path, rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, q.astype(dtype))
        for user in range(users):
            items = rng.permutation(ITEMS_OFF_GRID)[: rng.integers(6, 20)]
            table[user, items] = rng.choice(rng.permutation(LEVELS)[:levels], items.size)
            rows, own = np.zeros((items.size, K_OFF_GRID)), p[user].copy()
            for place, item in enumerate(items):
                error = learned(table[user, item]) - q[item] @ own
                rows[place] = error * own
                own += 0.05 * error * q[item] * (order == "per-rating")
            rows = -2 * rows / (items.size if mean else 1) + pull * q[items]
            recorder.upload(0, user, rows.astype(dtype), items)
    found = fl.attack(path, "undeclared")
    user, item, value = item_answers(found, table, np.array(LEVELS))
    wrong = np.abs(value - table[user, item]) > 0.1
    return wrong.size, int(wrong.sum()), int((table > 0).sum())


WAYS = {
    "plain": {},
    "three levels": {"levels": 3},
    "mean, single precision": {"mean": True, "dtype": np.float32},
    "a step each": {"order": "per-rating"},
    "pull": {"pull": 0.1},
}


@pytest.mark.parametrize(
    ("learned", "way"),
    [
        (lambda stars: stars + 1, {"order": "per-rating"}),
        pytest.param(
            lambda stars: 2 * (stars - 2.5), {"levels": 3, "dtype": np.float16}, marks=pytest.mark.thorough
        ),
        pytest.param(lambda stars: 2 * (stars - 2.5), {"pull": 0.1}, marks=pytest.mark.thorough),
    ],
    ids=["r + 1, a step each", "2 (r - 2.5), three levels in half precision", "2 (r - 2.5), pull"],
)
def test_shifts_that_nobody_told_are_answered_for_nobody(tmp_path, learned, way):
    """Two levels less a number are on a multiple of the grid for many; most clients are not."""
    assert answers_of_off_grid(tmp_path / "t", learned, 0, **way)[1] == 0


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_ratings_as_they_are_are_read_as_before(tmp_path, way):
    """Of two levels some are a multiple of others, which stays open without a scale."""
    told, wrong, there = answers_of_off_grid(tmp_path / "t", lambda stars: stars, 0, **{"levels": 3} | way)
    assert not wrong
    assert told >= 0.85 * there


def test_rows_of_unrated_items_are_on_no_grid_and_contradict_nobody(tmp_path):
    """Clients with one rating and rows of all items are left open: their zeros are on no grid."""
    rng = np.random.default_rng(3)
    q, p = rng.normal(0, 0.4, (ITEMS_OFF_GRID, K_OFF_GRID)), rng.normal(0, 0.4, (8, K_OFF_GRID))
    table = np.zeros((8, ITEMS_OFF_GRID))
    with fl.Recorder(tmp_path / "t", rating_levels=LEVELS) as recorder:
        recorder.broadcast(0, q)
        for user, own in enumerate(p):
            items = rng.permutation(ITEMS_OFF_GRID)[: 1 if user % 2 else 10]
            table[user, items] = rng.choice(LEVELS, items.size)
            weight = np.where(table[user] > 0, 1.0, 0.3)
            recorder.upload(0, user, -((weight * (table[user] - q @ own)) / ITEMS_OFF_GRID)[:, None] * own)
    found = fl.attack(tmp_path / "t", "undeclared")
    told = np.concatenate([value - table[user, index] for user, _, index, value, _ in found.rows()])
    assert np.abs(told).max() < 0.1
    assert told.size >= 4 * ITEMS_OFF_GRID
    assert len(found.abstained) <= 4


# Rows that are regularised and clipped one by one: their pull tells how much of each is left.


LEVELS_ROW_SCALES, ITEMS_ROW_SCALES, K_ROW_SCALES, USERS_ROW_SCALES = np.arange(1.0, 6.0), 50, 6, 10


def recorded_of_row_scales(
    path,
    seed,
    *,
    clip=0.6,
    mean=False,
    dtype=np.float64,
    pull=0.05,
    learned=lambda stars: stars,
    levels=LEVELS_ROW_SCALES,
):
    """Record one round of clients whose rows are clipped to a share of their median length."""
    rng = np.random.default_rng(seed)
    q = rng.normal(0, 0.4, (ITEMS_ROW_SCALES, K_ROW_SCALES)).astype(dtype).astype(float)
    p, table, sent = (
        rng.normal(0, 0.6, (USERS_ROW_SCALES, K_ROW_SCALES)),
        np.zeros((USERS_ROW_SCALES, ITEMS_ROW_SCALES)),
        [],
    )
    for user, own in enumerate(p):
        items = rng.permutation(ITEMS_ROW_SCALES)[: rng.integers(8, 25) if user else 4]
        table[user, items] = rng.choice(levels, items.size)
        error = learned(table[user, items]) - q[items] @ own
        sent.append((items, (pull * q[items] - error[:, None] * own) / (items.size if mean else 1)))
    bound = clip * np.median(np.concatenate([np.linalg.norm(rows, axis=1) for _, rows in sent]))
    with fl.Recorder(path, rating_levels=levels) as recorder:
        recorder.broadcast(0, q.astype(dtype))
        for user, (items, rows) in enumerate(sent):
            size = np.linalg.norm(rows, axis=1, keepdims=True)
            recorder.upload(0, user, (rows * np.minimum(1, bound / size)).astype(dtype), items)
    return table


@pytest.mark.parametrize(
    ("clip", "dtype", "mean"),
    [(0.4, np.float32, True), (1.0, np.float64, True), (1.0, np.float32, False)],
    ids=["nearly all rows, single, mean", "half of the rows, double, mean", "half of the rows, single, sum"],
)
def test_every_client_is_read_the_one_with_four_ratings_too(tmp_path, clip, dtype, mean):
    """The pull of few rows has the scale that the others' pulls tell."""
    table = recorded_of_row_scales(tmp_path / "t", 1, clip=clip, dtype=dtype, mean=mean)
    found = fl.attack(tmp_path / "t", "undeclared")
    off = np.concatenate([np.abs(value - table[user, index]) for user, _, index, value, _ in found.rows()])
    assert off.max() < 0.1
    assert off.size == (table > 0).sum()


def test_ratings_less_a_number_are_read_where_the_grid_has_no_mirror_image(tmp_path):
    """A third number of each client, as of rows that are not clipped."""
    levels = np.array([1.0, 2, 3, 5, 10])
    table = recorded_of_row_scales(tmp_path / "t", 4, learned=lambda stars: stars - 3.7, levels=levels)
    found = fl.attack(tmp_path / "t", "undeclared")
    off = np.concatenate([np.abs(value - table[user, index]) for user, _, index, value, _ in found.rows()])
    assert off.max() < 0.1
    assert off.size >= 0.9 * (table > 0).sum()


@pytest.mark.thorough
@pytest.mark.parametrize("pull", [0.0, 1e-17], ids=["none", "below the digits"])
def test_without_a_pull_clipped_rows_are_no_pulled_ones(tmp_path, pull):
    """Their planes hold the client's direction whatever it is."""
    table = recorded_of_row_scales(tmp_path / "t", 2, pull=pull)
    found = fl.attack(tmp_path / "t", "undeclared")
    for user, _, index, value, _ in found.rows():
        assert (np.abs(value - table[user, index]) < 0.1).all()
    assert np.nan_to_num(found.diagnostics["pull"]).max() == 0


@pytest.mark.parametrize(
    "learned",
    [
        lambda stars: 2 * (stars - 2.5),
    ],
    ids=[
        "2 (r - 2.5)",
    ],
)
def test_other_numbers_than_ratings_are_answered_for_nobody(tmp_path, learned):
    """No multiple of these is on the grid."""
    table = recorded_of_row_scales(tmp_path / "t", 3, learned=learned)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert all((np.abs(value - table[user, index]) < 0.1).all() for user, _, index, value, _ in found.rows())


@pytest.mark.thorough
def test_rows_that_are_exact_and_beside_the_grid_by_more_are_no_ratings(tmp_path):
    """An item with a pull of its own, of which a rating comes out that is off by a hundredth of a star."""
    rng = np.random.default_rng(5)
    q, own, stars = (
        rng.normal(0, 0.4, (12, K_ROW_SCALES)),
        rng.normal(0, 0.6, K_ROW_SCALES),
        np.resize(LEVELS_ROW_SCALES, 12),
    )
    predicted, pull = q @ own, np.full(12, 0.05)
    pull[0] *= (stars[0] - predicted[0]) / (stars[0] + 2.01 - predicted[0])
    rows = pull[:, None] * q - (stars - predicted)[:, None] * own
    rows *= np.minimum(1, 0.8 / np.linalg.norm(rows, axis=1, keepdims=True))
    with fl.Recorder(tmp_path / "t", rating_levels=LEVELS_ROW_SCALES) as recorder:
        recorder.broadcast(0, q)
        recorder.upload(0, 0, rows, np.arange(12))
    assert list(fl.attack(tmp_path / "t", "undeclared").abstained) == [0]


@pytest.mark.parametrize(
    "clip",
    [
        0.6,
    ],
    ids=[
        "most rows",
    ],
)
def test_exact_rows_of_items_with_pulls_of_their_own_are_off_the_grid(tmp_path, clip):
    """3.0 stars over one, two and three times a pull are near 3, 1.5 and 1, which are on a grid of halves."""
    rng = np.random.default_rng(23)
    q, times = (
        rng.normal(0, 0.1, (ITEMS_ROW_SCALES, K_ROW_SCALES)).astype(np.float32),
        rng.integers(1, 4, ITEMS_ROW_SCALES),
    )
    own, items = rng.normal(0, 0.4, K_ROW_SCALES), rng.permutation(ITEMS_ROW_SCALES)[:12]
    rows = (3.0 - q[items] @ own)[:, None] * own - 0.1 * times[items, None] * q[items]
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    with fl.Recorder(tmp_path / "t", rating_levels=np.arange(1, 11) / 2) as recorder:
        recorder.broadcast(0, q)
        sent = rows * np.minimum(1, clip * np.median(size) / size)
        recorder.upload(0, 0, sent.astype(np.float32), items)
    assert list(fl.attack(tmp_path / "t", "undeclared").abstained) == [0]


# Rows of unrated items, where the client's factor moves from row to row: plain clients written here.


ALPHA, RATE_UNRATED_ROWS, RIDGE, LEVELS_UNRATED_ROWS = 0.1, 2e-3, 1.0, np.arange(1, 11) / 2
USERS_UNRATED_ROWS, ITEMS_UNRATED_ROWS, K_UNRATED_ROWS = 8, 120, 5


def clients(size, *, order=True, dtype=np.float64, seed=0):
    """Rows of clients that step after every ``size`` of all items, in an order of their own."""
    rng = np.random.default_rng(seed)
    v = rng.normal(0, 0.5, (ITEMS_UNRATED_ROWS, K_UNRATED_ROWS)).astype(dtype)
    ratings = np.where(
        rng.random((USERS_UNRATED_ROWS, ITEMS_UNRATED_ROWS)) < 0.2,
        rng.choice(LEVELS_UNRATED_ROWS, (USERS_UNRATED_ROWS, ITEMS_UNRATED_ROWS)),
        0,
    )
    rows = np.zeros((USERS_UNRATED_ROWS, ITEMS_UNRATED_ROWS, K_UNRATED_ROWS))
    for client in range(USERS_UNRATED_ROWS):
        u = rng.normal(0, 0.4, K_UNRATED_ROWS)
        whole = rng.permutation(ITEMS_UNRATED_ROWS) if order else np.arange(ITEMS_UNRATED_ROWS)
        for some in np.split(whole, range(size, ITEMS_UNRATED_ROWS, size)):
            weight = np.where(ratings[client, some] > 0, 1, ALPHA)
            error = weight * (ratings[client, some] - v[some] @ u)
            rows[client, some] = error[:, None] * u
            u = (1 - 2 * RATE_UNRATED_ROWS * RIDGE) * u + 2 * RATE_UNRATED_ROWS * error @ v[some]
    return rows.astype(dtype), np.broadcast_to(v, rows.shape), ratings


def read(rows, factors, alpha=ALPHA):
    there, precision = np.ones(rows.shape[:2], bool), float(np.finfo(rows.dtype).eps)
    return read_unrated(
        rows.astype(float),
        factors.astype(float),
        there,
        LEVELS_UNRATED_ROWS,
        alpha,
        0.25,
        precision=precision,
    )


@pytest.mark.parametrize(
    ("size", "dtype"), [(1, np.float64), (10, np.float64), (ITEMS_UNRATED_ROWS, np.float64), (1, np.float32)]
)
def test_ratings_and_lists_of_moving_clients(size, dtype):
    """No order, rate or ridge told: nearly every row of every client, and none wrongly."""
    rows, factors, ratings = clients(size, dtype=dtype)
    found = read(rows, factors)
    assert (found.misfit <= found.allowed).all()
    told = np.isfinite(found.value)
    assert told.mean() >= 0.95
    assert (np.round(2 * found.value) / 2 == ratings)[told].all()


@pytest.mark.parametrize("wrong", ["alpha", "scale", "shuffled", "noise"])
def test_what_is_not_so_is_not_answered(wrong):
    rows, factors, _ = clients(1)
    rng = np.random.default_rng(1)
    if wrong == "scale":
        rows = rows * 1.3
    elif wrong == "shuffled":
        rows = rng.permutation(rows, axis=1)
    elif wrong == "noise":
        rows = rows + 0.1 * np.abs(rows).mean() * rng.normal(size=rows.shape)
    found = read(rows, factors, ALPHA * (1.3 if wrong == "alpha" else 1))
    assert not (found.misfit <= found.allowed).any()


def test_nobody_and_next_to_nothing():
    """Clients without rows, with few, and with rows of zeros."""
    rows, factors, _ = clients(1)
    rows[0] = 0
    rows[1, 5:] = 0
    found = read(rows, factors)
    assert np.isnan(found.misfit[:2]).all()
    assert read(rows[:0], factors[:0]).misfit.size == 0


# A program that sends a row for every item, unrated ones as zeros of some weight; nothing declared.


STARS_WEIGHTED_ZEROS = np.arange(1.0, 6.0)
USERS_WEIGHTED_ZEROS, ITEMS_WEIGHTED_ZEROS, K_WEIGHTED_ZEROS = 12, 60, 4


def recorded_of_weighted_zeros(
    path, alpha: float, scale: float, dtype=np.float64, noise: float = 0.0, **told
) -> np.ndarray:
    """One round of clients that solve for their factor; their ratings, 0 where unrated."""
    rng = np.random.default_rng(1)
    q = rng.normal(0, 0.4, (ITEMS_WEIGHTED_ZEROS, K_WEIGHTED_ZEROS)).astype(dtype)
    table = np.where(
        rng.random((USERS_WEIGHTED_ZEROS, ITEMS_WEIGHTED_ZEROS)) < 0.3,
        rng.choice(STARS_WEIGHTED_ZEROS, (USERS_WEIGHTED_ZEROS, ITEMS_WEIGHTED_ZEROS)),
        0,
    )
    with fl.Recorder(path, rating_levels=STARS_WEIGHTED_ZEROS, **told) as recorder:
        recorder.broadcast(0, q)
        for user, ratings in enumerate(table):
            weight = np.where(ratings > 0, 1, alpha)
            p = np.linalg.solve(
                q.T @ (weight[:, None] * q) + np.eye(K_WEIGHTED_ZEROS), q.T @ (weight * ratings)
            )
            rows = scale * (weight * (ratings - q @ p))[:, None] * p
            order = rng.permutation(ITEMS_WEIGHTED_ZEROS)
            recorder.upload(0, user, (rows + rng.normal(0, noise, rows.shape))[order].astype(dtype), order)
            recorder.truth(user, np.flatnonzero(ratings), ratings[ratings > 0])
    return table


@pytest.mark.parametrize(
    ("alpha", "scale", "dtype"), [(0.1, -2.0, np.float64), (1.0, 0.3, np.float64), (0.05, -1.0, np.float32)]
)
def test_lists_and_ratings_are_read(tmp_path, alpha, scale, dtype):
    """No weight, no scale: unrated rows share a line, and the others meet the grid."""
    table = recorded_of_weighted_zeros(tmp_path / "run", alpha, scale, dtype)
    found = fl.attack(tmp_path / "run", "undeclared")
    assert not found.abstained
    answers = 0
    for user, _, index, value, _ in found.rows():
        np.testing.assert_allclose(value, table[user, index], atol=0.05)
        answers += value.size
    assert answers >= 0.98 * USERS_WEIGHTED_ZEROS * ITEMS_WEIGHTED_ZEROS


def test_lists_and_ratings_are_a_leak_and_rows_for_all_items_none(tmp_path):
    recorded_of_weighted_zeros(tmp_path / "run", 0.1, -2.0)
    rows = fl.audit_recording(tmp_path / "run", attacks=["undeclared", "rated-set"])
    read = rows[rows["attack"] == "undeclared"].set_index("metric")
    assert read.loc["rated_set_f1", "verdict"] == read.loc["rated_rating_accuracy", "verdict"] == "LEAK"
    assert set(rows[rows["attack"] == "rated-set"]["verdict"]) == {"NOT TESTED"}


@pytest.mark.thorough
def test_noise_is_no_line(tmp_path):
    recorded_of_weighted_zeros(tmp_path / "run", 0.1, -2.0, noise=0.5)
    assert len(fl.attack(tmp_path / "run", "undeclared").abstained) == USERS_WEIGHTED_ZEROS


@pytest.mark.parametrize("constants", [{}, {"alpha": 0.3, "upload_scale": 5.0}, {"alpha": 0.1}])
def test_rows_of_unrated_items_are_declared_and_their_weight_and_scale_are_not(tmp_path, constants):
    """Neither told, both wrong, one of them told: the line says it."""
    table = recorded_of_weighted_zeros(
        tmp_path / "run", 0.1, -2.0, weighting="include-unrated", constants=constants
    )
    found = fl.attack(tmp_path / "run", "undeclared")
    assert not found.abstained
    for user, _, index, value, _ in found.rows():
        np.testing.assert_allclose(value, table[user, index], atol=0.05)


@pytest.mark.parametrize(("weight", "dtype"), [(40.0, np.float64), (1.0, np.float32), (10.0, np.float16)])
def test_lists_of_implicit_feedback_are_read(tmp_path, weight, dtype):
    """All ratings are 1, of weight 1 + weight beside zeros of weight 1; somebody has a single one."""
    rng = np.random.default_rng(2)
    q = np.abs(rng.normal(0, 0.3, (ITEMS_WEIGHTED_ZEROS, 8))) + 0.1
    positive = (
        rng.random((USERS_WEIGHTED_ZEROS, ITEMS_WEIGHTED_ZEROS))
        < np.linspace(0.05, 0.5, USERS_WEIGHTED_ZEROS)[:, None]
    )
    positive[0] = np.arange(ITEMS_WEIGHTED_ZEROS) == 7
    with fl.Recorder(tmp_path / "run", rating_levels=[1.0], weighting="include-unrated") as recorder:
        recorder.broadcast(0, q)
        for user, here in enumerate(positive):
            c = 1 + weight * here
            p = np.linalg.solve(q.T @ (c[:, None] * q) + np.eye(8), q.T @ (c * here))
            recorder.upload(0, user, (-2 * (c * (here - q @ p))[:, None] * p).astype(dtype))
    found = fl.attack(tmp_path / "run", "undeclared")
    assert not found.abstained
    for user, _, index, value, _ in found.rows():
        np.testing.assert_array_equal(value > 0.5, positive[user, index])


@pytest.mark.thorough
def test_equal_predictions_are_no_line_of_unrated_items(tmp_path):
    """Rows of rated items alone, at item factors that are all alike: equal ratings make equal rows."""
    rng = np.random.default_rng(3)
    with fl.Recorder(tmp_path / "run", rating_levels=STARS_WEIGHTED_ZEROS) as recorder:
        recorder.broadcast(0, np.full((ITEMS_WEIGHTED_ZEROS, K_WEIGHTED_ZEROS), 0.01))
        for user in range(USERS_WEIGHTED_ZEROS):
            ratings = rng.choice(STARS_WEIGHTED_ZEROS, 20)
            recorder.upload(
                0, user, (ratings - 0.0004)[:, None] * np.full(K_WEIGHTED_ZEROS, 0.01), np.arange(20)
            )
    for _, _, _, value, _ in fl.attack(tmp_path / "run", "undeclared").rows():
        assert (value != 0).all()


def test_what_fits_the_declared_weighting_is_not_read_as_another(tmp_path, monkeypatch):
    """Nobody has the highest level. Before: of one recording 26 unrated items were answered with 5 stars."""
    monkeypatch.setattr(undeclared, "bias_column", None)  # which rows of rated items are asked about
    rng = np.random.default_rng(4)
    rule = {"rule": "semi-als", "order": "batch", "upload": "gradient", "loss": "squared", "link": "identity"}
    told = {"alpha": 1.0, "lambda_factors": 1e-3, "upload_scale": -1.0, "upload_regularization": 0.0}
    v = rng.normal(0, 0.3, (27, K_WEIGHTED_ZEROS)).astype(np.float32)
    table = np.zeros((15, 27))
    with fl.Recorder(
        tmp_path / "run",
        rating_levels=range(1, 11),
        weighting="include-unrated",
        rule=rule,
        constants=told,
    ) as recorder:
        recorder.broadcast(0, v)
        for user, ratings in enumerate(table):
            ratings[rng.choice(27, int(rng.integers(1, 5)), replace=False)] = rng.choice([2, 4, 6, 7, 8])
            p = np.linalg.solve(v.T @ v + 1e-3 * np.eye(K_WEIGHTED_ZEROS), v.T @ ratings)
            recorder.upload(0, user, (-(ratings - v @ p)[:, None] * p).astype(np.float32), np.arange(27))
    found = fl.attack(tmp_path / "run", "undeclared")
    assert found.scope == Scope.DIFFERENCES
    for users, _, items, value, _ in found.rows():
        assert ((value > 0.5) == (table[users, items] > 0)).all()


# TensorFlow Federated's reconstruction: a factor that stays, means over minibatches, a smaller last one.


def table_of(levels: np.ndarray, n_users: int = 16) -> np.ndarray:
    """Ratings (users, items), 0 where unrated: 3 to 40 of each client."""
    rng = np.random.default_rng(4)
    table = np.zeros((n_users, 60))
    for user, n in enumerate(np.linspace(3, 40, n_users).astype(int)):
        table[user, rng.choice(60, n, replace=False)] = rng.choice(levels, n)
    return table


def recorded_of_whole_minibatches(
    path, table, levels, *, size=5, sent=np.float64, less=0.0, mean=True, lengths=0.0
):
    """What items change by where clients' factors stay, in an order that nobody sees."""
    rng = np.random.default_rng(1)
    q = rng.normal(0, 0.3, (60, 6)).astype(sent)
    with fl.Recorder(path, rating_levels=levels) as recorder:
        recorder.broadcast(0, q)
        for user, ratings in enumerate(table):
            p = rng.normal(0, 0.5, 6)
            change = np.zeros((60, 6))
            items = rng.permutation(np.flatnonzero(ratings))
            for begin in range(0, items.size, size):
                some = items[begin : begin + size]
                error = ratings[some] - less - q[some].astype(float) @ p
                share = 0.3 / (some.size if mean else 1) * np.exp(rng.normal(0, lengths, some.size))
                change[some] = (share * error)[:, None] * p
            recorder.upload(0, user, change.astype(sent))
    return path


@pytest.mark.thorough
def test_ratings_of_a_smaller_last_minibatch_are_read(tmp_path):
    """Next to all; six whole rows are too few of somebody."""
    table = table_of(STARS)
    told, wrong = answers(recorded_of_whole_minibatches(tmp_path / "t", table, STARS), table)
    assert wrong == 0
    assert told >= 0.9 * (table > 0).sum()


@pytest.mark.parametrize(
    "program",
    [{"mean": False}, {"less": 0.3}, {"lengths": 0.1}, {"size": 100}],
    ids=["sums", "off the grid", "other weights", "whole means"],
)
def test_other_rows_are_left_as_they_are(tmp_path, program):
    path = recorded_of_whole_minibatches(tmp_path / "t", table_of(STARS), STARS, **program)
    assert not list(whole_minibatch_views(fl.open_transcript(path).view("server"), 0.0))


def sent_by(view: fl.View, n_users: int) -> np.ndarray:
    """What clients send, (users, items, 6)."""
    out = np.zeros((n_users, 60, 6))
    for batch in view.batches():
        one = batch.rounds[0]
        valid = np.broadcast_to(one.valid, one.gradients.shape[:2])
        user, index = (
            np.broadcast_to(part, valid.shape)[valid] for part in (batch.users[:, None], one.index)
        )
        out[user, index] = one.gradients[valid]
    return out


@pytest.mark.parametrize(
    ("levels", "size", "sent"),
    [(STARS, 5, np.float64), (HALVES, 8, np.float32), (STARS, 16, np.float32), (HALVES, 3, np.float64)],
)
def test_rows_of_the_last_minibatch_get_the_scale_of_the_others(tmp_path, levels, size, sent):
    table = table_of(levels)
    path = recorded_of_whole_minibatches(tmp_path / "t", table, levels, size=size, sent=sent)
    (view,) = whole_minibatch_views(fl.open_transcript(path).view("server"), 0.0)
    sums = fl.open_transcript(recorded_of_whole_minibatches(tmp_path / "u", table, levels, mean=False)).view(
        "server"
    )
    plenty = (table > 0).sum(axis=1) >= size + 6  # fewer whole rows may tell nothing of the others
    ours, theirs = (sent_by(one, len(table))[plenty] for one in (view, sums))
    digits = 1e-6 if sent is np.float32 else 1e-13
    np.testing.assert_allclose(size * ours, theirs, rtol=1e-3 if sent is np.float32 else 1e-9, atol=digits)
