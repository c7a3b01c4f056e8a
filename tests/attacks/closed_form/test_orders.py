"""Minibatches and passes in orders that nobody sees."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.orders.hidden_orders import read_hidden_orders
from attacks.closed_form.orders.last_minibatch import ONE, Batches, multiples_of
from attacks.closed_form.orders.mixed_multiples import best_mixed, mixed_pairs, rough_pairs, values_of
from attacks.closed_form.orders.order_answers import Told, answers_of, lack_biases
from attacks.closed_form.orders.order_pairs import FirstOrder
from attacks.closed_form.orders.second_order import second_order
from attacks.closed_form.orders.whole_minibatches import whole_minibatch_views
from attacks.closed_form.uploads.readings import Rows
from factorleak import plugins
from tests.attacks.closed_form.test_centres import HALVES, STARS, answers
from tests.attacks.closed_form.test_rows import manifest
from tests.oracles.shuffled_passes import ShuffledPasses, made_up, recorded

# Several passes over the ratings in orders that nobody sees, read by ``undeclared``.


USERS = 12


def score(found: fl.Reconstruction, table: np.ndarray) -> tuple[int, int]:
    """Answers, and how many of them are right."""
    if not found.blocks:
        return 0, 0
    columns = list(found.columns())
    user, item, value = (np.concatenate([c[name] for c in columns]) for name in ("user", "index", "value"))
    return user.size, int((np.abs(value - table[user, item]) < 0.25).sum())


@pytest.mark.parametrize(
    ("client", "least"),
    [
        pytest.param(ShuffledPasses(0.01, passes=5), 0.7, marks=pytest.mark.thorough),
        (ShuffledPasses(0.01, batch=8), 0.8),
        pytest.param(ShuffledPasses(0.05, batch=32, mean=True), 0.5, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_short_steps_in_any_order(tmp_path, client, least):
    """Ninety ratings each, of a model in a late round. Before: nobody was answered but under means.

    A few of the largest errors may be clipped ones; a rating at the end of the grid is right all the same.
    """
    table = recorded(tmp_path / "t", client, made_up(USERS, 300, factors=8, seed=1), range(USERS), 2)
    answers, right = score(fl.attack(tmp_path / "t", "undeclared"), table)
    assert right == answers >= least * (table > 0).sum()


@pytest.mark.thorough
def test_shuffled_rows_are_not_read(tmp_path):
    data = made_up(4, 300, factors=8, seed=1)
    recorded(tmp_path / "t", ShuffledPasses(0.005), data, range(4), 2)
    view = fl.open_transcript(tmp_path / "t").view("server").shuffled(3)
    assert len(fl.attack(view, "undeclared").abstained) == 4


def changes_of(copies: np.ndarray, factors: np.ndarray, there: np.ndarray) -> Rows:
    """What clients send of copies that moved."""
    sent = np.where(there[..., None], copies - factors, 0)
    return Rows(sent, factors, np.zeros(there.shape), there, np.full(len(there), np.nan), 2.0**-52, None)


def half_stars() -> plugins.Manifest:
    return manifest().model_copy(update={"rating_levels": [0.5 * n for n in range(1, 11)]})


@pytest.mark.parametrize(
    ("used", "least"),
    [
        (np.arange(1, 11) / 2, 0.4),
    ],
)
def test_ratings_of_which_half_are_on_the_grid_stay_open(used, least):
    """Whole stars of a grid of halves: half of them had been answered, of 4 clients of a random program.

    Every second level: 0.2, 0.6 and 1 were answered for 0.6, 0.8 and 1 behind a sigmoid, 29 of 64 wrongly.
    """
    rng, users, n, k = np.random.default_rng(1), 24, 14, 5
    factors, ratings = rng.normal(0, 0.3, (users, n, k)), rng.choice(used, (users, n))
    copies = factors.copy()
    for w, r in zip(copies, ratings, strict=True):
        u = rng.normal(0, 0.3, k)
        for j in np.concatenate([rng.permutation(n) for _ in range(3)]):
            error = r[j] - w[j] @ u
            w[j], u = w[j] + 0.005 * error * u, u + 0.005 * error * w[j]
    [found] = read_hidden_orders([changes_of(copies, factors, np.ones((users, n), bool))], half_stars())
    told = np.isfinite(found.value)
    assert (found.value == ratings)[told].all()
    assert told.mean() >= least
    assert told.any() == (least > 0)


def test_two_clients_of_each_round_tell_it_together():
    """Few take part in each round, and three have to agree: nobody was answered before."""
    rng, n, k, rounds = np.random.default_rng(3), 20, 12, []
    ratings = rng.integers(1, 11, (4, n)) / 2
    for here in ([0, 1], [2, 3]):
        factors = rng.normal(0, 0.3, (4, n, k))
        copies = factors.copy()
        for user in here:
            p = rng.normal(0, 0.3, k)
            copies[user] += ShuffledPasses(0.003).rows(p, factors[user], ratings[user], rng)
        there = np.isin(np.arange(4), here)[:, None] & np.ones((4, n), bool)
        rounds.append(changes_of(copies, factors, there))
    alone = [one for rows in rounds for one in read_hidden_orders([rows], half_stars())]
    assert not any(np.isfinite(one.value).any() for one in alone)
    value = np.stack([one.value for one in read_hidden_orders(rounds, half_stars())])
    told = np.isfinite(value)
    assert (value == ratings)[told].all()
    assert told.sum() > 0.8 * ratings.size
    assert not told.all(axis=0).any()


def test_one_clipped_error_of_a_client_stays_open():
    """Few errors are as large as 2, and cut to it: before, one of 192 answers was the next level."""
    rng, users, n = np.random.default_rng(8), 12, 16
    factors = np.abs(rng.normal(0, 0.4, (users, n, 5))) + 0.5
    copies, ratings = factors.copy(), np.zeros((users, n))
    for w, r in zip(copies, ratings, strict=True):
        u = np.abs(rng.normal(0, 0.4, 5)) + 0.5
        r[:] = np.clip(np.rint(w @ u + rng.normal(0, 0.9, n)), 1, 5)
        for j in np.concatenate([rng.permutation(n) for _ in range(2)]):
            error = np.clip(r[j] - w[j] @ u, -2, 2)
            w[j], u = w[j] + 0.003 * error * u, u + 0.003 * error * w[j]
    there = np.ones((users, n), bool)
    stars = manifest().model_copy(update={"rating_levels": [1.0, 2, 3, 4, 5]})
    [found] = read_hidden_orders([changes_of(copies, factors, there)], stars)
    told = np.isfinite(found.value)
    assert told.mean() > 0.7
    assert (found.value == ratings)[told].all()


@pytest.mark.parametrize("seed", [0, 2, 20])
def test_ratings_of_a_smaller_minibatch_stay_open(seed):
    """Two passes by four in one order, means: four of 450 answers, of the last one, had been wrong.

    Of the last seed one more had been: the second order says another level than the first.
    """
    rng, sizes, k = np.random.default_rng(seed), np.resize([24, 21, 31, 28, 32, 36], 12), 4
    there = np.arange(36) < sizes[:, None]
    factors = np.abs(rng.normal(0, 0.5, (12, 36, k))) + 0.4
    often = np.array([1, 1, 2, 2, 4, 5, 8, 12, 8, 5])
    ratings = rng.choice(np.arange(1, 11) / 2, there.shape, p=often / often.sum())
    copies = factors.copy()
    for w, r, n in zip(copies, ratings, sizes, strict=True):
        u = np.abs(rng.normal(0, 0.5, k)) + 0.4
        for first in (*range(0, n, 4), *range(0, n, 4)):
            some = slice(first, min(first + 4, n))
            error = 0.01 * (r[some] - w[some] @ u)[:, None] / (some.stop - first)
            w[some], u = w[some] + error * u, u + (error * w[some]).sum(axis=0)
    [found] = read_hidden_orders([changes_of(copies, factors, there)], half_stars())
    told = np.isfinite(found.value)
    assert told.any()
    assert (found.value == ratings)[told].all()


@pytest.mark.thorough
def test_errors_of_another_rule_are_not_read(tmp_path):
    """Rows that are parallel but for a tenth, about numbers that are no ratings."""
    rng = np.random.default_rng(0)
    q = rng.normal(0, 0.4, (120, 6))
    with fl.Recorder(tmp_path / "t", rating_levels=np.arange(1, 6)) as recorder:
        recorder.broadcast(0, q)
        for user in range(USERS):
            items, p = rng.permutation(120)[:40], rng.normal(0, 0.4, 6)
            rows = (rng.uniform(1, 5, 40) - q[items] @ p)[:, None] * p
            recorder.upload(
                0, user, 0.01 * (rows + rng.normal(0, 0.1 * np.abs(rows).mean(), rows.shape)), items
            )
    assert len(fl.attack(tmp_path / "t", "undeclared").abstained) == USERS


@pytest.mark.parametrize("halves", [8])
def test_whole_stars_of_a_grid_of_halves_are_not_halved(tmp_path, halves):
    """Clients with fewer ratings than factors, five steps over all ratings: half as large they fit better."""
    rng = np.random.default_rng(0)
    items, k, rate = 50, 10, 0.001 / 8
    v, start = rng.normal(0, 0.3, (items, k)), rng.normal(0, 0.3, (9 + halves, k))
    table = np.zeros((len(start), items))
    with fl.Recorder(tmp_path / "t", rating_levels=np.arange(0.5, 5.1, 0.5)) as recorder:
        recorder.broadcast(0, v)
        for user in range(len(start)):
            u, rated = start[user], rng.permutation(items)[:8]
            table[user, rated] = rng.choice([3.0, 4.0, 5.0] if user < 9 else [2.5, 3.0, 4.5, 5.0], 8)
            copy = v[rated].copy()
            for _ in range(5):
                error = table[user, rated] - copy @ u
                copy, u = copy + rate * error[:, None] * u, u + rate * (error @ copy - 0.01 * u)
            recorder.upload(0, user, copy - v[rated], rated)
    answers, right = score(fl.attack(tmp_path / "t", "undeclared"), table)
    assert right == answers >= 8 * halves * 0.8


@pytest.mark.parametrize(
    "levels",
    [
        [1.0, 2.0, 3.0, 1e6],
    ],
    ids=[
        "wide",
    ],
)
def test_grids_of_many_steps_are_not_searched(tmp_path, levels):
    """Before: 78 GB for a grid of four levels, and 7 s for each client of one of a thousand."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(12, 4))
    with fl.Recorder(tmp_path / "t", rating_levels=levels) as recorder:
        recorder.broadcast(0, factors)
        for client in range(6):
            recorder.upload(0, client, rng.normal(size=(12, 1)) * rng.normal(size=4), np.arange(12))
    assert len(fl.attack(tmp_path / "t", "undeclared").abstained) == 6


# What the last minibatch weighs, against passes that are counted.


@pytest.mark.parametrize(("n", "size", "passes"), [(20, 8, 3), (25, 20, 6), (11, 5, 2)])
def test_multiples_and_shares_are_those_of_counted_passes(n, size, passes):
    rng, trials = np.random.default_rng(0), 400
    weight = np.zeros((trials, n))
    for trial in range(trials):
        for _ in range(passes):
            order = rng.permutation(n)
            for start in range(0, n, size):
                at = order[start : start + size]
                weight[trial, at] += size / at.size / passes
    found = multiples_of(n, Batches(size, passes))
    near = np.abs(weight[..., None] - found.times).argmin(axis=2)
    seen = np.bincount(near.ravel(), minlength=found.times.size) / weight.size
    known = np.abs(weight - found.times[near]) < 1e-9
    assert known.mean() > 0.999  # others are too rare to be told apart
    # n items of one pass are not independent, trials are: four standard errors of the latter
    assert (np.abs(seen - np.exp(found.nats)) < 4 * np.sqrt(0.25 / trials)).all()


@pytest.mark.parametrize(("n", "size", "passes"), [(20, 8, 3), (25, 20, 4)])
def test_errors_come_before_the_steps_that_they_make(n, size, passes):
    """Mean over all orders of turns of what a copy had moved before each, weighed as the turns are."""
    found = multiples_of(n, Batches(size, passes))
    last = n % size
    for often, (before, times) in enumerate(zip(found.before, found.times, strict=True)):
        shares = np.array([size / last] * often + [1.0] * (passes - often))
        shares /= shares.sum()
        ways = [np.cumsum(order) - order for order in permutations(shares)]
        weighed = [way @ order for way, order in zip(ways, permutations(shares), strict=True)]
        assert before + (1 - 1 / (passes * times)) / 2 == pytest.approx(np.mean(weighed))


@pytest.mark.parametrize(("n", "size"), [(16, 8), (5, 8), (8, 8)])
def test_equal_minibatches_have_one_multiple(n, size):
    assert multiples_of(n, Batches(size, 3)) is ONE


# Two numbers of rows that are longer by multiples, planted.


LEVELS = np.arange(1.0, 6.0)
BATCHES = Batches(16, 3)
TRUE = np.array([-40.0, 0.8])


def planted(seed: int, n: int = 44, noise: float = 0.01) -> tuple[FirstOrder, np.ndarray]:
    """Rows of a client, some of them longer, and its ratings."""
    rng = np.random.default_rng(seed)
    multiples = multiples_of(n, BATCHES)
    ratings = rng.choice(LEVELS, n, p=[0.1, 0.15, 0.25, 0.3, 0.2])
    h = rng.normal(0.5, 1, n)
    longer = rng.choice(multiples.times, n, p=np.exp(multiples.nats) / np.exp(multiples.nats).sum())
    error = ratings - TRUE[1] * h + noise * rng.normal(size=n)
    return FirstOrder(error / TRUE[0] * longer, h, np.zeros(n), np.ones(n, bool)), ratings


@pytest.mark.parametrize("seed", range(4))
def test_planted_numbers_are_found(seed):
    one, ratings = planted(seed)
    found = best_mixed(one, BATCHES, rough_pairs(one, LEVELS).numbers, LEVELS)
    assert found.numbers[0] == pytest.approx(TRUE, rel=0.02)
    assert found.missed[0] < 0.03
    value = values_of(one, multiples_of(ratings.size, BATCHES), found.numbers[:1])[0]
    assert (np.abs(value - ratings[:, None]).min(axis=1) < 0.1).mean() > 0.95
    # without the multiples they explain next to nothing
    plain = mixed_pairs(one, ONE, found.numbers[:1], LEVELS)
    assert found.nats[0] > 30 + max(plain.nats[0], 0.0)


def test_opposites_are_both_there_where_biases_are_in_the_middle():
    """Ratings less 3, and predictions that hardly differ: the mirror image is as near to the grid."""
    ratings = np.random.default_rng(1).integers(1, 6, 44)
    g, h = (ratings - 3.0) / TRUE[0], 1e-9 * np.random.default_rng(2).normal(size=44)
    flat = FirstOrder(g, h, np.full(44, 3.0), np.ones(44, bool))
    found = best_mixed(flat, BATCHES, rough_pairs(flat, LEVELS).numbers, LEVELS)
    opposite = np.abs(found.numbers + found.numbers[0]).max(axis=1) < 1e-6
    assert found.nats[opposite].max() == pytest.approx(found.nats[0])


def test_rows_of_nothing_have_no_pairs():
    nothing = FirstOrder(np.zeros(8), np.ones(8), np.zeros(8), np.ones(8, bool))
    assert rough_pairs(nothing, LEVELS).numbers.shape == (0, 2)


# Which ratings of hidden orders are answered.


STARS_ORDER = np.arange(1.0, 6.0)


def told(missed: float) -> Told:
    """Eight ratings, each of them sure, that miss the grid by so much."""
    error = np.linspace(-1, 1, 8)
    sure = np.ones(8, bool)
    return Told(np.resize(STARS_ORDER, 8), error, 1e-3, sure, sure, missed, np.ones(2), False, 1.0, 0.0)


def test_a_client_many_times_as_far_off_the_grid_as_others_is_not_answered():
    """Rows with weights of their own look like that: others' are alike, and on the grid."""
    clients = dict(enumerate([1e-3, 2e-3, 3e-3, 4e-3, 0.1]))
    found = answers_of({user: told(missed) for user, missed in clients.items()}, 0, STARS_ORDER)
    assert sorted(found) == [0, 1, 2, 3]
    assert 4 in answers_of({user: told(0.1 + missed) for user, missed in clients.items()}, 0, STARS_ORDER)


def test_a_bias_of_most_clients_is_told_by_what_all_their_ratings_lack():
    """With 3.87 taken off ratings, one of five clients with biases of their own fitted upside down."""
    rng = np.random.default_rng(0)
    told, ones = {}, {}
    for user, bias in enumerate([0.06, -0.05, 0.04, 0.0]):
        g, h, named = rng.normal(size=20), rng.normal(size=20), rng.choice(STARS_ORDER, 20)
        # what is left of a client's ratings but for its bias
        error = named - 3.87 - bias - h + rng.normal(0, 0.01, 20)
        sure = np.ones(20, bool)
        told[user] = Told(named, error, 1e-3, sure, sure, 0.05, np.ones(2), False, 1.0, 0.0)
        ones[user] = FirstOrder(g, h, np.full(20, 3.87), np.ones(20, bool))
    assert lack_biases(told, ones)
    assert not lack_biases({3: told[3]}, ones)
    assert not lack_biases({}, ones)


# Where each row points tells how far the client had come.


def left_over(g: np.ndarray, h: np.ndarray, ratings: np.ndarray) -> float:
    """What the best A g + B h leaves of ratings, in the mean."""
    table = np.stack([g, h], axis=1)
    rest = ratings - table @ np.linalg.lstsq(table, ratings)[0]
    return float(np.sqrt((rest**2).mean()))


@pytest.mark.parametrize(("n", "k", "most"), [(8, 16, 0.4), (20, 8, 0.8), (60, 10, 0.9)])
def test_ratings_are_nearer_to_two_numbers(n, k, most):
    """The median of 12 clients; with more factors than ratings rows tell most of the order."""
    rng, times = np.random.default_rng(0), []
    for _ in range(12):
        factors, p, ratings = rng.normal(0, 0.3, (n, k)), rng.normal(0, 0.3, k), rng.integers(1, 6, n) + 0.0
        sent = ShuffledPasses(0.005).rows(p, factors, ratings, rng)
        d, halfway = np.linalg.svd(sent)[2][0], factors + sent / 2
        better = second_order(sent, halfway, d)
        times.append(left_over(*better, ratings) / left_over(sent @ d, halfway @ d, ratings))
    assert np.median(times) < most


def test_parallel_rows_tell_nothing():
    d = np.array([0.6, 0.8, 0.0])
    assert second_order(np.outer([1.0, -2, 3], d), np.eye(3), d) is None


def test_what_turns_a_row_by_its_length_is_no_second_order():
    rng = np.random.default_rng(1)
    sent = 10 * rng.normal(size=(8, 4))
    d = np.linalg.svd(sent)[2][0]
    found = second_order(sent, rng.normal(size=(8, 4)), d)
    assert found is None or np.isfinite(found).all()


# TensorFlow Federated's reconstruction: a factor that stays, means over minibatches, a smaller last one.


ITEMS, K = 60, 6


def table_of(levels: np.ndarray, n_users: int = 16) -> np.ndarray:
    """Ratings (users, items), 0 where unrated: 3 to 40 of each client."""
    rng = np.random.default_rng(4)
    table = np.zeros((n_users, ITEMS))
    for user, n in enumerate(np.linspace(3, 40, n_users).astype(int)):
        table[user, rng.choice(ITEMS, n, replace=False)] = rng.choice(levels, n)
    return table


def recorded_of_whole_minibatches(
    path, table, levels, *, size=5, sent=np.float64, less=0.0, mean=True, lengths=0.0
):
    """What items change by where clients' factors stay, in an order that nobody sees."""
    rng = np.random.default_rng(1)
    q = rng.normal(0, 0.3, (ITEMS, K)).astype(sent)
    with fl.Recorder(path, rating_levels=levels) as recorder:
        recorder.broadcast(0, q)
        for user, ratings in enumerate(table):
            p = rng.normal(0, 0.5, K)
            change = np.zeros((ITEMS, K))
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
    told, right = answers(
        fl.attack(recorded_of_whole_minibatches(tmp_path / "t", table, STARS), "undeclared"), table
    )
    assert right == told >= 0.9 * (table > 0).sum()


@pytest.mark.parametrize(
    "program",
    [{"mean": False}, {"less": 0.3}, {"lengths": 0.1}, {"size": 100}],
    ids=["sums", "off the grid", "other weights", "whole means"],
)
def test_other_rows_are_left_as_they_are(tmp_path, program):
    path = recorded_of_whole_minibatches(tmp_path / "t", table_of(STARS), STARS, **program)
    assert not list(whole_minibatch_views(fl.open_transcript(path).view("server"), 0.0))


def sent_by(view: fl.View, n_users: int) -> np.ndarray:
    """What clients send, (users, items, K)."""
    out = np.zeros((n_users, ITEMS, K))
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
