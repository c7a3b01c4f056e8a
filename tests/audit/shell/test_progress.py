"""Progress of long jobs where nobody looks at a terminal."""

from __future__ import annotations

import sys
from threading import Event, enumerate

import pytest

from audit.shell.progress import Heartbeat, progress


class TestProgress:
    """With a clock of our own: what is said when."""

    @pytest.fixture
    def lines(self):
        now, said = [100.0], []
        beat = Heartbeat("audit", clock=lambda: now[0], write=said.append)

        def after(seconds):
            now[0] += seconds
            return beat

        return after, said

    def test_a_short_job_says_nothing(self, lines):
        after, said = lines
        for done in range(5):
            after(1.9)(done, 5, "x")
        with after(0):
            pass
        assert said == []

    def test_a_long_step_is_told_again_and_again(self, lines):
        after, said = lines
        after(1)(0, 12, "sgd: recording")
        for _ in range(70):
            after(1).tick()
        assert said == [f"audit: 0 of 12 (sgd: recording), {seconds} s" for seconds in (10, 40, 70)]

    def test_the_end_of_a_step_is_told(self, lines):
        after, said = lines
        after(1)(0, 12, "first")
        for seconds, done in ((10, 1), (1, 2), (1, 3), (9, 4)):
            after(seconds)(done, 12, "next")
        with after(5):
            pass
        assert said == [
            "audit: 1 of 12 (next), 11 s, about 2 min left",
            "audit: 4 of 12 (next), 22 s, about 44 s left",
            "audit: 4 of 12 (next), 27 s, about 54 s left",
        ]

    def test_a_reader_that_went_away(self, lines):
        def gone(line):
            raise BrokenPipeError

        beat = Heartbeat("audit", write=gone)
        beat.FIRST = 0.0
        with beat:
            beat.tick()
            beat(1, 2)

    def test_the_thread_speaks_and_ends(self, monkeypatch):
        spoken = Event()
        monkeypatch.setattr(Heartbeat, "FIRST", 0.0)
        monkeypatch.setattr(sys.stderr, "write", lambda text: spoken.set() or len(text))

        def work():
            with progress("audit"):
                assert spoken.wait(60)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            work()
        assert "factorleak-progress" not in {thread.name for thread in enumerate()}

    @pytest.mark.parametrize("terminal", ["", "1"])
    def test_labels_are_data(self, monkeypatch, capsys, terminal):
        """An attack's name, not looked up yet. Before: on a terminal, ``[/red]`` was an internal error."""
        monkeypatch.setenv("FORCE_COLOR", terminal)
        monkeypatch.setattr(Heartbeat, "FIRST", 0.0)
        with progress("x[/red]y\x1b[2J") as update:
            update(0, 2)
            update(1, 2)
        said = capsys.readouterr().err
        assert "x[/red]y\\x1b[2J" in said
        assert "\x1b[2J" not in said
