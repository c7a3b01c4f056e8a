"""The two exceptions that mean "not your program, but what it was given", and text that is safe to print."""

from __future__ import annotations

import unicodedata

LONGEST = 300  # characters of a message
ENDING = 80  # of them from its end, where the remedy stands


def printable(text: object) -> str:
    """Write text from anywhere as one line: control characters are shown, not obeyed.

    Line breaks, escape sequences, characters that turn the direction of writing and lone surrogates become
    what Python would write for them; each run of blanks becomes one.

    Examples
    --------
    >>> printable("a\\x1b[31mb" + chr(10) + "c")
    'a\\\\x1b[31mb\\\\nc'
    """
    shown = (c if _is_plain(c) else ascii(c)[1:-1] for c in str(text))
    return " ".join("".join(shown).split(" ")).strip()


def words_of(error: BaseException) -> str:
    """Write what an exception of anybody's says, which may itself fail to say it."""
    try:
        return str(error)
    except Exception:
        return ""


def one_line(text: object, longest: int = LONGEST) -> str:
    """Write text as ``printable`` does, in at most ``longest`` characters, with both ends kept.

    Examples
    --------
    >>> len(one_line("x" * 1000))
    300
    """
    whole = str(text)
    if len(whole) > 2 * longest:  # so that a huge text is not walked
        whole = f"{whole[:longest]} \u2026 {whole[-longest:]}"
    shown = printable(whole)
    if len(shown) <= longest:
        return shown
    start = longest - ENDING - 3
    return f"{shown[:start]} \u2026 {shown[-ENDING:]}"


def _is_plain(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


class InputError(ValueError):
    """Unusable input. The message names the file or argument, the rule, the value and the remedy.

    The command line turns it into one line on standard error and exit code 2.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(one_line(message))


class OutputError(Exception):
    """Output that could not be written: a full disk, a directory that must not be written to.

    The command line turns it into one line on standard error and exit code 74.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(one_line(message))
