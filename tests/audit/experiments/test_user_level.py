"""Bounds of user-level epsilon: below what is proved where the noise is right, above where it is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import factorleak as fl
from audit.accounts import accounts_of
from audit.experiments.user_level import Trial, bound_of, craft
from audit.factories import make_defense, make_victim
from audit.scoring.lower_bounds import from_repetitions
from audit.shell.exits import Exit
from reports.words import in_words
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate

ROUNDS, RUNS, SURE = 3, 60, 1 - 1e-4
RATINGS = generate(Synthetic(users=12, items=10, ratings_per_user=4.0, seed=1))
VICTIM = make_victim("fedmf", {"factors": "2", "client_learning_rate": "0.01"})
FEDAVG, SAMPLED = "dp-fedavg:norm=0.002,noise=8", "dp-fedavg:norm=0.01,noise=1,sampling=0.02"
TREE = "dp-ftrl:norm=0.01,noise=6,epoch=3"


def trial(text, **really):
    claimed = make_defense(text)
    return Trial(VICTIM, craft(RATINGS, 0), 0, claimed, replace(claimed, **really), ROUNDS)


def proved(text):
    told = accounts_of("fedmf", [VICTIM], [make_defense(text)], RATINGS, n_rounds=ROUNDS, seed=0)
    return told[0].accounts[0].lines[0]


@pytest.mark.parametrize("text", [FEDAVG, SAMPLED, TREE])
def test_what_is_proved_is_not_refuted(text):
    """Fails for one seed in 10,000 at most."""
    line = proved(text)
    assert bound_of(trial(text), runs=RUNS, delta=line.delta, confidence=SURE).epsilon <= line.at_delta < 1


@pytest.mark.parametrize(
    ("text", "broken"),
    [(FEDAVG, {"noise": 0.0}), (TREE, {"noise": 0.0}), (FEDAVG, {"norm": 1.0, "noise": 0.016}),
     (SAMPLED, {"noise": 0.1, "sampling": 1.0})],
    ids=["no noise", "no noise on the tree", "no clipping", "no sampling and less noise"],
)  # fmt: skip
def test_what_is_left_out_is_found(text, broken):
    line = proved(text)
    assert (
        bound_of(trial(text, **broken), runs=RUNS, delta=line.delta, confidence=SURE).epsilon > line.at_delta
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "share"),
    [("dp-fedavg:norm=0.002,noise=1.5", 1 / 3), ("dp-ftrl:norm=0.002,noise=1,epoch=3", 0.1)],
)
def test_the_bound_comes_near(text, share):
    """At 95 %; of trees less, for the account counts every node, and only running sums are seen."""
    line = proved(text)
    found = bound_of(trial(text), runs=300, delta=line.delta).epsilon
    assert share * line.at_delta < found <= line.at_delta


def test_delta_counts():
    """Of a world that is told apart with probability delta alone nothing is bounded."""
    inside, outside = np.r_[np.ones(20), -np.ones(980)], -np.ones(1000)
    assert from_repetitions(inside, outside).epsilon > 0
    assert from_repetitions(inside, outside, delta=0.05).epsilon == 0


def test_a_fixed_number_of_clients_is_not_audited():
    some = trial(FEDAVG)._replace(victim=make_victim("fedmf", {"participation": "0.5"}))
    with pytest.raises(InputError, match="participation of a victim must be 1"):
        bound_of(some, runs=1, delta=0.1)


def test_an_audit_has_the_bound_beside_the_proof():
    options = {"victim": "fedmf", "factors": 2, "client_learning_rate": 0.01, "attacks": "guess-majority"}
    rows = fl.audit(RATINGS, defenses=SAMPLED, rounds=[ROUNDS - 1], trials=20, **options)
    row = rows.set_index("metric").loc["empirical_epsilon"]
    assert (row["adversary"], row["verdict"], row["rounds"]) == ("sums", "not refuted", ROUNDS)
    assert row["baseline"] == proved(SAMPLED).at_delta
    assert row["value"] <= row["baseline"]
    assert "of one client's rows the sums prove epsilon >= " in " ".join(in_words(rows.to_dict("records")))
    with pytest.raises(InputError, match="trials of an audit need one defense, dp-fedavg or dp-ftrl"):
        fl.audit(RATINGS, defenses="laplace", trials=20, **options)
    with pytest.raises(InputError, match="need noise on the sums, got noise=0"):
        fl.audit(RATINGS, defenses="dp-fedavg:noise=0", trials=20, **options)


def test_a_gate_speaks_of_trials_where_it_says_so(run, tmp_path):
    words = [
        "--data",
        "synthetic:users=12,items=10,ratings_per_user=4",
        "--victim",
        "fedmf",
        "--attack",
        "undeclared",
    ]
    words += ["--defense", FEDAVG, "--trials", "20", "--rounds", "0,1", "--allow-open", "--out", tmp_path]
    with_leak, without = (
        ["--fail-on", "leak"],
        ["--fail-on", "refuted", "--fail-on", "empirical_epsilon.value>9"],
    )
    code, _, said = run("audit", *words, *without)
    assert code == Exit.DONE, said
    assert run("audit", *words, "--fail-on", "empirical_epsilon.value<9")[0] == Exit.CROSSED
    assert "sums" not in run("audit", *words, *with_leak)[2]
