"""Rows of which some entries are not sent, of a client that steps several times over all its ratings: fitted.

In T steps over all its ratings a client moves its factor and its copies w_j of the items,

    e_j = r_j - w_j . u,    D_j <- D_j + sigma e_j u,    u <- s u + c sum_j e_j w_j,
    w_j = a^t (v_j + kappa D_j),

and sends D_j, or what of it is large. To first order D has rank one, so that two numbers put the ratings near
the grid, and a few pairs of them do (``attacks.closed_form.orders.order_pairs``). With the ratings that a
pair names, K + 4 unknowns are left (s and a are 1 without decay), and one more for each row of which nothing
was sent: they are fitted to the entries that were, for each T from two on. Right ratings meet them to the
last digits; those of other pairs miss them by the second order, about a hundredth, with decay or without, so
that one pair alone must fit. Unknowns that other ratings would make up for (the factor in columns that are
seen nowhere, after one step) are counted: ratings are believed where they are more. Ratings of which another
multiple is on the grid stay open, for sigma and the length of u take it up.

What it assumes: uploads in the clear, rounded no more than to single precision; steps over all ratings, so
short that the first order names ratings. Beyond the papers; the scheme is that of H. B. McMahan et al.,
arXiv:1602.05629, Algorithm 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.fit.images import one_multiple
from attacks.closed_form.gaps.filled_rows import of_rank_one
from attacks.closed_form.gaps.gap_spans import OneClient, Told
from attacks.closed_form.gaps.gap_steps import EXCESS, MOST_ROWS, Fit, fitted
from attacks.closed_form.orders.order_pairs import FirstOrder, nearest_pairs

PASSES = range(2, 11)  # steps that are tried
TRIED = 6  # pairs of a client
TIGHT = 0.1  # of what digits allow elsewhere, that entries may be away: pairs differ by the second order
SHOWN = 10.0  # times that, which another rating must change an entry by
RIVAL = 1e-3  # distance of an entry, that ratings of all other pairs must leave
CLOSE = 2e-2  # distance, from which on decay, and more steps than two, are worth trying
FAR = 0.1  # distance of a rough fit, from which on nothing is worth trying
FARTHER = 1.5  # times as far as before, from which on another number of steps is not worth trying
ITERATIONS = 15  # of a fit that only judges pairs
EVIDENCE = 20.0  # nats
SHRINK, DECAY, SCALE, PULL, COPIES, START = range(6)  # places of the unknowns; u begins at the last


class _Case(NamedTuple):
    """Rows of one client, of size 1 once multiplied by ``size``; offset (n,), and rows without a rating."""

    sent: Float[np.ndarray, "n K"]
    v: Float[np.ndarray, "n K"]
    kept: Bool[np.ndarray, "n K"]
    offset: Float[np.ndarray, " n"]
    size: float
    silent: Bool[np.ndarray, " n"]


def of_passes(one: OneClient) -> Told:
    """Ratings of one client that steps several times over all of them."""
    rows, filled, user, levels, digits = one
    here, limit = np.flatnonzero(rows.item[user]), TIGHT * digits
    kept, v = filled.kept[user, here], rows.factors[user, here].astype(float)
    size = np.abs(rows.rows[user, here]).max(initial=0)
    named = kept.any(axis=1)
    case = _Case(rows.rows[user, here] / size, v, kept, rows.offset[user, here], float(size), ~named)
    if kept.sum() < v.shape[1] + START + (~named).sum() + EXCESS or len(here) > MOST_ROWS:
        return None
    error, factor, _ = of_rank_one(case.sent[None], kept[None])
    direction = factor[0] / np.linalg.norm(factor)
    g, h = error[0] * np.linalg.norm(factor), v @ direction
    pairs = nearest_pairs(FirstOrder(g[named], h[named], case.offset[named], named), levels)
    firsts = [
        (_Start(a * g, b * direction, 1 / (a * b)), ratings)
        for (a, b), ratings in zip(pairs.numbers[:TRIED], pairs.named[:TRIED], strict=True)
        if a * b != 0
    ]
    return _told_by_one(case, firsts, rows.item[user], levels, limit)


class _Start(NamedTuple):
    """Errors (n,), a factor (K,), and sigma times the number of steps, to first order."""

    error: Float[np.ndarray, " n"]
    factor: Float[np.ndarray, " K"]
    scale: float


def _told_by_one(
    case: _Case,
    firsts: list[tuple[_Start, np.ndarray]],
    item: Bool[np.ndarray, " rows"],
    levels: np.ndarray,
    limit: float,
) -> Told:
    """The ratings of the one pair that meets all entries."""
    if not firsts:
        return None
    roughly = [_roughly(case, *one, PASSES[0]) for one in firsts]
    number = int(np.argmin(roughly))
    if not roughly[number] < FAR:
        return None
    others = [one for place, one in enumerate(firsts) if place != number]
    start, ratings = firsts[number]
    passes, fit = _by_passes(case, start, ratings, limit)
    if not fit.off <= limit:
        return None
    alone = all(_roughly(case, *one, passes, decays=True) > RIVAL for one in others)
    if not alone or not one_multiple(ratings - case.offset[~case.silent], case.offset, levels):
        return None
    # what another rating would change an entry by
    change = step_of(levels) * (case.kept * np.abs(start.factor * start.scale)).max(axis=1)[~case.silent]
    shown = change > SHOWN * limit
    n_told = max(0, int(shown.sum()) - _open(case, fit, ratings, passes, limit))
    nats = np.sort(np.log(change[shown] / (2 * limit)))[:n_told]
    if n_told < EXCESS or nats.sum() < EVIDENCE + np.log(TRIED * len(PASSES)):
        return None
    value = np.full(item.size, np.nan)
    value[np.flatnonzero(item)[~case.silent]] = np.where(shown, ratings, np.nan)
    return value, float(passes)


def _by_passes(case: _Case, start: _Start, ratings: np.ndarray, limit: float) -> tuple[int, Fit]:
    """The number of steps that meets all entries, and the fit; else the last that was worth trying."""
    before = CLOSE
    for passes in PASSES:
        fit = _nearest(case, start, ratings, passes, limit)
        if fit.off <= limit or not fit.off < FARTHER * before:
            break
        before = min(fit.off, before)
    return passes, fit


def _open(case: _Case, fit: Fit, ratings: np.ndarray, passes: int, limit: float) -> int:
    """Count the unknowns that other ratings, of any size, would make up for."""
    k, named = case.v.shape[1], np.flatnonzero(~case.silent)
    every = np.empty(len(case.v))
    every[case.silent], every[named] = fit.unknowns[START + k :], ratings
    whole = case._replace(silent=np.ones(len(every), bool))
    _, slope = _rows(np.concatenate([fit.unknowns[: START + k], every]), whole, ratings[:0], passes)
    table = slope[case.kept]
    size = np.linalg.norm(table, axis=0)
    table = table / np.where(size > 0, size, 1.0)
    by_rating = np.zeros(table.shape[1], bool)
    by_rating[START + k + named] = True
    fixed = np.zeros(table.shape[1], bool)
    fixed[[SHRINK, DECAY]] = fit.unknowns[[SHRINK, DECAY]] == 0
    basis = np.linalg.qr(table[:, by_rating])[0]
    left = table[:, ~by_rating & ~fixed]
    left = left - basis @ (basis.T @ left)
    return int((np.linalg.svd(left, compute_uv=False) <= SHOWN * limit).sum())


def _roughly(case: _Case, start: _Start, ratings: np.ndarray, passes: int, *, decays: bool = False) -> float:
    """How far entries are from a fit of a few iterations, and of a few more with decay where asked for."""
    first = _first(case, start, passes, moves=True)
    free = np.ones(first.size, bool)
    free[[SHRINK, DECAY]] = False

    def tried(unknowns: Float[np.ndarray, " m"]) -> Fit:
        return fitted(
            lambda x: _rows(x, case, ratings, passes), unknowns, free, case.sent, case.kept, ITERATIONS
        )

    fit = tried(first)
    if decays and fit.off < FAR:
        free[:] = True
        return min(fit.off, tried(fit.unknowns).off)
    return fit.off


def _first(case: _Case, start: _Start, passes: int, moves: bool) -> Float[np.ndarray, " m"]:
    """Where a fit begins, with copies that move or not: one rate for these and the factor, or none."""
    scale = start.scale / passes
    pull = abs(scale) * case.size * moves
    turn = pull * (start.error @ case.v) * (passes - 1) / 2  # of the factor, from its first value to the mean
    predicted = case.v @ start.factor + case.offset
    numbers = [0.0, 0.0, scale, pull, case.size * moves]
    return np.concatenate([numbers, start.factor - turn, predicted[case.silent]])


def _nearest(case: _Case, start: _Start, ratings: np.ndarray, passes: int, enough: float) -> Fit:
    """The best fit of so many steps: the scale alone, then what moves, then decay."""
    best = Fit(np.zeros(0), np.inf)
    for moves in (True, False):
        now = Fit(_first(case, start, passes, moves), np.inf)
        free = np.ones(now.unknowns.size, bool)
        free[:START] = False
        for opened in ([SCALE], [PULL], [COPIES], [SHRINK, DECAY]):
            if SHRINK in opened and now.off > CLOSE:
                break
            free[opened] = True
            now = fitted(lambda x: _rows(x, case, ratings, passes), now.unknowns, free, case.sent, case.kept)
            if now.off <= enough:
                return now
        best = min(best, now, key=lambda fit: fit.off)
    return best


def _rows(
    unknowns: Float[np.ndarray, " m"], case: _Case, ratings: np.ndarray, passes: int
) -> tuple[Float[np.ndarray, "n K"], Float[np.ndarray, "n K m"]]:
    """All entries of the rows, and how they change with the unknowns."""
    (n, k), m = case.v.shape, unknowns.size
    shrink, decay = np.exp(unknowns[[SHRINK, DECAY]])
    scale, pull, copies = unknowns[[SCALE, PULL, COPIES]]
    u, left = unknowns[START : START + k], np.zeros((n, m))
    target = np.empty(n)
    target[case.silent], target[~case.silent] = unknowns[START + k :], ratings
    left[case.silent, START + k :] = np.eye(case.silent.sum())
    u_slope, d, d_slope = np.zeros((k, m)), np.zeros((n, k)), np.zeros((n, k, m))
    u_slope[:, START : START + k] = np.eye(k)
    now = 1.0
    for step in range(passes):
        w = now * (case.v + copies * d)
        w_slope = now * copies * d_slope
        w_slope[..., COPIES] += now * d
        w_slope[..., DECAY] += step * w
        e = target - case.offset - w @ u
        e_slope = left - np.einsum("nkm,k->nm", w_slope, u) - w @ u_slope
        d_slope = d_slope + scale * (e_slope[:, None] * u[:, None] + e[:, None, None] * u_slope)
        d_slope[..., SCALE] += e[:, None] * u
        d = d + scale * e[:, None] * u
        u_slope = shrink * u_slope + pull * (w.T @ e_slope + np.einsum("n,nkm->km", e, w_slope))
        u_slope[:, SHRINK] += shrink * u
        u_slope[:, PULL] += e @ w
        u = shrink * u + pull * (e @ w)
        now = now * decay
    return d, d_slope
