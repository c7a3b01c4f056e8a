"""All clients of a recording who take several steps of Adam, or the like, between broadcast and upload.

Such rows show themselves (``attacks.closed_form.adaptive_rows``). What is the same for all clients, kind
of optimizer, number of steps and rate, is found by the first few of them whose ratings are told with it:
the rate by the largest entry, or the middle one, and the round number next to it. Then each client is
fitted (``attacks.closed_form.adaptive_fit``), in the first of a few rounds that tells its ratings.

What it assumes: all ratings in every step; moments that start anew in a round; betas as programs have them
unless they are set; no regularisation but for the usual weight decay; ratings as they are, or less what is
declared. It answers nobody where nobody has the lowest and the highest level: ratings less a number, or
divided by one, may be levels then.

What looks like such steps and is none would be fitted for long: fits that tell nothing are counted by the
entries that they step over, and end when there are too many of them for those that tell something.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from jaxtyping import Bool, Float

from attacks.base import Estimates, Reconstruction
from attacks.client_rules.adaptive_rule import ADAPTIVE, AdaptiveSteps
from attacks.client_rules.adaptive_steps import RATE
from attacks.client_rules.differentiable import declared_steps
from attacks.closed_form.adaptive_fit import Fit, Rule, fitted
from attacks.closed_form.adaptive_numbers import Own
from attacks.closed_form.adaptive_ratios import largest, summed
from attacks.closed_form.adaptive_rows import Sent, look_adaptive, sent_of, sizes_of
from attacks.closed_form.answered import Answered
from attacks.closed_form.item_rows import BATCH_BYTES
from victims.transcript.view import UserBatch, View

ALREADY = 0.5  # share of the clients that are answered: nothing else is looked for
# steps, where nobody declares how many: of Adam, of the others, and of Adam at last
TRIED, RARE, MANY = (2, 3, 5, 4), (2, 3, 5), (10,)
FEWEST_FACTORS, MOST = 3, 400  # factors, and ratings of a client that is fitted
ASKED, FEWEST_ASKED, LONGEST_ASKED = 5, 8, 30  # clients that tell the rule, and their ratings
FEW = 2  # of those, for what is rare
ROUNDS = 4  # of a client that are fitted, one after the other
ROUND, ROUGHLY = 0.07, 0.1  # within which a rate is a round number, by the largest or the middle entry
SAME = 1e-4  # relative, rates that a fit does not tell apart
IN_VAIN = 40_000  # steps of entries that may tell nothing
PER_STEP = 100  # entries that cost as much as a step costs beside its own
ONE_STEP = (
    "its rows have entries of one size: a single step of Adam or of signs, which tells the signs of errors "
    "and of the client's factor alone"
)
NOT_FITTED = (
    "its rows look like several steps of Adam or its relatives, and no ratings on the grid that were tried "
    "explain them; declare the number of steps (local_steps) if it is known"
)
OPEN_ENDS = (
    "its ratings may be less a number that nobody told, or a multiple: the lowest level and the highest are "
    "not both seen among the clients that are read"
)


@dataclass
class _Effort:
    """Steps of entries that may still be fitted; a fit that tells ratings pays for as much that does not."""

    left: int = IN_VAIN

    def fitted(self, own: Own, rule: Rule) -> Fit | None:
        """The fit if it tells ratings, and if there is enough left for it."""
        work = rule.n_steps * (PER_STEP + own.rows.size)
        if work > self.left:
            return None
        fit = fitted(own, rule)
        told = fit is not None and fit.told
        self.left += work if told else -work
        return fit if told else None


def read_adaptive(
    view: View, told: Reconstruction, pulls: Sequence[float], rules: tuple[AdaptiveSteps, ...] = ADAPTIVE
) -> list[Answered]:
    """Read all clients of a view, where few are answered otherwise and rows look like steps of Adam.

    Parameters
    ----------
    view : View
    told : Reconstruction
        What is answered otherwise.
    pulls : sequence of float
        Multiples of its factor that each row may hold.
    rules : tuple of AdaptiveSteps
        Which are tried, the likeliest first.

    Returns
    -------
    list of Answered
        None at all where rows do not look so.
    """
    few = len(told.abstained) > ALREADY * view.users.size
    levels = np.array(view.manifest.rating_levels)
    if (
        not few
        or view.manifest.weighting == "include-unrated"
        or view.manifest.factors < FEWEST_FACTORS
        or levels.size < 2
    ):
        return []
    for pull in pulls[::-1]:
        sizes = sizes_of(view, pull)
        if look_adaptive(sizes):
            return _read(view, pull, rules, sizes, nobody=len(told.abstained) == view.users.size)
    return []


def _read(
    view: View,
    pull: float,
    rules: tuple[AdaptiveSteps, ...],
    sizes: Float[np.ndarray, "clients 4"],
    *,
    nobody: bool,
) -> list[Answered]:
    """Answers, or a reason where nobody is answered otherwise, either."""
    one_step = bool(np.median(sizes[:, 3]) < 1)
    found = None if one_step else _rule(view, pull, rules, float(sizes[:, 2].max()))
    if found is None:
        reason = ONE_STEP if one_step else NOT_FITTED
        return [_nothing(batch, reason) for batch in view.batches(BATCH_BYTES)] if nobody else []
    rule, way = found
    levels = np.array(view.manifest.rating_levels)
    out, ends, effort = [], set(), _Effort()
    for batch in view.batches(BATCH_BYTES):
        fits: dict[int, tuple[Sent, Fit]] = {}
        for number in range(min(len(batch.rounds), ROUNDS)):
            for sent in sent_of(view.manifest, batch, number, pull, way):
                if sent.place in fits or len(sent.own.rows) > MOST:
                    continue
                fit = effort.fitted(sent.own, rule)
                if fit is not None:
                    fits[sent.place] = (sent, fit)
                    ends |= {float(fit.ratings.min()), float(fit.ratings.max())}
        out += _answers(batch, fits, float(rule.n_steps))
    if {float(levels[0]), float(levels[-1])} <= ends:
        return out
    return [_silenced(one) for one in out]


def _rule(
    view: View, pull: float, rules: tuple[AdaptiveSteps, ...], largest_entry: float
) -> tuple[Rule, int] | None:
    """What a few clients' ratings are told with, and whether rows are changes, 1, or their opposite."""
    every = [
        sent for batch in view.batches(BATCH_BYTES) for sent in sent_of(view.manifest, batch, 0, pull, 1)
    ]
    every.sort(key=lambda sent: len(sent.own.rows))
    middle = [one for one in every if FEWEST_ASKED <= len(one.own.rows) <= LONGEST_ASKED]
    asked = (middle or every)[:: max(1, len(middle or every) // ASKED)][:ASKED]
    middle_entry = float(np.median([np.median(np.abs(one.own.rows)) for one in every]))
    effort = _Effort()
    for kind, n_steps, way in _tried(rules, declared_steps(view.manifest)):
        optimizer, decay = kind.optimizer, kind.decay
        if optimizer.first:  # some entries are next to the largest
            rates = _rates(largest_entry / largest(optimizer, n_steps), ROUND)
        else:
            rates = _rates(middle_entry / float(summed(optimizer, n_steps, np.ones(1))[0]), ROUGHLY)
        for rate, sent in product(rates, asked if kind == rules[0] else asked[:FEW]):
            own = sent.own._replace(rows=way * sent.own.rows)
            fit = effort.fitted(own, Rule(optimizer, n_steps, rate, decay))
            if fit is not None:
                return Rule(optimizer, n_steps, float(np.exp(fit.constants[RATE])), decay), way
    return None


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


def _rates(about: float, within: float) -> list[float]:
    """Round numbers near what entries say, or of two digits the nearest, and that."""
    unit = 10.0 ** np.floor(np.log10(about))
    ones = np.round(np.arange(1, 11) * unit, 12)
    near = ones[np.abs(ones / about - 1) < within]
    if not near.size:
        near = np.round(np.rint([about / unit * 10]) * unit / 10, 12)
    return [*near.tolist(), *([] if (np.abs(near / about - 1) < SAME).any() else [about])]


def _answers(batch: UserBatch, fits: dict[int, tuple[Sent, Fit]], n_steps: float) -> list[Answered]:
    """What is said of a batch, one part for each round that tells clients."""
    out = []
    rounds = [
        fits[place][0].round if place in fits else batch.rounds[0].round for place in range(batch.users.size)
    ]
    for uploads in batch.rounds:
        here = np.array([one == uploads.round for one in rounds])
        if here.any():
            out.append(_answered(batch, uploads.round, here, fits, n_steps))
    return out


def _answered(
    batch: UserBatch,
    round_: int,
    here: Bool[np.ndarray, " users"],
    fits: dict[int, tuple[Sent, Fit]],
    n_steps: float,
) -> Answered:
    """What one round says of some clients of a batch."""
    uploads = next(one for one in batch.rounds if one.round == round_)
    shape = uploads.gradients.shape[:2]
    places = np.flatnonzero(here)
    value = np.full((places.size, shape[1]), np.nan)
    table = np.full((places.size, 5), np.nan)
    factor = np.full((places.size, uploads.gradients.shape[2]), np.nan)
    reasons = {}
    for number, place in enumerate(places.tolist()):
        if place not in fits:
            reasons[int(batch.users[place])] = NOT_FITTED
            continue
        sent, fit = fits[place]
        value[number, sent.here] = fit.ratings
        table[number] = (0.0, n_steps, 0.0, 0.0, 1.0)
        factor[number] = fit.factor
    kind, index = (np.broadcast_to(one, shape)[places] for one in (uploads.kind, uploads.index))
    users = batch.users[places]
    return Answered(
        Estimates(users, kind, index, value), reasons, table,
        (users, np.full(users.size, round_), factor), np.zeros(users.size, bool), np.zeros(users.size, bool),
    )  # fmt: skip


def _nothing(batch: UserBatch, reason: str) -> Answered:
    """Nobody of a batch is answered."""
    found = _answered(batch, batch.rounds[0].round, np.ones(batch.users.size, bool), {}, np.nan)
    return found._replace(reasons=dict.fromkeys(batch.users.tolist(), reason))


def _silenced(one: Answered) -> Answered:
    """Without answers."""
    value = np.full(one.block.value.shape, np.nan)
    reasons = dict.fromkeys(one.block.users.tolist(), OPEN_ENDS) | one.reasons
    users, rounds, factor = one.factors
    return one._replace(
        block=replace(one.block, value=value),
        reasons=reasons,
        factors=(users, rounds, np.full(factor.shape, np.nan)),
    )
