"""The systems of a page: victims with their defenses on one data set, and what is read of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reports.verdicts import (
    ANSWERED,
    BOUND,
    NOT_TESTED,
    OPEN,
    SENDERS,
    AdversaryView,
    Leak,
    Row,
    System,
    by_adversary,
    grouped,
    kinds_of,
    leak_cell,
    leak_of,
)
from reports.words import WORST_FIRST, sentence

SYSTEM = ("victim", "update", "weighting", "data", "defense")


def systems_of(rows: Sequence[Row]) -> list[System]:
    """Group rows by system, in the order in which each comes first."""
    rows = [row for row in rows if row["metric"] != BOUND]
    kinds = kinds_on(rows)
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


def kinds_on(rows: Sequence[Row]) -> list[str]:
    """Metrics of what can be read; without truth, for whom an attack has an answer, and lists in the open."""
    metrics = {row["metric"] for row in rows}
    kinds = [ANSWERED, *kinds_of(rows)[1:]] if ANSWERED in metrics else kinds_of(rows)
    return [*kinds, *({SENDERS} & metrics)]


def _adversaries(rows: Sequence[Row], kinds: Sequence[str]) -> tuple[AdversaryView, ...]:
    """Those who read the same are one."""
    groups: dict[tuple[str, ...], tuple[list[str], tuple[Leak, ...]]] = {}
    for name, of_one in by_adversary(rows).items():
        leaks = tuple(leak_of(of_one, kind) for kind in kinds)
        groups.setdefault(tuple(map(leak_cell, leaks)), ([], leaks))[0].append(name)
    return tuple(
        AdversaryView(names[0], _worst_verdict(leaks), leaks, tuple(names))
        for names, leaks in groups.values()
    )


def _worst_verdict(leaks: Sequence[Leak]) -> str:
    verdicts = [str(leak.row["verdict"]) for leak in leaks if leak.row is not None]
    verdicts += [OPEN for leak in leaks if leak.in_open]
    ranked = [verdict for verdict in verdicts if verdict in WORST_FIRST]
    return min(ranked, key=WORST_FIRST.index, default=NOT_TESTED)
