"""The sentence of a page for who decides: how many systems leak, what the worst gives away, what is open."""

from __future__ import annotations

from collections.abc import Sequence

from reports.leaks import Leak
from reports.page.overview import LEAK, NO_EVIDENCE, System, called
from reports.verdicts import CLAIMED, DIFFERENCES, INCONCLUSIVE, NOT_TESTED, SIZES, number

DONE = {
    "rated_rating_accuracy": "gets {found} of 100 ratings right",
    CLAIMED: "gets {found} of 100 ratings right",
    DIFFERENCES: "gets {found} of 100 differences between two of a client's ratings right",
    SIZES: "tells in {found} of 100 pairs of a client's ratings how far they are from each other",
    "rated_set_auc": "tells a rated item from another in {found} of 100 pairs",
    "attribute_group_accuracy": "gets {found} of 100 attributes right",
}
REST = {
    NO_EVIDENCE: "the attacks that ran read nothing of note in {count}",
    INCONCLUSIVE: "{count} left open",
    NOT_TESTED: "{count} not tested, which says nothing",
}


def plain(systems: Sequence[System]) -> str:
    """Say in one sentence what all systems come to."""
    seen = [one for one in systems if one.adversaries]
    if not seen:
        return ""
    leaking = [one for one in seen if one.verdict == LEAK and one.worst is not None]
    counts = {verdict: sum(one.verdict == verdict for one in seen) for verdict in REST}
    rest = [words.format(count=counts[verdict]) for verdict, words in REST.items() if counts[verdict]]
    if leaking:
        worst = max(leaking, key=lambda one: _advantage(one.worst))
        first = f"In {len(leaking)} of {len(seen)} systems somebody reads more than a guess{_told(worst)}"
    else:
        first = f"In none of {len(seen)} systems a leak was shown"
    return "; ".join([first, *rest]) + "."


def _advantage(leak: Leak | None) -> float:
    assert leak is not None
    assert leak.row is not None
    return float(leak.row["advantage"])


def _told(system: System) -> str:
    """What the worst adversary of a system does, in counts out of a hundred."""
    leak = system.worst
    row = None if leak is None else leak.row
    if row is None or row["metric"] not in DONE or number(row["baseline"]) == "-":
        return ""
    found, guess = (f"{100 * row[name]:.0f}" for name in ("value", "baseline"))
    done = DONE[str(row["metric"])].format(found=found)
    return f": in the worst ({system.short}) {called(row['adversary'])} {done}, where a guess gets {guess}"
