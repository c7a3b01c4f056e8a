"""Lines on stderr: what went differently, and what the program ends with."""

from __future__ import annotations

import sys
from contextlib import suppress

from victims.common.errors import one_line


def note(text: str) -> None:
    """Say something on the way that the results alone would not tell."""
    complain(f"note: {text}")


def complain(text: str) -> None:
    """Print one line on stderr, after the program's name."""
    with suppress(OSError, ValueError):  # nobody listens, which is no reason to stop
        print(f"factorleak: {one_line(text)}", file=sys.stderr, flush=True)
