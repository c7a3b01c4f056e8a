"""All clients of a recording whose ratings are less a number of each item that nobody told."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

from attacks.base import Estimates, Reconstruction, Scope
from attacks.closed_form.biases.item_biases import FEWEST, SHARED, Columns, Levels, levels_of
from attacks.closed_form.centres.centred import even
from attacks.closed_form.centres.sign_agreement import log_odds_upright, mean_and_variance
from attacks.closed_form.centres.unmirrored import UPRIGHT
from attacks.closed_form.numbers.integer_relation import COARSEST, LOOSE, precision_of
from attacks.closed_form.rows.row_readings import LONGEST, one_step, several_steps
from attacks.closed_form.uploads.answered import Answered
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.moving_factor import PARALLEL
from attacks.closed_form.uploads.readings import Numbers, Rows, some_of
from victims.transcript.view import Uploads, View

ALREADY = 0.5  # share of the clients with enough ratings that are answered: nothing else is looked for
NOT_READ = "its ratings and those of others differ by no whole steps where they rated the same items"
OPEN_SHIFT = (
    "its ratings are read up to a shift of each item: they are less a number of the item that nobody told, "
    "and of no item that it rated both the lowest and the highest level are seen"
)
NOTHING: tuple[list[Answered], Scope] = ([], Scope.RATINGS_AND_ATTRIBUTES)


class Part(NamedTuple):
    """Some clients in their first round: what they sent, where, and what it says up to two numbers."""

    users: Int[np.ndarray, " some"]  # clients, and their places in ``uploads``
    uploads: Uploads
    here: Int[np.ndarray, " some"]  # clients, and their places in ``uploads``
    numbers: Numbers
    digits: Float[np.ndarray, " some"]  # what rounding leaves of rows, relative to their size

    @property
    def items(self) -> Int[np.ndarray, "some rows"]:
        """Of the rows, padding too."""
        return np.broadcast_to(self.uploads.index, self.uploads.gradients.shape[:2])[self.here]


def read_item_biases(view: View, told: Reconstruction, pull: float) -> tuple[list[Answered], Scope]:
    """Read all clients of a view whose levels are an even grid, where few are answered otherwise."""
    levels = np.array(view.manifest.rating_levels)
    if view.manifest.weighting == "include-unrated" or not even(levels):
        return NOTHING
    parts = first_rounds(view, pull)
    able = np.concatenate([one.users[one.numbers.there.sum(axis=1) >= SHARED] for one in parts])
    answered = ~np.isin(able, list(told.abstained))
    if able.size < FEWEST or answered.mean() >= ALREADY:
        return NOTHING
    known = _columns(parts)
    digits = max((float(one.digits.max(initial=0)) for one in parts), default=0.0)
    found = levels_of(known, levels.size, digits) if known.owner.size and digits < COARSEST else None
    if found is None or not (found.above >= 0).any():
        return NOTHING
    turned, upright = _way_round(known, found, levels.size)
    ends = np.cumsum([one.users.size for one in parts])
    scope = Scope.RATINGS_AND_ATTRIBUTES if upright >= UPRIGHT else Scope.SIZES
    return [
        _answered(one, known, found, int(end) - one.users.size, levels[::-1] if turned else levels, upright)
        for one, end in zip(parts, ends, strict=True)
    ], scope


def first_rounds(view: View, pull: float) -> list[Part]:
    """Each client in the first round that it takes part in."""
    out = []
    for batch in view.batches(BATCH_BYTES):
        left = np.ones(batch.users.size, bool)
        for number, uploads in enumerate(batch.rounds, start=1):
            rows = rows_of(view.manifest, uploads, None, 0.0, pull)
            taken = left & (rows.item.any(axis=1) | (number == len(batch.rounds)))
            here = np.flatnonzero(taken)
            left &= ~taken
            if here.size:
                part = some_of(rows, here)
                digits = LOOSE * precision_of(part.rows, part.factors, part.precision)
                out.append(Part(batch.users[here], uploads, here, _exact(part), digits))
    return out


def _exact(rows: Rows) -> Numbers:
    """One step, or where rows are not parallel to the last digit a chain of several."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        plain = one_step(rows)
        alone = plain.whole & (plain.across <= PARALLEL * rows.precision)
        if not 0 < rows.rows.shape[1] <= LONGEST:
            return plain._replace(there=plain.there & alone[:, None])
        chain = several_steps(rows)
    there = np.where(alone[:, None], plain.there, chain.there & chain.whole[:, None])
    both = (
        np.where(alone[:, None], *pair) for pair in ((plain.scalar, chain.scalar), (plain.along, chain.along))
    )
    scalar, along = both
    return plain._replace(scalar=scalar, along=along, there=there, steps=np.where(alone, 1.0, chain.steps))


def _columns(parts: list[Part]) -> Columns:
    """The ratings of all parts, one after the other; errors and predictions of size 1."""
    columns: tuple[list[np.ndarray], ...] = ([], [], [], [])
    owner, item, g, h = columns
    first = 0
    for one in parts:
        user, row = np.nonzero(one.numbers.there)
        owner.append(user + first)
        item.append(one.items[user, row])
        for column, values in ((g, one.numbers.scalar), (h, one.numbers.along)):
            size = np.abs(np.where(one.numbers.there, values, 0)).max(axis=1, initial=0)
            column.append((values / np.where(size > 0, size, 1)[:, None])[user, row])
        first += one.users.size
    return Columns(*(np.concatenate(column) for column in columns))


def _way_round(known: Columns, found: Levels, n_levels: int) -> tuple[bool, float]:
    """Whether the ratings are the higher ones turned round, and the probability of these."""
    told = found.above >= 0
    n_clients = int(known.owner.max()) + 1
    count = np.bincount(known.owner[told], minlength=n_clients).astype(float)
    total = np.bincount(known.owner[told], found.above[told], n_clients)
    mean = total / np.maximum(count, 1) / (n_levels - 1) - 0.5
    odds = log_odds_upright(*mean_and_variance(np.where(count > 0, mean, 0.0)[:, None], count), n_levels)
    return bool(odds[0] < 0), float(expit(np.abs(odds[0])))


def _answered(
    part: Part,
    known: Columns,
    found: Levels,
    first: int,
    levels: Float[np.ndarray, " levels"],
    upright: float,
) -> Answered:
    """What is said of the clients of one part; levels descend where all are turned round."""
    value = np.full(part.numbers.there.shape, np.nan)
    mine = (known.owner >= first) & (known.owner < first + part.users.size)
    above = np.where(part.numbers.there, 0, -1)
    above[part.numbers.there] = found.above[mine]
    told = above >= 0
    value[told] = levels[above[told]]
    read = found.read[first : first + part.users.size] if first < found.read.size else np.zeros(0, bool)
    read = np.concatenate([read, np.zeros(part.users.size - read.size, bool)])
    claimed = upright if upright >= UPRIGHT else np.nan
    reasons = {}
    for place, user in enumerate(part.users.tolist()):
        if not told[place].any():
            reasons[user] = OPEN_SHIFT if read[place] else NOT_READ
    value[np.isin(part.users, list(reasons))] = np.nan
    kind = np.broadcast_to(part.uploads.kind, part.uploads.gradients.shape[:2])[part.here]
    answered = ~np.isnan(value).all(axis=1)
    nothing = np.zeros(answered.size)
    columns = (
        np.where(answered, 0.0, np.nan),
        part.numbers.steps,
        nothing,
        nothing,
        np.where(read, claimed, np.nan),
    )
    factor = np.full((answered.size, part.uploads.gradients.shape[2]), np.nan)
    return Answered(
        Estimates(
            part.users, kind, part.items, value, probability=np.where(np.isnan(value), np.nan, claimed)
        ),
        reasons,
        np.stack(columns, axis=1),
        (part.users, np.full(part.users.size, part.uploads.round), factor),
        np.zeros(answered.size, bool),
        np.zeros(answered.size, bool),
    )
