"""Every command with every victim and defense: done, or one line that says why it does not apply.

Small, and attacks and ceilings that take long are replaced by a guess or by none: what they say is tested
elsewhere, here it is that every command asks every component only for what its interface has.
"""

from __future__ import annotations

import json
import re

import pytest

from attacks.closed_form.undeclared import Undeclared
from attacks.inversion.attack import Inversion
from attacks.likelihood.attack import Likelihood
from attacks.metadata.guess import GuessMajority
from attacks.root_finding.scipy_root import Root
from attacks.trajectory.attack import Trajectory
from audit.experiments.scenarios import obstacle_of
from audit.factories import make_victim
from audit.registry import BUILT_IN, COMBINED
from audit.shell.exits import Exit

SIZE = ["--data", "synthetic:users=12,items=20,ratings_per_user=6"]
CHEAP = {"laplace": "laplace:scale=2", "paillier": "paillier:ideal=true", "privmvmf": "privmvmf:ideal=true"}
DEFENSES = [CHEAP.get(name, name) for name in ("none", *BUILT_IN["defenses"], *COMBINED)]
# semi-als, which compiles most, is in test_cli
SCENARIOS = [(name, "sgd", "observed-only") for name in BUILT_IN["victims"] if name != "fedmvmf"]
SCENARIOS.append(("fedmvmf", "sgd", "include-unrated"))
GRAPHS = ("pdmfrec", "dpmf-yang", "dmf")  # clients who send to each other: a server sees nothing of them
NOISY = [name for name, parts in COMBINED.items() if "objective-noise" in parts]
INTERNAL = re.compile(r"[A-Z]\w*(Error|Exception|Answer)\b")

pytestmark = pytest.mark.filterwarnings("ignore:.*key.*:UserWarning")


@pytest.fixture
def ends_well(run, monkeypatch):
    """Run a command: 0, or 2 and one line; returns the exit code and what was printed."""
    for slow in (Inversion, Likelihood, Trajectory, Root, Undeclared):
        monkeypatch.setattr(slow, "attack", lambda self, view, key, _=None: GuessMajority().attack(view, key))

    for place in ("audit.experiments.attack_cells.computable", "audit.scoring.decoder.computable"):
        monkeypatch.setattr(place, lambda view: False)

    def call(*words: object) -> tuple[int, str]:
        code, text, error = run(*words)
        assert code in (0, 2), (words, text, error)
        if code == 2:
            assert error.startswith("factorleak: error: "), (words, error)
            assert error.count("\n") == 1, (words, error)
        assert "Traceback" not in text + error
        return code, text

    return call


def rows_are_honest(folder):
    """A failed row is no bug of ours in disguise, and says why."""
    rows = json.loads((folder / "results.json").read_text())
    assert rows
    for row in rows:
        assert row["status"] == "ran" or row["reason"], row
        assert not INTERNAL.match(row["reason"]), row


ONE_OF_A_KIND = (
    "gaussian",
    "clip",
    "top-k",
    "quantise",
    "round",
    "objective-noise",
    "paillier:ideal=true",
    "secure-sum",
)

PAIRS = [
    pytest.param(
        scenario,
        defense,
        id="-".join((*scenario, defense)),
        # every defense with one victim, and every victim without one and under noise
        marks=[pytest.mark.thorough]
        if defense in ONE_OF_A_KIND and scenario[0] != "decentralised-mf"
        else [],
    )
    for scenario in SCENARIOS
    for defense in DEFENSES
    if scenario[0] == "decentralised-mf"
    or defense.startswith(("none", "laplace"))
    or (scenario[2] == "include-unrated" and defense.startswith(("unrated", "paillier", "priv")))
    or (scenario[2] == "observed-only" and defense in ONE_OF_A_KIND)
]


@pytest.mark.parametrize(("scenario", "defense"), PAIRS)
class TestVictimsAndDefenses:
    def test_one_recording(self, ends_well, tmp_path, scenario, defense):
        words, defended = victim(scenario), [] if defense == "none" else ["--defense", defense]
        path, out = tmp_path / "t", tmp_path / "r.arrow"
        code, _ = ends_well("record", path, *words, *defended, "--rounds", "0,1")
        trained, text = ends_well("papers", "train", *words, *defended, "--rounds", "1,2")
        ranks = make_victim(scenario[0], {}).capabilities.implicit  # and predicts no ratings
        assert trained == (Exit.UNUSABLE if ranks else code)
        assert trained or "centralised alternating least squares" in text
        if code == 0:
            seen = ["--adversary", "neighbour:0"] if scenario[0] in GRAPHS else []
            assert ends_well("attack", path, "--attack", "spectral", "--out", out, *seen)[0] == 0
            beside = ["--truth", tmp_path / "t.truth.arrow", "--transcript", path]
            assert ends_well("score", out, *beside)[0] == 0

    def test_grids(self, ends_well, tmp_path, scenario, defense):
        words, out = victim(scenario), tmp_path / "A"
        defended = [] if defense == "none" else ["--defense", defense]
        attacks = ["--attack", "rated-set", "--attack", "root-lm", "--attack", "likelihood"]
        code, _ = ends_well("audit", *words, *defended, *attacks, "--rounds", "0,1", "--out", out)
        name, update, weighting = scenario
        alone = obstacle_of(name, {"update": update, "weighting": weighting}, defense)
        assert (code == 2) == bool(alone)  # what does not apply is an error where it is all that is asked
        if not alone:
            rows_are_honest(out)
        ends_well("papers", "quality", *words, "--defense", defense, "--rounds", 1, "--runs", 1, "--jobs", 1,
                  "--scenario", "existing", "--out", tmp_path / "Q")  # fmt: skip
        ends_well("papers", "cost", *words, "--defense", defense, "--sample", 2, "--key-bits", 1024,
                   "--no-phe", "--out", tmp_path / "K")  # fmt: skip


SPARED = ("decentralised-mf",)
VICTIMS = [
    pytest.param(
        scenario,
        id="-".join(scenario),
        # pdmfrec stands for all
        marks=[] if scenario[0] == "pdmfrec" else [pytest.mark.thorough],
    )
    for scenario in SCENARIOS
    if scenario[0] in ("pdmfrec", "decentralised-mf", "fedmvmf")
]


@pytest.mark.parametrize("scenario", VICTIMS)
class TestVictims:
    def test_compare(self, ends_well, tmp_path, scenario):
        """With keys where sums are decrypted; what compare makes of them is the same for all."""
        defenses = DEFENSES
        if scenario[0] in SPARED:  # one of each kind
            defenses = [
                name for name in DEFENSES if name.partition(":")[0] in ("none", "laplace", "paillier")
            ]
        if scenario[0] in GRAPHS:  # that most of them do not apply, and why, is in test_one_recording
            defenses = ["none", "secure-sum"]
        if scenario[2] == "include-unrated":  # PrivMVMF is one of them
            sealed = [name for name in DEFENSES if "ideal=true" in name]
            defenses = ["none", *(name.replace("ideal=true", "key_bits=1024") for name in sealed)]
        words = ["--trained", 1, "--runs", 1, "--jobs", 1, "--rounds", "0,1", "--out", tmp_path / "C"]
        code, text = ends_well("compare", *victim(scenario), *words, "--defenses", *defenses)
        assert code == 0
        assert all(name in text for name in defenses)
        rows_are_honest(tmp_path / "C")

    def test_sweep(self, ends_well, tmp_path, scenario):
        words = ["--attacks", "guess-majority,rated-set", "--scales", "0", "--rounds", 1, "--first", 0]
        code, _ = ends_well("sweep", *victim(scenario), *words, "--jobs", 1, "--out", tmp_path / "S")
        assert code == 0
        rows_are_honest(tmp_path / "S")


class TestPaper002:
    def test_predict(self, ends_well, tmp_path):
        methods = [word for name in ("mf", *NOISY) for word in ("--method", name)]
        words = ["--epochs", 1, "--runs", 1, "--factors", 2, "--jobs", 1, "--set", "order=batch"]
        assert ends_well("papers", "predict", *SIZE, *methods, *words, "--out", tmp_path / "P")[0] == 0
        rows_are_honest(tmp_path / "P")

    @pytest.mark.parametrize("name", ["laplace", "privmvmf", "paillier", "stretching"])
    def test_what_has_no_such_noise(self, ends_well, tmp_path, name):
        """Methods are defenses that say when noise is drawn."""
        for command, option in (("papers predict", "--method"), ("claims", "--protocol")):
            words = [*command.split(), *SIZE, option, name, "--epochs", 2, "--jobs", 1]
            assert ends_well(*words, "--out", tmp_path / command)[0] == 2

    @pytest.mark.thorough
    def test_claims(self, ends_well, tmp_path):
        methods = [word for name in ("mf", *NOISY) for word in ("--protocol", name)]
        words = ["--noise", "composed", "--rounds", 2, "--epochs", 2, "--jobs", 1, "--set", "factors=2"]
        assert ends_well("claims", *SIZE, *methods, *words, "--out", tmp_path / "C")[0] == 0
        rows_are_honest(tmp_path / "C")

    def test_training_by_single_ratings(self, ends_well):
        words = ["--victim", "mf", "--set", "factors=2", "--set", "order=per-rating", "--rounds", 1]
        ends_well("papers", "train", *SIZE, *words, "--defense", NOISY[0])


@pytest.mark.parametrize("group", ["victims", "defenses", "attacks", "adversaries"])
def test_lists(ends_well, group):
    assert ends_well("list", group)[0] == 0
    assert ends_well("data", "list")[0] == 0


def victim(scenario):
    name, update, weighting = scenario
    return [*SIZE, "--victim", name, "--update", update, "--weighting", weighting, "--set", "factors=2"]
