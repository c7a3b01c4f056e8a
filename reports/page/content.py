"""Everything that a page says, as plain text in plain tuples; templates only arrange it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from reports.leaks import Leak
from reports.page.charts import charts_of
from reports.page.drawing import Chart
from reports.page.overview import BOUND, REFUTED, System, headline, kind_names, systems_of
from reports.page.plain import plain
from reports.verdicts import (
    ANSWERED,
    CLAIMED,
    NOT_TESTED,
    Row,
    is_guess,
    number,
    numbers_of,
    verdict_of,
    why_not,
)

SHOWN = (
    "rating_accuracy",
    "rated_rating_accuracy",
    "rated_set_auc",
    "attribute_group_accuracy",
    "users_fully_recovered",
    CLAIMED,
    ANSWERED,
)
HEADS = (
    "victim", "scenario", "data", "defense", "adversary", "attack", "rounds", "metric", "value",
    "95 % interval", "guess", "ceiling", "advantage", "answered", "verdict",
)  # fmt: skip
NUMERIC = frozenset({"rounds", "value", "guess", "ceiling", "advantage"})


@dataclass(frozen=True)
class Table:
    """A table of a page: its heading, columns and rows, and which columns hold numbers."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Reading:
    """A cell of who reads what: words and verdict."""

    verdict: str
    value: str
    rest: str


@dataclass(frozen=True)
class Page:
    """All of a page.

    Attributes
    ----------
    title, plain, headline : str
        ``plain`` is the one sentence for who decides.
    verdicts : dict of str to int
        How many attacked systems have each verdict.
    systems : tuple of System
        Those that were attacked.
    adversaries : tuple of (str, str)
        Who was tried, and what each sees.
    kinds : tuple of str
        Columns of ``readings``.
    readings : tuple of (System, adversary, verdict, cells)
    charts : tuple of Chart
    results, claims, measured : Table
        Answers of attacks; claimed epsilons; usefulness and cost.
    silent : Table
        What failed, does not apply or was not answered, and why.
    facts : tuple of (str, str)
        Versions, seeds, times, commands.
    """

    title: str
    plain: str
    headline: str
    verdicts: dict[str, int]
    systems: tuple[System, ...]
    adversaries: tuple[tuple[str, str], ...]
    kinds: tuple[str, ...]
    readings: tuple[tuple[System, str, str, tuple[Reading, ...]], ...]
    charts: tuple[Chart, ...]
    results: Table
    claims: Table
    measured: Table
    silent: Table
    facts: tuple[tuple[str, str], ...] = field(default=())


def page_of(
    rows: Sequence[Row], title: str, adversaries: Mapping[str, str], facts: Sequence[tuple[str, str]]
) -> Page:
    """Arrange result rows for a page.

    Parameters
    ----------
    rows : sequence of mapping
        With the columns of ``results.json``, NaN where there is no number.
    title : str
    adversaries : mapping
        Name -> what it sees, of all that may occur.
    facts : sequence of (str, str)
        Versions and the like.

    Returns
    -------
    Page
    """
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
        charts=tuple(charts_of(systems)) if attacked else (),
        results=_results(attacked),
        claims=_claims(bounds),
        measured=_measured(rows),
        silent=_silent(attacked),
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
    nameless = ", nameless" if row["metric"] == CLAIMED else ""
    rest = f"[{number(row['ci_low'])}, {number(row['ci_high'])}], guess {number(row['baseline'])}"
    off = leak.worst_off
    tenth = "" if off is None else f"; worst tenth {number(off['value'])}, guess {number(off['baseline'])}"
    return Reading(str(row["verdict"]), number(row["value"]), f"{rest}{tenth}; {row['attack']}{nameless}")


def _results(rows: Sequence[Row]) -> Table:
    lines = []
    for row in rows:
        if row["metric"] not in SHOWN or is_guess(row):
            continue
        shown = numbers_of(row)
        lines.append(
            (
                *_place(row),
                str(row["attack"]),
                _whole(row["rounds"]),
                str(row["metric"]),
                *(shown[name] for name in ("value", "interval", "baseline", "ceiling", "advantage")),
                shown["answered"],
                verdict_of(row),
            )
        )
    return Table("Answers of the attacks", HEADS, tuple(lines), NUMERIC)


def _claims(rows: Sequence[Row]) -> Table:
    """Claimed epsilons beside what was shown by who knows all ratings but one."""
    lines = [
        (
            *_place(row), _whole(row["rounds"]),
            *(number(row[name]) for name in ("value", "baseline", "ceiling")), str(row["verdict"]),
            str(row["reason"]),
        )
        for row in rows
    ]  # fmt: skip
    numbers = ("rounds", "lower bound", "claimed", "most that could show")
    heads = ("victim", "scenario", "data", "defense", "seen", *numbers, "verdict", "proved")
    return Table("Claimed epsilon", heads, tuple(lines), frozenset(numbers))


def _refuted(rows: Sequence[Row]) -> str:
    refuted = sum(row["verdict"] == REFUTED for row in rows)
    return f"{refuted} of {len(rows)} claims of an epsilon are refuted." if rows else ""


def _silent(rows: Sequence[Row]) -> Table:
    """One line for each attack and reason; places that share both stand together."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if not is_guess(row) and (why := why_not(row)):
            status = "not answered" if row["status"] == "ran" else str(row["status"])
            reason = why.removeprefix(f"{row['status']}: ")
            where = f"{row['defense'] or 'none'}, {row['adversary']}, {row['update']}/{row['weighting']}"
            groups.setdefault((str(row["attack"]), status, reason), []).append(where)
    lines = [
        (attack, status, reason, "; ".join(dict.fromkeys(places)))
        for (attack, status, reason), places in groups.items()
    ]
    return Table("What was not read, and why", ("attack", "status", "reason", "where"), tuple(lines))


def _measured(rows: Sequence[Row]) -> Table:
    """Usefulness and cost: means and standard deviations over seeds, of rows that no attack made."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if not isinstance(row["adversary"], str) and row["metric"] != BOUND:
            said = (str(row["metric"]), str(row["status"]), str(row["reason"] or ""))
            groups.setdefault((*_place(row)[:4], _whole(row["rounds"]), *said), []).append(row)
    lines = []
    for (*place, rounds, metric, status, reason), found in groups.items():
        values = [
            value for _, value in {(row["seed"], row["value"]) for row in found} if number(value) != "-"
        ]
        beside = [row["baseline"] for row in found if number(row["baseline"]) != "-"]
        mean = f"{fmean(values):.6g}" if values else "-"
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
    return Table("Usefulness and cost", heads, tuple(lines), frozenset(numbers))


def _seeds(rows: Sequence[Row]) -> str:
    return str(len({row["seed"] for row in rows}))


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


def _place(row: Row) -> tuple[str, ...]:
    scenario = f"{row['update']}/{row['weighting']}"
    who = row["adversary"] if isinstance(row["adversary"], str) else ""
    return str(row["victim"]), scenario, str(row["data"]), str(row["defense"] or "none"), who


def _whole(value: Any) -> str:
    return "-" if number(value) == "-" else str(int(value))
