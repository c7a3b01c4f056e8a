"""Lines on stderr: what went differently, and what the program ends with."""

from __future__ import annotations

import sys
from contextlib import suppress

from victims.common.errors import one_line


def note(text: str) -> None:
    """Say something on the way that the results alone would not tell.

    Parameters
    ----------
    text : str
        Without an end of line.
    """
    complain(f"note: {text}")


def complain(text: str) -> None:
    """Print one line on stderr, after the program's name.

    Parameters
    ----------
    text : str
        Made one line of printable characters; an error in writing is passed over.
    """
    with suppress(OSError, ValueError):  # nobody listens, which is no reason to stop
        print(f"factorleak: {one_line(text)}", file=sys.stderr, flush=True)
