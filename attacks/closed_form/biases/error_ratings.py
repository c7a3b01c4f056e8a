"""Ratings of clients whose errors and factors are known up to one number, beside a bias that nobody told.

For ``attacks.closed_form.biases.error_column``:

    r_k = A g_k + p_k . q + b_j + C,        A = 1 / s, of all clients,

has C alone open for each client: two rows tell A, once their levels are named. No mirror image and no
multiple of the ratings fits, and a shift by whole levels does. Behind a link (fastai's default, a sigmoid up
to half a star above the highest level) C is the one number inside it, and A outside
(``attacks.closed_form.links.link_grid``).

What it assumes: biases and factors in one unit; a bias that stays, or steps as the factor does.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.biases.error_column import Errors
from attacks.closed_form.centres.centred import spread_of
from attacks.closed_form.centres.shifted import one_sided
from attacks.closed_form.chains.chain_readings import LEAST, TELLING
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.links.link_grid import ratings_through_links
from attacks.closed_form.uploads.moving_factor import PARALLEL
from attacks.closed_form.uploads.pull_of_steps import FEWEST

NAMED = 6  # pairs of rows whose levels are named
TRIED = 1000.0  # numbers A, about: levels of those pairs, times what a bias may do and ratings may be
PAIRS = 400  # of rows that are asked
ON_GRID = 0.05  # of a step, within which pairs are in the mean, where chance gives a quarter
USUAL = 20  # ratings of clients who are asked first: enough to tell, and few to search
FIRST, LINKED = 4, 12  # clients that tell whether there is a link, and what a bias does
ROUNDS = 3  # of fitting the levels that numbers name


class OnSteps(NamedTuple):
    """What is read of some clients, up to a shift by whole levels."""

    above: Int[np.ndarray, "users rows"]  # steps above the client's lowest rating; -1 where not told
    # C before the first row in stars, if the lowest rating is the lowest level
    bias: Float[np.ndarray, " users"]
    distance: Float[np.ndarray, " users"]  # from the steps, in the mean, in stars
    told: Bool[np.ndarray, " users"]
    placed: bool = False  # whether steps are those above the lowest level
    pull: float = 0.0  # multiple of its factor that was taken off each row

    @property
    def rank(self) -> tuple[int, float]:
        """How many are told, and how near to the grid."""
        return int(self.told.sum()), -float(self.distance[self.told].sum())


def on_steps(
    errors: Errors,
    item: Bool[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
    precision: float,
) -> OnSteps:
    """Find the number A of all clients that puts their ratings on the steps of the grid."""
    item = item & np.isfinite(errors.predicted) & (errors.scalar != 0)
    best = nobody(item.shape)
    one = np.ones(item.shape)
    stays, both = one[..., None], np.stack([one, errors.kept], axis=2)
    ways = ((0.0 * one, stays), (errors.gained, stays), (errors.gained, both), (errors.added, stays))
    # programs learn ratings as they are, or over the highest level, or over their range
    units = (1.0, float(levels[-1]), float(np.ptp(levels)))
    for scalar, unit, (gained, columns) in product(scalars_of(errors, item), units, ways):
        offset = np.where(item, unit * (errors.predicted + gained), 0)
        a = _of_pairs(scalar, offset, item, levels)
        if a is not None:
            found = _read(Grid(scalar, offset, columns, item, levels), a, precision)
            best = found if found.rank > best.rank else best
    return best


def scalars_of(errors: Errors, item: Bool[np.ndarray, "users rows"]) -> list[Float[np.ndarray, "users rows"]]:
    """Errors up to one number: as they are, and where steps have several sizes also as parts of means."""
    most = errors.alike[item].max(initial=1.0)
    uneven = bool((errors.alike[item] < most).any())
    return [errors.scalar, errors.scalar * errors.alike / most][: 1 + uneven]


def through_links(
    errors: Errors,
    item: Bool[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
    precision: float,
) -> OnSteps:
    """Find the bias of each client that puts its ratings on the grid behind a link."""
    item = item & np.isfinite(errors.predicted) & (errors.scalar != 0)
    one = np.ones(item.shape)
    ways = [
        _Way(scalar, bias, errors.predicted + gained, item)
        for scalar in scalars_of(errors, item)
        for bias, gained in ((one, 0.0 * one), (errors.kept, errors.gained), (one, errors.added))
    ]
    usual = np.argsort(np.abs(item.sum(axis=1) - USUAL), kind="stable")
    for some in (usual[:FIRST], usual[:LINKED]):
        if len(some) == len(item):
            break
        few = [_through(_Way(*(part[some] for part in way)), levels, precision) for way in ways]
        best, way = max(zip(few, ways, strict=True), key=lambda both: both[0].rank)
        if not best.told.any():
            return nobody(item.shape)
        if len(some) == LINKED:
            ways = [way]
    return max((_through(way, levels, precision) for way in ways), key=lambda found: found.rank)


class _Way(NamedTuple):
    """What a bias of the client may do behind a link."""

    scalar: Float[np.ndarray, "users rows"]  # errors up to one number
    bias: Float[np.ndarray, "users rows"]  # what its bias is multiplied by
    inside: Float[np.ndarray, "users rows"]  # the rest of what is inside the link
    item: Bool[np.ndarray, "users rows"]


def _through(way: _Way, levels: Float[np.ndarray, " levels"], precision: float) -> OnSteps:
    """Ratings behind a link, with a number of the client times ``bias`` inside it."""
    step, inside = step_of(levels), np.where(way.item, way.inside, 0)
    found = ratings_through_links(way.scalar, way.bias, inside, way.item, levels, precision)
    above = np.rint((np.nan_to_num(found.value, nan=levels[0] - step) - levels[0]) / step).astype(int)
    told = found.told & ((above >= 0) == way.item).all(axis=1)
    return OnSteps(
        np.where(told[:, None], above, -1),
        np.full(told.size, np.nan),
        np.where(told, found.misfit * step / 4, np.nan),
        told,
        placed=True,
    )


def nobody(shape: tuple[int, ...]) -> OnSteps:
    """Make the reading of clients of whom nothing is told."""
    open_ = np.full(shape[0], np.nan)
    return OnSteps(np.full(shape, -1), open_, open_, np.zeros(shape[0], bool))


def _of_pairs(
    scalar: Float[np.ndarray, "users rows"],
    offset: Float[np.ndarray, "users rows"],
    item: Bool[np.ndarray, "users rows"],
    levels: Float[np.ndarray, " levels"],
) -> float | None:
    """A, by pairs of rows of which a few have their levels named; None where no number fits nearly all."""
    step = step_of(levels)
    user, place = np.nonzero(item[:, :-1] & item[:, 1:])
    by_error = np.diff(scalar, axis=1)[user, place]
    by_rest = np.diff(offset, axis=1)[user, place]
    most = np.argsort(-np.abs(by_error), kind="stable")[:PAIRS]
    by_error, by_rest = by_error[most], by_rest[most]
    by_error, by_rest = by_error[by_error != 0], by_rest[by_error != 0]
    if len(by_error) < FEWEST:
        return None
    apart = step * np.arange(1 - levels.size, levels.size)
    tried = ((apart - by_rest[:NAMED, None]) / by_error[:NAMED, None]).ravel()
    for _ in range(ROUNDS):
        value = tried[:, None] * by_error + by_rest
        named = step * np.clip(np.rint(value / step), 1 - levels.size, levels.size - 1)
        away = np.abs(value - named).mean(axis=1)
        tried = tried + ((named - value) * by_error).sum(axis=1) / (by_error**2).sum()
    best = int(np.argmin(away))
    return float(tried[best]) if away[best] <= ON_GRID * step else None


class Grid(NamedTuple):
    """r = A scalar + offset + columns . c, of some clients."""

    scalar: Float[np.ndarray, "users rows"]
    offset: Float[np.ndarray, "users rows"]
    columns: Float[np.ndarray, "users rows n"]  # what a bias of the client adds, with one number each
    item: Bool[np.ndarray, "users rows"]
    levels: Float[np.ndarray, " levels"]


def _read(grid: Grid, a: float, precision: float) -> OnSteps:
    """Ratings up to a shift, by A to begin with."""
    step, item = step_of(grid.levels), grid.item
    scalar, offset = grid.scalar * item, grid.offset * item
    columns = grid.columns * item[..., None]
    inverse = np.linalg.pinv(columns)
    turned = (np.exp(2j * np.pi * (a * scalar + offset) / step) * item).sum(axis=1)
    own = np.zeros((len(item), columns.shape[2]))
    own[:, 0] = -np.angle(turned) / (2 * np.pi) * step

    def beside(rows: Float[np.ndarray, "users rows"]) -> Float[np.ndarray, "users rows"]:
        """Without what a bias explains."""
        return rows - np.matmul(columns, np.matmul(inverse, rows[..., None]))[..., 0]

    across = beside(scalar)
    for _ in range(ROUNDS):
        steps = np.rint((a * scalar + offset + np.matmul(columns, own[..., None])[..., 0]) / step) * item
        rest = step * steps - offset
        off = np.abs(beside(rest - a * scalar)).max(axis=1, initial=0)
        good = off <= ON_GRID * step
        if (across[good] ** 2).sum() > 0:
            a = float((across[good] * beside(rest)[good]).sum() / (across[good] ** 2).sum())
        own = np.matmul(inverse, (rest - a * scalar)[..., None])[..., 0]
    count = item.sum(axis=1)
    distance = np.abs(beside(rest - a * scalar)).sum(axis=1) / np.maximum(count, 1)
    floor = PARALLEL * precision * step
    # what is on the steps by accident: each row beyond those that tell the bias is as near so
    nats = (count - columns.shape[2]) * np.log(step / (4 * np.maximum(distance, floor))) - np.log(TRIED)
    steps = steps.astype(int)
    lowest = np.where(item, steps, np.iinfo(int).max).min(axis=1, initial=np.iinfo(int).max)
    above = np.where(item, steps - lowest[:, None], -1)
    told = (nats >= BARS.evidence) & (distance <= precision**BARS.half * step)
    told &= (above.max(axis=1, initial=0) < grid.levels.size) & one_sided(offset, item, step)
    # what rows owe to errors is seen, or predictions alone would be on the grid
    told &= np.abs(a) * spread_of(scalar, item) > np.maximum(distance / TELLING, LEAST * step)
    bias = np.where(told, grid.levels[0] - step * lowest + own.sum(axis=1), np.nan)
    return OnSteps(np.where(told[:, None], above, -1), bias, np.where(told, distance, np.nan), told)
