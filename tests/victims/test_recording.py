"""What a victim sends in a round, and recordings of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audit.factories import make_defenses, make_victim
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.protocols.base import Defense, changes
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.protocols.jax_ratings import device_data
from victims.recording import exchange_of, record
from victims.training import start
from victims.transcript.reader import open_transcript
from victims.transcript.writer import TranscriptWriter


@pytest.fixture(scope="module")
def ratings():
    return generate(Synthetic(users=12, items=20, ratings_per_user=6.0))


VICTIMS = [FedMVMF(factors=3), FedMF(factors=3), DecentralisedMF(factors=3)]


@pytest.mark.parametrize("victim", VICTIMS, ids=lambda victim: type(victim).__name__)
def test_the_same_run_sends_the_same(victim, ratings):
    run = start(victim, ratings, make_defenses("laplace:scale=0.1"), 3)
    before = [np.asarray(table).copy() for table in victim.broadcast(run.state)]
    first, second = (list(exchange_of(run, np.arange(12), 0).batches) for _ in range(2))
    assert len(first) == len(second) >= 1
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.index, other.index)
        np.testing.assert_array_equal(one.gradient, other.gradient)
    for table, now in zip(before, victim.broadcast(run.state), strict=True):
        np.testing.assert_array_equal(table, now)


def test_decrypted_sums_are_the_sums_of_the_uploads(ratings):
    run = start(FedMVMF(factors=3), ratings, make_defenses("paillier:ideal=true"), 0)
    exchange = exchange_of(run, np.arange(12), 0)
    sums = np.zeros_like(exchange.sums[0].values)
    for batch in exchange.batches:
        upload = batch.sender >= 0
        if batch.ciphertext is not None and batch.ciphertext[0] is not None:
            row = np.where(batch.kind == 1, exchange.items.shape[0] + batch.index, batch.index)
            np.add.at(sums, row[upload], batch.gradient[upload])
    np.testing.assert_allclose(exchange.sums[0].values, sums, atol=1e-9)  # 40 bits after the point


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": []}, "rounds must be a non-empty list"),
        ({"rounds": [-1]}, "rounds must be a non-empty list"),
        ({"users": [12]}, "users must be between 0 and 11"),
        ({"users": []}, "users must be between 0 and 11"),
        ({"users": np.array([0.5])}, "users must be between 0 and 11"),
    ],
)
def test_bad_arguments_leave_nothing(tmp_path, ratings, changes, message):
    with pytest.raises(InputError, match=message):
        record(FedMF(factors=2), ratings, tmp_path / "x", **({"rounds": [0]} | changes))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "victim",
    [FedMF(factors=2, client_learning_rate=1e308), DecentralisedMF(factors=2, learning_rate=1e308)],
    ids=["fedmf", "mf"],
)
def test_numbers_that_no_recording_declares(tmp_path, ratings, victim):
    with pytest.raises(InputError, match="these hyper-parameters cannot be recorded"):
        record(victim, ratings, tmp_path / "x", rounds=[0])
    assert not list(tmp_path.iterdir())


class TestCapabilities:
    def test_a_defense_changes_what_it_overrides(self):
        declared = {
            d.name: (changes(d, "uploaded"), changes(d, "predicted"))
            for d in make_defenses("hdpmf") + make_defenses("unrated-sampling") + make_defenses("laplace")
        }
        assert declared == {
            "stretching": (False, True),
            "objective-noise": (True, False),
            "unrated-sampling": (False, False),
            "laplace": (True, False),
        }
        assert not changes(Defense(), "uploaded")


class TestFrozen:
    def test_objects_hold_their_fields_alone(self, tmp_path, ratings):
        """What is computed once lies outside of them, so that ``replace`` cannot carry it along."""
        record(FedMF(factors=2), ratings, tmp_path / "x", rounds=[0])
        view = open_transcript(tmp_path / "x").view("server")
        layout, held = view.layout, device_data(ratings)
        assert view.layout is layout
        assert device_data(ratings) is held
        for thing in (view, view.messages, ratings):
            assert set(vars(thing)) == set(type(thing).__dataclass_fields__)
        fewer = replace(view, messages=view.messages.rows([view.messages.sender[0] < 3]))
        assert fewer.users.max() < 3
        assert replace(ratings, name="y").n_ratings == ratings.n_ratings
        assert device_data(replace(ratings, name="y")) is not held

    def test_short_reprs(self, tmp_path, ratings):
        record(FedMF(factors=2), ratings, tmp_path / "x", rounds=[0])
        transcript = open_transcript(tmp_path / "x")
        for thing in (ratings, transcript, transcript.view("server")):
            assert "\n" not in repr(thing)
            assert len(repr(thing)) < 300 + len(str(tmp_path))


ALWAYS = 2**31 - 1


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dpmf-yang", {"receivers": "rounds"}),
        ("dpmf-yang", {}),
        ("dmf", {}),
        pytest.param("pdmfrec", {}, marks=pytest.mark.thorough),
    ],
)
def test_rows_reach_those_whom_the_victim_sends_them_to(tmp_path, name, options):
    ratings, rounds = generate(Synthetic(users=14, items=25, ratings_per_user=8.0, seed=1)), [0, 1, 3]
    victim = make_victim(name, options)
    record(victim, ratings, tmp_path / "t", rounds=rounds)
    found = open_transcript(tmp_path / "t").deliveries
    fixed = name == "pdmfrec" or (options == {} and name != "dmf")
    assert (found.last == ALWAYS).all() == fixed
    run = start(victim, ratings, (), 0)
    for round_ in range(4):
        if round_ in rounds:
            here = (found.first <= round_) & (round_ <= found.last)
            edges = run.network.edges
            np.testing.assert_array_equal(found.receiver[here], edges.receiver)
            np.testing.assert_array_equal(found.sender[here], edges.sender)
            np.testing.assert_array_equal(found.weight[here], edges.weight)
        run = run.trained(round_)


def test_rounds_of_edges_are_checked(tmp_path):
    manifest = make_victim("dmf").manifest(
        generate(Synthetic(users=5, items=9, ratings_per_user=3.0, seed=1)), [0]
    )
    with (
        pytest.raises(InputError, match="first_round must be between 0 and last_round = 2, got 3"),
        TranscriptWriter(tmp_path / "t", manifest) as writer,
    ):
        writer.deliveries([0], [1], [1.0], 3, 2)
