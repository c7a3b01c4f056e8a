"""Tables of a campaign's file: which keys and types they take, and what is said of a wrong one."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from victims.common.complaints import first_complaint
from victims.transcript.spelling import closest

Word = Annotated[str, Field(min_length=1, max_length=500)]
Words = Annotated[list[Word], Field(max_length=1000)]
Number = Annotated[int, Field(ge=0, le=2**31 - 1)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
TO_GIVE = {
    "format": 'write format = "factorleak-campaign"',
    "version": "write version = 1",
    "data": 'write a block [[data]] with name = "synthetic", say',
}  # what a file must have -> how


class Strict(BaseModel):
    """A table of a campaign's file: no other keys, no other types."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        for key in value if isinstance(value, dict) else ():
            if key not in cls.model_fields:
                near = closest(str(key), cls.model_fields)
                hint = f"did you mean {near!r}?" if near else f"it takes {', '.join(cls.model_fields)}"
                raise ValueError(f"there is no key {key!r}; {hint}")
        return value


class DataEntry(Strict):
    """Ratings: their name in results, what ``--data`` takes, how many random clients are all there are."""

    name: Word
    path: Word | None = None
    community: Count | None = None


def told(error: ValidationError) -> str:
    """Say what is wrong first: key, rule, value and remedy."""
    wrong = first_complaint(error)
    if wrong.rule == "must be given":
        return f"{wrong}; {TO_GIVE.get(wrong.where, 'add it')}"
    if not wrong.where or not wrong.rule.startswith("must be "):
        return str(wrong)
    got = "" if ", got " in wrong.rule else f", got {wrong.got!r:.60}"
    return f'{wrong}{got}; the handbook\'s page "Run a campaign" has all keys'


def as_typed(value: object) -> str:
    """Write an option's value as on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)
