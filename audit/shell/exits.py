"""One exit code for one meaning."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """How the program ends; the last four are the usual ones of ``sysexits.h`` and the shell."""

    DONE = 0
    CROSSED = 1  # a --fail-on bar was crossed
    UNUSABLE = 2  # wrong usage, or unusable input
    UNMEASURED = 3  # a bar was set and nothing was measured
    INTERNAL = 70  # an error of the program itself
    UNWRITABLE = 74  # output could not be written
    INTERRUPTED = 130  # Ctrl-C
    TERMINATED = 143  # SIGTERM
