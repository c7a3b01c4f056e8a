"""The two numbers under which one client's ratings lie on the grid through one link: trials, and their fit.

Beyond the papers, for ``attacks.closed_form.links.link_grid``, where the equation y = p(B h + b) + A g m(B h
+ b) stands. B is sought on a grid fine enough for its basin, A is told by any level of one row, and the
nearest few are fitted to the levels that they name.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.fit.decoding import beside_levels, distance_to_levels, nearest_level
from attacks.closed_form.fit.goodness_of_fit import FIT_ROWS, step_of
from attacks.closed_form.links.links import Link, Numbers, Scaled

REACH = np.geomspace(0.05, 25.0, 320)  # largest product that a prediction goes through: steps of 2 %
KEPT = 12  # trials of a client and link that are fitted
STEPS = 8  # of Gauss and Newton
LEAST = 1e-3  # of a step, by which predictions must differ
AT_ONCE = 100_000  # numbers
UNEVEN = 1e-6  # of a step, that levels are equally far apart to
ERRORS = 0.25  # of a step, that the errors of a client are in the mean, at least


class Client(NamedTuple):
    """g, h and b (rows,), of size 1 where they are divided by ``unit``; or of the client of each trial."""

    scalar: Float[np.ndarray, "*trials rows"]
    along: Float[np.ndarray, "*trials rows"]
    bias: Float[np.ndarray, "*trials rows"]


class Trials(NamedTuple):
    """Some trials of one client."""

    numbers: Float[np.ndarray, "trials 2"]  # A and B
    named: Float[np.ndarray, "trials rows"]  # levels, in stars
    worst: Float[np.ndarray, " trials"]  # distance of the rows from them
    mean: Float[np.ndarray, " trials"]  # distance of the rows from them
    spread: Float[np.ndarray, " trials"]  # how much predictions differ, in stars


def fitted_trials(
    clients: Sequence[Client], through: Scaled, levels: Float[np.ndarray, " levels"]
) -> list[Trials]:
    """Find the numbers under which clients' ratings are nearest to the grid, each by least squares."""
    most = max((one.scalar.size for one in clients), default=1)
    some = max(1, AT_ONCE // (KEPT * most))
    out: list[Trials] = []
    for at in range(0, len(clients), some):
        few = clients[at : at + some]
        numbers = [_nearest(one, through, levels) for one in few]
        out += _fitted(numbers, few, through, levels)
    return out


def values_of(
    numbers: Float[np.ndarray, "trials 2"], client: Client, link: Link
) -> tuple[Numbers, Numbers, Numbers]:
    """What a client's ratings are under some A and B, and how they change with both."""
    a, b = numbers[:, :1], numbers[:, 1:]
    p, slope, times, bend = link.curve(b * client.along + client.bias)
    error = client.scalar * times
    return p + a * error, error, client.along * (slope + a * client.scalar * bend)


def _nearest(client: Client, through: Scaled, levels: np.ndarray) -> Numbers:
    """The A and B of a few trials that are nearest to the grid, (few, 2)."""
    how, first, range_ = through.link, through.first, through.range
    some = Client(*(part[:: max(1, -(-part.size // FIT_ROWS))] for part in client))
    y = (levels - first) / range_
    b = np.concatenate([REACH, -REACH])
    p, _, times, _ = how.curve(b[:, None] * some.along + some.bias)
    error = some.scalar * times
    row = np.abs(error).argmax(axis=1)
    every = np.arange(b.size)
    a = (y - p[every, row][:, None]) / error[every, row][:, None]
    away = _mean_distance(p, error, a, y)
    # a link that is 0 or 1 in all rows is on the grid without any error
    errors = np.abs(a) * np.abs(error).mean(axis=1, keepdims=True)
    away[errors * range_ < ERRORS * step_of(levels)] = np.inf
    away = np.where(_lowest(away, REACH.size), away, np.inf)
    near = np.argsort(away, axis=None, kind="stable")[:KEPT]
    near = near[np.isfinite(away.ravel()[near])]
    at, level = np.unravel_index(near, away.shape)
    return np.stack([a[at, level], b[at]], axis=1)


def _mean_distance(
    p: Numbers, error: Numbers, a: Float[np.ndarray, "numbers levels"], y: Float[np.ndarray, " levels"]
) -> Float[np.ndarray, "numbers levels"]:
    """How far p + a error is from the levels in the mean."""
    step = (y[-1] - y[0]) / max(y.size - 1, 1)
    if y.size < 2 or np.abs(np.diff(y) - step).max() > UNEVEN * step:
        return distance_to_levels(p[:, None] + a[..., None] * error[:, None], y).mean(axis=2)
    # single precision tells which trials are fitted; some at a time stay near the processor
    times, errors, places = (one.astype(np.float32) for one in (a / step, error, (p - y[0]) / step))
    out, some = np.empty(a.shape), max(1, AT_ONCE // (y.size * p.shape[1]))
    for at in range(0, len(a), some):
        here = slice(at, at + some)
        place = times[here, :, None] * errors[here, None]
        place += places[here, None]
        off = beside_levels(place, y.size)
        out[here] = np.abs(off, out=off).mean(axis=2)
    return out * step


def _lowest(away: Float[np.ndarray, "numbers levels"], run: int) -> Bool[np.ndarray, "numbers levels"]:
    """Who is no farther than the neighbours, in runs of ascending numbers."""
    table = away.reshape(-1, run, away.shape[1])
    edge = np.full((table.shape[0], 1, table.shape[2]), np.inf)
    before, after = (np.concatenate(pair, axis=1) for pair in ((edge, table[:, :-1]), (table[:, 1:], edge)))
    return ((table <= before) & (table <= after)).reshape(away.shape)


def _fitted(
    numbers: list[Float[np.ndarray, "_ 2"]],  # of each client as many as there are
    clients: Sequence[Client],
    through: Scaled,
    levels: np.ndarray,
) -> list[Trials]:
    """Each trial by least squares from the levels that it names; those of all clients at once."""
    how, first, range_ = through.link, through.first, through.range
    y = (levels - first) / range_
    owner = np.repeat(np.arange(len(clients)), [len(one) for one in numbers])
    client, real = _padded(clients)
    client, real, n_rows = Client(*(part[owner] for part in client)), real[owner], real.sum(axis=1)[owner]
    tried = np.concatenate(numbers)

    def mean(part: Numbers) -> Float[np.ndarray, " trials"]:
        return np.where(real, part, 0).sum(axis=1) / n_rows

    with np.errstate(all="ignore"):
        for _ in range(STEPS):
            value, by_a, by_b = values_of(tried, client, how)
            tried = tried + gauss_newton(nearest_level(value, y) - value, by_a, by_b)
        value, _, _ = values_of(tried, client, how)
        p, _, _, _ = how.curve(tried[:, 1:] * client.along + client.bias)
        named = nearest_level(value, y)
        off = np.where(real, np.abs(named - value) * range_, 0)
        error = mean(np.abs(named - p)) * range_
    good = np.isfinite(value).all(axis=1) & (error >= ERRORS * step_of(levels))
    spread = mean(np.abs(p - mean(p)[:, None])) * range_
    stars = nearest_level(named * range_ + first, levels)
    worst, away = off.max(axis=1), mean(off)

    def of(number: int, size: int) -> Trials:
        here = good & (owner == number)
        return Trials(
            numbers=tried[here],
            named=stars[here, :size],
            worst=worst[here],
            mean=away[here],
            spread=spread[here],
        )

    return [of(number, one.scalar.size) for number, one in enumerate(clients)]


def _padded(clients: Sequence[Client]) -> tuple[Client, Bool[np.ndarray, "clients rows"]]:
    """Clients (clients, rows), with rows of zeros, which change no fit; and which rows are theirs."""
    sizes = np.array([one.scalar.size for one in clients])
    real = np.arange(sizes.max()) < sizes[:, None]
    padded = Client(*np.zeros((3, *real.shape)))
    for part, own in zip(padded, zip(*clients, strict=True), strict=True):
        part[real] = np.concatenate(own)
    return padded, real


def gauss_newton(left: Numbers, by_a: Numbers, by_b: Numbers) -> Float[np.ndarray, "trials 2"]:
    """One step of Gauss and Newton in A and B; 0 where the two are not told apart."""
    aa, ab, bb = ((x * y).sum(axis=1) for x, y in combinations_with_replacement((by_a, by_b), 2))
    determinant = aa * bb - ab**2
    right = (left * by_a).sum(axis=1), (left * by_b).sum(axis=1)
    able = np.isfinite(determinant) & (determinant > 1e-14 * aa * bb)
    under = np.where(able, determinant, 1.0)
    step = np.stack([bb * right[0] - ab * right[1], aa * right[1] - ab * right[0]], axis=1) / under[:, None]
    return np.where(able[:, None] & np.isfinite(step), step, 0.0)
