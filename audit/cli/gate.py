"""Conditions on which a build fails: what ``--fail-on`` understands, and what its exit code means.

    leak                                     any verdict LEAK, and OPEN: uploads name the rated items
    refuted                                  a claimed epsilon is refuted (``claims``)
    METRIC=X                                 the advantage of METRIC is above X (the estimate)
    METRIC>X  METRIC.FIELD>X  FIELD>X        FIELD of METRIC, or of any metric; >, >=, < or <=
    ...@adversary=server,attack=spectral     only rows with these values

FIELD is one of ``FIELDS``: ``advantage`` (the default) tests the estimate, ``advantage_low`` the lower end of
its interval. A metric without an advantage (a time, an error) is tested by its ``value``.

A condition is crossed if one row crosses it. Where none does, everything that it speaks of must have been
measured: an attack that failed, or an adversary whom no attack answered, is no pass. Nor is an answer about
which items were rated that is worse than the guess: it took other items for those. Guesses neither cross a
bar nor pass one.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from audit.experiments.outputs import METRICS as MEMBERSHIP
from audit.experiments.round_cost import METRICS
from audit.experiments.rows import ANSWERED, PROBABILITY
from audit.registry import is_guess
from audit.scoring.communities import PRECISION
from audit.scoring.groups import GROUP_METRICS
from audit.scoring.inference import INFERRED
from audit.scoring.metrics import DIFFERENCES, FACTOR_METRICS, RATED_SET_METRICS, RATING_METRICS, SIZES
from audit.scoring.pseudonyms import CLAIMED, SHARE
from audit.scoring.verdicts import (
    BOUND,
    INCONCLUSIVE,
    LEAK,
    NO_EVIDENCE,
    NOT_TESTED,
    OPEN,
    RATED_SET,
    REFUTED,
)
from audit.shell.exits import Exit
from reports.verdicts import UNFINISHED, why_silent
from victims.common.errors import InputError
from victims.evaluation.ranking import Quality

FIELDS = ("advantage", "advantage_low", "advantage_high", "value", "ci_low", "ci_high", "p_value")
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.gt,
}
RESTRICTED = ("victim", "update", "weighting", "data", "defense", "adversary", "attack", "scenario")
NAMED = 5  # metrics of one line
PLACE = ("victim", "update", "weighting", "data", "defense", "adversary", "rounds")
WORDS = {"leak": ("", LEAK), "refuted": (BOUND, REFUTED)}  # metric, and its verdict
SCORED = (
    *RATING_METRICS,
    "attribute_accuracy",
    "attribute_group_accuracy",
    "users_fully_recovered",
    *FACTOR_METRICS,
    CLAIMED,
    DIFFERENCES,
    SIZES,
    SHARE,
    *MEMBERSHIP,
    PRECISION,
)
# with an advantage, too
SUFFIXED = re.compile(rf"attribute_group_accuracy/\d+|({'|'.join(INFERRED)})/.+/(ratings|lists|factors)")
OF_ATTACKS = ("solver_success_rate", "seconds_per_user", "share_of_rows_read", *GROUP_METRICS)
OF_CLAIMED = (ANSWERED, PROBABILITY)
OF_QUALITY = (*("ndcg_at_10" if name == "ndcg" else name for name in Quality._fields), "rmse")
OF_CLAIMS = (BOUND, "mse")
OF_COST = METRICS


class Vocabulary(NamedTuple):
    """What conditions of a command may name.

    words: verdicts; values: metrics that have no advantage, beside ``SCORED``, which have one; columns: known
    values of the columns that a condition may be restricted to, checked before anything runs.
    """

    words: tuple[str, ...] = ("leak",)
    values: tuple[str, ...] = ()
    columns: Mapping[str, Collection[str]] = {}


@dataclass(frozen=True)
class Condition:
    """One ``--fail-on``."""

    text: str  # as given
    metric: str  # empty for any metric
    field: str  # one of ``FIELDS``, or "verdict"
    operator: str
    limit: float | str  # A number, or a verdict
    only: dict[str, str]  # column -> value of the rows that it speaks of

    def speaks_of(self, row: Mapping[str, Any]) -> bool:
        """Whether the row has the values that the condition is restricted to."""
        return all(_value(row, column) == value for column, value in self.only.items())

    def is_about(self, row: Mapping[str, Any]) -> bool:
        """Whether the row holds what is tested: it ran, is more than a guess, and its field is there."""
        if row["status"] != "ran" or not self.speaks_of(row) or self.metric not in ("", row["metric"]):
            return False
        if is_guess(row.get("attack")):
            return False
        found = row[self.field]
        if self.field == "verdict":
            if row["metric"] == ANSWERED and found == INCONCLUSIVE:
                return False  # without truth, an answer that shuffled uploads get as well measures nothing
            return bool(self.metric) or found in (LEAK, NO_EVIDENCE, INCONCLUSIVE, OPEN)
        return found is not None and math.isfinite(found)

    def crossed_by(self, row: Mapping[str, Any]) -> bool:
        """Whether the row crosses the bar."""
        if not self.is_about(row):
            return False
        if isinstance(self.limit, str):
            return row["verdict"] == self.limit or (self.limit == LEAK and row["verdict"] == OPEN)
        return OPERATORS[self.operator](row[self.field], self.limit)


class Outcome(NamedTuple):
    """The exit code of all conditions together, and a line for each thing that led to it."""

    code: Exit
    lines: list[str]


def parse(texts: Iterable[str], vocabulary: Vocabulary | None = None) -> list[Condition]:
    """Read conditions as given on the command line.

    Examples
    --------
    >>> condition, = parse(["rated_rating_accuracy.advantage_low>0.1@adversary=server"])
    >>> condition.metric, condition.field, condition.operator, condition.limit, condition.only
    ('rated_rating_accuracy', 'advantage_low', '>', 0.1, {'adversary': 'server'})
    """
    return [_parse(text, vocabulary or Vocabulary()) for text in texts]


def check(conditions: Sequence[Condition], rows: Sequence[Mapping[str, Any]]) -> Outcome:
    """Hold result rows against conditions: crossed if any is, else not measured if any was not, else done."""
    crossed, unmeasured = [], []
    for condition in conditions:
        across = [row for row in rows if condition.crossed_by(row)]
        crossed += [f"--fail-on {condition.text} is crossed: {words}" for words in _found(condition, across)]
        if not across:
            missing = _not_measured(condition, rows)
            unmeasured += [f"--fail-on {condition.text} was not measured: {words}" for words in missing]
    if crossed:
        return Outcome(Exit.CROSSED, [*crossed, *unmeasured])
    return Outcome(Exit.UNMEASURED if unmeasured else Exit.DONE, unmeasured)


def without_open(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Leave out what says of rated items that uploads themselves name."""
    named = {_place(row) for row in rows if row["verdict"] == OPEN}
    return [
        row
        for row in rows
        if _place(row) not in named or row["metric"] not in (RATED_SET, *RATED_SET_METRICS)
    ]


def _place(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row.get(name)) for name in PLACE)


def _parse(text: str, vocabulary: Vocabulary) -> Condition:
    test, _, restriction = text.partition("@")
    only = _restriction(text, restriction, vocabulary.columns) if "@" in text else {}
    test = test.strip()
    if test in vocabulary.words:
        metric, found = WORDS[test]
        return Condition(text, metric, "verdict", "=", found, only)
    match = re.fullmatch(r"([\w./]+?)\s*(>=|<=|>|<|=)\s*(\S+)", test)
    if not match:
        words = " or ".join(vocabulary.words)
        raise InputError(f"--fail-on must be {words}, METRIC=NUMBER or METRIC.FIELD>NUMBER, got {text!r}")
    target, sign, number = match.groups()
    metric, field = _target(text, target, vocabulary)
    try:
        limit = float(number)
    except ValueError:
        limit = math.nan
    if not math.isfinite(limit):
        raise InputError(f"--fail-on must compare with a finite number, got {number!r} in {text!r}")
    return Condition(text, metric, field, sign, limit, only)


def _target(text: str, target: str, vocabulary: Vocabulary) -> tuple[str, str]:
    """Metric and field."""
    if target in FIELDS:
        return "", target
    metric, _, field = target.rpartition(".")
    if field not in FIELDS:
        metric, field = target, ""
    scored = _scored(metric)
    if not scored and metric not in vocabulary.values:
        known = [*SCORED, *vocabulary.values]
        raise InputError(f"--fail-on {text!r} names no metric of this command: {_nearest(metric, known)}")
    if not scored and field in ("", *(name for name in FIELDS if name.startswith("advantage"))):
        raise InputError(f"--fail-on {text!r}: {metric} has no advantage; test {metric}.value>NUMBER")
    return metric, field or "advantage"


def _restriction(text: str, words: str, columns: Mapping[str, Collection[str]]) -> dict[str, str]:
    only = {}
    for pair in words.split(","):
        column, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or column not in RESTRICTED:
            known = _nearest(column, RESTRICTED)
            raise InputError(f"--fail-on {text!r} must be restricted as @adversary=server: {known}")
        known_values = columns.get(column)
        if known_values is not None and value not in known_values:
            near = _nearest(value, known_values)
            raise InputError(f"--fail-on {text!r} speaks of no row of this run: {column} is {near}")
        only[column] = value
    return only


def _nearest(name: str, known: Collection[str]) -> str:
    """What may have been meant, or all that there is."""
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}, not {name!r}?" if near else f"one of {', '.join(known)}, not {name!r}"


def _value(row: Mapping[str, Any], column: str) -> str:
    if column == "scenario":
        return f"{row.get('update')}/{row.get('weighting')}"
    return str(row.get(column, ""))


def _where(row: Mapping[str, Any]) -> str:
    words = [f"{row.get('update')}/{row.get('weighting')}"]
    words += [f"{name} {row[name]}" for name in ("defense", "adversary") if isinstance(row.get(name), str)]
    return ", ".join(words)


def _found(condition: Condition, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each attack and place the metrics that cross, with their numbers."""
    places: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        places.setdefault(f"{row.get('attack') or 'uploads'} on {_where(row)}", []).append(row)
    return [f"{place}: {_numbers(condition, found)}" for place, found in places.items()]


def _numbers(condition: Condition, rows: Sequence[Mapping[str, Any]]) -> str:
    shown, more = rows[:NAMED], len(rows) - NAMED
    rest = f" and {more} more" if more > 0 else ""
    if condition.field == "verdict":
        names = ", ".join(row["metric"] for row in shown) + rest
        return f"{names} {'is' if len(rows) == 1 else 'are'} {rows[0]['verdict']}"
    words = [f"{row['metric']} has {condition.field} {row[condition.field]:.4g}" for row in shown]
    return ", ".join(words) + rest


def _not_measured(condition: Condition, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Attacks that failed or were not reached, and places where nothing answers the condition."""
    mine = [row for row in rows if condition.speaks_of(row)]
    if not mine:
        return ["no row of the results is what it speaks of"]
    out = [
        f"{row.get('attack')} {'failed' if row['status'] == 'failed' else 'was not reached'} on "
        f"{_where(row)} ({row['reason']})"
        for row in mine
        if row["status"] in UNFINISHED
    ]
    places: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in mine:
        if row["status"] not in UNFINISHED and _is_evidence(condition, row):
            places.setdefault(_place(row), []).append(row)
    if not (places or out):
        out.append("nothing but guesses ran")
    for found in places.values():
        if not any(_answers(condition, row) for row in found):
            why = why_silent(found)
            where = _where(found[0]) + (f" ({why})" if why else "")
            out.append(
                f"no attack answered anything that settles it on {where}; @adversary=NAME restricts it"
            )
    return list(dict.fromkeys(out))


def _is_evidence(condition: Condition, row: Mapping[str, Any]) -> bool:
    """Rows that could answer: of attacks that are more than guesses, or of the metric itself."""
    own = condition.metric and not _scored(condition.metric)
    if own or row["metric"] == BOUND:  # of a claim, which no other condition speaks of
        return row["metric"] == condition.metric
    return isinstance(row.get("attack"), str) and not is_guess(row["attack"])


def _scored(metric: str) -> bool:
    return metric in SCORED or SUFFIXED.fullmatch(metric) is not None


def _answers(condition: Condition, row: Mapping[str, Any]) -> bool:
    return condition.is_about(row) and row["verdict"] != NOT_TESTED and not _upside_down(row)


def _upside_down(row: Mapping[str, Any]) -> bool:
    """Whether sets of rated items are told worse than by the guess: others than those were taken for them."""
    return row["metric"] in RATED_SET_METRICS and row["verdict"] == INCONCLUSIVE and row["advantage_high"] < 0
