"""Programs of strangers, recorded as they run: nothing about their step is declared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Scope
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from tests.attacks.closed_form.test_centres import sizes
from tests.oracles.adaptive_client import AdaptiveClient
from tests.oracles.aligned import item_answers
from tests.oracles.gap_programs import GapProgram, in_turn, largest_of_all
from tests.oracles.shuffled_passes import ShuffledPasses, made_up
from tests.oracles.shuffled_passes import recorded as recorded_in_any_order
from victims.transcript.manifest import Manifest
from victims.transcript.writer import TranscriptWriter

HALVES, STARS = np.arange(0.5, 5.01, 0.5), tuple(np.arange(1.0, 6.0))
RATE, RIDGE = 1e-3, 1e-4
USERS, ITEMS = 30, 200


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    """Half stars, 0 where unrated; client 0 has one rating, client 1 two."""
    rng = np.random.default_rng(0)
    ratings = np.where(rng.random((USERS, ITEMS)) < 0.1, rng.choice(HALVES, (USERS, ITEMS)), 0)
    ratings[0], ratings[1] = 0, 0
    ratings[0, 3], ratings[1, 5:7] = 4, (2, 3.5)
    return ratings


def recorded(path: Path, table: np.ndarray, v: np.ndarray, rows_of, dtype=np.float64, **public) -> Path:
    """One round of a program; ``rows_of`` gives what a client sends about its items, in any order."""
    k = v.shape[1]
    manifest = Manifest(
        format="factorleak-transcript", version=1, protocol="strange", update="sgd",
        weighting="observed-only", n_users=USERS, n_items=ITEMS, n_attributes=0, factors=k, rounds=[0],
        rating_levels=HALVES.tolist(), **public,
    )  # fmt: skip
    with TranscriptWriter(path, manifest) as writer:
        writer.state(0, v, np.zeros((0, k)))
        for user in range(USERS):
            items = np.random.default_rng(user).permutation(np.flatnonzero(table[user]))
            rows = rows_of(user, table[user, items], v[items])
            writer.messages(
                0, np.full(items.size, user), np.zeros(items.size, int), items, rows.astype(dtype)
            )
    return path


def after_every(batch: int, k: int, rate: float = RATE):
    """Chai et al.'s published program steps after every rating; others after some."""

    def rows(user, ratings, v):
        u = np.random.default_rng([user, 1]).normal(0, 0.1, k)
        out = np.zeros_like(v)
        for start in range(0, ratings.size, batch):
            here = slice(start, start + batch)
            error = ratings[here] - v[here] @ u
            out[here] = -2 * rate * error[:, None] * u
            u = (1 - 2 * rate * RIDGE) * u + 2 * rate * error @ v[here]
        return out

    return rows


def mean_loss(user, ratings, v):
    """A loss averaged over the client's ratings: rows are divided by how many there are."""
    u = np.random.default_rng([user, 1]).normal(0, 0.3, v.shape[1])
    return (v @ u - ratings)[:, None] * u / ratings.size


def right(found: fl.Reconstruction, table: np.ndarray) -> tuple[int, int]:
    """Answers, and how many of them are right."""
    columns = list(found.columns())
    user, item, value = (np.concatenate([c[name] for c in columns]) for name in ("user", "index", "value"))
    return user.size, int((np.abs(value - table[user, item]) < 0.25).sum())


def factors(k: int, spread: float = 0.1) -> np.ndarray:
    return np.random.default_rng(5).normal(0, spread, (ITEMS, k))


@pytest.mark.parametrize("batch", [1])
@pytest.mark.parametrize("k", [4])
def test_steps_inside_a_round(tmp_path, table, batch, k):
    """No constant, no order, one round: whoever has more ratings than one batch is read whole."""
    path = recorded(tmp_path / "t", table, factors(k), after_every(batch, k), upload={"scale": -2 * RATE})
    found = fl.attack(path, "undeclared")
    answers, good = right(found, table)
    assert good == answers
    assert answers >= (table > 0).sum() - 1 - 2 * (batch > 1)
    assert set(found.abstained) <= {0, 1}


@pytest.mark.thorough
def test_in_single_precision(tmp_path, table):
    path = recorded(
        tmp_path / "t", table, factors(20).astype(np.float32), after_every(1, 20), np.float32,
        upload={"scale": -2 * RATE},
    )  # fmt: skip
    answers, good = right(fl.attack(path, "undeclared"), table)
    assert good == answers >= 0.98 * (table > 0).sum()


@pytest.mark.parametrize("rows_of", [mean_loss, after_every(1, 8)], ids=["mean loss", "scale not told"])
def test_an_unknown_scale(tmp_path, table, rows_of):
    """Most clients tell it; with it two ratings are enough, and one is not."""
    path = recorded(tmp_path / "t", table, factors(8, 0.3), rows_of)
    found = fl.attack(path, "undeclared")
    answers, good = right(found, table)
    assert good == answers >= 0.98 * (table > 0).sum()
    assert 0 in found.abstained
    assert len(fl.attack(path, "grid").abstained) == USERS


@pytest.mark.parametrize(
    "declared",
    [
        {"rule": {"loss": "logistic", "link": "sigmoid"}},
        {"constants": {"upload_scale": -8.0}, "rule": {"upload": "delta"}},
    ],
)
def test_a_wrong_declaration_hides_nothing(tmp_path, table, declared):
    """Rows are -2 e u of one step; multiples of the ratings by 2 or 1/2 are on the grid, too."""
    q = factors(6, 0.3)
    with fl.Recorder(tmp_path / "t", rating_levels=HALVES, **declared) as recorder:
        recorder.broadcast(0, q)
        for user in range(USERS):
            (items,) = np.nonzero(table[user])
            u = np.random.default_rng([user, 1]).normal(0, 0.3, 6)
            recorder.upload(0, user, plain_step(table[user, items], q[items], u), items)
    answers, good = right(fl.attack(tmp_path / "t", "undeclared"), table)
    assert good == answers >= 0.98 * (table > 0).sum()


@pytest.mark.parametrize(
    ("dtype", "after"),
    [
        (np.float64, False),
        (np.float32, True),
        pytest.param(np.float64, True, marks=pytest.mark.thorough),
        pytest.param(np.float32, False, marks=pytest.mark.thorough),
    ],
)
def test_the_published_start_and_order_of_paper_001(tmp_path, table, dtype, after):
    """All factors 0.01, a step after every rating, rows in the client's order: their scale alone is told."""
    v = np.full((ITEMS, 20), 0.01)
    constants = {"upload_scale": -2 * RATE}
    with fl.Recorder(tmp_path / "t", rating_levels=HALVES, constants=constants) as recorder:
        recorder.broadcast(0, v.astype(dtype))
        for user in range(USERS):
            items = np.random.default_rng(user).permutation(np.flatnonzero(table[user]))
            u, rows = np.full(20, 0.01), np.empty((items.size, 20))
            for row, item in enumerate(items):
                error = table[user, item] - v[item] @ u
                moved = (1 - 2 * RATE * RIDGE) * u + 2 * RATE * error * v[item]
                rows[row] = -2 * RATE * error * (moved if after else u)  # the authors' program: after
                u = moved
            recorder.upload(0, user, rows.astype(dtype), items)
    answers, good = right(fl.attack(tmp_path / "t", "undeclared"), table)
    assert good == answers
    assert answers >= (0.98 if dtype == np.float64 else 0.9) * (table > 0).sum()


def test_multiples_of_the_ratings_need_a_scale_to_be_told(tmp_path):
    """Ratings of 2 and 4, rows divided by four: with a scale of their own they are ratings of 1 and 2, too.

    Where nobody declares it, the other clients tell the scale, and with it this one is read.
    """
    rng = np.random.default_rng(3)
    levels, q = np.arange(1.0, 6.0), rng.normal(0, 0.4, (40, 5))
    ratings = np.where(rng.random((12, 40)) < 0.4, rng.choice(levels, (12, 40)), 0)
    ratings[0] = np.where(ratings[0] > 0, rng.choice([2.0, 4.0], 40), 0)
    for name, clients in (("alone", 1), ("among others", 12)):
        with fl.Recorder(tmp_path / name, rating_levels=levels) as recorder:
            recorder.broadcast(0, q)
            for client, row in enumerate(ratings[:clients]):
                (items,) = np.nonzero(row)
                rows = plain_step(row[items], q[items], rng.normal(0, 0.4, 5), scale=0.25)
                recorder.upload(0, client, rows, items)
    assert set(fl.attack(tmp_path / "alone", "undeclared").abstained) == {0}
    answers, good = right(fl.attack(tmp_path / "among others", "undeclared"), ratings)
    assert good == answers == (ratings > 0).sum()


def test_a_plain_client_is_read_as_by_grid(tmp_path, table):
    def rows(user, ratings, v):
        u = np.random.default_rng([user, 1]).normal(0, 0.3, 8)
        return (ratings - v @ u)[:, None] * u

    path = recorded(tmp_path / "t", table, factors(8, 0.3), rows)
    mine, grid = (right(fl.attack(path, name), table) for name in ("undeclared", "grid"))
    assert mine == grid
    assert fl.attack(path, "undeclared").diagnostics["declared"][1:].all()


def plain_step(ratings, v, u, *, mean=False, scale=-2.0):
    """One gradient of the item factors; with a mean loss, divided by how many ratings there are."""
    return scale * (ratings - v @ u)[:, None] * u / (ratings.size if mean else 1)


def with_pull(rows, ratings, v):
    return rows + 0.1 * v


def with_pull_of_a_mean(rows, ratings, v):
    return rows + 0.1 / ratings.size * v


def half_precision(rows, ratings, v):
    return rows.astype(np.float16).astype(np.float32)


def eight_bits(rows, ratings, v):
    size = np.abs(rows).max() / 127
    return np.round(rows / size) * size


def clipped_as_a_whole(rows, ratings, v):
    return rows * min(1.0, 1.0 / np.linalg.norm(rows))


@pytest.mark.parametrize(
    ("change", "least", "mean"),
    [
        (with_pull, 0.98, True),
        (with_pull_of_a_mean, 0.98, False),
        (half_precision, 0.98, False),
        pytest.param(half_precision, 0.98, True, marks=pytest.mark.thorough),
        (eight_bits, 0.9, False),
        (clipped_as_a_whole, 0.98, False),
    ],
)
def test_what_programs_do_to_their_rows(tmp_path, table, change, least, mean):
    """Regularised, rounded and clipped rows, of which nothing is declared: whoever is answered is right."""

    def rows(user, ratings, v):
        u = np.random.default_rng([user, 1]).normal(0, 0.3, v.shape[1])
        return change(plain_step(ratings, v, u, mean=mean), ratings, v)

    path = recorded(tmp_path / "t", table, factors(8, 0.3), rows)
    answers, good = right(fl.attack(path, "undeclared"), table)
    assert good == answers >= least * (table > 0).sum()


@pytest.mark.thorough
def test_rows_clipped_one_by_one(tmp_path, table):
    """A clipped row tells a bound, which may leave one level; most of the 60 % others are read."""

    def rows(user, ratings, v):
        u = np.random.default_rng([user, 1]).normal(0, 0.3, v.shape[1])
        whole = plain_step(ratings, v, u)
        length = np.linalg.norm(whole, axis=1)
        return whole * np.minimum(1, np.quantile(length, 0.6) / length)[:, None]

    path = recorded(tmp_path / "t", table, factors(8, 0.3), rows)
    answers, good = right(fl.attack(path, "undeclared"), table)
    assert good == answers
    assert 0.35 < answers / (table > 0).sum() < 0.75


@pytest.mark.parametrize(
    ("steps", "rate"),
    [
        (5, 0.01),
    ],
)
def test_short_local_steps_are_nearly_one(tmp_path, table, steps, rate):
    """Changes of the factors after several small steps: one step of an unknown scale is near enough."""

    def rows(user, ratings, v):
        u, w = np.random.default_rng([user, 1]).normal(0, 0.3, v.shape[1]), v.copy()
        for _ in range(steps):
            error = ratings - w @ u
            w, u = w + rate * error[:, None] * u, u + rate * error @ w
        return w - v

    path = recorded(tmp_path / "t", table, factors(8, 0.3), rows)
    answers, good = right(fl.attack(path, "undeclared"), table)
    assert good == answers >= 0.5 * (table > 0).sum()


@pytest.mark.parametrize("of_clients", [False, True], ids=["of items", "of clients, too"])
def test_biases_that_are_broadcast(tmp_path, of_clients):
    """r = b_j + p . q_j, as everybody knows b; a client's own bias is found with the scale."""
    rng = np.random.default_rng(2)
    levels, q, bias = np.arange(1.0, 6.0), rng.normal(0, 0.3, (60, 6)), rng.normal(3.5, 0.5, 60)
    ratings = np.where(rng.random((30, 60)) < 0.25, rng.choice(levels, (30, 60)), 0)
    with fl.Recorder(tmp_path / "t", rating_levels=levels) as recorder:
        recorder.broadcast(0, q, biases=bias)
        for client, row in enumerate(ratings):
            (items,) = np.nonzero(row)
            own = rng.normal(0, 0.5) if of_clients else 0.0
            rows = plain_step(row[items] - bias[items] - own, q[items], rng.normal(0, 0.3, 6), mean=True)
            recorder.upload(0, client, rows, items)
    found = fl.attack(tmp_path / "t", "undeclared")
    answers, good = right(found, ratings)
    full = (ratings == 1).any(axis=1) & (ratings == 5).any(axis=1)
    assert good == answers
    assert answers >= 0.97 * (ratings[full] > 0).sum()
    assert "biases of the items" in fl.attack(tmp_path / "t", "grid").obstacle


@pytest.mark.thorough
def test_of_ratings_centred_at_an_unknown_number_sizes_of_differences_are_read(tmp_path, table):
    """The same ratings mirrored at their middle give the same rows."""

    def rows(user, ratings, v):
        u = np.random.default_rng([user, 1]).normal(0, 0.3, v.shape[1])
        return plain_step(ratings - 3.2, v, u)

    found = fl.attack(recorded(tmp_path / "t", table, factors(8, 0.3), rows), "undeclared")
    assert found.scope == Scope.SIZES
    many, alike = sizes(found, table)
    n_pairs = ((table > 0).sum(axis=1) ** 2).sum()
    assert alike == many > 0.9 * n_pairs


@pytest.mark.thorough
def test_rows_of_biases_are_not_read_wrong(tmp_path, table):
    """Items' biases that nobody told: no pair of numbers puts r - b on the grid."""
    bias = np.random.default_rng(8).normal(0, 0.4, ITEMS)

    def rows(user, ratings, v):
        u = np.random.default_rng([user, 1]).normal(0, 0.3, 8)
        items = np.random.default_rng(user).permutation(np.flatnonzero(table[user]))
        return (ratings - bias[items] - v @ u)[:, None] * u

    found = fl.attack(recorded(tmp_path / "t", table, factors(8, 0.3), rows), "undeclared")
    assert len(found.abstained) >= USERS / 2
    user, item, value = item_answers(found, table, HALVES)  # of few items both ends are seen
    np.testing.assert_allclose(value, table[user, item])


def test_zeros_that_are_too_few_to_be_told_contradict_nobody(tmp_path):
    """As many unrated items as rated ones, learned as 0: of short lists they had silenced everybody."""
    rng = np.random.default_rng(4)
    table, q = np.zeros((13, 60)), rng.normal(0, 0.4, (60, 5))
    with fl.Recorder(tmp_path / "t", rating_levels=range(1, 6)) as recorder:
        recorder.broadcast(0, q)
        for user in range(13):
            n = 5 if user < 3 else 12
            items, u = rng.permutation(60)[: 2 * n], rng.normal(0, 0.4, 5)
            table[user, items[:n]] = rng.choice([1, 2, 3, 4, 5], n)
            items = np.sort(items)
            recorder.upload(0, user, -2 * (table[user, items] - q[items] @ u)[:, None] * u, items)
    found = fl.attack(tmp_path / "t", "undeclared")
    many, good = right(found, table)
    assert good == many >= 2 * 12 * 10  # zeros are told as such
    assert "the program takes something off" not in " ".join(found.abstained.values())


@pytest.mark.thorough
def test_clients_who_take_turns(tmp_path):
    """Long rows, each client a batch of its own, and rounds in which nobody of a batch sends anything."""
    rng = np.random.default_rng(0)
    q = rng.normal(0, 0.3, (275, 500))
    ratings = rng.choice(HALVES, (2, 275))
    with fl.Recorder(tmp_path / "t", rating_levels=HALVES) as recorder:
        for round_, row in enumerate(ratings):
            recorder.broadcast(round_, q)
            recorder.upload(round_, round_, plain_step(row, q, rng.normal(0, 0.3, 500)), range(275))
    assert len(list(fl.open_transcript(tmp_path / "t").view("server").batches(1 << 20))) == 2
    answers, good = right(fl.attack(tmp_path / "t", "undeclared"), ratings)
    assert good == answers == ratings.size
    assert fl.identify(tmp_path / "t").n_read == 2


@pytest.mark.thorough
def test_shuffled_rows_are_not_read(tmp_path, table):
    path = recorded(tmp_path / "t", table, factors(20), after_every(1, 20), upload={"scale": -2 * RATE})
    view = fl.open_transcript(path).view("server").shuffled(3)
    assert len(fl.attack(view, "undeclared").abstained) == USERS


def test_where_it_does_not_apply(tmp_path):
    ratings = fl.synthetic(users=6, items=10, ratings_per_user=4)
    path = tmp_path / "t"
    fl.record(path, ratings, victim="fedmvmf", weighting="include-unrated", rounds=[0])
    view = fl.open_transcript(path).view("server")
    silent = view.manifest.model_copy(update={"hyperparameters": {}})
    # alpha is not needed where many rows say it, which ten items do not
    assert len(fl.attack(replace(view, manifest=silent), "undeclared").abstained) == view.users.size
    biased = {
        round_: replace(known, bias=np.ones(len(known.factors))) for round_, known in view.broadcasts.items()
    }
    found = fl.attack(replace(view, broadcasts=biased), "undeclared")
    assert found.outcome == "not applicable"
    assert "biases of the items" in found.obstacle
    for misfit in (0, np.nan, np.inf):
        with pytest.raises(fl.InputError, match="max_misfit of undeclared must be > 0"):
            fl.attack(path, "undeclared", max_misfit=misfit)


@pytest.mark.parametrize("taken_off", [0.0])
@pytest.mark.parametrize(
    ("steps", "clients"), [(1, USERS), (4, 6), pytest.param(4, 12, marks=pytest.mark.thorough)]
)
def test_programs_that_learn_numbers_from_0_to_1(tmp_path, table, steps, clients, taken_off):
    """(r - 0.5) / 4.5, or r / 5, nothing declared: who has no half star would fit a level too low as well."""
    q, table = factors(5, 0.4), table[-clients:]
    with fl.Recorder(tmp_path / "t", rating_levels=HALVES) as recorder:
        recorder.broadcast(0, q)
        for user in range(clients):
            (items,) = np.nonzero(table[user])
            u, copy = np.random.default_rng([user, 1]).normal(0, 0.4, 5), q[items]
            target = (table[user, items] - taken_off) / (5 - taken_off)
            for _ in range(steps):
                error = 0.02 * (target - copy @ u)
                copy, u = copy + error[:, None] * u, u + error @ copy
            recorder.upload(0, user, copy - q[items], items)
    for attack in ("undeclared", "inversion"):
        answers, good = right(fl.attack(tmp_path / "t", attack), table)
        assert good == answers >= 0.85 * (table > 0).sum()


@pytest.mark.parametrize("bias", [3.4])
def test_a_bias_in_the_middle_of_the_levels_leaves_the_mirror_image(tmp_path, bias):
    """r and 6 - r give the same rows where all biases are 3: distances are read; with others ratings are."""
    rng = np.random.default_rng(4)
    v = rng.normal(0, 0.3, (30, 4))
    table = rng.integers(1, 6, (8, 30)).astype(float)
    with fl.Recorder(tmp_path / "t", rating_levels=range(1, 6)) as recorder:
        recorder.broadcast(0, v, biases=np.full(30, bias))
        for user, ratings in enumerate(table):
            p, items = rng.normal(0, 0.3, 4), np.sort(rng.permutation(30)[:15])
            rows = -2 / 15 * (ratings[items] - bias - v[items] @ p)[:, None] * p
            mirrored = -2 / 15 * (2 * bias - ratings[items] - bias - v[items] @ -p)[:, None] * -p
            np.testing.assert_allclose(rows, mirrored)
            recorder.upload(0, user, rows, items)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert not found.abstained
    assert found.scope == (Scope.SIZES if bias == 3 else Scope.RATINGS_AND_ATTRIBUTES)
    for user, items, value in (
        one for block in found.blocks for one in zip(block.users, block.index, block.value, strict=True)
    ):
        told = np.isfinite(value)
        truth = table[user, items[told]]
        same = value[told] - truth
        apart = min(np.ptp(same), np.ptp(value[told] + truth)) if bias == 3 else np.abs(same).max()
        assert told.sum() == 15
        assert apart < 1e-6


def several_steps(user, ratings, v, dtype=np.float64):
    """Three steps of a client on copies of its own: how far they moved."""
    u = np.random.default_rng([user, 1]).normal(0, 0.3, v.shape[1])
    copy = v.copy()
    for _ in range(3):
        error = ratings - copy @ u
        copy, u = copy + 0.01 * error[:, None] * u, u + 0.01 * error @ copy
    return (copy - v).astype(dtype)


def test_rows_rounded_each_by_itself(tmp_path, table):
    """Eight bits of each row's largest number: parallel to the last digit, along a rounded direction.

    Lengths are exact, so that who has more ratings than factors and two is read by their span.
    """

    def rows(user, ratings, v):
        plain = mean_loss(user, ratings, v)
        top = np.abs(plain).max(axis=1, keepdims=True)
        return np.round(plain / top * 127) * top / 127

    path = recorded(tmp_path / "t", table, factors(5, 0.3), rows)
    answers, good = right(fl.attack(path, "undeclared"), table)
    read = (table > 0).sum(axis=1) > 10
    assert good == answers >= (table[read] > 0).sum()


def test_an_item_that_takes_no_part(tmp_path, table):
    """A rating that the client holds out, to know when to stop: its row is zero, and says nothing of it.

    One step more, and the others' rows are nearly parallel: what is near the grid by accident must not count.
    """

    def rows(user, ratings, v):
        out = np.zeros_like(v)
        out[1:] = several_steps(user, ratings[1:], v[1:])
        return out

    path = recorded(tmp_path / "t", table, factors(5, 0.3), rows)
    answers, good = right(fl.attack(path, "undeclared"), table)
    n_rated = (table > 0).sum(axis=1)
    assert good == answers >= (n_rated[n_rated > 10] - 1).sum()


def test_zeros_among_regularised_rows_took_no_part(tmp_path):
    """Freed of the pull of the others they were no zeros, and one of 386 answers was about such an item."""
    v = np.random.default_rng(0).normal(0, 0.5, (4, 3))
    rows = np.outer([1.0, -2.0, 0.5, 0.0], [0.1, 0.2, 0.3]) - 0.01 * v * [[1], [1], [1], [0]]
    with fl.Recorder(tmp_path / "t", rating_levels=HALVES) as recorder:
        recorder.broadcast(0, v)
        recorder.upload(0, "anna", rows, range(4))
    view = fl.open_transcript(tmp_path / "t").view("server")
    (batch,) = view.batches(BATCH_BYTES)
    found = {pull: rows_of(view.manifest, batch.rounds[0], None, pull=pull) for pull in (0.0, -0.01)}
    assert found[0.0].item.all()
    assert found[-0.01].item.tolist() == [[True, True, True, False]]
    assert not found[-0.01].rows[0, 3].any()


@pytest.mark.thorough
def test_rows_of_items_that_did_not_move(tmp_path, table):
    """A program that sends its copy of all items, nothing declared: zeros say nothing, others are read."""
    rng = np.random.default_rng(0)
    v = factors(5, 0.3)
    with fl.Recorder(tmp_path / "t", rating_levels=HALVES) as recorder:
        recorder.broadcast(0, v)
        for user in range(2, USERS):
            items = rng.permutation(np.flatnonzero(table[user]))
            copy = v.copy()
            copy[items] += several_steps(user, table[user, items], v[items])
            recorder.upload(0, user, copy, np.arange(ITEMS))
            recorder.truth(user, items, table[user, items])
    found = fl.attack(tmp_path / "t", "undeclared")
    many = [user for user in range(2, USERS) if (table[user] > 0).sum() > 10]
    assert not {found.users[user - 2] for user in many} & set(found.abstained)
    columns = list(found.columns())
    user, item, value = (np.concatenate([c[name] for c in columns]) for name in ("user", "index", "value"))
    assert (np.abs(value - table[user + 2, item]) < 0.25).all()
    lists = fl.audit_recording(tmp_path / "t", attacks="rated-set")
    assert set(lists["verdict"]) == {"NOT TESTED"}


@pytest.mark.thorough
def test_predictions_clipped_to_the_grid_leave_zeros_of_lowest_ratings(tmp_path, table):
    """Predictions below the lowest level count as it: rows are (r - 0.5) times the factor, or zeros."""

    def rows(user, ratings, v):
        u = np.random.default_rng([user, 1]).normal(0, 0.1, v.shape[1])
        return -2 * (ratings - np.clip(v @ u, 0.5, 5))[:, None] * u

    path = recorded(tmp_path / "t", table, factors(5, 0.3), rows)
    answers, good = right(fl.attack(path, "undeclared"), table)
    assert good == answers >= 0.6 * (table > 0.5).sum()


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_made_up_ratings_off_the_grid_make_no_multiples(tmp_path, dtype):
    """Scale not told: 2, 2, 2 and a mean of 2.5 are 4, 4, 4 and 5 with another scale, which nobody else has.

    Before, the first two clients were answered so.
    """
    rng = np.random.default_rng(3)
    q = rng.normal(0, 0.3, (ITEMS, 4)).astype(dtype)
    made_up = {0: [2, 2, 2, 2.5], 1: [3, 3, 3, 3, 10 / 3]}
    sent = [np.array(made_up.get(user, rng.choice(np.arange(1, 6), 8))) for user in range(USERS)]
    lists = [rng.choice(ITEMS, ratings.size, replace=False) for ratings in sent]
    with fl.Recorder(tmp_path / "t", rating_levels=np.arange(1, 6)) as recorder:
        recorder.broadcast(0, q)
        for user, (ratings, items) in enumerate(zip(sent, lists, strict=True)):
            rows = plain_step(ratings, q[items].astype(float), rng.normal(0, 0.3, 4))
            recorder.upload(0, user, rows.astype(dtype), items)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert set(found.abstained) == {0, 1}
    for user, _, index, value, _ in found.rows():
        for one, item, rating in zip(user, index, value, strict=True):
            assert abs(rating - sent[one][lists[one] == item]) < 0.1


@pytest.mark.parametrize("biased", [True])
def test_rows_of_unrated_items_are_declared_and_none_is_there(tmp_path, biased):
    """Where hardly anybody is read as declared, rows are read as the declaration would not have it."""
    rng = np.random.default_rng(3)
    levels, users, items, k = np.arange(0.5, 4.1, 0.5), 16, 40, 6
    v, u = rng.normal(0, 0.01, (items, k)), rng.normal(0, 0.01, (users, k))
    bias = biased * rng.normal(2.5, 0.3, items)
    with fl.Recorder(tmp_path / "run", rating_levels=levels, weighting="include-unrated") as recorder:
        recorder.broadcast(0, v, biases=bias if biased else None)
        for user in range(users):
            rated = rng.permutation(items)[:14]
            ratings, p, rows = rng.choice([1.0, 2.0, 3.0, 4.0], 14), u[user].copy(), np.zeros((14, k))
            if user < 6:  # these alone tell the scale, by which whole stars are not half as many
                ratings[:4] = 0.5, 2.5, 3.5, 4.0
            for number, (factor, rating) in enumerate(zip(v[rated], ratings - bias[rated], strict=True)):
                error = rating - factor @ p
                rows[number] = 0.002 * (error * p - 0.01 * factor)
                p = p + 0.001 * error * factor
            recorder.upload(0, user, rows, rated)
            recorder.truth(user, rated, ratings)
    found = fl.attack(tmp_path / "run", "undeclared")
    score = fl.score(found, transcript=tmp_path / "run").set_index("metric")
    assert not found.abstained
    assert score.loc["rated_rating_accuracy", "value"] == 1


# What exact readers are not asked for: rows that nobody publishes, or that the noise term reads.


def sparsified_in_turn(path: Path) -> np.ndarray:
    """Half of the entries, of rows that a factor moved between."""
    return GapProgram(in_turn, largest_of_all, 0.5, n_users=6, levels=STARS).record(path)


def steps_of_adam(path: Path) -> np.ndarray:
    """Two over all ratings; ``inversion`` reads them."""
    return AdaptiveClient().recorded(path, 6, 0)


def one_step_from_equal_factors(path: Path) -> np.ndarray:
    """Over all ratings, where users start as items do."""
    rng, v, ratings = np.random.default_rng(1), np.full(4, 0.1), np.zeros((6, 60))
    with fl.Recorder(path, rating_levels=STARS) as recorder:
        recorder.broadcast(0, np.tile(v, (60, 1)))
        for user, own in enumerate(ratings):
            rated = rng.choice(60, 12, replace=False)
            own[rated] = rng.choice(STARS, 12)
            recorder.upload(0, user, -0.013 * (own[rated] - v @ v)[:, None] * v, rated)
    return ratings


@pytest.mark.parametrize(
    "program",
    [sparsified_in_turn, steps_of_adam, one_step_from_equal_factors],
)
def test_what_no_reader_is_for_is_left_open(tmp_path, program):
    ratings = program(tmp_path / "t")
    assert len(fl.attack(tmp_path / "t", "undeclared").abstained) == len(ratings)


@pytest.mark.parametrize(
    "client",
    [
        pytest.param(ShuffledPasses(0.01, passes=5), marks=pytest.mark.thorough),
        ShuffledPasses(0.01, batch=8),
        pytest.param(ShuffledPasses(0.05, batch=32, mean=True), marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_shuffled_passes_are_read_with_noise(tmp_path, client):
    """Short steps in any order, and a smaller last minibatch: nearly all ratings, claims as right as said."""
    data = made_up(12, 300, factors=8, seed=1)
    ratings = recorded_in_any_order(tmp_path / "t", client, data, range(12), 2)
    found = fl.attack(tmp_path / "t", "undeclared")
    answers, good = right(found, ratings)
    assert good >= 0.97 * (ratings > 0).sum()
    claims = np.concatenate([columns["probability"] for columns in found.columns()])
    assert abs(np.nanmean(claims) - good / answers) <= 0.03
