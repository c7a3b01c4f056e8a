"""JSON from outside, in which an object gives each key once: the standard reader keeps the last, unsaid."""

from __future__ import annotations

import json
from typing import Any


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
