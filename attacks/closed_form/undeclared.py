"""One round of clients whose rule nobody declared: an unknown scale, minibatches, a step after every rating.

Beyond papers 001 and 002, for what programs really send. It takes every row for sigma e u with the u of that
moment, and asks for nothing else:

- rows of one direction are one step; where there are several, ``attacks.closed_form.moving_factor`` finds
  their order and each row's error up to two numbers that all rows of the client share;
- several steps over all ratings on copies of the items that move, too, leave the ratings in a subspace that
  the rows span with the factors, and there they are the only integers
  (``attacks.closed_form.integer_relation``);
- rows of unrated items, where they are sent, tell the length of the factor row by row
  (``attacks.closed_form.unrated_rows``);
- momentum that clients keep of what they send is a share of the round before, told by the rank of the rest
  (``attacks.closed_form.carried_rows``);
- where sigma is the declared one, a single number is left (``attacks.closed_form.rating_grid``); where that
  puts the rows nowhere, sigma is taken for unknown, a mean over the client's ratings, say, and both are
  searched for (``attacks.closed_form.affine_grid``).

No constant of the step, no order of the rows and, but for momentum, no second round is needed.

What is declared of the clients' rule is not believed: a wrong declaration hides nothing from it.

What it assumes: uploads in the clear and without noise, the rating grid, three factors or more where the
client steps several times; the scale and alpha where rows of unrated items are sent. It judges its answer by
the grid, as the other closed forms do, and abstains where no numbers, or more than one pair, meet it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.base import Estimates, Progress, Reconstruction, all_abstain, joined, silent, unreadable
from attacks.closed_form.carried_rows import without_carried
from attacks.closed_form.chain_readings import any_reading
from attacks.closed_form.common_scale import Scale, common_scale
from attacks.closed_form.readings import Reading, Rows, fitting_better, narrowed, some_of, spread_over
from attacks.closed_form.reduction import leading_direction
from attacks.closed_form.unrated_rows import obstacle_with_unrated, reading_with_unrated
from attacks.closed_form.upload_kind import mismatch
from victims.common.errors import InputError
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM, Uploads, View

DECLARED = Scale("sum", 1.0, 1.0)
ENOUGH = 200  # clients that are asked for a common scale
FEWEST_ALONE, SELDOM = 3, 0.1  # clients that must say that ratings are lowered; of these, as many may deny it
BATCH_BYTES = 1 << 20  # of the uploads of one batch: the planes of a client take its rows squared
DIAGNOSTICS = ("misfit", "steps", "declared", "pull")
EXACT = 1e-6  # misfit of an answer that owes nothing to rounding
SAME_READING = 0.05  # stars, within which a factor has to say the ratings that were read
NO_NUMBERS = (
    "no length of the client's factor and scale of its rows, or more than one pair of them, puts its rows on "
    "the rating grid"
)


@dataclass(frozen=True)
class Undeclared:
    """Hyper-parameters.

    Attributes
    ----------
    max_misfit : float
        Abstain where the distance of the answer from the grid exceeds this share of what random pairing
        gives, > 0.
    """

    max_misfit: float = 0.25
    name: str = "undeclared"

    def __post_init__(self) -> None:
        if not self.max_misfit > 0:
            raise InputError(
                f"max_misfit of undeclared must be > 0, got {self.max_misfit}; the default is 0.25"
            )

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Read all clients of a view, each in the round that fits the grid best.

        Parameters
        ----------
        view : View
        key : int
            Unused: the attack draws nothing at random.
        progress : callable

        Returns
        -------
        Reconstruction
            Values are not rounded; diagnostics ``misfit``, ``steps`` (of the client in that round),
            ``declared`` (1 where a scale that is known was enough, 0 where it was taken for unknown) and
            ``pull`` (the multiple of its factor that was taken off each row).
        """
        options = {**asdict(self), "seed": key}
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, view.users, obstacle, options)
        blocks: list[Estimates] = []
        abstained: dict[int, str] = {}
        said: list[np.ndarray] = []
        factors: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        done = 0
        learned = _learned(view, self.max_misfit)
        for batch in view.batches(BATCH_BYTES):
            rounds = [_best(view, uploads, learned, self.max_misfit) for uploads in batch.rounds]
            rounds = _with_carried(view.manifest, batch.rounds, rounds, learned, self.max_misfit)
            fit = np.stack([part.misfit - part.allowed for part, _ in rounds])
            best = np.where(np.isnan(fit), np.inf, fit).argmin(axis=0)
            columns = []
            for number, (uploads, (part, own)) in enumerate(zip(batch.rounds, rounds, strict=True)):
                here = best == number
                if not here.any():
                    continue
                value = np.where(uploads.valid & (uploads.kind == ITEM), part.value, np.nan)[here]
                users = batch.users[here]
                reasons = _reasons(users, part, here)
                silenced = np.isin(users, list(reasons))
                value[silenced] = np.nan
                factor = np.where(silenced[:, None], np.nan, own[here])
                factors.append((users, np.full(users.size, uploads.round), factor))
                abstained |= reasons
                shape = (batch.users.size, value.shape[1])
                kind, index = (np.broadcast_to(a, shape)[here] for a in (uploads.kind, uploads.index))
                blocks.append(Estimates(users, kind, index, value))
                told = (users, part.misfit[here], part.steps[here], part.declared[here], part.pull[here])
                columns.append(np.stack(told, axis=1))
            said += columns
            done += batch.users.size
            progress(done, view.users.size)
        table = np.concatenate(said)
        table = table[np.argsort(table[:, 0])]
        diagnostics = {name: table[:, number + 1] for number, name in enumerate(DIAGNOSTICS)}
        answers = self.name, view.users, tuple(blocks), abstained, options, diagnostics
        return Reconstruction(*answers, factors=joined(factors))

    def obstacle(self, view: View) -> str:
        """Why the attack does not apply, or nothing."""
        if reason := unreadable(view):
            return reason
        return "" if view.manifest.weighting == "observed-only" else obstacle_with_unrated(view)


class _Learned(NamedTuple):
    """What many clients tell together: the rows' scale, what is taken off ratings, and the multiples of their
    factors that rows may hold."""

    scale: Scale | None
    lowered: float
    pulls: tuple[float, ...]


def _learned(view: View, max_misfit: float) -> _Learned:
    wrong = mismatch(view)
    missing = 0.0 if wrong is None else -wrong.missing
    declared = view.manifest.upload.regularization
    # a declared regularisation may be none
    pulls = tuple(dict.fromkeys((declared + missing, missing)))
    if view.manifest.weighting == "include-unrated":
        return _Learned(DECLARED, 0.0, pulls)
    asked = _asked(view, max_misfit, pulls[0])
    lowered = _offset(view.manifest, asked, max_misfit, pulls[0])
    if lowered:
        asked = _asked(view, max_misfit, pulls[0], lowered)
    return _Learned(_known_scale(view.manifest, asked), lowered, pulls)


def _best(
    view: View, uploads: Uploads, learned: _Learned, max_misfit: float
) -> tuple[Reading, Float[np.ndarray, "users K"]]:
    """Read a round, with the next multiple of the factors taken off where one leaves clients unread.

    The clients' own factors come with it, NaN where they are not told.
    """
    reading = reading_with_unrated if view.manifest.weighting == "include-unrated" else any_reading
    best, factors = None, np.zeros((0, 0))
    for pull in learned.pulls:
        rows = rows_of(view.manifest, uploads, learned.scale, learned.lowered, pull)
        found = reading(rows, view.manifest, max_misfit)
        own = factors_of(rows, found)
        if best is None:
            best, factors = found, own
        else:
            better = found.answered & ~(best.answered & (best.misfit <= found.misfit))
            best, factors = fitting_better(best, found), np.where(better[:, None], own, factors)
        if best.answered.all():
            break
    assert best is not None
    return best, factors


def _with_carried(
    manifest: Manifest,
    uploads: Sequence[Uploads],
    rounds: list[tuple[Reading, Float[np.ndarray, "users K"]]],
    learned: _Learned,
    max_misfit: float,
) -> list[tuple[Reading, Float[np.ndarray, "users K"]]]:
    """Read who was read in no round exactly, where rows hold a share of those of the round before."""
    rest = ~np.any([part.answered & (part.misfit < EXACT) for part, _ in rounds], axis=0)
    if manifest.weighting == "include-unrated" or not rest.any():
        return rounds
    out = list(rounds)
    for number in range(1, len(uploads)):
        before, now = uploads[number - 1], uploads[number]
        if now.round != before.round + 1:
            continue
        both = [rows_of(manifest, one, None, learned.lowered, learned.pulls[0]) for one in (now, before)]
        here = np.flatnonzero(rest & now.same_list(before))
        width = min(one.rows.shape[1] for one in both)
        clean, told = without_carried(*(narrowed(some_of(one, here), width) for one in both))
        if not told.any():
            continue
        found = any_reading(some_of(clean, told), manifest, max_misfit)
        these = np.isin(np.arange(rest.size), here[told])
        found = spread_over(found, these)
        value = np.full(now.gradients.shape[:2], np.nan)
        value[:, :width] = found.value
        found = found._replace(value=value)
        better = found.answered & ~(rounds[number][0].misfit <= found.misfit)
        own = np.where(better[:, None], np.nan, rounds[number][1])
        out[number] = (fitting_better(rounds[number][0], found), own)
    return out


def _reasons(users: np.ndarray, part: Reading, here: np.ndarray) -> dict[int, str]:
    """Why clients are abstained on."""
    reasons = {}
    for user, off, most in zip(users.tolist(), part.misfit[here], part.allowed[here], strict=True):
        if np.isnan(off):
            reasons[user] = NO_NUMBERS
        elif not off <= most:
            reasons[user] = (
                "the answer fits the rating grid little better than chance "
                f"(misfit {off:.2g} of 1, at most {most:.2g} with so many ratings)"
            )
    return reasons


def factors_of(rows: Rows, read: Reading) -> Float[np.ndarray, "users K"]:
    """The factors of clients whose rows are one step: r = A f . d + B q . d says that p is B d for any A.

    Parameters
    ----------
    rows : Rows
    read : Reading
        Of the same rows.

    Returns
    -------
    (n_users, K)
        NaN where the client moved between its rows, and where p does not say the ratings that were read.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        clean = rows.rows - np.nan_to_num(read.pull)[:, None, None] * rows.factors
        direction, _ = leading_direction(clean)
        scalar, along = (np.matmul(part, direction[:, :, None])[..., 0] for part in (clean, rows.factors))
        a, b, c = (part[:, None] for part in (read.of_error, read.of_factor, read.own_bias))
        own, known = a * scalar + b * along, read.value - rows.offset - c
        there = rows.item & ~np.isnan(read.value)
        away = np.stack([np.where(there, np.abs(sign * own - known), 0).sum(axis=1) for sign in (1, -1)])
        told = (away.min(axis=0) < SAME_READING * there.sum(axis=1)) & (read.steps <= 1)
    turned = np.where(away[1] < away[0], -1, 1)  # the direction's sign is open
    return direction * np.where(told, read.of_factor * turned, np.nan)[:, None]


def rows_of(
    manifest: Manifest,
    uploads: Uploads,
    shared: Scale | None,
    lowered: float = 0.0,
    pull: float | None = None,
) -> Rows:
    """Rows of items freed of scale and declared regularisation, and what they were computed at.

    Parameters
    ----------
    manifest : Manifest
    uploads : Uploads
        One round of a batch.
    shared : Scale or None
        What multiplies the rows, in units of the manifest's; None where it is not known.
    lowered : float
        What the program takes off every rating, stars.
    pull : float, optional
        Multiple of its factor in every row; as declared if it is not given.

    Returns
    -------
    Rows
        0 where a row is of no item.
    """
    shape = uploads.gradients.shape[:2]
    item = np.broadcast_to(uploads.valid & (uploads.kind == ITEM), shape)
    factors = np.broadcast_to(uploads.factors[uploads.at], uploads.gradients.shape) * item[..., None]
    taken = manifest.upload.regularization if pull is None else pull
    rows = (uploads.gradients - taken * factors) * item[..., None]
    precision = float(np.finfo(uploads.gradients.dtype).eps)
    n_rated = np.maximum(item.sum(axis=1), 1).astype(float)
    scale = np.full(shape[0], np.nan) if shared is None else shared.of(n_rated)
    divisor = np.where(np.isnan(scale), 1.0, scale) * manifest.upload.scale
    rows = rows.astype(np.float64) / divisor[:, None, None]
    offset = np.broadcast_to(uploads.bias + lowered, shape) * item
    return Rows(rows, factors, offset, item, scale, precision, uploads.sequence)


def untold_offset(view: View, max_misfit: float, pull: float | None = None) -> float:
    """What the program takes off every rating, to learn numbers from 0 on: the lowest level, or nothing.

    Who has no rating of the lowest level fits the grid either way, one level too low without it; who has one
    fits with it alone. It is believed where several clients do, and next to none fits without it alone.

    Parameters
    ----------
    view : View
    max_misfit : float
        Largest misfit at which a client is read.
    pull : float, optional
        As of ``rows_of``.

    Returns
    -------
    float
        Stars.
    """
    return _offset(view.manifest, _asked(view, max_misfit, pull), max_misfit, pull)


class _Asked(NamedTuple):
    """The first round of some clients, and what its rows say under an unknown scale."""

    uploads: Uploads
    rows: Rows
    found: Reading


def _asked(view: View, max_misfit: float, pull: float | None, lowered: float = 0.0) -> list[_Asked]:
    """Read ``ENOUGH`` clients, or a few more."""
    out: list[_Asked] = []
    for batch in view.batches(BATCH_BYTES):
        rows = rows_of(view.manifest, batch.rounds[0], None, lowered, pull)
        out.append(_Asked(batch.rounds[0], rows, any_reading(rows, view.manifest, max_misfit)))
        if sum(one.found.answered.size for one in out) >= ENOUGH:
            break
    return out


def _offset(manifest: Manifest, asked: list[_Asked], max_misfit: float, pull: float | None) -> float:
    """The lowest level, or nothing; ``asked`` without it."""
    lowest = float(manifest.rating_levels[0])

    def less(one: _Asked, here: Bool[np.ndarray, " users"]) -> Reading:
        rows = some_of(rows_of(manifest, one.uploads, None, lowest, pull), here)
        return any_reading(rows, manifest, max_misfit)

    saying = denying = 0  # clients that fit one way and not the other
    for one in asked:
        if not one.found.answered.all():
            found = less(one, ~one.found.answered)
            # who fits without it fits with it nowhere at the lowest level: that is one above a rating then
            has_lowest = (np.abs(found.value - lowest) < max_misfit * lowest).any(axis=1)
            saying += int((found.answered & has_lowest).sum())
    if saying < FEWEST_ALONE:
        return 0.0
    for one in asked:
        if one.found.answered.any():
            denying += int((~less(one, one.found.answered).answered).sum())
    return lowest if denying <= SELDOM * saying else 0.0


def _known_scale(manifest: Manifest, asked: list[_Asked]) -> Scale | None:
    """What multiplies the rows: what most show of those who can be read without it, else as declared."""
    told: list[np.ndarray] = []
    for one in asked:
        here = one.found.answered & np.isfinite(one.found.of_error)
        n_rated = one.rows.item.sum(axis=1)[here]
        told.append(np.stack([1 / (one.found.of_error * one.found.of_factor)[here], n_rated], axis=1))
    shown = common_scale(*np.concatenate(told).T)
    declared = DECLARED if manifest.scale_known else None
    if shown is None or (declared is not None and shown.like(declared)):
        return declared
    return shown
