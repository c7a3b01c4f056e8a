"""Defenses of recorded uploads: what is left of the rows, what is read of them, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audit.experiments.plan import RecordedDefenses
from audit.experiments.recorded_defenses import (
    EXPERIMENT,
    defended,
    distortions,
    of_strength,
    seen,
    settled,
    strengths,
    sums_of,
)
from audit.factories import make_defenses, make_victim
from reports.figures import comparison_figure, strength_figures
from reports.tables import recorded_table
from reports.verdicts import DISTORTION, best
from reports.words import helpful_defenses, what_helps
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.recording import record
from victims.transcript.beside import truth_path

N_USERS = 24
STRENGTHS = ("laplace:1e-7", "laplace:1e-5", "laplace:0.01")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    ratings = generate(Synthetic(users=N_USERS, items=30, ratings_per_user=10.0, seed=3))
    path = tmp_path_factory.mktemp("recorded") / "fedmf"
    options = {"factors": "4", "weighting": "observed-only"}
    record(make_victim("fedmf", options), ratings, path, rounds=[0, 1], seed=1)
    return path


@pytest.fixture(scope="module")
def plan(path):
    return settled(RecordedDefenses(path))


@pytest.fixture(scope="module")
def view(plan):
    return seen(plan).view


def under(view, text, seed=0):
    return defended(view, make_defenses(text), seed)


def columns(view):
    messages = view.messages
    return np.concatenate(messages.sender), np.concatenate(messages.index), np.concatenate(messages.gradient)


def value_of(rows, defense, metric):
    return next(row for row in rows if (row["defense"], row["metric"]) == (defense, metric))


@pytest.fixture(scope="module")
def swept(path, tmp_path_factory):
    """The folder of one sweep of Laplace noise by a cheap attack, and its rows."""
    folder = tmp_path_factory.mktemp("sweep")
    asked = settled(RecordedDefenses(path, defenses=STRENGTHS, attacks=("guess-majority", "grid")))
    return folder, asked, EXPERIMENT.run(asked, asked, folder, jobs=1)


class TestSweep:
    def test_accuracy_falls_to_the_baseline_and_the_sums_bend(self, swept):
        _, asked, rows = swept
        texts = ("none", *(text.replace(":", ":scale=") for text in STRENGTHS))
        assert asked.defenses == texts
        found = [
            [row for row in rows if row["defense"] == text and row["metric"] == "rated_rating_accuracy"]
            for text in texts
        ]
        read = [max(row["value"] for row in here) for here in found]
        assert read[0] > 0.9
        assert read[0] >= read[1] >= read[2] >= read[3]
        assert read[3] == pytest.approx(found[3][0]["baseline"])
        bent = [value_of(rows, text, DISTORTION)["value"] for text in texts]
        assert bent == sorted(bent)
        assert bent[0] == 0 < bent[1] < 0.01
        assert bent[3] > 1

    def test_a_repeated_run_computes_nothing(self, swept):
        folder, asked, rows = swept
        kept = {one: one.stat().st_mtime_ns for one in folder.glob("cells/*.json")}
        assert repr(EXPERIMENT.run(asked, asked, folder, jobs=1)) == repr(rows)
        assert {one: one.stat().st_mtime_ns for one in folder.glob("cells/*.json")} == kept

    def test_figures_table_and_advice(self, swept, tmp_path):
        _, _, rows = swept
        drawn = strength_figures(rows, tmp_path / "a", "laplace") + comparison_figure(
            rows, tmp_path, DISTORTION
        )
        assert {one.name for one in drawn} >= {
            "rated_rating_accuracy_against_laplace.png",
            "leakage_against_distortion.png",
        }
        lines = recorded_table(rows, "Noise").rows
        assert [line[0] for line in lines] == ["none", *(text.replace(":", ":scale=") for text in STRENGTHS)]
        (words, *_) = what_helps(rows)
        assert "No attack answers under laplace:scale=1e-5" in words  # which is no advice
        assert not helpful_defenses(rows)
        strong = "laplace:scale=0.01"
        guessed = {"defense": strong, "verdict": "NO EVIDENCE", "advantage": 0.0, "advantage_low": -0.1}
        leak = best([row for row in rows if row["defense"] == "none"], "rated_rating_accuracy")
        answered = [*rows, {**leak, **guessed}]
        assert what_helps(answered)[0].startswith(
            f"What to do, ratings: to the guess by {strong} (distortion"
        )
        assert helpful_defenses(answered) == [strong]
        only = [row for row in rows if row["defense"] in ("none", "laplace:scale=1e-7")]
        assert "none of 1 defenses is shown to bring them to the guess" in what_helps(only)[0]


def test_a_defense_that_a_stronger_one_of_its_kind_fails_is_no_advice(swept):
    """An attack that abstains on weak noise and reads through stronger noise is not stopped."""
    rows = swept[2]
    weak, strong = "laplace:scale=1e-7", "laplace:scale=0.01"
    other = {weak: strong, strong: weak}
    turned = [
        {**row, "defense": other.get(row["defense"], row["defense"])} if row["metric"] != DISTORTION else row
        for row in rows
        if row["defense"] in ("none", weak, strong)
    ]
    assert "none of 2 defenses" in what_helps(turned)[0]


def test_lists_lie_open_under_what_names_no_other_item(path, tmp_path):
    asked = settled(
        RecordedDefenses(path, defenses=("laplace:1", "unrated-sampling:rho=1"), attacks=("grid",))
    )
    rows = EXPERIMENT.run(asked, asked, tmp_path, jobs=1)
    assert [row["defense"] for row in rows if row["verdict"] == "OPEN"] == ["none", "laplace:scale=1"]


def test_without_truth_answers_are_held_against_those_without_a_defense(path, tmp_path):
    truth = truth_path(path)
    aside = truth.rename(tmp_path / "aside")
    try:
        asked = settled(RecordedDefenses(path, defenses=("laplace:0.01",), attacks=("grid",)))
        rows = EXPERIMENT.run(asked, asked, tmp_path / "out", jobs=1)
    finally:
        aside.rename(truth)
    assert value_of(rows, "none", "agreement")["value"] == 1
    assert value_of(rows, "none", "agreement")["verdict"] == ""
    assert value_of(rows, "none", "clients_answered")["value"] > 0.9
    agreed = [row for row in rows if row["defense"] != "none" and row["metric"] == "agreement"]
    assert all(row["value"] <= row["baseline"] + 1e-9 for row in agreed)
    assert strength_figures(rows, tmp_path, "laplace")
    assert "without truth" in recorded_table(rows, "Noise").caption


class TestDefended:
    def test_rows_are_those_of_the_defense_and_seeded(self, view):
        sender, _, gradient = columns(view)
        same = columns(under(view, "clip:norm=1e9"))
        np.testing.assert_array_equal(np.sort(gradient, axis=0), np.sort(same[2], axis=0))
        kept = columns(under(view, "top-k:share=0.5,of=rows"))[0]
        n_rounds = view.rounds.size
        for user in view.users:
            sent = (sender == user).sum() // n_rounds
            assert (kept == user).sum() == n_rounds * int(np.ceil(sent / 2))
        one, again, other = (columns(under(view, "gaussian:scale=1", seed))[2] for seed in (3, 3, 4))
        np.testing.assert_array_equal(one, again)
        assert (one != other).all()
        assert under(view, "laplace:scale=1").manifest.defenses == [{"name": "laplace", "scale": 1.0}]

    def test_sampled_items_are_rows_of_zeros(self, view):
        before, after = columns(view), columns(under(view, "unrated-sampling:rho=1,redrawn=false"))
        zero = ~after[2].any(axis=1)
        assert (~zero).sum() == before[0].size
        rated = set(zip(before[0].tolist(), before[1].tolist(), strict=True))
        assert not rated & set(zip(after[0][zero].tolist(), after[1][zero].tolist(), strict=True))
        assert distortions(view, under(view, "unrated-sampling")).tolist() == [0, 0]

    def test_secure_sum_leaves_sums_alone(self, view):
        after = under(view, "secure-sum:min_contributors=2")
        assert after.messages.n_rows == 0
        for round_ in view.rounds.tolist():
            sent = view.during([round_]).messages
            whole, seen_ = sums_of(sent, 2), after.sums[round_]
            assert seen_.index.tolist() == whole.index.tolist()
            np.testing.assert_allclose(seen_.values, whole.values, atol=1e-9)
            assert whole.index.size <= sums_of(sent).index.size

    def test_distortion_is_the_relative_error_of_the_sum(self, view):
        after = under(view, "quantise:bits=2")
        round_ = int(view.rounds[0])

        def total(one):
            _, index, gradient = columns(one.during([round_]))
            table = np.zeros((30, 4))
            np.add.at(table, index, gradient)
            return table

        expected = np.linalg.norm(total(after) - total(view)) / np.linalg.norm(total(view))
        assert distortions(view, after)[0] == pytest.approx(expected)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("paillier:ideal=true", "on a recording name secure-sum"),
            ("secure-sum+laplace:1", "must be the last defense"),
            ("stretching", "acts on what only clients know"),
            ("objective-noise", "acts on what only clients know"),
            ("laplace:scale=nan", "scale of laplace must be"),
            ("laplace:-1", "scale of laplace must be"),
            ("top-k:0", "share of top-k must be"),
            ("quantise:1e9", "bits must be a valid integer|whole number from 2"),
            ("nonsense", "unknown defense 'nonsense'"),
        ],
    )
    def test_hostile_defenses(self, path, text, said):
        with pytest.raises(InputError, match=said):
            settled(RecordedDefenses(path, defenses=(text,)))

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"rounds": (3,)}, "rounds must be numbers of recorded rounds, 1 to 2, got 3"),
            ({"watched": (7,)}, "round 7 is not in the view"),
            ({"adversary": "client:0"}, "is one of them; name --adversary server"),
            ({"attacks": ("nonsense",)}, "unknown attack"),
            ({"attack_options": {"trajectory": {"starts": 1}}}, "does not run"),
            ({"defenses": ()}, "defenses of a comparison on a recording must be"),
        ],
    )
    def test_hostile_plans(self, plan, changed, said):
        with pytest.raises(InputError, match=said):
            settled(replace(plan, **changed))

    def test_strengths(self, view):
        size = np.sqrt(np.mean(columns(view)[2] ** 2))
        assert strengths("laplace", view)[3] == pytest.approx(size, rel=0.05)
        assert strengths("top-k", view)[0] == 0.5
        assert of_strength("clip:of=row", 2) == "clip:of=row,norm=2"
        with pytest.raises(InputError, match="no strength"):
            of_strength("paillier", 2)


class TestCommands:
    def test_sweep_compare_and_audit(self, run, path, tmp_path):
        cheap = "--attack", "guess-majority,grid", "--jobs", "1"
        words = "--transcript", path, "--defense", "round", "--scales", "9,3"
        code, said, _ = run("sweep", *words, *cheap, "--out", tmp_path / "sweep")
        assert code == 0
        assert "round:digits=9" in said
        assert "would have sent is not simulated" in said
        assert (tmp_path / "sweep" / "rated_rating_accuracy_against_round.png").is_file()
        words = "none", "laplace:0.01", "--transcript", path, "--fail-on", "leak@defense=laplace:scale=0.01"
        code, said, error = run("compare", *words, *cheap, "--out", tmp_path / "compare")
        assert "laplace:scale=0.01" in said
        assert code == 1, error
        assert "rated_set is OPEN" in error
        code, _, error = run("compare", *words, *cheap, "--out", tmp_path / "compare", "--allow-open")
        assert code == 3, error  # nothing answers, which is no pass
        assert (tmp_path / "compare" / "leakage_against_distortion.png").is_file()
        words = "--transcript", path, "--attack", "grid", "--out", tmp_path / "audit"
        code, said, _ = run("audit", *words)
        assert (code, f"factorleak audit --transcript {path} --advise" in said) == (0, True)

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("sweep", "--defense", "paillier"), "has no strength"),
            (("sweep", "--defense", "laplace:b=nan"), "leave it out"),
            (("sweep", "--victim", "mf"), "nothing is run"),
            (("sweep", "--rounds", "5"), "1 to 2, got 5"),
            (("sweep", "--attack", "published"), "unknown attack"),
            (("compare", "none", "--adversary", "server", "--adversary", "eavesdropper"), "run it for each"),
            (("compare", "laplace:0.1", "--users", "3"), "nothing is run"),
            (("compare",), "a defense at least"),
            (("compare", "a.toml"), "said by the campaign file"),
        ],
    )
    def test_hostile_words(self, run, path, tmp_path, words, said):
        code, _, error = run(*words, "--transcript", path, "--out", tmp_path / "out")
        assert (code, said in error) == (2, True), error
        assert error.count("\n") == 1

    @pytest.mark.parametrize(
        "words", [("sweep", "--defense", "clip"), ("compare", "none", "--truth", "t"), ("audit", "--advise")]
    )
    def test_without_a_recording(self, run, words):
        code, _, error = run(*words)
        assert code == 2
        assert "recording" in error
