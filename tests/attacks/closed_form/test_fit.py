"""How well rows fit a grid of ratings, and when a fit is believed."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Estimates, Outcome, Reconstruction, Scope, silent_about
from attacks.closed_form.fit.affine_grid import (
    JUDGED,
    OpenRows,
    anchors_of,
    best_numbers,
    numbers_of,
    says_nothing,
)
from attacks.closed_form.fit.arbiter import BIASED_ALONE, abstain_if_biased_alone, abstain_if_contradicted
from attacks.closed_form.fit.images import ALL_ALIKE, OPEN_SCALE, abstain_if_higher, rows_against_multiples
from victims.transcript.recorder import Recorder

# An unknown scale of a client's rows: both numbers follow from the rating grid.


GRIDS = {
    "stars": np.arange(1.0, 5.1),
    "halves": np.arange(0.5, 5.1, 0.5),
    "uneven": np.array([1.0, 2.5, 3.0, 7.0]),
}


def mean_loss(levels, users, n, seed, biases=False):
    """Rows of clients that divide by an amount of their own: g, h, offset, ratings, and the true A and B."""
    rng = np.random.default_rng(seed)
    p, q = rng.normal(0, 0.5, (users, 8)), rng.normal(0, 0.5, (users, n, 8))
    offset = rng.normal(0, 0.3, (users, n)) if biases else np.zeros((users, n))
    ratings = rng.choice(levels, (users, n))
    error = ratings - offset - np.einsum("uk,unk->un", p, q)
    scale = rng.uniform(0.01, 1.0, users)
    length = np.linalg.norm(p, axis=1)
    direction = p / length[:, None] * rng.choice([-1, 1], users)[:, None]
    g = np.einsum("unk,uk->un", scale[:, None, None] * error[..., None] * p[:, None], direction)
    return g, np.einsum("unk,uk->un", q, direction), offset, ratings


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("biases", [False, True])
def test_whoever_is_answered_is_read_whole(grid, biases):
    """Twelve ratings: at least 97 of 100 clients are answered, and none wrong."""
    levels = GRIDS[grid]
    g, h, offset, ratings = mean_loss(levels, 100, 12, seed=len(grid), biases=biases)
    columns = np.stack([g, h], axis=2)
    found = best_numbers(columns, offset, np.ones_like(g, bool), levels)
    value = np.einsum("urc,uc->ur", columns, found.numbers) + offset
    answered = found.told
    assert answered.sum() >= 97
    np.testing.assert_allclose(value[answered], ratings[answered], atol=1e-6)


def test_two_rows_fit_every_pair_and_are_not_answered():
    g, h, offset, _ = mean_loss(GRIDS["stars"], 20, 2, seed=1)
    assert not best_numbers(
        np.stack([g, h], axis=2), offset, np.ones_like(g, bool), GRIDS["stars"]
    ).told.any()


def test_numbers_about_nothing_are_far_from_the_grid():
    rng = np.random.default_rng(2)
    g, h = rng.normal(size=(2, 50, 30))
    found = best_numbers(np.stack([g, h], axis=2), np.zeros_like(g), np.ones_like(g, bool), GRIDS["stars"])
    assert found.distance[found.told].min(initial=1) > 0.1


def test_padding_does_not_count():
    g, h, offset, _ratings = mean_loss(GRIDS["stars"], 10, 12, seed=3)
    valid = np.ones_like(g, bool)
    valid[:, 9:] = False
    columns = np.stack([g, h], axis=2)
    whole = best_numbers(columns[:, :9], offset[:, :9], valid[:, :9], GRIDS["stars"])
    padded = best_numbers(np.where(valid[..., None], columns, 99.0), offset, valid, GRIDS["stars"])
    np.testing.assert_allclose(padded.numbers, whole.numbers)


def test_a_bias_of_the_client_is_a_third_number():
    """Who gave every level is read; for the others, ratings shifted by a level fit as well."""
    levels = GRIDS["stars"]
    g, h, offset, ratings = mean_loss(levels, 200, 12, seed=4, biases=True)
    bias = np.random.default_rng(5).normal(0, 1, (200, 1))
    columns = np.stack([g, h, np.ones_like(g)], axis=2)
    found = best_numbers(columns, offset - bias, np.ones_like(g, bool), levels)
    value = np.einsum("urc,uc->ur", columns, found.numbers) + offset - bias
    full = (ratings.min(axis=1) == 1) & (ratings.max(axis=1) == 5)
    assert found.told[full].mean() > 0.95
    assert not found.told[~full].any()
    np.testing.assert_allclose(value[found.told], ratings[found.told], atol=1e-6)


@pytest.mark.parametrize("levels", [np.array([0.0, 1.0]), np.arange(1.0, 6.0)], ids=["likes", "stars"])
def test_a_bias_alone_says_nothing_of_rounded_rows(levels):
    """A bias and no rows are exactly on a level, and rounded rows are not; nobody may be answered by it."""
    g, h, offset, ratings = mean_loss(levels, 100, 12, seed=6, biases=levels.size > 2)
    columns = np.stack([g, h, np.ones_like(g)], axis=2).astype(np.float32).astype(float)
    found = best_numbers(columns, offset, np.ones_like(g, bool), levels)
    value = np.einsum("urc,uc->ur", columns, found.numbers) + offset
    np.testing.assert_allclose(value[found.told], ratings[found.told], atol=1e-4)


def test_a_grid_of_very_many_levels_is_not_searched():
    g, h, offset, _ = mean_loss(GRIDS["stars"], 3, 12, seed=1)
    found = best_numbers(np.stack([g, h], axis=2), offset, np.ones_like(g, bool), np.linspace(0.1, 90, 900))
    assert not found.told.any()


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("noise", [0.0, 15.0])
def test_noise_does_not_shrink_to_the_lowest_levels(noise, offset):
    """Small numbers put any rows near the lowest levels, where the grid seems nearest."""
    rng = np.random.default_rng(7)
    along, ratings = rng.normal(0, 1, (300, 20)), rng.integers(1, 6, (300, 20))
    error = ratings - offset - along + rng.normal(0, noise, (300, 20))
    known = np.full((300, 20), offset), np.ones((300, 20), bool), np.arange(1.0, 6.0)
    found = best_numbers(np.stack([error, along], axis=2), *known)
    assert found.told.sum() == (0 if noise else 300)


def test_equal_ratings_beside_one_offset_are_open():
    """Ratings of 5 and a mean of 3.53: any number times 1.47 leads from it to a level."""
    rng = np.random.default_rng(2)
    along, offset = rng.normal(0, 0.3, (50, 4)), np.full((50, 4), 3.53)
    columns = np.stack([0.07 * (5 - offset - along), along], axis=2)
    found = best_numbers(columns, offset, np.ones((50, 4), bool), GRIDS["stars"])
    assert not found.told.any()


@pytest.mark.parametrize(("off", "told"), [(0.0, True), (1.1e-4, False)])
def test_one_row_near_a_level_is_no_evidence(off, told):
    """Ratings of 2 and 3 with a bias are 1 and 10 as well; one clipped row is near 2 then, by accident.

    It has to be on the level to its last digits to tell them apart. In the mean over all rows it was.
    """
    rng = np.random.default_rng(3)
    along, ratings = rng.normal(0, 1, (40, 21)), rng.choice([1.0, 10.0], (40, 21))
    ratings[:, 0] = 2 + 9 * off
    columns = np.stack(
        [ratings - 4 - along + rng.normal(0, 1e-6, along.shape), along, np.ones_like(along)], 2
    )
    levels = np.array([1.0, 2, 3, 5, 10])
    found = best_numbers(columns, np.zeros_like(along), np.ones(along.shape, bool), levels)
    assert found.told.mean() == told


# What most clients contradict is answered for nobody.


def noisy_step(path, attack, learned=lambda stars: stars, bias=0.0):
    """Fifty clients of a plain sgd step, declared as it is, under declared noise."""
    rng = np.random.default_rng(5)
    q, p = rng.normal(0, 0.5, (60, 6)), rng.normal(0, 0.5, (50, 6))
    own = rng.normal(0, bias, 50) if bias else np.zeros(50)
    rated, stars = [rng.permutation(60)[:30] for _ in p], rng.integers(1, 6, (50, 30))
    rule = {"rule": "sgd", "order": "batch", "local_steps": 1, "batch_size": "all", "reduction": "sum"}
    rule |= {"upload": "gradient", "loss": "squared", "link": "identity", "clip": "none", "start": "kept"}
    constants = {"client_learning_rate": 0.005, "lambda_factors": 0.0, "upload_scale": 1.0}
    noise = [{"name": "gaussian", "scale": 0.02}]
    with fl.Recorder(
        path, rating_levels=range(1, 6), rule=rule, constants=constants, defenses=noise
    ) as recorder:
        for round_ in range(4):
            recorder.broadcast(round_, q)
            for user, items in enumerate(rated):
                error = learned(stars[user]) - q[items] @ p[user] - own[user]
                rows = error[:, None] * p[user] + rng.normal(0, 0.02, (30, 6))
                recorder.upload(round_, user, rows, items)
                p[user] += 0.01 * error @ q[items]
            q = q + rng.normal(0, 0.05, q.shape)
    table = np.zeros((50, 60))
    table[np.arange(50)[:, None], rated] = stars
    found = fl.attack(path, attack)
    user, _, index, value, _ = (np.concatenate(column) for column in zip(*found.rows(), strict=True))
    return found, np.rint(value) == table[user, index]


@pytest.mark.parametrize("attack", ["spectral", "eq24-corrected"])
def test_small_declared_noise_does_not_hide_what_is_declared_rightly(tmp_path, attack):
    found, right = noisy_step(tmp_path / "t", attack)
    assert len(found.abstained) <= 25
    assert right.mean() > 0.97


LOWERED = {"learned": lambda stars: (stars - 1) / 4}


@pytest.mark.parametrize("attack", ["spectral", "eq24-corrected"])
@pytest.mark.parametrize("otherwise", [{"learned": lambda stars: stars / 5}, LOWERED, {"bias": 1.0}])
def test_what_most_clients_contradict_is_answered_for_none(tmp_path, otherwise, attack):
    """Ratings mapped to 0 .. 1, undeclared biases: a few clients fitted the grid by accident."""
    found, right = noisy_step(tmp_path / "t", attack, **otherwise)
    assert right.size == 0
    assert len(found.abstained) == 50


def numbers(misfit, allowed, answered):
    users = np.arange(len(misfit))
    kind, index = np.zeros((1, 3), np.int8), np.arange(3)[None]
    value = np.where(np.array(answered)[:, None], 3.0, np.nan) + np.zeros((len(misfit), 3))
    abstained = {int(user): "off" for user in users[~np.array(answered)]}
    told = {"misfit": np.array(misfit), "allowed": np.array(allowed)}
    return Reconstruction("t", users, (Estimates(users, kind, index, value),), abstained, diagnostics=told)


def test_who_counts_as_judged():
    """Clients with too few ratings, and those whose noise is large, contradict nothing."""
    off = numbers([0.1] * 3 + [0.9] * 7, [0.25] * 10, [True] * 3 + [False] * 7)
    silent = abstain_if_contradicted(off, 0.25)
    assert len(silent.abstained) == 10
    assert np.isnan(silent.blocks[0].value).all()
    assert "of 10 clients who can be judged 3 fit" in silent.abstained[0]
    near = numbers([0.1] * 3 + [0.4] * 7, [0.25] * 3 + [0.01] * 7, [True] * 3 + [False] * 7)
    assert abstain_if_contradicted(near, 0.25) is near
    few = numbers([0.1] * 3 + [0.9] * 7, [0.25] * 3 + [0.01] * 7, [True] * 3 + [False] * 7)
    assert abstain_if_contradicted(few, 0.25, np.ones(10, bool)) is few
    assert abstain_if_contradicted(off, 0.25, np.arange(10) < 5) is off


@pytest.mark.parametrize(("clients", "stars", "answered"), [(6, (2,), 0), (2, (2,), 2), (6, (2, 5), 6)])
def test_rows_that_say_that_everybody_rated_everything_alike_are_not_answered(
    tmp_path, clients, stars, answered
):
    """As the equally long rows of an optimizer did, whose decay met its step; few clients may be so."""
    rng = np.random.default_rng(0)
    with fl.Recorder(tmp_path / "t", rating_levels=[1, 2, 3, 4, 5]) as recorder:
        q = rng.normal(0, 0.5, (40, 4))
        recorder.broadcast(0, q)
        for user in range(clients):
            items, p = rng.choice(40, 10, replace=False), rng.normal(0, 0.5, 4)
            r = np.resize(stars, 10)
            recorder.upload(0, user, np.outer(r - q[items] @ p, p), items)
    found = fl.attack(tmp_path / "t", "grid")
    assert clients - len(found.abstained) == answered
    if not answered:
        assert set(found.abstained.values()) == {ALL_ALIKE}


@pytest.mark.parametrize(
    ("biased", "misfit", "silent"),
    [
        ([0], 0.2, {0}),  # the only one
        ([0], 1e-4, set()),  # whose ratings are on the grid
        ([0, 1, 2], 0.2, set()),  # the program keeps biases
        ([0, 1], 0.2, {0, 1}),
    ],
)
def test_a_bias_that_next_to_nobody_has_is_what_makes_ratings_fit(biased, misfit, silent):
    found = numbers([misfit] * 5, [0.25] * 5, [True] * 5)
    told = abstain_if_biased_alone(found, np.isin(found.users, biased))
    assert told.abstained == dict.fromkeys(silent, BIASED_ALONE)
    assert np.isnan(told.blocks[0].value).all(axis=1).tolist() == [user in silent for user in range(5)]


def test_answers_that_are_taken_back_are_no_noise():
    """Noise alone explains clients 1 and 2; who else has no answer was not told from it."""
    users = np.arange(1, 6)
    block = Estimates(users, np.zeros((1, 1), np.int8), np.zeros((1, 1), int), np.full((5, 1), 3.0))
    noise = dict.fromkeys((1, 2), "noise")
    found = Reconstruction("likelihood", users, (block,), noise, {}, {}, outcome=Outcome.NOTHING_FOUND)
    assert silent_about(found, users <= 3, "noise").outcome == Outcome.NOTHING_FOUND
    assert silent_about(found, users > 2, "taken back").outcome == Outcome.ANSWERED


# What speaks for one multiple of ratings, and not for another.


HALVES_CREDIBLE = np.arange(1, 11) / 2


@pytest.mark.parametrize(
    ("ratings", "against"),
    [
        ([1.0, 2.0, 5.0, 4.0], 0),  # halves of all are ratings
        ([1.0, 2.0, 5.0, 4.5], 1),
        ([1.5, 2.5, 4.5, 4.0], 2),  # 1, 5 / 3, 3 and 8 / 3
        ([0.0, 0.0], 2),  # nothing tells a multiple
    ],
)
def test_rows_that_no_other_multiple_puts_on_the_grid(ratings, against):
    assert rows_against_multiples(np.array(ratings), np.zeros(1), HALVES_CREDIBLE) == against
    assert rows_against_multiples(np.array(ratings), np.array([0.0, 0.3]), HALVES_CREDIBLE) == len(ratings)


# Ten thousand pairs of a hundred levels: few are judged, the right one among these.


HUNDRED = np.arange(1.0, 101.0)


def open_rows(levels, seed: int = 8):
    """Ten clients with 14 ratings, and what these are."""
    g, h, offset, ratings = mean_loss(levels, 10, 14, seed=seed)
    return OpenRows(np.stack([g, h], axis=2), offset, np.ones_like(g, bool)), ratings


@pytest.mark.parametrize("levels", [HUNDRED, HUNDRED**1.5], ids=["equally far apart", "not"])
def test_the_right_combination_is_among_the_few(levels):
    rows, ratings = open_rows(levels)
    numbers = numbers_of(rows, rows, *anchors_of(rows), levels)
    assert numbers.shape == (10, JUDGED, 2)
    missed = np.abs(rows.values(numbers) - ratings[:, None]).max(axis=2).min(axis=1)
    assert (missed < 1e-6 * levels[-1]).all()


def test_the_nearest_of_all_are_among_the_few():
    """Rows about nothing, five beside the two that are named; and the search written out."""
    rows = OpenRows(
        np.random.default_rng(0).normal(size=(10, 7, 2)), np.zeros((10, 7)), np.ones((10, 7), bool)
    )
    anchors, apart = anchors_of(rows)
    few = numbers_of(rows, rows, anchors, apart, HUNDRED)
    pairs = np.array(list(product(HUNDRED, repeat=2)))
    for user, two in enumerate(anchors):
        every = np.linalg.solve(rows.columns[user, two], pairs.T).T
        nearest = every[away(rows, every, user).argsort()[:8]]
        missed = np.abs(few[user] - nearest[:, None]).max(axis=2).min(axis=1)
        assert missed.max() < 1e-6


def away(rows, numbers, user: int):
    """How far one client's rows are from the grid, in all."""
    value = numbers @ rows.columns[user].T + rows.offset[user]
    return np.abs(value - np.clip(np.rint(value), 1, 100)).sum(axis=1)


def test_who_has_no_two_rows_apart_has_no_numbers():
    rows, _ = open_rows(HUNDRED)
    rows.columns[3] = rows.columns[3, :1]
    numbers = numbers_of(rows, rows, *anchors_of(rows), HUNDRED)
    assert np.isnan(numbers[3]).all()
    assert np.isfinite(numbers[[0, 9]]).all()


def test_numbers_that_leave_the_offset_alone_are_not_judged():
    """All rows lie on a level then, and that is nothing that they say."""
    rows, _ = open_rows(HUNDRED)
    rows = rows._replace(offset=np.full_like(rows.offset, 50.0))
    numbers = numbers_of(rows, rows, *anchors_of(rows), HUNDRED)
    assert not says_nothing(numbers, rows.varying()).any()


# Ratings less a number that nobody told, which a factor puts on the grid: nobody is answered wrongly.


HALVES_OTHER_SHIFTS = np.arange(1, 9) / 2  # as FilmTrust's
STARS = np.arange(1.0, 6.0)
WHOLE_OTHER_SHIFTS = {
    "rule": "sgd",
    "order": "batch",
    "local_steps": 1,
    "batch_size": "all",
    "upload": "gradient",
}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def upload_less(
    path: Path, levels: np.ndarray, ratings: list[np.ndarray], less: float, **public: dict
) -> None:
    """Record clients' rows of one step over all ratings."""
    rng = np.random.default_rng(0)
    q = rng.normal(0, 0.3, (60, 6))
    lists = [rng.permutation(60)[: own.size] for own in ratings]
    with fl.Recorder(path, rating_levels=levels, **public) as recorder:
        recorder.broadcast(0, q)
        for client, (items, own) in enumerate(zip(lists, ratings, strict=True)):
            p = rng.normal(0, 0.3, 6)
            rows = -((own - less - q[items] @ p)[:, None] * p)
            recorder.upload(0, client, rows, items)


@pytest.mark.parametrize(
    ("less", "answered"),
    [
        (0.0, 1),
    ],
)
def test_a_declared_scale_that_does_not_read_a_client_leaves_its_shift_open(tmp_path, less, answered):
    """{2.5, 3, 3.5, 4} less 2.25 are {0.5, 1.5, 2.5, 3.5} to the last digit, at half the declared scale."""
    ratings, scale = [np.array([2.5, 3, 3.5, 4])], {"upload_scale": -1.0}
    upload_less(tmp_path / "t", HALVES_OTHER_SHIFTS, ratings, less, constants=scale)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert found.users.size - len(found.abstained) == answered


@pytest.mark.parametrize("declared", ["include-unrated"])
def test_a_shift_is_as_open_where_rows_of_unrated_items_are_declared_and_none_are_sent(tmp_path, declared):
    """{2, 2.5, 3, 3.5} less 1.75 are {0.5, 1.5, 2.5, 3.5} to the last digit, at half the scale."""
    rng = np.random.default_rng(1)
    ratings = [np.append(rng.choice([2, 2.5, 3, 3.5], 10), [2, 2.5, 3, 3.5]) for _ in range(6)]
    upload_less(tmp_path / "t", HALVES_OTHER_SHIFTS, ratings, 1.75, weighting=declared)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert found.users.size == len(found.abstained)


@pytest.mark.thorough
def test_entries_that_look_clipped_leave_shifts_open(tmp_path):
    """Behind a sigmoid of short factors r / 5 is r - 2.5: {3, 4, 5} are {1, 3, 5}; rows: next factor."""
    rng = np.random.default_rng(112)
    q = rng.random((40, 16)) * 0.01
    with fl.Recorder(
        tmp_path / "t", rating_levels=STARS, rule={"reduction": "mean"} | WHOLE_OTHER_SHIFTS
    ) as recorder:
        recorder.broadcast(0, q)
        for client in range(6):
            items = np.sort(rng.permutation(40)[: 7 + 3 * client])
            ratings = rng.choice(np.arange(3.0 if client % 2 else 2.0, 6.0), items.size)
            p = rng.random(16) * 0.01
            error = ratings / 5 - sigmoid(q[items] @ p)
            p += 0.1 / items.size * error @ q[items]
            own = rng.uniform(0.3, 3) / items.size  # the scale of its rows
            recorder.upload(0, client, -2 * own * error[:, None] * p, items)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert found.users.size == len(found.abstained)


# Ratings less each client's own lowest one are not taken for ratings less the lowest level.


STARS_OWN_LOWEST, HALVES_OWN_LOWEST = np.arange(1.0, 6.0), np.arange(0.5, 5.1, 0.5)
USERS, ITEMS, K = 20, 60, 4


def own_lowest(r):
    return r - r.min()


def min_max(r):
    return (r - r.min()) / (r.max() - r.min())


def lowest_level(r):
    return r - 1


def recorded(path, learned, levels=STARS_OWN_LOWEST, least=5, ends=False, users=USERS, biases=False):
    """One step of clients of ``least`` ratings or more, most of them high; a third may have both ends."""
    rng = np.random.default_rng(2)
    q, p = rng.normal(0, 0.3, (ITEMS, K)), rng.normal(0, 0.3, (users, K))
    table, b = np.zeros((users, ITEMS)), rng.normal(0, 0.3, ITEMS) * biases
    with fl.Recorder(path, rating_levels=levels) as recorder:
        recorder.broadcast(0, q, **({"biases": b} if biases else {}))
        for user, own in enumerate(table):
            items = rng.choice(ITEMS, rng.integers(least, 3 * least), replace=False)
            share = np.clip(rng.normal(0.7, 0.2, items.size), 0, 1)
            own[items] = levels[np.rint(share * (levels.size - 1)).astype(int)]
            if ends and user % 3 == 0:
                own[items[:2]] = levels[[0, -1]]
            error = learned(own[items]) - b[items] - q[items] @ p[user]
            recorder.upload(0, user, -2 * error[:, None] * p[user], items)
    return table


def answers(found, table):
    """Ratings that are answered, and how many of them are wrong, up to a shift where that is the scope."""
    many = wrong = 0
    for block in found.blocks:
        index = np.broadcast_to(block.index, block.value.shape)
        for user, item, value in zip(block.users, index, block.value, strict=True):
            told = ~np.isnan(value)
            off = np.rint(2 * (value[told] - table[user, item[told]]))
            right = np.median(off) if found.scope == Scope.DIFFERENCES and off.size else 0
            many += off.size
            wrong += int((off != right).sum())
    return many, wrong


@pytest.mark.parametrize("attack", ["inversion"])
@pytest.mark.parametrize(
    ("learned", "levels"),
    [
        (own_lowest, STARS_OWN_LOWEST),
        pytest.param(min_max, STARS_OWN_LOWEST, marks=pytest.mark.thorough),
        pytest.param(min_max, HALVES_OWN_LOWEST, marks=pytest.mark.thorough),
    ],
)
def test_who_has_not_both_ends_is_left_open(tmp_path, learned, levels, attack):
    """Before: clients without the lowest level were answered too low, a third of all ratings and more."""
    table = recorded(tmp_path / "t", learned, levels, ends=True)
    found = fl.attack(tmp_path / "t", attack)
    many, wrong = answers(found, table)
    assert wrong == 0
    if learned is own_lowest:
        assert many > 40
        assert found.scope == Scope.RATINGS_AND_ATTRIBUTES


def test_known_biases_of_items_are_no_matter(tmp_path):
    """A bias common to all clients is the lowest level then; a third was answered too low before."""
    table = recorded(tmp_path / "t", own_lowest, ends=True, biases=True)
    many, wrong = answers(fl.attack(tmp_path / "t", "undeclared"), table)
    assert wrong == 0
    assert many > 40


def test_differences_are_read_where_nobody_has_both_ends(tmp_path):
    table = recorded(tmp_path / "t", own_lowest)
    found = fl.attack(tmp_path / "t", "undeclared")
    many, wrong = answers(found, table)
    assert found.scope == Scope.DIFFERENCES
    assert wrong == 0
    assert many > 0.3 * (table > 0).sum()


def test_the_lowest_level_taken_off_is_read_where_somebody_lacks_it(tmp_path):
    """As before: who has none of it says that it is no own one."""
    table = recorded(tmp_path / "t", lowest_level, ends=True)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert found.scope == Scope.RATINGS_AND_ATTRIBUTES
    many, wrong = answers(found, table)
    assert wrong == 0
    assert many > 0.8 * (table > 0).sum()


# Item biases that are told in another unit, or with the other sign: nobody is answered wrongly.


ITEMS_PLAUSIBLE_BIASES, K_PLAUSIBLE_BIASES = 60, 4


def recorded_of_plausible_biases(path, told, lowest=3.0, users=12):
    """One step of programs that learn r - b_j, and broadcast ``told`` of b."""
    rng = np.random.default_rng(4)
    q, p = (
        rng.normal(0, 0.3, (ITEMS_PLAUSIBLE_BIASES, K_PLAUSIBLE_BIASES)),
        rng.normal(0, 0.3, (users, K_PLAUSIBLE_BIASES)),
    )
    b = rng.normal(0, 0.4, ITEMS_PLAUSIBLE_BIASES)
    table = np.zeros((users, ITEMS_PLAUSIBLE_BIASES))
    with fl.Recorder(path, rating_levels=STARS) as recorder:
        recorder.broadcast(0, q, biases=told(b))
        for user, own in enumerate(table):
            items = rng.choice(ITEMS_PLAUSIBLE_BIASES, rng.integers(8, 20), replace=False)
            own[items] = rng.choice(np.arange(lowest, 6), items.size)
            own[items[:2]] = lowest, 5.0
            error = own[items] - b[items] - q[items] @ p[user]
            recorder.upload(0, user, -2 * error[:, None] * p[user], items)
    return table


@pytest.mark.parametrize("users", [12, pytest.param(1, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("told", "lowest"),
    [(lambda b: 2 * b, 3.0), (lambda b: -b, 1.0)],
    ids=["twice", "negative"],
)
def test_biases_that_are_not_those_of_the_program(tmp_path, told, lowest, users):
    """Before: 3, 4 and 5 were answered as 1, 3 and 5, and 6 - r for r."""
    table = recorded_of_plausible_biases(tmp_path / "t", told, lowest, users)
    found = fl.attack(tmp_path / "t", "undeclared")
    for columns in found.columns() if found.scope != Scope.SIZES else ():
        np.testing.assert_allclose(columns["value"], table[columns["user"], columns["index"]], atol=0.1)


def test_those_of_the_program_are_read_with(tmp_path):
    table = recorded_of_plausible_biases(tmp_path / "t", lambda b: b)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert not found.abstained
    for columns in found.columns():
        np.testing.assert_allclose(columns["value"], table[columns["user"], columns["index"]], atol=0.1)


# Ratings of which none is the highest level, where nobody tells the scale of the rows.


@pytest.fixture
def view(tmp_path):
    """Of one client, on a grid of halves."""
    rng = np.random.default_rng(0)
    with Recorder(tmp_path / "t", rating_levels=np.arange(1, 11) / 2) as recorder:
        recorder.broadcast(0, rng.normal(size=(8, 4)))
        recorder.upload(0, 0, rng.normal(size=(8, 4)), np.arange(8))
    return fl.open_transcript(tmp_path / "t").view("server")


def read(view, stars) -> Reconstruction:
    """What somebody has read of the client."""
    block = Estimates(view.users, np.zeros((1, 8), np.int8), np.arange(8)[None], np.array([stars], float))
    return Reconstruction("undeclared", view.users, (block,), {}, {}, {})


@pytest.mark.parametrize(
    ("stars", "open_"),
    [([1.5, 1.5, 1, 1.5, 1.5, 2.5, 1.5, 1.5], True), ([3, 1, 2, 4, 3, 4.5, 3, 2.5], False)],
    ids=["a half of whole stars", "with halves"],
)
def test_differences_that_have_another_multiple_are_open(view, stars, open_):
    """3 3 2 3 3 5 3 3 had been answered, by half, of the only client of a recording that was read."""
    nobody = np.zeros(1, bool)
    found = abstain_if_higher(read(view, stars), HALVES_CREDIBLE, nobody, unscaled=True)
    assert found.abstained == ({0: OPEN_SCALE} if open_ else {})
    assert abstain_if_higher(read(view, stars), HALVES_CREDIBLE, nobody).scope == Scope.DIFFERENCES
