"""Ctrl-C and SIGTERM: one line, one exit code, no process left, at once.

XLA compiles in threads of its own, which go on when their caller is interrupted. Taking the interpreter down
destroys the devices that they compile for, and the process dies of SIGSEGV after the right message (seen in
``PjRtCompiler::CompileAndLoad``). Nor can the main thread answer a signal while it waits for a compiled
program. So one thread waits for the signals, which are blocked in the others (workers and other children
inherit that, and leave Ctrl-C to this process), and leaves the process without taking the interpreter down.
All output is written whole or not at all (``victims.common.files``), so that it may end anywhere.

Only the standard library is imported before anything that takes long.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from audit.shell.exits import Exit

STOPPED = "stopped; finished work is kept, repeat to go on"
CODES = {signal.SIGINT: Exit.INTERRUPTED, signal.SIGTERM: Exit.TERMINATED}
SHOW_CURSOR = "\x1b[?25h"
UNSAID = (
    "resource_tracker",
    "Error reading persistent compilation cache",
    "Error writing persistent compilation cache",
    "A worker stopped while some jobs were given to the executor",  # it grew, and joblib began another
)
FLUSHED = 0.5  # seconds that what was printed may take to be read by somebody
KILLED = 1.0  # seconds that workers may take to remove what is unfinished
LOOK = 0.5  # seconds between two looks of a worker at its parent

SAID = 5.0  # seconds that last words may take

_leaving = threading.Lock()
_last_words: list[Callable[[], None]] = []
_heard: set[signal.Signals] = set()  # what the thread of ``watch`` answers


def watch() -> None:
    """From now on a signal ends this process. Call it first in the main thread, and only in a program."""
    if sys.platform == "win32":  # no signal masks; Python's own way has to do
        return
    _say_less()
    heard = {signal_ for signal_ in CODES if signal.getsignal(signal_) is not signal.SIG_IGN}
    if not heard:
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)  # also for threads whose mask a library changes
    for signal_ in heard:
        signal.signal(signal_, lambda *_: None)
    _heard.update(heard)
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)

    import psutil  # noqa: F401  # now: two threads that import one module may see half of it

    def wait() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)
        while (signal_ := os.read(read, 1)[0]) not in heard:
            pass
        leave(CODES[signal.Signals(signal_)], f"factorleak: {STOPPED}\n")

    threading.Thread(target=wait, name="factorleak-signals", daemon=True).start()


@contextmanager
def last_words(say: Callable[[], None]) -> Iterator[None]:
    """Let something be said where a signal ends the process meanwhile."""
    _last_words.append(say)
    try:
        yield
    finally:
        _last_words.remove(say)


def _say_less() -> None:
    """No warning, here and in workers, of workers' ends, of what they leave, and of JAX's cache."""
    given = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (given, *(f"ignore:{text}" for text in UNSAID))))
    for text in UNSAID:
        warnings.filterwarnings("ignore", message=text)


def leave(code: int, line: str = "") -> NoReturn:
    """End this process and those that it started, with a last line on stderr."""
    _leaving.acquire()  # never released: who comes second waits for the end
    try:
        for say in _last_words:
            _at_most(SAID, say)
        _flush()
        _end_children()
        _remove_unfinished()
        if line and os.isatty(2):
            line = f"\r\x1b[K{SHOW_CURSOR}{line}"
        os.write(2, line.encode())
    except OSError:  # nobody listens
        pass
    finally:  # whatever failed: who waits for the end would wait forever
        os._exit(code)


def finish(code: int) -> NoReturn:
    """End the program by itself, unless a signal does that already.

    Work that failed may have left a compilation behind, so only after success is the interpreter taken down.
    """
    if _leaving.locked():
        halt()
    if code == Exit.DONE:
        for number in CODES:  # the interpreter would put back what kills it while it is taken down
            signal.signal(number, signal.SIG_IGN)
        sys.exit(code)
    leave(code)


def halt() -> None:
    """Where the process is being left: wait for that, so that nothing is said or begun meanwhile."""
    while _leaving.locked():
        time.sleep(1)


def leave_signals_to_this_process() -> None:
    """Let processes that this thread starts with joblib inherit that signals are blocked.

    The standard library's tracker of shared resources starts with the first worker and leaves the signals
    unblocked: workers that were still importing said so in a traceback at Ctrl-C. Once it runs nobody does.
    """
    if not _heard:
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, _heard)


def in_worker(parent: int) -> None:
    """Set up a process that works for the process ``parent``: it ends on SIGTERM and when that is gone.

    The number is given, for a parent that ended while this process was starting is another one by now.
    """
    if sys.platform == "win32":
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, CODES)

    def wait() -> None:
        while os.getppid() == parent:
            if signal.sigtimedwait([signal.SIGTERM], LOOK) is not None:
                break
        _remove_unfinished()
        os._exit(Exit.TERMINATED)

    threading.Thread(target=wait, name="factorleak-parent", daemon=True).start()


def _flush() -> None:
    """Give what was printed to whoever reads it, unless it stands in the way."""

    def flush() -> None:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):  # closed, or nobody reads on
                continue

    _at_most(FLUSHED, flush)


def _at_most(seconds: float, do: Callable[[], None]) -> None:
    """Do something in a thread, and wait for it so long; a failure of it is none of the process' end."""

    def done() -> None:
        with suppress(Exception):
            do()

    thread = threading.Thread(target=done, daemon=True)
    thread.start()
    thread.join(seconds)


def _remove_unfinished() -> None:
    files = sys.modules.get("victims.common.files")
    if remove := getattr(files, "remove_unfinished", None):  # while it is imported nothing is unfinished
        remove()


def _end_children() -> None:
    """End all processes below this one but joblib's, which removes what workers left and then ends itself."""
    import psutil

    def below() -> list[psutil.Process]:
        found = []
        for child in psutil.Process().children(recursive=True):
            try:
                if "resource_tracker" not in " ".join(child.cmdline()):
                    found.append(child)
            except psutil.Error:  # gone
                continue
        return found

    kill = psutil.Process.kill  # Windows has no SIGKILL
    for end in (psutil.Process.terminate, kill, kill):  # who was started meanwhile, too
        mine = below()
        for child in mine:
            try:
                end(child)
            except psutil.Error:
                continue
        psutil.wait_procs(mine, timeout=KILLED)
