"""Files of finished cells, claims on what is worked on, and what killed processes left."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from audit.experiments.cells import claimed, kept_rows, read_cell, remove_stale, remove_unclaimed, write_cell
from audit.experiments.results import make_row
from victims.common.files import partial_name

ROW = make_row(victim="mf", metric="rating_accuracy", value=0.5, status="ran")


def test_round_trip(tmp_path):
    write_cell(tmp_path / "c.json", [ROW])
    (row,) = read_cell(tmp_path / "c.json")
    assert row["value"] == 0.5


@pytest.mark.parametrize(
    "content",
    [b"null", b"[1]", b'"x"', b"{}", b"", b"\xff\xfe", b"[" * 100_000, b'{"format":"factorleak-cell-1"}'],
)
def test_a_damaged_one_is_computed_again_and_said(tmp_path, capsys, content):
    """Before: a traceback, or silently a cell without rows."""
    path = tmp_path / "c.json"
    path.write_bytes(content)
    assert kept_rows(path) is None
    said = capsys.readouterr().err
    assert said.startswith("factorleak: note: a cell is computed again")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["rows"][0].update(value=0.9),
        lambda c: c.update(rows=[]),
        lambda c: c["rows"][0].pop("seed"),
    ],
)
def test_a_changed_one_as_well(tmp_path, change):
    path = tmp_path / "c.json"
    write_cell(path, [ROW])
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    assert kept_rows(path) is None


def test_stale_files_go(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    mine = partial_name(tmp_path / "c.json")
    gone = mine.with_name(mine.name.replace(f"-{os.getpid()}-", f"-{ended.pid}-"))
    elsewhere = tmp_path / f".c.json.0-{ended.pid}-0.partial"
    for path in (mine, gone, elsewhere):
        path.touch()
    remove_stale(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {mine.name, elsewhere.name}


def test_who_comes_second_waits_and_says_so(tmp_path):
    code = (
        "import sys; from pathlib import Path; from audit.experiments.cells import claimed\n"
        f"with claimed(Path({str(tmp_path / 'cells' / 'c.json')!r})): print('in')\n"
    )
    with claimed(tmp_path / "cells" / "c.json"):
        second = subprocess.Popen([sys.executable, "-c", code], stdout=-1, stderr=-1, text=True)
        assert second.stderr is not None
        assert "another run works on cells/c; waiting for it" in second.stderr.readline()
        assert second.poll() is None
    assert second.communicate(timeout=60) == ("in\n", "")


def test_paths_of_one_name_in_other_folders_are_other_claims(tmp_path):
    """Before: two cells of a comparison, whose recordings have the same name, had one lock."""
    with claimed(tmp_path / "a" / "transcripts"), claimed(tmp_path / "b" / "transcripts"):
        pass


def test_what_is_claimed_is_not_removed(tmp_path):
    claim, scratch = tmp_path / "cells" / "c.json", tmp_path / "scratch"
    scratch.mkdir()
    with claimed(claim):
        remove_unclaimed(claim, [scratch])
        assert scratch.exists()
    remove_unclaimed(claim, [scratch])
    assert not scratch.exists()
