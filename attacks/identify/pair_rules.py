"""Which steps on a pairwise loss (BPR) explain the rows: how many, and which negatives belong to a positive.

Labels are the signs of the rows (``attacks.inversion.pairs``). A pair pulls as much as it pushes, so that a
client's rows add up to nothing but weight decay, after any number of steps: rows that do not are no pairs,
and nothing is fitted. Rows of one step are parallel, those of several are not. Of what that leaves, factor
and constants are fitted to a few small clients, one hypothesis after the other. A client of n rows in one
step leaves n + K - 2 equations to two unknowns, so that rows of another loss are explained by few of them
alone: five rows are asked for. A number of steps or pairs that explains as many clients is named beside it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.client_rules.paired_labels import OPEN, RATE, PairedLabels
from attacks.closed_form.uploads.common_scale import common
from attacks.closed_form.uploads.readings import Rows
from attacks.closed_form.uploads.reduction import across_direction, unit_vectors
from attacks.identify.local_rules import FEWEST, MOST, LocalFit
from attacks.inversion.answers import Found
from attacks.inversion.guess import Guess
from attacks.inversion.pairs import Labelled, explained, labelled
from attacks.inversion.search import allowed_of
from victims.transcript.view import View

ASKED = 6  # clients that hypotheses are fitted to
SOON = 2  # of them, that drop a hypothesis which explains none
LARGEST = 128  # rows of those: fits to all pairs grow with their square
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
    """Steps on all pairs of a positive and a negative that explain most of a few clients."""
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
    """Some clients of the least size that has enough, else most; None where rows are of no pairs."""
    parts, able, balanced = [], 0, 0
    for part in labelled(view, PairedLabels(negatives), Found(view), 1):
        pairs = part.able & _balanced(part.rows, decayed=True)
        able, balanced = able + int(part.able.sum()), balanced + int(pairs.sum())
        if pairs.any() and part.rows.item.shape[1] <= LARGEST:
            parts.append(part.only(np.flatnonzero(pairs)[:ASKED]))
    if not parts or balanced < max(FEWEST, MOST * able):
        return None
    return max(parts, key=lambda one: len(one.users))


def _balanced(rows: Rows, *, decayed: bool) -> Bool[np.ndarray, " clients"]:
    """Whose rows add up to nothing, or to a multiple of what their items' factors do, up to their digits."""
    left = rows.rows.sum(axis=1)
    if decayed:
        along, _ = unit_vectors((rows.factors * rows.item[..., None]).sum(axis=1))
        left = left - (left * along).sum(axis=1, keepdims=True) * along
    size = np.linalg.norm(rows.rows, axis=(1, 2)) * np.sqrt(rows.item.sum(axis=1))
    return np.asarray(np.linalg.norm(left, axis=1) <= allowed_of(rows) * size)


def _best(samples: dict[int, Labelled], view: View) -> list[_Tried]:
    """The first hypothesis, with as few open constants as may be, that explains most; and its neighbours
    that explain as many: another number of steps, other pairs. Nothing where none does.
    """
    for number in range(len(OPEN)):
        for negatives, few in samples.items():
            values = PairedLabels(negatives).families(view.manifest)[number].values
            for at, value in enumerate(values):
                if not _may_be(few.rows, number, value):
                    continue
                one = _tried(view, few, negatives, number, value)
                if not one.enough:
                    continue
                beside = [(negatives, more) for more in values[at + 1 : at + 2]]
                beside += [(other, value) for other in samples if other != negatives]
                rivals = [_tried(view, samples[other], other, number, steps) for other, steps in beside]
                return [one, *(rival for rival in rivals if rival.enough and rival.clients >= one.clients)]
    return []


def _may_be(rows: Rows, number: int, steps: float) -> bool:
    """Whether sums and directions of rows allow so many steps, with or without weight decay."""
    decays = np.mean(_balanced(rows, decayed=False)) < MOST
    if decays != (OPEN[number][1] != ()):
        return False
    one_step = np.mean(across_direction(rows.rows)[1] <= allowed_of(rows)) >= MOST
    return bool(decays or one_step == (steps == 1))


def _tried(view: View, few: Labelled, negatives: int, number: int, value: float) -> _Tried:
    """One hypothesis."""
    rule = PairedLabels(negatives)
    guess = Guess(rule.families(view.manifest)[number], value)
    soon = few.only(np.arange(min(SOON, len(few.users))))
    if len(few.users) > SOON and not explained(rule, guess, soon).good.any():
        return _Tried(negatives, int(value), 0, len(few.users), np.zeros(0), np.zeros(0))
    fit = explained(rule, guess, few)
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
