"""Rules found from uploads: which, with what constants, and what of a declaration they contradict."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import factorleak as fl
from attacks.closed_form.fit.bars import BARS
from attacks.identify.identification import Identification
from attacks.identify.local_rules import HIDDEN, OWN_RATES
from attacks.identify.row_rules import NOISY
from audit.cli.main import app
from tests.oracles.client_programs import Program
from tests.oracles.local_training import Client
from tests.oracles.local_training import Program as LocalProgram
from tests.oracles.rule_programs import TRUTH, Recording
from tests.oracles.shuffled_passes import ShuffledPasses, made_up, recorded
from tests.tools.declarations import declaration
from tests.tools.identify import random_recording, row_of
from victims.data.synthetic import Synthetic, generate
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.recording import record

NAMED = {  # keys that the rows of such a program always show
    "fresh": {"batch_size": "all", "loss": "squared"},
    "minibatch": {"batch_size": 4, "reduction": "sum"},
    "minibatch-mean": {"batch_size": 4, "reduction": "mean"},
    "own-bias-per-rating": {"order": "per-rating", "client_biases": True},
    "cross-entropy": {"loss": "logistic", "link": "sigmoid"},
    "sigmoid-per-rating": {"loss": "squared", "link": "sigmoid", "order": "per-rating"},
    "unit-ball": {"rule": "projected-sgd", "start": "kept"},
    "clipped-error-per-rating": {"clip": [-4.0, 4.0], "order": "per-rating"},
}


@pytest.mark.parametrize("rule", NAMED)
def test_nothing_is_told_that_is_not_so(tmp_path, rule):
    """A link, a mean of a step, biases, the unit ball: what the rows show is told, and nothing else."""
    Recording(rule, n_users=10, seed=3).record(tmp_path / "t")
    found = fl.identify(tmp_path / "t")
    assert found.rule.items() <= TRUTH[rule].items()
    assert NAMED[rule].items() <= found.rule.items()


@pytest.mark.thorough
@pytest.mark.usefixtures("optimised")
def test_a_confusion_table(tmp_path):
    """A recording of every eighth rule: nothing is told that is not so, next to no rating wrongly.

    But for optimizers, momentum and pairs of labels, which take minutes and have tests of their own.
    """
    rules = tuple(TRUTH)[: tuple(TRUTH).index("three-steps-momentum")]
    few = (replace(random_recording(seed), n_users=12) for seed in range(0, len(rules), 8))
    rows = [row_of(recording, tmp_path) for recording in few]
    assert not [row for row in rows if row["outcome"] == "wrong"]
    # a client's one clipped row may lie on the grid by accident
    assert sum(row["wrong"] for row in rows) <= BARS.accident * sum(row["answered"] for row in rows)
    assert sum(row["outcome"] in ("whole", "part") for row in rows) >= 3


def test_several_steps_that_are_too_short_are_not_called_one(tmp_path):
    """Rows in single precision of three steps over a mean: parallel, and no number of steps is told."""
    Recording("three-steps-mean", n_users=10, rate=0.003, dtype=np.float32, seed=17).record(tmp_path / "t")
    found = fl.identify(tmp_path / "t")
    assert found.rule["batch_size"] == "all"
    assert "local_steps" not in found.rule
    declared = {"rule": {"local_steps": 3, "order": "batch", "batch_size": "all", "upload": "delta"}}
    Recording("three-steps-mean", n_users=10, rate=0.003, dtype=np.float32, seed=17).record(
        tmp_path / "u", **declared
    )
    manifest = fl.open_transcript(tmp_path / "u").manifest
    assert not fl.identify(tmp_path / "u").contradictions(manifest)


@pytest.mark.thorough
@pytest.mark.usefixtures("optimised")
def test_short_steps_in_single_precision_are_not_counted(tmp_path):
    """Three steps with momentum: two without it, with a second rate or own scales, explain rows as well."""
    seed = 146
    random_recording(seed).record(tmp_path / "t")
    found = fl.identify(tmp_path / "t")
    assert found.rule["batch_size"] == "all"
    assert "local_steps" not in found.rule
    assert found.undecided == (HIDDEN,)


@pytest.mark.thorough
def test_steps_at_a_rate_of_each_client_are_not_counted(tmp_path):
    """Three steps in double precision: what clients do not share is no constant of a rule."""
    rng = np.random.default_rng(0)
    with fl.Recorder(tmp_path / "t", rating_levels=[1, 2, 3, 4, 5]) as recorder:
        q = rng.normal(0, 0.5, (40, 3))
        recorder.broadcast(0, q)
        for user, rate in enumerate(np.geomspace(0.004, 0.04, 8)):
            items, p = rng.choice(40, 12 + user, replace=False), rng.normal(0, 0.5, 3)
            v, r = q[items].copy(), rng.integers(1, 6, 12 + user)
            for _ in range(3):
                error = r - v @ p
                p, v = p + rate * error @ v, v + rate * np.outer(error, p)
            recorder.upload(0, user, v - q[items], items)
    found = fl.identify(tmp_path / "t")
    assert found.undecided == (OWN_RATES,)
    assert "local_steps" not in found.rule


def test_sum_and_mean_are_left_open_where_all_clients_have_as_many_ratings(tmp_path):
    """One step: what multiplies the rows may be a number or that over the ratings, and both are named."""
    rng = np.random.default_rng(0)
    with fl.Recorder(tmp_path / "t", rating_levels=[1, 2, 3, 4, 5]) as recorder:
        q = rng.normal(0, 0.4, (30, 4))
        recorder.broadcast(0, q)
        for user in range(8):
            items = rng.choice(30, 12, replace=False)
            p, r = rng.normal(0, 0.4, 4), rng.integers(1, 6, 12)
            recorder.upload(0, user, (r - q[items] @ p)[:, None] * p / 12, items)
    found = fl.identify(tmp_path / "t")
    assert "reduction" not in found.rule
    assert found.undecided == ("reduction sum or mean: all clients have as many ratings",)


@pytest.mark.thorough
def test_passes_are_counted(tmp_path):
    """Rows in double precision: the number, copies that move, and the constants."""
    rule, keys = "three-passes", {"local_steps": 3, "order": "per-rating"}
    program = Recording(rule, n_users=12, rate=0.02, seed=5)
    program.record(tmp_path / "t", rule={"rule": "sgd", "local_steps": 2})
    found = fl.identify(tmp_path / "t")
    assert found.rule.items() <= TRUTH[rule].items()
    assert keys.items() <= found.rule.items()
    assert found.constants["client_learning_rate"] == pytest.approx(0.01, rel=1e-2)  # of 2 gamma
    manifest = fl.open_transcript(tmp_path / "t").manifest
    assert [one.key for one in found.contradictions(manifest)] == ["local_steps"]


@pytest.mark.thorough
@pytest.mark.usefixtures("optimised")
def test_nesterovs_momentum_between_steps_over_all_ratings(tmp_path):
    LocalProgram(Client(momentum=0.9, nesterov=True), "delta", n_users=5).record(tmp_path / "t")
    found = fl.identify(tmp_path / "t")
    told = {"local_steps": 3, "momentum": 0.9, "nesterov": True, "moves_items": True, "reduction": "sum"}
    assert told.items() <= found.rule.items()
    assert found.constants["client_learning_rate"] == pytest.approx(0.01)


def test_what_was_found_is_part_of_the_result(tmp_path):
    """An attack under the identified rule names it, from the face and from the command line."""
    Recording("minibatch-mean", n_users=8, seed=1).record(tmp_path / "t")
    found = fl.attack(tmp_path / "t", "undeclared", identified=True)
    assert found.options["identified"]["rule"]["reduction"] == "mean"
    done = CliRunner().invoke(
        app,
        ["attack", str(tmp_path / "t"), "--attack", "undeclared", "--identify", "--json"]
        + ["--out", str(tmp_path / "r.arrow")],
    )
    assert json.loads(done.stdout)["identified"]["rule"] == found.options["identified"]["rule"]
    checked = CliRunner().invoke(app, ["transcript", "check", str(tmp_path / "t")])
    assert "mean" in checked.stdout


@pytest.mark.parametrize("rule", ["sgd", "semi-als"])
def test_constants(tmp_path, rule):
    program = Program(rule, rate=0.013, ridge=0.37, scale=-3.0, pull=0.05)
    program.record(tmp_path / "t")
    constants = fl.identify(tmp_path / "t").constants
    assert constants["upload_scale"] == pytest.approx(-3.0)
    assert constants["upload_regularization"] == pytest.approx(-0.15)
    assert constants["lambda_factors"] == pytest.approx(0.37, rel=1e-4)
    if rule != "semi-als":
        assert constants["client_learning_rate"] == pytest.approx(0.013, rel=1e-4)


def test_constants_with_attributes(tmp_path):
    update = "sgd"
    ratings = fl.synthetic(users=30, items=30, ratings_per_user=9)
    fl.record(
        tmp_path / "t", ratings, victim="fedmvmf", update=update, weighting="observed-only", rounds=[4, 5]
    )
    opened = fl.open_transcript(tmp_path / "t")
    found = fl.identify(opened)
    assert not found.contradictions(opened.manifest)
    for key in ("lambda_factors", "lambda_attributes", "client_learning_rate"):
        if key in opened.manifest.hyperparameters:
            assert found.constants[key] == pytest.approx(opened.manifest.hyperparameters[key], rel=1e-3)


@pytest.mark.parametrize("declared", ["semi-als", pytest.param("sgd", marks=pytest.mark.thorough)])
def test_a_wrong_update_is_named_and_attacks_can_do_without_it(tmp_path, declared):
    """Declared as the other: the page, the audit and the table say so; under the found rule all are read."""
    ratings = fl.synthetic(users=40, items=30, ratings_per_user=8)
    truly = {"semi-als": "sgd", "sgd": "semi-als"}[declared]
    path = tmp_path / "t"
    fl.record(path, ratings, victim="fedmvmf", update=truly, weighting="observed-only", rounds=[4, 5], seed=1)
    content = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**content, "update": declared}))
    (wrong,) = fl.identify(path).contradictions(fl.open_transcript(path).manifest)
    assert str(wrong) == f"rule is declared {declared}, and the rows of 39 of 40 clients say {truly}"
    rule = {key.name: key for key in fl.check_transcript(path).rule}
    assert rule["rule"].source == f"contradicted by the uploads: {wrong}"
    under_it, as_declared = (
        fl.attack(path, "spectral", identified=identified) for identified in (True, False)
    )
    assert len(under_it.abstained) <= 1
    assert (len(as_declared.abstained) > 20) == (declared == "semi-als")  # sgd has a way without constants


def test_wrong_constants_are_named(tmp_path):
    program = Program("sgd", rate=0.02, ridge=0.1)
    declared = {"rule": {"rule": "sgd", "order": "per-rating", "reduction": "mean"}}
    declared["constants"] = {"upload_scale": 1.0, "client_learning_rate": 0.04, "lambda_factors": 0.1}
    program.record(tmp_path / "t", declared)
    manifest = fl.open_transcript(tmp_path / "t").manifest
    named = {one.key: one.found for one in fl.identify(tmp_path / "t").contradictions(manifest)}
    assert named == {
        "order": "batch",
        "reduction": "sum",
        "upload_scale": "-2",
        "client_learning_rate": "0.02",
    }


@pytest.mark.thorough
def test_where_nothing_can_be_told(tmp_path):
    ratings = fl.synthetic(users=8, items=12, ratings_per_user=5)
    path = tmp_path / "t"
    fl.record(path, ratings, victim="fedmvmf", weighting="include-unrated", rounds=[0])
    found = fl.identify(path)
    assert "weight of their own" in found.obstacle
    assert not found.rule
    view = fl.open_transcript(path).view("server")
    assert found.applied(view) is view
    Program("noise").record(tmp_path / "u")
    assert fl.identify(tmp_path / "u").obstacle.startswith("0 of 20 clients sent rows of one step")


def test_a_declared_step_that_moves_no_factor_is_contradicted(tmp_path):
    """Factors drawn anew each round, declared as kept and moved by one step; the same declaration of clients
    who do so is not contradicted.
    """
    told = {}
    for rule in ("fresh", "sgd"):
        program = Program(rule, rate=0.02)
        declared = declaration(program)
        declared["rule"]["start"] = "kept"
        program.record(tmp_path / rule, declared)
        view = fl.open_transcript(tmp_path / rule).view("server")
        told[rule] = [one.key for one in fl.identify(view).contradictions(view.manifest)]
    assert told == {"fresh": ["rule"], "sgd": []}


def test_a_number_that_is_nothing_contradicts_no_zero_and_what_is_left_out_is_said_to_be(tmp_path):
    """A regularisation of -9e-14 was held against one of 0, and 0 was called declared where nothing was."""
    with fl.Recorder(
        tmp_path / "t", rating_levels=[1, 2, 3], constants={"lambda_factors": 0.0, "upload_scale": 1.0}
    ) as recorder:
        recorder.broadcast(0, np.eye(3))
        recorder.upload(0, "anna", np.eye(3), [0, 1, 2])
    found = Identification({}, {"lambda_factors": -9e-14, "upload_regularization": -0.04}, (), 6, 6)
    (told,) = found.contradictions(fl.open_transcript(tmp_path / "t").manifest)
    words = "is declared 0, or not at all, and the rows of 6 of 6 clients say -0.04"
    assert str(told) == f"upload_regularization {words}"


def test_a_decay_that_single_precision_hides_is_none(tmp_path):
    """Factors in single precision without regularisation: 8e-7 was said to contradict a declared 0."""
    rng, users, items, k = np.random.default_rng(0), 12, 40, 5
    p, q = (rng.normal(0, 0.3, (n, k)).astype(np.float32) for n in (users, items))
    rated = [rng.permutation(items)[:15] for _ in range(users)]
    ratings = [rng.integers(1, 6, 15).astype(np.float32) for _ in range(users)]
    rule = {"rule": "sgd", "order": "batch", "batch_size": "all", "local_steps": 1, "start": "kept"}
    constants = {"client_learning_rate": 0.002, "lambda_factors": 0.0}
    with fl.Recorder(tmp_path / "t", rating_levels=range(1, 6), rule=rule, constants=constants) as recorder:
        for step in range(3):
            recorder.broadcast(step, q)
            total = np.zeros_like(q)
            for user, (own, given) in enumerate(zip(rated, ratings, strict=True)):
                error = given - q[own] @ p[user]
                recorder.upload(step, user, error[:, None] * p[user], own)
                total[own] += error[:, None] * p[user]
                p[user] += np.float32(0.004) * (error @ q[own])
            q = q + np.float32(0.01) * total
    found = fl.identify(tmp_path / "t")
    assert found.rule["rule"] == "sgd"
    assert not found.contradictions(fl.open_transcript(tmp_path / "t").manifest)


@pytest.mark.parametrize(
    ("regularize", "constant"), [("step", "step_regularization"), ("sample", "regularization")]
)
def test_how_the_regularization_of_a_unit_ball_counts(tmp_path, regularize, constant):
    """Hu & Fang's Eq. (4) has it once in a step, its program with every rating."""
    ratings = generate(Synthetic(users=20, items=24, ratings_per_user=9.0, seed=3))
    victim = DecentralisedMF(factors=3, learning_rate=0.01, regularization=0.3, regularize=regularize)
    record(victim, ratings, tmp_path / "t", rounds=[0, 1, 2])
    constants = fl.identify(tmp_path / "t").constants
    assert constants[constant] == pytest.approx(0.3)
    assert len({"step_regularization", "regularization"} & {*constants}) == 1


@pytest.mark.thorough
def test_rows_that_are_linear_in_ratings_with_noise_are_a_family(tmp_path):
    """Shuffled minibatches: no rule, and what reads them is named."""
    data = made_up(12, 200, factors=6, seed=1)
    recorded(tmp_path / "t", ShuffledPasses(0.01, batch=8), data, range(12), 2)
    found = fl.identify(tmp_path / "t")
    ((_, clients, looked_at, nats),) = (one for one in found.families() if one[0] == NOISY)
    assert clients >= 10
    assert looked_at == 12
    assert nats > 5
    assert not found.rule
    assert "which undeclared reads" in found.obstacle
