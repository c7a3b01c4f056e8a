"""Which steps on a pairwise loss (BPR) explain the rows: how many, and which negatives belong to a positive.

Labels are the signs of the rows (``attacks.inversion.pairs``); factor and constants are fitted to a few
clients, one hypothesis after the other. A client of n rows in one step leaves n + K - 2 equations to two
unknowns, so that rows of another loss are explained by few of them alone: five rows are asked for. A number
of steps or pairs that explains as many clients is named beside it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attacks.client_rules.paired_labels import OPEN, RATE, PairedLabels
from attacks.closed_form.uploads.common_scale import common
from attacks.identify.local_rules import FEWEST, MOST, LocalFit
from attacks.inversion.answers import Found
from attacks.inversion.guess import Guess
from attacks.inversion.pairs import Labelled, explained, labelled
from victims.transcript.view import View

ASKED = 6  # clients that hypotheses are fitted to
NEGATIVES = (0, 1)  # of each positive: all, or its own
WORDS = {0: "all", 1: 1}  # what ``negatives`` says


class _Tried(NamedTuple):
    """A hypothesis, whom of how many it explains, their rates and numbers of pairs."""

    negatives: int
    steps: int
    clients: int
    looked_at: int
    rate: Float[np.ndarray, " clients"]
    pairs: Float[np.ndarray, " clients"]

    @property
    def enough(self) -> bool:
        """Whether it explains most."""
        return self.clients >= max(FEWEST, MOST * self.looked_at)


def pairs_fit(view: View) -> LocalFit | None:
    """Steps on all pairs of a positive and a negative that explain most of a few clients.

    Parameters
    ----------
    view : View
        Of clients that are looked at, with nothing declared but what rows are.

    Returns
    -------
    LocalFit or None
        None where ratings have several levels, or no such steps explain most clients.
    """
    if len(view.manifest.rating_levels) != 1:
        return None
    samples = {negatives: _sample(view, negatives) for negatives in NEGATIVES}
    best = _best({negatives: few for negatives, few in samples.items() if few is not None}, view)
    if not best:
        return None
    told: dict[str, Any] = {"rule": "sgd", "loss": "bpr", "order": "batch", "batch_size": "all"}
    undecided = []
    of_each = list(dict.fromkeys(WORDS[one.negatives] for one in best))
    steps = sorted({one.steps for one in best})
    for key, values in (("negatives", of_each), ("local_steps", steps)):
        if len(values) == 1:
            told[key] = values[0]
        else:
            undecided.append(f"{key} {' or '.join(map(str, values))}")
    constants: dict[str, float] = {}
    if len(best) == 1:
        if steps[0] > 1:
            told["moves_items"] = True
        reduction, constants, either = _rate(best[0])
        told, undecided = told | reduction, undecided + either
    return LocalFit(told, constants, best[0].clients, best[0].looked_at, tuple(undecided))


def _sample(view: View, negatives: int) -> Labelled | None:
    """Some clients of the size that has most of them; None where nobody has rows of both labels."""
    parts = [part for part in labelled(view, PairedLabels(negatives), Found(view), 1) if part.able.any()]
    if not parts:
        return None
    part = max(parts, key=lambda one: int(one.able.sum()))
    return part.only(np.flatnonzero(part.able)[:ASKED])


def _best(samples: dict[int, Labelled], view: View) -> list[_Tried]:
    """The first hypothesis, with as few open constants as may be, that explains most; and its neighbours
    that explain as many: another number of steps, other pairs. Nothing where none does."""
    for number in range(len(OPEN)):
        for negatives, few in samples.items():
            values = PairedLabels(negatives).families(view.manifest)[number].values
            for at, value in enumerate(values):
                one = _tried(view, few, negatives, number, value)
                if not one.enough:
                    continue
                beside = [(negatives, more) for more in values[at + 1 : at + 2]]
                beside += [(other, value) for other in samples if other != negatives]
                rivals = [_tried(view, samples[other], other, number, steps) for other, steps in beside]
                return [one, *(rival for rival in rivals if rival.enough and rival.clients >= one.clients)]
    return []


def _tried(view: View, few: Labelled, negatives: int, number: int, value: float) -> _Tried:
    """One hypothesis."""
    rule = PairedLabels(negatives)
    fit = explained(rule, Guess(rule.families(view.manifest)[number], value), few)
    rate = np.exp(fit.constants[fit.good, RATE])
    count, looked_at = int(fit.good.sum()), len(fit.good)
    pairs = _pairs(few, negatives)[fit.good].astype(float)
    return _Tried(negatives, int(value), count, looked_at, rate, pairs)


def _pairs(part: Labelled, negatives: int) -> Int[np.ndarray, " clients"]:
    """How many pairs each client has."""
    first = part.first.sum(axis=1)
    other = part.rows.item.sum(axis=1) - first
    return np.asarray(np.minimum(first, other) if negatives else first * other)


def _rate(best: _Tried) -> tuple[dict[str, Any], dict[str, float], list[str]]:
    """Whether rates are those of a sum or of a mean over pairs, and the rate where several steps tell it."""
    agreeing = {
        "sum": common(best.rate),
        "mean": common(best.rate * best.pairs),
    }
    most = max(share for _, share in agreeing.values())
    named = [name for name, (_, share) in agreeing.items() if share == most >= MOST]
    if not named:
        return {}, {}, []
    # of one step, what rows are multiplied by is in it
    constants = {"client_learning_rate": agreeing[named[0]][0]} if best.steps > 1 else {}
    if len(named) == 1:
        return {"reduction": named[0]}, constants, []
    return {}, {}, ["reduction sum or mean: all clients that tell it have as many pairs"]
