"""Bad arguments are refused before anything is written, and what a victim declares is there."""

from dataclasses import replace

import numpy as np
import pytest

from audit.factories import make_defenses
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.protocols.base import Defense, changes
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.protocols.jax_ratings import device_data
from victims.recording import record
from victims.transcript.reader import open_transcript


@pytest.fixture(scope="module")
def ratings():
    return generate(Synthetic(users=12, items=20, ratings_per_user=6.0))


VICTIMS = [FedMVMF(factors=3), FedMF(factors=3), DecentralisedMF(factors=3)]


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
