"""Result rows in words: numbers, verdicts and reasons.

Works on plain mappings with the columns of ``results.json``. An accuracy never appears without its baseline
and its interval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

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
ANSWERED = "clients_answered"  # where there is no truth
LEAK, NOT_TESTED, INCONCLUSIVE = "LEAK", "NOT TESTED", "INCONCLUSIVE"
NOT_NEEDED = "not needed"  # status of an attack that had nothing left to find
UNFINISHED = ("failed", "not reached")  # which might have found more
LOOKED = " clients got no answer"  # in the reason of an attack that applies and abstained
QUALITY, ERROR, SENT = (
    "ndcg_at_10",
    "rmse",
    "bytes_sent_mean",
)  # of a recommender, and what a mean client sends


def tested(row: Row) -> bool:
    """Tell whether a row holds a number that an attack answered for."""
    return verdict_of(row) != NOT_TESTED and number(row["advantage"]) != "-"


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
    """Say what a number that stands for ratings is about, where that is not a client's ratings.

    Examples
    --------
    >>> of_what({"metric": DIFFERENCES}), of_what({"metric": "rated_set_auc"})
    (', differences', '')
    """
    return words.format(OF_WHAT[row["metric"]]) if row["metric"] in OF_WHAT else ""


def verdict_of(row: Row) -> str:
    """Say a row's verdict; NOT TESTED where the attack did not run, nothing of a guess.

    Examples
    --------
    >>> verdict_of({"status": "failed", "verdict": ""}), verdict_of({"status": "ran", "verdict": "LEAK"})
    ('NOT TESTED', 'LEAK')
    """
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


def why_nothing(rows: Sequence[Row]) -> str:
    """Say which attacks looked in vain, or else the reason that most families of attacks have.

    Examples
    --------
    >>> silent = {"attack": "grid", "reason": "9 of 9 clients got no answer: too few rows (9)"}
    >>> idle = {"attack": "aggregate", "reason": "no sums"}
    >>> why_nothing([idle, silent])
    'grid looked in vain'
    >>> why_nothing([idle])
    'no sums'
    >>> few = {"attack": "undeclared", "n_users": 22, "n_abstained": 20}
    >>> why_nothing([silent, few | {"reason": "20 of 22 clients got no answer: too few rows (20)"}])
    'undeclared answered 2 of 22 clients, grid looked in vain'
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
        said.append(f"{names} looked in vain")
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
    """Group rows by what they have in some columns, in the order in which that comes first.

    Examples
    --------
    >>> list(grouped([{"a": 2}, {"a": 1}, {"a": 2}], "a"))
    [2, 1]
    """
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
    """Say what the names of an attack's variants begin with.

    Examples
    --------
    >>> family("root-lm"), family("grid")
    ('root', 'grid')
    """
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
