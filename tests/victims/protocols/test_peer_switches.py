"""Victims without a server under the switches, against programs that go rating by rating."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audit.factories import make_defenses, make_victim
from tests.oracles.cofactor_program import one_round
from tests.oracles.peer_programs import cofactors_of, pdmfrec_of, round_of
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.protocols.cofactor_round import whole
from victims.protocols.dmf import DMF
from victims.protocols.dpmf_yang import DPMFYang
from victims.protocols.pdmfrec import PDMFRec, order_of_pass
from victims.protocols.switches import present
from victims.recording import record
from victims.training import start
from victims.transcript.kinds import IMPLICIT, ITEM
from victims.transcript.reader import open_transcript

PDMFREC = PDMFRec(factors=3, learning_rate=0.01, regularization=0.1, weight="once")
STEPS = {"learning_rate": 0.2, "lambda_users": 0.05, "lambda_items": 0.02}
VICTIMS = {
    "pdmfrec": PDMFREC,
    "pdmfrec-twice": replace(PDMFREC, weight="twice", start="private", threshold=2),
    "dmf": DMF(**STEPS),
    "dpmf-yang": DPMFYang(**STEPS, negatives="rounds"),
    "dpmf-yang-round": DPMFYang(**STEPS, regularize="round", personal_start="private"),
}
SWITCHES = {
    "batch": {"order": "batch"},
    "minibatches": {"order": "batch", "batch_size": 3, "shuffle": "rounds"},
    "mean of minibatches": {"order": "batch", "batch_size": 4, "reduction": "mean", "shuffle": "never"},
    "mean": {"order": "batch", "reduction": "mean"},
    "order kept": {"shuffle": "once"},
    "local steps": {"local_steps": 3},
    "change": {"local_steps": 2, "order": "batch", "upload": "delta"},
    "copies": {"upload": "weights", "shuffle": "rounds"},
    "some": {"participation": 0.5, "dropout": 0.25},
    "changes of some": {"upload": "delta", "participation": 0.6, "order": "batch", "batch_size": 2},
    "copies of some": {"upload": "weights", "local_steps": 2, "participation": 0.5, "dropout": 0.3},
}
ROUNDS = 3
OF_EACH = ("minibatches", "mean", "copies of some")  # of victims that share their rounds with another


def under_switches(first, *others):
    """One victim under every switch, and those that share its code under some."""
    return [
        pytest.param(name, switches, id=f"{name}-{which}")
        for name in (first, *others)
        for which, switches in SWITCHES.items()
        if name == first or which in OF_EACH
    ]


@pytest.fixture(scope="module")
def ratings():
    """16 users with as few as one rating, 24 items: the plain programs are slow."""
    return generate(Synthetic(users=16, items=24, ratings_per_user=8.0, single=0.1, seed=3))


def sets_of(victim, run, ratings):
    """Who steps in a round, and who is heard."""
    there = present(victim, ratings.n_users, run.state.seed, run.state.round)
    return tuple(set(np.flatnonzero(mask).tolist()) for mask in there)


def rows_by_pair(run):
    """Every uploaded row by client, kind and item."""
    out = {}
    for rows in run.victim.uploads(run.state, run.ratings, np.arange(run.ratings.n_users)):
        keys = zip(rows.sender.tolist(), rows.kind.tolist(), rows.index.tolist(), strict=True)
        out |= dict(zip(keys, rows.gradient, strict=True))
    return out


@pytest.mark.parametrize(("name", "switches"), under_switches("pdmfrec", "pdmfrec-twice"))
def test_pdmfrec(ratings, name, switches):
    """Rows of every round, and everybody's U and V after it."""
    victim = replace(VICTIMS[name], **switches)
    run = start(victim, ratings, (), 1)
    _, program = pdmfrec_of(victim, run, ratings)
    every = np.arange(ratings.n_items)
    for number in range(ROUNDS):
        stepping, heard = sets_of(victim, run, ratings)
        in_order = ratings.items[order_of_pass(ratings, victim.shuffle, run.state.seed, number)]
        passes = {u: in_order[slice(*ratings.indptr[u : u + 2])].tolist() for u in range(ratings.n_users)}
        sent, found = program.round(passes, stepping, heard), rows_by_pair(run)
        expected = {(u, ITEM, item): row for u, rows in sent.items() for item, row in rows.items()}
        assert found.keys() == expected.keys()
        np.testing.assert_allclose([found[key] for key in expected], [*expected.values()], atol=1e-10)
        run = run.trained(number)
        np.testing.assert_allclose(run.state.clients, list(program.u.values()), atol=1e-10)
        for client in range(ratings.n_users):
            held = victim.items_of(run.state, ratings, np.full(every.size, client), every)
            np.testing.assert_allclose(held, program.v[client], atol=1e-10)


@pytest.mark.parametrize(("name", "switches"), under_switches("dpmf-yang", "dmf", "dpmf-yang-round"))
def test_users_who_send_to_those_they_trust(ratings, name, switches):
    """Rows of every round, and everybody's U, Q and copies at the end."""
    victim = replace(VICTIMS[name], **switches)
    run = start(victim, ratings, (), 4)
    constants, users = cofactors_of(victim, run.state, ratings)
    for number in range(ROUNDS):
        samples, receivers, _ = round_of(victim, run.state, ratings)
        sent = one_round(constants, users, samples, receivers, *sets_of(victim, run, ratings))
        found, expected = rows_by_pair(run), {}
        for user, rows in sent.items():
            for (kind, item, _), row in zip(samples[user], rows, strict=True):
                expected[user, ITEM if kind == "explicit" else IMPLICIT, item] = row
        assert found.keys() == expected.keys()
        np.testing.assert_allclose([found[key] for key in expected], [*expected.values()], atol=1e-10)
        run = run.trained(number)
    state = run.state
    np.testing.assert_allclose(state.clients, [user.u for user in users], atol=1e-10)
    if victim.rules.has_offsets:
        means = [np.mean([*user.q.values()], axis=0) if user.q else np.zeros(3) for user in users]
        has_any = np.array([bool(user.q) for user in users])
        np.testing.assert_allclose(state.offsets[has_any], np.array(means)[has_any], atol=1e-10)
    for table, letter in ((state.items, "v"), (state.implicit, "z")):
        for part, copies in (("p", table.public), ("q", table.personal)):
            held = [[user.parts[letter + part][j] for j in range(ratings.n_items)] for user in users]
            np.testing.assert_allclose(whole(copies, np.arange(ratings.n_users)), held, atol=1e-10)


@pytest.mark.parametrize("name", VICTIMS)
def test_switches_that_change_nothing_change_nothing(ratings, name):
    """The general path against the published one: minibatches of one, of all; the change of one pass."""
    victim = VICTIMS[name]
    batch = replace(victim, order="batch")
    same = [
        (victim, replace(victim, participation=1 - 1e-9)),
        (victim, replace(victim, order="batch", batch_size=1)),
        (victim, replace(victim, reduction="mean")),
        (victim, replace(victim, upload="delta")),
        (batch, replace(batch, upload="delta")),
    ]
    if victim.shuffle == "never" and name.startswith("pdmfrec"):
        same.append((batch, replace(batch, batch_size=10_000)))
    for one, other in same:
        runs = [start(v, ratings, (), 1) for v in (one, other)]
        for number in range(ROUNDS):
            runs = [run.trained(number) for run in runs]
            users, items = (part.ravel() for part in np.indices((ratings.n_users, ratings.n_items)))
            scores = [run.predictor(number + 1).pairs(users, items) for run in runs]
            np.testing.assert_allclose(*scores, atol=1e-10)


@pytest.mark.parametrize("name", ["pdmfrec", "dmf", "dpmf-yang"])
@pytest.mark.parametrize("upload", ["gradient", "delta", "weights"])
def test_messages_that_defenses_change_one_by_one_are_received_as_rows_are(ratings, name, upload):
    """Noise of size 0 for each message, among clients of whom some are absent and some lost."""
    victim = replace(VICTIMS[name], upload=upload, participation=0.7, dropout=0.2)
    found = []
    for text in ("none", "laplace:scale=0,clip=1e9", "laplace:scale=0,clip=1e9,per_message=true"):
        run = start(victim, ratings, make_defenses(text), 1)
        for number in range(2):
            run = run.trained(number)
        users, items = (part.ravel() for part in np.indices((ratings.n_users, ratings.n_items)))
        found.append(run.predictor(2).pairs(users, items))
    np.testing.assert_allclose(found[1], found[0], atol=1e-10)
    np.testing.assert_allclose(found[2], found[0], atol=1e-10)


@pytest.mark.parametrize("name", ["pdmfrec", "dmf", "dpmf-yang"])
def test_recordings_hold_who_was_there(ratings, tmp_path, name):
    """An absent client sends and receives nothing, a lost one receives; another draw in each round."""
    victim = replace(VICTIMS[name], participation=0.5, dropout=0.4)
    record(victim, ratings, tmp_path / "t", rounds=[0, 1], seed=2)
    transcript = open_transcript(tmp_path / "t")
    seen = []
    for number in range(2):
        stepping, heard = present(victim, ratings.n_users, 2, number)
        assert stepping.sum() == 8
        assert heard.sum() == 5
        assert not (heard & ~stepping).any()
        seen.append(heard.tolist())
        got = {}
        for client in range(ratings.n_users):
            view = transcript.view(f"neighbour:{client}")
            copies = view.copies
            there = copies is not None and (copies.round == number).any()
            got[client] = set(copies.sender[copies.round == number].tolist()) if there else set()
        senders = set().union(*got.values())
        assert not any(got[client] for client in np.flatnonzero(~stepping))
        assert any(got[client] for client in np.flatnonzero(stepping & ~heard)) or name != "pdmfrec"
        if name != "pdmfrec":  # whose senders are not seen
            assert senders
            assert senders <= set(np.flatnonzero(heard).tolist())
    assert seen[0] != seen[1]


@pytest.mark.parametrize("name", ["pdmfrec", "dmf", "dpmf-yang"])
def test_manifests_declare_the_rule(ratings, tmp_path, name):
    victim = replace(
        VICTIMS[name], order="batch", batch_size=4, local_steps=3, upload="delta", reduction="mean"
    )
    record(victim, ratings, tmp_path / "t", rounds=[1], seed=2)
    manifest = open_transcript(tmp_path / "t").manifest
    rule = manifest.rule
    assert rule == victim.manifest(ratings, [1]).rule
    assert (rule.order, rule.local_steps, rule.batch_size) == ("batch", 3, 4)
    assert (rule.reduction, rule.upload, rule.moves_items) == ("mean", "delta", True)
    ridge = victim.regularization if name == "pdmfrec" else victim.lambda_items
    assert manifest.upload.scale == victim.learning_rate
    assert manifest.upload.regularization == pytest.approx(-victim.learning_rate * ridge)


def test_copies_that_arrive_are_averaged_and_not_added_up(ratings):
    """Everybody starts with one V, so that a mean of copies stays in between; a sum would not."""
    for name in ("pdmfrec", "dmf"):
        victim = replace(VICTIMS[name], upload="weights", learning_rate=1e-9)
        run = start(victim, ratings, (), 1)
        users, items = (part.ravel() for part in np.indices((ratings.n_users, ratings.n_items)))
        before = run.predictor(0).pairs(users, items)
        np.testing.assert_allclose(run.trained(0).predictor(1).pairs(users, items), before, atol=1e-6)


@pytest.mark.parametrize("name", ["pdmfrec", "dmf", "dpmf-yang"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dropout": "1"}, r"dropout of {} must be in \[0, 1\)"),
        ({"order": "batch", "shuffle": "once"}, "has no order of them; got once; use shuffle=never"),
        ({"row_factor": "after"}, "sender steps its own copy, too; got after; use row_factor=before"),
        ({"biases": "items"}, "would be the error itself; got items; use biases=none"),
    ],
)
def test_what_makes_no_sense_is_refused(name, options, message):
    with pytest.raises(InputError, match=message.format(name)):
        make_victim(name, options)


@pytest.mark.parametrize("upload", ["delta", "weights"])
def test_a_copy_that_its_owner_does_not_step_is_not_sent(upload):
    with pytest.raises(InputError, match="own_step=false leaves the sender's copy as it is; got"):
        make_victim("pdmfrec", {"own_step": "false", "upload": upload})
