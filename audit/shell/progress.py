"""How far a long job is: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import Any

from victims.common.errors import printable


@contextmanager
def progress(label: str) -> Iterator[Any]:
    """Show a bar on a terminal, and a line now and then elsewhere, on stderr.

    Parameters
    ----------
    label : str
        What the work is called.

    Yields
    ------
    callable of (done, total, text)
        Called after each piece of work; ``text`` takes the place of the label.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        with Heartbeat(label) as lines:
            yield lines.update
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())

    def shown(words: str) -> str:
        return escape(printable(words))

    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(shown(label), total=None)

        def update(done: int, total: int, text: str | None = None) -> None:
            bar.update(task, completed=done, total=total, description=shown(text or label))

        yield update


class Heartbeat:
    """Plain progress lines for build logs: what is going on, and for how long.

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
    ) -> None:
        self._label, self._clock = label, clock
        self._write = write or (lambda line: print(line, file=sys.stderr, flush=True))
        self._state: tuple[int, int, str | None] | None = None
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

    def update(self, done: int, total: int, text: str | None = None) -> None:
        """Remember the state; say it if a step has ended."""
        ended = self._state is not None and done > self._state[0]
        self._state = done, total, text
        self._say(self.FIRST if ended else self.EVERY)

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
        return f"{words}, {self._clock() - self._begin:.0f} s"

    def _beat(self) -> None:
        while not self._ended.wait(1.0):
            self.tick()
