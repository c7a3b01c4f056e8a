"""Two open numbers per client, where its predictions go through a link: the grid on the link's other side.

Beyond the papers, for programs whose predictions are a sigmoid of the product of the factors, or are clipped
to the range of ratings. Any loss that is a function of a rating and its prediction leaves rows of one
direction (``attacks.closed_form.rank_one``), or a chain of them (``attacks.closed_form.moving_factor``):
these need to know nothing of the errors. With g the row along that direction, h = d . v and b the item's
known bias, a rating is

    y = p(B h + b) + A g m(B h + b),

p the link and m one over what the loss multiplies the error by: 1 for cross-entropy (y - p), 1 / (p (1 - p))
for squared errors through a sigmoid, 1 for a clipped prediction. y is the rating as the program has it: r
itself, r over the highest level, or r from 0 at the lowest to 1 at the highest. B is sought on a grid fine
enough for its basin, A is told by any level of one row, and the nearest few are fitted to the levels that
they name. It is a search in one dimension, which takes no start and no constant of the step.

What it assumes: uploads in the clear, exact to their last digits; more rows than two; a grid of a hundred
levels at most. It answers where one
list of ratings leaves no more than rounding, and no list under any other link does.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.affine_grid import MOST_TRIALS
from attacks.closed_form.decoding import distance_to_levels, nearest_level
from attacks.closed_form.goodness_of_fit import FIT_ROWS, accidental, step_of

REACH = np.geomspace(0.05, 25.0, 320)  # largest product that a prediction goes through: steps of 2 %
LARGEST = 30.0  # products beyond which a sigmoid is 0 or 1 to the last digits
KEPT = 12  # trials of a client and link that are fitted
STEPS = 8  # of Gauss and Newton
HALF = 0.5  # of the digits that rows have, which right ratings keep
CLEARLY = 30.0  # times what the best leaves, that all other ratings must leave
TELLING = 0.2  # of how much predictions differ: what is farther from the grid owes it to the errors alone
LEAST = 1e-3  # of a step, by which predictions must differ
ACCIDENT = 1e-4  # probability that a client's rows about nothing are answered
ERRORS = 0.25  # of a step, that the errors of a client are in the mean, at least
FEWEST = 4  # rows of a client that is answered

Numbers = Float[np.ndarray, "*shape"]
Curve = Callable[[Numbers], tuple[Numbers, Numbers, Numbers, Numbers]]


class Link(NamedTuple):
    """A link with a loss.

    Attributes
    ----------
    name : str
    curve : callable
        From products to p, its derivative, m and its derivative.
    unit : bool
        Whether predictions lie in 0..1, and ratings are mapped there.
    """

    name: str
    curve: Curve
    unit: bool = True


class Through(NamedTuple):
    """What is told of some clients.

    Attributes
    ----------
    value : (users, rows)
        Ratings in stars; NaN where not told.
    told : (users,) bool
    misfit : (users,)
        Mean distance from the grid, of what chance gives; NaN where nothing is told.
    link : (users,)
        Place in ``LINKS``; -1 where nothing is told.
    """

    value: Float[np.ndarray, "users rows"]
    told: Bool[np.ndarray, " users"]
    misfit: Float[np.ndarray, " users"]
    link: np.ndarray


class Client(NamedTuple):
    """g, h and b (rows,), of size 1 where they are divided by ``unit``."""

    scalar: Float[np.ndarray, " rows"]
    along: Float[np.ndarray, " rows"]
    bias: Float[np.ndarray, " rows"]


class _Trials(NamedTuple):
    """Some trials of one client.

    Attributes
    ----------
    numbers : (trials, 2)
        A and B.
    named : (trials, rows)
        Levels, in stars.
    worst, mean : (trials,)
        Distance of the rows from them.
    spread : (trials,)
        How much predictions differ, in stars.
    moving : (trials,)
        Rows whose prediction the link moves: at its end, errors are on the grid for any multiple of them.
    """

    numbers: Float[np.ndarray, "trials 2"]
    named: Float[np.ndarray, "trials rows"]
    worst: Float[np.ndarray, " trials"]
    mean: Float[np.ndarray, " trials"]
    spread: Float[np.ndarray, " trials"]
    moving: Float[np.ndarray, " trials"]


def _sigmoid(product: Numbers) -> tuple[Numbers, Numbers]:
    p = 1 / (1 + np.exp(-np.clip(product, -LARGEST, LARGEST)))
    return p, p * (1 - p)


def cross_entropy(product: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """The curve of the loss whose error is y - p.

    Parameters
    ----------
    product : array
        u . v + bias, any shape.

    Returns
    -------
    p, slope, times, bend : arrays of that shape
        The sigmoid, its derivative, m and its derivative by the product.
    """
    p, slope = _sigmoid(product)
    return p, slope, np.ones_like(p), np.zeros_like(p)


def squared_sigmoid(product: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """The curve of the loss whose error is (y - p) p (1 - p).

    Parameters
    ----------
    product : array
        u . v + bias, any shape.

    Returns
    -------
    p, slope, times, bend : arrays of that shape
        The sigmoid, its derivative, m and its derivative by the product.
    """
    p, slope = _sigmoid(product)
    return p, slope, 1 / slope, (2 * p - 1) / slope


def _clipped(low: float, high: float) -> Curve:
    def curve(product: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        inside = ((product > low) & (product < high)).astype(float)
        return np.clip(product, low, high), inside, np.ones_like(product), np.zeros_like(product)

    return curve


def _links(levels: Float[np.ndarray, " levels"]) -> list[tuple[int, Link, float, float]]:
    """Links to try: number, link, and y = (r - first) / range."""
    low, high = float(levels[0]), float(levels[-1])
    maps = [(0.0, high)] if low <= 0 or levels.size == 1 else [(0.0, high), (low, high - low)]
    sigmoids = (Link("cross-entropy", cross_entropy), Link("squared", squared_sigmoid))
    tried = [(2 * n + m, link, *maps[m]) for n, link in enumerate(sigmoids) for m in range(len(maps))]
    clipped = [(4, Link("clipped", _clipped(low, high), unit=False), 0.0, 1.0)] if levels.size > 1 else []
    return [*tried, *clipped]


LINKS = (
    "cross-entropy of r / highest",
    "cross-entropy of (r - lowest) / range",
    "squared error of a sigmoid, r / highest",
    "squared error of a sigmoid, (r - lowest) / range",
    "predictions clipped to the range of ratings",
)


def ratings_through_links(
    scalar: Float[np.ndarray, "users rows"],
    along: Float[np.ndarray, "users rows"],
    bias: Float[np.ndarray, "users rows"],
    valid: Bool[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
    precision: float,
) -> Through:
    """Find the ratings of each client that lie on the grid through one of ``LINKS``.

    Parameters
    ----------
    scalar, along : (users, rows)
        g and h, up to one number each.
    bias : (users, rows)
        What everybody adds to the product.
    valid : (users, rows) bool
        Rows that count.
    levels : (levels,)
        Ratings that exist, ascending, stars.
    precision : float
        Relative size of the rows' last digit.

    Returns
    -------
    Through

    Examples
    --------
    >>> random = np.random.RandomState(0)
    >>> h, r = random.randn(1, 9), random.randint(1, 6, (1, 9)) * 1.0
    >>> p = 1 / (1 + np.exp(-1.7 * h))
    >>> found = ratings_through_links(
    ...     0.3 * (r / 5 - p), h, 0 * h, h == h, np.arange(1.0, 6.0), 2e-16)
    >>> bool((found.value == r).all()), LINKS[found.link[0]]
    (True, 'cross-entropy of r / highest')
    """
    users, n_rows = scalar.shape
    value, misfit = np.full((users, n_rows), np.nan), np.full(users, np.nan)
    told, link = np.zeros(users, bool), np.full(users, -1)
    able = (valid & (scalar != 0)).sum(axis=1) >= FEWEST
    for user in np.flatnonzero(able & (levels.size**2 <= MOST_TRIALS)):
        here = valid[user] & (scalar[user] != 0)
        client = Client(scalar[user, here], along[user, here], bias[user, here])
        answer = _answer(client, levels, precision)
        if answer is not None:
            number, ratings, away = answer
            value[user, here], misfit[user] = ratings, away
            told[user], link[user] = True, number
    return Through(value, told, misfit, link)


def _answer(
    client: Client, levels: np.ndarray, precision: float
) -> tuple[int, Float[np.ndarray, " rows"], float] | None:
    """The link, the ratings and their misfit, where nothing else is as near to the grid."""
    size = np.abs(client.scalar).max(), np.abs(client.along).max()
    if not (np.isfinite(size).all() and min(size) > 0 and np.isfinite(client.bias).all()):
        return None
    client = Client(client.scalar / size[0], client.along / size[1], client.bias)
    links = _links(levels)
    found = [_fitted(_nearest(client, one, levels), client, one, levels) for one in links]
    named, worst, mean, spread, moving = (
        np.concatenate([np.asarray(getattr(part, name)) for part in found])
        for name in ("named", "worst", "mean", "spread", "moving")
    )
    number = np.repeat([one[0] for one in links], [len(part.worst) for part in found])
    if not worst.size:
        return None
    best = int(np.argmin(worst))
    step = step_of(levels)
    limit = step * precision**HALF
    away = float(mean[best] / (step / 4))
    rivals = worst[(named != named[best]).any(axis=1)]
    n_tried = len(links) * levels.size**2
    chance = accidental(np.array([int(moving[best]) - 2]), n_tried, ACCIDENT)[0]
    # predictions that are one number take no part, and rows tell ratings up to a multiple
    told = worst[best] <= limit and away <= chance and spread[best] > max(mean[best] / TELLING, LEAST * step)
    told &= bool((rivals > max(limit, CLEARLY * worst[best])).all())
    return (int(number[best]), named[best], away) if told else None


def values_of(
    numbers: Float[np.ndarray, "trials 2"], client: Client, link: Link
) -> tuple[Numbers, Numbers, Numbers]:
    """What a client's ratings are under some A and B, and how they change with both.

    Parameters
    ----------
    numbers : (trials, 2)
        A and B.
    client : Client
    link : Link

    Returns
    -------
    y, by_a, by_b : (trials, rows)
        Ratings as the program has them, and their derivatives by A and B.
    """
    a, b = numbers[:, :1], numbers[:, 1:]
    p, slope, times, bend = link.curve(b * client.along + client.bias)
    error = client.scalar * times
    return p + a * error, error, client.along * (slope + a * client.scalar * bend)


def _nearest(client: Client, link: tuple[int, Link, float, float], levels: np.ndarray) -> Numbers:
    """The A and B of a few trials that are nearest to the grid, (few, 2)."""
    _, how, first, range_ = link
    some = Client(*(part[:: max(1, -(-part.size // FIT_ROWS))] for part in client))
    y = (levels - first) / range_
    reach = REACH if how.unit else REACH * float(np.abs(levels).max())
    b = np.concatenate([reach, -reach])
    p, _, times, _ = how.curve(b[:, None] * some.along + some.bias)
    error = some.scalar * times
    row = np.abs(error).argmax(axis=1)
    every = np.arange(b.size)
    a = (y - p[every, row][:, None]) / error[every, row][:, None]
    error = a[..., None] * error[:, None]
    away = distance_to_levels(p[:, None] + error, y).mean(axis=2)
    # a link that is 0 or 1 in all rows is on the grid without any error
    away[np.abs(error).mean(axis=2) * range_ < ERRORS * step_of(levels)] = np.inf
    away = np.where(_lowest(away, REACH.size), away, np.inf)
    near = np.argsort(away, axis=None, kind="stable")[:KEPT]
    near = near[np.isfinite(away.ravel()[near])]
    at, level = np.unravel_index(near, away.shape)
    return np.stack([a[at, level], b[at]], axis=1)


def _lowest(away: Float[np.ndarray, "numbers levels"], run: int) -> Bool[np.ndarray, "numbers levels"]:
    """Who is no farther than the neighbours, in runs of ascending numbers."""
    table = away.reshape(-1, run, away.shape[1])
    edge = np.full((table.shape[0], 1, table.shape[2]), np.inf)
    before, after = (np.concatenate(pair, axis=1) for pair in ((edge, table[:, :-1]), (table[:, 1:], edge)))
    return ((table <= before) & (table <= after)).reshape(away.shape)


def _fitted(
    numbers: Float[np.ndarray, "trials 2"],
    client: Client,
    link: tuple[int, Link, float, float],
    levels: np.ndarray,
) -> _Trials:
    """Each trial by least squares from the levels that it names."""
    _, how, first, range_ = link
    y = (levels - first) / range_
    with np.errstate(all="ignore"):
        for _ in range(STEPS):
            value, by_a, by_b = values_of(numbers, client, how)
            numbers = numbers + gauss_newton(nearest_level(value, y) - value, by_a, by_b)
        value, _, _ = values_of(numbers, client, how)
        p, slope, _, _ = how.curve(numbers[:, 1:] * client.along + client.bias)
        named = nearest_level(value, y)
        off = np.abs(named - value) * range_
        error = np.abs(named - p).mean(axis=1) * range_
    good = np.isfinite(value).all(axis=1) & (error >= ERRORS * step_of(levels))
    spread = np.abs(p - p.mean(axis=1, keepdims=True)).mean(axis=1) * range_
    stars = nearest_level(named[good] * range_ + first, levels)
    return _Trials(
        numbers[good],
        stars,
        off[good].max(axis=1),
        off[good].mean(axis=1),
        spread[good],
        (slope > LEAST).sum(axis=1)[good].astype(float),
    )


def gauss_newton(left: Numbers, by_a: Numbers, by_b: Numbers) -> Float[np.ndarray, "trials 2"]:
    """One step of Gauss and Newton in A and B; 0 where the two are not told apart.

    Parameters
    ----------
    left : (trials, rows)
        Nearest level less y.
    by_a, by_b : (trials, rows)
        Derivatives of y.

    Returns
    -------
    (trials, 2)
        What to add to A and B.
    """
    aa, ab, bb = ((x * y).sum(axis=1) for x, y in combinations_with_replacement((by_a, by_b), 2))
    determinant = aa * bb - ab**2
    right = (left * by_a).sum(axis=1), (left * by_b).sum(axis=1)
    able = np.isfinite(determinant) & (determinant > 1e-14 * aa * bb)
    under = np.where(able, determinant, 1.0)
    step = np.stack([bb * right[0] - ab * right[1], aa * right[1] - ab * right[0]], axis=1) / under[:, None]
    return np.where(able[:, None] & np.isfinite(step), step, 0.0)
