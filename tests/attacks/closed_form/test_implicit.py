"""Positives and sampled negatives in place of ratings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.special import logit

import factorleak as fl
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.implicit.implicit_recording import OPEN_LABEL, positives_of
from attacks.closed_form.implicit.labels import Labels, aligned
from attacks.closed_form.implicit.positives import by_directions, named
from attacks.closed_form.lists.rated_set import RatedSet
from attacks.closed_form.uploads.noise_floor import without_noise
from victims.transcript.reader import open_transcript
from victims.transcript.view import View

# Recordings of implicit feedback in several rounds: positives told from negatives, in any precision.


N_CLIENTS, N_ITEMS, K = 6, 60, 4


def record(path: Path, fresh: bool, dtype: type, pull: float = 0.0) -> np.ndarray:
    """Clients of BPR with one negative for each positive, in two rounds; who used what comes back."""
    rng = np.random.default_rng(0)
    v = rng.normal(0, 0.5, (N_ITEMS, K))
    used = np.zeros((N_CLIENTS, N_ITEMS))
    for own in used:
        own[rng.choice(N_ITEMS, int(rng.integers(3, 9)), replace=False)] = 1
    p = rng.normal(0, 0.5, (N_CLIENTS, K))
    drawn = [rng.permutation(np.flatnonzero(own == 0))[: int(own.sum())] for own in used]
    with fl.Recorder(path, rating_levels=[1.0]) as recorder:
        for number in range(2):
            recorder.broadcast(number, v)
            for user, own in enumerate(used):
                a = np.flatnonzero(own)
                b = rng.permutation(np.flatnonzero(own == 0))[: a.size] if fresh else drawn[user]
                wrong = 1 / (1 + np.exp((v[a] - v[b]) @ p[user]))
                rows = np.outer(np.concatenate([-wrong, wrong]), p[user]) + pull * v[[*a, *b]]
                recorder.upload(number, user, rows.astype(dtype), np.concatenate([a, b]))
                p[user] += 0.05 * wrong @ (v[a] - v[b])
    return used


@pytest.mark.parametrize(
    ("dtype", "pull"), [(np.float64, 0.0), (np.float16, 0.0), (np.float64, 0.1), (np.float32, 0.1)]
)
def test_one_negative_for_each_positive(dtype: type, pull: float, tmp_path: Path):
    """Also of regularised rows, whose labels nobody told before."""
    used = record(tmp_path / "t", True, dtype, pull)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert not found.abstained
    for column in found.columns():
        assert (column["value"] == used[column["user"], column["index"]]).all()
        assert (column["probability"] > 0.99).all()


@pytest.mark.parametrize("attack", ["undeclared", "grid"])
def test_negatives_that_are_kept(attack: str, tmp_path: Path):
    """With the factor negated and all labels exchanged the same rows are sent."""
    record(tmp_path / "t", False, np.float64)
    assert len(fl.attack(tmp_path / "t", attack).abstained) == N_CLIENTS


def test_few_of_many_clients_are_of_labels_by_accident(tmp_path: Path):
    """Two positives and their two negatives of three clients among forty whose rows are of noise."""
    rng = np.random.default_rng(0)
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0]) as recorder:
        recorder.broadcast(0, rng.normal(size=(30, 3)))
        for user in range(40):
            error = np.array([0.5, -0.5, 0.2, -0.2]) if user < 3 else rng.normal(size=4)
            recorder.upload(0, user, error[:, None] * rng.normal(size=3), rng.choice(30, 4, replace=False))
    reasons = fl.attack(tmp_path / "t", "undeclared").abstained
    assert len(reasons) == 40
    assert OPEN_LABEL not in reasons.values()


def test_equal_factors_put_negatives_on_the_level(tmp_path: Path):
    """A step after every label, all factors equal: one length meets the level in all rows without errors."""
    rng, step = np.random.default_rng(1), 0.02
    v, p = np.full((N_ITEMS, K), 0.01), np.full((N_CLIENTS, K), 0.01)
    rule = {"rule": "sgd", "order": "per-rating", "loss": "logistic", "link": "sigmoid", "upload": "gradient"}
    constants = {"upload_scale": -1.0, "upload_regularization": 0.0, "client_learning_rate": step}
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0], rule=rule, constants=constants) as recorder:
        recorder.broadcast(0, v)
        for user in range(N_CLIENTS):
            items, rows = rng.permutation(N_ITEMS)[:20], []
            for label, item in zip([1, 0] * 10, items, strict=True):
                error = label - 1 / (1 + np.exp(-v[item] @ p[user]))
                rows.append(-error * p[user])
                p[user] += step * error * v[item]
            recorder.upload(0, user, rows, items)
    assert len(fl.attack(tmp_path / "t", "undeclared").abstained) == N_CLIENTS


def record_steps(path: Path, weight: float, noise: float) -> np.ndarray:
    """Five local steps of a loss of labels over 3 negatives for each positive; weights are sent, once."""
    rng = np.random.default_rng(3)
    v = rng.normal(0, 0.3, (N_ITEMS, K))
    used = np.zeros((12, N_ITEMS))
    for own in used:
        own[rng.choice(N_ITEMS, int(rng.integers(6, 14)), replace=False)] = 1
    with fl.Recorder(path, rating_levels=[1.0], rule={"upload": "weights"}) as recorder:
        recorder.broadcast(0, v)
        for user, own in enumerate(used):
            a = np.flatnonzero(own)
            items = rng.permutation([*a, *rng.choice(np.flatnonzero(own == 0), 3 * a.size, replace=False)])
            p, q, y = rng.normal(0, 0.6, K), v[items].copy(), own[items]
            for _ in range(5):
                x = q @ p
                error = np.where(y > 0, weight, 1.0) * (y - 1 / (1 + np.exp(-x)))
                p, q = p + 0.02 * error @ q, q + 0.02 * error[:, None] * p
            q += rng.normal(0, noise, q.shape)
            recorder.upload(0, user, q, items)
            recorder.truth(user, a, np.ones(a.size))
    return used


@pytest.mark.parametrize(
    ("weight", "noise"),
    [
        (1.0, 0.0),
        (1.5, 0.0),
    ],
)
def test_labels_lie_apart_after_several_steps(weight: float, noise: float, tmp_path: Path):
    """No two numbers explain such rows; also under noise, and with weighted positives."""
    used = record_steps(tmp_path / "t", weight, noise)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert len(found.abstained) <= 1
    for column in found.columns():
        assert (column["value"] == used[column["user"], column["index"]]).all()


def test_numbers_on_both_sides_of_zero_are_no_labels(tmp_path: Path):
    """Errors of positives alone, 1 - p q where factors are long, have either sign and any size."""
    rng = np.random.default_rng(5)
    v = rng.normal(0, 1, (N_ITEMS, K))
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0]) as recorder:
        recorder.broadcast(0, v)
        for user in range(N_CLIENTS):
            p, items = rng.normal(0, 1, K), rng.choice(N_ITEMS, 20, replace=False)
            rows = (1 - v[items] @ p)[:, None] * p + rng.normal(0, 0.01, (20, K))
            recorder.upload(0, user, rows, items)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert OPEN_LABEL not in found.abstained.values()
    assert all((column["value"] > 0).all() for column in found.columns())


def test_one_level_and_entries_that_are_zero(tmp_path: Path):
    """An `IndexError`: passes were looked for on a grid of one level."""
    rng = np.random.default_rng(7)
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0]) as recorder:
        recorder.broadcast(0, rng.normal(size=(N_ITEMS, K)))
        for user in range(N_CLIENTS):
            rows = rng.normal(size=(20, 1)) * rng.normal(size=K) + rng.normal(0, 0.1, (20, K))
            rows[rng.random(rows.shape) < 0.1] = 0
            recorder.upload(0, user, rows, rng.choice(N_ITEMS, 20, replace=False))
    assert len(fl.attack(tmp_path / "t", "undeclared").abstained) == N_CLIENTS


def test_nobody_is_told_to_have_no_positive(tmp_path: Path):
    """Sigmoids are 1: positives are moved by weight decay alone, and were called unrated."""
    rng, k, rate = np.random.default_rng(9), 32, 0.1
    v = (0.8 + rng.normal(0, 0.01, (N_ITEMS, k))).astype(np.float16).astype(float)
    p = 0.8 + rng.normal(0, 0.01, (12, k))
    used = [rng.choice(N_ITEMS, 10, replace=False) for _ in p]
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0]) as recorder:
        for number in range(2):
            recorder.broadcast(number, v)
            for user, own in enumerate(used):
                items = [*own, *rng.choice(np.setdiff1d(np.arange(N_ITEMS), own), 20, replace=False)]
                error = (np.arange(30) < 10) - 1 / (1 + np.exp(-v[items] @ p[user]))
                rows = np.zeros((N_ITEMS, k))
                rows[items] = rate * (error[:, None] * p[user] - 0.1 * v[items])
                recorder.upload(number, user, rows.astype(np.float16).astype(np.float32))
                p[user] += rate * (error @ v[items] - 0.1 * p[user])
    found = fl.attack(tmp_path / "t", "undeclared")
    answered = set(found.users.tolist()) - set(found.abstained)
    assert answered == {user for c in found.columns() for user in c["user"][c["value"] > 0].tolist()}


# Positives named by counts, rounds and other clients: lists drawn by many rules, labels exchanged at will.

LISTS = {
    "four each": {},
    "four different ones": {"distinct": True},
    "one each": {"m": 1},
    "ten each": {"m": 10, "n": (5, 20)},
    "evenly used": {"skew": 0.0},
    "drawn by popularity": {"by_popularity": 1.0},
    "one by popularity": {"m": 1, "by_popularity": 1.0},
    "one for two positives": {"m": 0.5},
    "one for seven": {"m": 1 / 7, "n": (16, 60)},
    "minibatches": {"rounds": 3, "batch": 6},
    "kept beside minibatches": {"rounds": 3, "batch": 6, "kept": True},
    "kept": {"rounds": 2, "kept": True, "m": 1, "by_popularity": 1.0},
    "two rounds by popularity": {"rounds": 2, "m": 1, "by_popularity": 1.0},
    "sides missed": {"missed": 0.05},
    "most of the catalogue": {"n_items": 90, "n": (10, 30)},
}
OPEN = {
    "one by popularity",
    "kept",
    "two rounds by popularity",
    "drawn by popularity",
    "kept beside minibatches",
}


def drawn(
    seed: int,
    *,
    n_items: int = 600,
    n: tuple[int, int] = (15, 50),
    m: float = 4,
    skew: float = 0.8,
    by_popularity: float = 0.0,
    rounds: int = 1,
    distinct: bool = False,
    kept: bool = False,
    batch: int = 50,
    missed: float = 0.0,
) -> tuple[Labels, np.ndarray]:
    """Forty clients' labels, each under a sign of its own, and the signs of the positives."""
    rng, n_clients, parts = np.random.default_rng(seed), 40, []
    share = 1 / (1 + np.arange(n_items)) ** skew
    signs = rng.choice([-1, 1], n_clients)
    for client, sign in enumerate(signs.tolist()):
        used = rng.choice(n_items, int(rng.integers(*n)), replace=False, p=share / share.sum())
        rest = np.setdiff1d(np.arange(n_items), used)
        law, other = share[rest] ** by_popularity / (share[rest] ** by_popularity).sum(), None
        for number in range(rounds):
            some = rng.permutation(used)[:batch]
            if other is None or not kept:
                if m < 1 or distinct:
                    other = rng.choice(rest, min(int(some.size * m), rest.size), replace=False, p=law)
                else:
                    other = np.unique([rng.choice(rest, int(m), replace=False, p=law) for _ in some])
            items = np.concatenate([some, other])
            turn = sign if number == 0 else rng.choice([-1, 1])
            label = np.where(np.isin(items, used), turn, -turn) * np.where(
                rng.random(items.size) < missed, -1, 1
            )
            parts.append(np.stack([np.full(items.size, client), np.full(items.size, number), items, label]))
    client, number, item, label = np.concatenate(parts, axis=1)
    sure = 30.0 if not missed else np.log((1 - missed) / missed)
    unknown = np.full(item.size, np.nan), np.ones(n_clients, bool), np.zeros((n_clients, 1))
    return aligned(Labels(client, number, item, sure * label, *unknown), n_items), signs


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("rule", LISTS)
def test_positives_are_named_or_left_open(rule: str, seed: int):
    """Nobody is named wrongly, with a chance of a hundredth each at most."""
    labels, signs = drawn(seed, **LISTS[rule])
    odds = named(labels, LISTS[rule].get("n_items", 600)).odds
    told = np.abs(odds) >= logit(BARS.sure)
    assert (np.sign(odds) == signs)[told].mean() > 0.97 if told.any() else rule in OPEN
    assert told.mean() > 0.5 or rule in OPEN | {"evenly used"}


def test_rounds_are_put_under_one_label():
    """Labels are exchanged in the second round; a round that contradicts the first is left out."""
    n, two, direction = np.zeros(8, int), np.ones(1, bool), np.zeros((1, 1))
    items = np.array([*range(8), 0, 1, 2, 3, 20, 21, 22, 23])
    for second, kept in (([-9, -9, -9, -9, 9, 9, 9, 9], 16), ([9, 9, -9, -9, 9, 9, -9, -9], 8)):
        odds = np.array([9.0] * 4 + [-9.0] * 4 + second)
        both = aligned(Labels(np.append(n, n), np.append(n, n + 1), items, odds, odds, two, direction), 50)
        assert both.item.size == kept
        assert (both.odds[:16] == np.tile([9.0] * 4 + [-9.0] * 4, kept // 8)).all()


def test_a_sign_that_all_share_is_passed_on():
    """A column of biases: of half of the clients nothing else is known."""
    rng = np.random.default_rng(0)
    sign, direction = rng.choice([-1, 1], 40), rng.normal(size=(40, 5))
    direction[:, 4] = np.abs(direction[:, 4])
    odds = by_directions(direction * sign[:, None], np.where(np.arange(40) < 20, 6.0 * sign, 0.0))
    assert (odds * sign > 2).mean() > 0.95
    assert np.abs(by_directions(rng.normal(size=(40, 5)), 6.0 * sign)).max() < 1


# Negatives drawn with repetition, several for each positive: how often items come names the positives.


def record_of_repeats(path: Path, uneven: bool) -> np.ndarray:
    """One round of ten clients with 9 of 60 items, four negatives for each, some of them twice.

    ``uneven`` positives come as often as they were used, and each negative once.
    """
    rng = np.random.default_rng(0)
    v, used = rng.normal(0, 0.02, (60, 4)), np.zeros((10, 60), bool)
    with fl.Recorder(path, rating_levels=[1.0]) as recorder:
        recorder.broadcast(0, v)
        for user, own in enumerate(used):
            own[rng.choice(60, 9, replace=False)] = True
            times = rng.integers(1, 5, 9) if uneven else np.full(9, 4)
            positive = np.repeat(np.flatnonzero(own), times)
            negative = rng.choice(np.flatnonzero(~own), positive.size, replace=not uneven)
            p = rng.normal(0, 0.3, 4)
            error = 1 / (1 + np.exp((v[positive] - v[negative]) @ p))
            rows = np.zeros((60, 4))
            np.add.at(rows, positive, -error[:, None] * p)
            np.add.at(rows, negative, error[:, None] * p)
            items = np.unique(np.concatenate([positive, negative]))
            recorder.upload(0, user, rows[items], items)
    return used


def test_positives_that_all_come_four_times(tmp_path: Path):
    used = record_of_repeats(tmp_path / "t", uneven=False)
    found = fl.attack(tmp_path / "t", "undeclared")
    columns = list(found.columns())
    user, item, value = (np.concatenate([c[name] for c in columns]) for name in ("user", "index", "value"))
    told = np.isfinite(value)
    assert ((value[told] > 0.5) == used[user[told], item[told]]).all()
    assert (used[user[told], item[told]]).sum() >= 0.9 * used.sum()


def test_positives_that_come_unevenly_are_not_named(tmp_path: Path):
    """Negatives that come once each are no positives that come equally often."""
    record_of_repeats(tmp_path / "t", uneven=True)
    found = fl.attack(tmp_path / "t", "undeclared")
    assert set(found.abstained.values()) == {OPEN_LABEL}


# What programs of implicit feedback send, and numbers that are no labels.


def sent(
    rng: np.random.Generator,
    p: np.ndarray,
    q: np.ndarray,
    used: np.ndarray,
    weights: tuple[np.ndarray, np.ndarray],
    *,
    m: int = 4,
    distinct: bool = False,
    loss: str = "cross-entropy",
    scorer: str = "dot",
    optimizer: str = "sgd",
    rate: float = 0.05,
    epochs: int = 1,
    batch: int = 10**6,
    **_: float,
) -> np.ndarray:
    """The change of a client's copy of the item factors."""
    rest, before, p, q = np.setdiff1d(np.arange(len(q)), used), q, p.copy(), q.copy()
    if distinct:
        drawn = rng.choice(rest, m * used.size, replace=False)
    else:
        drawn = np.concatenate([rng.choice(rest, m, replace=False) for _ in used])
    positive = np.repeat(used, m)
    item = positive if loss == "bpr" else np.concatenate([used, drawn])
    y = (np.arange(item.size) < used.size).astype(float)
    moments, t = [np.zeros((2, *one.shape)) for one in (p, q)], 0
    for _ in range(epochs):
        order = rng.permutation(item.size)
        for start in range(0, item.size, batch):
            some, step, t = order[start : start + batch], np.zeros_like(q), t + 1
            at = q[item[some]]
            if loss == "bpr":
                error = -1 / (1 + np.exp((at - q[drawn[some]]) @ p))
                np.add.at(step, drawn[some], -error[:, None] * p)
                row, own = error[:, None] * p, error[:, None] * (at - q[drawn[some]])
            elif scorer == "dot":
                error = 1 / (1 + np.exp(-at @ p)) - y[some]
                row, own = error[:, None] * p, error[:, None] * at
            else:
                first, last = weights
                hidden = np.concatenate([np.tile(p, (some.size, 1)), at], axis=1) @ first
                error = 1 / (1 + np.exp(-np.maximum(hidden, 0) @ last)) - y[some]
                back = (error[:, None] * last * (hidden > 0)) @ first.T
                own, row = back[:, : p.size], back[:, p.size :]
            np.add.at(step, item[some], row)
            for one, gradient, moment in (
                (p, own.mean(axis=0), moments[0]),
                (q, step / some.size, moments[1]),
            ):
                change = gradient
                if optimizer == "adam":
                    moment[0] += 0.1 * (gradient - moment[0])
                    moment[1] += 0.001 * (gradient**2 - moment[1])
                    change = moment[0] / (1 - 0.9**t) / (np.sqrt(moment[1] / (1 - 0.999**t)) + 1e-8)
                elif optimizer == "momentum":
                    change = moment[0] = 0.9 * moment[0] + gradient
                one[:] -= rate * change
    return q - before


PROGRAMS = {
    "cross-entropy": {},
    "different negatives": {"distinct": True},
    "five epochs of minibatches": {"epochs": 5, "batch": 16},
    "momentum": {"optimizer": "momentum", "epochs": 2, "batch": 32},
    "Adam, one step": {"optimizer": "adam", "rate": 0.001},
    "Adam, five epochs": {"optimizer": "adam", "rate": 0.001, "epochs": 5, "batch": 32},
    "neural": {"scorer": "neural", "batch": 16},
    "neural, Adam": {"scorer": "neural", "optimizer": "adam", "rate": 0.001, "epochs": 2, "batch": 64},
    "BPR": {"loss": "bpr", "m": 1, "batch": 8},
    "BPR, four each": {"loss": "bpr"},
    "long factors": {"size": 1.0, "epochs": 2, "batch": 16},
    "compressed": {"batch": 16, "noise": 1e-8},
}


def implicit_view(
    path: Path, program: dict, rounds: int = 1, pulled: bool = False
) -> tuple[View, np.ndarray]:
    """Forty clients in single precision, and who used what; ``pulled`` rows are about all items."""
    rng, n_items, k = np.random.default_rng(0), 600, 8
    share = 1 / (1 + rng.permutation(n_items)) ** 0.8
    q, p = (rng.normal(0, program.get("size", 0.1), (n, k)) for n in (n_items, 40))
    weights = rng.normal(0, 0.25, (2 * k, 16)), rng.normal(0, 0.5, 16)
    table = np.zeros((40, n_items), bool)
    with fl.Recorder(path, rating_levels=[1]) as recorder:
        for t in range(rounds):
            recorder.broadcast(t, q)
            for user, own in enumerate(table):
                if t == 0:
                    own[
                        rng.choice(n_items, int(rng.integers(15, 50)), replace=False, p=share / share.sum())
                    ] = True
                rows = sent(rng, p[user], q, np.flatnonzero(own), weights, **program)
                rows += np.abs(rows).max() * program.get("noise", 0.0) * rng.normal(size=rows.shape)
                if pulled and t:
                    rows -= 0.02 * np.abs(rows).max() * q
                recorder.upload(t, user, rows.astype(np.float32))
    return open_transcript(path).view("server"), table


def answered(view: View, table: np.ndarray) -> tuple[float, float, float, float]:
    """Share of the clients that are answered, F1 over all, and shares of rows that are right, and claimed."""
    found = RatedSet().attack(view, 0)
    said, claimed, right = np.zeros(table.shape, bool), [], []
    for column in found.columns():
        user, item = np.searchsorted(found.users, column["user"]), column["index"]
        positive = column["rated_probability"] > 0.5
        said[user, item] = positive
        claimed.append(column["probability"])
        right.append(positive == table[user, item])
    n_right = (said & table).sum()
    f1 = 2 * n_right / (said.sum() + table.sum())
    shares = (float(np.concatenate(one).mean()) if one else np.nan for one in (right, claimed))
    return 1 - len(found.abstained) / len(table), float(f1), *shares


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(program: str, tmp_path: Path):
    """Before, none of these but two; claims are right."""
    share, f1, right, claimed = answered(*implicit_view(tmp_path / "t", PROGRAMS[program]))
    assert share >= 0.95
    assert f1 >= 0.95
    assert abs(right - claimed) <= 0.03


def test_a_second_round_about_all_items_takes_nothing_away(tmp_path: Path):
    share, f1, _, _ = answered(*implicit_view(tmp_path / "t", {"batch": 16}, rounds=2, pulled=True))
    assert (share, f1) >= (0.95, 0.95)


def test_rows_of_noise_and_shuffled_ones_say_nothing(tmp_path: Path):
    """A hundred recordings: nobody has labels, by nats of one in 10^4 each."""
    rng = np.random.default_rng(0)
    for number in range(100):
        n, k, rank_one = int(rng.integers(4, 60)), int(rng.integers(2, 9)), number % 3
        law = (rng.normal, rng.laplace)[number % 2]
        with fl.Recorder(path := tmp_path / f"{number}", rating_levels=[1]) as recorder:
            recorder.broadcast(0, rng.normal(size=(200, k)))
            for user in range(20):
                size = law(0.5 * (rank_one == 2), 1, (n, 1)) if rank_one else law(0, 1, (n, k))
                recorder.upload(0, user, size * rng.normal(size=k), rng.choice(200, n, replace=False))
        assert positives_of(open_transcript(path).view("server")) is None


def test_rounding_noise_is_left_out(tmp_path: Path):
    """Of rows about all items those in the gap are dropped; a continuous law of sizes has none."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, 100, 4))
    rows[0, 20:] *= 1e-7
    rows[1] *= 10 ** rng.uniform(-9, 0, (100, 1))
    with fl.Recorder(tmp_path / "t", rating_levels=[1]) as recorder:
        recorder.broadcast(0, rng.normal(size=(100, 4)))
        for user, own in enumerate(rows):
            recorder.upload(0, user, own)
    left = without_noise(open_transcript(tmp_path / "t").view("server")).messages
    assert np.bincount(np.concatenate(left.sender)).tolist() == [20, 100, 100]
