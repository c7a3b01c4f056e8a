"""What one adversary reads of each kind: the strongest answer, or why there is none.

What no attack answered is NOT TESTED: words, never a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reports import verdicts
from reports.verdicts import (
    LEAK,
    LOOKED,
    NOT_TESTED,
    OF_WHAT,
    UNFINISHED,
    Row,
    interval_of,
    is_guess,
    number,
    of_what,
    tested,
)

LEAKS = {
    "rated_rating_accuracy": "ratings",
    "rated_set_auc": "rated set",
    "attribute_group_accuracy": "attributes",
}
SAME = ("victim", "update", "weighting", "data", "defense", "adversary", "attack", "rounds", "seed")
WORST_OFF = "worst_tenth"
IN_OPEN = "in the open\nuploads name the items"


class Leak(NamedTuple):
    """What one adversary reads of one kind: the strongest answer, else why there is none; and what the same
    attack reads of the worst-off tenth of the clients, where that was scored. ``in_open``: uploads name the
    rated items, which is a fact and no attack's answer.
    """

    kind: str
    row: Row | None
    why: str
    worst_off: Row | None = None
    in_open: bool = False


@dataclass(frozen=True)
class AdversaryView:
    """What one adversary reads of a system."""

    adversary: str
    verdict: str  # the worst of its kinds; NOT TESTED where no attack answered
    leaks: tuple[Leak, ...]  # one for each kind, in the order of the page's columns
    alike: tuple[str, ...]  # all who read the same, itself among them


@dataclass(frozen=True)
class System:
    """One victim with its defenses on one data set, and what each adversary reads of it.

    It is no better than the worst of the adversaries that were tested; those that were not are named, never
    counted as safe.
    """

    name: str
    short: str  # what tells it from the other systems of the page
    verdict: str  # of the worst tested adversary
    sentence: str
    adversaries: tuple[AdversaryView, ...]
    rows: tuple[Row, ...]  # all of its rows

    @property
    def worst(self) -> Leak | None:
        """The answer with the largest advantage over all adversaries, leaks before others."""
        found = [leak for seen in self.adversaries if (leak := worst(seen.leaks)) is not None]
        return max(found, key=badness, default=None)


def badness(leak: Leak) -> tuple[bool, float]:
    """Order answers: leaks last, then by advantage."""
    assert leak.row is not None
    return leak.row["verdict"] == LEAK, float(leak.row["advantage"])


def metrics_of(kind: str) -> set[str]:
    """List the metrics of one kind of answers: of ratings those of nameless clients and differences, too."""
    return {kind, *OF_WHAT} if kind == "rated_rating_accuracy" else {kind}


def best(rows: Sequence[Row], metric: str) -> Row | None:
    """Find the strongest answer: a leak before all others, then by advantage; guesses do not count.

    Of ratings also that of nameless clients, and that of their differences. Where an attack failed or was
    not reached, what is no leak is no answer.
    """
    names = metrics_of(metric)
    rows = [row for row in rows if not is_guess(row)]
    found = [row for row in rows if row["metric"] in names and tested(row)]
    if any(row["status"] in UNFINISHED for row in rows):
        found = [row for row in found if row["verdict"] == LEAK]
    return max(found, key=lambda row: (row["verdict"] == LEAK, row["advantage"])) if found else None


def of_group(row: Row, rows: Sequence[Row], group: str) -> Row | None:
    """Find what the same attack of the same adversary reads of a group of clients or items."""
    metric = f"{row['metric']}/{group}"
    found = (one for one in rows if one["metric"] == metric and all(one[name] == row[name] for name in SAME))
    return next(found, None)


def worst(leaks: Sequence[Leak]) -> Leak | None:
    """Find the kind of which most is read."""
    found = [leak for leak in leaks if leak.row is not None]
    return max(found, key=lambda leak: leak.row["advantage"]) if found else None  # type: ignore[index]


def kinds_of(rows: Sequence[Row]) -> list[str]:
    """List the metrics of what can be read of a victim at all."""
    metrics = {row["metric"] for row in rows if row["status"] == "ran"}
    return [name for name in LEAKS if metrics & metrics_of(name)] or list(LEAKS)[:1]


def leak_of(rows: Sequence[Row], metric: str) -> Leak:
    """Find what is read of one kind."""
    row = best(rows, metric)
    return Leak(
        LEAKS[metric], row, why_nothing(rows), None if row is None else of_group(row, rows, WORST_OFF)
    )


def leak_cell(leak: Leak) -> str:
    """Put a leak in words: its number, the guess, the interval, the verdict and the attack."""
    if leak.row is None:
        return IN_OPEN if leak.in_open else f"{NOT_TESTED}\n{leak.why}"
    row = leak.row
    return (
        f"{number(row['value'])} ({number(row['baseline'])})\n"
        f"{interval_of(row)}\n"
        f"{row['verdict']}\n{row['attack']}{of_what(row, ' ({})')}"
    )


def worst_cell(leaks: Sequence[Leak]) -> str:
    """Put the largest advantage in words, and what was not tested."""
    found = worst(leaks)
    if found is None or found.row is None:
        return NOT_TESTED
    words = f"{number(found.row['advantage'], 2)} {found.kind}"
    untested = [leak.kind for leak in leaks if leak.row is None and not leak.in_open]
    return words + (f"\nuntested: {', '.join(untested)}" if untested else "")


def why_nothing(rows: Sequence[Row]) -> str:
    """Say why nothing was read: a failure, else who looked in vain, else what the attack on sums says.

    Examples
    --------
    >>> shared = {"status": "not applicable", "verdict": "NOT TESTED"}
    >>> sums = shared | {"attack": "aggregate", "reason": "no sums"}
    >>> why_nothing([sums])
    'no sums'
    >>> why_nothing([sums, sums | {"attack": "grid", "reason": "9 of 9 clients got no answer: noise (9)"}])
    'grid looked in vain'
    """
    untested = [row for row in rows if not tested(row) and row["reason"]]
    order = sorted(untested, key=lambda row: (row["status"] != "failed", row["attack"] != "aggregate"))
    if not order:
        return "no attack reads it"
    if order[0]["status"] == "failed":
        return f"failed: {order[0]['reason']}"
    looked = [row for row in untested if LOOKED in row["reason"]]
    return verdicts.why_nothing(looked) if looked else str(order[0]["reason"])
