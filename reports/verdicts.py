"""Result rows in words: numbers, verdicts and reasons.

Works on plain mappings with the columns of ``results.json``. An accuracy never appears without its baseline
and its interval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import numpy as np

Row = Mapping[str, Any]
Line = TypeVar("Line")

CLAIMED = "claimed_rating_accuracy"  # of answers about clients without a name
DIFFERENCES = "rating_difference_accuracy"  # of answers that leave open what is added to all ratings
SIZES = "rating_difference_size_accuracy"  # and whether all of them are upside down
RELATIVE = (DIFFERENCES, SIZES)
OF_WHAT = {
    CLAIMED: "nameless",
    DIFFERENCES: "differences",
    SIZES: "sizes of differences",
}  # beside a number that stands for ratings
ANSWERED, AGREEMENT = "clients_answered", "agreement"  # where there is no truth
DISTORTION = "distortion"  # of the sums of recorded uploads, by a defense
BOUND = "empirical_epsilon"  # at least, beside a claim
PROBABILITY = "claimed_probability"  # and the mean of what attacks say of their own ratings there
LEAK, NOT_TESTED, INCONCLUSIVE = "LEAK", "NOT TESTED", "INCONCLUSIVE"
OPEN = "OPEN"  # of rated items that uploads themselves name
NOT_NEEDED = "not needed"  # status of an attack that had nothing left to find
UNFINISHED = ("failed", "not reached")  # which might have found more
UNASKED = "not asked of this adversary"
LOOKED = " clients got no answer"  # in the reason of an attack that applies and abstained
QUALITY, ERROR, SENT = (
    "ndcg_at_10",
    "rmse",
    "bytes_sent_mean",
)  # of a recommender, and what a mean client sends


def tested(row: Row) -> bool:
    """Tell whether a row holds a number that an attack answered for."""
    return verdict_of(row) not in (NOT_TESTED, OPEN) and number(row["advantage"]) != "-"


def number(value: Any, digits: int = 3) -> str:
    """Write a number for people; a dash where there is none.

    Examples
    --------
    >>> number(0.98765), number(float("nan"))
    ('0.988', '-')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    return f"{value:.{digits}f}"


def interval_of(row: Row) -> str:
    """Write the 95 % interval of a row."""
    return f"[{number(row['ci_low'])}, {number(row['ci_high'])}]"


def is_guess(row: Row) -> bool:
    """Tell whether a row is of a guess, which reads nothing and has no verdict."""
    return str(row.get("attack", "")).startswith("guess-")


def of_what(row: Row, words: str = ", {}") -> str:
    """Say what a number that stands for ratings is about, where that is not a client's ratings."""
    metric = str(row["metric"])
    if kind_of(metric) == INFERRED:
        name, _, source = metric.partition("/")[2].rpartition("/")
        return words.format(f"{name} from {source}" + " (area)" * metric.startswith("inferred_auc/"))
    return words.format(OF_WHAT[metric]) if metric in OF_WHAT else ""


def verdict_of(row: Row) -> str:
    """Say a row's verdict; NOT TESTED where the attack did not run, nothing of a guess."""
    if is_guess(row) or row["status"] == NOT_NEEDED:
        return ""
    return str(row["verdict"]) if row["status"] == "ran" else NOT_TESTED


def why_not(row: Row) -> str:
    """Say why a row has no number, or none that settles anything, and what one without truth is about."""
    if row["status"] != "ran":
        return f"{row['status']}: {row['reason']}"
    if verdict_of(row) == INCONCLUSIVE or (verdict_of(row) and row["metric"] == ANSWERED):
        return str(row["reason"])
    if verdict_of(row) == NOT_TESTED:
        return str(row["reason"]) or f"{row['n_abstained']} of {row['n_users']}{LOOKED}"
    return ""


def why_silent(rows: Sequence[Row]) -> str:
    """Say which attacks ran and found nothing, or else the reason that most families of attacks have.

    Examples
    --------
    >>> silent = {"attack": "grid", "reason": "9 of 9 clients got no answer: too few rows (9)"}
    >>> idle = {"attack": "aggregate", "reason": "no sums"}
    >>> why_silent([idle, silent])
    'grid ran and found nothing'
    >>> why_silent([idle])
    'no sums'
    >>> few = {"attack": "undeclared", "n_users": 22, "n_abstained": 20}
    >>> why_silent([silent, few | {"reason": "20 of 22 clients got no answer: too few rows (20)"}])
    'undeclared answered 2 of 22 clients, grid ran and found nothing'
    """
    told = {str(row["attack"]): str(row["reason"]) for row in rows if row.get("reason")}
    looked = [attack for attack, reason in told.items() if LOOKED in reason]
    few = {str(row["attack"]): row for row in rows if answers_few(row)}
    said = [
        f"{attack} answered {row['n_users'] - row['n_abstained']} of {row['n_users']} clients"
        for attack, row in few.items()
    ]
    if looked := [attack for attack in looked if attack not in few]:
        names = " and ".join([", ".join(looked[:-1])] * (len(looked) > 1) + looked[-1:])
        said.append(f"{names} ran and found nothing")
    if said:
        return ", ".join(said)
    families = {(family(attack), reason): reason for attack, reason in told.items()}
    return "".join(reason for reason, _ in Counter(families.values()).most_common(1))


def answers_few(row: Row) -> bool:
    """Whether an attack answers some clients, and leaves too many open for a verdict."""
    return LOOKED in str(row.get("reason", "")) and 0 < row.get("n_abstained", 0) < row.get("n_users", 0)


def numbers_of(row: Row, digits: int = 3) -> dict[str, str]:
    """Put value, interval, guess and ceiling in words."""
    names = ("value", "ci_low", "ci_high", "baseline", "ceiling", "ceiling_ml", "advantage")
    if verdict_of(row) == NOT_TESTED or row["status"] != "ran":
        return {"interval": "-", "answered": "-", **dict.fromkeys(names, "-")}
    found = {name: number(row[name]) for name in names}
    answered = max(row["n_users"] - row["n_abstained"], 0)
    return {
        **found,
        "value": number(row["value"], digits),
        "interval": "-" if found["ci_low"] == "-" else interval_of(row),
        "ceiling_ml": "-" if found["ceiling_ml"] == found["ceiling"] else found["ceiling_ml"],
        "answered": f"{answered}/{row['n_users']}",
    }


def grouped(rows: Sequence[Row], *columns: str) -> dict[Any, list[Row]]:
    """Group rows by what they have in some columns, in the order in which that comes first."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        key = tuple(row[column] for column in columns)
        groups.setdefault(key if len(columns) > 1 else key[0], []).append(row)
    return groups


def by_adversary(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Group the rows of leakage by the adversary."""
    return grouped([row for row in rows if isinstance(row["adversary"], str)], "adversary")


def values_of(rows: Sequence[Row], metric: str) -> np.ndarray:
    """Collect the values of a metric."""
    return np.array([row["value"] for row in rows if row["metric"] == metric and row["status"] == "ran"])


def family(attack: str) -> str:
    """Say what the names of an attack's variants begin with."""
    return attack.partition("-")[0]


def folded(
    lines: Sequence[Line], attack: Callable[[Line], str], same: Callable[[Line], Hashable]
) -> list[tuple[str, list[Line]]]:
    """Join lines that follow each other, are of one family and have the same content.

    Examples
    --------
    >>> lines = [("root-lm", "no"), ("root-krylov", "no"), ("grid", "no")]
    >>> [name for name, _ in folded(lines, lambda line: line[0], lambda line: line[1])]
    ['root-* (2)', 'grid']
    """

    def key(one: tuple[int, Line]) -> Hashable:
        number, line = one
        content = same(line)
        return (number, None) if content is None else (family(attack(line)), content)

    groups = [[line for _, line in group] for _, group in groupby(enumerate(lines), key)]
    return [(_name([attack(line) for line in group]), group) for group in groups]


def folded_names(attacks: Sequence[str]) -> str:
    """Name attacks that have the same to say."""
    return ", ".join(name for name, _ in folded(attacks, str, lambda _: True))


def _name(attacks: Sequence[str]) -> str:
    return attacks[0] if len(attacks) == 1 else f"{family(attacks[0])}-* ({len(attacks)})"


# What one adversary reads of each kind: the strongest answer, or why there is none

INFERRED = "inferred_accuracy"  # of attributes that are not sent; after it, of which and from what
COMMUNITY = "community_precision"
LEAKS = {
    "rated_rating_accuracy": "ratings",
    "rated_set_auc": "rated set",
    "attribute_group_accuracy": "attributes",
    "rating_membership_auc": "membership of ratings",
    "user_membership_auc": "membership of users",
    INFERRED: "inferred attributes",
    COMMUNITY: "communities",
}
SENDERS = "link_precision"
OUTPUTS = "outputs"  # the adversary who sees no message
MEMBERSHIP = ("rating_membership_auc", "user_membership_auc")  # told from outputs
KINDS = {**LEAKS, SENDERS: "senders", ANSWERED: "clients answered, without truth"}
FULLY = "users_fully_recovered"
RISKS = {  # in the terms of European regulators, opinion 05/2014 of WP216
    **dict.fromkeys(("rated_rating_accuracy", *RELATIVE, "attribute_group_accuracy", ANSWERED), "inference"),
    **dict.fromkeys((CLAIMED, "rated_set_auc"), "singling out"),
    SENDERS: "linkability",
    **dict.fromkeys((*MEMBERSHIP, INFERRED, COMMUNITY), "inference"),
}
SEVERITIES = ("total", "large", "small", "none shown", "not tested")
TOTAL, LARGE = 0.9, 0.2  # advantages from which on a leak is total, or large
UNDEFENDED = ("", "none")
SAME = ("victim", "update", "weighting", "data", "defense", "adversary", "attack", "rounds", "seed")
WORST_OFF = "worst_tenth"
IN_OPEN = f"{OPEN}\nuploads name the items"


def is_inferred(row: Row) -> bool:
    """Whether a row is about what is inferred from an answer, and has a verdict."""
    return str(row["metric"]).startswith((f"{INFERRED}/", "inferred_auc/", COMMUNITY))


def kind_of(metric: str) -> str:
    """The kind of what a number is about, as messages name kinds.

    Examples
    --------
    >>> kind_of("inferred_accuracy/gender/ratings"), kind_of("rated_set_auc")
    ('inferred_accuracy', 'rated_set_auc')
    """
    return INFERRED if metric.startswith((f"{INFERRED}/", "inferred_auc/")) else metric


class Leak(NamedTuple):
    """What one adversary reads of one kind: the strongest answer, else why there is none; and what the same
    attack reads of the worst-off tenth of the clients, where that was scored. ``in_open``: uploads name the
    rated items, which is a fact and no attack's answer.
    """

    kind: str
    row: Row | None
    why: str
    worst_off: Row | None = None
    in_open: bool = False


@dataclass(frozen=True)
class AdversaryView:
    """What one adversary reads of a system."""

    adversary: str
    verdict: str  # the worst of its kinds; NOT TESTED where no attack answered
    leaks: tuple[Leak, ...]  # one for each kind, in the order of the page's columns
    alike: tuple[str, ...]  # all who read the same, itself among them


@dataclass(frozen=True)
class System:
    """One victim with its defenses on one data set, and what each adversary reads of it.

    It is no better than the worst of the adversaries that were tested; those that were not are named, never
    counted as safe.
    """

    name: str
    short: str  # what tells it from the other systems of the page
    verdict: str  # of the worst tested adversary
    sentence: str
    adversaries: tuple[AdversaryView, ...]
    rows: tuple[Row, ...]  # all of its rows

    @property
    def severity(self) -> str:
        """The worst severity of what any adversary reads."""
        found = [severity(leak) for seen in self.adversaries for leak in seen.leaks]
        return min(found, key=SEVERITIES.index, default="not tested")

    @property
    def worst(self) -> Leak | None:
        """The answer with the largest advantage over all adversaries, leaks before others."""
        found = [leak for seen in self.adversaries if (leak := worst(seen.leaks)) is not None]
        return max(found, key=badness, default=None)


def severity(leak: Leak) -> str:
    """Say how bad it is what one adversary reads of one kind, by rule.

    Examples
    --------
    >>> row = {"verdict": "LEAK", "advantage": 0.95}
    >>> severity(Leak("ratings", row, "")), severity(Leak("ratings", row | {"advantage": 0.1}, ""))
    ('total', 'small')
    >>> severity(Leak("ratings", row | {"verdict": "NO EVIDENCE"}, "")), severity(Leak("ratings", None, ""))
    ('none shown', 'not tested')
    >>> severity(Leak("rated set", None, "", in_open=True))
    'large'
    """
    if leak.in_open:
        return "large"  # which items, and no rating
    if leak.row is None:
        return "not tested"
    if leak.row["verdict"] != LEAK:
        return "none shown"
    advantage = leak.row["advantage"]
    return "total" if advantage >= TOTAL else "large" if advantage >= LARGE else "small"


def badness(leak: Leak) -> tuple[bool, bool, float]:
    """Order answers: leaks last, of them those that take an attack, then by advantage."""
    assert leak.row is not None
    return leak.row["verdict"] == LEAK, not leak.in_open, float(leak.row["advantage"])


def metrics_of(kind: str) -> set[str]:
    """List the metrics of one kind of answers: of ratings those of nameless clients and differences, too."""
    return {kind, *OF_WHAT} if kind == "rated_rating_accuracy" else {kind}


def best(rows: Sequence[Row], metric: str) -> Row | None:
    """Find the strongest answer: a leak before all others, then by advantage; guesses do not count.

    Of ratings also that of nameless clients, and that of their differences. Where an attack failed or was
    not reached, what is no leak is no answer.
    """
    names = metrics_of(metric)
    rows = [row for row in rows if not is_guess(row)]
    found = [row for row in rows if kind_of(str(row["metric"])) in names and tested(row)]
    if any(row["status"] in UNFINISHED for row in rows):
        found = [row for row in found if row["verdict"] == LEAK]
    return max(found, key=lambda row: (row["verdict"] == LEAK, row["advantage"])) if found else None


def strongest(rows: Sequence[Row], metric: str) -> Row | None:
    """Find the strongest answer to defended uploads: ``best``; without truth the one of largest value."""
    if metric not in (ANSWERED, AGREEMENT):
        return best(rows, metric)
    found = [row for row in rows if row["metric"] == metric and row["status"] == "ran"]
    return max(found, key=lambda row: row["value"], default=None)


def answered_share(row: Row) -> float:
    """Share of the clients whom the attack of a row answers."""
    return 1 - (row["n_abstained"] or 0) / max(row["n_users"] or 0, 1)


def of_group(row: Row, rows: Sequence[Row], group: str) -> Row | None:
    """Find what the same attack of the same adversary reads of a group of clients or items."""
    metric = f"{row['metric']}/{group}"
    found = (one for one in rows if one["metric"] == metric and all(one[name] == row[name] for name in SAME))
    return next(found, None)


def worst(leaks: Sequence[Leak]) -> Leak | None:
    """Find the kind of which most is read."""
    found = [leak for leak in leaks if leak.row is not None]
    return max(found, key=lambda leak: leak.row["advantage"]) if found else None  # type: ignore[index]


def kinds_of(rows: Sequence[Row]) -> list[str]:
    """List the metrics of what can be read of a victim at all."""
    metrics = {
        kind_of(str(row["metric"])) for row in rows if row["status"] == "ran" and row["verdict"] != OPEN
    }
    kinds = [name for name in LEAKS if metrics & metrics_of(name)] or list(LEAKS)[:1]
    named = "rated_set_auc" not in kinds and any(row["verdict"] == OPEN for row in rows)
    return [*kinds, "rated_set_auc"] if named else kinds


def leak_of(rows: Sequence[Row], metric: str) -> Leak:
    """Find what is read of one kind."""
    row = best(rows, metric)
    # membership is told from outputs, and nothing else is: who reads messages has not failed at it
    asked = (metric in MEMBERSHIP) == any(one["adversary"] == OUTPUTS for one in rows)
    named = metric == "rated_set_auc" and any(one["verdict"] == OPEN for one in rows)
    worst_off = None if row is None else of_group(row, rows, WORST_OFF)
    return Leak(KINDS[metric], row, why_nothing(rows) if asked else UNASKED, worst_off, named)


def leak_cell(leak: Leak) -> str:
    """Put a leak in words: its number, the guess, the interval, the verdict and the attack."""
    if leak.row is None:
        return IN_OPEN if leak.in_open else leak.why if leak.why == UNASKED else f"{NOT_TESTED}\n{leak.why}"
    row = leak.row
    return (
        f"{number(row['value'])} ({number(row['baseline'])})\n"
        f"{interval_of(row)}\n"
        f"{row['verdict']}\n{row['attack']}{of_what(row, ' ({})')}"
    )


def worst_cell(leaks: Sequence[Leak]) -> str:
    """Put the largest advantage in words, and what was not tested."""
    found = worst(leaks)
    if found is None or found.row is None:
        return NOT_TESTED
    words = f"{number(found.row['advantage'], 2)} {found.kind}"
    untested = [one.kind for one in leaks if one.row is None and not one.in_open and one.why != UNASKED]
    return words + (f"\nuntested: {', '.join(untested)}" if untested else "")


def why_nothing(rows: Sequence[Row]) -> str:
    """Say why nothing was read: a failure, else who ran and found nothing, else what the attack on sums says.

    Examples
    --------
    >>> shared = {"status": "not applicable", "verdict": "NOT TESTED"}
    >>> sums = shared | {"attack": "aggregate", "reason": "no sums"}
    >>> why_nothing([sums])
    'no sums'
    >>> why_nothing([sums, sums | {"attack": "grid", "reason": "9 of 9 clients got no answer: noise (9)"}])
    'grid ran and found nothing'
    """
    untested = [row for row in rows if not tested(row) and row["reason"]]
    order = sorted(untested, key=lambda row: (row["status"] != "failed", row["attack"] != "aggregate"))
    if not order:
        return "no attack reads it"
    if order[0]["status"] == "failed":
        return f"failed: {order[0]['reason']}"
    looked = [row for row in untested if LOOKED in row["reason"]]
    return why_silent(looked) if looked else str(order[0]["reason"])
