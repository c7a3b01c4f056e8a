"""The sweep and its figures."""

from __future__ import annotations

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from audit.experiments import cells
from audit.experiments.sweep import INSTEAD, PAPER, Sweep, run
from reports.sweep import accuracy_against_scale, fell_back, scale_of, sweep_figures
from victims.common.errors import InputError

SMALL = Sweep(
    updates=("semi-als",),
    weightings=("observed-only",),
    attacks=("guess-majority", "spectral"),
    scales=(0.0, 1.0),
    rounds=(1, 2),
    first=2,
    users=12,
)


class TestSweep:
    def test_rows_and_figures(self, ratings, tmp_path):
        rows = run(SMALL, ratings, tmp_path, jobs=1)
        assert json.loads((tmp_path / "results.json").read_text())[0]["defense"] == "laplace:scale=0"
        assert {(scale_of(row), row["rounds"], row["attack"]) for row in rows} == {
            (scale, count, name) for scale in SMALL.scales for count in (1, 2) for name in SMALL.attacks
        }
        noisy_rows = [row for row in rows if scale_of(row) == 1.0 and row["metric"] == "rating_accuracy"]
        assert all(0 < row["ceiling"] < 1 for row in noisy_rows if row["status"] == "ran")
        assert any(row["status"] == "not applicable" for row in noisy_rows)
        first = [path.read_bytes() for path in sweep_figures(rows, tmp_path / "a", *SMALL.attacks)]
        again = [path.read_bytes() for path in sweep_figures(rows, tmp_path / "b", *SMALL.attacks)]
        assert first == again
        assert len(first) == 12

    def test_an_attack_that_does_not_apply_under_noise(self, ratings, tmp_path):
        """Before: an IndexError after all the work."""
        rows = run(SMALL, ratings, tmp_path, jobs=1)
        drawn = {path.stem for path in sweep_figures(rows, tmp_path, "spectral")}
        assert "rating_accuracy_against_scale" in drawn
        assert not any(name.endswith("against_rounds") for name in drawn)
        assert sweep_figures(rows, tmp_path, "likelihood") == []

    def test_finished_cells_are_kept(self, ratings, tmp_path, monkeypatch):
        one = run(SMALL, ratings, tmp_path, jobs=1)
        monkeypatch.setattr("audit.experiments.sweep.record", None)  # nothing is recorded again
        assert json.dumps(run(SMALL, ratings, tmp_path, jobs=1)) == json.dumps(one)

    def test_all_scales_show_the_same_factors(self, ratings, tmp_path):
        """The server trains without the noise: the best guess and the broadcast do not move with b."""
        rows = run(replace(SMALL, scales=(0.0, 100.0)), ratings, tmp_path, jobs=1)
        values = {
            row["value"] for row in rows
            if row["attack"] == "guess-majority" and row["metric"] == "rating_accuracy"
        }  # fmt: skip
        assert len(values) == 1

    def test_the_papers_procedure_where_there_are_many_unknowns(self, ratings, tmp_path):
        """The row that says why one solver does not apply, and the rows of the other."""
        plan = replace(
            SMALL, attacks=(PAPER,), scales=(1.0,), rounds=(1,), weightings=("include-unrated",), sample=2,
            attack_options={PAPER: {"solutions": "2", "max_dense": "10"}},
        )  # fmt: skip
        rows = run(plan, ratings, tmp_path, jobs=1)
        assert rows[0]["attack"] == PAPER
        assert "unknowns exceed" in rows[0]["reason"]
        other = [row for row in rows[1:] if row["metric"] == "rating_accuracy"]
        assert [(row["attack"], row["status"], row["n_users"]) for row in other] == [(INSTEAD, "ran", 2)]
        assert 0 <= other[0]["value"] <= 1

    def test_bad_settings(self, ratings, tmp_path):
        for change, words in (
            ({"scales": (-1.0,)}, "scales of a sweep must be one or more, each >= 0"),
            ({"rounds": (0,)}, "rounds of a sweep must be one or more, each >= 1"),
            ({"attacks": ("spectrum",)}, "unknown attack"),
        ):
            with pytest.raises(InputError, match=words):
                run(replace(SMALL, **change), ratings, tmp_path, jobs=1)


@pytest.fixture
def no_folder():
    """Without the folder for programs that all tests share."""
    chosen, least = (getattr(jax.config, option) for option in (cells.FOLDER, cells.LEAST))
    cells._configure(None, least)
    yield
    cells._configure(chosen, least)


def test_programs_are_kept(tmp_path, monkeypatch, no_folder):
    """A second cell finds what the first compiled, with the same numbers; afterwards nothing is kept."""
    monkeypatch.setattr(cells, "SLOW", 0.0)
    found = []
    for _ in range(2):
        with cells.programs_kept(tmp_path):
            number = float(jax.jit(lambda x: (x @ x.T).sum())(np.eye(3)))
        found.append((number, {path.name for path in tmp_path.glob("*-cache")}))
        jax.clear_caches()
        jax.jit(lambda x: x @ x)(np.eye(3))  # outside: not kept
    assert found[0] == found[1]
    assert found[0][0] == 3.0
    assert len(found[0][1]) > 0


def test_programs_in_the_folder_of_the_user(tmp_path, no_folder):
    cells._configure(str(tmp_path / "mine"), 0.0)
    with cells.programs_kept(tmp_path / "ours"):
        assert getattr(jax.config, cells.FOLDER) == str(tmp_path / "mine")


def test_a_view_of_some_rounds(transcripts):
    view = transcripts["sgd", "include-unrated"].view("server")
    part = view.during(view.rounds[:1])
    assert part.rounds.tolist() == part.manifest.rounds == view.rounds[:1].tolist()
    assert np.array_equal(part.users, view.users)
    with pytest.raises(InputError, match="round 77 is not in the view"):
        view.during([77])


def test_points_that_fell_back_are_hollow():
    """Two of three points: one by its verdict, with no value at all, and one by its count."""
    cells = [(1.0, 0.9, 0, "LEAK"), (2.0, None, 10, "NOT TESTED"), (4.0, 0.3, 6, "INCONCLUSIVE")]
    rows = [
        {
            "update": "sgd", "weighting": "observed-only", "defense": f"laplace:scale={scale}", "attack": "x",
            "rounds": 1, "metric": "rating_accuracy", "status": "ran", "value": value, "ci_low": value,
            "ci_high": value, "baseline": 0.3, "ceiling": 0.95, "n_users": 10, "n_abstained": count,
            "verdict": verdict,
        }
        for scale, value, count, verdict in cells
    ]  # fmt: skip
    assert [fell_back(row) for row in rows] == [False, True, True]
    figure = accuracy_against_scale(rows, "rating_accuracy", "x")
    hollow = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "white"]
    assert [list(line.get_ydata()) for line in hollow] == [[0.3, 0.3]]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert any("hollow" in label for label in labels)
    assert [list(line.get_ydata()) for line in figure.axes[0].lines if line.get_marker() == "_"] == [
        [0.95] * 3
    ]
    assert [text.get_text() for text in figure.axes[0].texts] == ["best guess"]
    bare = accuracy_against_scale(rows[:1], "rating_accuracy", "x")
    assert not any("hollow" in text.get_text() for text in bare.legends[0].get_texts())
