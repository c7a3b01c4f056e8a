"""The program from outside: exit codes, messages, files, resuming."""

from __future__ import annotations

import json

import pandas as pd
import pyarrow as pa
import pytest

from audit.experiments.results import COLUMNS
from audit.option_texts import parse_rounds
from tests.oracles.simulator import Reference
from victims.common.errors import InputError

SMALL = "synthetic:users=25,items=30,ratings_per_user=8"


class TestAudit:
    def test_writes_every_row_and_resumes(self, run, tmp_path):
        out = tmp_path / "RESULTS"
        words = ["audit", "--data", SMALL, "--out", out, "--attack", "spectral", "--sample", 3]
        code, text, _ = run(*words)
        assert code == 0
        assert "LEAK" in text
        assert "best guess without the transcript" in text
        rows = json.loads((out / "results.json").read_text())
        assert set(rows[0]) == set(COLUMNS)
        assert {(row["update"], row["weighting"]) for row in rows} == {
            (u, w) for u in ("semi-als", "sgd") for w in ("observed-only", "include-unrated")
        }
        accuracy = [row for row in rows if row["metric"].endswith("accuracy")]
        assert all(row["baseline"] is not None and row["ci_low"] is not None for row in accuracy)
        assert pd.read_csv(out / "results.csv").shape == pd.read_parquet(out / "results.parquet").shape
        assert not (out / "transcripts").exists() or not list((out / "transcripts").iterdir())
        written = {path: path.stat().st_mtime_ns for path in (out / "cells").glob("*.json")}
        assert len(written) == 4
        assert run(*words)[0] == 0
        assert {path: path.stat().st_mtime_ns for path in (out / "cells").glob("*.json")} == written

    def test_a_failed_cell_is_a_row(self, run, tmp_path, monkeypatch):
        def explode(*_: object, **__: object) -> None:
            raise ArithmeticError("boom")

        monkeypatch.setattr("attacks.metadata.guess.GuessMajority.attack", explode)
        out = tmp_path / "R"
        code, text, _ = run(
            "audit", "--data", SMALL, "--out", out, "--update", "sgd", "--weighting",
            "observed-only", "--attack", "guess-majority", "--attack", "guess-uniform",
        )  # fmt: skip
        assert code == 0
        rows = json.loads((out / "results.json").read_text())
        failed = [row for row in rows if row["status"] == "failed"]
        assert len(failed) == 1
        assert failed[0]["reason"] == "ArithmeticError: boom"
        assert "boom" in text
        assert any(row["attack"] == "guess-uniform" for row in rows)

    def test_a_diverging_scenario_is_rows(self, run, tmp_path):
        out = tmp_path / "R"
        code, text, _ = run(
            "audit", "--data", SMALL, "--out", out, "--weighting", "observed-only", "--attack",
            "spectral", "--set", "client_learning_rate=900", "--rounds", "120,121",
        )  # fmt: skip
        assert code == 0
        rows = json.loads((out / "results.json").read_text())
        assert {row["status"] for row in rows if row["update"] == "semi-als"} == {"ran"}
        (row,) = [row for row in rows if row["update"] == "sgd"]
        assert row["status"] == "failed"
        assert "client_learning_rate" in row["reason"]
        assert "failed" in text

    def test_what_does_not_apply_is_a_row(self, run, tmp_path):
        out = tmp_path / "R"
        code, text, _ = run(
            "audit", "--data", SMALL, "--out", out, "--update", "sgd", "--weighting",
            "observed-only", "--attack", "spectral", "--rounds", "3",
        )  # fmt: skip
        assert code == 0
        row, named = json.loads((out / "results.json").read_text())
        assert (named["metric"], named["verdict"]) == ("rated_set", "OPEN")
        assert row["status"] == "not applicable"
        assert "a second round is needed" in row["reason"]
        assert "Not applicable, 1 attack: spectral: " in text

    @pytest.mark.parametrize(
        ("attack", "bar", "code", "says"),
        [
            ("spectral", "leak", 1, "is crossed: spectral on semi-als/observed-only"),
            ("spectral", "rating_accuracy=1.5", 0, ""),
            ("spectral", "speed=1", 2, "names no metric"),
            ("eq24-corrected", "leak", 3, "no attack answered"),
            ("likelihood", "leak", 3, "likelihood failed"),
        ],
    )
    def test_fail_on(self, run, tmp_path, monkeypatch, attack, bar, code, says):
        """Before: 0 for an attack that raised, for one that does not apply, and for nan."""

        def explode(*_: object, **__: object) -> None:
            raise ArithmeticError("boom")

        monkeypatch.setattr("attacks.likelihood.attack.Likelihood.attack", explode)
        out = tmp_path / "R"
        words = ["audit", "--data", SMALL, "--out", out, "--update", "semi-als",
                 "--weighting", "observed-only", "--attack", attack, "--allow-open"]  # fmt: skip
        found, _, error = run(*words, "--fail-on", bar)
        assert found == code
        assert says in error
        assert out.exists() == (code != 2)  # what cannot be tested is refused before anything runs

    def test_an_internal_error_is_not_a_crossed_bar(self, run, tmp_path, monkeypatch):
        def explode(*_: object, **__: object) -> None:
            raise ArithmeticError("boom")

        monkeypatch.setattr("audit.experiments.auditing.run", explode)
        code, _, error = run("audit", "--data", SMALL, "--out", tmp_path / "R", "--fail-on", "leak")
        assert code == 70
        assert "internal error" in error


class TestRecordAttackScore:
    @pytest.fixture
    def recorded(self, run, tmp_path):
        path = tmp_path / "t"
        code, _, _ = run(
            "record", path, "--data", SMALL, "--update", "sgd", "--weighting", "include-unrated",
            "--set", "factors=4", "--rounds", "2-3",
        )  # fmt: skip
        assert code == 0
        return path

    def test_the_whole_way(self, run, recorded, tmp_path):
        out = tmp_path / "r.arrow"
        code, text, _ = run("attack", recorded, "--attack", "spectral", "--out", out)
        assert code == 0
        assert "25 clients" in text
        truth = recorded.with_name("t.truth.arrow")
        code, text, _ = run("score", out, "--truth", truth, "--json")
        content = json.loads(text)
        scores = {row["metric"]: row for row in content["scores"]}
        assert code == 0
        assert scores["rating_accuracy"]["value"] == 1.0
        assert scores["rating_accuracy"]["baseline_name"] == "all-zero"
        code, text, _ = run("score", out, "--truth", truth)
        assert code == 0
        assert "rating_accuracy" in text
        assert "all-zero" in text
        assert "gave no probabilities" in run("score", out, "--truth", truth, "--reliability")[1]

    def test_reliability(self, run, recorded, tmp_path):
        """Without noise the answers are certain, and right."""
        out, truth = tmp_path / "r.arrow", recorded.with_name("t.truth.arrow")
        assert run("attack", recorded, "--attack", "likelihood", "--out", out)[0] == 0
        _, text, _ = run("score", out, "--truth", truth, "--reliability", "--json")
        bins = json.loads(text)["reliability"]
        assert {part["what"] for part in bins} == {"ratings", "attributes", "is it rated"}
        sure = [part for part in bins if part["least"] == 0.95]
        assert {part["what"] for part in sure} == {"ratings", "attributes", "is it rated"}
        assert all(part["right"] == 1 for part in sure)
        assert {part["right"] for part in bins if part not in sure} <= {0.0}  # surely unrated, and so it is
        assert "0.95 to 1" in run("score", out, "--truth", truth, "--reliability")[1]

    def test_reconstruction_of_other_software(self, run, recorded, tmp_path):
        with pa.ipc.open_file(recorded.with_name("t.truth.arrow")) as reader:
            truth = reader.read_all()
        theirs = tmp_path / "theirs.parquet"
        pa.parquet.write_table(truth.replace_schema_metadata(None), theirs)
        truth_file = recorded.with_name("t.truth.arrow")
        code, _, error = run("score", theirs, "--truth", truth_file)
        assert code == 2
        assert "--transcript" in error
        code, text, _ = run("score", theirs, "--truth", truth_file, "--transcript", recorded, "--json")
        assert code == 0
        assert json.loads(text)["scores"][0]["value"] == 1.0

    def test_nothing_is_overwritten(self, run, recorded):
        code, _, error = run("record", recorded, "--data", SMALL)
        assert code == 2
        assert "exists" in error

    def test_solver_on_a_sample(self, run, recorded, tmp_path):
        code, text, _ = run(
            "attack", recorded, "--attack", "root-lm", "--out", tmp_path / "r.arrow", "--users", 3,
            "--option", "jobs=1",
        )  # fmt: skip
        assert code == 0
        assert "3 clients" in text
        assert "converged" in text

    def test_wrong_truth(self, run, recorded, tmp_path):
        out = tmp_path / "r.arrow"
        run("attack", recorded, "--out", out)
        other = Reference(n_users=3).write(tmp_path / "o")
        code, _, error = run("score", out, "--truth", other.with_name("o.truth.arrow"))
        assert code == 2
        assert "clients that upload (3" in error
        assert "it is about 0, 1, 2;" in error

    def test_damaged_reconstruction(self, run, recorded, tmp_path):
        out = tmp_path / "r.arrow"
        run("attack", recorded, "--out", out)
        out.write_bytes(out.read_bytes()[:-200])
        code, _, error = run("score", out, "--truth", recorded.with_name("t.truth.arrow"))
        assert code == 2
        assert error.count("\n") == 1
        assert "r.arrow" in error


class TestMessages:
    def test_broken_transcript(self, run, tmp_path):
        path = Reference().write(tmp_path / "t")
        whole = (path / "messages.arrow").read_bytes()
        (path / "messages.arrow").write_bytes(whole[: len(whole) // 2])
        out = tmp_path / "r.arrow"
        code, text, error = run("attack", path, "--out", out)
        assert code == 2
        assert text == ""
        assert error.startswith("factorleak: error: ")
        assert error.count("\n") == 1
        assert "messages.arrow" in error
        assert not out.exists()

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["audit", "--attack", "telepathy"], "known are spectral"),
            (["audit", "--attack", "spectrel"], "did you mean 'spectral'?"),
            (["audit", "--defense", "laplace:scal=2"], "did you mean 'scale'?"),
            (["audit", "--data", "nowhere"], "--data synthetic"),
            (["audit", "--rounds", "five"], "--rounds must look like"),
            (["audit", "--rounds", "5-2"], "ascend"),
            (["audit", "--set", "factors"], "name=value"),
            (["audit", "--set", "depth=3"], "no option 'depth'"),
            (["audit", "--set", "factors=0"], "factors of fedmvmf must be"),
            (["audit", "--option", "factor=1"], "ATTACK.name=value"),
            (["audit", "--fail-on", "often"], "METRIC=NUMBER"),
            (["audit", "--victim", "netflix"], "unknown victim"),
            (["audit", "--adversary", "nobody"], "adversary must be one of"),
            (["audit", "--option", "root-lm.jobs=1"], "root-lm, which does not run"),
            (["attack", "nowhere"], "manifest.json"),
            (["data", "fetch", "netflix"], "known are"),
            (["papers", "train", "--rounds", "0"], "rounds of a training must be"),
        ],
    )
    def test_wrong_usage(self, run, tmp_path, monkeypatch, words, message):
        monkeypatch.chdir(tmp_path)
        code, _, error = run(*words)
        assert code == 2
        assert message in error
        assert "Traceback" not in error
        assert list(tmp_path.iterdir()) == []

    def test_train(self, run):
        """Three rounds are too few, and it says so; a model that counts zeros is low on purpose."""
        code, text, _ = run("papers", "train", "--data", SMALL, "--rounds", "1,3")
        assert code == 0
        assert "centralised" in text
        assert "\nnote: the model predicts held-out ratings worse than the training mean; train more" in text
        assert "(after 3 rounds)" in text
        text = run(
            "papers", "train", "--data", SMALL, "--rounds", "3", "--weighting", "include-unrated", "--json"
        )[1]
        assert "judge it by its ranking" in json.loads(text)["notes"][0]

    def test_a_search_of_options_is_kept(self, run, tmp_path):
        words = ["papers", "tune", "--data", SMALL, "--rounds", "1", "--trials", "1", "--folds", "2"]
        words += ["--out", tmp_path / "T", "--set", "factors=3"]
        code, text, _ = run(*words)
        assert code == 0
        assert "2 folds, 1 rounds: best of 1" in text
        assert run(*words)[1] == text

    def test_train_under_a_defense_shows_its_price(self, run):
        def first_error(text):
            return float(next(line for line in text.splitlines() if "30 rounds" in line).split()[-1])

        words = ["papers", "train", "--data", SMALL, "--rounds", "30"]
        _, plain, _ = run(*words)
        code, text, _ = run(*words, "--defense", "laplace:scale=50,clip=1")
        assert code == 0
        assert "Privacy account of laplace" in text
        assert "by the plain sum, at delta by the privacy loss distribution" in text
        assert "not hidden: which items a client rated" in text
        assert first_error(text) != first_error(plain)

    def test_scenarios_are_the_victim_s(self, run, tmp_path):
        words = ["--victim", "fedmf", "--data", SMALL, "--set", "factors=4"]
        code, _, _ = run("audit", *words, "--attack", "grid", "--out", tmp_path / "R")
        assert code == 0
        rows = json.loads((tmp_path / "R" / "results.json").read_text())
        assert {(row["update"], row["weighting"]) for row in rows} == {("sgd", "observed-only")}
        code, _, error = run("record", tmp_path / "t", *words, "--update", "semi-als")
        assert code == 2
        assert "fedmf option update" in error

    def test_an_attack_on_the_rated_set_says_what_it_does_not_read(self, run, tmp_path):
        words = ["--data", SMALL, "--update", "semi-als", "--weighting", "include-unrated"]
        words += ["--defense", "unrated-sampling:rho=1", "--attack", "rated-set", "--out", tmp_path / "R"]
        code, text, _ = run("audit", *words)
        assert code == 0
        assert "with rated-set, rated_set_auc 0." in text
        rows = {row["metric"]: row for row in json.loads((tmp_path / "R" / "results.json").read_text())}
        assert rows["rating_accuracy"]["status"] == "not applicable"
        assert rows["rated_set_auc"]["baseline_name"] != "shuffled"


def test_rounds():
    assert parse_rounds("3, 0-1") == (0, 1, 3)
    with pytest.raises(InputError):
        parse_rounds("1-9999999")


class TestStretching:
    """The commands about Hu & Fang 2023."""

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["papers", "predict", "--noise", "often"], "noise"),
            (["papers", "predict", "--factors", "a"], "--factors must be numbers"),
            (["papers", "predict", "--vary", "mood"], "vary of a prediction must be nothing"),
            (
                ["claims", "--rounds", "30", "--epochs", "20"],
                "rounds of claims must be between 2 and the 20 epochs",
            ),
            (["claims", "--epsilons", "0"], "epsilons of claims must be"),
            (["claims", "--protocol", "netflix"], "unknown defense"),
            (
                ["record", "x", "--victim", "mf", "--defense", "hdpmf:user_low=2"],
                "user_low of a privacy specification must be in (0, 1]",
            ),
            (
                ["record", "x", "--victim", "mf", "--set", "order=per-rating", "--set", "local_steps=2"],
                "local_steps of decentralised_mf must be 1, for in order=per-rating",
            ),
        ],
    )
    def test_bad_options(self, run, tmp_path, monkeypatch, words, message):
        monkeypatch.chdir(tmp_path)
        code, _, error = run(*words, "--data", SMALL, "--quiet")  # no lines of progress on a slow machine
        assert code == 2
        assert message in error
        assert len(error.strip().splitlines()) == 1
