"""A limit on the seconds of a piece of work, which ends what runs when it is over."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class OutOfTime(BaseException):
    """The time is over; like Ctrl-C it is no failure of what it interrupts."""


@contextmanager
def until(deadline: float | None) -> Iterator[None]:
    """Raise ``OutOfTime`` in what runs at a time of ``time.monotonic``.

    Outside a main thread, and on Windows, there are no such timers: work that has begun is not ended.
    """
    if deadline is None:
        yield
        return
    left = deadline - time.monotonic()
    if left <= 0:
        raise OutOfTime
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(*_: object) -> NoReturn:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, over)
    try:
        signal.setitimer(signal.ITIMER_REAL, left)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
