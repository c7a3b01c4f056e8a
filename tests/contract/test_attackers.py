"""Every victim and defense names the attacks that adapt to it, and these answer."""

from __future__ import annotations

import pytest

from audit.experiments.comparison import adapted, settled, short_of_rounds
from audit.experiments.plan import Comparison
from audit.factories import UNDECLARED, attackers_of, make_attack, make_defense, make_defenses, make_victim
from audit.keys import view_of
from audit.registry import BUILT_IN, entries
from victims.data.synthetic import Synthetic, generate
from victims.protocols.base import Defense
from victims.recording import record
from victims.transcript.reader import open_transcript

# a victim on which each defense is recorded
GROUND = {
    "laplace": ("fedmvmf", "laplace:b=0.1"),
    "gaussian": ("fedmvmf", "gaussian:scale=0.1"),
    "clip": ("fedmf", "clip:norm=0.1"),
    "top-k": ("fedmf", "top-k:share=0.8"),
    "quantise": ("fedmf", "quantise:bits=12"),
    "round": ("fedmf", "round:digits=6"),
    "unrated-sampling": ("fedmvmf", "unrated-sampling"),
    "stretching": ("mf", "stretching"),
    "personalized-sampling": ("mf", "personalized-sampling"),
    "objective-noise": ("mf", "objective-noise"),
    "paillier": ("fedmvmf", "paillier:ideal=true"),
    "compare-hashes": ("fedmvmf", "compare-hashes"),
    "secure-sum": ("fedmvmf", "secure-sum"),
    "dp-fedavg": ("fedmf", "dp-fedavg:norm=0.1"),
    "dp-ftrl": ("fedmf", "dp-ftrl:norm=0.1,epoch=1"),
}
# between them, all attacks that a declaration names
ONCE = {"dpmf-yang", "fedmf", "objective-noise", "pdmfrec", "secure-sum"}
SILENT = {
    ("decentralised-mf", "aggregate"),
    ("fedmf", "aggregate"),
    ("dp-fedavg", "aggregate"),
    ("dp-ftrl", "aggregate"),
    ("compare-hashes", "isolated"),
}  # about what a fellow client or an active server sees, not an honest server


@pytest.fixture(scope="module")
def community():
    return generate(Synthetic(users=12, items=60, ratings_per_user=10.0, single=0.0, seed=1))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ONCE else [pytest.mark.thorough])
        for name in (*BUILT_IN["victims"], *BUILT_IN["defenses"])
    ],
)
def test_declared_attacks_exist_and_answer(name, community, tmp_path):
    """A component whose attackers all abstain on it would always look safe."""
    of_victim = name in BUILT_IN["victims"]
    victim, defense = (name, "none") if of_victim else GROUND[name]
    declared = (make_victim(name).capabilities if of_victim else make_defense(name)).attackers
    assert {one.name for one in declared} <= set(entries("attacks"))
    assert [one for one in declared if not one.name.startswith("guess")]
    # labels of rows are told by their directions, which lie apart where there are many factors
    options = {"factors": "16" if victim == "fedrec" else "4"}
    if victim == "fedmvmf" and name not in ("paillier", "secure-sum"):  # somebody must be alone in a sum
        options["weighting"] = "include-unrated"
    rounds = range(max(one.rounds for one in declared))
    path = tmp_path / "recording"
    record(make_victim(victim, options), community, path, rounds=rounds, defenses=make_defenses(defense))
    opened = open_transcript(path)
    seen = (
        ["server"] if opened.deliveries is None else [*(f"neighbour:{n}" for n in range(12)), "eavesdropper"]
    )
    seen += ["helper"] if "helper" in opened.manifest.roles.values() else []
    for one in declared:
        if (name, one.name) in SILENT:
            continue
        reasons: set[str] = set()
        for whoever in seen:
            found = make_attack(one.name).attack(view_of(opened, whoever), 0)
            if len(found.abstained) < found.users.size:
                break
            reasons |= set(found.abstained.values())
        else:
            pytest.fail(f"{one.name} answers nobody: {sorted(reasons)}")


def test_what_a_comparison_runs():
    plan = Comparison(("none", "hdpmf:noise=once"), victim="mf", update="sgd", weighting="observed-only")
    assert [one.name for one in adapted(plan, "none")] == [
        "spectral",
        "grid",
        "trajectory",
        "aggregate",
        "rated-set",
    ]
    assert settled(plan).rounds == tuple(range(12))
    assert not short_of_rounds(plan)
    short = Comparison(plan.defenses, "mf", update="sgd", weighting="observed-only", rounds=(4, 5))
    assert short_of_rounds(short) == [
        "hdpmf:noise=once: trajectory uses 12 consecutive rounds, 2 are watched"
    ]
    chosen = Comparison(plan.defenses, "mf", update="sgd", weighting="observed-only", attacks=("trajectory",))
    assert settled(chosen).rounds == tuple(range(12))


def test_a_defense_that_names_no_attack_meets_those_that_need_no_word(monkeypatch):
    class Theirs(Defense):
        name = "theirs"

    monkeypatch.setattr("audit.factories.make_defenses", lambda text: [Theirs()])
    assert set(UNDECLARED) <= set(attackers_of("fedmvmf", {}, "theirs"))
