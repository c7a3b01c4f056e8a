"""What rows say together: the strongest attack, false discoveries, and what changed since earlier results.

No attack is tuned on the truth. What is chosen with the truth in hand is which of several was strongest, on
the clients that it is scored on, so the strongest answer's interval holds for all that were tried
(Bonferroni, normal). Changes since earlier results are told by the advantage of the same cell, with both
intervals taken for independent, which is cautious where the same clients were attacked twice, and Holm's
correction over all comparisons: the chance of any false "worse" or "better" is at most ``LEVEL``. Standard
errors are at least 1.5 / clients, for a bootstrap of equal values has no width (rule of three).

References
----------
O. J. Dunn, "Multiple Comparisons Among Means", J. Am. Statist. Assoc. 56 (1961), 52-64.
S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scand. J. Statist. 6 (1979), 65-70.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from scipy.special import ndtr, ndtri
from scipy.stats import false_discovery_control

from audit.experiments.results import Row, make_row
from audit.factories import make_defenses
from audit.registry import is_guess
from audit.scoring.groups import GROUP_METRICS
from audit.scoring.verdicts import INCONCLUSIVE, LEAK, NOT_TESTED, OPEN
from victims.common.errors import InputError, printable
from victims.common.files import write_text

STRONGEST = "strongest"  # last part of the metric's name
OF_ONE = (
    "victim", "update", "weighting", "data", "defense", "adversary", "rounds", "seed", "metric",
)  # fmt: skip
LEVEL = 0.05
WIDTH = 2 * float(ndtri(1 - LEVEL / 2))  # standard errors in a 95 % interval
RULE_OF_THREE = 1.5


def strongest(rows: Sequence[Row]) -> list[Row]:
    """Make a row for the strongest answer of each adversary and metric under each defense."""
    families: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if _is_answer(row):
            families.setdefault(tuple(row[name] for name in OF_ONE), []).append(row)
    return [_row(family) for family in families.values()]


def _is_answer(row: Mapping[str, object]) -> bool:
    ends = [row[name] for name in ("advantage", "advantage_low", "advantage_high")]
    known = all(isinstance(end, float) and math.isfinite(end) for end in ends)
    attacked = isinstance(row["attack"], str) and not is_guess(row["attack"])
    return known and attacked and row["status"] == "ran" and row["verdict"] not in ("", NOT_TESTED)


def _row(family: Sequence[Row]) -> Row:
    best = max(family, key=lambda row: row["advantage"])
    deviation = max(
        (best["advantage_high"] - best["advantage_low"]) / WIDTH, RULE_OF_THREE / max(best["n_users"], 1)
    )
    reach = float(ndtri(1 - LEVEL / 2 / len(family))) * deviation
    shared = {name: best[name] for name in OF_ONE if name != "metric"}
    return make_row(
        **shared,
        attack=best["attack"],
        metric=f"{best['metric']}/{STRONGEST}",
        value=best["value"],
        baseline=best["baseline"],
        baseline_name=best["baseline_name"],
        ceiling=best["ceiling"],
        advantage=best["advantage"],
        advantage_low=min(best["advantage"] - reach, best["advantage_low"]),
        advantage_high=min(max(best["advantage"] + reach, best["advantage_high"]), 1.0),
        n_users=best["n_users"],
        n_abstained=best["n_abstained"],
        status="ran",
        reason=_reason(best, family),
    )


def _reason(best: Row, family: Sequence[Row]) -> str:
    names = [row["attack"] for row in family]
    knowing = [name for name in names if name in _knowing(best["defense"])]
    ignoring = [name for name in names if name not in knowing]
    said = [
        f"{words}: {', '.join(some)}"
        for words, some in (("know the defense", knowing), ("ignore it", ignoring))
        if some
    ]
    return (
        f"the strongest of {len(names)} on the clients that it was chosen on ({'; '.join(said)}); its "
        f"interval holds for all of them together"
    )


def _knowing(defense: str) -> set[str]:
    """The attacks that a defense says adapt to it."""
    try:
        return {attacker.name for one in make_defenses(defense or "none") for attacker in one.attackers}
    except InputError:  # of a package that is not installed any more
        return set()


RATE = 0.05


def controlled(rows: Sequence[Row]) -> list[Row]:
    """Call a leak INCONCLUSIVE where it would not stand among that many answers."""
    tested = [position for position, row in enumerate(rows) if _is_test(row)]
    if not tested:
        return list(rows)
    adjusted = false_discovery_control([rows[position]["p_value"] for position in tested])
    out = list(rows)
    for position, value in zip(tested, adjusted.tolist(), strict=True):
        if rows[position]["verdict"] == LEAK and value > RATE:
            reason = (
                f"p = {rows[position]['p_value']:.2g} alone; among {len(tested)} answers that are looked at "
                f"together false leaks would be {value:.2g} of those told, and at most {RATE:g} may be"
            )
            out[position] = {**rows[position], "verdict": INCONCLUSIVE, "reason": reason}
    return out


def _is_test(row: Mapping[str, Any]) -> bool:
    value = row["p_value"]
    known = isinstance(value, float) and math.isfinite(value)
    return known and row["status"] == "ran" and bool(row["verdict"]) and not is_guess(row["attack"])


CELL = ("victim", "update", "weighting", "data", "defense", "adversary", "attack", "rounds", "metric")
WORSE, BETTER, SAME, UNTESTED, NEW, GONE = (
    "worse", "better", "same", "no longer tested", "not tested before", "no longer there",
)  # fmt: skip
TOLD = (WORSE, UNTESTED, GONE, BETTER, NEW)


@dataclass(frozen=True)
class Change:
    """One cell in both results."""

    cell: tuple[str, ...]  # values of ``CELL``
    said: str  # worse, better, same, no longer tested, not tested before, or no longer there
    before: float  # advantages; NaN where nothing was tested
    after: float  # advantages; NaN where nothing was tested
    p_value: float  # two-sided, adjusted for all comparisons; NaN where there was none

    def __str__(self) -> str:
        """One line for people."""
        words = dict(zip(CELL, self.cell, strict=True))
        where = f"{words['attack']} on {words['update']}/{words['weighting']}, {words['defense'] or 'none'}"
        numbers = ""
        if not math.isnan(self.before + self.after):
            numbers = f", advantage {self.before:.3f} before, {self.after:.3f} now (p = {self.p_value:.2g})"
        return f"{self.said}: {words['metric']} by {where}, {words['adversary']}{numbers}"


def changes(after: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> list[Change]:
    """Hold results against earlier ones."""
    idle = {_attack(row) for row in (*after, *before) if row["status"] == "not needed"}
    new, old = (_by_cell([row for row in rows if _attack(row) not in idle]) for rows in (after, before))
    both = [cell for cell in new if cell in old and _tested(new[cell]) and _tested(old[cell])]
    adjusted = dict(zip(both, _holm([_p_value(new[cell], old[cell]) for cell in both]), strict=True))
    return [
        _change(cell, new.get(cell), old.get(cell), adjusted.get(cell, math.nan))
        for cell in dict.fromkeys([*new, *old])
    ]


def _change(
    cell: tuple[str, ...], new: Mapping[str, Any] | None, old: Mapping[str, Any] | None, p_value: float
) -> Change:
    before, after = (
        math.nan if row is None or not _tested(row) else float(row["advantage"]) for row in (old, new)
    )
    if new is None:
        said = GONE
    elif math.isnan(before) or math.isnan(after):
        said = SAME if math.isnan(before) and math.isnan(after) else UNTESTED if math.isnan(after) else NEW
    elif p_value > LEVEL:
        said = SAME
    else:
        said = WORSE if after > before else BETTER
    return Change(cell, said, before, after, p_value)


def _attack(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(_text(row[name]) for name in CELL[:-1])


def _by_cell(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, ...], Mapping[str, Any]]:
    """Cells of attacks, by name; a cell without any number is there under the metric that stands for it."""
    return {
        tuple(_text(row[name]) for name in CELL): row
        for row in rows
        if isinstance(row["adversary"], str)
        and isinstance(row["attack"], str)
        and not is_guess(row["attack"])
        and (row["status"] != "ran" or row["verdict"])
    }


def _tested(row: Mapping[str, Any]) -> bool:
    numbers = [row[name] for name in ("advantage", "advantage_low", "advantage_high")]
    known = all(number is not None and math.isfinite(number) for number in numbers)
    return known and row["status"] == "ran" and row["verdict"] != NOT_TESTED


def _p_value(new: Mapping[str, Any], old: Mapping[str, Any]) -> float:
    error = math.hypot(_standard_error(new), _standard_error(old))
    return float(2 * ndtr(-abs(new["advantage"] - old["advantage"]) / error))


def _standard_error(row: Mapping[str, Any]) -> float:
    return max((row["advantage_high"] - row["advantage_low"]) / WIDTH, RULE_OF_THREE / max(row["n_users"], 1))


def _holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted so that comparing each with a level bounds the chance of any false alarm by it."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, position in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[position]))
        adjusted[position] = highest
    return adjusted


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else f"{value:g}"


def write_junit(
    path: Path, rows: Sequence[Mapping[str, Any]], crossed: Callable[[Mapping[str, Any]], Sequence[str]]
) -> None:
    """Write the file."""
    cases = [
        _case(row, crossed(row))
        for row in rows
        if (isinstance(row["attack"], str) or row["verdict"] == OPEN)
        and not is_guess(row["attack"])
        and (not _describes(row) or crossed(row))
    ]
    tags = [child.tag for case in cases for child in case if child.tag != "system-out"]
    suite = ElementTree.Element("testsuite", name="factorleak", tests=str(len(cases)))
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(tags.count(tag)))
    suite.extend(cases)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    write_text(path, ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n")


def _describes(row: Mapping[str, Any]) -> bool:
    """Whether a row is no answer of its own: of a group of clients, or of the strongest answer again."""
    return row["metric"] in GROUP_METRICS or str(row["metric"]).endswith(f"/{STRONGEST}")


def _case(row: Mapping[str, Any], crossed: Sequence[str]) -> ElementTree.Element:
    place = (
        f"{row['victim']}.{row['update']}/{row['weighting']}.{row['defense'] or 'none'}.{row['adversary']}"
    )
    case = ElementTree.Element(
        "testcase", classname=printable(place), name=f"{row['attack'] or 'uploads'}: {row['metric']}"
    )
    seconds = row["seconds"]
    if isinstance(seconds, float) and math.isfinite(seconds):
        case.set("time", f"{seconds:.3f}")
    reason = printable(row["reason"] or "")
    if crossed:
        words = "; ".join(f"--fail-on {text} is crossed" for text in crossed)
        ElementTree.SubElement(
            case, "failure", type=str(row["verdict"]), message=printable(words)
        ).text = _numbers(row)
    elif row["status"] == "failed":
        ElementTree.SubElement(case, "error", message=reason)
    elif row["status"] != "ran" or row["verdict"] == NOT_TESTED:
        ElementTree.SubElement(case, "skipped", message=f"{NOT_TESTED}: {reason}")
    else:
        ElementTree.SubElement(case, "system-out").text = _numbers(row)
    return case


def _numbers(row: Mapping[str, Any]) -> str:
    return (
        f"value {row['value']} [{row['ci_low']}, {row['ci_high']}], best guess {row['baseline']}, advantage "
        f"{row['advantage']}, verdict {row['verdict']}"
    )
