"""Positives and sampled negatives in place of ratings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.centres.unmirrored import SURE
from attacks.closed_form.implicit.implicit_recording import OPEN_LABEL
from attacks.closed_form.implicit.positives import by_numbers, by_others, named
from attacks.closed_form.implicit.repeats import nats_of, repeats_of
from attacks.closed_form.implicit.sides import Sides, joined
from attacks.closed_form.links.label_split import sides

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


@pytest.mark.parametrize("n", [4000])
def test_long_lists(n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One step of clients who list many items: before, rows squared were asked for, 75 GB of 100,000."""
    monkeypatch.setattr("attacks.closed_form.implicit.implicit_recording.follow", None)
    rng = np.random.default_rng(0)
    v = rng.normal(0, 0.5, (n, 2))
    used = rng.random((3, n)) < [[0.1], [0.2], [0.3]]
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0]) as recorder:
        recorder.broadcast(0, v)
        for user, own in enumerate(used):
            p = rng.normal(size=2)
            recorder.upload(0, user, (1 / (1 + np.exp(-v @ p)) - own)[:, None] * p, np.arange(n))
    assert set(fl.attack(tmp_path / "t", "undeclared").abstained.values()) == {OPEN_LABEL}


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


@pytest.mark.parametrize("labels", [False, True])
def test_a_few_are_asked_before_all_are(labels: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Sixty clients: where none of those who are asked has two labels, nobody else is looked at."""
    rng, asked = np.random.default_rng(0), []
    with fl.Recorder(tmp_path / "t", rating_levels=[1.0]) as recorder:
        recorder.broadcast(0, v := rng.normal(0, 0.5, (N_ITEMS, K)))
        for user in range(60):
            p, items = rng.normal(0, 0.5, K), rng.choice(N_ITEMS, 12, replace=False)
            wrong = 1 / (1 + np.exp(-v[items] @ p)) - (np.arange(12) < 5)
            noise = 0.0 if labels else rng.normal(0, 1.0, (12, K))
            recorder.upload(0, user, wrong[:, None] * p + noise, items)

    def counted(scalar: np.ndarray, *rest: object) -> tuple[np.ndarray, np.ndarray]:
        asked.append(scalar.shape[0])
        return sides(scalar, *rest)

    monkeypatch.setattr("attacks.closed_form.implicit.implicit_recording.sides", counted)
    reasons = fl.attack(tmp_path / "t", "undeclared").abstained
    assert (max(asked) == 60) == labels
    assert (OPEN_LABEL in reasons.values() or len(reasons) < 60) == labels


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


# Positives named by numbers, rounds and others: lists drawn by the model's own rules, and by others.


def lists(
    rng: np.random.Generator, n_clients: int, n_items: int, each: int, by_popularity: bool = False
) -> tuple[list[Sides], np.ndarray]:
    """Clients who use few of many items, and draw negatives: their sides, and the positives' sign."""
    popularity = rng.gamma(0.3, size=n_items)
    clients, signs = [], rng.choice([-1, 1], n_clients)
    for sign in signs:
        used = rng.choice(n_items, 12, replace=False, p=popularity / popularity.sum())
        rest = np.setdiff1d(np.arange(n_items), used)
        law = popularity[rest] / popularity[rest].sum() if by_popularity else None
        drawn = rng.choice(rest, 12 * each, replace=False, p=law)
        label = np.repeat([sign, -sign], [12, drawn.size])
        clients.append(joined([(np.concatenate([used, drawn]), label)], n_items))
    return clients, signs


def test_others_tell_where_negatives_are_drawn_evenly():
    """All who are told are right, but for a chance of a hundredth each, at most."""
    clients, sign = lists(np.random.default_rng(1), 150, 300, 1)
    found = named(clients, 300)
    told = found.probability >= SURE
    assert told.mean() > 0.5
    assert (found.positive == sign)[told].all()


@pytest.mark.parametrize("seed", range(3))
def test_draws_by_popularity_tell_nothing(seed: int):
    clients, _ = lists(np.random.default_rng(seed), 150, 300, 1, by_popularity=True)
    assert (named(clients, 300).probability < SURE).all()


@pytest.mark.parametrize("each", [2, 3])
def test_a_negative_for_several_positives_is_not_the_other_way_round(each: int):
    """Of a program that leaves out positives that do not divide. Before: all were told wrongly."""
    rng, clients, signs = np.random.default_rng(5), [], []
    popularity = rng.gamma(0.3, size=300)
    for _ in range(40):
        n = int(rng.integers(2, 9))
        used = rng.choice(300, each * n, replace=False, p=popularity / popularity.sum())
        drawn = rng.choice(np.setdiff1d(np.arange(300), used), n, replace=False)
        signs.append(int(rng.choice([-1, 1])))
        label = np.repeat([signs[-1], -signs[-1]], [used.size, n])
        clients.append(joined([(np.concatenate([used, drawn]), label)], 300))
    assert (by_numbers(clients, 300).positive == -np.array(signs)).all()
    found = named(clients, 300)
    told = found.probability >= SURE
    assert (found.positive == signs)[told].all()


def test_numbers_of_labels_do_not_say_which_is_which():
    """About five negatives for each positive, as of draws with repetition: before, some were told wrongly."""
    clients, sign = lists(np.random.default_rng(2), 120, 400, 5)
    some = [
        one._replace(item=one.item[:-3], sign=one.sign[:-3], counts=one.counts - [[1, 2]]) for one in clients
    ]
    odds = by_others(some, np.zeros(120, int), 400)
    told = np.abs(odds) > 5
    assert told.mean() > 0.5
    assert (np.sign(odds) == sign)[told].all()


def test_lists_of_most_of_the_catalogue_tell_nothing():
    """Half of the positives are not seen, nearly all else is: without the rule 19 of 60 are told wrongly."""
    rng = np.random.default_rng(3)
    clients, _ = lists(rng, 60, 90, 6)
    seen = [one._replace(item=one.item[6:], sign=one.sign[6:]) for one in clients]
    assert not by_others(seen, np.zeros(60, int), 90).any()


@pytest.mark.parametrize(("kept", "told"), [(True, False), (False, True)])
def test_negatives_that_are_kept_beside_minibatches_are_no_positives(kept: bool, told: bool):
    """Negatives drawn once, and half of the positives in each round: before, all were the other way round."""
    rng, clients = np.random.default_rng(0), []
    for _ in range(30):
        items = rng.permutation(300)
        rounds = []
        for _ in range(3):
            fresh = rng.choice(items[:12] if kept else items[40:], 6, replace=False)
            rounds.append((np.concatenate([fresh, items[20:28]]), np.repeat([1, -1], [6, 8])))
        clients.append(joined(rounds, 300))
    assert all(one.lasting < -50 for one in clients)
    found = named(clients, 300)
    assert (found.probability >= SURE).all() == told
    assert told or (found.probability == 0.5).all()


@pytest.mark.parametrize(
    ("drawn_of", "twice", "told"),
    [(slice(300), True, False), (slice(300), False, False), (slice(308, None), True, True)],
    ids=["a minibatch of 37", "none of them twice", "negatives of all others"],
)
def test_small_minibatches_are_told_from_negatives_by_those_who_come_again(
    drawn_of: slice, twice: bool, told: bool
):
    """Eight of 300 positives in each round beside kept negatives: before, all were the other way round."""
    rng, clients = np.random.default_rng(0), []
    for _ in range(60):
        items = rng.permutation(2000)
        fresh = rng.permutation(items[drawn_of])
        sent = [rng.choice(fresh, 8, replace=False) if twice else fresh[8 * t : 8 * t + 8] for t in range(3)]
        rounds = [(np.concatenate([own, items[300:308]]), np.repeat([1, -1], 8)) for own in sent]
        clients.append(joined(rounds, 2000))
    found = named(clients, 2000)
    assert (found.probability >= SURE).all() == told
    assert told or (found.probability < SURE).all()


def of_sizes(sizes: list[tuple[int, int]]) -> list[Sides]:
    """Clients with so many items of label 1 and of label -1."""
    return [joined([(np.arange(a + b), np.repeat([1, -1], [a, b]))], 100) for a, b in sizes]


def test_numbers():
    """Two negatives for each positive; as many of both tell nothing."""
    told = by_numbers(of_sizes([(n, 2 * n) for n in range(3, 11)]), 100)
    assert (told.positive == 1).all()
    assert (told.probability == 1 - 2.0**-8).all()
    assert not by_numbers(of_sizes([(n, n) for n in range(3, 11)]), 100).positive.any()
    assert not by_numbers(of_sizes([(n, 2 * n) for n in range(3, 8)]), 100).positive.any()  # by chance


@pytest.mark.parametrize("n", [[20] * 12, [*range(8, 20)]], ids=["all alike", "half of them even"])
def test_a_negative_for_every_two_positives_is_not_taken_for_two_each(n: list[int]):
    """Before, the negatives were called positives, for sure."""
    assert not by_numbers(of_sizes([(one, one // 2) for one in n]), 100).positive.any()


def test_rounds():
    """Positives last, negatives are drawn again; where both last nothing is told, nor by one round."""
    first = np.arange(8), np.repeat([1, -1], 4)
    again = np.array([0, 1, 2, 3, 20, 21, 22, 23]), np.repeat([-1, 1], 4)  # all labels exchanged
    both = joined([first, again], 50)
    assert both.lasting > 10
    assert dict(zip(both.item.tolist(), both.sign.tolist(), strict=True))[22] == -1
    assert joined([first, first], 50).lasting == joined([first], 50).lasting == 0
    contradicting = first[0], np.array([1, 1, -1, -1, 1, 1, -1, -1])
    assert len(joined([first, contradicting], 50).counts) == 1


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


@pytest.mark.parametrize("seed", range(5))
def test_sizes_of_a_trained_model_are_no_multiples(seed):
    rng = np.random.default_rng(seed)
    g = np.concatenate([rng.uniform(0.2, 1, 8), -rng.uniform(0.2, 1, 24)])
    assert repeats_of(g, g > 0) == (0, 0)


def test_how_improbable_equal_draws_are():
    """Of four draws of two items, 6 of 16 hit both twice."""
    assert nats_of(2, 2) == pytest.approx(np.log(16 / 6))
