"""Who is answered from a part of a recording is answered from all of it: more rounds, rows or clients."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from attacks.base import Identities
from audit.factories import make_attack, make_victim
from audit.registry import BUILT_IN, is_guess
from victims.data.synthetic import Synthetic, generate
from victims.recording import record
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder
from victims.transcript.view import View, rows_of

RECORDINGS = {
    "fedmvmf": ("fedmvmf", {"update": "sgd", "weighting": "observed-only"}),
    "unrated": ("fedmvmf", {"update": "semi-als", "weighting": "include-unrated"}),
    "fedmf": ("fedmf", {}),
    "mf": ("mf", {}),
    "padded": None,  # every client sends rows of all items after the first round
}
LONG = ("likelihood", "inversion", "trajectory", "undeclared")
# attacks, by how their names begin -> why more may answer fewer clients
EXCEPTIONS = {"root-": "a solver converges from its start or does not, and more traffic is other equations"}
ATTACKS = [
    name for name in BUILT_IN["attacks"] if not is_guess(name) and not name.startswith(tuple(EXCEPTIONS))
]


@pytest.fixture(scope="module")
def view(tmp_path_factory):
    ratings = generate(Synthetic(users=12, items=30, ratings_per_user=12.0, seed=2))

    def padded(path):
        rng = np.random.default_rng(0)
        items, table = rng.normal(0, 1, (30, 4)), ratings.matrix().toarray()
        with Recorder(path, rating_levels=[1, 2, 3, 4, 5]) as recorder:
            for number in range(3):
                recorder.broadcast(number, items)
                for client, own in enumerate(table):
                    factor = rng.normal(0, 1, 4)
                    rows = np.where(own > 0, own - items @ factor, 0)[:, None] * factor
                    recorder.upload(number, client, rows + (number > 0) * rng.normal(0, 0.1, rows.shape))

    @cache
    def recorded(name: str) -> View:
        path = tmp_path_factory.mktemp("more") / "t"
        if RECORDINGS[name] is None:
            padded(path)
            return open_transcript(path).view("server")
        victim, options = RECORDINGS[name]
        record(make_victim(victim, {"factors": "4", **options}), ratings, path, rounds=range(3))
        return open_transcript(path).view("server")

    return recorded


def fewer_rows(view: View) -> View:
    """Without some rows of each client, the same in every round."""
    messages = view.messages
    kept = np.concatenate(
        [(7 * sender + index) % 5 > 0 for sender, index in zip(messages.sender, messages.index, strict=True)]
    )
    return View(**{**vars(view), "messages": rows_of(messages, np.flatnonzero(kept))})


PARTS = {
    "a round": lambda view: view.during(view.rounds[:1]),
    "two rounds": lambda view: view.during(view.rounds[:2]),
    "some rows": fewer_rows,
    "some clients": lambda view: view.select(view.users[::2]),
}


@pytest.fixture(scope="module")
def answered(view):
    """Clients whom an attack answers of a part of a recording, or of all of it."""

    @cache
    def clients(name: str, recording: str, part: str) -> frozenset[int]:
        seen = view(recording)
        found = make_attack(name).attack(PARTS[part](seen) if part else seen, 0)
        if found.identities != Identities.CLIENTS:
            return frozenset()
        return frozenset(found.users.tolist()) - frozenset(found.abstained)

    return clients


@pytest.mark.parametrize(
    ("name", "recording"),
    [
        pytest.param(name, one, marks=[pytest.mark.thorough] * (name.startswith(LONG) and one != "mf"))
        for name in ATTACKS
        for one in (("mf", "padded") if name.startswith(LONG) else RECORDINGS)
    ],
)
def test_more_traffic_takes_no_answer_away(answered, name, recording):
    whole = answered(name, recording, "")
    assert not [part for part in PARTS if not answered(name, recording, part) <= whole]
