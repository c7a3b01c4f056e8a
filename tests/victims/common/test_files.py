"""Files that are written whole or not at all: their names and modes while they are being written."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from victims.common import files
from victims.common.errors import OutputError
from victims.common.files import PRIVATE, partial_name, replacing, write_text, writer_of


@pytest.mark.parametrize("name", ["語" * 84, "x" * 255, "a-b.c", "é" * 51], ids=len)
def test_every_name_that_a_file_may_have(tmp_path, name):
    """Before: the hidden name was cut to 100 characters, which may be 300 bytes, and nothing was written."""
    write_text(tmp_path / name, "text")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert writer_of(partial_name(tmp_path / name)) is not None


def test_a_pipe_stays(tmp_path):
    """Before: ``--out /dev/null`` as root put a file in the place of the device."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutputError, match="choose the name of a file"):
        write_text(tmp_path / "pipe", "text")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_private_before_anything_is_in_it(tmp_path, monkeypatch):
    """Whoever foresees the hidden name and makes a file of it can read nothing. Before: its mode stayed."""
    foreseen = tmp_path / "hidden.partial"
    foreseen.touch()
    foreseen.chmod(0o666)
    opened = foreseen.open()
    monkeypatch.setattr(files, "partial_name", lambda _: foreseen)
    with replacing(tmp_path / "key", PRIVATE) as partial:
        assert stat.S_IMODE(partial.stat().st_mode) == PRIVATE
        partial.write_text("secret")
    assert (tmp_path / "key").read_text() == "secret"
    with opened:
        assert opened.read() == ""


WRITING = """
import os, sys, threading, time
from pathlib import Path
from victims.common import files

def end():
    time.sleep(float(sys.argv[2]))
    files.remove_unfinished()
    os._exit(0)

threading.Thread(target=end, daemon=True).start()
while True:
    files.write_text(Path(sys.argv[1], "private"), "text", files.PRIVATE)
"""


def test_nothing_is_left_by_who_writes_while_it_is_ended(tmp_path):
    """Before: in 19 of 60 a file made after the others were removed, and tracebacks that files were gone."""
    for delay in range(12):
        words = [sys.executable, "-c", WRITING, str(tmp_path), str(0.02 + delay * 1e-4)]
        ended = subprocess.run(words, capture_output=True, text=True, check=True)
        assert ended.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["private"]
