"""Why clients got no answer, in few words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
SHOWN = 3  # commonest reasons


def grouped(reasons: Iterable[str]) -> list[tuple[str, int]]:
    """Count reasons, those that differ in their numbers alone as one.

    Parameters
    ----------
    reasons : iterable of str

    Returns
    -------
    list of (str, int)
        The commonest first.

    Examples
    --------
    >>> grouped(["misfit 0.98 of 1", "misfit 1.02 of 1", "all rows are zero"])
    [('misfit # of #', 2), ('all rows are zero', 1)]
    """
    return Counter(NUMBER.sub("#", reason) for reason in reasons).most_common()


def in_words(abstained: Mapping[int, str], n_users: int) -> str:
    """Say how many clients got no answer, and why.

    Parameters
    ----------
    abstained : mapping of client to reason
    n_users : int

    Returns
    -------
    str
        Empty where all clients got one.

    Examples
    --------
    >>> in_words({0: "misfit 0.98", 3: "misfit 1.02"}, 5)
    '2 of 5 clients got no answer: misfit # (2)'
    """
    if not abstained:
        return ""
    groups = grouped(abstained.values())
    words = "; ".join(f"{reason} ({count:,})" for reason, count in groups[:SHOWN])
    more = f"; {len(groups) - SHOWN} other reasons" if len(groups) > SHOWN else ""
    return f"{len(abstained):,} of {n_users:,} clients got no answer: {words}{more}"
