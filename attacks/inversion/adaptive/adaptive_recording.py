"""All clients of a recording who take several steps of Adam, or the like, between broadcast and upload.

Such rows show themselves (``attacks.inversion.adaptive.adaptive_rows``). What is the same for all clients,
kind of optimizer, number of steps and rate, is found by the first few of them whose ratings are told with it
(``attacks.inversion.adaptive.adaptive_choice``). Then each client is fitted
(``attacks.inversion.adaptive.adaptive_fit``), in the first of a few rounds that tells its ratings.

What it assumes: all ratings in every step; moments that start anew in a round; betas as programs have them
unless they are set; no regularisation but for the usual weight decay; ratings as they are, or less what is
declared. It answers nobody where nobody has the lowest and the highest level: ratings less a number, or
divided by one, may be levels then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float

from attacks.base import Estimates, Reconstruction
from attacks.client_rules.adaptive_rule import ADAPTIVE, AdaptiveSteps
from attacks.closed_form.uploads.answered import Answered
from attacks.closed_form.uploads.item_rows import BATCH_BYTES
from attacks.inversion.adaptive.adaptive_choice import Effort, rule_of
from attacks.inversion.adaptive.adaptive_fit import Fit
from attacks.inversion.adaptive.adaptive_rows import Sent, look_adaptive, sent_of, sizes_of
from victims.transcript.view import UserBatch, View

ALREADY = 0.5  # share of the clients that are answered: nothing else is looked for
FEWEST_FACTORS, MOST = 3, 400  # factors, and ratings of a client that is fitted
ROUNDS = 4  # of a client that are fitted, one after the other
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


def read_adaptive(
    view: View, told: Reconstruction, pulls: Sequence[float], rules: tuple[AdaptiveSteps, ...] = ADAPTIVE
) -> list[Answered]:
    """Read all clients of a view, where few are answered otherwise and rows look like steps of Adam."""
    few = len(told.abstained) > ALREADY * view.users.size
    levels = np.array(view.manifest.rating_levels)
    if (
        not few
        or view.manifest.weighting == "include-unrated"
        or view.manifest.factors < FEWEST_FACTORS
        or levels.size < 2
    ):
        return []
    # what is declared, or was identified, is tried first
    rules = tuple(sorted(rules, key=lambda rule: rule.name != view.manifest.rule.rule))
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
    found = None if one_step else rule_of(view, pull, rules, float(sizes[:, 2].max()))
    if found is None:
        reason = ONE_STEP if one_step else NOT_FITTED
        return [_nothing(batch, reason) for batch in view.batches(BATCH_BYTES)] if nobody else []
    _, rule, way = found
    levels = np.array(view.manifest.rating_levels)
    out, ends, effort = [], set(), Effort()
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
