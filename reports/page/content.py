"""Everything that a page says, as plain text in plain tuples; templates only arrange it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reports.leaks import Leak, System
from reports.page.charts import Chart, blocks, by_client, by_item, growth, leakage
from reports.page.frontier import frontier
from reports.page.systems import kind_names, systems_of
from reports.page.tables import Table, claims_table, measured_table, results_table, silent_table
from reports.tables import BOUND
from reports.verdicts import NOT_TESTED, Row, interval_of, number, of_what
from reports.words import headline, plain

CHARTS = (leakage, frontier, growth, by_client, by_item, blocks)


@dataclass(frozen=True)
class Reading:
    """A cell of who reads what: words and verdict."""

    verdict: str
    value: str
    rest: str


@dataclass(frozen=True)
class Page:
    """All of a page."""

    title: str
    plain: str  # the one sentence for who decides
    headline: str
    verdicts: dict[str, int]  # how many attacked systems have each verdict
    systems: tuple[System, ...]  # those that were attacked
    adversaries: tuple[tuple[str, str], ...]  # who was tried, and what each sees
    kinds: tuple[str, ...]  # columns of ``readings``
    readings: tuple[tuple[System, str, str, tuple[Reading, ...]], ...]
    charts: tuple[Chart, ...]
    results: Table  # answers of attacks
    claims: Table  # claimed epsilons
    measured: Table  # usefulness and cost
    silent: Table  # what failed, does not apply, was not answered or is inconclusive, and why
    facts: tuple[tuple[str, str], ...] = field(default=())  # versions, seeds, times, commands


def page_of(
    rows: Sequence[Row], title: str, adversaries: Mapping[str, str], facts: Sequence[tuple[str, str]]
) -> Page:
    """Arrange result rows for a page."""
    bounds = [row for row in rows if row["metric"] == BOUND]
    attacked = [row for row in rows if isinstance(row["adversary"], str) and row["metric"] != BOUND]
    systems = systems_of(rows)
    seen = dict.fromkeys(str(row["adversary"]) for row in attacked)
    verdicts = [one.verdict for one in systems if one.adversaries]
    return Page(
        title=title,
        plain=plain(systems),
        headline=" ".join(filter(None, (headline(systems), _refuted(bounds)))),
        verdicts={verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)},
        systems=tuple(one for one in systems if one.adversaries),
        adversaries=tuple((name, _sees(name, adversaries)) for name in seen),
        kinds=tuple(kind_names(rows)),
        readings=tuple(
            (system, ", ".join(one.alike), one.verdict, tuple(map(_reading, one.leaks)))
            for system in systems
            for one in system.adversaries
        ),
        charts=tuple(chart for draw in CHARTS if attacked and (chart := draw(systems)) is not None),
        results=results_table(attacked),
        claims=claims_table(bounds),
        measured=measured_table(rows),
        silent=silent_table(attacked),
        facts=(*facts, *_facts(rows)),
    )


def _sees(name: str, adversaries: Mapping[str, str]) -> str:
    if name in adversaries:
        return adversaries[name]
    kind = name.partition(":")[0] + ":"
    return next((words for known, words in adversaries.items() if known.startswith(kind)), "")


def _reading(leak: Leak) -> Reading:
    row = leak.row
    if row is None:
        return Reading(NOT_TESTED, "", leak.why)
    rest = f"{interval_of(row)}, guess {number(row['baseline'])}"
    off = leak.worst_off
    tenth = "" if off is None else f"; worst tenth {number(off['value'])}, guess {number(off['baseline'])}"
    return Reading(str(row["verdict"]), number(row["value"]), f"{rest}{tenth}; {row['attack']}{of_what(row)}")


def _refuted(rows: Sequence[Row]) -> str:
    refuted = sum(row["verdict"] == "CLAIM REFUTED" for row in rows)
    return f"{refuted} of {len(rows)} claims of an epsilon are refuted." if rows else ""


def _facts(rows: Sequence[Row]) -> list[tuple[str, str]]:
    seeds = sorted({int(row["seed"]) for row in rows if number(row["seed"]) != "-"})
    seconds = sum({_cell(row): row["seconds"] for row in rows if number(row["seconds"]) != "-"}.values())
    return [
        ("rows", str(len(rows))),
        ("seeds", ", ".join(map(str, seeds))),
        ("seconds in cells", f"{seconds:.1f}"),
    ]


def _cell(row: Row) -> tuple[Any, ...]:
    names = ("victim", "update", "weighting", "data", "defense", "adversary", "attack", "rounds", "seed")
    return tuple(str(row[name]) for name in names)
