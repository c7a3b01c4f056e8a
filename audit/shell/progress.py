"""How far a long job is: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Protocol

from victims.common.errors import printable

if TYPE_CHECKING:
    from rich.console import Console


def lasting(seconds: float) -> str:
    """Say about how long something takes."""
    if seconds < 90:
        return f"about {max(seconds, 1):.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


class ProgressBar(Protocol):
    """What long work tells: how far it is, and what it found."""

    def __call__(self, done: int, total: int, text: str | None = None) -> None:
        """Show the state; ``text`` takes the place of the label."""

    def say(self, line: str) -> None:
        """Write a line that stays."""


class Silent:
    """Shows nothing."""

    def __call__(self, done: int, total: int, text: str | None = None) -> None:
        """Show nothing."""

    def say(self, line: str) -> None:
        """Write nothing."""


@contextmanager
def progress(label: str, even: bool = True) -> Iterator[ProgressBar]:
    """Show a bar on a terminal, and a line now and then elsewhere, on stderr."""
    from rich.console import Console

    console = Console(stderr=True)
    with _Bar(label, console, even) if console.is_terminal else Heartbeat(label, even=even) as shown:
        yield shown


class _Bar:
    """A bar on a terminal, with the time that is left."""

    def __init__(self, label: str, console: Console, even: bool) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
        if even:
            columns += [TextColumn("left:"), TimeRemainingColumn()]
        self._label = label
        self._bar = Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task(_escaped(label), total=None)

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int, text: str | None = None) -> None:
        """Show the state."""
        self._bar.update(self._task, completed=done, total=total, description=_escaped(text or self._label))

    def say(self, line: str) -> None:
        """Write a line above the bar."""
        self._bar.console.print(_escaped(line))


def _escaped(words: str) -> str:
    from rich.markup import escape

    return escape(printable(words))


class Heartbeat:
    """Plain progress lines for build logs: what is going on, for how long, and about how long it will.

    Nothing in the first seconds; then a line when a step ends, but not sooner than ``FIRST`` seconds after
    the last one, and in a long step one every ``EVERY`` seconds, written by a thread that ends with the
    context. A last line says when it ended, if there was any before.
    """

    FIRST, EVERY = 10.0, 30.0

    def __init__(
        self,
        label: str,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], None] | None = None,
        even: bool = True,
    ) -> None:
        self._label, self._clock, self._even = label, clock, even
        self._write = write or (lambda line: print(line, file=sys.stderr, flush=True))
        self._state: tuple[int, int, str | None] | None = None
        self._first = 0  # pieces that were there before
        self._begin = self._last = clock()
        self._said = ""
        self._lock, self._ended = Lock(), Event()
        self._thread = Thread(target=self._beat, name="factorleak-progress", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._said and self._said != self._words():
            self._line()

    def __call__(self, done: int, total: int, text: str | None = None) -> None:
        """Remember the state; say it if a step has ended."""
        if self._state is None:
            self._first = done
        ended = self._state is not None and done > self._state[0]
        self._state = done, total, text
        self._say(self.FIRST if ended else self.EVERY)

    def say(self, line: str) -> None:
        """Write a line that stays."""
        with self._lock, suppress(OSError, ValueError):
            self._write(printable(line))

    def tick(self) -> None:
        """Say the state if nothing was said for long."""
        self._say(self.EVERY if self._said else self.FIRST)

    def _say(self, after: float) -> None:
        with self._lock:
            if self._clock() - self._last >= after:
                self._line()

    def _line(self) -> None:
        self._last, self._said = self._clock(), self._words()
        with suppress(OSError, ValueError):  # nobody reads on: no reason to end the work
            self._write(self._said)

    def _words(self) -> str:
        words = printable(self._label)
        if self._state is not None:
            done, total, text = self._state
            words += f": {done} of {total}" + (f" ({printable(text)})" if text else "")
        spent = self._clock() - self._begin
        words += f", {spent:.0f} s"
        if self._even and self._state is not None and self._first < done < total:
            words += f", {lasting(spent / (done - self._first) * (total - done))} left"
        return words

    def _beat(self) -> None:
        while not self._ended.wait(1.0):
            self.tick()
