"""Which optimizer, how many steps and what rate, where the rate may be any number.

Entries tell the rate within a tenth, or where the first moment is kept nearly to its digits, and ratings are
decoded rightly only with a rate that is right within some 1e-4. So the rate is fitted between decodings, too:
what most of the better clients then say of it is nearer, and is where the next fits begin. All optimizers,
numbers of steps and ways round are fitted to a few clients once; those that leave least are gone on with, the
best one first, until a client's ratings are told.

What it assumes: clients of one recording share the rate. A rate that is found says nothing yet: it counts
where the ratings of clients are told with it to their last digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from attacks.client_rules.adaptive_rule import ADAPTIVE, AdaptiveSteps
from attacks.client_rules.adaptive_steps import RATE, RMSPROP
from attacks.closed_form.adaptive.adaptive_choice import MANY, TRIED, Effort, asked_of, rates_of
from attacks.closed_form.adaptive.adaptive_fit import Fit, Rule, shrunk_of
from attacks.closed_form.adaptive.adaptive_numbers import Own
from victims.transcript.view import View

FIRST, GONE_ON, TURNS = 2, 5, 5  # clients at first, choices that are gone on with, and how often
KEPT_LESS = AdaptiveSteps("rmsprop", RMSPROP._replace(second=0.9, taken=0.1))  # as Keras has it by default
KINDS = (*ADAPTIVE, KEPT_LESS)
BEGINS, GOES_ON = 80_000, 60_000  # steps of entries that may tell nothing


class _Choice(NamedTuple):
    """A rule, whether rows are changes or their opposite, and the share of the rows that it leaves."""

    left: float
    kind: AdaptiveSteps
    rule: Rule
    way: int


def search(view: View, pull: float) -> tuple[AdaptiveSteps, Rule, int] | None:
    """Find what a few clients' ratings are told with."""
    asked, every = asked_of(view, pull)
    some, effort = asked[len(asked) // 2 :][:FIRST], Effort(BEGINS)
    choices = []
    for kind, steps, way in _every():
        for rate in _rates(kind, steps, way, every):
            new, told = _turn(effort, some, kind, Rule(kind.optimizer, steps, rate, kind.decay), way)
            if told:
                return kind, new.rule, way
            choices.append(new)
    effort = Effort(GOES_ON)
    for one in sorted(choices, key=lambda choice: choice.left)[:GONE_ON]:
        new = one
        for _ in range(TURNS):
            new, told = _turn(effort, asked, new.kind, new.rule, new.way)
            if told:
                return new.kind, new.rule, new.way
    return None


def _every() -> Iterator[tuple[AdaptiveSteps, int, int]]:
    """Numbers of steps, optimizers and signs of rows, the likeliest first."""
    for steps, kind in product(TRIED, KINDS):
        yield from ((kind, steps, way) for way in (1, -1))
    yield from ((ADAPTIVE[0], steps, 1) for steps in MANY)


def _rates(kind: AdaptiveSteps, steps: int, way: int, every: list[Own]) -> list[float]:
    """Rates that entries allow, less what decays beside the steps."""

    def of(shrunk: float) -> list[float]:
        sizes = [np.abs(way * own.rows + shrunk * own.factors) for own in every]
        middle = float(np.median([np.median(one) for one in sizes]))
        return rates_of(kind, steps, max(float(one.max()) for one in sizes), middle)

    about = of(0.0)
    return of(shrunk_of(Rule(kind.optimizer, steps, about[-1], kind.decay))) if kind.decay else about


def _turn(
    effort: Effort, asked: list[Own], kind: AdaptiveSteps, rule: Rule, way: int
) -> tuple[_Choice, bool]:
    """Fit clients, with the rate open; the rate of the better half, or of those whose ratings are told."""
    turned = (own._replace(rows=way * own.rows) for own in asked)
    fits: list[Fit] = [fit for own in turned if (fit := effort.any(own, rule)) is not None]
    if not fits:
        return _Choice(np.inf, kind, rule, way), False
    told = [fit for fit in fits if fit.told]
    best = told or sorted(fits, key=lambda fit: fit.left)[: (len(fits) + 1) // 2]
    rate = float(np.exp(np.median([fit.constants[RATE] for fit in best])))
    left = min(fit.left for fit in fits)  # of a client that no start comes near any rule leaves much
    return _Choice(left, kind, rule._replace(rate=rate), way), bool(told)
