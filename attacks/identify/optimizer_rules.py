"""Which optimizer moved clients' copies: several steps of Adam, AdamW, RMSprop or Adagrad over all ratings.

Rows of such steps have entries nearly of one size (``attacks.inversion.adaptive.adaptive_rows``): others
are not looked at any further. A few clients tell optimizer, number of steps and rate by their ratings
(``attacks.inversion.adaptive.adaptive_choice``), and some of a few more have to be explained to their last
digits, K + n unknown numbers and the constants by n K: of others the fit finds no start, and no rule that is
not so does that to one. The other optimizers, and a step more or fewer, are then tried
on one of these: what explains it as well is named beside it.

One step is that of all four: m / sqrt(s) is a gradient over its own size, so that

    Adam, AdamW without decay, Adagrad: eta g / (|g| + eps),   RMSprop: 10 eta g / (|g| + 10 eps),

one function of two numbers that nobody told. Signs of a gradient are it with eps = 0. No rule is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from attacks.client_rules.adaptive_rule import ADAPTIVE, AdaptiveSteps
from attacks.client_rules.adaptive_steps import RATE
from attacks.closed_form.uploads.item_rows import BATCH_BYTES
from attacks.identify.local_rules import FEWEST, LocalFit
from attacks.inversion.adaptive.adaptive_choice import Effort, rates_of, rule_of
from attacks.inversion.adaptive.adaptive_fit import Rule
from attacks.inversion.adaptive.adaptive_numbers import Own
from attacks.inversion.adaptive.adaptive_recording import FEWEST_FACTORS
from attacks.inversion.adaptive.adaptive_rows import look_adaptive, sent_of, sizes_of
from victims.transcript.view import View

ASKED, LARGEST = 8, 100  # clients that are fitted, and their ratings
SOME = 0.25  # of them, that are told: fits of others do not begin near enough
SQUARED: dict[str, Any] = {"loss": "squared", "link": "identity", "order": "batch", "batch_size": "all"}
ONCE = (
    "rule adam, adamw, rmsprop, adagrad or signs of a gradient: one step of each gives the same rows, with "
    "another rate and epsilon"
)


def optimizer_fit(view: View, pull: float) -> LocalFit | None:
    """Steps of Adam or a relative that explain some clients to their last digits."""
    if view.manifest.factors < FEWEST_FACTORS or len(view.manifest.rating_levels) < 2:
        return None
    sizes = sizes_of(view, pull)
    if not look_adaptive(sizes):
        return None
    if np.median(sizes[:, 3]) < 1:
        return LocalFit({}, {}, len(sizes), view.users.size, (ONCE,))
    largest_entry = float(sizes[:, 2].max())
    found = rule_of(view, pull, ADAPTIVE, largest_entry)
    if found is None:
        return None
    kind, rule, way = found
    asked = _asked(view, pull, way)
    fits = [Effort().fitted(own, rule) for own in asked]
    told = [own for own, fit in zip(asked, fits, strict=True) if fit is not None]
    if len(told) < max(FEWEST, SOME * len(asked)):
        return None
    keys: dict[str, Any] = SQUARED | {"moves_items": True}
    rivals = list(_rivals(told[-1], kind, rule, largest_entry))
    undecided = []
    for key, own, others in (
        ("rule", kind.name, [one.name for one, _ in rivals]),
        ("local_steps", rule.n_steps, [steps for _, steps in rivals]),
    ):
        values = list(dict.fromkeys((own, *others)))
        if len(values) > 1:
            undecided.append(f"{key} {' or '.join(map(str, values))}")
        else:
            keys[key] = own
    rate = float(np.median([np.exp(fit.constants[RATE]) for fit in fits if fit is not None]))
    constants = {} if rivals else {"client_learning_rate": rate}
    return LocalFit(keys, constants, len(told), len(asked), tuple(undecided))


def _asked(view: View, pull: float, way: int) -> list[Own]:
    """Some clients' rows in their first round, those with most ratings that are fitted soon."""
    every = [
        sent.own
        for batch in view.batches(BATCH_BYTES)
        for sent in sent_of(view.manifest, batch, 0, pull, way)
    ]
    return sorted((own for own in every if len(own.rows) <= LARGEST), key=lambda own: -len(own.rows))[:ASKED]


def _rivals(
    told: Own, kind: AdaptiveSteps, rule: Rule, largest_entry: float
) -> Iterator[tuple[AdaptiveSteps, int]]:
    """Other optimizers, and numbers of steps beside that, that explain a client as well."""
    middle_entry = float(np.median(np.abs(told.rows)))
    beside = [(kind, steps) for steps in (rule.n_steps - 1, rule.n_steps + 1) if steps > 1]
    for other, steps in (*beside, *((one, rule.n_steps) for one in ADAPTIVE if one != kind)):
        rates = rates_of(other, steps, largest_entry, middle_entry)
        rules = [Rule(other.optimizer, steps, rate, other.decay) for rate in rates]
        fits = (Effort().any(told, one) for one in rules)
        if any(fit is not None and fit.told for fit in fits):
            yield other, steps
