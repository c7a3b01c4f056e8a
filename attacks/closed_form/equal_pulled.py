"""A step after every rating, all factors equal, and a multiple of its factor in each row that nobody told.

As ``attacks.closed_form.equal_unscaled`` of the published start of paper 001, whose clients regularise the
item as well: g_k = sigma (e_k s_k - mu h_k), and s_{k+1} = a s_k + b e_k h_k. With c = sigma mu,
G_k = g_k + c h_k and lengths in units of the first, S_k = s_k / s_0,

    r_k = A G_k / S_k + (p / A) S_k h_k,    S_{k+1} = a S_k + rho A^2 h_k G_k / S_k,
    A = 1 / (sigma s_0),    p = 1 / sigma,    rho = b sigma,

and where a row is about the length after the step S_{k+1}^2 = a S_k S_{k+1} + rho A^2 h_k G_k, with
G_k / S_{k+1} in place of G_k / S_k. Four of the five numbers, p, rho, c and a, are the same for all clients;
in the first round the fifth, A, is so, too.

Regularisation is small: with a = 1 and c = 0, or 1 where rows were taken for weights and lost their factor,
a client with many ratings names most of them, and Newton's steps from the levels that it names reach all five
numbers, to the digits. Its four numbers are lent to the others, of whom each level of the first row leaves
two A, and are fitted together with every A. Where clients start alike a single row is enough, and clients
with few ratings are asked together, with one A.

What else could be meant is asked of all clients together. Ratings less some number would be another column of
that fit: that number has to be 0 as far as rows tell, and they have to tell it. Multiples of the ratings, c A
and c B, fit as well: where all of them are on the grid, a declared p says which.

What it assumes: the order of the rows, uploads in the clear, constants that all clients share, seven ratings
of one client, or of clients that start alike.

References
----------
Paper 001: D. Chai et al., "Secure Federated Matrix Factorization", arXiv:1906.05108, Algorithm 1 and its
published program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.affine_grid import nearest_numbers
from attacks.closed_form.credible import one_multiple
from attacks.closed_form.decoding import distance_to_levels, nearest_level
from attacks.closed_form.goodness_of_fit import accidental, step_of

LEAST_ROWS = 7  # that tell all five numbers, and two ratings more
ASKED, SILENT = 4, 2  # clients that are asked, those with most ratings; how many if none of them tells
ENOUGH_ROWS = 32  # of clients that are asked together
GROWN = np.exp(np.linspace(-0.4, 3.6, 201))  # lengths at the end, in units of the first: 2 % apart
FITTED, MOST_NAMED = 12, 4  # starts that are fitted, and different ratings that they may name
KEPT = (1e-2, 1e-3, 1e-4, 1e-6, 1e-8, 1e-11, 1e-14)  # singular values that a step counts: a few first
DIGITS = 64.0  # times the last digit of the highest level, that an answer may be off the grid
EXACT = 1e-9  # of a step, below which an answer is on the grid whatever the digits
MOST_PAIRS = 10_000  # of levels
LOOSE = 0.05  # of a step, that lent numbers may leave before they are fitted
CLEARLY = 30.0  # times as far off as the best, that others must be
MOST = 0.75  # share of the clients with ``LEAST_ROWS`` ratings that have to be read
PART, SURE = 0.1, 6.0  # of a step, that ratings may be less by, with so many standard errors
ALIKE = 1e-5  # relative, within which starts are one
SAME_SCALE = 1e-3  # relative, within which a scale is the declared one
FEWEST = 3  # clients that tell a start
UNIT = 1e-30  # imaginary, of a derivative by complex steps


class Pulled(NamedTuple):
    """What clients' rows say.

    Attributes
    ----------
    value : (users, rows)
        Ratings in stars, NaN where not told.
    told : (users,) bool
    pull : (users,)
        What is to be taken off rows, as a multiple of their factors: -c.
    of_error, of_factor : (users,)
        A, and p / A.
    """

    value: Float[np.ndarray, "users rows"]
    told: Bool[np.ndarray, " users"]
    pull: Float[np.ndarray, " users"]
    of_error: Float[np.ndarray, " users"]
    of_factor: Float[np.ndarray, " users"]


class _Lists(NamedTuple):
    """g, h, offset, and whether there is a row, (users, rows), in the order in which they were sent."""

    g: Float[np.ndarray, "users rows"]
    h: Float[np.ndarray, "users rows"]
    offset: Float[np.ndarray, "users rows"]
    there: Bool[np.ndarray, "users rows"]

    def of(self, here: Any) -> _Lists:
        """Those of some clients."""
        return _Lists(*(part[here] for part in self))


class _Grid(NamedTuple):
    """The rating grid, how far off it exact answers are at most, and whether rows are about later lengths."""

    levels: Float[np.ndarray, " levels"]
    tolerance: float
    after: bool

    def missed(self, value: np.ndarray, there: np.ndarray) -> np.ndarray:
        """Largest distance from the grid; infinite off the numbers."""
        away = np.where(there, distance_to_levels(value, self.levels), 0.0).max(axis=-1)
        return np.where(np.isfinite(away), away, np.inf)


class _Together(NamedTuple):
    """Numbers (users, 5), ratings in the order sent, whom they explain, and whether that is unequivocal."""

    numbers: Float[np.ndarray, "users 5"]
    value: Float[np.ndarray, "users rows"]
    told: Bool[np.ndarray, " users"]
    clear: bool


def follow_pulled(
    scalar: Float[np.ndarray, "users rows"],
    along: Float[np.ndarray, "users rows"],
    offset: Float[np.ndarray, "users rows"],
    valid: Bool[np.ndarray, "users rows"],
    sequence: Int[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
    precision: float,
    *,
    after: bool = False,
    scale_known: bool = False,
    pulls: tuple[float, ...] = (0.0,),
) -> Pulled:
    """Follow all clients' lengths from row to row under any scale, rate and regularisation.

    Parameters
    ----------
    scalar, along : (users, rows)
        g and h.
    offset : (users, rows)
        What the program adds to a prediction and everybody knows, stars.
    valid : (users, rows) bool
    sequence : (users, rows) int
        The order in which a client sent its rows.
    levels : (n_levels,)
        Ascending, stars.
    precision : float
        Relative size of the rows' last digit.
    after : bool
        Whether a row is the error times the length after the step.
    scale_known : bool
        Whether rows were divided by a declared scale, p = 1: it tells multiples apart, and nothing else.
    pulls : tuple of float
        What c is about, one after the other until one explains something.

    Returns
    -------
    Pulled

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> r, h, s, g = rng.choice(np.arange(1.0, 6.0), (4, 12)), np.full((4, 12), 0.02), np.full(4, 0.02), []
    >>> for k in range(12):
    ...     error = r[:, k] - s * h[:, k]
    ...     g.append(-0.3 * (error * s - 0.01 * h[:, k]))
    ...     s = 0.999 * s + 0.01 * error * h[:, k]
    >>> order, all_, none = np.tile(np.arange(12), (4, 1)), np.ones((4, 12), bool), np.zeros((4, 12))
    >>> found = follow_pulled(np.stack(g, axis=1), h, none, all_, order, np.arange(1.0, 6.0), 2.0**-52)
    >>> bool(found.told.all() and np.abs(found.value - r).max() < 1e-9), found.pull[0].round(9)
    (True, np.float64(0.003))
    """
    grid = _Grid(levels, max(DIGITS * precision * np.abs(levels).max(), EXACT * step_of(levels)), after)
    order = np.argsort(np.where(valid, sequence, np.inf), axis=1, kind="stable")
    facing = np.where((along * valid).sum(axis=1) < 0, -1.0, 1.0)[:, None]  # a direction's sign is open
    masked = (np.where(valid, part, 0.0) for part in (scalar * facing, along * facing, offset))
    lists = _Lists(*(np.take_along_axis(part, order, axis=1) for part in (*masked, valid)))
    with np.errstate(all="ignore"):
        found = (_best(lists, grid, scale_known, c) for c in pulls)
        best = next((one for one in found if one is not None), None)
    none = np.full(len(scalar), np.nan)
    if best is None:
        return Pulled(np.full(scalar.shape, np.nan), np.zeros(len(scalar), bool), none, none, none)
    value = np.full(scalar.shape, np.nan)
    np.put_along_axis(value, order, np.where(lists.there & best.told[:, None], best.value, np.nan), axis=1)
    first, p, _rate, c, _shrink = np.where(best.told[:, None], best.numbers, np.nan).T
    return Pulled(value, best.told, -c, first * facing[:, 0], p / first * facing[:, 0])


def _best(lists: _Lists, grid: _Grid, scale_known: bool, c: float) -> _Together | None:
    """What explains most clients; None where too few are explained, or no single one explains so many."""
    size = lists.there.sum(axis=1)
    found: list[_Together] = []
    for number, some in enumerate(_asked(size)):
        if (found and some.size > 1) or (not found and number >= SILENT):
            break
        for numbers in _alone(lists.of(some), grid, c):
            if not any(_same(numbers, one.numbers[0]) for one in found):
                found += _together(numbers, lists, grid, scale_known)
        if any(one.clear and one.told[size > 0].all() for one in found):
            break
    most = max((int(one.told.sum()) for one in found), default=0)
    best = [one for one in found if one.told.sum() == most and one.clear]
    judged = size >= min(LEAST_ROWS, size.max(initial=0))
    if not best or best[0].told[judged].mean() < MOST:
        return None
    named = [nearest_level(one.value, grid.levels)[lists.there & one.told[:, None]] for one in best]
    return best[0] if all(np.array_equal(one, named[0]) for one in named) else None


def _asked(size: Int[np.ndarray, " users"]) -> Iterator[Int[np.ndarray, " some"]]:
    """Clients with many ratings one by one, and then as many together, started alike, as have enough."""
    most = np.argsort(-size, kind="stable")
    yield from most[: min(ASKED, (size >= LEAST_ROWS).sum())][:, None]
    together = most[: np.searchsorted(np.cumsum(size[most]), ENOUGH_ROWS) + 1]
    if together.size > 1 and size[together].sum() >= LEAST_ROWS:
        yield together


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two clients say the same of what they share."""
    return bool(np.allclose(first[1:], second[1:], rtol=SAME_SCALE, atol=0))


def _alone(some: _Lists, grid: _Grid, c: float) -> Float[np.ndarray, "few 5"]:
    """Numbers that put all rows of a client, or of some with one start, on the grid; those of multiples."""
    numbers = _starts(some, grid, c)
    for kept in KEPT:
        value, slope = (part[:, some.there] for part in _sloped(numbers[:, None], some, grid.after))
        missing = nearest_level(value, grid.levels) - value
        usable = np.isfinite(slope).all(axis=(1, 2)) & np.isfinite(missing).all(axis=1)
        slope, missing = (part[usable] for part in (slope, missing))
        unit = np.linalg.norm(slope, axis=1, keepdims=True)
        unit = np.where(unit > 0, unit, 1.0)
        step = np.matmul(np.linalg.pinv(slope / unit, rcond=kept), missing[..., None])[..., 0]
        numbers = numbers[usable] + step / unit[:, 0]
    value = _values(numbers[:, None], some, grid.after)[:, some.there]
    exact = grid.missed(value, np.ones(value.shape, bool)) <= grid.tolerance
    # without errors a length alone meets one level, and some lengths meet two, whatever the rows
    exact &= np.ptp(numbers[:, :1] * some.g[some.there], axis=1) > step_of(grid.levels) / 2
    numbers, named = numbers[exact], nearest_level(value[exact], grid.levels)
    _, first = np.unique(named, axis=0, return_index=True)
    if first.size > MOST_NAMED:
        return np.zeros((0, 5))
    offset = some.offset[some.there]
    every = [_multiples(numbers[place], named[place] - offset, offset, grid) for place in first]
    return np.concatenate([np.zeros((0, 5)), *every])


def _starts(some: _Lists, grid: _Grid, c: float) -> Float[np.ndarray, "few 5"]:
    """Numbers with c as given and a = 1 that put rows nearest to the grid, for each growth of the length."""
    total = ((some.g + c * some.h) * some.h).sum(axis=1)
    total = total[np.abs(total).argmax()]
    if total == 0 or grid.levels.size**2 > MOST_PAIRS:
        return np.zeros((0, 5))
    beta = (GROWN**2 - 1) / 2 / total
    none, all_ = np.zeros(beta.size), np.ones(beta.size)
    bare = some._replace(offset=np.zeros_like(some.offset))
    errors, both = (
        _values(np.stack([all_, p, beta, c * all_, all_], axis=1)[:, None], bare, grid.after)[:, some.there]
        for p in (none, all_)
    )
    columns = np.stack([errors, both - errors], axis=2)
    columns = np.where(np.isfinite(columns).all(axis=(1, 2), keepdims=True), columns, 0.0)
    offset = np.broadcast_to(some.offset[some.there], errors.shape)
    pairs = nearest_numbers(columns, offset, np.ones(errors.shape, bool), grid.levels)
    value = np.matmul(pairs, columns.transpose(0, 2, 1)) + offset[:, None]
    away = distance_to_levels(value, grid.levels).mean(axis=2)
    range_ = np.ptp(nearest_level(value, grid.levels), axis=2)
    away[~(np.isfinite(away) & (range_ > 0))] = np.inf
    # small multiples of anything are near the grid, large ones in proportion to their range
    nearest = [np.argsort(part, axis=None)[:FITTED] for part in (away, away / range_)]
    trial, pair = np.unravel_index(np.unique(np.concatenate(nearest)), away.shape)
    a, b = pairs[trial, pair].T
    found = np.stack([a, a * b, beta[trial] / a**2, c + 0 * a, 1 + 0 * a], axis=1)
    return found[np.isfinite(found).all(axis=1)]


def _multiples(
    numbers: Float[np.ndarray, " 5"],
    part: Float[np.ndarray, " rows"],
    offset: Float[np.ndarray, " rows"],
    grid: _Grid,
) -> Float[np.ndarray, "few 5"]:
    """The numbers, and those of multiples of the ratings, less the offset, which are on the grid, too."""
    largest = np.abs(part).argmax()
    times = (grid.levels - offset[largest]) / part[largest]
    times = times[times != 0]
    away = distance_to_levels(times[:, None] * part + offset, grid.levels).max(axis=1)
    times = times[away < EXACT * step_of(grid.levels)]
    a, p, rate, c, shrink = numbers[:, None] * np.ones_like(times)
    return np.stack([times * a, times**2 * p, rate / times**2, c, shrink], axis=1)


def _together(
    numbers: Float[np.ndarray, " 5"], lists: _Lists, grid: _Grid, scale_known: bool
) -> list[_Together]:
    """What the numbers of one client say of all; nothing where they explain nobody."""
    shared = numbers[1:]
    own, near, _ = _lent(shared, lists, grid)
    for _ in range(2):
        if not near.any():
            return []
        shared = _fitted_together(own[near], lists.of(near), grid)
        own, near, rivals = _lent(shared, lists, grid)
    size = lists.there.sum(axis=1)
    value = _values(own, lists, grid.after)
    missed, step = grid.missed(value, lists.there), step_of(grid.levels)
    chance = accidental(size - 1, 2 * grid.levels.size) * step / 4
    told = (missed <= np.minimum(grid.tolerance, chance)) & (rivals > CLEARLY * missed + grid.tolerance)
    told &= size > 0
    first = np.median(own[told, 0]) if told.any() else np.nan
    if (np.abs(own[told, 0] / first - 1) <= ALIKE).sum() >= max(FEWEST, MOST * told.sum()):
        own[size < LEAST_ROWS, 0] = first
        value = _values(own, lists, grid.after)
        few = (size > 0) & (size < LEAST_ROWS)
        told = np.where(few, grid.missed(value, lists.there) <= grid.tolerance, told)
    if not told.any():
        return []
    n_left = np.array([size[told].sum() - told.sum() - 4])
    chance = accidental(n_left, grid.levels.size**5) * step / 4
    clear = bool(grid.missed(value, lists.there)[told].max() <= chance[0])
    clear &= _nothing_off(own[told], lists.of(told), grid)
    named = nearest_level(value, grid.levels) - lists.offset
    here = lists.there & told[:, None]
    declared = scale_known and abs(shared[0] - 1) <= SAME_SCALE
    clear &= declared or one_multiple(named[here], lists.offset[here], grid.levels)
    return [_Together(own, value, told, clear)]


def _lent(
    shared: Float[np.ndarray, " 4"], lists: _Lists, grid: _Grid
) -> tuple[Float[np.ndarray, "users 5"], Bool[np.ndarray, " users"], Float[np.ndarray, " users"]]:
    """Every client's numbers with four from another one, whose are near the grid, and how far off others are.

    Each level of the first row leaves two A.
    """
    p, _rate, c, _shrink = shared
    freed, h, offset = (lists.g + c * lists.h)[:, :1], lists.h[:, :1], lists.offset[:, :1]
    level = np.tile(grid.levels, 2) - offset
    half = 0.5 * (level + np.sqrt(level**2 - 4 * freed * h * p))
    first = np.where(np.arange(level.shape[1]) < grid.levels.size, half / freed, p * h / half)
    trials = np.concatenate([first[..., None], np.broadcast_to(shared, (*first.shape, 4))], axis=2)
    every = _Lists(*(part[:, None] for part in lists))
    start = every.of((..., slice(0, 1)))
    for _ in range(4):  # where a row is about the later length, A is a root of degree four
        value, slope = _sloped(trials, start, grid.after, only_first=True)
        trials[..., 0] += (level + offset - value[..., 0]) / slope[..., 0, 0]
    value = _values(trials, every, grid.after)
    missed = grid.missed(value, every.there)
    best = missed.argmin(axis=1)[:, None]
    named = nearest_level(value, grid.levels) * every.there
    mine = np.take_along_axis(named, best[..., None], axis=1)
    rivals = np.where((named != mine).any(axis=2), missed, np.inf).min(axis=1)
    own = np.take_along_axis(trials, best[..., None], axis=1)[:, 0]
    near = np.isfinite(own).all(axis=1) & (missed.min(axis=1) < LOOSE * step_of(grid.levels))
    own = np.where(np.isfinite(own), own, 1.0)
    for _ in range(3):
        value, slope = _sloped(own, lists, grid.after, only_first=True)
        slope = np.where(lists.there & np.isfinite(slope[..., 0]), slope[..., 0], 0.0)
        missing = np.nan_to_num(nearest_level(value, grid.levels) - value, posinf=0.0, neginf=0.0)
        square = (slope**2).sum(axis=1)
        own[:, 0] += np.where(near, (slope * missing).sum(axis=1) / np.where(square > 0, square, 1.0), 0.0)
    return own, near, rivals


def _fitted_together(
    own: Float[np.ndarray, "users 5"], lists: _Lists, grid: _Grid
) -> Float[np.ndarray, " 4"]:
    """The four numbers that clients share, from the levels that every client's numbers name."""
    own = own.copy()
    for _ in range(4):
        missing, first, others = _left_of(own, lists, grid)
        unit = np.linalg.norm(others.reshape(-1, 4), axis=0)
        unit = np.where(unit > 0, unit, 1.0)
        apart = _beside(others, first)
        step = np.linalg.lstsq((apart / unit).reshape(-1, 4), missing.ravel(), rcond=KEPT[-1])[0] / unit
        rest = missing - others @ step
        square = (first**2).sum(axis=1)
        own[:, 0] += (first * rest).sum(axis=1) / np.where(square > 0, square, 1.0)
        own[:, 1:] += step
    return own[0, 1:]


def _left_of(
    own: Float[np.ndarray, "users 5"], lists: _Lists, grid: _Grid
) -> tuple[
    Float[np.ndarray, "users rows"], Float[np.ndarray, "users rows"], Float[np.ndarray, "users rows 4"]
]:
    """What ratings miss the grid by, and what they change by with A and with the other numbers."""
    value, slope = _sloped(own, lists, grid.after)
    there = lists.there & np.isfinite(slope).all(axis=2) & np.isfinite(value)
    missing = np.where(there, nearest_level(value, grid.levels) - value, 0.0)
    slope = np.where(there[..., None], slope, 0.0)
    return missing, slope[..., 0], slope[..., 1:]


def _beside(others: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Columns (users, rows, n) without what each client's own number explains of them."""
    square = (first**2).sum(axis=1)
    share = np.einsum("ur,urn->un", first, others) / np.where(square > 0, square, 1.0)[:, None]
    return others - first[..., None] * share[:, None]


def _nothing_off(own: Float[np.ndarray, "users 5"], lists: _Lists, grid: _Grid) -> bool:
    """Whether rows say that nothing is taken off ratings: a column of ones beside the other five."""
    missing, first, others = _left_of(own, lists, grid)
    ones = _beside(np.where(lists.there, 1.0, 0.0)[..., None], first).ravel()
    table = _beside(others, first).reshape(-1, 4)
    unit = np.linalg.norm(table, axis=0)
    axes, _ = np.linalg.qr(table / np.where(unit > 0, unit, 1.0))
    left = ones - axes @ (axes.T @ ones)
    length = np.linalg.norm(left)
    count = int(lists.there.sum())
    digits = grid.tolerance / DIGITS
    noise = max(np.sqrt((missing**2).sum() / count), digits)
    off = float(left @ missing.ravel()) / length**2
    return bool(abs(off) + SURE * noise / length <= PART * step_of(grid.levels))


def _sloped(
    numbers: np.ndarray, lists: _Lists, after: bool, only_first: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Ratings, and their derivatives by each number, or by A alone, to the digits: by complex steps."""
    n = 1 if only_first else 5
    moved = np.repeat(numbers.astype(complex)[None], n, axis=0)
    moved[np.arange(n), ..., np.arange(n)] += 1j * UNIT
    value = _values(moved, lists, after)
    return value[0].real, np.moveaxis(value.imag, 0, -1) / UNIT


def _values(numbers: np.ndarray, lists: _Lists, after: bool) -> np.ndarray:
    """Ratings in the order sent; ``numbers`` (A, p, rho, c, a) for each list, or for some trials on one."""
    first, p, rate, c, shrink = np.moveaxis(numbers, -1, 0)
    g, h, offset, _ = np.broadcast_arrays(*lists)
    out = np.empty(np.broadcast_shapes((*first.shape, 1), g.shape), numbers.dtype)
    length = np.ones_like(first)
    for k in range(g.shape[-1]):
        freed = g[..., k] + c * h[..., k]
        step = rate * first**2 * h[..., k] * freed
        if after:
            square = shrink**2 * length**2 + 4 * step
            following = 0.5 * (shrink * length + np.sqrt(np.where(square.real < 0, np.nan, square)))
        else:
            following = shrink * length + step / length
        out[..., k] = first * freed / (following if after else length) + p / first * length * h[..., k]
        length = following
    return out + offset
