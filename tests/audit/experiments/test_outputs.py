"""What outputs alone tell: a model that learns ratings by heart leaks, one that learned nothing does not."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from audit.experiments import auditing
from audit.experiments.outputs import EPSILON, METRICS
from audit.experiments.plan import Audit
from reports.page.content import page_of
from reports.words import in_words
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate

OPTIONS = {"factors": 8, "client_learning_rate": 0.004}


@pytest.fixture(scope="module")
def ratings():
    return generate(Synthetic(users=40, items=50, ratings_per_user=15.0))


def rows_of(ratings, folder, **given):
    plan = auditing.settled(
        Audit(
            victim="fedmf",
            attacks=("guess-majority",),
            seed=1,
            **{"outputs": 10, "victim_options": OPTIONS, **given},
        )
    )
    return auditing.run(plan, ratings, folder)


def found(rows, attack, metric):
    (row,) = (row for row in rows if row["attack"] == attack and row["metric"] == metric)
    return row


def test_a_model_that_learned_its_ratings_leaks(ratings, tmp_path):
    rows = rows_of(ratings, tmp_path, rounds=(99,))
    outputs = [row for row in rows if row["adversary"] == "outputs"]
    assert {row["metric"] for row in outputs} == {*METRICS, f"rating_{EPSILON}", f"user_{EPSILON}"}
    lira = found(rows, "lira", "rating_membership_auc")
    assert lira["verdict"] == "LEAK"
    assert lira["value"] > 0.65
    assert lira["baseline"] == 0.5
    assert found(rows, "lira-lists", "rating_membership_auc")["verdict"] == "LEAK"
    assert (
        found(rows, "lira", f"rating_{EPSILON}")["value"]
        <= found(rows, "lira", f"rating_{EPSILON}")["ceiling"]
    )
    assert any("outputs alone" in line for line in in_words(rows))
    summary = page_of(rows, "page", {"outputs": ""}, []).summary
    assert "An observer of outputs tells" in summary.sentence
    assert json.dumps(rows, default=str) == json.dumps(rows_of(ratings, tmp_path, rounds=(99,)), default=str)


def test_a_model_that_learned_nothing_tells_nothing(ratings, tmp_path):
    """Start factors are drawn anew for each model. A leak by chance once in 100 for each of three attacks."""
    still = OPTIONS | {"client_learning_rate": 1e-9}
    rows = rows_of(ratings, tmp_path, rounds=(0,), victim_options=still)
    for attack in ("lira", "lira-offline", "threshold"):
        assert found(rows, attack, "rating_membership_auc")["verdict"] != "LEAK"
        assert found(rows, attack, "user_membership_auc")["verdict"] != "LEAK"


def test_no_user_is_told_better_than_is_proved(ratings, tmp_path):
    """The ceiling is that of the account; what is measured passes it by chance once in 1,000 at most."""
    options = {"rounds": (3,), "outputs": 8}
    noisy = rows_of(ratings, tmp_path / "1", defenses=("dp-fedavg:norm=0.05,noise=2",), **options)
    row = found(noisy, "lira", "user_membership_auc")
    assert row["ceiling"] == pytest.approx(ndtr(0.5**0.5))
    assert row["ci_low"] - (row["ci_high"] - row["ci_low"]) < row["ceiling"]
    assert found(noisy, "lira", "user_membership_tpr_at_fpr_1pct")["ceiling"] == pytest.approx(
        ndtr(ndtri(0.01) + 1)
    )
    assert np.isnan(found(noisy, "lira", "rating_membership_auc")["ceiling"])
    drawn = rows_of(ratings, tmp_path / "2", defenses=("dp-fedavg:noise=2,sampling=0.5",), **options)
    assert np.isnan(found(drawn, "lira", "user_membership_auc")["ceiling"])


@pytest.mark.thorough
def test_encryption_hides_no_output(ratings, tmp_path):
    """Paillier's rounding of factors moves predictions in their last digits alone."""
    bare, sealed = (
        found(
            rows_of(ratings, tmp_path / name, rounds=(9,), defenses=defenses), "lira", "rating_membership_auc"
        )
        for name, defenses in (("bare", ()), ("sealed", ("paillier",)))
    )
    assert sealed["value"] == pytest.approx(bare["value"], abs=0.02)
    assert sealed["defense"] == "paillier"


def test_what_is_no_number_of_models():
    with pytest.raises(InputError, match="outputs of an audit must be 0, or a whole number from 8"):
        auditing.settled(Audit(outputs=3))
