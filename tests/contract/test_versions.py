"""What version 1 can hold reads the same when version 2 says it: every attack gives the same answers.

The manifest of version 2 is written here by hand, from the handbook's page on the format, so that neither the
reader's idea of version 1 nor the writer's of version 2 is taken for granted.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attacks.base import Reconstruction
from audit.factories import make_attack, make_defenses
from audit.keys import view_of
from audit.registry import BUILT_IN
from tests.contract.test_order import FAST, READ_BY, RECORDINGS, assert_same, slug
from tests.oracles.simulator import SCENARIOS, Reference
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.transcript.beside import key_path
from victims.transcript.manifest import Manifest, file_of
from victims.transcript.reader import open_transcript
from victims.transcript.view import View

OURS = {  # local steps need version 2
    name: how
    for name, how in RECORDINGS.items()
    if name not in ("fresh noise", "laplace", "local steps", "mf")
}
OURS |= {
    "full text": (FedMF(factors=5, upload="full-text"), "none", range(2)),
    "constant start": (FedMF(factors=5, start="constant", init_scale=0.01), "none", range(2)),
    "sampled": (FedMVMF(weighting="include-unrated"), "unrated-sampling:rho=1", range(2)),
    "sampled budgets": (DecentralisedMF(factors=5), "personalized-sampling", range(2)),
}
CHEAP = "semi-als/observed-only"
DIFFERENT = ("fedmf", "noise once", "encrypted sums", "constant start", "sampled budgets")
# a few clients, and few steps: what is compared are the two versions, not how well they are read
SHORT: dict[str, dict[str, Any]] = {
    "likelihood": {"steps": 3, "passes": 1, "samples": 2, "prior": "flat"},
    "trajectory": {"steps": 5, "starts": 1},
    "inversion": {"rounds": 1},
} | {name: {"max_iterations": 3, "jobs": 1} for name in BUILT_IN["attacks"] if name.startswith("root-")}


def as_version_2(path: Path, to: Path) -> Path:
    """The same rows under a manifest of version 2, by the handbook's tables of both."""
    shutil.copytree(path, to)
    if key_path(path).exists():
        shutil.copy(key_path(path), key_path(to))
    said = json.loads((path / "manifest.json").read_text())
    update, upload = said.pop("update"), said.pop("upload", {})
    constants = dict(said.pop("hyperparameters", {}))
    constants["upload_scale"] = upload.get("scale", 1.0)
    constants["upload_regularization"] = upload.get("regularization", 0.0)
    rule = {
        "rule": "projected-sgd" if said["protocol"] == "mf" else update,
        "order": "batch",
        "local_steps": 1,
        "batch_size": "all",
        "reduction": "sum",
        "upload": "gradient",
        "rows": "all" if upload.get("zeros_if_unrated") else "rated",
        "loss": "squared",
        "link": "identity",
        "clip": "none",
        "moves_items": False,
        "start": "kept",
    }
    (to / "manifest.json").unlink()
    (to / "manifest.json").write_text(
        json.dumps({**said, "version": 2, "rule": rule, "constants": constants})
    )
    return to


def both(path: Path, adversary: str = "server") -> tuple[View, View]:
    second = path.with_name(f"{path.name}-as-2")
    if not second.exists():
        as_version_2(path, second)
    versions = [open_transcript(path), open_transcript(second)]
    assert [one.manifest.version for one in versions] == [1, 2]
    first, other = (view_of(one, adversary) for one in versions)
    return first, other


def answers(view: View, name: str) -> Reconstruction:
    whole = BUILT_IN["attacks"][name].whole
    few = view.users[: 3 if name.startswith("root-") else 6]
    return make_attack(name, SHORT.get(name, {})).attack(view if whole else view.select(few), 5)


def reasons(found: Reconstruction) -> set[str]:
    return set(found.abstained.values())


def same(views: tuple[View, View], names: list[str], context: str) -> int:
    """How many attacks answered somebody; all gave the same from both."""
    read = 0
    for name in names:
        first, second = (answers(view, name) for view in views)
        if views[1].manifest.rule_name != views[0].manifest.rule_name:  # reasons name the rule
            if any("projected-sgd is not one that this attack knows" in why for why in reasons(second)):
                continue  # version 1 calls that rule sgd, and this attack takes it for that
            assert first.abstained.keys() == second.abstained.keys(), f"{name} on {context}"
            second = replace(second, abstained=first.abstained)
        assert_same(first, second, f"{name} on {context}")
        read += bool(first.blocks)
    return read


@pytest.fixture
def recorded(ratings, transcripts, tmp_path):
    def make(name: str) -> Path:
        path, how = tmp_path / slug(name), OURS[name]
        if how is None:
            shutil.copytree(transcripts[tuple(name.split("/"))].path, path)
        else:
            record(how[0], ratings, path, rounds=how[2], defenses=make_defenses(how[1]), seed=3)
        return path

    return make


@pytest.mark.parametrize(
    "recording", [CHEAP, *(pytest.param(name, marks=pytest.mark.thorough) for name in DIFFERENT)]
)
def test_our_recordings(recorded, recording):
    path = recorded(recording)
    for adversary in READ_BY.get(recording, ("server",)):
        assert same(both(path, adversary), FAST, f"{recording} by {adversary}")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "recording"),
    [
        (name, recording)
        for place, name in enumerate(SHORT)
        for number, recording in enumerate(OURS)
        if (place + number) % len(OURS) == 0
    ],
)
def test_our_recordings_by_what_iterates(recorded, recording, name):
    """Each on one recording."""
    path = recorded(recording)
    for adversary in READ_BY.get(recording, ("server",)):
        same(both(path, adversary), [name], f"{recording} by {adversary}")


@pytest.mark.parametrize(
    ("scenario", "changes"),
    [
        (SCENARIOS[1], {}),
        pytest.param(SCENARIOS[2], {"rounds": (1,), "dtype": np.float32}, marks=pytest.mark.thorough),
        pytest.param(SCENARIOS[3], {"scale": -0.02, "regularization": 0.003}, marks=pytest.mark.thorough),
    ],
    ids=["plain", "one round, single precision", "scaled"],
)
def test_recordings_of_another_program(tmp_path, scenario, changes):
    path = Reference(*scenario, **changes).write(tmp_path / "t", order=1)
    assert same(both(path), FAST, str(scenario))


@pytest.mark.parametrize("recording", ["sgd/include-unrated", "fedmf"])
def test_the_writer_says_the_same_of_version_2(recorded, recording):
    """A manifest that is written as version 2 is the one that is written here by hand."""
    path = recorded(recording)
    second = open_transcript(as_version_2(path, path.with_name("second"))).manifest
    told = {"version": 2, "declared_rule": open_transcript(path).manifest.rule}
    written: Manifest = open_transcript(path).manifest.model_copy(update=told)
    left, right = file_of(written), file_of(second)
    left["parties"], right["parties"] = (
        {n: p["id"] for n, p in one["parties"].items()} for one in (left, right)
    )
    assert left == right
