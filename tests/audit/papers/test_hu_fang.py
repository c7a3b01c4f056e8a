"""Prediction error of private matrix factorisation: rows, splits, and what is shown of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from audit.factories import make_defenses
from audit.papers import hu_fang, tuned_mf
from audit.papers.plans import VARIED, Prediction
from audit.scoring.prediction_errors import comparisons
from reports.paper_figures import prediction_figure
from reports.paper_tables import prediction_table
from victims.common.errors import InputError
from victims.data.published import published_split
from victims.data.subsets import folds, leave_out, split_by
from victims.data.synthetic import Synthetic, generate
from victims.evaluation.rating_error import predictions
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.training import start
from victims.training_together import trained_together


@pytest.fixture(scope="module")
def small():
    return generate(Synthetic(users=60, items=16, ratings_per_user=10.0, single=0.0, seed=5))


@pytest.fixture(scope="module")
def timed(small):
    """The same with a time of each rating."""
    return replace(small, times=np.random.default_rng(0).random(small.n_ratings))


@pytest.mark.parametrize("vary", ["nothing", "fraction"])
def test_other_splits(timed, tmp_path, vary):
    """Cells of one split are not those of another, and what a split holds out is tested."""
    rule = "time"
    plan = Prediction(methods=("mf",), factors=(2,), epochs=1, runs=1, vary=vary, split=rule,
        victim_options={"order": "batch", "learning_rate": "0.01"},
    )  # fmt: skip
    train, test = hu_fang.held_out(plan, timed, 0)
    by_rule = split_by(rule, timed, 0.2, 0)
    assert [part.items.tolist() for part in (train, test)] == [part.items.tolist() for part in by_rule]
    rows = hu_fang.run(plan, timed, tmp_path, jobs=1)
    other = hu_fang.run(replace(plan, split="paper"), timed, tmp_path, jobs=1)
    assert rows[-2]["baseline"] == pytest.approx(np.mean((train.values.mean() - test.values) ** 2))
    assert [row["baseline"] for row in rows] != [row["baseline"] for row in other]


def test_a_split_that_the_ratings_do_not_allow_is_told_before_training(small, tmp_path):
    with pytest.raises(InputError, match="tells no times"):
        hu_fang.run(Prediction(methods=("mf",), split="time"), small, tmp_path)
    with pytest.raises(InputError, match="a split must be one of"):
        hu_fang.run(Prediction(methods=("mf",), split="latest"), small, tmp_path)
    assert not list(tmp_path.iterdir())


def test_prediction(small, tmp_path):
    vary = "user_low"
    quick = {"order": "batch", "learning_rate": "0.01"}
    plan = Prediction(
        methods=("mf", "hdpmf"), factors=(3,), epochs=3, runs=2, vary=vary, victim_options=quick
    )
    rows = hu_fang.run(plan, small, tmp_path, jobs=1)
    assert {row["status"] for row in rows} == {"ran"}
    assert all(np.isfinite([row["value"], row["baseline"]]).all() for row in rows)
    table = prediction_table(rows, "ml-100k", "x", vary)
    assert len(table.rows) == 3 * len(VARIED[vary])
    assert len([path for path in prediction_figure(rows, vary, tmp_path) if path.exists()]) == 2


def test_a_failed_training_is_a_row(small, tmp_path):
    plan = Prediction(
        methods=("mf",), factors=(3,), epochs=2, runs=1, victim_options={"learning_rate": "1e200"}
    )
    rows = hu_fang.run(plan, small, tmp_path, jobs=1)
    assert rows[0]["status"] == "failed"
    assert "diverged" in rows[0]["reason"]
    with pytest.raises(InputError, match="needs a method with budgets"):
        hu_fang.run(Prediction(methods=("mf",), vary="user_low"), small, tmp_path)
    with pytest.raises(InputError, match="vary of a prediction must be nothing, user_low"):
        hu_fang.run(Prediction(vary="mood"), small, tmp_path)


def test_errors_of_users_are_kept_beside_the_rows(small, tmp_path):
    """They add up to the rows, whose intervals hold the value; a file of other users is as good as none."""
    plan = replace(QUICK, methods=("mf", "hdpmf"), runs=2)
    rows = hu_fang.run(plan, small, tmp_path, jobs=1)
    kept = hu_fang.user_errors(plan, small, tmp_path)
    assert set(kept) == {(f"{method} K=2", seed) for method in ("mf", "hdpmf") for seed in (0, 1)}
    for row in rows:
        errors = kept[row["victim"], row["seed"]]
        assert row["value"] == pytest.approx(errors.of(row["metric"]).sum() / errors.count.sum())
        assert row["ci_low"] < row["value"] < row["ci_high"]
    assert all(
        one.over_users[0] <= one.result.better_by <= one.over_users[1] for one in comparisons(rows, kept)
    )
    assert hu_fang.user_errors(plan, generate(Synthetic(users=59)), tmp_path) == {}
    for path in (tmp_path / "cells").glob("*.users.npy"):
        path.write_bytes(b"no table")
    assert hu_fang.user_errors(plan, small, tmp_path) == {}
    assert comparisons(rows, {})[0].over_users is None


def test_splits(small, tmp_path):
    train, test = leave_out(small, 4, 0)
    assert (np.diff(test.indptr) == np.minimum(4, np.diff(small.indptr) - 1)).all()
    assert train.n_ratings + test.n_ratings == small.n_ratings
    assert published_split(str(tmp_path), small) is None
    with pytest.raises(InputError, match="must be >= 1, got 0"):
        leave_out(small, 0, 0)


QUICK = Prediction(methods=("mf",), factors=(2,), epochs=2, runs=1, victim_options={"order": "batch"})


def test_options_are_chosen_by_folds_of_the_training_ratings(small, tmp_path, monkeypatch):
    """Against the same choice written out; a second search trains nothing."""
    monkeypatch.setattr(tuned_mf, "RATES", (0.05, 0.001))
    rows = tuned_mf.tune(QUICK, small, tmp_path, 2, jobs=1)
    train, _ = hu_fang.held_out(QUICK, small, 0)
    errors = {}
    for rate, ridge in product((0.05, 0.001), tuned_mf.RIDGES):
        of_folds = []
        for kept, held_out in folds(train, 2, 0):
            victim = DecentralisedMF(factors=2, epochs=2, learning_rate=rate, regularization=ridge)
            run = start(victim, kept, [], 0).trained(0).trained(1)
            of_folds.append(np.mean((predictions(run, held_out) - held_out.values) ** 2))
        errors[f"{rate:g}", f"{ridge:g}"] = np.mean(of_folds)
    rate, ridge = min(errors, key=errors.get)
    chosen = tuned_mf.best(rows)
    assert chosen == {("mf", 2): {"learning_rate": rate, "regularization": ridge}}
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "tuning" / "cells").iterdir()}
    again = tuned_mf.tune(QUICK, small, tmp_path, 2, jobs=1)
    assert [row["value"] for row in again] == [row["value"] for row in rows]
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "tuning" / "cells").iterdir()}
    options = hu_fang.victim_options(replace(QUICK, chosen=chosen), 2, "mf")
    assert (options["learning_rate"], options["regularization"]) == (rate, ridge)


@pytest.mark.thorough
def test_candidates_are_trained_as_if_alone():
    """Under noise, in the order per-rating; one that diverges is told and disturbs no other."""
    few = generate(Synthetic(users=9, items=5, ratings_per_user=3.0, single=0.0, seed=5))
    pairs = [(0.05, 0.01), (1e200, 0.01), (0.002, 0.1)]
    victims = [
        DecentralisedMF(order="per-rating", factors=3, epochs=4, learning_rate=rate, regularization=ridge)
        for rate, ridge in pairs
    ]
    runs = [start(victim, few, make_defenses("hdpmf:noise=fresh"), 3) for victim in victims]
    together = trained_together(runs, 4)
    assert isinstance(together[1], InputError)
    for number in (0, 2):
        alone = runs[number]
        for epoch in range(4):
            alone = alone.trained(epoch)
        np.testing.assert_allclose(together[number].state.item_factors, alone.state.item_factors, rtol=1e-9)
        np.testing.assert_allclose(
            together[number].state.client_factors, alone.state.client_factors, rtol=1e-9
        )


def test_hdpmf_r_has_the_choice_of_hdpmf(small, tmp_path, monkeypatch):
    """It is the same training with other predictions."""
    monkeypatch.setattr(tuned_mf, "RATES", (0.01,))
    plan = replace(QUICK, methods=("hdpmf", "hdpmf-r"))
    rows = tuned_mf.tune(plan, small, tmp_path, 2, jobs=1)
    assert len(rows) == 2 * len(tuned_mf.RIDGES)
    chosen = replace(plan, chosen=tuned_mf.best(rows))
    assert hu_fang.victim_options(chosen, 2, "hdpmf-r") == hu_fang.victim_options(chosen, 2, "hdpmf")


def test_a_candidate_that_diverges_is_not_chosen():
    def row(candidate, value, status="ran"):
        return {"victim": f"mf K=2 {candidate}", "value": value, "status": status}

    good, bad = "learning_rate=1,regularization=0", "learning_rate=9,regularization=0"
    rows = [row(good, 2.0), row(good, 3.0), row(bad, 1.0), row(bad, float("nan"), "failed")]
    assert tuned_mf.best(rows)["mf", 2]["learning_rate"] == "1"
    with pytest.raises(InputError, match="every candidate of mf at K = 2 failed"):
        tuned_mf.best(rows[2:])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"vary": "user_low", "methods": ("hdpmf",)}, "leave --vary user_low out"),
        ({"victim_options": {"learning_rate": "0.1"}}, "leave --set learning_rate out"),
    ],
)
def test_what_a_search_cannot_choose(small, tmp_path, change, complaint):
    with pytest.raises(InputError, match=complaint):
        tuned_mf.tune(replace(QUICK, **change), small, tmp_path, 2)


def test_points_and_predictions_as_they_are(small, tmp_path):
    """Each point is a budget of its own; without clipping no error is smaller than with it."""
    plan = replace(QUICK, methods=("dpmf",), vary="epsilon", points=(0.5, 200.0))
    rows = hu_fang.run(plan, small, tmp_path, jobs=1)
    open_ended = hu_fang.run(replace(plan, clip=False), small, tmp_path, jobs=1)
    errors, raw = ([row["value"] for row in some if row["metric"] == "mse"] for some in (rows, open_ended))
    assert len(errors) == 2
    assert [row["defense"].rpartition("=")[2] for row in rows[::2]] == ["0.5", "200"]
    assert errors[0] != errors[1]
    assert all(a < b for a, b in zip(errors, raw, strict=True))
    with pytest.raises(InputError, match="name it with --vary"):
        hu_fang.run(replace(plan, vary="nothing"), small, tmp_path)
