"""Rows of a transcript come in any order: no answer of any attack depends on it, nor on how a file is cut."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from attacks.base import Reconstruction
from audit.factories import make_attack, make_defenses
from audit.keys import view_of
from audit.registry import BUILT_IN
from audit.scoring.truth import read_truth
from tests.oracles.simulator import SCENARIOS
from victims.protocols.base import Victim
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript
from victims.transcript.view import Messages, View

STEPS = DecentralisedMF(factors=5, learning_rate=0.01)
PRIVATE = FedMF(factors=5, client_learning_rate=3e-3)
RECORDINGS: dict[str, tuple[Victim, str, range] | None] = {
    **{"/".join(scenario): None for scenario in SCENARIOS},  # recorded for all tests
    "fedmf": (PRIVATE, "none", range(3)),
    "mf": (STEPS, "none", range(3)),
    "local steps": (replace(STEPS, local_steps=3), "none", range(1)),
    "laplace": (FedMVMF("sgd"), "laplace:scale=0.01", range(2)),
    "noise once": (STEPS, "hdpmf:noise=once", range(4)),
    "fresh noise": (STEPS, "objective-noise:noise=fresh,epsilon=40", range(3)),
    "encrypted sums": (
        FedMVMF(weighting="include-unrated"),
        "unrated-sampling+paillier:ideal=true",
        range(1),
    ),
    "encrypted": (PRIVATE, "paillier:ideal=true", range(2)),
}
READ_BY = {
    "encrypted sums": ("server", "server+client", "decrypter"),
    "encrypted": ("server+client", "client:2"),
}
FAST = [
    name
    for name in BUILT_IN["attacks"]
    if not name.startswith("root-") and name not in ("inversion", "likelihood", "trajectory")
]
# what compiles or iterates runs short, and where it reads most
SLOW = {
    "likelihood": ({"steps": 3, "passes": 1, "samples": 2, "prior": "flat"}, ["laplace"]),
    "trajectory": ({"steps": 5, "starts": 1}, ["noise once"]),
    "inversion": ({"rule": "local-steps", "rounds": 1}, ["local steps"]),
} | {
    name: ({"max_iterations": 3, "jobs": 1}, ["/".join(scenario) for scenario in SCENARIOS])
    for name in ("root-df-sane",)
}


@pytest.fixture(scope="module")
def folder(ratings, transcripts, tmp_path_factory):
    """Every recording once, and twice in another order."""
    path = tmp_path_factory.mktemp("order")
    for name, how in RECORDINGS.items():
        here = path / slug(name)
        if how is None:
            shutil.copytree(transcripts[tuple(name.split("/"))].path, here)
        else:
            record(how[0], ratings, here, rounds=how[2], defenses=make_defenses(how[1]), seed=3)
        permuted(here, here.with_name(f"{here.name}-permuted"), seed=1)
        permuted(here, here.with_name(f"{here.name}-again"), seed=2, max_chunksize=500)
    return path


def slug(name: str) -> str:
    return name.replace("/", "-").replace(" ", "-")


def permuted(path: Path, to: Path, *, seed: int, max_chunksize: int | None = None) -> None:
    """The same rows in another order, in chunks of another size."""
    shutil.copytree(path, to)
    key = path.with_name(f"{path.name}.key.json")
    if key.exists():
        shutil.copy(key, to.with_name(f"{to.name}.key.json"))
    for name in ("state", "messages"):
        with pa.ipc.open_file(path / f"{name}.arrow") as reader:
            content = reader.read_all()
        rows = np.random.default_rng(seed).permutation(content.num_rows)
        content = content.take(pa.array(rows))
        with pa.ipc.new_file(to / f"{name}.arrow", content.schema) as writer:
            writer.write_table(content, max_chunksize=max_chunksize)


def views(folder: Path, name: str, adversary: str) -> list[View]:
    paths = (folder / f"{slug(name)}{more}" for more in ("", "-permuted", "-again"))
    return [view_of(open_transcript(path), adversary) for path in paths]


def without(view: View, *constants: str) -> View:
    """The same view of an adversary who is not told some constants."""
    left = {k: v for k, v in view.manifest.hyperparameters.items() if k not in constants}
    return replace(view, manifest=view.manifest.model_copy(update={"hyperparameters": left}))


def assert_same(first: Reconstruction, second: Reconstruction, context: str) -> None:
    """Equal to the last bit: who is answered, what, how surely, and why others are not."""
    assert first.abstained == second.abstained, context
    assert first.options == second.options, context
    for a, b in zip(columns(first), columns(second), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=context)
    for name, values in first.diagnostics.items():
        if name != "seconds":
            np.testing.assert_array_equal(values, second.diagnostics[name], err_msg=f"{context}: {name}")


def columns(found: Reconstruction) -> list[np.ndarray]:
    rows = list(found.rows())
    return [np.concatenate(part) for part in zip(*rows, strict=True)] if rows else []


def same_answers(name: str, options: dict, seen: list[View], context: str) -> Reconstruction:
    first, *others = (make_attack(name, options).attack(view, 5) for view in seen)
    for other in others:
        assert_same(first, other, f"{name} on {context}")
    return first


# the other recordings show the same of the same attacks
@pytest.mark.thorough
@pytest.mark.parametrize("recording", ["sgd/include-unrated", "mf", "encrypted sums"])
def test_a_permutation_changes_no_answer(folder, recording):
    for adversary in READ_BY.get(recording, ("server",)):
        seen = views(folder, recording, adversary)[::2]  # the order of more chunks
        few = [view.select(view.users[:10]) for view in seen]
        for name in FAST:
            some = seen if BUILT_IN["attacks"][name].whole else few
            same_answers(name, {}, some, f"{recording} by {adversary}")


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one == "root-df-sane" else pytest.mark.thorough) for one in SLOW]
)
def test_a_permutation_changes_no_answer_of_what_iterates(folder, name):
    options, recordings = SLOW[name]
    for recording in recordings:
        seen = views(folder, recording, "server")[:2]
        few = [3, 7] if name.startswith("root-") else range(10)
        seen = [view.select(np.array(few)) for view in seen]
        same_answers(name, options, seen, recording)


@pytest.mark.parametrize("recording", ["sgd/include-unrated", "encrypted sums"])
def test_the_null_of_a_permuted_recording_is_the_same(folder, recording):
    seen = [view.shuffled(4) for view in views(folder, recording, "server")]
    for name in ("spectral", "aggregate"):
        same_answers(name, {}, seen, recording)


def test_a_permuted_recording_is_read_whole(folder):
    """FedMF without the clients' rate: the rounds are compared row by row. Only clients with one rating are
    left open, for one row meets every level at some length of p_i.
    """
    name = "spectral"
    seen = [without(view, "client_learning_rate") for view in views(folder, "fedmf", "server")]
    options: dict = {}
    if name == "trajectory":  # needs the rate
        seen, options = views(folder, "fedmf", "server"), {"starts": 2}
    found = same_answers(name, options, seen, "fedmf")
    truth = read_truth(truth_path(folder / "fedmf"))
    user, _, item, value, _ = columns(found)
    np.testing.assert_allclose(value, truth.ratings.toarray()[user, item], atol=1e-3)
    counts = np.diff(truth.ratings.indptr)
    lone, few = (set(np.flatnonzero(counts <= most).tolist()) for most in (1, 2))
    assert lone
    silent = set(found.abstained)
    assert not silent if name == "trajectory" else lone <= silent <= few


def test_a_permuted_view_in_memory(folder):
    """The layout looks at the rows that it has, not at where they came from."""
    view, *_ = views(folder, "fedmf", "server")
    rows = np.random.default_rng(0).permutation(view.messages.n_rows)
    (column,) = {len(part) for part in (view.messages.round, view.messages.gradient)}
    assert column == 3  # one chunk a round
    parts = [
        np.concatenate(getattr(view.messages, name))[rows] for name in ("round", "sender", "kind", "index")
    ]
    gradient = np.concatenate(view.messages.gradient)[rows]
    mixed = replace(view, messages=Messages(*((part,) for part in parts), (gradient,)))
    same_answers("spectral", {}, [view, mixed], "fedmf")


@pytest.mark.parametrize("recording", RECORDINGS)
def test_our_recordings_need_no_sorting(folder, recording):
    """They are read where they lie. Sampled unrated items are among the rated ones, or the order of the rows
    would tell which are which.
    """
    layout = views(folder, recording, READ_BY.get(recording, ("server",))[0])[0].layout
    assert layout.permutation is None


def test_ids_too_large_for_one_number():
    """Rounds x senders x indices beyond 64 bits are sorted all the same."""
    rng = np.random.default_rng(0)
    big = [np.array([0, 2**31 - 1], np.int32)[rng.integers(0, 2, 64)] for _ in range(3)]
    kind = rng.integers(0, 2, 64).astype(np.int8)
    messages = Messages((big[0],), (big[1],), (kind,), (big[2],), None)
    ranked = Messages(
        *(((part > 0).astype(np.int32),) for part in big[:2]), (kind,), ((big[2] > 0) * 1,), None
    )
    np.testing.assert_array_equal(messages.in_order(), ranked.in_order())
