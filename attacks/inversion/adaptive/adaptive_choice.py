"""Which optimizer, how many steps and what rate, by the first few clients whose ratings are told with them.

The rate is told by the largest entry, or the middle one, and the round number next to it. What looks like
such steps and is none would be fitted for long: fits that tell nothing are counted by the entries that they
step over, and end when there are too many of them for those that tell something.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from attacks.client_rules.adaptive_rule import AdaptiveSteps
from attacks.client_rules.adaptive_steps import RATE
from attacks.client_rules.differentiable import declared_steps
from attacks.closed_form.uploads.item_rows import BATCH_BYTES
from attacks.inversion.adaptive.adaptive_fit import Fit, Rule, fitted
from attacks.inversion.adaptive.adaptive_numbers import Own
from attacks.inversion.adaptive.adaptive_ratios import largest, summed
from attacks.inversion.adaptive.adaptive_rows import sent_of
from victims.transcript.view import View

# steps, where nobody declares how many: of Adam, of the others, and of Adam at last
TRIED, RARE, MANY = (2, 3, 5, 4), (2, 3, 5), (10,)
ASKED, FEWEST_ASKED, LONGEST_ASKED = 5, 8, 30  # clients that tell the rule, and their ratings
FEW = 2  # of those, for what is rare
ROUND, ROUGHLY = 0.07, 0.1  # within which a rate is a round number, by the largest or the middle entry
SAID = 0.3  # within which of these a declared rate is tried
SAME = 1e-4  # relative, rates that a fit does not tell apart
IN_VAIN = 40_000  # steps of entries that may tell nothing
PER_STEP = 100  # entries that cost as much as a step costs beside its own


@dataclass
class Effort:
    """Steps of entries that may still be fitted; a fit that tells ratings pays for as much that does not."""

    left: int = IN_VAIN  # how many

    def fitted(self, own: Own, rule: Rule) -> Fit | None:
        """Fit a client if there is enough left for it; None if it tells no ratings."""
        fit = self._spent(own, rule, open_rate=False)
        return fit if fit is not None and fit.told else None

    def any(self, own: Own, rule: Rule) -> Fit | None:
        """Fit a client with a rate that is about right; None if there is no start, or not enough left."""
        return self._spent(own, rule, open_rate=True)

    def _spent(self, own: Own, rule: Rule, *, open_rate: bool) -> Fit | None:
        work = rule.n_steps * (PER_STEP + own.rows.size)
        if work > self.left:
            return None
        fit = fitted(own, rule, open_rate=open_rate)
        self.left += work if fit is not None and fit.told else -work
        return fit


def rule_of(
    view: View, pull: float, rules: tuple[AdaptiveSteps, ...], largest_entry: float
) -> tuple[AdaptiveSteps, Rule, int] | None:
    """Find what a few clients' ratings are told with."""
    asked, every = asked_of(view, pull)
    middle_entry = float(np.median([np.median(np.abs(own.rows)) for own in every]))
    effort, constants = Effort(), view.manifest.hyperparameters
    said = [constants["client_learning_rate"]] if "client_learning_rate" in constants else []
    for kind, n_steps, way in _tried(rules, declared_steps(view.manifest)):
        rates = rates_of(kind, n_steps, largest_entry, middle_entry)
        rates = [*(rate for rate in said if abs(rate / rates[-1] - 1) < SAID), *rates]
        for rate, own in product(rates, asked if kind == rules[0] else asked[:FEW]):
            fit = effort.fitted(
                own._replace(rows=way * own.rows), Rule(kind.optimizer, n_steps, rate, kind.decay)
            )
            if fit is not None:
                told = float(np.exp(fit.constants[RATE]))
                return kind, Rule(kind.optimizer, n_steps, told, kind.decay), way
    return None


def asked_of(view: View, pull: float) -> tuple[list[Own], list[Own]]:
    """Choose clients that tell the rule, and list all, by their rows in their first round."""
    batches = view.batches(BATCH_BYTES)
    every = [sent.own for batch in batches for sent in sent_of(view.manifest, batch, 0, pull, 1)]
    every.sort(key=lambda own: len(own.rows))
    middle = [own for own in every if FEWEST_ASKED <= len(own.rows) <= LONGEST_ASKED] or every
    return middle[:: max(1, len(middle) // ASKED)][:ASKED], every


def _tried(
    rules: tuple[AdaptiveSteps, ...], declared: int | None
) -> Iterator[tuple[AdaptiveSteps, int, int]]:
    """Kinds, numbers of steps and signs of rows, the likeliest first."""
    said = (declared,) if declared and declared > 1 else ()
    for number, kind in enumerate(rules):
        for n_steps in dict.fromkeys((*said, *(RARE if number else TRIED))):
            yield kind, n_steps, 1
    for n_steps in dict.fromkeys((*said, *RARE)):
        yield rules[0], n_steps, -1
    for n_steps in MANY:
        yield rules[0], n_steps, 1


def rates_of(kind: AdaptiveSteps, n_steps: int, largest_entry: float, middle_entry: float) -> list[float]:
    """List the rates that entries allow: of two moments by the largest, of one by the middle one."""
    if kind.optimizer.first:  # some entries are next to the largest
        return _rates(largest_entry / largest(kind.optimizer, n_steps), ROUND)
    return _rates(middle_entry / float(summed(kind.optimizer, n_steps, np.ones(1))[0]), ROUGHLY)


def _rates(about: float, within: float) -> list[float]:
    """Round numbers near what entries say, or of two digits the nearest, and that."""
    unit = 10.0 ** np.floor(np.log10(about))
    ones = np.round(np.arange(1, 11) * unit, 12)
    near = ones[np.abs(ones / about - 1) < within]
    if not near.size:
        near = np.round(np.rint([about / unit * 10]) * unit / 10, 12)
    return [*near.tolist(), *([] if (np.abs(near / about - 1) < SAME).any() else [about])]
