"""The one runner: order, resumption, failures, batches, what is left behind, progress, and estimates."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from audit.experiments.cells import Cell, Procedure, only_ratings, read_cell, refuse, seconds_of, write_cell
from audit.experiments.results import make_row
from audit.experiments.runner import estimated, run_grid, trials, try_out
from victims.common.errors import InputError, OutputError
from victims.data.synthetic import Synthetic, generate

RATINGS = generate(Synthetic(users=3, items=4, ratings_per_user=2.0, single=0.0, seed=0))


def cell(folder: Path, task: str, scratch: str = "") -> Cell[str]:
    return Cell(task, folder / "cells" / f"{task}.json", (folder / "scratch" / scratch,) if scratch else ())


def prepare(log: Path, cell: Cell[str], ratings, say) -> str:
    say("recording")
    with log.open("a") as file:
        file.write(f"prepare {cell.task}\n")
    for path in cell.scratch:
        path.mkdir(parents=True)
    return f"of {cell.task}"


def measure(log: Path, faults: dict[str, Exception], cell: Cell[str], prepared: str, say) -> list[dict]:
    with log.open("a") as file:
        file.write(f"measure {cell.task}\n")
    if cell.task in faults:
        raise faults[cell.task]
    assert all(path.exists() for path in cell.scratch)
    return [make_row(attack=cell.task, reason=prepared, status="ran")]


def failed(task: str, error: Exception) -> list[dict]:
    return [make_row(attack=task, reason=str(error), status="failed")]


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def procedure(log):
    """A procedure that writes down what it does, with some faults."""
    return lambda **faults: Procedure(partial(prepare, log), partial(measure, log, faults), failed)


def done(log: Path) -> list[str]:
    """What was done since the last look."""
    words = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return words


def kept(folder: Path) -> set[str]:
    return {path.stem for path in (folder / "cells").glob("*.json")}


class TestBatches:
    def test_what_is_not_needed_is_neither_prepared_nor_kept_nor_asked_of_earlier_batches(
        self, tmp_path, log, procedure
    ):
        def answered(task, rows):
            return f"{rows[0]['attack']} told" if task != "a" and rows else ""

        cells = [cell(tmp_path, *words) for words in (("a", "x"), ("b", "x"), ("c", "y"))]
        ladder = replace(procedure(), unneeded=answered)
        for expected in (["prepare a", "measure a", "prepare c", "measure c"], []):  # the second finds a kept
            rows = run_grid(cells, ladder, RATINGS, tmp_path)
            told = [(row["attack"], row["status"], row["reason"]) for row in rows]
            assert told == [("a", "ran", "of a"), ("b", "not needed", "a told"), ("c", "ran", "of c")]
            assert done(log) == expected
        assert kept(tmp_path) == {"a", "c"}

    def test_what_is_prepared_serves_all_cells_of_a_batch(self, tmp_path, log, procedure):
        cells = [cell(tmp_path, *words) for words in (("a", "x"), ("b", "y"), ("c", "x"), ("d",))]
        rows = run_grid(cells, procedure(), RATINGS, tmp_path)
        assert [(row["attack"], row["reason"]) for row in rows] == [
            ("a", "of a"), ("b", "of b"), ("c", "of a"), ("d", "of d"),
        ]  # fmt: skip
        assert done(log) == [
            "prepare a", "measure a", "measure c", "prepare b", "measure b", "prepare d", "measure d",
        ]  # fmt: skip
        assert not list((tmp_path / "scratch").iterdir())

    def test_any_number_of_processes_gives_the_same_files(self, tmp_path, procedure):
        jobs = 1
        cells = [cell(tmp_path, task) for task in "dcba"]
        rows = run_grid(cells, procedure(), RATINGS, tmp_path, jobs=jobs)
        assert [row["attack"] for row in rows] == list("dcba")
        written = json.loads((tmp_path / "results.json").read_text())
        assert [row["attack"] for row in written] == list("dcba")

    def test_scratch_may_be_kept(self, tmp_path, procedure):
        resumable = replace(cell(tmp_path, "a", "x"), resumable=True)
        run_grid([resumable], procedure(), RATINGS, tmp_path, keep_scratch=True)
        assert (tmp_path / "scratch" / "x").exists()


class TestResumption:
    def test_a_finished_cell_is_read(self, tmp_path, log, procedure):
        cells = [cell(tmp_path, task, "x") for task in "ab"]
        first = run_grid(cells[:1], procedure(), RATINGS, tmp_path)
        done(log)
        second = run_grid(cells, procedure(), RATINGS, tmp_path)
        assert json.dumps(second[:1]) == json.dumps(first)
        assert done(log) == ["prepare b", "measure b"]
        run_grid(cells, procedure(), RATINGS, tmp_path)
        assert done(log) == []

    def test_a_failed_cell_is_a_row_and_is_tried_again(self, tmp_path, log, procedure):
        cells = [cell(tmp_path, task, "x") for task in "abc"]
        rows = run_grid(cells, procedure(b=ArithmeticError("boom")), RATINGS, tmp_path)
        assert [(row["attack"], row["status"]) for row in rows] == [
            ("a", "ran"), ("b", "failed"), ("c", "ran"),
        ]  # fmt: skip
        assert kept(tmp_path) == {"a", "c"}
        done(log)
        assert [row["status"] for row in run_grid(cells, procedure(), RATINGS, tmp_path)] == ["ran"] * 3
        assert done(log) == ["prepare b", "measure b"]

    def test_what_cannot_be_prepared_is_a_row_for_each_cell(self, tmp_path):
        def diverge(*_: object) -> None:
            raise InputError("training diverged")

        cells = [cell(tmp_path, task, "x") for task in "ab"]
        rows = run_grid(cells, Procedure(diverge, refuse, failed), RATINGS, tmp_path)
        assert [(row["attack"], row["reason"]) for row in rows] == [
            ("a", "training diverged"), ("b", "training diverged"),
        ]  # fmt: skip
        assert kept(tmp_path) == set()

    @pytest.mark.parametrize("error", [InputError("wrong"), OutputError("full")])
    def test_what_ends_a_run_leaves_finished_cells_and_no_scratch(self, tmp_path, procedure, error):
        cells = [cell(tmp_path, *words) for words in (("a", "x"), ("b", "y"), ("c", "y"))]
        with pytest.raises(type(error), match=str(error)):
            run_grid(cells, procedure(c=error), RATINGS, tmp_path, keep_scratch=True)
        assert kept(tmp_path) == {"a", "b"}
        assert [row["attack"] for row in json.loads((tmp_path / "results.json").read_text())] == ["a"]
        assert not (tmp_path / "scratch" / "y").exists()


def kill_at(task: str, cell: Cell[str], prepared: object, say) -> list[dict]:
    """Work whose process is killed at one of its tasks."""
    if cell.task == task:
        os.kill(os.getpid(), signal.SIGKILL)
    return [make_row(attack=cell.task, status="ran")]


@pytest.mark.thorough  # ten processes
def test_a_kill_loses_no_finished_cell(tmp_path, capsys):
    """The batch of a, b and c ends at b, twice; a was finished, and d is another batch's."""
    cells = [cell(tmp_path, *words) for words in (("a", "x"), ("b", "x"), ("c", "x"), ("d", "y"))]
    rows = run_grid(cells, Procedure(only_ratings, partial(kill_at, "b"), failed), RATINGS, tmp_path, jobs=2)
    assert [(row["attack"], row["status"]) for row in rows] == [
        ("a", "ran"), ("b", "failed"), ("c", "failed"), ("d", "ran"),
    ]  # fmt: skip
    assert "killed twice" in rows[1]["reason"]
    assert read_cell(cells[0].path)[0]["attack"] == "a"
    assert "a process was killed" in capsys.readouterr().err


def whose(cell: Cell[str], prepared: object, say) -> list[dict]:
    return [make_row(attack=cell.task, value=os.getpid(), status="ran")]


@pytest.mark.thorough
def test_some_cells_are_worked_on_when_nothing_else_goes_on(tmp_path):
    """By this process, last; their rows stay where they belong."""
    some = [replace(cell(tmp_path, task), place="alone" if task == "a" else "here") for task in "abc"]
    told: list[tuple[int, int, str]] = []
    rows = run_grid(
        some, Procedure(only_ratings, whose, failed), RATINGS, tmp_path, jobs=2,
        report=lambda *words: told.append(words),
    )  # fmt: skip
    assert [row["attack"] for row in rows] == list("abc")
    assert [row["value"] == os.getpid() for row in rows] == [True, False, False]
    assert [done for done, _, _ in told] == [0, 1, 2, 3]


def test_progress_counts_cells_and_says_what_goes_on(tmp_path, procedure):
    cells = [cell(tmp_path, task, "x") for task in "ab"]
    told: list[tuple[int, int, str]] = []
    run_grid(cells, procedure(), RATINGS, tmp_path, report=lambda *words: told.append(words))
    assert told == [(0, 2, ""), (0, 2, "recording"), (2, 2, "")]


def test_a_grid_may_stay_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = [Cell(value) for value in (3, 1)]
    procedure = Procedure(only_ratings, lambda cell, ratings, say: [{"square": cell.task**2}], refuse)
    assert run_grid(cells, procedure, RATINGS) == [{"square": 9}, {"square": 1}]
    assert list(tmp_path.iterdir()) == []
    broken = Procedure(only_ratings, lambda cell, ratings, say: [1 / 0], refuse)
    with pytest.raises(ZeroDivisionError):
        run_grid(cells, broken, RATINGS)


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
