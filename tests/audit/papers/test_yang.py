"""The grid of Yang et al. 2022: rows, what is kept, tables and figures."""

from __future__ import annotations

import numpy as np
import pytest

from audit.papers import feedback as references
from audit.papers import yang
from audit.papers.plans import TRUSTED_SYSTEMS, TRUSTED_VARIED, TrustedPlan
from reports.paper_figures import trusted_figures
from reports.paper_tables import error_table, recommendation_table, traffic_table
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate


@pytest.fixture(scope="module")
def small():
    return generate(Synthetic(users=40, items=30, ratings_per_user=9.0, single=0.0, seed=5))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_system_is_a_row(small, tmp_path, monkeypatch):
    monkeypatch.setitem(references.PACKAGES, "svd++", "no-such-package-of-anybody")
    systems = ("dpmf-yang", "dmf", "implicit-pmf", "svd++")
    plan = TrustedPlan(systems, factors=(2, 3), rounds=3, runs=2, victim_options={"degree": "2"})
    rows = yang.run(plan, small, tmp_path, jobs=1)
    assert {row["victim"].split()[0] for row in rows} == set(systems)
    missing = [row for row in rows if row["victim"].startswith("svd++")]
    assert {(row["status"], "not installed" in row["reason"]) for row in missing} == {
        ("not applicable", True)
    }
    ran = [row for row in rows if row["status"] == "ran"]
    assert all(np.isfinite(row["value"]) for row in ran)
    judged = [row for row in ran if not row["metric"].endswith("per_round")]
    assert all(np.isfinite(row["baseline"]) and row["baseline_name"] for row in judged)
    assert {row["rounds"] for row in ran if row["victim"].startswith("dpmf-yang")} == {1, 2, 3}
    done = []
    again = yang.run(plan, small, tmp_path, jobs=1, report=lambda n, total, what: done.append((n, total)))
    assert done[0] == (16, 16)  # all kept
    assert [row["value"] for row in again if row["status"] == "ran"] == [row["value"] for row in ran]
    assert len(recommendation_table(rows, "filmtrust", "x").rows) == 2 * 4
    assert len(error_table(rows, "x").rows) == 2 * 3
    assert len(traffic_table(rows, "x").rows) == 2 * 2
    assert len([path for path in trusted_figures(rows, "nothing", tmp_path) if path.exists()]) == 4


def test_what_is_varied(small, tmp_path):
    plan = TrustedPlan(("dpmf-yang",), factors=(2,), rounds=1, runs=1, vary="degree")
    rows = yang.run(plan, small, tmp_path, jobs=1)
    sent = [row["value"] for row in rows if row["metric"] == "messages_per_round"]
    rows_sent = next(row["value"] for row in rows if row["metric"] == "rows_per_round")
    assert sent == [rows_sent * degree for degree in TRUSTED_VARIED["degree"]]


def test_a_failed_training_is_a_row(small, tmp_path):
    options = {"learning_rate": "1e200"}
    plan = TrustedPlan(("dpmf-yang", "implicit-pmf"), factors=(2,), rounds=3, runs=1, victim_options=options)
    with np.errstate(all="ignore"):
        rows = yang.run(plan, small, tmp_path, jobs=1)
    assert rows[0]["status"] == "failed"
    assert "diverged" in rows[0]["reason"]
    assert {row["status"] for row in rows[1:]} == {"ran"}


def test_unusable_requests_are_told_before_training(small, tmp_path):
    for plan, told in (
        (TrustedPlan(("magic",)), "systems of a prediction with dpmf-yang must be"),
        (TrustedPlan(vary="mood"), "vary of a prediction with dpmf-yang must be"),
        (TrustedPlan(TRUSTED_SYSTEMS, vary="weights"), "--vary weights is of dpmf-yang and dmf"),
        (TrustedPlan(victim_options={"depth": "2"}), "no option 'depth'"),
    ):
        with pytest.raises(InputError, match=told):
            yang.run(plan, small, tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_command(run, tmp_path):
    """Options as they are typed; nobody stands in where nobody is trusted, so nothing is sent."""
    words = ["papers", "predict", "--victim", "dpmf-yang", "--set", "fallback=nobody", "--out", tmp_path]
    words += ["--data", "synthetic:users=30,items=20,ratings_per_user=8", "--method", "dpmf-yang"]
    code, said, error = run(*words, "--factors", 2, "--epochs", 1, "--runs", 1, "--jobs", 1)
    assert (code, error.count("error")) == (0, 0)
    assert "0 statements of trust" in said
    assert "0.000" in said.split("Sent in a round")[1]
