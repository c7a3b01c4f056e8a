"""Verdicts where many answers are looked at: false leaks stay below 5 % of the leaks that are told.

Benjamini and Hochberg's step-up over the sign tests of all answers of a campaign. Where nothing leaks
anywhere it bounds the chance of telling any leak at all; where most leaks it asks hardly more than one test
alone, so that a total leak of few clients stays one.

References
----------
Y. Benjamini, Y. Hochberg, "Controlling the False Discovery Rate", J. R. Statist. Soc. B 57 (1995), 289-300.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.stats import false_discovery_control

from audit.experiments.results import Row
from audit.registry import is_guess
from audit.scoring.verdicts import INCONCLUSIVE, LEAK

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
