"""A client's steps in one round where they are so small that rounding hides where each row points.

``attacks.closed_form.uploads.moving_factor`` takes each step from the directions of two rows. Where the
factor moves between them by little more than the last digit of a row, no pair tells anything, but all rows
together do. With q the client's factor up to its length, u = a q, and b and pull its step's decay and rate,

    g_k = x_k . q_k / |q_k|^2 = sigma a e_k,
    q_{k+1} = (1 - b) q_k + beta g_k v_k,    beta = pull / (sigma a^2),

so that the K numbers of q_0 and beta alone tell all directions: n (K - 1) equations, which Gauss and
Newton's steps solve from the rows' common direction and beta = 0. Where rows ask for them, so are b and the
multiple of their factors that all rows hold. What the fit leaves is rounding, or the rows are of another
rule. Ratings are then A g sqrt|beta| + B q . v / sqrt|beta|, with the A and B of
``attacks.closed_form.uploads.moving_factor``.

What it assumes: as there, with the order in which the rows were made, a step after each, and steps that are
small beside the factor (larger ones do not need it).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.uploads.kept import kept
from attacks.closed_form.uploads.moving_factor import Chain, follow
from attacks.closed_form.uploads.readings import Rows, some_of

ASKED = 8  # clients that say whether the others are worth the time
FEWEST = 3  # rows of a client: of two, any two directions fit
STEPS, WITH_DECAY, WITH_PULL = 18, 4, 8  # of Gauss and Newton, and after how many what else is fitted, too
SPARE = 3  # equations more than numbers that are fitted
NEARER = 0.3  # of the second nearest's distance, that the row which follows is
FITS = 1.0  # times the last digit of rows: what rounding leaves at most, in the mean
SLOWER, FIRST, LEAST = 10.0, 1e-6, 1e-12  # by how much damping changes, where it begins and ends
BEGIN, LONG = 24, 3  # first rows that are fitted alone, of clients with so many times as many
LOOSELY = 3.0  # times what all rows may leave, that the first may: rounding is a mean of fewer
KEPT = 64  # chains, of a few numbers a row


@kept(KEPT, lambda rows: (rows.rows, rows.factors, rows.item, rows.precision, rows.sequence))
def chain_of(rows: Rows) -> Chain:
    """Order the rows of each client, by their directions or, where these tell nothing, by a fit of all."""
    chain = follow(rows.rows, rows.factors, rows.item, rows.precision)
    there = rows.item & (rows.rows != 0).any(axis=2)
    here = np.flatnonzero(~chain.whole)
    if rows.rows.shape[2] == 2 and rows.sequence is not None and here.size:
        asked = some_of(rows, here)
        seen = follow(asked.rows, asked.factors, asked.item, asked.precision, asked.sequence)
        chain = _with(chain, seen, here, seen.whole)
    for in_order in (_as_sent, _by_direction):
        open_ = np.flatnonzero(~chain.whole & (there.sum(axis=1) >= FEWEST))
        for here in (open_[:ASKED], open_[ASKED:]):
            some = in_order(some_of(rows, here)) if here.size else None
            if some is None:
                break
            found, told = fitted(some)
            if not told.any():
                break
            chain = _with(chain, found, here, told)
    return chain


def _as_sent(rows: Rows) -> Rows | None:
    """Rows in the order in which they were sent, where it is seen."""
    return None if rows.sequence is None else rows


def _by_direction(rows: Rows) -> Rows | None:
    """Rows in the order that their directions tell, if less clearly than steps that are not fitted ask."""
    chain = follow(rows.rows, rows.factors, rows.item, rows.precision, clearly=NEARER)
    whole = chain.whole & (chain.n_steps > 1)
    # of one that is not whole no order is told: its rows stay in theirs, which none explains
    return rows._replace(sequence=chain.step) if whole.any() else None


def fitted(rows: Rows) -> tuple[Chain, Bool[np.ndarray, " users"]]:
    """Fit one step after every row or minibatch, in the order in which they were made."""
    assert rows.sequence is not None
    there = rows.item & (rows.rows != 0).any(axis=2)
    number = np.where(there, rows.sequence, np.inf)
    order = np.argsort(number, axis=1, kind="stable")
    number = np.take_along_axis(number, order, axis=1)
    last = np.ones(number.shape, bool)
    last[:, :-1] = number[:, 1:] != number[:, :-1]
    sent, factors = (np.take_along_axis(part, order[..., None], axis=1) for part in (rows.rows, rows.factors))
    lined_up = _InOrder(sent, factors, np.isfinite(number), last)
    walk, way = _fit_what_begins(lined_up, FITS * rows.precision)
    push = way.push
    told = (walk.rest <= FITS * rows.precision) & (push != 0)
    root = np.sqrt(np.abs(np.where(told, push, 1.0)))[:, None]
    step = np.cumsum(last, axis=1) - last
    back = np.argsort(order, axis=1)
    scalar, along, step = (
        np.where(there, np.take_along_axis(part, back, axis=1), nothing)
        for part, nothing in ((walk.scalar * root, 0.0), (walk.along / root, 0.0), (step, -1))
    )
    n_steps = step.max(axis=1, initial=-1) + 1
    return Chain(scalar, along, step, n_steps, told, 1 - way.decay, np.sign(push)), told


class _InOrder(NamedTuple):
    """Rows in the order of the steps, those that are there first, and whether each ends a step."""

    rows: Float[np.ndarray, "users rows K"]
    factors: Float[np.ndarray, "users rows K"]
    there: Bool[np.ndarray, "users rows"]
    last: Bool[np.ndarray, "users rows"]

    @property
    def length(self) -> Float[np.ndarray, "users rows"]:
        """Of the rows, which rounding is a share of; 1 where nothing is there."""
        return np.where(self.there, np.linalg.norm(self.rows, axis=2), 1.0)


class _Start(NamedTuple):
    """What tells a client's way: q_0, beta and b; and the multiple of its factor in each row."""

    factor: Float[np.ndarray, "users K"]
    push: Float[np.ndarray, " users"]
    decay: Float[np.ndarray, " users"]
    pull: Float[np.ndarray, " users"]

    @property
    def others(self) -> Float[np.ndarray, "users n"]:
        """All but q_0."""
        return np.stack(self[1:], axis=1)


class _Walk(NamedTuple):
    """g and q . v on a way, what rows leave across it (root mean square), and the normal equations."""

    scalar: Float[np.ndarray, "users rows"]
    along: Float[np.ndarray, "users rows"]
    rest: Float[np.ndarray, " users"]
    normal: Float[np.ndarray, "users m m"]
    slope: Float[np.ndarray, "users m"]


def _fit_what_begins(told: _InOrder, enough: float) -> tuple[_Walk, _Start]:
    """Fit those whose first rows alone fit, as they do where all rows are such steps; the rest leaves all."""
    if told.there.shape[1] < LONG * BEGIN:
        return _fit(told, enough)
    first = _InOrder(*(part[:, :BEGIN] for part in told))
    begun = _fit(first, LOOSELY * enough)[0].rest <= LOOSELY * enough
    walk, way = _fit(_InOrder(*(part[begun] for part in told)), enough)
    walk = _Walk(*(_spread(part, begun) for part in walk))
    walk = walk._replace(rest=np.where(begun, walk.rest, np.inf))
    return walk, _Start(*(_spread(part, begun) for part in way))


def _spread(part: np.ndarray, here: Bool[np.ndarray, " users"]) -> np.ndarray:
    """What is known of some clients, and zeros of the others."""
    out = np.zeros((here.size, *part.shape[1:]))
    out[here] = part
    return out


def _fit(told: _InOrder, enough: float) -> tuple[_Walk, _Start]:
    """Damped steps of Gauss and Newton."""
    unit = told.rows / told.length[..., None]
    first = np.linalg.eigh(np.matmul(unit.transpose(0, 2, 1), unit))[1][..., -1]
    none = np.zeros(len(unit))
    best = _Start(first, none, none, none)
    spare = told.there.sum(axis=1) * (first.shape[1] - 1) - first.shape[1] + 1 - SPARE
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _descended(told, best, spare, enough)


def _descended(told: _InOrder, best: _Start, spare: np.ndarray, enough: float) -> tuple[_Walk, _Start]:
    """From a start, what else rows ask for one after the other."""
    walk, damping = _walk(told, best), best.decay
    for number in range(STEPS):
        if not (walk.rest > enough).any():
            break
        asked = np.array([True, number >= WITH_DECAY, number >= WITH_PULL])
        start = _stepped(best, walk, damping, asked & (np.arange(1, 4) <= spare[:, None]))
        new = _walk(told, start)
        better = new.rest < walk.rest
        best = _Start(*(_where(better, one, old) for one, old in zip(start, best, strict=True)))
        walk = _Walk(*(_where(better, one, old) for one, old in zip(new, walk, strict=True)))
        damping = np.where(better, damping / SLOWER, np.maximum(damping * SLOWER, FIRST))
        damping = np.where(damping < LEAST, 0.0, damping)
    return walk, best


def _walk(told: _InOrder, start: _Start) -> _Walk:
    """Go through the rows from a start, with the derivatives of all directions by it."""
    users, n, k = told.rows.shape
    m = k + start.others.shape[1]
    scalar, along, rest = np.zeros((users, n)), np.zeros((users, n)), np.zeros(users)
    normal, slope = np.zeros((users, m, m)), np.zeros((users, m))
    q, by_start = start.factor, np.zeros((users, k, m))
    by_start[:, :, :k] = np.eye(k)
    pushed, by_pushed = np.zeros((users, k)), np.zeros((users, k, m))  # sum of g v of the step
    keep, push = (1 - start.decay)[:, None], start.push[:, None]
    clean, length = told.rows - start.pull[:, None, None] * told.factors, told.length
    for number in range(int(told.there.sum(axis=1).max(initial=0))):
        here, last = told.there[:, number, None], told.last[:, number, None]
        row, v, size = clean[:, number] * here, told.factors[:, number] * here, length[:, number, None]
        square, inward = ((q * part).sum(axis=1)[:, None] for part in (q, v))
        g = (row * q).sum(axis=1)[:, None] / square
        scalar[:, number], along[:, number] = g[:, 0], inward[:, 0]
        # across q, and how it turns; a row is g q but for rounding
        left = (row - g * q) / size
        longer = np.matmul(q[:, None], by_start)[:, 0] / square
        by_g = -g * longer
        by_g[:, k + 2] -= inward[:, 0] / square[:, 0]
        turning = (-g / size)[..., None] * (by_start - q[..., None] * longer[:, None])
        turning[:, :, k + 2] -= (v - q * inward / square) / size
        normal += np.matmul(turning.transpose(0, 2, 1), turning)
        slope += np.matmul(left[:, None], turning)[:, 0]
        rest += (left**2).sum(axis=1)
        pushed, by_pushed = pushed + g * v, by_pushed + v[..., None] * by_g[:, None]
        after = keep[..., None] * by_start + push[..., None] * by_pushed
        after[:, :, k] += pushed
        after[:, :, k + 1] -= q
        by_start = np.where(last[..., None], after, by_start)
        q = np.where(last, keep * q + push * pushed, q)
        pushed, by_pushed = np.where(last, 0.0, pushed), np.where(last[..., None], 0.0, by_pushed)
    rest = np.sqrt(rest / np.maximum(told.there.sum(axis=1) * max(k - 1, 1), 1))
    return _Walk(scalar, along, np.where(np.isfinite(rest), rest, np.inf), normal, slope)


def _stepped(start: _Start, walk: _Walk, damping: np.ndarray, asked: Bool[np.ndarray, "users n"]) -> _Start:
    """One step downhill; the length of q_0, which nothing tells, and what is not asked stay as they are."""
    k = start.factor.shape[1]
    free = np.concatenate([np.ones((len(asked), k), bool), asked], axis=1)
    size = np.sqrt(np.einsum("umm->um", walk.normal))
    size = np.where((size > 0) & free, size, np.inf)  # inf: its row and column are 0
    table = walk.normal / (size[:, :, None] * size[:, None])
    table = np.nan_to_num(table + damping[:, None, None] * np.eye(size.shape[1]))
    right = np.nan_to_num(walk.slope / size)
    change = -np.matmul(np.linalg.pinv(table, rcond=1e-12, hermitian=True), right[..., None])[..., 0] / size
    others = start.others + change[:, k:]
    return _Start(start.factor + change[:, :k], *others.T)


def _where(here: Bool[np.ndarray, " users"], new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Client by client."""
    return np.where(here.reshape(-1, *(1,) * (old.ndim - 1)), new, old)


def _with(
    chain: Chain, found: Chain, here: Int[np.ndarray, " some"], told: Bool[np.ndarray, " some"]
) -> Chain:
    """The chain of some clients taken up where it is told."""
    out = [part.copy() for part in chain]
    for whole, part in zip(out, found, strict=True):
        whole[here[told]] = part[told]
    return Chain(*out)
