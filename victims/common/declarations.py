"""Declarations of others: keys that are misspellings of known ones, and what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

ALIKE = 0.8  # share of letters in common from which a word is another one misspelt
PLAIN = {int, float, str, bool, type(None)}
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


def did_you_mean(key: str, names: Iterable[str]) -> str:
    """Ask in a message whether the closest name was meant; empty where none is like it.

    Examples
    --------
    >>> did_you_mean("spectrel", ["spectral", "grid"]), did_you_mean("telepathy", ["grid"])
    (", did you mean 'spectral'?", '')
    """
    meant = closest(key, names)
    return f", did you mean {meant!r}?" if meant else ""


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
        return list(value) if set(map(type, value)) <= PLAIN else [plain(entry) for entry in value]
    return value


# alternatives of a union: a name of the library's in place of a key
BRANCH = re.compile(r"[\w-]+\[.*\]|(constrained|function|lax|is)-.*|int|float|str|bool|[A-Z]\w+")

LENGTH = re.compile(r"\w+ should have at (least|most) (\d+) items? after validation, not (\d+)")


class Complaint(NamedTuple):
    """The first thing that is wrong."""

    where: str  # the key, with dots for keys inside; empty where the whole is meant
    rule: str  # what it must be, or a whole sentence
    got: Any

    def __str__(self) -> str:
        """Key and rule as one sentence."""
        between = " " if self.rule.startswith("must ") else ": "
        return f"{self.where}{between}{self.rule}" if self.where else self.rule


def first_complaint(error: ValidationError) -> Complaint:
    """Say what is wrong first; alternatives of one key are told together.

    Examples
    --------
    >>> from pydantic import BaseModel
    >>> from typing import Literal
    >>> class Batch(BaseModel):
    ...     size: int | Literal["all"]
    >>> try:
    ...     Batch(size="half")
    ... except ValidationError as error:
    ...     str(first_complaint(error))
    "size must be a valid integer, or 'all'"
    """
    found = error.errors(include_url=False)
    first = found[0]
    key = _key(first["loc"])
    rules = [_rule(one["msg"]) for one in found if _key(one["loc"]) == key]
    alternatives = dict.fromkeys(rule for rule in rules if rule.startswith("must be "))
    rule = rules[0]
    if len(alternatives) > 1:
        rule = "must be " + ", or ".join(each.removeprefix("must be ") for each in alternatives)
    return Complaint(".".join(map(str, key)), rule, first.get("input"))


def _key(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Where it is, without the alternatives of a union."""
    return tuple(part for part in loc if isinstance(part, int) or not BRANCH.fullmatch(part))


def _rule(message: str) -> str:
    message = message.removeprefix("Value error, ")
    if message.startswith("Input should be "):
        rule, _, _ = message.removeprefix("Input should be ").partition(", unable to parse")
        rule = re.sub(r"a valid (tuple|list)", "a list", rule)
        return "must be " + re.sub(r"a valid dictionary or instance of \w+", "an object with keys", rule)
    if size := LENGTH.match(message):
        return f"must have at {size[1]} {size[2]} values, got {size[3]}"
    return "must be given" if message == "Field required" else message
