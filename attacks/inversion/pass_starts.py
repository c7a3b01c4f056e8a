"""Where fits of several passes over the ratings begin: rows of one round whose directions drift.

A client with factor u goes P times through its ratings and moves its own copies of the items. Where steps are
short, its error about item j is about the same in each pass, and the row of j, the sum over passes, is

    D_j = g_j (c + kappa S_j),   S_j = sum of g_i w_i over the minibatches before that of j,

c the mean direction of u (length 1), l its length, kappa = 1 / (P l^2), w_i the copy half-way: for in each
pass u moves by g_i w_i / (P l) at item i. That is linear in c and kappa, so that the drift of the directions
tells the length of u, up to P, and a wrong order explains next to nothing of it. A rating is then A g_j + the
product of u and w_j, with one number A for all rows of the client, one over P eta l, which the rating grid
takes. Beyond the papers; ``attacks.closed_form.uploads.moving_factor`` is the exact case of one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from attacks.client_rules.local_updates import FIRST, RANGE, RATE, LocalUpdates
from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.uploads.readings import Rows
from attacks.inversion.least_squares import Guess
from attacks.inversion.search import Starts

NUMBERS = 4  # of the grid, that are kept
FINENESS = 400  # of the search for A
FLAT = 1e-100  # least slope of a sigmoid that something is divided by
LENGTHS = np.geomspace(0.03, 20, 120)  # of u that are tried where nothing tells it
EXPLAINED = 0.9  # of how rows differ in direction, that the line leaves at most
REFINED = 3  # times, that g and the line are made of each other


class _Losses(NamedTuple):
    """From products of u and w (n,) to the prediction and what an error is multiplied by, in stars."""

    predicted: Callable[[Float[np.ndarray, " n"]], Float[np.ndarray, " n"]]
    times: Callable[[Float[np.ndarray, " n"]], Float[np.ndarray, " n"]]


def pass_starts(rows: Rows, levels: Float[np.ndarray, " levels"], rule: LocalUpdates, guess: Guess) -> Starts:
    """Starts of clients that go several times through their ratings."""
    users, n, k = rows.rows.shape
    out = Starts(
        np.zeros((users, NUMBERS, k)), np.zeros((users, NUMBERS, n)), np.full((users, NUMBERS), np.nan)
    )
    constants = guess.constants_of(1.0, 1.0)
    rate = None if guess.constants is None else float(np.exp(constants[RATE]))
    losses = _losses(rule.loss, constants[FIRST], constants[RANGE])
    for user in range(users):
        here = np.flatnonzero(rows.item[user])
        offset = rows.offset[user, here]
        if rule.loss != "squared" and offset.any():
            continue  # biases on the far side of the link: the rule has none
        step = here // (rule.batch_size or n)
        sent, v = rows.rows[user, here], rows.factors[user, here].astype(float)
        shares = 1 / np.bincount(step)[step] if rule.mean and here.size else np.ones(here.size)
        found = _starts(sent, v, offset, levels, step, shares, guess.value, losses, rate)
        for number, (factor, ratings, sigma) in enumerate(found):
            out.factor[user, number], out.sigma[user, number] = factor, sigma
            out.ratings[user, number, here] = ratings
    return out


def _losses(loss: str, first: float, range_: float) -> _Losses:
    if loss == "squared":
        return _Losses(lambda x: x, np.ones_like)
    if loss == "cross-entropy":
        return _Losses(lambda x: first + range_ * expit(x), lambda x: np.full_like(x, range_))
    return _Losses(lambda x: first + range_ * expit(x), lambda x: range_ / _slope(x))


def _slope(x: np.ndarray) -> np.ndarray:
    """Of the sigmoid, which is 0 in floating point far out."""
    return np.maximum(expit(x) * expit(-x), FLAT)


def _starts(
    sent: np.ndarray,
    v: np.ndarray,
    offset: np.ndarray,
    levels: np.ndarray,
    step: np.ndarray,
    shares: np.ndarray,
    passes: float,
    losses: _Losses,
    rate: float | None,
) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """u before the first pass, ratings less offset, and passes times eta."""
    if not (np.isfinite(sent).all() and np.abs(sent).max(initial=0) > 0) or len(sent) < 2:
        return []
    w = v + sent / 2
    drift = _drift(sent, w, step)
    if not drift.explains and step[-1] > 0:
        return []
    size = np.linalg.norm(drift.line.mean(axis=0))
    told = drift.kappa > 0 and rate is None and step[-1] > 0
    lengths = np.array([size / np.sqrt(passes * drift.kappa)]) if told else LENGTHS
    out: list[tuple[float, np.ndarray, np.ndarray, float]] = []
    for length in np.concatenate([lengths, -lengths]):  # of u, whose sign the rows do not tell
        product = (w * drift.line).sum(axis=1) / size * length
        error = drift.g * size / length / shares * losses.times(product)
        first = (drift.line[0] - (passes - 1) / 2 * drift.kappa * drift.before_next) / size * length
        numbers = None if rate is None else 1 / (passes * rate)
        near = near_the_grid(error, losses.predicted(product), offset, levels, numbers)
        out += [(away, first, ratings, sigma) for away, ratings, sigma in near]
    out.sort(key=lambda one: one[0])
    return [(first, ratings, sigma) for _, first, ratings, sigma in out[:NUMBERS]]


class _Drift(NamedTuple):
    """The line (n, K) along which each row is g (n,); kappa; S after the last step; whether the line explains
    most of how rows differ in direction.
    """

    line: Float[np.ndarray, "n K"]
    g: Float[np.ndarray, " n"]
    kappa: float
    before_next: Float[np.ndarray, " K"]
    explains: bool


def _drift(sent: np.ndarray, w: np.ndarray, step: np.ndarray) -> _Drift:
    """g and the line, made of each other a few times."""
    lead = np.linalg.svd(sent, full_matrices=False)[2][0]
    line = np.repeat(lead[None], len(sent), axis=0)
    kappa, before = 0.0, np.zeros((step[-1] + 2, w.shape[1]))
    for _ in range(REFINED):
        g = (sent * line).sum(axis=1) / (line**2).sum(axis=1)
        pushed = np.zeros_like(before)
        np.add.at(pushed, step + 1, g[:, None] * w)
        before = np.cumsum(pushed, axis=0)
        centre, kappa = _line(sent, g, before[step])
        line = centre + kappa * before[step]
    across = np.linalg.norm(sent - np.outer(sent @ lead, lead))
    left = np.linalg.norm(sent - g[:, None] * line)
    return _Drift(line, g, kappa, before[-1], bool(left < EXPLAINED * across))


def near_the_grid(
    error: Float[np.ndarray, " n"],
    predicted: Float[np.ndarray, " n"],
    offset: Float[np.ndarray, " n"],
    levels: Float[np.ndarray, " levels"],
    known: float | None,
) -> list[tuple[float, np.ndarray, float]]:
    """Find the few numbers A that put A error + predicted + offset nearest to the grid."""
    span = (levels[-1] - levels[0] or levels[0]) / max(np.abs(error).max(), 1e-300)
    numbers = np.geomspace(span / 20, 4 * span, FINENESS) if known is None else np.array([known])
    ratings = numbers[:, None] * error + predicted
    away = distance_to_levels(ratings + offset, levels).mean(axis=1)
    return [(away[at], ratings[at], 1 / numbers[at]) for at in _lowest(away)[:NUMBERS]]


def _line(sent: np.ndarray, g: np.ndarray, before: np.ndarray) -> tuple[np.ndarray, float]:
    """c and kappa of D = g (c + kappa S) by least squares."""
    total = (g**2).sum()
    pushed = g[:, None] * before
    row, push = ((g[:, None] * table).sum(axis=0) / total for table in (sent, pushed))
    off, apart = sent - g[:, None] * row, pushed - g[:, None] * push
    square = (apart**2).sum()
    kappa = float((off * apart).sum() / square) if square > 0 else 0.0
    return row - kappa * push, kappa


def _lowest(values: np.ndarray) -> np.ndarray:
    """Places that are lower than their neighbours, the lowest first."""
    padded = np.concatenate([[np.inf], values, [np.inf]])
    here = np.flatnonzero((values <= padded[:-2]) & (values <= padded[2:]) & np.isfinite(values))
    return here[np.argsort(values[here], kind="stable")]
