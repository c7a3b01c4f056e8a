"""Rows of unrated items tell how long a factor is that moves from row to row.

In include-unrated an unrated item j of client u sends -alpha (u_k . v_j) u_k, with the u_k of that moment.
With d the row's own direction and s = |u_k| its length is -alpha s^2 (d . v_j): every unrated row gives s by
itself, and no order, constant of the step or second round is needed. A rated row sends (r - u_k . v_j) u_k
and leaves s open; but u_{k+1} = shrink u_k + t v, so that its direction lies in the plane of the row that
came before and of its item (``attacks.closed_form.uploads.moving_factor``), and that row tells s. Then

    r = | |row| / s + s d . v_j |

What it assumes: rows in the clear and without noise, many of them of unrated items, their scale and alpha. It
judges itself: the rated rows must lie on the rating grid, and the others be as long as unrated ones are.

References
----------
P. Mai, Y. Pang, arXiv:2210.07775, section 4, on include-unrated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import cKDTree

from attacks.closed_form.fit.decoding import distance_to_levels, looks_unrated
from attacks.closed_form.fit.goodness_of_fit import accidental, step_of
from attacks.closed_form.rows.row_readings import best_reading, with_unrated
from attacks.closed_form.rows.weighted_zeros import HALF
from attacks.closed_form.uploads.moving_factor import PARALLEL
from attacks.closed_form.uploads.readings import Reading, Rows, on_the_rest, reading_of
from attacks.closed_form.uploads.reduction import leading_direction
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

NEAREST = 12  # rows by which the length of one is told
ALIKE = 0.02  # relative difference of lengths that say the same
RUNS = 3  # rated rows in a row that are read, from either side
CHUNK = 64  # rows that are held against all others at once
LEAST_ROWS = 8  # of a client, to tell unrated ones by their agreement
AGREEING = 0.25  # share of the rows that must say the same length as if they were unrated
EXPLAINED = 1e-3  # of a turn between two directions: what a plane that explains it may leave
BETWEEN = 0.3  # of a step: rows that come out so far from any level are not answered
FARTHER, LEAST = 10.0, 1e-4  # times the usual distance of a client's ratings, and of a step, at least
SAME = 0.01  # relative difference of lengths that are one: a step that hardly turns leaves shrink open
ACCIDENT = 1e-4  # probability that a client's rows about nothing are answered


def reading_with_unrated(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read clients many of whose rows are about unrated items, under the declared scale and alpha.

    Who is not read so, for neither is told or one is wrong, is read as one step of any scale and weight
    (``attacks.closed_form.rows.weighted_zeros``), and who sends rows of fewer than half of the items as if
    all of them were rated: the declared weighting may be another.
    """
    best = _under_declared(rows, manifest, max_misfit)
    rated = manifest.model_copy(update={"weighting": "observed-only"})
    free = rows._replace(scale=np.full(rows.scale.shape, np.nan))
    inexact = ~(best.misfit <= rows.precision**HALF)
    best = on_the_rest(best, with_unrated, ~best.answered | inexact, free, rated, max_misfit)
    few = ~best.answered & (rows.item.sum(axis=1) < manifest.n_items / 2)
    return on_the_rest(best, best_reading, few, rows if manifest.scale_known else free, rated, max_misfit)


def _under_declared(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Nobody's, where the scale or alpha is not told, or something is taken off ratings."""
    levels, alpha = np.array(manifest.rating_levels), manifest.hyperparameters.get("alpha", 0.0)
    if not (manifest.scale_known and alpha > 0) or rows.offset.any():
        return reading_of(np.full(rows.item.shape, np.nan), misfit=np.nan, allowed=0.0)
    found = read_unrated(rows.rows, rows.factors, rows.item, levels, alpha, max_misfit, rows.precision)
    return reading_of(*found, declared=True)


def obstacle_with_unrated(view: View) -> str:
    """Why rows of unrated items tell nothing, or nothing."""
    if any(known.bias is not None and known.bias.any() for known in view.broadcasts.values()):
        return "predictions have biases of the items, which this attack does not model in include-unrated"
    return ""


class UnratedReading(NamedTuple):
    """What is read of clients most of whose rows are about unrated items."""

    value: Float[np.ndarray, "users rows"]  # stars, 0 for unrated, NaN where not told
    misfit: Float[np.ndarray, " users"]  # naN without an answer
    allowed: Float[np.ndarray, " users"]  # the largest misfit at which a client is answered


def read_unrated(
    rows: Float[np.ndarray, "users rows K"],
    factors: Float[np.ndarray, "users rows K"],
    item: Bool[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
    alpha: float,
    max_misfit: float,
    precision: float = 2.0**-52,
) -> UnratedReading:
    """Read one round of clients most of whose rows are about unrated items.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> v, u, r = rng.normal(size=(1, 40, 3)), np.array([0.5, 0.2, 0.4]), np.zeros(40)
    >>> r[:5] = 1, 2, 3, 4, 5
    >>> weight = np.where(r > 0, 1, 0.1)
    >>> sent = (weight * (r - v[0] @ u))[None, :, None] * u
    >>> found = read_unrated(sent, v, np.ones((1, 40), bool), np.arange(1.0, 6.0), 0.1, 0.25)
    >>> found.value[0, :7].round(6).tolist(), bool(found.misfit[0] < 1e-6)
    ([1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 0.0], True)
    """
    value = np.full(item.shape, np.nan)
    misfit, allowed = np.full(len(rows), np.nan), np.zeros(len(rows))
    for client in range(len(rows)):
        size = np.linalg.norm(rows[client], axis=1)
        some = item[client] & np.isfinite(size) & (size > 0)
        if some.sum() < LEAST_ROWS:
            continue
        sent, met = rows[client, some], factors[client, some]
        seen = _lengths(sent, met, alpha)
        if seen is None:
            continue
        length, shrink = _linked(seen, met, precision)
        found, away = _answers(sent, met, length, levels, alpha)
        agreeing = np.abs(seen.own - length) < SAME * length
        off = away.mean() / (step_of(levels) / 4) if away.size else np.nan
        # neither surely unrated nor near a level: left open
        farthest = BETWEEN * step_of(levels)
        if away.size:  # rounding is alike in all rows: what is much farther off has another length
            farthest = min(farthest, max(FARTHER * float(np.median(away)), LEAST * step_of(levels)))
        doubtful = np.where(found > 0, distance_to_levels(found, levels) > farthest, ~agreeing)
        if abs(shrink - 1) > SAME:  # before or after a step: both lengths may make sense
            for other in (length * shrink, length / shrink):
                beside, _ = _answers(sent, met, other, levels, alpha)
                near = (beside > 0) & (distance_to_levels(beside, levels) <= farthest)
                doubtful |= near | (np.abs(seen.own - other) < SAME * other)
        value[client, some] = np.where(doubtful, np.nan, found)
        misfit[client] = off if agreeing.mean() >= AGREEING else np.nan
        allowed[client] = min(max_misfit, float(accidental(np.array([away.size]), 1, ACCIDENT)[0]))
    return UnratedReading(value, misfit, allowed)


def _answers(
    rows: Float[np.ndarray, "rows K"],
    factors: Float[np.ndarray, "rows K"],
    length: Float[np.ndarray, " rows"],
    levels: Float[np.ndarray, " levels"],
    alpha: float,
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rated"]]:
    """Ratings, 0 for unrated, and how far the rated ones are from the grid."""
    size = np.linalg.norm(rows, axis=1)
    error = size / length
    predicted = np.einsum("rk,rk->r", factors, rows) / size * length
    sign = np.where(error + predicted < 0, -1.0, 1.0)  # ratings are positive
    unrated = looks_unrated(sign * error, sign * predicted, levels, alpha)
    found = np.where(unrated & np.isfinite(length), 0.0, np.abs(error + predicted))
    return found, distance_to_levels(found[found > 0], levels)


class _Lengths(NamedTuple):
    """Directions, upright; what each row says of the length of its factor if it is unrated, NaN where it
    cannot be; the rows that can be, and the nearest of those to every row; the length that most of these
    say.
    """

    direction: Float[np.ndarray, "rows K"]
    own: Float[np.ndarray, " rows"]
    usable: Int[np.ndarray, " usable"]
    nearest: Int[np.ndarray, "rows near"]
    length: Float[np.ndarray, " rows"]


def _lengths(
    rows: Float[np.ndarray, "rows K"], factors: Float[np.ndarray, "rows K"], alpha: float
) -> _Lengths | None:
    """By the rows of nearly the same direction; None where next to none can be unrated."""
    size = np.linalg.norm(rows, axis=1)
    direction = rows / size[:, None]
    along = np.einsum("rk,rk->r", factors, direction)
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.sqrt(size / np.where(along < 0, -alpha * along, np.nan))
    usable = np.flatnonzero(np.isfinite(own) & (own > 0))
    if usable.size < LEAST_ROWS:
        return None
    middle = leading_direction(rows[None])[0][0]
    upright = np.where(direction @ middle < 0, -1.0, 1.0)[:, None] * direction
    nearest = cKDTree(upright[usable]).query(upright, k=min(NEAREST, usable.size))[1]
    near = own[usable][nearest]
    alike = np.abs(near[:, :, None] - near[:, None, :]) < ALIKE * near[:, :, None]
    best = alike.sum(axis=2).argmax(axis=1)  # what most of the neighbours say, the nearest of them first
    chosen = alike[np.arange(size.size), best]
    return _Lengths(upright, own, usable, nearest, np.einsum("rn,rn->r", near, chosen) / chosen.sum(axis=1))


def _linked(
    seen: _Lengths, factors: Float[np.ndarray, "rows K"], precision: float
) -> tuple[Float[np.ndarray, " rows"], float]:
    """Lengths, by the row just before a row or just after it, NaN where neither is known; and shrink.

    A step leaves the plane of u and v nowhere: u' = shrink u + t v. So of all rows the one in whose plane the
    row's direction lies came before it, and the one that lies in the row's own plane came after it; the part
    along u tells the length, up to shrink, which the unrated rows tell together.
    """
    like = np.abs(seen.own - seen.length) < ALIKE * seen.length
    own = np.where(like, seen.own, np.nan)  # a rated row may point as an unrated one would
    everybody = np.arange(own.size)
    found, other, before = _by_neighbours(seen, factors, own, everybody, seen.usable[seen.nearest], precision)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(before, own / found, found / own)
    sure = np.isfinite(ratio)
    shrink = float(np.median(ratio[sure])) if sure.any() else 1.0
    length = _agreed(found, other, before, shrink)
    for _ in range(RUNS):  # rated rows in a row, and those that a large step took away from their neighbours
        rest, told = np.flatnonzero(np.isnan(length)), np.flatnonzero(np.isfinite(length))
        for some in np.array_split(rest, -(-rest.size // CHUNK)) if rest.size and told.size else []:
            known = np.broadcast_to(told, (some.size, told.size))
            told_ = _by_neighbours(seen, factors, length, some, known, precision)
            length[some] = _agreed(*told_, shrink)
        if np.isnan(length[rest]).all():
            break
    return length, shrink


def _agreed(
    found: Float[np.ndarray, " some"],
    other: Float[np.ndarray, " some"],
    before: Bool[np.ndarray, " some"],
    shrink: float,
) -> Float[np.ndarray, " some"]:
    """Lengths by the best neighbour; NaN where the best one on the other side says another."""
    length = np.where(before, found * shrink, found / shrink)
    beside = np.where(before, other / shrink, other * shrink)
    return np.where(np.abs(beside - length) > SAME * length, np.nan, length)


def _by_neighbours(
    seen: _Lengths,
    factors: Float[np.ndarray, "rows K"],
    length: Float[np.ndarray, " rows"],
    rows: Int[np.ndarray, " some"],
    known: Int[np.ndarray, "some near"],
    precision: float,
) -> tuple[Float[np.ndarray, " some"], Float[np.ndarray, " some"], Bool[np.ndarray, " some"]]:
    """Lengths of some rows by the best of some neighbours, and by the best on the other side of the row.

    NaN where none is in its plane; divided by shrink where that neighbour came before the row, which is told
    of the first, else times shrink.
    """
    u = seen.direction[known]
    of_row = np.broadcast_to(seen.direction[rows][:, None], u.shape)
    before, off_before = _along(of_row, u, factors[known])
    after, off_after = _along(u, of_row, np.broadcast_to(factors[rows][:, None], u.shape))
    turned = np.linalg.norm(of_row - u, axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        sides = ((length[known] / before, off_before), (length[known] * after, off_after))
    told, least = [], []
    for lengths, off in sides:
        usable = np.isfinite(lengths) & (lengths > 0) & (known != rows[:, None])
        away = np.where(usable, off, np.inf)
        best = away.argmin(axis=1)[:, None]
        found, near, turn = (np.take_along_axis(part, best, axis=1)[:, 0] for part in (lengths, away, turned))
        linked = near < np.maximum(PARALLEL * precision, EXPLAINED * turn)
        told.append(np.where(linked, found, np.nan))
        least.append(np.where(linked, near, np.inf))
    first = least[0] <= least[1]
    return np.where(first, *told), np.where(first, *told[::-1]), first


def _along(
    vector: Float[np.ndarray, "rows near K"],
    u: Float[np.ndarray, "rows near K"],
    v: Float[np.ndarray, "rows near K"],
) -> tuple[Float[np.ndarray, "rows near"], Float[np.ndarray, "rows near"]]:
    """x of vector = x u + y v, all directions u of length 1; and how far it is from their plane."""

    def dot(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.einsum("rnk,rnk->rn", left, right)

    across = v - dot(v, u)[..., None] * u
    square = dot(across, across)
    y = dot(vector, across) / np.where(square > 0, square, 1)
    x = dot(vector, u) - y * dot(v, u)
    return x, np.linalg.norm(vector - x[..., None] * u - y[..., None] * v, axis=2)
