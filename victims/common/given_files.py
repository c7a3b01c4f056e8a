"""Files of others are looked at before they are opened."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from victims.common.errors import InputError
from victims.common.files import reason_of


def existing_file(path: Path) -> Path:
    """Check that a regular file stands at a path that may be read, and give the path back."""
    try:
        kind = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else error
        raise InputError(f"{path} cannot be read: {reason}; check the name") from None
    if not stat.S_ISREG(kind):
        what = "a directory" if stat.S_ISDIR(kind) else "a pipe, socket or device"
        raise InputError(f"{path} must be a file, it is {what}; give a regular file")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path} cannot be read: permission denied; change its mode")
    return path


def small_file(path: Path, most: int) -> bytes:
    """Read the content of a file that must be small."""
    existing_file(path)
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason_of(error)}") from None
    if len(content) > most:
        raise InputError(f"{path} must be at most {most:,} bytes, it has more; give the right file")
    return content


def json_of(text: str | bytes) -> Any:
    """Read JSON whose objects give each key once.

    Examples
    --------
    >>> json_of('{"a": [1]}')
    {'a': [1]}
    >>> json_of('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: the key 'a' is given twice; keep one of the two
    """
    return json.loads(text, object_pairs_hook=_unrepeated)


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    whole = dict(pairs)
    if len(whole) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} is given twice; keep one of the two")
    return whole
