"""What clients send in place of plain gradients: weights, vectors, rounded and noisy rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from attacks.closed_form.spectral import Spectral
from attacks.closed_form.uploads.common_scale import Scale, Told, contradicted, shown_scale
from attacks.closed_form.uploads.common_vector import centred_views
from attacks.closed_form.uploads.fitted_chain import BEGIN, LONG, chain_of, fitted
from attacks.closed_form.uploads.item_rows import digit_of, fixed_point_of
from attacks.closed_form.uploads.kept import forget, kept
from attacks.closed_form.uploads.moving_factor import follow
from attacks.closed_form.uploads.pull_of_steps import pull_of_hidden_steps, pull_of_steps
from attacks.closed_form.uploads.readings import Rows
from attacks.closed_form.uploads.repeated_noise import noise_repeats
from attacks.closed_form.uploads.undeclared_pull import as_rows_say
from attacks.root_finding.scipy_root import Root
from audit.scoring.decoder import obstacle
from audit.scoring.truth import read_truth
from tests.attacks.closed_form.test_centres import answers
from tests.attacks.closed_form.test_spectral import assert_read
from tests.attacks.root_finding.test_judgement import RULE
from tests.oracles.simulator import SCENARIOS
from tests.tools.identify import counted
from victims.transcript.beside import truth_path

# FedRec's user averaging: the mean of a client's ratings in rows of items that it drew.


STARS = np.arange(1.0, 6.0)
CLIENTS, ITEMS, K = 8, 60, 5


def record(path, dtype=np.float64, pull=0.0, drawn=12, mean=np.mean):
    """One step of clients with 12 ratings, ``mean`` of them for what they drew; returns what each rated."""
    rng = np.random.default_rng(4)
    v = rng.normal(0, 0.3, (ITEMS, K)).astype(dtype)
    lists = []
    with fl.Recorder(path, rating_levels=STARS) as recorder:
        recorder.broadcast(0, v)
        for client in range(CLIENTS):
            items, ratings = rng.permutation(ITEMS)[: 12 + drawn], np.tile([2.0, 4.0, 3.0], 4)
            while client and ratings.mean() % 1 == 0:  # the first client's mean is a level
                ratings = rng.choice(STARS, 12)
            filled = np.full(drawn, mean(ratings))
            p, y = rng.normal(0, 0.4, K), np.concatenate([ratings, filled])
            rows = -2 * (y - v[items] @ p)[:, None] * p + pull * v[items]
            order = np.argsort(items)
            recorder.upload(0, client, rows[order].astype(dtype), items[order])
            recorder.truth(client, items[:12], ratings)
            lists.append(dict(zip(items[:12].tolist(), ratings, strict=True)))
    return lists


def answers_of_averaged_rows(path):
    """(client, item) to what is said of it."""
    out = {}
    for users, _, items, values, _ in fl.attack(path, "undeclared").rows():
        pairs = zip(zip(users.tolist(), items.tolist(), strict=True), values, strict=True)
        out |= {key: value for key, value in pairs if np.isfinite(value)}
    return out


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("pull", [0.0, 0.05])
def test_lists_and_ratings_are_told(dtype, pull, tmp_path):
    lists = record(tmp_path / "t", dtype, pull)
    told = answers_of_averaged_rows(tmp_path / "t")
    for (client, item), value in told.items():
        assert value == pytest.approx(lists[client].get(item, 0.0), abs=1e-3)
    others = sum(client > 0 for client, _ in told)
    assert others >= 0.8 * (CLIENTS - 1) * 24
    # of the client whose mean is 3 nobody can tell a rating of 3 from an average
    assert all(round(value, 3) in (2, 4) for (client, _), value in told.items() if client == 0)


@pytest.mark.thorough
def test_another_number_than_the_mean_is_not_taken_off(tmp_path):
    """3.3 in all rows of no ratings: nothing says that it stands for none."""
    lists = record(tmp_path / "t", mean=lambda ratings: 3.3)
    assert all(
        value == lists[client].get(item)
        for (client, item), value in answers_of_averaged_rows(tmp_path / "t").items()
    )


# Clients that send a velocity, or a running mean, of their rows.


USERS, ITEMS_CARRIED_ROWS, K_CARRIED_ROWS = 10, 40, 4


def recorded(
    path: Path,
    carried: Callable[[np.ndarray, np.ndarray], np.ndarray],
    rounds: tuple[int, ...],
    dropped: bool,
) -> np.ndarray:
    """Clients of plain NumPy send what they keep, which starts at the first gradient; their ratings."""
    rng = np.random.default_rng(3)
    q, p = (
        rng.normal(0, 0.4, (ITEMS_CARRIED_ROWS, K_CARRIED_ROWS)),
        rng.normal(0, 0.4, (USERS, K_CARRIED_ROWS)),
    )
    lists = [rng.choice(ITEMS_CARRIED_ROWS, rng.integers(8, 20), replace=False) for _ in range(USERS)]
    ratings = [rng.choice(STARS, items.size) for items in lists]
    kept: list[np.ndarray] = [np.zeros((items.size, K_CARRIED_ROWS)) for items in lists]
    with fl.Recorder(path, rating_levels=STARS) as recorder:
        for user in range(USERS):
            recorder.truth(user, lists[user], ratings[user])
        for round_ in range(max(rounds) + 1):
            if round_ in rounds:
                recorder.broadcast(round_, q)
            moved = np.zeros_like(q)
            for user, items in enumerate(lists):
                error = ratings[user] - q[items] @ p[user]
                kept[user] = carried(kept[user], -2 * error[:, None] * p[user])
                p[user] = p[user] + 0.01 * error @ q[items]
                moved[items] += kept[user]
                sent = slice(round_ % 2 if dropped else 0, None)
                if round_ in rounds:
                    recorder.upload(round_, user, kept[user][sent], items[sent])
            q = q - 0.003 * moved
    table = np.zeros((USERS, ITEMS_CARRIED_ROWS))
    for user, items in enumerate(lists):
        table[user, items] = ratings[user]
    return table


def momentum(kept: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    return 0.9 * kept + gradient


def running_mean(kept: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    return 0.6 * kept + 0.4 * gradient


@pytest.mark.parametrize("carried", [running_mean])
def test_two_rounds_tell_what_was_carried(tmp_path, carried):
    """Watched from the fifth round on: each row is a sum over six factors of the client, nearly parallel.

    Read as one step they are answered, too, though not exactly; few ratings leave a client open.
    """
    table = recorded(tmp_path / "run", carried, (4, 5), dropped=False)
    found = fl.attack(tmp_path / "run", "undeclared")
    exact = found.users[found.diagnostics["misfit"] < 1e-6]
    assert exact.size >= 0.8 * USERS
    for user, _, index, value, _ in found.rows():
        here = np.isin(user, exact)
        np.testing.assert_allclose(value[here], table[user[here], index[here]], atol=1e-6)


@pytest.mark.thorough
def test_other_rounds_do_not(tmp_path):
    """Rounds that do not follow each other: nobody is read exactly."""
    recorded(tmp_path / "run", momentum, (4, 6), False)
    found = fl.attack(tmp_path / "run", "undeclared")
    assert not (found.diagnostics["misfit"] < 1e-3).any()


# Scales that clients share: of means over minibatches, and declared ones that nobody shows.


HALVES = np.arange(1, 11) / 2
SIZES = (4, 3, 5, 6, 7, 9, 12, 13, 18, 16)


def means(path, *, batch=6, declared=-2.0, whole=(0, 4, 9), used=(5.0, 3.0, 4.0, 1.0), own=None):
    """Means over minibatches times -2; some clients use a few levels alone. Returns the ratings."""
    rng, k = np.random.default_rng(2), 5
    v = rng.normal(0, 0.5, (40, k))
    ratings = np.zeros((len(SIZES), 40))
    constants = {"upload_scale": declared, "upload_regularization": 0.0}
    with fl.Recorder(path, rating_levels=HALVES, constants=constants) as recorder:
        recorder.broadcast(0, v)
        for user, n in enumerate(SIZES):
            items, u = rng.permutation(40)[:n], rng.normal(0, 0.5, k)
            r = rng.choice(HALVES, n) if user not in whole else rng.choice(used, n)
            rows = np.zeros((n, k))
            for first in range(0, n, batch):
                here = slice(first, min(first + batch, n))
                error = r[here] - v[items[here]] @ u
                by = error.size if own is None else own(n)
                rows[here] = -2 * error[:, None] / by * u
                u = u + 0.02 * error / by @ v[items[here]]
            recorder.upload(0, user, rows, items)
            ratings[user, items] = r
    return ratings


def test_means_over_minibatches_have_a_scale(tmp_path):
    """A client of four whole stars is read by the scale of means that others show, not at half of them."""
    ratings = means(tmp_path / "t")
    found = fl.attack(tmp_path / "t", "undeclared")
    answered, wrong = counted(found, ratings, HALVES)
    assert wrong == 0
    assert answered >= 0.7 * (ratings > 0).sum()
    assert 0 not in found.abstained


def test_a_declared_scale_that_others_contradict_reads_nobody(tmp_path):
    """Rows of a client are divided by the square of its ratings: declared, three of 4.5 would be 1.5."""
    ratings = means(tmp_path / "t", batch=99, own=lambda n: n**2, whole=(1,), used=(1.5, 3.0, 4.5))
    answered, wrong = counted(fl.attack(tmp_path / "t", "undeclared"), ratings, HALVES)
    assert wrong == 0
    assert answered >= 0.7 * (ratings > 0).sum()


@pytest.mark.parametrize(
    ("n_rated", "steps"),
    [
        ([2.0, 4.0, 8.0, 9.0], [1.0, 1.0, 3.0, 4.0]),  # eight ratings in fours are two steps
        ([2.0, 4.0, 2.0, 4.0], [1.0, 1.0, 1.0, 1.0]),  # all ratings in one
    ],
)
def test_no_size_of_minibatches(n_rated, steps):
    told = Told(np.array([0.5, 0.25, 0.25, 1.0]), np.array(n_rated), np.array(steps))
    shown = shown_scale(told)
    assert shown is None or shown.batch == np.inf


def test_the_scale_of_minibatches_is_open_for_uneven_ones():
    scale = Scale("mean", 2.0, 1.0, 4.0)
    np.testing.assert_array_equal(scale.of(np.array([1.0, 4.0, 6.0, 8.0])), [2.0, 0.5, np.nan, 0.5])
    assert not scale.like(Scale("mean", 2.0, 1.0))


def test_one_client_contradicts_nothing():
    one = Told(np.array([0.2]), np.array([5.0]), np.ones(1))
    assert not contradicted(Scale("sum", 1.0, 1.0), one)


# A vector that all rows of a client hold in a round hides no difference between its ratings.


USERS_COMMON_VECTOR = 8


def recorded_of_common_vector(path, rng, *, own=1.0, each=0.0, dtype=np.float64, references=False, rule=None):
    """Clients who add one draw to all of their rows in a round, or one to each."""
    q, table = rng.normal(0, 0.5, (40, 5)), np.zeros((USERS_COMMON_VECTOR, 40))
    p = rng.normal(0, 0.6, (USERS_COMMON_VECTOR, 5))
    with fl.Recorder(path, rating_levels=STARS, rule=rule or {}) as recorder:
        for round_ in range(2):
            recorder.broadcast(round_, q.astype(dtype))
            for user in range(USERS_COMMON_VECTOR):
                if not round_:
                    items = rng.permutation(40)[: rng.integers(10, 20)]
                    table[user, items] = rng.choice(STARS, items.size, p=[0.1, 0.1, 0.2, 0.3, 0.3])
                items = np.flatnonzero(table[user])
                at = q[items] + (rng.normal(0, 0.01, (items.size, 5)) if references else 0)
                at = at.astype(dtype).astype(float)
                rows = -0.3 * (table[user, items] - at @ p[user])[:, None] * p[user]
                if rule:
                    rows /= items.size
                rows += rng.laplace(0, own, 5) + rng.normal(0, each, rows.shape)
                known = {"references": at.astype(dtype)} if references else {}
                recorder.upload(round_, user, rows.astype(dtype), items, **known)
            p += rng.normal(0, 0.05, p.shape)
    return table


@pytest.mark.parametrize(
    "kinds",
    [
        {},
    ],
    ids=[
        "vector",
    ],
)
def test_differences_are_read(tmp_path, kinds):
    table = recorded_of_common_vector(tmp_path / "t", np.random.default_rng(1), **kinds)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert len(found.abstained) <= 1
    assert found.scope in (Scope.SIZES, Scope.RATINGS_AND_ATTRIBUTES)
    for block in found.blocks:
        index = np.broadcast_to(block.index, block.value.shape)
        for user, value, items in zip(block.users, block.value, index, strict=True):
            told = np.isfinite(value)
            apart, true = (part - part[:1] for part in (value[told], table[user, items[told]]))
            sizes = found.scope == Scope.SIZES
            np.testing.assert_allclose(
                *(np.abs(part) if sizes else part for part in (apart, true)), atol=1e-2
            )


@pytest.mark.thorough
def test_noise_on_each_row_is_no_common_vector(tmp_path):
    recorded_of_common_vector(tmp_path / "t", np.random.default_rng(1), each=1e-3)
    path = tmp_path / "t"
    assert not list(centred_views(fl.open_transcript(path).view("server")))
    assert len(fl.attack(path, "undeclared").abstained) == USERS_COMMON_VECTOR


def test_rows_without_one_are_left(tmp_path):
    recorded_of_common_vector(tmp_path / "t", np.random.default_rng(1), own=0.0)
    assert not list(centred_views(fl.open_transcript(tmp_path / "t").view("server")))


# Steps of a client that are hardly longer than the last digit of its rows.


SINGLE = float(np.finfo(np.float32).eps)


def passes(sizes, *, k=8, rate=5e-4, decay=0.0, batch=1, seed=0):
    """One step after every rating, or a few of them, rows in single precision; and the ratings."""
    rng = np.random.default_rng(seed)
    shape = (len(sizes), max(sizes))
    rows, factors = np.zeros((*shape, k), np.float32), np.zeros((*shape, k))
    item, ratings = np.zeros(shape, bool), np.zeros(shape)
    for user, size in enumerate(sizes):
        u, v = rng.normal(0, 0.02, k), rng.normal(0, 0.02, (size, k))
        r = rng.choice(STARS, size)
        for first in range(0, size, batch):
            here = slice(first, min(first + batch, size))
            error = r[here] - v[here] @ u
            rows[user, here] = error[:, None] * u
            u = (1 - decay) * u + rate * error @ v[here]
        factors[user, :size], item[user, :size], ratings[user, :size] = v, True, r
    order = np.where(item, np.arange(shape[1]), 0)
    none = np.zeros(shape)
    sent = rows.astype(float)
    return Rows(sent, factors, none, item, np.full(len(sizes), np.nan), SINGLE, order), ratings


def test_all_rows_together_tell_what_no_two_do():
    rows, ratings = passes([30, 40, 60], rate=2e-4)
    assert not follow(rows.rows, rows.factors, rows.item, rows.precision).whole.any()
    chain = chain_of(rows)
    assert chain.whole.all()
    root = np.sqrt(2e-4)
    value = chain.scalar / root + chain.along * root
    value *= np.sign(value.sum(axis=1))[:, None]
    np.testing.assert_allclose(value[rows.item], ratings[rows.item], atol=2e-3)
    np.testing.assert_array_equal(chain.step[2], np.arange(60))


def test_the_decay_is_fitted_where_rows_ask_for_it():
    rows, _ = passes([40, 60], rate=5e-3, decay=2e-3)
    chain, told = fitted(rows)
    assert told.all()
    np.testing.assert_allclose(chain.shrink, 1 - 2e-3, atol=2e-5)


def test_rows_of_another_rule_are_not_told():
    rows, _ = passes([30], seed=2)
    rows.rows[0, 7, 3] *= 1 + 1e-4
    assert not fitted(rows)[1].any()
    assert not chain_of(rows).whole.any()


def test_long_clients_are_judged_by_all_of_their_rows():
    """Their first rows are asked first: one breaks the rule among these, one after them, one nowhere."""
    rows, _ = passes([LONG * BEGIN + 8] * 3, rate=2e-4, seed=2)
    for user, row in ((0, 7), (1, LONG * BEGIN)):
        rows.rows[user, row, 3] *= 1 + 1e-4
    chain, told = fitted(rows)
    assert told.tolist() == [False, False, True]
    assert chain.whole.tolist() == told.tolist()


@pytest.mark.parametrize(("batch", "rate"), [(1, 5e-4), (4, 1e-4)])
def test_an_order_that_is_not_seen_is_found(batch, rate):
    """Directions name the next row less clearly than in double precision; the fit says that it is right."""
    rows, _ = passes([24, 36], k=3, rate=rate, batch=batch, seed=2)
    mixed = np.random.default_rng(0).permutation(36)
    mixed = rows._replace(**{name: getattr(rows, name)[:, mixed] for name in ("rows", "factors", "item")})
    assert not fitted(mixed)[1].any()
    assert not follow(mixed.rows, mixed.factors, mixed.item, mixed.precision).whole.all()
    chain = chain_of(mixed)
    assert chain.whole.all()
    np.testing.assert_array_equal(chain.n_steps, np.array([24, 36]) // batch)
    unseen = chain_of(mixed._replace(sequence=None))
    np.testing.assert_array_equal(unseen.step, chain.step)


def test_steps_that_are_told_already_are_left_as_they_are():
    rows, _ = passes([20], k=6, rate=0.05)
    before = follow(rows.rows, rows.factors, rows.item, rows.precision)
    assert before.whole.all()
    for one, other in zip(chain_of(rows), before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_recording_of_small_steps_is_read(tmp_path):
    """Nothing is declared; means over ratings, sixteen factors near 0, single precision."""
    rng = np.random.default_rng(5)
    table = rng.choice(STARS, (12, 60), p=(0.1, 0.1, 0.2, 0.35, 0.25)) * (rng.random((12, 60)) < 0.4)
    v = rng.normal(0, 0.03, (60, 16))
    with fl.Recorder(tmp_path / "t", rating_levels=STARS, n_items=60) as recorder:
        recorder.broadcast(0, v.astype(np.float32))
        for user, own in enumerate(table):
            items, u = np.flatnonzero(own), rng.normal(0, 0.03, 16)
            rows = np.zeros((items.size, 16))
            for number, item in enumerate(items):
                error = own[item] - u @ v[item]
                rows[number] = -2 * error * u / items.size
                u = u + 1e-3 * error * v[item]
            recorder.upload(0, user, rows.astype(np.float32), items)
    found = fl.attack(tmp_path / "t", "undeclared")
    (block,) = found.columns()
    assert block["value"].size == (table > 0).sum()
    np.testing.assert_allclose(block["value"], table[block["user"], block["index"]], atol=0.05)


def test_an_answer_that_is_kept_is_the_same_and_nobody_changes_it():
    rows, _ = passes([12, 20], rate=2e-4)
    first = chain_of(rows)
    expected = first.scalar.copy()
    first.scalar[:] = 7.0
    again, other = chain_of(rows), chain_of(rows._replace(rows=2 * rows.rows))
    np.testing.assert_array_equal(again.scalar, expected)
    assert not np.array_equal(other.scalar, expected)


def half_precision(path, *, size, mean, rng):
    """A step after every rating or minibatch, in an order of the client's own; rows in half precision."""
    v, table = rng.normal(0, 0.5, (60, 8)), np.zeros((16, 60))
    with fl.Recorder(path, rating_levels=np.arange(1, 11) / 2) as recorder:
        recorder.broadcast(0, v.astype(np.float32))
        for user in range(len(table)):
            order, u = rng.permutation(60)[: rng.integers(12, 30)], rng.normal(0, 0.5, 8)
            # every other client rates in whole stars
            table[user, order] = rng.choice(STARS if user % 2 else np.arange(1, 11) / 2, order.size)
            rows = []
            for first in range(0, order.size, size):
                here = order[first : first + size]
                error = table[user, here] - v[here] @ u
                step = 0.05 / (here.size if mean else 1)
                rows.append(2 / (here.size if mean else 1) * error[:, None] * u)
                u = u + step * error @ v[here]
            sent = np.concatenate(rows).astype(np.float16).astype(np.float32)
            recorder.upload(0, user, sent, order)
    return table


@pytest.mark.parametrize(
    ("size", "mean", "least"),
    [
        (1, False, 0.8),
    ],
    ids=[
        "per rating",
    ],
)
def test_steps_are_read_in_half_precision(tmp_path, size, mean, least):
    """No row had been taken for rounded; means of a last minibatch with one rating had halved others."""
    answered = there = 0
    for seed in range(2):
        path = tmp_path / str(seed)
        table = half_precision(path, size=size, mean=mean, rng=np.random.default_rng(seed))
        for user, _, index, value, _ in fl.attack(path, "undeclared").rows():
            np.testing.assert_allclose(value, table[user, index], atol=0.25)
            answered += value.size
        there += int((table > 0).sum())
    assert answered > least * there


# Rows of items as clients computed them: how many digits they have.


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


def answers_of_item_rows(found: fl.Reconstruction, ratings: np.ndarray) -> tuple[int, int]:
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
    told, wrong = answers_of_item_rows(fl.attack(tmp_path / "t", "undeclared"), ratings)
    assert told >= 0.98 * (ratings > 0).sum()
    assert not wrong
    assert fl.identify(tmp_path / "t").rule.items() >= {"order": "per-rating", "batch_size": 1}.items()


@pytest.mark.thorough
@pytest.mark.parametrize("upload", ["delta", "weights"])
def test_changes_in_single_precision_are_read_with_their_noise(tmp_path, upload):
    """Claims are right within 0.03, and three deviations of a mean of so many."""
    ratings = stepped(tmp_path / "t", upload, np.float32, rate=0.02)
    found = fl.attack(tmp_path / "t", "undeclared")
    answered, wrong = answers_of_item_rows(found, ratings)
    claimed = np.concatenate([np.nan_to_num(told["probability"], nan=1.0) for told in found.columns()])
    error = 3 * np.sqrt((claimed * (1 - claimed)).sum()) / claimed.size
    assert claimed.mean() - (1 - wrong / answered) <= 0.03 + error


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
    told, wrong = answers_of_item_rows(fl.attack(tmp_path / "t", "undeclared"), ratings)
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


# What is kept is the answer to the same question, and nobody can change it.


class Answer(NamedTuple):
    value: np.ndarray


def counting(size=2, depends_on=None):
    """A function that notes what it was asked."""
    asked = []

    @kept(size, depends_on)
    def doubled(rows, other=None):
        asked.append(other)
        return Answer(2 * rows)

    return doubled, asked


def test_the_same_question_is_answered_once():
    doubled, asked = counting()
    for rows in (np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(2, 6)[:, ::2] / 2):
        np.testing.assert_array_equal(doubled(rows, 1).value, 2 * rows)
    assert asked == [1]


def test_another_question_is_another():
    """Other numbers, another shape, another type of numbers, another value."""
    rows = np.zeros(4)
    doubled, asked = counting(size=9)
    for one in (rows, rows + 1, rows.reshape(2, 2), rows.astype(np.float32)):
        np.testing.assert_array_equal(doubled(one, None).value, 2 * one)
    for other in (1.0, {"a": 1}, {"a": 2}, {"a": 1}):
        doubled(rows, other)
    assert asked == [None] * 4 + [1.0, {"a": 1}, {"a": 2}]


def test_what_makes_no_difference_is_left_out():
    doubled, asked = counting(depends_on=lambda rows, other: (rows,))
    for other in (1, 2):
        doubled(np.ones(3), other)
    assert asked == [1]


def test_an_answer_that_is_changed_changes_no_other():
    doubled, _ = counting()
    for _ in range(3):
        found = doubled(np.ones(3))
        np.testing.assert_array_equal(found.value, 2.0)
        found.value[:] = 0


def test_the_oldest_answers_go_first():
    doubled, asked = counting(size=2)
    one, two, three = (np.full(1, value) for value in (1.0, 2.0, 3.0))
    for rows in (one, two, one, three, one, two):
        doubled(rows, rows.item())
    assert asked == [1.0, 2.0, 3.0, 2.0]


def test_what_is_forgotten_is_asked_again():
    doubled, asked = counting()
    for _ in range(2):
        doubled(np.zeros(3), 1)
        forget()
    assert asked == [1, 1]


# The order of a client's steps and its ratings from one round, without any constant of the step.


STEP, RIDGE = 1e-3, 1e-4
HALVES_MOVING_FACTOR = np.arange(0.5, 5.01, 0.5)


def published_pass(ratings, u, v, batch=1, pace=STEP):
    """The client of Chai et al.'s published program: u moves after every batch of ratings; rows e u."""
    rows = np.zeros_like(v)
    for start in range(0, ratings.size, batch):
        here = slice(start, start + batch)
        error = ratings[here] - v[here] @ u
        rows[here] = error[:, None] * u
        u = (1 - 2 * pace * RIDGE) * u + 2 * pace * error @ v[here]
    return rows


def clients(sizes, k, seed, batch=1):
    """Rows, factors, valid, ratings and true step of clients with shuffled lists of some lengths."""
    rng = np.random.default_rng(seed)
    n = max(sizes)
    rows, factors = np.zeros((len(sizes), n, k)), np.zeros((len(sizes), n, k))
    valid, ratings = np.zeros((len(sizes), n), bool), np.zeros((len(sizes), n))
    step = np.full((len(sizes), n), -1)
    for i, size in enumerate(sizes):
        v, r = rng.normal(0, 0.1, (size, k)), rng.choice(HALVES_MOVING_FACTOR, size)
        shuffle = rng.permutation(size)
        rows[i, :size] = published_pass(r, rng.normal(0, 0.1, k), v, batch)[shuffle]
        factors[i, :size], valid[i, :size], ratings[i, :size] = v[shuffle], True, r[shuffle]
        step[i, :size] = shuffle // batch
    return rows, factors, valid, ratings, step


def read(chain):
    """Ratings with the common number that the step fixes; the sign of a client is open."""
    root = np.sqrt(2 * STEP / (1 - 2 * STEP * RIDGE))
    value = chain.scalar / root + chain.along * root
    return value * np.sign(value.sum(axis=1))[:, None]


@pytest.mark.parametrize("k", [3, 5, 20, 100])
def test_order_and_ratings_follow_from_the_directions_of_one_round(k):
    rows, factors, valid, ratings, step = clients([2, 3, 17, 60], k, seed=k)
    chain = follow(rows, factors, valid, np.finfo(float).eps)
    assert chain.whole.all()
    np.testing.assert_array_equal(chain.step[1:], step[1:])
    np.testing.assert_allclose(read(chain)[1:][valid[1:]], ratings[1:][valid[1:]], atol=1e-6)


def test_two_rows_need_their_order_where_the_last_length_is_extrapolated():
    """Either of two rows may be first only if the other lies in its plane: it does, one way round."""
    rows, factors, valid, ratings, step = clients([2, 2], 8, seed=1)
    chain = follow(rows, factors, valid, np.finfo(float).eps, shrink=1 - 2 * STEP * RIDGE)
    np.testing.assert_array_equal(chain.step, step)
    np.testing.assert_allclose(read(chain), ratings, atol=1e-9)


def test_single_precision_is_enough():
    rows, factors, valid, ratings, step = clients([40, 25], 20, seed=3)
    chain = follow(rows.astype(np.float32).astype(float), factors, valid, float(np.finfo(np.float32).eps))
    np.testing.assert_array_equal(chain.step, step)
    assert np.abs(read(chain) - ratings)[valid].max() < 0.01


@pytest.mark.parametrize("batch", [4, 7])
def test_minibatches_are_one_step_each(batch):
    rows, factors, valid, ratings, step = clients([41, 20], 20, seed=4, batch=batch)
    chain = follow(rows, factors, valid, np.finfo(float).eps)
    np.testing.assert_array_equal(chain.step, step)
    np.testing.assert_allclose(read(chain)[valid], ratings[valid], atol=1e-6)


def test_one_direction_leaves_the_common_length_open():
    rows, factors, valid, _, _ = clients([10], 6, seed=5, batch=10)
    chain = follow(rows, factors, valid, np.finfo(float).eps)
    assert chain.n_steps.tolist() == [1]
    direction = np.linalg.svd(rows[0], full_matrices=False)[2][0]
    np.testing.assert_allclose(np.abs(chain.scalar[0]), np.abs(rows[0] @ direction), atol=1e-12)
    np.testing.assert_allclose(np.abs(chain.along[0]), np.abs(factors[0] @ direction), atol=1e-12)


def test_rows_of_strangers_make_no_chain():
    """Random rows: nothing lies in the plane of another, so next to nothing is linked."""
    rng = np.random.default_rng(6)
    rows, factors = rng.normal(size=(3, 30, 10)), rng.normal(size=(3, 30, 10))
    chain = follow(rows, factors, np.ones((3, 30), bool), np.finfo(float).eps)
    assert chain.n_steps.max() == 1
    assert not chain.whole.any()


def test_a_sequence_is_used_where_lengths_confirm_it():
    rows, factors, valid, ratings, step = clients([12], 2, seed=7)  # two factors: every row is in every plane
    chain = follow(rows, factors, valid, np.finfo(float).eps, sequence=np.where(valid, step, 0))
    assert chain.whole.all()
    np.testing.assert_array_equal(chain.step, step)
    np.testing.assert_allclose(read(chain), ratings, atol=1e-6)
    other = np.where(step < 2, 1 - step, step)  # the first two exchanged
    assert not follow(rows, factors, valid, np.finfo(float).eps, sequence=other[:, ::-1]).whole.any()


# The published program of Chai et al. 2021 at a random start, nothing declared: a step after every rating,
# and rows that hold a multiple of their factor that nobody told.


USERS_PULL_OF_STEPS, ITEMS_PULL_OF_STEPS, K_PULL_OF_STEPS = 12, 40, 4


def recorded_of_pull_of_steps(
    path, rate: float, mu: float, after: bool, dtype=np.float64, hidden: bool = False
) -> None:
    """One round of a program that steps with its factor and sends rows about the one before or after it."""
    rng = np.random.default_rng(4)
    q, p = (
        rng.normal(0, 0.3, (ITEMS_PULL_OF_STEPS, K_PULL_OF_STEPS)).astype(dtype),
        rng.normal(0, 0.3, (USERS_PULL_OF_STEPS, K_PULL_OF_STEPS)).astype(dtype),
    )
    with fl.Recorder(path, rating_levels=STARS) as recorder:
        recorder.broadcast(7, q)
        for user, start in enumerate(p):
            u = start
            items, stars = rng.permutation(ITEMS_PULL_OF_STEPS)[:16], rng.choice(STARS, 16).astype(dtype)
            rows = np.zeros((16, K_PULL_OF_STEPS), dtype)
            for first in range(16):
                here = slice(first, first + 1)
                v = q[items[here]]
                error, before = stars[here] - v @ u, u
                u = u + dtype(rate) * (2 * error @ v - dtype(2e-4) * u)
                rows[here] = rate * (-2 * error[:, None] * (u if after else before) + dtype(2 * mu) * v)
            sent = np.argsort(items) if hidden else np.arange(16)
            recorder.upload(7, user, rows[sent], items[sent])
            recorder.truth(user, items, stars)


@pytest.mark.parametrize(
    ("rate", "mu", "after", "dtype", "least", "hidden"),
    [
        (1e-2, 1e-4, True, np.float64, 0.98, False),
        (1e-3, 1e-2, False, np.float64, 0.98, False),
        (1e-2, 0.0, True, np.float32, 0.9, False),
        (1e-2, 1e-3, False, np.float32, 0.9, False),
        (1e-2, 1e-3, False, np.float64, 0.98, True),
        (1e-2, 1e-4, True, np.float64, 0.98, True),
        (3e-2, 1e-3, False, np.float32, 0.9, True),
    ],
)
def test_published_program_is_read(tmp_path, rate, mu, after, dtype, least, hidden):
    recorded_of_pull_of_steps(tmp_path / "run", rate, mu, after, dtype, hidden)
    found = fl.attack(tmp_path / "run", "undeclared")
    scores = fl.score(found, transcript=tmp_path / "run").set_index("metric")
    assert scores.loc["rated_rating_accuracy", "value"] >= least


def test_minibatches_and_noise_tell_no_multiple():
    """Rows of one minibatch are parallel but for the multiple; noise has no number in common."""
    rng = np.random.default_rng(0)
    v = rng.normal(size=(USERS_PULL_OF_STEPS, 16, K_PULL_OF_STEPS))
    there, none = np.ones((USERS_PULL_OF_STEPS, 16), bool), np.zeros((USERS_PULL_OF_STEPS, 16))
    order = np.tile(np.arange(16), (USERS_PULL_OF_STEPS, 1))
    known = Rows(
        rng.normal(size=v.shape), v, none, there, np.full(USERS_PULL_OF_STEPS, np.nan), 2.0**-52, order
    )
    assert pull_of_steps(known) is None
    assert pull_of_steps(known._replace(sequence=None)) is None
    assert pull_of_hidden_steps(known) is None
    error = rng.normal(size=(USERS_PULL_OF_STEPS, 16))
    parallel = error[..., None] * rng.normal(size=(USERS_PULL_OF_STEPS, 1, K_PULL_OF_STEPS))
    assert pull_of_steps(known._replace(rows=parallel)) is None
    told = pull_of_steps(known._replace(rows=parallel + 0.3 * v))
    assert told is not None
    assert abs(told - 0.3) < 1e-9
    assert pull_of_hidden_steps(known._replace(rows=parallel)) is None
    told = pull_of_hidden_steps(known._replace(rows=parallel + 0.3 * v))
    assert told is not None
    assert abs(told - 0.3) < 1e-9


# Noise that is the same in every round, as a program draws it that seeds its generator anew.


K_REPEATED_NOISE, ITEMS_REPEATED_NOISE, CLIENTS_REPEATED_NOISE, RATE = 6, 40, 30, 0.02
RULE_REPEATED_NOISE = {
    "rule": "sgd", "order": "batch", "local_steps": 1, "batch_size": "all", "reduction": "sum",
    "upload": "gradient", "loss": "squared", "link": "identity", "clip": "none", "start": "kept",
}  # fmt: skip


def recorded_of_repeated_noise(
    path, *, b=1.0, fresh=False, scale=-2.0, mean=False, rounds=6, seed=0, declared=None, part=1.0,
    learned=lambda stars: stars, used=None,
):  # fmt: skip
    """A stranger's federated factorisation whose clients add Laplace noise, and every rating by client.

    ``learned`` of a rating is what is learned, and ``used`` draws the levels of a client, five by default.

    In every round a client takes part with a random ``part`` of its items; the noise is of client and item.
    """
    rng = np.random.default_rng(seed)
    items, users = (
        rng.normal(0, 0.4, (n, K_REPEATED_NOISE)) for n in (ITEMS_REPEATED_NOISE, CLIENTS_REPEATED_NOISE)
    )
    lists = [
        np.sort(rng.choice(ITEMS_REPEATED_NOISE, rng.integers(6, 15), replace=False))
        for _ in range(CLIENTS_REPEATED_NOISE)
    ]
    draw = (lambda n: rng.integers(1, 6, n)) if used is None else (lambda n: rng.choice(used(rng), n))
    ratings = [draw(rated.size).astype(float) for rated in lists]
    with fl.Recorder(path, rating_levels=[1, 2, 3, 4, 5], **(declared or {})) as recorder:
        for client in range(CLIENTS_REPEATED_NOISE):
            recorder.truth(client, lists[client], ratings[client])
        for number in range(rounds):
            recorder.broadcast(number, items)
            step = np.zeros_like(items)
            for client, whole in enumerate(lists):
                now = np.random.default_rng((number, client, 1)).random(whole.size) < part
                rated, u = whole[now], users[client]
                q = items[rated]
                error = learned(ratings[client][now]) - q @ u
                rows = scale * error[:, None] * u / (rated.size if mean else 1)
                noise = np.random.default_rng((number, client) if fresh else client)
                rows += noise.laplace(0, b, (whole.size, K_REPEATED_NOISE))[now]
                recorder.upload(number, client, rows, items=rated)
                step[rated] += error[:, None] * u
                users[client] = (1 - 0.02 * RATE) * u + 2 * RATE * error @ q
            items = items + RATE / 10 * step
    return fl.open_transcript(path)


def verdict(transcript, attack):
    """Value and verdict of the rated ratings."""
    return verdict_on(fl.attack(transcript, attack), transcript)


def verdict_on(found, transcript):
    """The same of an answer."""
    scores = fl.score(found, transcript=transcript).set_index("metric")
    return scores.loc["rated_rating_accuracy", ["value", "verdict"]].tolist()


DECLARED = {"rule": RULE_REPEATED_NOISE, "constants": {"client_learning_rate": RATE, "lambda_factors": 0.01}}


@pytest.mark.parametrize(
    "program",
    [
        {},
        {"b": 10.0, "mean": True},
        {"scale": 0.01},
        {"declared": DECLARED | {"constants": DECLARED["constants"] | {"upload_scale": -2.0}}},
        {"declared": DECLARED | {"constants": DECLARED["constants"] | {"upload_scale": 1.0}}},
        {"declared": {"rule": {"rule": "semi-als"}, "constants": {"lambda_factors": 0.1}}},
    ],
    ids=["nothing declared", "mean", "little", "declared", "another scale", "another rule"],
)
def test_differences_are_free_of_it_whatever_is_declared(tmp_path, program):
    transcript = recorded_of_repeated_noise(tmp_path / "once", **program)
    assert noise_repeats(transcript.view("server"))
    value, said = verdict(transcript, "trajectory")
    assert value == 1.0
    assert said == "LEAK"


@pytest.mark.parametrize("b", [1.0, 30.0])
def test_items_in_common_are_enough_where_lists_change(tmp_path, b):
    """Nine tenths of its items by chance in every round: two thirds are in all of four, and read."""
    transcript = recorded_of_repeated_noise(tmp_path / "once", b=b, part=0.9)
    assert noise_repeats(transcript.view("server"))
    found = fl.attack(transcript, "trajectory")
    ratings = read_truth(truth_path(tmp_path / "once")).ratings.toarray()
    user, _, item, value, _ = (np.concatenate(column) for column in zip(*found.rows(), strict=True))
    assert len(found.abstained) <= 8  # those with fewer than four items in common
    assert user.size > 0.5 * (ratings > 0).sum()
    np.testing.assert_array_equal(np.round(value), ratings[user, item])


def test_fresh_noise_under_changing_lists_does_not_repeat(tmp_path):
    transcript = recorded_of_repeated_noise(tmp_path / "other", fresh=True, part=0.9)
    assert not noise_repeats(transcript.view("server"))
    assert len(fl.attack(transcript, "trajectory").abstained) == CLIENTS_REPEATED_NOISE


@pytest.mark.parametrize("program", [{"fresh": True}, {"b": 0.0}], ids=["fresh", "none"])
def test_other_noise_does_not_repeat(tmp_path, program):
    transcript = recorded_of_repeated_noise(tmp_path / "other", **program)
    assert not noise_repeats(transcript.view("server"))
    found = fl.attack(transcript, "trajectory")
    if program.get("fresh"):
        assert len(found.abstained) == CLIENTS_REPEATED_NOISE


@pytest.mark.thorough
def test_likelihood_reads_one_round_of_it(tmp_path):
    constants = DECLARED["constants"] | {"upload_scale": -2.0}
    transcript = recorded_of_repeated_noise(
        tmp_path / "once", b=0.5, declared=DECLARED | {"constants": constants}
    )
    found = fl.attack(transcript, "likelihood")
    assert found.options["rounds_read"] == [5]
    claimed = np.concatenate([block.probability[~np.isnan(block.value)] for block in found.blocks])
    assert verdict_on(found, transcript)[0] > claimed.mean() - 0.05


def test_there_is_no_ceiling_of_fresh_noise(tmp_path):
    constants = DECLARED["constants"] | {"upload_scale": -2.0}
    transcript = recorded_of_repeated_noise(tmp_path / "once", declared=DECLARED | {"constants": constants})
    assert "the same in several rounds" in obstacle(transcript.view("server"))


def test_one_round_tells_nothing(tmp_path):
    assert not noise_repeats(recorded_of_repeated_noise(tmp_path / "once", rounds=1).view("server"))


# Steps whose directions all lie in one plane.


@pytest.mark.parametrize(("seen", "dtype"), [(False, np.float64), (True, np.float32)])
def test_ratings_of_two_factors_are_read_in_an_order_that_is_seen(tmp_path, seen, dtype):
    """Each step turns the factor by a good part of itself."""
    rng = np.random.default_rng(4)
    v, table = rng.normal(0, 0.3, (60, 2)), np.zeros((8, 60))
    with fl.Recorder(tmp_path / "t", rating_levels=HALVES_MOVING_FACTOR) as recorder:
        recorder.broadcast(0, v)
        for user in range(len(table)):
            items = rng.permutation(60)[:25]
            table[user, items] = rng.choice(HALVES_MOVING_FACTOR, items.size)
            rows = published_pass(table[user, items], rng.normal(0, 0.3, 2), v[items], pace=0.02)
            order = np.arange(items.size) if seen else rng.permutation(items.size)
            recorder.upload(0, user, rows[order].astype(dtype), items[order])
    many, right = answers(fl.attack(tmp_path / "t", "undeclared"), table)
    assert right == many >= 0.8 * (table > 0).sum() * seen


# Rows that are regularised by another multiple of their items' factors than is declared.


def _declared(transcript, regularization):
    view = transcript.view("server")
    return view.declared(upload=view.manifest.upload.model_copy(update={"regularization": regularization}))


@pytest.mark.parametrize(("update", "weighting"), SCENARIOS)
@pytest.mark.parametrize(("sent", "declared"), [(0.1, 0.0), (-0.4, 0.2), (0.0, 0.3)])
def test_rows_tell_the_multiple(outside, update, weighting, sent, declared):
    reference, transcript = outside(update=update, weighting=weighting, regularization=sent)
    assert_read(Spectral().attack(_declared(transcript, declared), 0), reference)


@pytest.mark.parametrize("weighting", ["include-unrated"])
def test_solvers_take_it_off(outside, weighting):
    """The system of the rows as they were declared has a root as well, of numbers that are no ratings."""
    _, transcript = outside(weighting=weighting, regularization=0.1, lambda_factors=0.5)
    view, wrong = _declared(transcript, 0.1), _declared(transcript, 0.0)
    right, found = (Root(method="hybr", jobs=1).attack(one, 0) for one in (view, wrong))
    assert right.abstained.keys() == found.abstained.keys() < set(range(12))
    for one, other in zip(right.rows(), found.rows(), strict=True):
        np.testing.assert_allclose(one[3], other[3], atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_declared_rightly_is_left(outside, dtype):
    """What rounding leaves across the direction is no multiple of factors."""
    view = outside(dtype=dtype, regularization=0.2)[1].view("server")
    assert as_rows_say(view) == (view, "")


def _recorded(path, multiples):
    """A client for each multiple: one exact solution of its factor, twelve items."""
    rng = np.random.default_rng(1)
    q = rng.normal(0, 0.5, (30, 4))
    constants = {"lambda_factors": 0.3, "upload_scale": 1.0}
    with fl.Recorder(path, rating_levels=range(1, 6), rule=RULE, constants=constants) as recorder:
        recorder.broadcast(0, q)
        for user, pull in enumerate(multiples):
            items = np.sort(rng.permutation(30)[:12])
            stars, v = rng.integers(1, 6, 12), q[items]
            p = np.linalg.solve(v.T @ v + 0.3 * np.eye(4), v.T @ stars)
            recorder.upload(0, user, (stars - v @ p)[:, None] * p + pull * v, items)
    return fl.open_transcript(path).view("server")


def test_clients_with_multiples_of_their_own_are_not_read(tmp_path):
    view = _recorded(tmp_path / "t", 0.1 * np.arange(1, 9))
    found = Spectral().attack(view, 0)
    assert len(found.abstained) == 8
    assert "each client its own" in found.abstained[0]
    assert Root(jobs=1).attack(view, 0).abstained == found.abstained


def test_one_client_with_a_multiple_changes_nothing_for_the_others(tmp_path):
    view = _recorded(tmp_path / "t", [0.1] + [0.0] * 7)
    assert as_rows_say(view) == (view, "")
