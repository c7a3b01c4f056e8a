"""What attacks share, and guesses."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Estimates, Linked, Outcome, Reconstruction, all_abstain
from attacks.likelihood.attack import Likelihood
from attacks.obstacles import alpha_unknown, entries_missing, factors_hidden, nothing_received, unreadable
from audit.factories import make_attack
from victims.common.errors import InputError
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder

# What a reconstruction says of itself, and what contradicts itself.


USERS = np.arange(5000)


def whole() -> Reconstruction:
    kind, index = np.zeros((1, 40), np.int8), np.arange(40)[None]
    return Reconstruction("test", USERS, (Estimates(USERS, kind, index, np.ones((5000, 40))),))


def test_a_repr_is_one_short_line_with_counts():
    """Before: 49,479 characters for a small one."""
    text = repr(whole())
    assert "users=5000" in text
    assert max(len(text), len(repr(whole().blocks[0]))) < 110
    assert "\n" not in text


def test_whether_there_is_something_to_score():
    assert whole().applies
    assert not all_abstain("test", USERS, "why", {}).applies
    assert all_abstain("test", USERS, "why", {}, outcome=Outcome.NOTHING_FOUND).applies
    assert not all_abstain("test", USERS[:0], "why", {}).applies
    everybody = dict.fromkeys(USERS.tolist(), "each for a reason of its own")
    assert not Reconstruction("test", USERS, (), everybody).applies
    linked = Linked(np.zeros(2, int), np.full(1, -1))
    assert Reconstruction("test", USERS, (), everybody, linked=linked).applies


def test_the_reason_for_everybody_is_the_obstacle():
    assert all_abstain("test", USERS[:0], "why", {}).obstacle == "why"
    assert all_abstain("test", USERS, "why", {}, outcome=Outcome.NOTHING_FOUND).obstacle == ""


def test_contradictions_are_refused():
    with pytest.raises(InputError, match="must abstain on all 5000 clients, got 0"):
        Reconstruction("test", USERS, (), outcome=Outcome.NOT_APPLICABLE)
    with pytest.raises(InputError, match="obstacle of a reconstruction must be empty"):
        Reconstruction("test", USERS, (), obstacle="why")


# Why a view tells an attack nothing: read off recordings of each kind.


def view_of(path, adversary="server", victim="fedmf", **how):
    fl.record(path, fl.synthetic(users=12), victim=victim, rounds=[0], **how)
    return fl.open_transcript(path).view(adversary)


def test_uploads_in_the_clear_have_no_obstacle(tmp_path):
    view = view_of(tmp_path / "t")
    assert (unreadable(view), factors_hidden(view), alpha_unknown(view)) == ("", "", "")


def test_encrypted_uploads_and_factors(tmp_path):
    view = view_of(tmp_path / "t", defenses=["paillier:ideal=true"])
    assert "encrypted and the adversary holds no key" in unreadable(view)
    assert "broadcast factors are encrypted" in factors_hidden(view)


def test_an_item_server_receives_no_uploads(tmp_path):
    view = view_of(tmp_path / "t", "item-server", victim="fedmvmf")
    assert unreadable(view) == nothing_received(view) == "the adversary receives no uploads"


@pytest.mark.parametrize(("sent", "missing"), [(0.5, True), (1.0, False)])
def test_rows_of_which_some_entries_alone_are_sent(tmp_path, sent, missing):
    """Likelihood took zeros for numbers: of 300 ratings that it was asked for 210 were wrong."""
    rng = np.random.default_rng(0)
    q, p = rng.normal(0, 0.5, (40, 6)), rng.normal(0, 0.5, (10, 6))
    constants = {"client_learning_rate": 0.01, "lambda_factors": 0.0, "upload_scale": 1.0}
    rule = {"rule": "sgd", "order": "batch", "local_steps": 1, "batch_size": "all"}
    rule |= {"reduction": "sum", "upload": "gradient", "loss": "squared", "link": "identity", "clip": "none"}
    with fl.Recorder(tmp_path / "t", rating_levels=range(1, 6), rule=rule, constants=constants) as recorder:
        recorder.broadcast(0, q)
        for user, own in enumerate(p):
            items = rng.permutation(40)[:15]
            error = rng.integers(1, 6, 15) - q[items] @ own
            rows = error[:, None] * own * (rng.random((15, 6)) < sent)
            recorder.upload(0, user, rows + 0.01 * rng.laplace(size=rows.shape) * (rows != 0), items)
    view = fl.open_transcript(tmp_path / "t").view("server")
    assert bool(entries_missing(view)) == missing
    assert ("were not sent" in Likelihood().obstacle(view)) == missing


def test_rows_about_factors_that_their_clients_alone_know(tmp_path):
    factors = np.ones((2, 3))
    with fl.Recorder(tmp_path / "t", rating_levels=[1, 2]) as recorder:
        for client in range(2):
            recorder.broadcast(0, factors, to=client)
            recorder.upload(0, client, factors, [0, 1])
    view = fl.open_transcript(tmp_path / "t").view()
    assert view.unplaced_rows == 4
    assert unreadable(view).startswith("4 rows are about factors that were broadcast to one client alone")
    told = {fact.name: fact.value for fact in fl.check_transcript(tmp_path / "t").facts}
    assert told["the server sees"] == "0 rows of 0 clients, and 4 about factors that it does not know"


# Guesses without a number that a client computed.


@pytest.mark.parametrize("name", ["guess-uniform", "guess-majority", "guess-popularity"])
def test_clients_who_miss_the_last_round_are_guessed_about(tmp_path, name):
    """Programs draw other clients in every round; each is answered about what it sent last."""
    lists = {(0, 0): [1, 2, 3], (0, 1): [4, 5], (1, 1): [6], (1, 2): [0, 7], (2, 0): [8]}
    rng = np.random.default_rng(0)
    with Recorder(tmp_path / "t", rating_levels=[1, 2, 3, 4, 5]) as recorder:
        for round_ in range(3):
            recorder.broadcast(round_, rng.normal(size=(10, 2)))
        for (round_, client), items in lists.items():
            recorder.upload(round_, client, rng.normal(size=(len(items), 2)), np.array(items))
    found = make_attack(name).attack(open_transcript(tmp_path / "t").view("server"), 0)
    answered = {
        user: sorted(index[np.isfinite(value)].tolist())
        for block in found.blocks
        for user, index, value in zip(
            block.users.tolist(), np.broadcast_to(block.index, block.value.shape), block.value, strict=True
        )
    }
    assert answered == {0: [8], 1: [6], 2: [0, 7]}
    assert not found.abstained
