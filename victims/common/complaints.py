"""What is wrong with a declaration, in its own keys rather than in words of the library that checks it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from pydantic import ValidationError

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
