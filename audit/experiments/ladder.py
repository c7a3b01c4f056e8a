"""An audit as a ladder: the cheapest attacks first, and none whose every question is answered.

A question is answered where one attack on all clients reached the bound of every metric of it, and each is a
leak: no other attack can read more, and the strongest verdict of the metric is settled.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from audit.experiments.results import Row
from audit.experiments.rows import ALONE, ANSWERED, PROBABILITY
from audit.registry import entry, is_guess
from audit.scoring.metrics import RATED_SET_METRICS
from audit.scoring.verdicts import LEAK
from audit.shell.progress import lasting

METRICS = {  # question -> what answers are scored by
    "ratings": ("rating_accuracy", "rated_rating_accuracy"),
    "lists": RATED_SET_METRICS,
    "attributes": ("attribute_accuracy", "attribute_group_accuracy"),
}
ROUNDING = 1e-6
TWICE = 2  # an attack is run again on rows that are dealt out at random
CERTAIN = 0.99  # of an attack's own probability that its ratings are right, where there is no truth
MOMENT = 5.0  # seconds
USUAL_CLIENTS, USUAL_ROWS = 1000, 100_000  # to rank attacks before a recording is there


def is_exhaustive(asked: bool | None, attacks: Collection[str], options: Collection[str]) -> bool:
    """Whether every attack runs: where that is asked for, or attacks or options of them are named."""
    return bool(attacks or options) if asked is None else asked


def by_cost(attacks: Iterable[str], clients: int = USUAL_CLIENTS, rows: int = USUAL_ROWS) -> tuple[str, ...]:
    """Order attacks by the seconds that they are expected to take; guesses, which others need, first.

    Those that take a moment stay in the registry's order, which has the strong ones first.
    """

    def key(attack: str) -> tuple[bool, float]:
        return not is_guess(attack), max(MOMENT, seconds_of(attack, clients, rows))

    return tuple(sorted(attacks, key=key))


def seconds_of(attack: str, clients: int, rows: int, sample: int | None = None) -> float:
    """Seconds that an attack is expected to take; one that solves client by client takes a sample of them."""
    declared = entry("attacks", attack)
    if declared.per_client and sample is not None:
        rows, clients = rows * min(sample, clients) // max(clients, 1), min(sample, clients)
    return declared.cost.seconds(clients, rows)


def expected(attacks: Collection[str], sizes: Sequence[tuple[int, int]], sample: int) -> str:
    """Say how long attacks may take on recordings, from what they declare."""
    seconds = sum(seconds_of(attack, *size, sample) for attack in attacks for size in sizes)
    where = " and ".join(f"{rows:,} rows of {clients:,} clients" for clients, rows in sizes)
    counted = "1 attack" if len(attacks) == 1 else f"{len(attacks)} attacks"
    return (
        f"estimate: at most {lasting(TWICE * seconds)} for {counted} on {where}, within a "
        "factor of five; an attack whose every question is answered is not run"
    )


def not_needed(attack: str, rows: Sequence[Row]) -> str:
    """Say why an attack has nothing left to find."""
    if is_guess(attack):
        return ""
    ran = [row for row in rows if row["status"] == "ran"]
    asked = [question for question in entry("attacks", attack).answers if _is_asked(question, ran)]
    readers = {question: _reader(question, rows) for question in asked}
    if not asked or not all(readers.values()):
        return ""
    who = list(dict.fromkeys(filter(None, readers.values())))
    have = "has" if len(who) == 1 else "have"
    return f"{' and '.join(who)} {have} read {', '.join(asked)} of all clients; --exhaustive runs it"


def _is_asked(question: str, ran: Sequence[Row]) -> bool:
    """Whether answers are scored by one of its metrics; another question is always asked."""
    metrics = METRICS.get(question)
    return metrics is None or any(row["metric"] in (*metrics, ANSWERED) for row in ran)


def _reader(question: str, rows: Sequence[Row]) -> str:
    """The attack that answered a question, if any did."""
    everybody: dict[str, int] = {}  # some metrics say nothing of a client who rated every item
    for row in rows:
        if row["status"] == "ran":
            everybody[row["metric"]] = max(everybody.get(row["metric"], 0), row["n_users"])
    for attack in dict.fromkeys(row["attack"] for row in rows if row["status"] == "ran"):
        declared = entry("attacks", attack)
        if is_guess(attack) or declared.per_client or declared.unsigned or declared.sums:
            continue
        mine = [row for row in rows if row["attack"] == attack]
        if question in declared.answers and (
            _is_claimed(mine, everybody)
            if any(row["metric"] == ANSWERED for row in mine)
            else _is_reached([row for row in mine if row["metric"] in METRICS.get(question, ())], everybody)
        ):
            return str(attack)
    return ""


def _is_reached(rows: Sequence[Row], everybody: Mapping[str, int]) -> bool:
    """Whether every metric is at its bound for all clients, and a leak but where a guess is right, too."""
    return bool(rows) and all(
        row["status"] == "ran"
        and row["n_users"] == everybody[row["metric"]]
        and row["value"] >= _bound(row) - ROUNDING
        and (row["verdict"] == LEAK or row["baseline"] >= 1 - ROUNDING)
        for row in rows
    )


def _bound(row: Row) -> float:
    return 1.0 if math.isnan(row["ceiling"]) else float(row["ceiling"])


def _is_claimed(rows: Sequence[Row], everybody: Mapping[str, int]) -> bool:
    """Without truth: whether ratings of all clients are told, more than by chance, and as good as certain."""
    told = next(row for row in rows if row["metric"] == ANSWERED)
    sure = [row["value"] for row in rows if row["metric"] == PROBABILITY]
    return (
        all(row["status"] == "ran" for row in rows)
        and told["verdict"] == LEAK
        and told["value"] == 1
        and told["n_users"] == everybody[ANSWERED]
        and not any(words in told["reason"] for words in ALONE.values())
        and all(value >= CERTAIN for value in sure)
    )
