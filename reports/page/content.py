"""Everything that a page says, as plain text in plain tuples; templates only arrange it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any

from reports.page.charts import Chart, blocks, by_client, by_item, growth, leakage
from reports.page.frontier import frontier
from reports.page.summary import Summary, summary_of
from reports.page.systems import kinds_on, systems_of
from reports.verdicts import (
    ANSWERED,
    BOUND,
    CLAIMED,
    DIFFERENCES,
    INCONCLUSIVE,
    KINDS,
    LEAK,
    MEMBERSHIP,
    NOT_NEEDED,
    NOT_TESTED,
    OPEN,
    PROBABILITY,
    RISKS,
    SIZES,
    UNASKED,
    Leak,
    Row,
    System,
    folded_names,
    interval_of,
    is_guess,
    is_inferred,
    kind_of,
    number,
    numbers_of,
    of_what,
    severity,
    verdict_of,
    why_not,
)

CHARTS = (leakage, frontier, growth, by_client, by_item, blocks)


@dataclass(frozen=True)
class Table:
    """A table of a page."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # A cell for each column
    numeric: frozenset[str] = frozenset()  # columns that hold numbers
    shared: tuple[tuple[str, str], ...] = ()  # columns that all rows have in common, and what they say there


@dataclass(frozen=True)
class Reading:
    """A cell of the findings: how bad, in the terms of regulators, and the numbers."""

    severity: str
    verdict: str
    risk: str
    value: str
    rest: str


@dataclass(frozen=True)
class Page:
    """All of a page."""

    title: str
    summary: Summary  # the first screen
    systems: tuple[System, ...]  # those that were attacked
    adversaries: tuple[tuple[str, str], ...]  # who was tried, and what each sees
    kinds: tuple[str, ...]  # columns of ``readings``
    readings: tuple[tuple[System, str, tuple[Reading, ...]], ...]
    claimed: Table  # without truth: what is claimed of whom
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
    systems, kinds = systems_of(rows), kinds_on(rows)
    seen = dict.fromkeys(str(row["adversary"]) for row in attacked)
    return Page(
        title=title,
        summary=summary_of(systems, dict(facts), bounds),
        systems=tuple(one for one in systems if one.adversaries),
        adversaries=tuple((name, _sees(name, adversaries)) for name in seen),
        kinds=tuple(KINDS[kind] for kind in kinds),
        readings=tuple(
            (system, ", ".join(one.alike), tuple(map(_reading, one.leaks, kinds)))
            for system in systems
            for one in system.adversaries
        ),
        claimed=claimed_table(attacked),
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
    kind = name.partition(":")[0]
    return next((words for known, words in adversaries.items() if known.partition(":")[0] == kind), "")


def _reading(leak: Leak, kind: str) -> Reading:
    row, how_bad = leak.row, severity(leak)
    if leak.in_open:
        return Reading(how_bad, OPEN, RISKS[kind], "", "uploads name the items; no attack is needed")
    if row is None:
        if leak.why == UNASKED:
            return Reading("", "", "", "", UNASKED)
        return Reading(how_bad, NOT_TESTED, "", "", leak.why)
    rest = f"{interval_of(row)}, guess {number(row['baseline'])}"
    off = leak.worst_off
    tenth = "" if off is None else f"; worst tenth {number(off['value'])}, guess {number(off['baseline'])}"
    risk = RISKS[kind_of(str(row["metric"]))] if row["verdict"] == LEAK else ""
    words = f"{rest}{tenth}; {row['attack']}{of_what(row)}"
    return Reading(how_bad, str(row["verdict"]), risk, number(row["value"]), words)


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


# Tables

SHOWN = (
    "rating_accuracy",
    "rated_rating_accuracy",
    "rated_set_auc",
    "attribute_group_accuracy",
    *MEMBERSHIP,
    "users_fully_recovered",
    CLAIMED,
    DIFFERENCES,
    SIZES,
    ANSWERED,
)
HEADS = (
    "victim", "scenario", "data", "defense", "adversary", "attack", "rounds", "metric", "value",
    "95 % interval", "guess", "ceiling", "advantage", "answered", "verdict",
)  # fmt: skip
NUMERIC = frozenset({"rounds", "value", "guess", "ceiling", "advantage"})
#: Columns that need not stand in every row.
PLACE = frozenset({
    "victim", "scenario", "data", "defense", "adversary", "rounds", "sd", "baseline", "baseline is", "seeds",
    "status",
})  # fmt: skip
EMPTY = ("", "-")
NOT_RUN = (NOT_NEEDED, "not applicable")


def without_repetition(table: Table) -> Table:
    """Say once what all rows say of their place, and leave out columns of which none says anything."""
    if len(table.rows) < 2:
        return table
    columns = list(zip(table.columns, zip(*table.rows, strict=True), strict=True))
    alike = {name: said[0] for name, said in columns if name in PLACE and len(set(said)) == 1}
    rest = {name: said for name, said in columns if name not in alike}
    shared = tuple((name, said) for name, said in alike.items() if said not in EMPTY)
    return replace(table, columns=tuple(rest), rows=tuple(zip(*rest.values(), strict=True)), shared=shared)


def results_table(rows: Sequence[Row]) -> Table:
    """What each attack answered, without the guesses and those that did not run (``silent_table``)."""
    lines = []
    for row in rows:
        if not (row["metric"] in SHOWN or is_inferred(row)) or is_guess(row) or row["status"] in NOT_RUN:
            continue
        shown = numbers_of(row)
        lines.append(
            (
                *_where(row),
                str(row["attack"] or "-"),
                _whole(row["rounds"]),
                str(row["metric"]),
                *(shown[name] for name in ("value", "interval", "baseline", "ceiling", "advantage")),
                shown["answered"],
                verdict_of(row),
            )
        )
    return without_repetition(Table("Answers of the attacks", HEADS, tuple(lines), NUMERIC))


def claimed_table(rows: Sequence[Row]) -> Table:
    """What each attack claims of whom where there is no truth, and how sure it says it is."""
    certain = {(row["adversary"], row["attack"]): row for row in rows if row["metric"] == PROBABILITY}
    lists = {row["attack"] for row in rows if row["status"] != "ran"}
    lines = []
    for row in rows:
        if row["metric"] == ANSWERED and verdict_of(row) and row["n_abstained"] < row["n_users"]:
            sure = certain.get((row["adversary"], row["attack"]))
            differ = "differences of ratings" if "ratings differ" in row["reason"] else "ratings"
            lines.append(
                (
                    str(row["adversary"]), str(row["attack"]),
                    "rated items" if row["attack"] in lists else differ, numbers_of(row)["answered"],
                    number(row["baseline"]), "none given" if sure is None else number(sure["value"]),
                    verdict_of(row),
                )
            )  # fmt: skip
    numbers = ("on permuted rows", "confidence")
    heads = ("adversary", "attack", "what", "clients", *numbers, "verdict")
    return Table("What is claimed of whom", heads, tuple(lines), frozenset(numbers))


def claims_table(rows: Sequence[Row]) -> Table:
    """Claimed epsilons beside what was shown by who knows all ratings but one."""
    lines = [
        (
            *_where(row), _whole(row["rounds"]),
            *(number(row[name]) for name in ("value", "baseline", "ceiling")), str(row["verdict"]),
            str(row["reason"]),
        )
        for row in rows
    ]  # fmt: skip
    numbers = ("rounds", "lower bound", "claimed", "most that could show")
    heads = ("victim", "scenario", "data", "defense", "seen", *numbers, "verdict", "proved")
    return without_repetition(Table("Claimed epsilon", heads, tuple(lines), frozenset(numbers)))


def silent_table(rows: Sequence[Row]) -> Table:
    """One line for each reason why attacks settle nothing."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        settles = verdict_of(row) not in (NOT_TESTED, INCONCLUSIVE) and row["status"] != NOT_NEEDED
        if not settles and (why := why_not(row)):
            status = _status(row)
            reason = why.removeprefix(f"{row['status']}: ")
            where = f"{row['defense'] or 'none'}, {row['adversary']}, {row['update']}/{row['weighting']}"
            groups.setdefault((str(row["attack"] or "-"), status, reason), []).append(where)
    together: dict[tuple[str, str, str], list[str]] = {}
    for (attack, status, reason), places in groups.items():
        together.setdefault((status, reason, "; ".join(dict.fromkeys(places))), []).append(attack)
    lines = [(folded_names(attacks), *rest) for rest, attacks in together.items()]
    return Table("What settles nothing, and why", ("attack", "status", "reason", "where"), tuple(lines))


def _status(row: Row) -> str:
    """What became of an attack that settles nothing."""
    if row["status"] != "ran":
        return str(row["status"])
    unanswered = verdict_of(row) == NOT_TESTED or row["n_abstained"] >= row["n_users"]
    return "not answered" if unanswered else "inconclusive"


def measured_table(rows: Sequence[Row]) -> Table:
    """Usefulness and cost: means and standard deviations over seeds, of rows that no attack made."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if not isinstance(row["adversary"], str) and row["metric"] != BOUND:
            said = (str(row["metric"]), str(row["status"]), _apart(row))
            groups.setdefault((*_where(row)[:4], _whole(row["rounds"]), *said), []).append(row)
    lines = []
    for (*place, rounds, metric, status, _), found in groups.items():
        reason = "; ".join(dict.fromkeys(str(row["reason"]) for row in found if row["reason"]))
        values = [
            value for _, value in {(row["seed"], row["value"]) for row in found} if number(value) != "-"
        ]
        beside = [row["baseline"] for row in found if number(row["baseline"]) != "-"]
        mean = f"{fmean(values):.4g}" if values else "-"
        spread = f"{stdev(values):.2g}" if len(values) > 1 else "-"
        guess = f"{fmean(beside):.4g}" if beside else "-"
        names = {row["baseline_name"] for row in found if row["baseline_name"]}
        beside_what = ", ".join(sorted(names)) if beside else ""
        lines.append(
            (*place, rounds, metric, mean, spread, guess, beside_what, _seeds(found), reason or status)
        )
    numbers = ("rounds", "mean", "sd", "baseline", "seeds")
    heads = (
        "victim", "scenario", "data", "defense", "rounds", "metric", *numbers[1:4], "baseline is", "seeds",
        "status",
    )  # fmt: skip
    return without_repetition(Table("Usefulness and cost", heads, tuple(lines), frozenset(numbers)))


def _apart(row: Row) -> str:
    """The reason of a row that ran parts no seeds."""
    return "" if row["status"] == "ran" else str(row["reason"] or "")


def _seeds(rows: Sequence[Row]) -> str:
    return str(len({row["seed"] for row in rows}))


def _where(row: Row) -> tuple[str, ...]:
    scenario = f"{row['update']}/{row['weighting']}"
    who = row["adversary"] if isinstance(row["adversary"], str) else ""
    return str(row["victim"]), scenario, str(row["data"]), str(row["defense"] or "none"), who


def _whole(value: Any) -> str:
    return "-" if number(value) == "-" else str(int(value))
