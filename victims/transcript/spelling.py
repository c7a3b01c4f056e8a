"""Keys of a manifest that are misspellings of known ones, and values as JSON knows them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache
from typing import Any

import numpy as np

ALIKE = 0.8  # share of letters in common from which a word is another one misspelt
LIKE = 0.5  # and from which it may stand for it, where every unknown key is refused


def nearest(key: str, names: Iterable[str]) -> str | None:
    """Find the known key that an unknown one is taken to be a misspelling of.

    Both have the same letters without case and separators, or as many words, each of which is the same or,
    from three letters on, has four fifths of its letters in common: ``lamda_factors``, ``hyper_parameters``
    and ``regularisation`` are misspelt; ``user_learning_rate`` and ``alpha_decay`` are other software's keys.

    Examples
    --------
    >>> nearest("lamda_factors", ["alpha", "lambda_factors"])
    'lambda_factors'
    >>> nearest("user_learning_rate", ["client_learning_rate"]) is None
    True
    """
    words = _words(key)
    for name in names:
        known = _words(name)
        if "".join(words) == "".join(known):
            return name
        if len(words) == len(known) and all(
            a == b or (min(len(a), len(b)) > 2 and SequenceMatcher(None, a, b).ratio() >= ALIKE)
            for a, b in zip(words, known, strict=True)
        ):
            return name
    return None


def closest(key: str, names: Iterable[str]) -> str | None:
    """Find the known key that is most like an unknown one, abbreviations among them.

    Examples
    --------
    >>> closest("client_lr", ["alpha", "learning_rate", "client_learning_rate"])
    'client_learning_rate'
    >>> closest("momentum", ["alpha", "epochs"]) is None
    True
    """
    known = list(names)
    found = get_close_matches(key.lower(), known, 1, LIKE)
    return nearest(key, known) or (found[0] if found else None)


@lru_cache(maxsize=512)
def _words(key: str) -> tuple[str, ...]:
    """``clientLearningRate`` and ``client-learning_rate`` alike. Kept, for known keys are asked for often."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()
    return tuple(apart.replace("-", "_").replace(" ", "_").split("_"))


def refuse_misspelt(given: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    """Refuse a key that is a known one misspelt."""
    names = list(keys)
    for key in given:
        if key not in names and (meant := nearest(str(key), names)):
            raise ValueError(f"{where} has no key {key!r}; did you mean {meant!r}?")


def plain(value: Any) -> Any:
    """Turn NumPy's numbers and arrays, tuples and ranges, into those of JSON."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(entry) for entry in value]
    return value
