"""How long a grid will take, from what was timed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from audit.experiments.cache import seconds_of, write_cell
from audit.experiments.estimates import estimated, trials, try_out
from audit.experiments.grid import Cell, Procedure, only_ratings, refuse
from audit.experiments.results import make_row
from audit.experiments.runner import run_grid
from victims.data.synthetic import Synthetic, generate

RATINGS = generate(Synthetic(users=3, items=4, ratings_per_user=2.0, single=0.0, seed=0))


def cells(folder: Path) -> list[Cell[str]]:
    kinds = {"a": "slow", "b": "fast", "c": "slow", "d": "slow"}
    return [Cell(task, folder / "cells" / f"{task}.json", kind=kind) for task, kind in kinds.items()]


def test_one_cell_of_each_kind_is_tried_and_kept(tmp_path):
    ran = []

    def measure(cell, given, say):
        ran.append(cell.task)
        return [make_row(attack=cell.task, status="ran")]

    procedure = Procedure(only_ratings, measure, refuse)
    assert "nothing was timed yet of slow, fast" in str(estimated(cells(tmp_path), 1))
    try_out(cells(tmp_path), procedure, RATINGS)
    assert ran == ["a", "b"]
    assert trials(cells(tmp_path)) == []
    assert not (tmp_path / "results.json").exists()  # of a part of the grid nobody asked for
    run_grid(cells(tmp_path), procedure, RATINGS, tmp_path)
    assert ran == ["a", "b", "c", "d"]


def test_it_is_the_mean_of_the_kind_times_the_cells_that_are_left(tmp_path):
    row = [make_row(attack="a", status="ran")]
    whole = cells(tmp_path)
    write_cell(whole[0].path, row, 30.0)
    write_cell(whole[2].path, row, 50.0)
    write_cell(whole[1].path, row)  # not timed, as by an earlier version
    found = estimated(whole, 1)
    assert (found.left, found.timed, found.unknown) == (1, 2, ())
    assert found.seconds == 40.0
    assert str(found).startswith(
        "estimate: about 40 s for 1 cells one after the other, from 2 that were timed"
    )
    assert found.record() == {"left": 1, "estimate": 40.0}


def test_seconds_are_those_of_the_cell(tmp_path):
    def measure(cell, given, say):
        time.sleep(0.05)
        return [make_row(attack=cell.task, status="ran")]

    run_grid(cells(tmp_path)[:1], Procedure(only_ratings, measure, refuse), RATINGS)
    assert seconds_of(tmp_path / "cells" / "a.json") >= 0.05


@pytest.mark.parametrize("text", ["{", "[]", '{"seconds": "x"}', '{"seconds": -1}', '{"seconds": true}'])
def test_a_damaged_file_tells_no_time(tmp_path, text):
    (tmp_path / "x").write_text(text)
    assert str(seconds_of(tmp_path / "x")) == "nan"
