"""The strongest of several attacks on one defense, with an interval that allows for the choice.

No attack is tuned on the truth: it gets a view and a seed, and what it learns it learns from the view. What
is chosen with the truth in hand is which of them was strongest, on the clients that it is scored on. So each
adversary's strongest answer gets a row with an interval that holds for all that were tried together
(Bonferroni, normal with the standard error of its own interval, at least 1.5 / clients). The names say which
attacks know the defense, as it declares them, and which ignore it.

References
----------
O. J. Dunn, "Multiple Comparisons Among Means", J. Am. Statist. Assoc. 56 (1961), 52-64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.special import ndtri
from scipy.stats import false_discovery_control

from audit.experiments.results import Row, make_row
from audit.factories import make_defenses
from audit.registry import is_guess
from audit.scoring.verdicts import INCONCLUSIVE, LEAK, NOT_TESTED
from victims.common.errors import InputError

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
