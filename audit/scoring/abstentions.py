"""Why clients got no answer, in few words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
SHOWN = 3  # commonest reasons


def grouped(reasons: Iterable[str]) -> list[tuple[str, int]]:
    """Count reasons, those that differ in their numbers alone as one.

    Examples
    --------
    >>> grouped(["misfit 0.98 of 1", "misfit 1.02 of 1", "all rows are zero"])
    [('misfit 0.98 to 1.02 of 1', 2), ('all rows are zero', 1)]
    """
    alike: dict[str, list[str]] = {}
    for reason in reasons:
        alike.setdefault(NUMBER.sub("#", reason), []).append(reason)
    groups = [(_together(same), len(same)) for same in alike.values()]
    return sorted(groups, key=lambda group: -group[1])


def _together(reasons: list[str]) -> str:
    """Reasons that differ in their numbers alone as one, with the range of each number."""
    columns = zip(*(NUMBER.findall(reason) for reason in reasons), strict=True)
    ranges = iter([_range(set(column)) for column in columns])
    return NUMBER.sub(lambda _: next(ranges), reasons[0])


def _range(texts: set[str]) -> str:
    if len(texts) == 1:
        return texts.pop()
    low, *_, high = sorted(texts, key=lambda text: float(text.replace(",", "")))
    return f"{low} to {high}"


def in_words(abstained: Mapping[int, str], n_users: int) -> str:
    """Say how many clients got no answer, and why.

    Examples
    --------
    >>> in_words({0: "misfit 0.98", 3: "misfit 1.02"}, 5)
    '2 of 5 clients got no answer: misfit 0.98 to 1.02 (2)'
    """
    if not abstained:
        return ""
    groups = grouped(abstained.values())
    words = "; ".join(f"{reason} ({count:,})" for reason, count in groups[:SHOWN])
    more = f"; {len(groups) - SHOWN} other reasons" if len(groups) > SHOWN else ""
    return f"{len(abstained):,} of {n_users:,} clients got no answer: {words}{more}"
