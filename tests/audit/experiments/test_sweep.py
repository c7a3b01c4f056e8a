"""The sweep: its rows, what is kept of it, and its figures of real rows."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from audit.experiments.plan import Sweep
from audit.experiments.sweep import as_named, cells_of, run, settled
from reports.figures import scale_of, sweep_figures
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


@pytest.fixture(scope="module")
def swept(ratings, tmp_path_factory):
    """The folder of one sweep, and its rows."""
    folder = tmp_path_factory.mktemp("sweep")
    return folder, run(SMALL, ratings, folder, jobs=1)


class TestSweep:
    def test_rows_and_figures(self, swept, tmp_path):
        folder, rows = swept
        assert json.loads((folder / "results.json").read_text())[0]["defense"] == "laplace:scale=0"
        assert {(scale_of(row), row["rounds"], row["attack"]) for row in rows} == {
            (scale, count, name) for scale in SMALL.scales for count in (1, 2) for name in SMALL.attacks
        }
        noisy_rows = [row for row in rows if scale_of(row) == 1.0 and row["metric"] == "rating_accuracy"]
        assert all(0 < row["ceiling"] < 1 for row in noisy_rows if row["status"] == "ran")
        assert any(row["status"] == "not applicable" for row in noisy_rows)
        first = [path.read_bytes() for path in sweep_figures(rows, tmp_path / "a", *SMALL.attacks)]
        assert len(first) == 12
        of_one = [row for row in rows if row["metric"] == "rating_accuracy"]
        again = [path.read_bytes() for path in sweep_figures(of_one, tmp_path / "b", *SMALL.attacks)]
        assert again
        assert set(again) <= set(first)

    def test_an_attack_that_does_not_apply_under_noise(self, swept, tmp_path):
        """Before: an IndexError after all the work."""
        rows = [row for row in swept[1] if row["metric"] != "attribute_group_accuracy"]
        drawn = {path.stem for path in sweep_figures(rows, tmp_path, "spectral")}
        assert "rating_accuracy_against_scale" in drawn
        assert not any(name.endswith("against_rounds") for name in drawn)
        assert sweep_figures(rows, tmp_path, "likelihood") == []

    def test_finished_cells_are_kept(self, swept, ratings):
        folder, one = swept
        kept = {path: path.stat().st_mtime_ns for path in folder.glob("cells/*.json")}
        assert len(kept) == 2 * 2 * 2  # scales, watches and attacks
        assert not list((folder / "transcripts").iterdir())
        assert json.dumps(run(SMALL, ratings, folder, jobs=1)) == json.dumps(one)
        assert {path: path.stat().st_mtime_ns for path in folder.glob("cells/*.json")} == kept

    def test_all_scales_show_the_same_factors(self, ratings, tmp_path):
        """The server trains without the noise: the best guess and the broadcast do not move with b."""
        rows = run(replace(SMALL, scales=(0.0, 100.0)), ratings, tmp_path, jobs=1)
        values = {
            row["value"] for row in rows
            if row["attack"] == "guess-majority" and row["metric"] == "rating_accuracy"
        }  # fmt: skip
        assert len(values) == 1

    def test_the_papers_procedure_has_the_solver_of_its_table_6(self, ratings, tmp_path):
        """Before: ``root-hybr``, and ``root-anderson`` where that has too many unknowns."""
        both = replace(SMALL, attacks=("published", "root-hybr"), scales=(1.0,), rounds=(2,))
        plan = settled(replace(both, updates=(), weightings=()))
        assert [cell.task.attack for cell in cells_of(plan, ratings, tmp_path)] == [
            "root-hybr", "root-hybr",  # semi-als / observed-only
            "root-df-sane", "root-hybr",
            "root-anderson", "root-hybr",  # sgd
            "root-hybr", "root-hybr",
        ]  # fmt: skip
        assert plan.attack_options == {"published": {"solutions": "10"}}
        row = {"attack": "root-df-sane", "update": "semi-als", "weighting": "include-unrated"}
        shown = as_named(replace(plan, attacks=("published",)), [row])
        assert shown[0]["attack"] == "published"  # as the table and the figures have it

    def test_the_papers_procedure_runs_with_its_options(self, ratings, tmp_path):
        plan = replace(SMALL, attacks=("published",), scales=(1.0,), rounds=(1,), sample=2)
        options = {"published": {"solutions": "2"}}
        plan = replace(plan, weightings=("include-unrated",), attack_options=options)
        rows = run(plan, ratings, tmp_path, jobs=1)
        (one,) = [row for row in rows if row["metric"] == "rating_accuracy"]
        assert (one["attack"], one["status"], one["n_users"]) == ("root-df-sane", "ran", 2)

    def test_bad_settings(self, ratings, tmp_path):
        for change, words in (
            ({"scales": (-1.0,)}, "scales of a sweep must be .* 0 or between 1e-09 and"),
            ({"rounds": (0,)}, "rounds of a sweep must be .* each a whole number from 1"),
            ({"attacks": ("spectrum",)}, "unknown attack"),
        ):
            with pytest.raises(InputError, match=words):
                run(replace(SMALL, **change), ratings, tmp_path, jobs=1)
