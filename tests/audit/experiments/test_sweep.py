"""The sweep: its rows, what is kept of it, and its figures of real rows."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from audit.experiments.sweep import INSTEAD, PAPER, Sweep, run
from reports.sweep_figures import sweep_figures
from reports.sweep_panels import scale_of
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

    @pytest.mark.thorough
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
            ({"scales": (-1.0,)}, "scales of a sweep must be .* 0 or between 1e-09 and"),
            ({"rounds": (0,)}, "rounds of a sweep must be .* each a whole number from 1"),
            ({"attacks": ("spectrum",)}, "unknown attack"),
        ):
            with pytest.raises(InputError, match=words):
                run(replace(SMALL, **change), ratings, tmp_path, jobs=1)
