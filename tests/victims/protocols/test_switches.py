"""Every victim under the switches, against independent programs that go client by client."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audit.factories import make_defenses, make_victim
from tests.oracles.client_programs import Program
from tests.oracles.local_programs import Client
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.evaluation.rating_error import predictions
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.training import sent_rows, start
from victims.transcript.reader import open_transcript

FEDMF = FedMF(
    factors=4, client_learning_rate=0.01, lambda_factors=0.2, item_regularization=0.3, init_scale=0.4
)
MF = DecentralisedMF(factors=4, learning_rate=0.01, regularization=0.05, init_scale=0.4)
SGD = FedMVMF("sgd", factors=4, client_learning_rate=2e-3, lambda_factors=0.2, init_scale=0.4)
PLAIN = {
    "fedmf": Client(0.01, 0.2, -0.02, 0.006, 0.3),
    "mf": Client(0.01, 0.05, -2.0, unit_ball=True),
    "mf each": Client(0.01, 0.05, -2.0, ridge_per_rating=True, unit_ball=True),
    "fedmvmf": Client(2e-3, 0.2, attributes=1.0),
    "include-unrated": Client(2e-3, 0.2, attributes=1.0),
}
VICTIMS = {
    "fedmf": FEDMF,
    "mf": MF,
    "mf each": replace(MF, regularize="sample"),
    "fedmvmf": SGD,
    "include-unrated": replace(SGD, weighting="include-unrated"),
}
SWITCHES = {
    "per-rating": {"order": "per-rating"},
    "minibatches": {"batch_size": 5},
    "mean of minibatches": {"batch_size": 5, "reduction": "mean"},
    "mean": {"reduction": "mean"},
    "local steps": {"local_steps": 3},
    "change of copies": {"local_steps": 3, "upload": "delta"},
    "copies": {"local_steps": 2, "batch_size": 4, "upload": "weights"},
    "after": {"order": "per-rating", "row_factor": "after"},
    "biases": {"batch_size": 3, "biases": "both"},
    "moving biases": {"local_steps": 2, "biases": "items", "upload": "delta"},
}


@pytest.fixture(scope="module")
def ratings():
    """20 users with as few as one rating: few sizes, so that little is compiled."""
    return generate(Synthetic(users=20, items=24, ratings_per_user=7.0, single=0.1, seed=3))


def program(name: str, switches: dict) -> Client:
    """The program with the switches of a victim."""
    return replace(
        PLAIN[name],
        local_steps=switches.get("local_steps", 1),
        batch_size=1 if switches.get("order") else switches.get("batch_size"),
        mean=switches.get("reduction") == "mean",
        upload=switches.get("upload", "gradient"),
        after=switches.get("row_factor") == "after",
        own_bias=switches.get("biases") == "both",
        item_bias="biases" in switches,
    )


def victim_of(name: str, switches: dict):
    """A victim; for mf, per-rating order of the clients is batch_size=1."""
    given = dict(switches)
    if name.startswith("mf") and given.pop("order", None):
        given["batch_size"] = 1
    return replace(VICTIMS[name], **given)


def one_client(name, switches, run, user):
    """The round of a client of the program."""
    ratings, victim = run.ratings, run.victim
    own = slice(*ratings.indptr[user : user + 2])
    items, attributes = victim.broadcast(run.state)
    index, value, weight = ratings.items[own], ratings.values[own], np.ones(own.stop - own.start)
    if name == "include-unrated":
        index, value = np.arange(ratings.n_items), ratings.matrix()[[user]].toarray()[0]
        weight = np.where(value > 0, 1, victim.alpha)
    biases = run.state.biases
    beside = np.zeros(len(items)) if biases is None else biases.items
    return index, program(name, switches).round(
        run.user_factors(0)[user],
        0.0 if biases is None else biases.clients[user],
        items[index],
        beside[index],
        value,
        weight,
        np.arange(index.size),
        ratings.attributes[user][: len(attributes)],
        attributes,
    )


# every switch with one victim, every victim with the switches that its own code looks at
LOOKED_AT = {
    "fedmf": set(SWITCHES) - {"per-rating", "biases", "minibatches"},  # of mf, too
    "mf": {"per-rating", "minibatches", "mean", "biases", "moving biases"},
    "mf each": {"minibatches"},
    "fedmvmf": {"copies", "biases", "moving biases"},
    "include-unrated": {"mean", "copies", "biases"},
}


@pytest.mark.parametrize(
    ("name", "switches"),
    [
        pytest.param(name, switches, id=f"{name}-{which}")
        for name in VICTIMS
        for which, switches in SWITCHES.items()
        if which in LOOKED_AT[name]
    ],
)
def test_rounds_are_those_of_an_independent_program(ratings, name, switches):
    run = start(victim_of(name, switches), ratings, (), 3)
    for number in range(2):
        sent = list(sent_rows(run, np.arange(ratings.n_users), number))
        sender, kind, at, rows = (
            np.concatenate([getattr(part, field) for part in sent])
            for field in ("sender", "kind", "index", "gradient")
        )
        expected = []
        total, bias = np.zeros((ratings.n_items, 4)), np.zeros(ratings.n_items)
        for user in range(ratings.n_users):
            index, done = one_client(name, switches, run, user)
            expected.append(done)
            mine = sender == user
            np.testing.assert_array_equal(at[mine & (kind == 0)], index)
            np.testing.assert_allclose(rows[mine & (kind == 0)], done.rows[:, :4], atol=1e-10)
            np.testing.assert_allclose(rows[mine & (kind == 1)], done.attribute_rows, atol=1e-10)
            np.add.at(total, index, done.rows[:, :4])
            np.add.at(bias, index, done.rows[:, 4])
        after = run.trained(number)
        if switches != SWITCHES["mean"] or not name.startswith("mf"):
            found = after.user_factors(number + 1)
            np.testing.assert_allclose(found, [done.own for done in expected], atol=1e-10)
        if name == "fedmf" and "upload" in switches:
            counts = np.bincount(at, minlength=ratings.n_items)
            if switches["upload"] == "weights":
                total = total - counts[:, None] * run.state.item_factors
            np.testing.assert_allclose(after.state.item_factors, run.state.item_factors + total, atol=1e-10)
        elif name == "fedmf":
            np.testing.assert_allclose(after.state.item_factors, run.state.item_factors - total, atol=1e-10)
        if switches.get("biases") == "both":
            found = after.state.biases.clients
            np.testing.assert_allclose(found, [done.bias for done in expected], atol=1e-10)
            change = 2 * program(name, switches).rate * bias
            if name != "fedmf":
                np.testing.assert_allclose(
                    after.state.biases.items - run.state.biases.items, change, atol=1e-10
                )
        run = after


class InOrder:
    """In place of a generator: clients go through their ratings as they are."""

    permutation = staticmethod(np.arange)


@pytest.mark.parametrize(
    ("rule", "switches"),
    [
        ("sgd", {"batch_size": 10_000}),
        ("sgd-mean", {"reduction": "mean"}),
        ("per-rating", {"order": "per-rating"}),
    ],
)
def test_rows_are_those_of_the_programs_that_attacks_are_tested_with(ratings, rule, switches):
    """``tests.oracles.client_programs``: its clients and these take the same steps."""
    victim = replace(FEDMF, item_regularization=0.0, **switches)
    run = start(victim, ratings, (), 1)
    stated = Program(rule, rate=0.01, ridge=0.2, scale=-0.02)
    rows = np.concatenate([part.gradient for part in sent_rows(run, np.arange(ratings.n_users), 0)])
    after, items = run.trained(0), victim.broadcast(run.state)[0]
    for user in range(ratings.n_users):
        own = slice(*ratings.indptr[user : user + 2])
        expected, factor = stated.step(
            InOrder(), run.user_factors(0)[user], ratings.values[own], items[ratings.items[own]]
        )
        np.testing.assert_allclose(rows[own], expected, atol=1e-10)
        np.testing.assert_allclose(after.user_factors(1)[user], factor, atol=1e-10)


@pytest.mark.parametrize("victim", [FEDMF, MF, SGD], ids=str)
def test_switches_that_change_nothing_change_nothing(ratings, victim):
    """The general path against the published one."""
    runs = [start(v, ratings, (), 1) for v in (victim, replace(victim, participation=1 - 1e-9))]
    for number in range(3):
        rows = [[p.gradient for p in sent_rows(run, np.arange(20), number)] for run in runs]
        np.testing.assert_allclose(*map(np.concatenate, rows), atol=1e-12)
        runs = [run.trained(number) for run in runs]
        for name in ("item_factors", "client_factors"):
            np.testing.assert_allclose(*(getattr(run.state, name) for run in runs), atol=1e-10)


@pytest.mark.thorough
@pytest.mark.parametrize("victim", [FEDMF, replace(MF, order="per-rating")], ids=str)
def test_some_take_part_and_some_are_lost(ratings, victim):
    partial = replace(victim, participation=0.5, dropout=0.2)
    run = start(partial, ratings, (), 1)
    seen = []
    for number in range(2):
        heard = {int(s) for rows in sent_rows(run, np.arange(20), number) for s in rows.sender}
        after = run.trained(number)
        moved = np.flatnonzero((after.user_factors(number + 1) != run.user_factors(number)).any(axis=1))
        assert len(heard) == 8
        assert heard < set(moved.tolist())
        assert moved.size == 10
        seen.append(heard)
        run = after
    assert seen[0] != seen[1]


def test_what_is_lost_does_not_reach_the_server(ratings):
    """V moves by the rows that are heard, and by them alone."""
    run = start(replace(FEDMF, participation=0.3, dropout=0.5), ratings, (), 1)
    rows = list(sent_rows(run, np.arange(20), 0))
    total = np.zeros((ratings.n_items, 4))
    for part in rows:
        np.add.at(total, part.index, part.gradient)
    np.testing.assert_allclose(run.trained(0).state.item_factors, run.state.item_factors - total, atol=1e-12)


@pytest.mark.parametrize("shuffle", ["once", "rounds"])
def test_sequences_tell_the_order_of_the_steps(ratings, tmp_path, shuffle):
    victim = replace(FEDMF, order="per-rating", shuffle=shuffle)
    record(victim, ratings, tmp_path / "t", rounds=[0, 1], seed=2)
    view = open_transcript(tmp_path / "t").view("server")
    run, orders = start(victim, ratings, (), 2), []
    user = int(np.argmax(np.diff(ratings.indptr)))
    for number in range(2):
        uploads = view.batch(np.array([user])).rounds[number]
        order = np.argsort(uploads.sequence[0])
        _, done = one_client_in(run, user, order)
        np.testing.assert_allclose(uploads.gradients[0], done.rows[:, :4], atol=1e-10)
        orders.append(order.tolist())
        run = run.trained(number)
    assert sorted(orders[0]) == list(range(len(orders[0]))) != orders[0]
    assert (orders[0] == orders[1]) == (shuffle == "once")


def one_client_in(run, user, order):
    """FedMF's client in an order of its own."""
    own = slice(*run.ratings.indptr[user : user + 2])
    index, items = run.ratings.items[own], run.victim.broadcast(run.state)[0]
    none = np.zeros(0), np.zeros((0, 4))
    stated = program("fedmf", {"order": "per-rating"})
    p, r = run.user_factors(0)[user], run.ratings.values[own]
    return index, stated.round(
        p, 0.0, items[index], np.zeros(index.size), r, np.ones(index.size), order, *none
    )


@pytest.mark.thorough
@pytest.mark.parametrize("defense", ["none", "objective-noise:noise=fresh"])
def test_rows_of_paper_002s_program_have_references(ratings, tmp_path, defense):
    """Each message is about the item's factor of its moment; these chain from broadcast to broadcast."""
    victim, defenses = replace(MF, order="per-rating"), make_defenses(defense)
    record(victim, ratings, tmp_path / "t", rounds=[0, 1], defenses=defenses, seed=2)
    view = open_transcript(tmp_path / "t").view("server")
    round_, index = (np.concatenate(part) for part in (view.messages.round, view.messages.index))
    met, rows = (np.concatenate(part) for part in (view.messages.reference, view.messages.gradient))
    now, later = (view.broadcasts[number].factors for number in (0, 1))
    for item in np.unique(index):
        here = (round_ == 0) & (index == item)
        stepped = met[here] - 0.01 * (rows[here] + 2 * 0.05 * met[here])
        links = [now[item], *stepped]
        for factor in (*met[here], later[item]):  # each follows from the start or from another one
            assert min(np.abs(link - factor).max() for link in links) < 1e-9
    if defense == "none":
        sender = np.concatenate(view.messages.sender)[round_ == 0]
        u = start(victim, ratings, (), 2).user_factors(0)[sender]
        value = np.asarray(ratings.matrix()[sender, index[round_ == 0]]).ravel()
        error = np.einsum("rk,rk->r", u, met[round_ == 0]) - value
        np.testing.assert_allclose(rows[round_ == 0], 2 * error[:, None] * u, atol=1e-10)


def test_manifests_declare_the_rule(ratings):
    victim = replace(FEDMF, local_steps=3, upload="delta", reduction="mean")
    manifest = victim.manifest(ratings, [0])
    rule = manifest.rule
    assert manifest.version == 2
    assert (rule.rule, rule.order, rule.local_steps, rule.batch_size) == ("sgd", "batch", 3, "all")
    assert (rule.reduction, rule.upload, rule.moves_items, rule.start) == ("mean", "delta", True, "kept")
    assert manifest.upload.scale == pytest.approx(0.02)
    assert manifest.upload.regularization == pytest.approx(-0.006)
    assert FEDMF.manifest(ratings, [0]).version == 1
    after = replace(FEDMF, order="per-rating", row_factor="after").manifest(ratings, [0])
    assert after.rule.beyond == ("row_factor",)
    dropping = replace(MF, upload="delta", epochs=4)
    assert dropping.manifest(ratings, [1, 2]).scale_known
    assert not dropping.manifest(ratings, [0, 1]).scale_known


@pytest.mark.parametrize(
    ("name", "switches"),
    [("fedmf", SWITCHES[which]) for which in ("mean of minibatches", "change of copies", "after", "biases")]
    + [(name, SWITCHES[which]) for name in ("mf", "fedmvmf") for which in ("copies", "biases")],
)
def test_recordings_are_read_back(ratings, tmp_path, name, switches):
    victim = victim_of(name, switches)
    record(victim, ratings, tmp_path / "t", rounds=[1], users=[3, 7], seed=2)
    transcript = open_transcript(tmp_path / "t")
    assert transcript.manifest.version == 2
    assert transcript.manifest.rule == victim.manifest(ratings, [1]).rule
    view = transcript.view("server")
    assert (view.broadcasts[1].bias is not None) == ("biases" in switches)
    assert view.users.tolist() == [3, 7]


def test_biases_learn(ratings):
    victim = replace(FEDMF, biases="both", client_learning_rate=3e-3)
    run = start(victim, ratings, (), 0)
    before = np.mean((predictions(run, ratings) - ratings.values) ** 2)
    for number in range(100):
        run = run.trained(number)
    assert (
        np.mean((predictions(run, ratings) - ratings.values) ** 2) < min(before, ratings.values.var()) * 0.8
    )


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("fedmf", {"local_steps": "0"}, "local_steps of fedmf must be between 1 and"),
        ("fedmf", {"batch_size": "0"}, "batch_size of fedmf must be all, or between 1 and"),
        ("mf", {"participation": "0"}, r"participation of decentralised_mf must be in \(0, 1\]"),
        ("fedmvmf", {"dropout": "1"}, r"dropout of fedmvmf must be in \[0, 1\)"),
        ("fedmf", {"order": "per-rating", "batch_size": "5"}, "use batch_size=all"),
        ("fedmf", {"shuffle": "once"}, "use shuffle=never"),
        ("fedmf", {"upload": "delta", "row_factor": "after"}, "use row_factor=before"),
        ("fedmvmf", {"local_steps": "2"}, "update=sgd has steps; got 2; use local_steps=1"),
        ("mf", {"order": "per-rating", "upload": "delta"}, "use upload=gradient"),
        ("mf", {"order": "per-rating", "biases": "items"}, "use biases=none"),
    ],
)
def test_what_makes_no_sense_is_refused(name, options, message):
    with pytest.raises(InputError, match=message):
        make_victim(name, options)
