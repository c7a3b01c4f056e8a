"""Who reads what of each system, its verdict, and a sentence that a manager can read.

A system is a victim with its defenses on one data set. It is no better than the worst of the adversaries that
were tested; those that were not are named, never counted as safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from reports.compare import by_adversary
from reports.leaks import LEAKS, Leak, best, kinds_of, leak_cell, leak_of, why_nothing, worst
from reports.verdicts import (
    ANSWERED,
    CLAIMED,
    DIFFERENCES,
    INCONCLUSIVE,
    NOT_TESTED,
    SIZES,
    Row,
    grouped,
    number,
)

LEAK, NO_EVIDENCE = "LEAK", "NO EVIDENCE"
WORST_FIRST = (LEAK, INCONCLUSIVE, NO_EVIDENCE, NOT_TESTED)
SYSTEM = ("victim", "update", "weighting", "data", "defense")
BOUND, REFUTED = "empirical_epsilon", "CLAIM REFUTED"
NO_TRUTH = "clients answered, without truth"
NOUNS = {
    "rated_rating_accuracy": "ratings",
    CLAIMED: "ratings",
    DIFFERENCES: "differences of ratings",
    SIZES: "sizes of differences of ratings",
    "rated_set_auc": "rated items",
}


@dataclass(frozen=True)
class AdversaryView:
    """What one adversary reads of a system."""

    adversary: str
    verdict: str  # the worst of its kinds; NOT TESTED where no attack answered
    leaks: tuple[Leak, ...]  # one for each kind, in the order of the page's columns
    alike: tuple[str, ...]  # all who read the same, itself among them


@dataclass(frozen=True)
class System:
    """One victim with its defenses on one data set, and what each adversary reads of it."""

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
        return max(found, key=_badness, default=None)


def systems_of(rows: Sequence[Row]) -> list[System]:
    """Group rows by system, in the order in which each comes first."""
    rows = [row for row in rows if row["metric"] != BOUND]
    kinds = _kinds(rows)
    groups = grouped(rows, *SYSTEM)
    varying = [position for position in range(len(SYSTEM)) if len({key[position] for key in groups}) > 1]
    return [_system(key, varying, tuple(of_system), kinds) for key, of_system in groups.items()]


def headline(systems: Sequence[System]) -> str:
    """Say of all systems together how many leak, the worst, which were not tested, and which not attacked."""
    attacked = [one for one in systems if one.adversaries]
    if not attacked:
        return "No attack was run: numbers of usefulness and cost say nothing about what leaks."
    others = len(systems) - len(attacked)
    more = f" Of {others} more, usefulness or cost alone was measured." if others else ""
    if len(attacked) == 1:
        return attacked[0].sentence + more
    counts = {verdict: sum(one.verdict == verdict for one in attacked) for verdict in WORST_FIRST}
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    tested = [one for one in attacked if one.worst is not None]
    most = max(tested, key=lambda one: _badness(one.worst), default=None)  # type: ignore[arg-type]
    worst_of_all = "" if most is None else f" The worst: {most.sentence}"
    return f"Of {len(attacked)} systems: {words}.{worst_of_all}{more}"


def _kinds(rows: Sequence[Row]) -> list[str]:
    """Metrics of what can be read; without truth, for whom an attack has an answer."""
    return [ANSWERED] if any(row["metric"] == ANSWERED for row in rows) else kinds_of(rows)


def _kind_name(kind: str) -> str:
    return NO_TRUTH if kind == ANSWERED else LEAKS[kind]


def _system(key: tuple[Any, ...], varying: Sequence[int], rows: tuple[Row, ...], kinds: list[str]) -> System:
    words = dict(zip(SYSTEM, map(_text, key), strict=True))
    # of files that all rows are about, the last part of the path is enough
    data = words["data"] if SYSTEM.index("data") in varying else Path(words["data"]).name
    name = (
        f"{words['victim']} {words['update']}/{words['weighting']} on {data}, {_defended(words['defense'])}"
    )
    short = ", ".join(_short(words, varying)) or name
    seen = _adversaries(rows, kinds)
    verdict = min((one.verdict for one in seen), key=WORST_FIRST.index, default=NOT_TESTED)
    return System(name, short, verdict, _sentence(name, verdict, seen), seen, rows)


def _adversaries(rows: Sequence[Row], kinds: Sequence[str]) -> tuple[AdversaryView, ...]:
    """Those who read the same are one."""
    groups: dict[tuple[str, ...], tuple[list[str], tuple[Leak, ...]]] = {}
    for name, of_one in by_adversary(rows).items():
        leaks = tuple(_leak(of_one, kind) for kind in kinds)
        groups.setdefault(tuple(map(leak_cell, leaks)), ([], leaks))[0].append(name)
    return tuple(
        AdversaryView(names[0], _worst_verdict(leaks), leaks, tuple(names))
        for names, leaks in groups.values()
    )


def _leak(rows: Sequence[Row], kind: str) -> Leak:
    return leak_of(rows, kind) if kind in LEAKS else Leak(NO_TRUTH, best(rows, kind), why_nothing(rows))


def _worst_verdict(leaks: Sequence[Leak]) -> str:
    verdicts = [str(leak.row["verdict"]) for leak in leaks if leak.row is not None]
    ranked = [verdict for verdict in verdicts if verdict in WORST_FIRST]
    return min(ranked, key=WORST_FIRST.index, default=NOT_TESTED)


def _sentence(name: str, verdict: str, seen: Sequence[AdversaryView]) -> str:
    untested = [who for one in seen if one.verdict == NOT_TESTED for who in one.alike]
    rest = f" Not tested: {', '.join(untested)}." if untested else ""
    if verdict == NOT_TESTED:
        return f"{name}: {NOT_TESTED}; no attack answered, which says nothing about what leaks.{rest}"
    worst_one = max(
        (one for one in seen if one.verdict == verdict),
        key=lambda one: max(_badness(leak) for leak in one.leaks if leak.row is not None),
    )
    tested = [leak for leak in worst_one.leaks if leak.row is not None]
    of_verdict = [leak for leak in tested if leak.row is not None and leak.row["verdict"] == verdict]
    leak = max(of_verdict, key=_badness)
    return f"{name}: {verdict}; {_claim(worst_one.adversary, leak, verdict)}.{rest}"


def _claim(adversary: str, leak: Leak, verdict: str) -> str:
    row = leak.row
    assert row is not None
    shown = f"{number(row['value'])} [{number(row['ci_low'])}, {number(row['ci_high'])}]"
    guess = f"the best guess without the transcript is {number(row['baseline'])}"
    noun = NOUNS.get(str(row["metric"]), leak.kind)
    if row["metric"] == ANSWERED:
        return (
            f"{row['attack']} answers for a share of {shown} of the clients that {called(adversary)} sees, "
            f"and for {number(row['baseline'])} on shuffled uploads; there is no truth to score against"
        )
    if verdict == LEAK:
        off = leak.worst_off
        tenth = "" if off is None else f"; of the worst-off tenth of the clients, {number(off['value'])}"
        return f"{called(adversary)} reads {noun} at {shown} with {row['attack']}, where {guess}{tenth}"
    if verdict == NO_EVIDENCE:
        bound = number(row["advantage_high"])
        return (
            f"{called(adversary)} reads {noun} at {shown} with {row['attack']}, where {guess}: an advantage "
            f"of at most {bound} by this attack on {row['n_users']:.0f} clients, and no proof against others"
        )
    why = f" ({row['reason']})" if row["reason"] else ""
    return f"{called(adversary)} reads {noun} at {shown} with {row['attack']}, where {guess}{why}"


def called(adversary: str) -> str:
    """Name an adversary in a sentence: ``the server``, and ``neighbour:0`` as it is."""
    return adversary if ":" in adversary else f"the {adversary}"


def _badness(leak: Leak) -> tuple[bool, float]:
    assert leak.row is not None
    return leak.row["verdict"] == LEAK, float(leak.row["advantage"])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if pd.isna(value) else str(value)


def _short(words: dict[str, str], varying: Sequence[int]) -> list[str]:
    """Only what differs between the systems of the page."""
    names = [SYSTEM[position] for position in varying]
    return [
        "no defense" if name == "defense" and words[name] in ("", "none") else words[name] for name in names
    ]


def _defended(defense: str) -> str:
    return "without a defense" if defense in ("", "none") else f"under {defense}"


def kind_names(rows: Sequence[Row]) -> list[str]:
    """Name the columns of who reads what."""
    return [_kind_name(kind) for kind in _kinds(rows)]
