"""What ``--data`` may say beside a path: which columns, which files beside it, which rows to keep.

Written as for every other component, ``ratings.csv:user=uid,item=sku,min_ratings=5``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from victims.common.errors import InputError
from victims.common.validation import at_least, require_fields

OPTIONS = re.compile(r"[a-z_]+=[^,=]*(,[a-z_]+=[^,=]*)*")
COLUMNS = ("user", "item", "rating", "time")


@dataclass(frozen=True)
class DataSource:
    """Ratings of one's own, and how to read them."""

    place: str  # A path, the name of a fetched data set, or ``synthetic``
    user: str | None = None  # names of columns; None guesses them by their usual names
    item: str | None = None  # names of columns; None guesses them by their usual names
    rating: str | None = None  # names of columns; None guesses them by their usual names
    time: str | None = None  # names of columns; None guesses them by their usual names
    # every row is an interaction, rated 1; a rating column, if one is named, holds counts, and rows of 0 are
    # left out
    implicit: bool = False
    # users, and items, with fewer ratings are left out, again and again until none is left, >= 1
    min_ratings: int = 1
    # users, and items, with fewer ratings are left out, again and again until none is left, >= 1
    min_item_ratings: int = 1
    # A table of users beside the ratings: a column of users, and columns of categories
    attributes: str | None = None
    # A table of items: a column of items, and columns of numbers or of categories
    features: str | None = None
    trust: str | None = None  # pairs of users, the first of whom trusts the second
    table: str | None = None  # name of the table, where the file is a database
    # ``USERSxITEMSxRATINGS``: a part whose users trust each other (``victims.data.communities``)
    community: str | None = None

    def __post_init__(self) -> None:
        require_fields(self, "the data", min_ratings=at_least(1), min_item_ratings=at_least(1))

    @property
    def columns(self) -> dict[str, str]:
        """The columns that are named: what they hold to their name."""
        return {name: given for name in COLUMNS if (given := getattr(self, name)) is not None}


KEYS = tuple(one.name for one in fields(DataSource) if one.name != "place")


def source_of(text: str, options: Mapping[str, Any] | None = None) -> DataSource:
    """Parse a path or name with what follows it.

    Examples
    --------
    >>> source_of("r.csv:user=uid,min_ratings=5").min_ratings
    5
    """
    place, told = _parted(text)
    told |= dict(options or {})
    for key in told:
        if key not in KEYS:
            near = get_close_matches(key, KEYS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(KEYS)}"
            raise InputError(f"--data {place!r:.80} has no option {key!r:.40}; {hint}")
    return DataSource(place, **{key: _value(key, value) for key, value in told.items()})


def _parted(text: str) -> tuple[str, dict[str, Any]]:
    place, colon, tail = text.rpartition(":")
    if not colon or not OPTIONS.fullmatch(tail) or place == "synthetic" or _is_file(text):
        return text, {}
    told: dict[str, Any] = {}
    for key, _, value in (pair.partition("=") for pair in tail.split(",")):
        if key in told:
            raise InputError(f"--data {place!r:.80} has the option {key} twice; give it once")
        told[key] = value
    return place, told


def _is_file(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):
        return False


def _value(key: str, value: Any) -> Any:
    if key == "implicit":
        if str(value).lower() not in ("true", "false"):
            raise InputError(f"implicit of the data must be true or false, got {value!r:.40}")
        return str(value).lower() == "true"
    if key.startswith("min_"):
        if not re.fullmatch(r"-?[0-9]{1,9}", str(value)):
            raise InputError(f"{key} of the data must be a whole number below 10^9, got {value!r:.40}")
        return int(value)
    return str(value)
