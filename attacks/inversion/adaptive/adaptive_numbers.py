"""A client's factor and errors from ratios of its gradients, up to the number that the rating grid tells.

Two steps of Adam over all ratings: the first moves u by eta tau, eta being the rate, and w_k by eta s_k f,
tau, s and f being signs (of the gradient of u, of the errors and of u; s f are those of the rows). With A and
B of ``attacks.inversion.adaptive.adaptive_ratios`` and one number c

    u_f = eta tau_f / (c B_f - 1),    e_k = D_k / (1 - A_k / c),
    D_k = eta (tau . v_k + s_k |u|_1 + eta s_k tau . f),

tau_f being f_f where c B_f > 1 and its opposite elsewhere. So c alone is open. e must have the signs s, the
gradient of u those of tau, and ratings e + u . v lie on the grid: c is searched for between the numbers where
a factor or an error would be infinite. After more steps, what the rows of such a client are beyond an even
course of the gradient is taken off, and the same is done again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.client_rules.adaptive_steps import CONSTANTS, RATE, Optimizer, upload
from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.inversion.adaptive.adaptive_ratios import Ratios, ratios, summed

EXACT, ABOUT = 1e-6, 1e-3  # of a step, that entries may be no sum of steps: of two, and of more
WITHIN = (0.02, 50.0)  # c, where the middle ratio of a column is 1
BEFORE_FIRST, AFTER_LAST = 0.8, 1.25  # times the first and the last place where a factor is infinite
PLACES, CLOSE = 20, 1e-3  # places between two infinite ones, and how near to these, of their distance
ZOOM, ZOOMED = 31, 4  # places about the best one, and how often
UNSURE = 0.1  # of a step: an error of a rating that halves its weight
SIGNS = 0.5  # weight of wrong signs beside the distance from the grid
FACTOR, ERROR = (1e-4, 20.0), (0.01, 30.0)  # sizes that are taken for possible
TINY, NARROWEST = 1e-12, 1e-5
SMALL_FACTOR, SMALL_ERROR = (1e-3, 10.0), (0.05, 8.0)  # the same, before anything is known of the rest
HYPOTHESES, PASSES, KEPT, AT_LAST = 3, 3, 5, 10  # where there are more than two steps
MOST_CORRECTED = 2.0  # of the rate


class Own(NamedTuple):
    """What one client sent."""

    rows: Float[np.ndarray, "n K"]  # changes of its copies, and the factors as broadcast
    factors: Float[np.ndarray, "n K"]  # changes of its copies, and the factors as broadcast
    offset: Float[np.ndarray, " n"]  # what everybody takes off its ratings, stars
    levels: Float[np.ndarray, " levels"]  # ratings that exist, ascending, stars
    digit: float  # what rounding leaves of the rows, relative to their size


class Start(NamedTuple):
    """A factor and errors that rows may come from."""

    off: float  # how far ratings are from the grid and signs are wrong, 0 and more
    factor: Float[np.ndarray, " K"]
    error: Float[np.ndarray, " n"]  # as rows tell them; both are turned round where ``way`` is -1
    way: int

    def ratings(self, own: Own) -> Float[np.ndarray, " n"]:
        """Of these, stars."""
        return self.way * (self.error + own.factors @ self.factor) + own.offset


class _Signs(NamedTuple):
    error: Float[np.ndarray, " n"]
    factor: Float[np.ndarray, " K"]


def starts(own: Own, optimizer: Optimizer, n_steps: int, rate: float) -> list[Start]:
    """Find factors and errors that rows may come from."""
    signs = _signs(own.rows)
    size = own.rows * np.outer(*signs) / rate
    first = rate * _walked(optimizer, 1)[1]
    if n_steps == 2:
        return _by_grid(own, signs, ratios(optimizer, 2, size, EXACT), first, AT_LAST)
    found = _by_rows(own, signs, optimizer, n_steps, rate, size)
    for number in range(PASSES + 1):
        new: list[Start] = []
        for one in found:
            beyond = _beyond_even(own, one, optimizer, n_steps, rate) * np.outer(*signs)
            told = ratios(optimizer, n_steps, size - beyond, ABOUT * n_steps)
            new += _by_grid(own, signs, told, first, 2 if number else KEPT)
        found = sorted(new, key=lambda one: one.off)[: AT_LAST if number == PASSES else KEPT]
    return found


def _walked(optimizer: Optimizer, n_steps: int) -> Float[np.ndarray, " walked"]:
    """How far steps lead where the gradient stays as it is, in units of the rate, none to all."""
    return np.array([float(summed(optimizer, t, np.ones(1))[0]) for t in range(n_steps + 1)])


def _signs(rows: np.ndarray) -> _Signs:
    """Signs of errors and factor, most errors being positive."""
    left, _, right = np.linalg.svd(np.sign(rows), full_matrices=False)
    error, factor = (np.where(part < 0, -1.0, 1.0) for part in (left[:, 0], right[0]))
    if (rows * np.outer(error, factor)).sum() < 0:
        factor = -factor
    return _Signs(-error, -factor) if error.sum() < 0 else _Signs(error, factor)


def _turned(signs: _Signs, told: Ratios) -> _Signs:
    return signs._replace(factor=np.where(told.turned, -signs.factor, signs.factor))


def _numbers(
    c: Float[np.ndarray, " m"], own: Own, signs: _Signs, told: Ratios, first: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """u (m, K), e and 1 - A / c (m, n) and tau (m, K) for some c."""
    grown, shrunk = c[:, None] * told.of_factor - 1, 1 - told.of_error / c[:, None]
    length = first / np.maximum(np.abs(grown), TINY)
    tau = signs.factor * np.sign(grown)
    moved = tau @ own.factors.T + signs.error * (length.sum(axis=1) + first * (tau @ signs.factor))[:, None]
    error = first * moved / np.where(np.abs(shrunk) < TINY, TINY, shrunk)
    return length * signs.factor, error, shrunk, tau


def _off(
    c: Float[np.ndarray, " m"], own: Own, signs: _Signs, told: Ratios, first: float, way: int
) -> Float[np.ndarray, " m"]:
    """How far from the grid ratings are, those most that are told best, and which signs are wrong."""
    factor, error, shrunk, tau = _numbers(c, own, signs, told, first)
    ratings = way * (error + factor @ own.factors.T) + own.offset
    step = step_of(own.levels)
    away = np.minimum(distance_to_levels(ratings, own.levels) / step, 0.5) * 2
    unsure = error * np.maximum(told.width, NARROWEST) / np.maximum(np.abs(shrunk), TINY)
    weight = 1 / (1 + (unsure / (UNSURE * step)) ** 2) + CLOSE
    wrong = (np.sign(error) != signs.error).mean(axis=1) + (np.sign(error @ own.factors) != tau).mean(axis=1)
    return (away * weight).sum(axis=1) / weight.sum(axis=1) * (
        1 + 0.3 * (1 - weight.mean(axis=1))
    ) + SIGNS * wrong


def _edges(of_factor: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Numbers c where a factor, or an error, is infinite, and one before and after."""
    all_ = np.unique(np.concatenate([1 / of_factor[of_factor > 0], more[more > 0]]))
    inner = all_[(all_ > WITHIN[0]) & (all_ < WITHIN[1])]
    inner = inner if inner.size else np.ones(1)
    return np.concatenate([[inner[0] * BEFORE_FIRST], inner, [inner[-1] * AFTER_LAST]])


def _between(edges: np.ndarray, close: float) -> Float[np.ndarray, " m"]:
    """Places between edges, denser near these."""
    half = np.geomspace(close, 0.5, PLACES // 2)
    places = np.concatenate([half, 1 - half[::-1][1:]])
    return (edges[:-1, None] + np.diff(edges)[:, None] * places).ravel()


def _by_grid(own: Own, signs: _Signs, told: Ratios, first: float, keep: int) -> list[Start]:
    """Factors and errors for the c that put ratings nearest to the grid."""
    signs = _turned(signs, told)
    c = _between(_edges(told.of_factor, told.of_error), CLOSE)
    out = []
    for way in (1, -1):
        off = _off(c, own, signs, told, first, way)
        low = np.r_[True, off[1:] <= off[:-1]] & np.r_[off[:-1] <= off[1:], True]
        places = np.flatnonzero(low)
        places = places[np.argsort(off[places])[: 3 * keep]]
        best, at = off[places], c[places]
        low_end, high_end = c[np.maximum(places - 1, 0)], c[np.minimum(places + 1, c.size - 1)]
        for _ in range(ZOOMED):  # about all places at once
            near = np.linspace(low_end, high_end, ZOOM, axis=1)
            here = _off(near.ravel(), own, signs, told, first, way).reshape(near.shape)
            least = here.argmin(axis=1)[:, None]
            new, where = np.take_along_axis(here, least, 1)[:, 0], np.take_along_axis(near, least, 1)[:, 0]
            at, best = np.where(new < best, where, at), np.fmin(new, best)
            by = 2 * (high_end - low_end) / (ZOOM - 1)
            low_end, high_end = at - by, at + by
        out += [(*one, way) for one in zip(best.tolist(), at.tolist(), strict=True)]
    out = sorted(out)[:keep]
    factor, error, _, _ = _numbers(np.array([at for _, at, _ in out]), own, signs, told, first)
    factor = signs.factor * np.clip(np.abs(factor), *FACTOR)
    error = signs.error * np.clip(signs.error * error, *ERROR)
    return [Start(one[0], u, e, one[2]) for one, u, e in zip(out, factor, error, strict=True)]


def _constants(rate: float) -> Float[np.ndarray, " c"]:
    out = np.zeros(len(CONSTANTS))
    out[RATE] = np.log(rate)
    return out


def _by_rows(
    own: Own, signs: _Signs, optimizer: Optimizer, n_steps: int, rate: float, size: np.ndarray
) -> list[Start]:
    """Factors and errors by which rows are explained best, one for each tau, before the grid is asked."""
    told = ratios(optimizer, n_steps, size, ABOUT * n_steps)
    signs = _turned(signs, told)
    c = _between(_edges(told.of_factor, np.zeros(0)), 30 * CLOSE)
    walked = _walked(optimizer, n_steps)
    factor, error, _, tau = _numbers(c, own, signs, told, rate * walked[1])
    wrong = (np.sign(error) != signs.error).mean(axis=1)
    factor = signs.factor * np.clip(np.abs(factor), *SMALL_FACTOR)
    error = signs.error * np.clip(signs.error * error, *SMALL_ERROR)
    wrong += (np.sign(error @ own.factors) != tau).mean(axis=1)
    path = factor[:, None] + rate * walked[None, :-1, None] * tau[:, None]
    constants = np.tile(_constants(rate), (c.size, 1))
    made = upload(optimizer, n_steps, factor, error, constants, own.factors, path).rows
    left = np.linalg.norm(made - own.rows, axis=(1, 2)) / np.linalg.norm(own.rows)
    out: dict[bytes, Start] = {}
    for place in np.argsort(np.log(np.maximum(left, TINY)) + 2 * wrong):
        out.setdefault(tau[place].tobytes(), Start(0.0, factor[place], error[place], 1))
        if len(out) == HYPOTHESES:
            break
    return list(out.values())


def _beyond_even(
    own: Own, one: Start, optimizer: Optimizer, n_steps: int, rate: float
) -> Float[np.ndarray, "n K"]:
    """What a start's rows are more than those of gradients with an even course, in units of the rate."""
    made = upload(optimizer, n_steps, one.factor, one.error, _constants(rate), own.factors)
    first = rate * _walked(optimizer, 1)[1]
    second = own.factors + first * np.outer(np.sign(one.error), np.sign(one.factor))
    error = one.error + own.factors @ one.factor - second @ made.path[1]
    even = summed(optimizer, n_steps, np.outer(error / one.error, made.path[1] / one.factor))
    signed = np.outer(np.sign(one.error), np.sign(one.factor))
    beyond = made.rows / rate - signed * even
    return np.clip(np.nan_to_num(beyond), -MOST_CORRECTED, MOST_CORRECTED)
