"""Whether tracebacks are wanted: ``--debug``, or ``FACTORLEAK_DEBUG`` set to anything but 0."""

from __future__ import annotations

import os
import traceback

FLAG = "--debug"
VARIABLE = "FACTORLEAK_DEBUG"
HINT = f"{FLAG} shows the traceback"


def asked() -> bool:
    """Whether tracebacks are wanted; processes that are started inherit it."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def turned_on(words: list[str]) -> list[str]:
    """Obey ``--debug`` wherever it stands in a command line, and take it out."""
    if FLAG in words:
        os.environ[VARIABLE] = "1"
    return [word for word in words if word != FLAG]


def trace(error: BaseException) -> None:
    """Print a traceback if one is wanted."""
    if asked():
        traceback.print_exception(error)
