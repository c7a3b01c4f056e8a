"""The systems of a page: victims with their defenses on one data set, and what is read of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reports.tables import BOUND
from reports.verdicts import (
    ANSWERED,
    LEAKS,
    NOT_TESTED,
    AdversaryView,
    Leak,
    Row,
    System,
    best,
    by_adversary,
    grouped,
    kinds_of,
    leak_cell,
    leak_of,
    why_nothing,
)
from reports.words import WORST_FIRST, sentence

SYSTEM = ("victim", "update", "weighting", "data", "defense")
NO_TRUTH = "clients answered, without truth"


def systems_of(rows: Sequence[Row]) -> list[System]:
    """Group rows by system, in the order in which each comes first."""
    rows = [row for row in rows if row["metric"] != BOUND]
    kinds = _kinds(rows)
    groups = grouped(rows, *SYSTEM)
    varying = [name for n, name in enumerate(SYSTEM) if len({key[n] for key in groups}) > 1]
    systems = []
    for key, of_system in groups.items():
        words = {n: text if isinstance(text, str) else "" for n, text in zip(SYSTEM, key, strict=True)}
        defense = "" if words["defense"] == "none" else words["defense"]
        # of files that all rows are about, the last part of the path is enough
        data = words["data"] if "data" in varying else Path(words["data"]).name
        under = f"under {defense}" if defense else "without a defense"
        program = f" {words['update']}/{words['weighting']}" if words["update"] != "unknown" else ""
        victim = words["victim"] if words["victim"] != "unknown" or program else "a program"
        name = f"{victim}{program} on {data}, {under}"
        words["defense"] = defense or "no defense"
        short = ", ".join(words[one] for one in varying) or name
        seen = _adversaries(of_system, kinds)
        verdict = min((one.verdict for one in seen), key=WORST_FIRST.index, default=NOT_TESTED)
        said = sentence(name, verdict, seen)
        systems.append(System(name, short, verdict, said, seen, tuple(of_system)))
    return systems


def kind_names(rows: Sequence[Row]) -> list[str]:
    """Name the columns of who reads what."""
    return [NO_TRUTH if kind == ANSWERED else LEAKS[kind] for kind in _kinds(rows)]


def _kinds(rows: Sequence[Row]) -> list[str]:
    """Metrics of what can be read; without truth, for whom an attack has an answer."""
    return [ANSWERED] if any(row["metric"] == ANSWERED for row in rows) else kinds_of(rows)


def _adversaries(rows: Sequence[Row], kinds: Sequence[str]) -> tuple[AdversaryView, ...]:
    """Those who read the same are one."""
    groups: dict[tuple[str, ...], tuple[list[str], tuple[Leak, ...]]] = {}
    for name, of_one in by_adversary(rows).items():
        leaks = tuple(
            leak_of(of_one, kind)
            if kind in LEAKS
            else Leak(NO_TRUTH, best(of_one, kind), why_nothing(of_one))
            for kind in kinds
        )
        groups.setdefault(tuple(map(leak_cell, leaks)), ([], leaks))[0].append(name)
    return tuple(
        AdversaryView(names[0], _worst_verdict(leaks), leaks, tuple(names))
        for names, leaks in groups.values()
    )


def _worst_verdict(leaks: Sequence[Leak]) -> str:
    verdicts = [str(leak.row["verdict"]) for leak in leaks if leak.row is not None]
    ranked = [verdict for verdict in verdicts if verdict in WORST_FIRST]
    return min(ranked, key=WORST_FIRST.index, default=NOT_TESTED)
