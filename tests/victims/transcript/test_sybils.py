"""A server with Sybils: sums less what these sent, thresholds that they pass, noise that is left."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from audit.experiments.scenarios import check_adversary
from audit.factories import make_attack, make_defenses, make_victim
from audit.keys import view_of
from audit.scoring.score import score
from audit.scoring.truth import read_truth
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate, with_sybils
from victims.recording import record
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript
from victims.transcript.sybils import SYBILS, sybils_of

RATINGS = generate(Synthetic(users=20, items=40, ratings_per_user=10.0, single=0.0, seed=1))
OPTIONS = {"update": "semi-als", "weighting": "observed-only", "factors": "4"}
FAKES = 4


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    @cache
    def make(defense="secure-sum", victim="fedmvmf", fakes=0):
        path = tmp_path_factory.mktemp("sybils") / "recording"
        options = OPTIONS if victim == "fedmvmf" else {"factors": "4"}
        ratings = with_sybils(RATINGS, fakes) if fakes else RATINGS
        record(
            make_victim(victim, options),
            ratings,
            path,
            rounds=[0, 1],
            defenses=make_defenses(defense),
            seed=3,
        )
        return open_transcript(path)

    return make


def rows_of(view):
    """(round, sender, kind, index) -> row."""
    messages = view.messages
    columns = zip(*(np.concatenate(getattr(messages, name)) for name in ("round", "sender", "kind", "index")),
                  strict=True)  # fmt: skip
    return dict(
        zip(map(tuple, np.array(list(columns)).tolist()), np.concatenate(messages.gradient), strict=True)
    )


def accuracy(transcript, adversary, attack):
    """Rated ratings that are right, a mean over clients; those without an answer count with the baseline."""
    found = make_attack(attack).attack(view_of(transcript, adversary), 0)
    scores = score(found, transcript.manifest, read_truth(truth_path(transcript.path)))
    return next(one.summary.value for one in scores if one.metric == "rated_rating_accuracy"), found


@pytest.mark.parametrize("share", ["0", "0.5", ".5:7", "5-15"])
def test_what_is_left_are_the_sums_of_the_others(recorded, share):
    """Beside rows of a run without masks, which differ by the rounding of 40 bits."""
    view = view_of(recorded(), SYBILS + share)
    own = sybils_of(view.adversary).among(RATINGS.n_users)
    assert own.size == {"0": 0, "0.5": 10, ".5:7": 10, "5-15": 11}[share]
    np.testing.assert_array_equal(view.users, np.setdiff1d(np.arange(RATINGS.n_users), own))
    assert view.messages.gradient is None
    wanted = {(round_, kind, index): 0.0 for round_, one in view.sums.items()
              for kind, index in zip(one.kind.tolist(), one.index.tolist(), strict=True)}  # fmt: skip
    for (round_, sender, kind, index), row in rows_of(view_of(recorded("none"), "server")).items():
        if sender not in own:
            wanted[round_, kind, index] = wanted[round_, kind, index] + row
    for round_, one in view.sums.items():
        for kind, index, value in zip(one.kind.tolist(), one.index.tolist(), one.values, strict=True):
            np.testing.assert_allclose(value, np.broadcast_to(wanted[round_, kind, index], 4), atol=1e-7)


def test_draws_are_nested_and_differ():
    few, many = (sybils_of(f"sybils:{share}").among(100) for share in ("0.5", "0.9"))
    assert np.isin(few, many).all()
    assert many.size == 90
    assert not np.array_equal(few, sybils_of("sybils:0.5:1").among(100))
    assert sybils_of("sybils:1").among(100).size == 99


@pytest.mark.parametrize("adversary", ["server", "server+client", "eavesdropper", "client:0"])
def test_nobody_opens_rows_under_masks(recorded, adversary):
    view = view_of(recorded(), adversary)
    assert view.messages.gradient is None
    assert bool(view.sums) == adversary.startswith("server")


def test_a_server_that_adds_up_sees_what_it_steps_with(recorded):
    """FedMF's server holds the factors then: V^t - V^(t+1) is the sum that it sees."""
    view = view_of(recorded(victim="fedmf"), "server")
    one = view.sums[0]
    before, after = view.broadcasts[0], view.broadcasts[1]
    step = (before.factors - after.factors)[before.positions(one.kind, one.index)]
    np.testing.assert_allclose(one.values, step, atol=1e-9)
    assert np.abs(step).max() > 1e-3


def test_the_one_honest_client_is_read(recorded):
    """All but one: the sums are its rows, and all its ratings follow."""
    right, found = accuracy(recorded("secure-sum:min_contributors=2"), "sybils:1", "aggregate")
    assert found.users.size == 1
    assert right == 1.0
    view = view_of(recorded(), "sybils:1")
    plain = rows_of(view_of(recorded("none"), "server"))
    for place, row in rows_of(view).items():
        np.testing.assert_allclose(row, plain[place], atol=1e-7)


def test_sybils_pass_a_threshold(recorded):
    """Of FAKES + 1: sums that it kept closed are open, as if it had been 1."""
    defense, n_users = f"secure-sum:min_contributors={FAKES + 1}", RATINGS.n_users
    sybils = f"sybils:{n_users}-{n_users + FAKES - 1}"
    recordings = (recorded("secure-sum"), "server"), (recorded(defense), "server")
    alone, held, passed = (
        found.users.size - len(found.abstained)
        for _, found in (
            accuracy(*one, "aggregate") for one in (*recordings, (recorded(defense, fakes=FAKES), sybils))
        )
    )
    assert held == 0
    assert alone >= n_users / 4
    assert abs(passed - alone) <= 2  # they train the model, too


def test_a_common_key_is_lost_with_one_client(recorded):
    paillier = recorded("paillier:ideal=true,min_contributors=20")
    right, found = accuracy(paillier, "sybils:0.05", "spectral")
    assert found.users.size == RATINGS.n_users - 1
    assert right == 1.0
    assert view_of(paillier, "sybils:0").messages.gradient is None


def test_noise_that_is_left_is_the_clients_own(recorded):
    """Alone among Sybils a client has its own noise and no other's: rows are those that no mask hid."""
    masked = view_of(recorded("laplace:scale=0.2+secure-sum:min_contributors=20"), "sybils:all-but-one")
    plain = rows_of(view_of(recorded("laplace:scale=0.2"), "server"))
    seen = rows_of(masked)
    assert seen.keys() == plain.keys()
    assert not masked.sums
    for place, row in seen.items():
        if place[0] == 0:  # later the threshold, which Sybils pass unrecorded, has changed the factors
            np.testing.assert_allclose(row, plain[place], atol=1e-6)


@pytest.mark.parametrize("name", ["", "SHARE", "1.5", "-1", "9-5", "nan", "0.5:x", "1e-1", "0.5,1"])
def test_names_are_refused(name):
    with pytest.raises(InputError, match=r"write sybils:0\.9"):
        check_adversary(SYBILS + name)


def test_all_clients_of_a_recording_are_no_sybils(recorded):
    with pytest.raises(InputError, match="must name clients below 20, and not all of them"):
        recorded().view("sybils:0-19")
    with pytest.raises(InputError, match="count"):
        with_sybils(RATINGS, 0)
