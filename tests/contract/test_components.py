"""What every victim, defense and attack must do; a component that is not listed fails the suite."""

from __future__ import annotations

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from attacks.base import Reconstruction
from audit.factories import make_attack, make_defenses, make_victim
from audit.registry import BUILT_IN
from audit.scoring.metrics import score_users
from audit.scoring.score import score
from audit.scoring.truth import read_truth
from factorleak import plugins
from tests.conftest import shared
from tests.oracles.simulator import SCENARIOS, Reference
from victims.common.errors import InputError
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript
from victims.transcript.view import View

ATTACKS = list(BUILT_IN["attacks"])
VERBS = {"victims": {"init", "manifest"}, "attacks": {"attack"}, "defenses": {"Defense"}}
INTERFACES = {"Victim", "Attack", "Defense", "ActiveServer"}  # the last wraps a victim, for an adversary
READERS = [name for name in ATTACKS if not name.startswith("guess")]
SOLVERS = [name for name in ATTACKS if name.startswith(("root-", "likelihood"))]
# what computes for long meets one scenario, solvers one of each weighting and update in turn
MET = {name: SCENARIOS[(0, 3)[place % 2]] for place, name in enumerate(SOLVERS)}
MET |= dict.fromkeys(("inversion", "trajectory", "undeclared"), SCENARIOS[3])


def by_scenario(names, thorough=()):
    """Attacks by scenarios; those of ``thorough`` are thorough."""
    return [
        pytest.param(
            scenario,
            name,
            id="/".join((*scenario, name)),
            marks=[pytest.mark.thorough] if name in thorough else [],
        )
        for scenario in SCENARIOS
        for name in names
        if MET.get(name, scenario) == scenario
    ]


def small(view, name):
    """Six clients for the solvers, which go one by one; the others share with the null what compiles."""
    return view.select(view.users[: 6 if name.startswith("root-") else 20])


class Answered(NamedTuple):
    """A view, what an attack read of it under seed 7, and the progress that it reported."""

    view: View
    found: Reconstruction
    progress: list[tuple[int, int]]


@pytest.fixture(scope="module")
def answer(transcripts):
    """What an attack reads of a few clients of a scenario, once for all that is asked of it."""

    @cache
    def read(scenario: tuple[str, str], name: str) -> Answered:
        calls: list[tuple[int, int]] = []
        view = small(transcripts[scenario].view("server"), name)
        found = make_attack(name).attack(view, 7, lambda done, total: calls.append((done, total)))
        return Answered(view, found, calls)

    return read


class TestRegistry:
    @pytest.mark.parametrize(("group", "verbs"), list(VERBS.items()))
    def test_every_class_is_registered(self, group, verbs):
        """A class that has the verbs of a group, or its base, is in its table."""
        found = set()
        folder = Path(import_module(group).__path__[0])  # the checkout's, or the wheel's
        for path in folder.rglob("*.py"):
            module = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
            has: dict[str, set[str]] = {}
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    bases = {ast.unparse(base) for base in node.bases}
                    own = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
                    has[node.name] = own.union(bases, *(has.get(base, ()) for base in bases))
                    public = not node.name.startswith("_") and node.name not in INTERFACES
                    if public and verbs <= has[node.name]:
                        found.add(f"{module}:{node.name}")
        assert found == {entry.location for entry in BUILT_IN[group].values()}

    @pytest.mark.parametrize("name", ATTACKS)
    def test_attacks_have_their_name(self, name):
        assert make_attack(name).name == name

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("spectre", {}, "known are spectral"),
            ("spectral", {"speed": "9"}, "no option 'speed'"),
            ("root-hybr", {"method": "lm"}, "no option 'method'"),
            ("root-hybr", {"tolerance": "small"}, "tolerance"),
            ("root-hybr", {"tolerance": "-1"}, "tolerance of root must be > 0"),
        ],
    )
    def test_bad_names_and_options(self, name, options, message):
        with pytest.raises(InputError, match=message):
            make_attack(name, options)


class TestContract:
    """What is asked of components of other packages, asked of ours."""

    @pytest.mark.parametrize("name", list(BUILT_IN["victims"]))
    def test_victims(self, name):
        plugins.check_victim(make_victim(name, {"factors": "3"}))

    @pytest.mark.parametrize("name", list(BUILT_IN["defenses"]))
    def test_defenses(self, name):
        for defense in make_defenses(name):
            plugins.check_defense(defense)

    @pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=[pytest.mark.thorough] if name in SOLVERS else [])
            for name in ATTACKS
            # with the slips of its paper one answers nobody; of the solvers two stand for all
            if name != "eq24-printed" and (name not in SOLVERS or name in ("likelihood", "root-lm"))
        ],
    )
    def test_attacks(self, name):
        plugins.check_attack(make_attack(name))


@pytest.mark.parametrize(("scenario", "name"), by_scenario(ATTACKS))
class TestEveryScenario:
    def test_deterministic(self, answer, scenario, name):
        view, first, _ = answer(scenario, name)
        second = make_attack(name).attack(view, 7)
        assert first.abstained == second.abstained
        for a, b in zip(first.rows(), second.rows(), strict=True):
            for x, y in zip(a, b, strict=True):
                np.testing.assert_array_equal(x, y)

    def test_answers_or_abstains_for_every_client(self, answer, scenario, name):
        view, found, calls = answer(scenario, name)
        assert found.users.tolist() == view.users.tolist()
        answered = {int(user) for rows in found.rows() for user in rows[0]}
        assert answered | set(found.abstained) == set(view.users.tolist())
        assert not answered & set(found.abstained)
        assert found.options["seed"] == 7
        for values in found.diagnostics.values():
            assert values.shape == found.users.shape
        if found.blocks and not name.startswith("guess"):
            assert calls[-1] == (view.users.size, view.users.size)  # progress ends at the number of clients


@pytest.mark.parametrize("name", ATTACKS)
class TestEveryAttack:
    def test_no_uploads_no_answer(self, transcripts, name):
        view = transcripts["sgd", "include-unrated"].view("item-server")
        found = make_attack(name).attack(view, 0)
        assert found.blocks == ()
        assert found.users.size == 0


LONG = ("likelihood", "root-anderson", "root-krylov", "root-linearmixing", "undeclared")


@pytest.mark.parametrize(("scenario", "name"), by_scenario(READERS, LONG))
def test_a_shuffled_transcript_gives_no_advantage(transcripts, name, scenario):
    """The null: gradients dealt out anew. Where an attack answers at all it must not beat the guess,
    and the attack that abstains on what does not fit has an interval that includes 0.
    """
    transcript = transcripts[scenario]
    view = transcript.view("server")
    if name != "spectral":
        # as many as in ``small``; these take longest for each
        view = view.select(view.users[: 6 if name.startswith("root-") or name == "undeclared" else 20])
    truth = read_truth(truth_path(transcript.path))
    found = make_attack(name).attack(view.shuffled(2), 0)
    for row in score(found, transcript.manifest, truth):
        in_the_open = row.metric.startswith(("rated_set", "tpr")) and scenario[1] == "observed-only"
        if not in_the_open:  # observed-only uploads name the rated items, shuffled or not
            assert row.summary.verdict != "LEAK"
            if row.summary.n_unanswered == row.summary.n_users:
                assert row.summary.verdict == "NOT TESTED"
                continue
            if not name.startswith("root"):  # which always answer: one interval in forty is above 0 by chance
                assert row.summary.advantage_low <= 0
            if name == "spectral":
                assert row.summary.advantage_high >= 0


@pytest.mark.parametrize("scenario", SCENARIOS, ids="/".join)
def test_the_closed_form_reads_everything(transcripts, ratings, scenario):
    transcript = transcripts[scenario]
    truth = read_truth(truth_path(transcript.path))
    found = make_attack("spectral").attack(transcript.view("server"), 0)
    scores = score_users(found.blocks, transcript.manifest, truth, found.users)
    for metric, values in scores.items():
        expected = 0 if metric == "rating_mae" else 1
        np.testing.assert_allclose(values[~np.isnan(values)], expected, atol=1e-5, err_msg=metric)


@pytest.mark.parametrize("source", ["simulator", "examples"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids="-".join)
def test_transcripts_of_other_software(tmp_path, scenario, source):
    """Those of the tests' own simulator, and those of ../shared/examples where they are here."""
    update, weighting = scenario
    if source == "simulator":
        many = {"n_users": 40, "n_items": 150, "factors": 6, "density": 0.1}
        path = Reference(update, weighting, **many).write(tmp_path / "t")
    else:
        path = shared("examples", "-".join(scenario))
    transcript, truth = open_transcript(path), read_truth(truth_path(path))
    found = make_attack("spectral").attack(transcript.view("server"), 0)
    rows = {row.metric: row.summary for row in score(found, transcript.manifest, truth)}
    assert rows["rating_accuracy"].value == 1.0
    assert rows["attribute_accuracy"].value == 1.0
