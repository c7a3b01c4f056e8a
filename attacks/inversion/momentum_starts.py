"""Where fits of passes with momentum begin: rows whose directions drift as momentum lets them.

A client with factor u goes P times through its ratings in steps of momentum m. To first order in its rate eta
its error e_j about item j is the same in each pass, and a step of s still moves whatever it moved after i
steps by c_i = 1 + m + ... + m^(i-1) (Nesterov's by c_{i+1}). With w_i the copies half-way,

    D_j = g_j (C_j c + kappa sum_i M_ji g_i w_i),
    C_j = sum_t c(j, t),    M_ji = sum_t c(j, t) sum_t' c(i, t'; j, t),

over the passes t: how far step t of j carries its row to the end, and how far step t' of i has carried u when
j is at its step t; c is the direction of u before the first pass, l its length, g_j = eta l e_j, and
kappa = 1 / l^2. That is linear in c and kappa. Which P, m and kind of momentum leave least of the rows is
told before anything is fitted, and where none leaves much less than no momentum does, nothing is.

Ratings are g_j / (eta l) + u_j . w_j with the u that was there on the average: one number, 1 / (eta l), for
all rows of the client, which the rating grid takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize_scalar

from attacks.client_rules.local_steps import MOST_KEPT
from attacks.client_rules.momentum_passes import AHEAD, COASTS, MOMENTUM, RATE, MomentumPasses
from attacks.closed_form.uploads.readings import Rows
from attacks.inversion.guess import Guess
from attacks.inversion.pass_starts import LENGTHS, NUMBERS, near_the_grid
from attacks.inversion.starts import Starts

TRIED = (0.4, 0.7, 0.85, 0.95)  # momentum; the least is sought about the best of them
REFINED = 4  # times, that g and the line are made of each other
CHOOSING, LONGEST = 128, 1024  # rows of a client that tells the kind, and of one that is read: n^2 each
KEPT = 2  # numbers of passes, of each sort of momentum, that may be fitted
FINE = 1e-3  # of momentum
GAIN = 0.5  # of what passes without momentum leave, that those with it leave at most


class Kind(NamedTuple):
    """Passes, momentum, Nesterov's or not, and whether items go on moving in all steps."""

    passes: float
    momentum: float
    ahead: bool
    coasts: bool


class _Reach(NamedTuple):
    """C (n,), M (n, n), how far u is carried on the average (n, n); copies, as shares of their rows (n,)."""

    own: Float[np.ndarray, " n"]
    push: Float[np.ndarray, "n n"]
    carried: Float[np.ndarray, "n n"]
    lag: Float[np.ndarray, " n"]


class _Drift(NamedTuple):
    """c, kappa, g and w; the share of the rows that is left."""

    start: Float[np.ndarray, " K"]
    kappa: float
    g: Float[np.ndarray, " n"]
    copies: Float[np.ndarray, "n K"]
    left: float


def kinds(rows: Rows, batch_size: int, passes: tuple[float, ...]) -> list[Kind]:
    """Kinds of momentum, what leaves least of rows first; none where momentum explains no more than none."""
    plain = min(_left(rows, batch_size, Kind(number, 0.0, False, True)) for number in passes)
    found = []
    for ahead, coasts in product((False, True), (True, False)):
        every = [
            _with_best_momentum(rows, batch_size, Kind(one, 0.0, ahead, coasts), plain) for one in passes
        ]
        found += sorted(every)[:KEPT]
    return [kind for left, kind in sorted(found) if left < min(GAIN * plain, 1.0)]


def _with_best_momentum(rows: Rows, batch_size: int, kind: Kind, plain: float) -> tuple[float, Kind]:
    """What is left with the momentum that leaves least, sought where less is left than without; that kind."""

    def left(momentum: float) -> float:
        return _left(rows, batch_size, kind._replace(momentum=momentum))

    coarse = [left(momentum) for momentum in TRIED]
    if min(coarse) > plain:
        return min(coarse), kind
    at = 1 + int(np.argmin(coarse))
    ends = (0.0, *TRIED, MOST_KEPT)
    best = minimize_scalar(
        left, bounds=(ends[at - 1], ends[at + 1]), method="bounded", options={"xatol": FINE}
    )
    return float(best.fun), kind._replace(momentum=float(best.x))


def momentum_starts(
    rows: Rows, levels: Float[np.ndarray, " levels"], rule: MomentumPasses, guess: Guess
) -> Starts:
    """Starts of clients that go several times through their ratings with momentum."""
    users, n, k = rows.rows.shape
    out = Starts(
        np.zeros((users, NUMBERS, k)), np.zeros((users, NUMBERS, n)), np.full((users, NUMBERS), np.nan)
    )
    constants = guess.constants_of(1.0, 1.0)
    kind = Kind(guess.value, constants[MOMENTUM], constants[AHEAD] > 0, constants[COASTS] > 0)
    rate = None if guess.constants is None else float(np.exp(constants[RATE]))
    for user, here, sent, v in _clients(rows, LONGEST):
        found = _starts(sent, v, rows.offset[user, here], levels, rule, kind, rate)
        for number, (factor, ratings, sigma) in enumerate(found):
            out.factor[user, number], out.sigma[user, number] = factor, sigma
            out.ratings[user, number, here] = ratings
    return out


def _clients(rows: Rows, most: int) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Who has two finite rows or more, so many at most: where, and the rows and factors."""
    for user in range(len(rows.item)):
        here = np.flatnonzero(rows.item[user])
        sent, v = (part[user, here].astype(float) for part in (rows.rows, rows.factors))
        if 1 < here.size <= most and np.isfinite(sent).all() and sent.any():
            yield user, here, sent, v


def _left(rows: Rows, batch_size: int, kind: Kind) -> float:
    """What is left of the rows, in the middle of the clients."""
    clients = _clients(rows, CHOOSING)
    left = [_drift(sent, v, _reach(len(sent), batch_size, kind)).left for _, _, sent, v in clients]
    return float(np.median(left)) if left else np.inf


def _starts(
    sent: np.ndarray,
    v: np.ndarray,
    offset: np.ndarray,
    levels: np.ndarray,
    rule: MomentumPasses,
    kind: Kind,
    rate: float | None,
) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """u before the first pass, ratings less offset, and eta."""
    step = np.arange(len(sent)) // rule.batch_size
    count = np.bincount(step)[step] if rule.mean else np.ones(len(sent))
    reach = _reach(len(sent), rule.batch_size, kind)
    drift = _drift(sent, v, reach)
    size = np.linalg.norm(drift.start)
    if not size > 0:
        return []
    told = np.array([size / np.sqrt(drift.kappa)] if drift.kappa > 0 else [])
    lengths = np.concatenate([told, LENGTHS]) if rate is not None or not told.size else told
    mean = drift.start + drift.kappa * reach.carried @ (drift.g[:, None] * drift.copies)
    out: list[tuple[float, np.ndarray, np.ndarray, float]] = []
    for length in np.concatenate([lengths, -lengths]):  # of u, whose sign the rows do not tell
        predicted = (drift.copies * mean).sum(axis=1) / size * length
        error = drift.g * count * size / length
        numbers = None if rate is None else 1 / rate
        near = near_the_grid(error, predicted, offset, levels, numbers)
        out += [(away, drift.start / size * length, ratings, sigma) for away, ratings, sigma in near]
    out.sort(key=lambda one: one[0])
    return [(first, ratings, sigma) for _, first, ratings, sigma in out[:NUMBERS]]


def _reach(n: int, batch_size: int, kind: Kind) -> _Reach:
    """How far steps carry what they move, to first order."""
    step = np.arange(n) // batch_size
    n_steps, passes = int(step[-1]) + 1, int(kind.passes)
    later = np.arange(n_steps * passes + 1)

    def carried(m: float) -> Float[np.ndarray, " steps"]:
        return np.where(later > 0, (1 - m ** (later + kind.ahead)) / (1 - m), 0.0)

    of_factor, of_items = carried(kind.momentum), carried(kind.momentum if kind.coasts else 0.0)
    passed = n_steps * np.arange(passes)
    to_end = of_items[n_steps * passes - passed - step[:, None]]
    own = to_end.sum(axis=1)
    lag = np.cumsum(of_items[passed]).mean() / own
    # how far step i of a pass, and those of passes before, have carried u at step j of the same pass
    gap = step[:, None] - step + n_steps
    within = np.concatenate([np.zeros(n_steps), of_factor])
    pushed = np.cumsum([within[gap + before] for before in passed], axis=0)
    return _Reach(own, np.einsum("jt,tji->ji", to_end, pushed), pushed.mean(axis=0), lag)


def _drift(sent: np.ndarray, v: np.ndarray, reach: _Reach) -> _Drift:
    """g and the line, made of each other a few times."""
    copies = v + reach.lag[:, None] * sent
    lead = np.linalg.svd(sent, full_matrices=False)[2][0]
    line, start, kappa = reach.own[:, None] * lead, lead, 0.0
    for _ in range(REFINED):
        g = _along(sent, line)
        pushed = reach.push @ (g[:, None] * copies)
        start, kappa = _line(sent, g, reach.own, pushed)
        line = reach.own[:, None] * start + kappa * pushed
    g = _along(sent, line)
    left = np.linalg.norm(sent - g[:, None] * line) / np.linalg.norm(sent)
    return _Drift(start, kappa, g, copies, float(left) if np.isfinite(left) else np.inf)


def _along(sent: np.ndarray, line: np.ndarray) -> Float[np.ndarray, " n"]:
    """g of D = g line."""
    square = (line**2).sum(axis=1)
    return (sent * line).sum(axis=1) / np.where(square > 0, square, 1.0)


def _line(sent: np.ndarray, g: np.ndarray, own: np.ndarray, pushed: np.ndarray) -> tuple[np.ndarray, float]:
    """c and kappa of D = g (C c + kappa pushed) by least squares."""
    x, moved = g * own, g[:, None] * pushed
    total = (x**2).sum()
    row, push = ((x[:, None] * table).sum(axis=0) / total for table in (sent, moved))
    off, apart = sent - x[:, None] * row, moved - x[:, None] * push
    square = (apart**2).sum()
    kappa = float((off * apart).sum() / square) if square > 0 else 0.0
    return row - kappa * push, kappa
