"""Claims on what is worked on, and what killed processes left."""

from __future__ import annotations

import os
import subprocess
import sys

from audit.experiments.cache import claimed, remove_stale, remove_unclaimed
from victims.common.files import partial_name


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
        "import sys; from pathlib import Path; from audit.experiments.cache import claimed\n"
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
