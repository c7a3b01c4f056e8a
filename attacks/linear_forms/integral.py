"""The integral over a client's few unknown numbers: modes from a grid, and importance sampling around them.

A client of forty ratings often has several sets of numbers that put its rows about equally near the levels;
whoever picks the best of them claims too much. So a mixture of Student laws at the modes, and of the cells of
a coarse grid for what the modes miss, proposes points, and each counts by its posterior over the density with
which it was proposed (Owen & Zhou 2000, doi:10.1080/01621459.2000.10473909).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln, logsumexp

from attacks.linear_forms.posterior import (
    Data,
    Prior,
    Program,
    ascend,
    densities,
    evidence_table,
    levels_of,
    phase_table,
)

# root mean squares of the errors and of the predictions that are tried, in stars
SCALES = np.geomspace(0.3, 6.5, 36)
LENGTHS = np.concatenate([[0.003, 0.03, 0.06], np.arange(0.12, 4.9, 0.12)])
NOISES = np.array([0.1, 0.4])  # of a level
LOOKED_AT = 40  # rows of a client that the grid is evaluated on, spread over all
STARTS, MODES = 18, 12  # for each size of the noise, and after a few steps for all
IMAGED, SHIFTS = 4, 3  # modes whose images are looked at, and levels up and down
FROM_MODES, FROM_CELLS = 300, 130  # points
WIDER, DEGREES = 1.3, 5.0  # than the modes' own information says
FLATTER = 0.6  # of the grid's evidence, by which its cells are drawn
TOGETHER = 16  # clients in one compiled call
ANSWERING = 128  # points of most weight, over which answers are averaged
# power of the likelihood in answers: rows are not quite as the model has them (arXiv:1506.06101)
TRUST = 0.85

_EDGES = np.concatenate(
    [[np.log(LENGTHS[0]) - 1], np.log(LENGTHS[1:] * LENGTHS[:-1]) / 2, [np.log(LENGTHS[-1]) + 0.02]]
)
_LOG_SCALES = np.log(SCALES)
_WIDTH = _LOG_SCALES[1] - _LOG_SCALES[0]


class Modes(NamedTuple):
    """Where the posterior of some clients is high."""

    x: Float[np.ndarray, "clients modes unknowns"]
    own_sign: Float[np.ndarray, "clients modes"]
    mass: Float[np.ndarray, "clients modes"]  # log, by Laplace's method; -inf of a mode that came twice
    information: Float[np.ndarray, "clients modes unknowns unknowns"]


class Grid(NamedTuple):
    """Where the likelihood of some clients is high on a grid."""

    log_scale: Float[np.ndarray, "clients starts"]
    log_length: Float[np.ndarray, "clients starts"]
    own_sign: Float[np.ndarray, "clients starts"]
    added: Float[np.ndarray, "clients starts"]  # C up to whole gaps
    table: Float[np.ndarray, "clients 2 A B"]


class Points(NamedTuple):
    """Weighted points of some clients."""

    x: Float[np.ndarray, "clients points unknowns"]
    own_sign: Float[np.ndarray, "clients points"]
    likelihood: Float[np.ndarray, "clients points"]  # logs of these three
    prior: Float[np.ndarray, "clients points"]
    proposed: Float[np.ndarray, "clients points"]
    added: Float[np.ndarray, "clients points"]  # C

    def log_weights(self, trust: float = 1.0) -> Float[np.ndarray, "clients points"]:
        """Log of posterior over proposal, not normalised."""
        out = trust * self.likelihood + self.prior - self.proposed
        return np.where(np.isfinite(out), out, -1e30)

    @property
    def evidence(self) -> Float[np.ndarray, " clients"]:
        """Log of the integral."""
        return logsumexp(self.log_weights(), axis=1) - np.log(self.x.shape[1])


def single(tree: Any) -> Any:
    """A tuple of arrays in single precision, as the compiled part takes them."""
    parts = (np.asarray(part) for part in tree)
    kinds = (jnp.int32 if part.dtype.kind == "i" else jnp.float32 for part in parts)
    return type(tree)(*(jnp.asarray(part, kind) for part, kind in zip(tree, kinds, strict=True)))


def _each(compiled: Callable[..., Any], by_client: Sequence[Any], *rest: Any) -> list[np.ndarray]:
    """Call a compiled function for so many clients at a time, the last call filled up."""
    n_clients = len(jax.tree.leaves(by_client[0])[0])
    out = []
    for start in range(0, n_clients, TOGETHER):
        place = np.minimum(np.arange(start, start + TOGETHER), n_clients - 1)
        here = jax.tree.map(
            lambda part, place=place: jnp.asarray(np.asarray(part)[place], jnp.float32), by_client
        )
        found = compiled(*here, *rest)
        parts = found if isinstance(found, tuple) else (found,)
        out.append([np.asarray(part, float)[: n_clients - start] for part in parts])
    return [np.concatenate(parts) for parts in zip(*out, strict=True)]


def gridded(program: Program, data: Data, levels: Float[np.ndarray, " levels"]) -> Grid:
    """The best local maxima of a grid of A and B at each size of the noise; and the grid at the largest."""
    gap = np.diff(levels).min()
    few = _spread(data)
    arguments = tuple(jnp.asarray(part, jnp.float32) for part in (SCALES, LENGTHS, NOISES * gap))
    if program.offset:
        table, phase = _each(phase_table, (few,), single(program), jnp.float32(gap), *arguments)
    else:
        (table,) = _each(evidence_table, (few,), single(program), jnp.float32(levels), *arguments)
        phase = np.zeros_like(table)
    around = np.pad(table, ((0, 0),) * 3 + ((1, 1), (1, 1)), constant_values=-np.inf)
    n_scales, n_lengths = table.shape[3:]
    steps = [(i, j) for i in range(3) for j in range(3) if (i, j) != (1, 1)]
    beside = np.max([around[..., i : i + n_scales, j : j + n_lengths] for i, j in steps], axis=0)
    worth = np.where(table >= beside, table, table - 1e6).reshape(*table.shape[:2], -1)
    best = np.argpartition(-worth, STARTS, axis=-1)[..., :STARTS]
    sign, i, j = (part.reshape(len(table), -1) for part in np.unravel_index(best, table.shape[2:]))
    added = np.take_along_axis(phase.reshape(*table.shape[:2], -1), best, axis=-1).reshape(sign.shape)
    return Grid(_LOG_SCALES[i], np.log(LENGTHS)[j], 1.0 - 2 * sign, levels[0] + added, table[:, -1])


def starts_of(
    grid: Grid, program: Program, data: Data, levels: Float[np.ndarray, " levels"], prior: Prior
) -> Modes:
    """Where to climb from."""
    x = np.zeros((*grid.own_sign.shape, prior.mean.shape[1]))
    x[..., 0], x[..., 1] = grid.log_scale, grid.log_length
    x[..., -2] = np.log(2.0)
    x[..., -1] = np.repeat(np.log(NOISES * np.diff(levels).min()), STARTS)
    own_sign = grid.own_sign
    if program.offset:
        x, own_sign = _shifted(x, own_sign, grid.added, program, data, levels, prior)
    return Modes(x, own_sign, np.zeros(own_sign.shape), np.zeros((*own_sign.shape, 0, 0)))


def _shifted(
    x: Float[np.ndarray, "clients starts unknowns"],
    own_sign: Float[np.ndarray, "clients starts"],
    added: Float[np.ndarray, "clients starts"],
    program: Program,
    data: Data,
    levels: Float[np.ndarray, " levels"],
    prior: Prior,
) -> tuple[np.ndarray, np.ndarray]:
    """The best starts of those with each C, up to whole gaps, that puts the mean rating where it may be."""
    gap = float(np.diff(levels).min())
    mean, deviation = (float(part[0, -3]) for part in (prior.mean, prior.deviation))
    there = np.asarray(data.there)
    n_rows = np.maximum(there.sum(axis=1), 1)
    ends = [
        (part * there).sum(axis=1) / n_rows for part in (data.coordinates[..., 0], data.along, data.given)
    ]
    scale, length, given = (np.asarray(end)[:, None] for end in ends)
    at = own_sign * (program.sign * np.exp(x[..., 0]) * scale + np.exp(x[..., 1]) * length) + given + added
    nearest = at + gap * np.round((mean - at) / gap)
    n_beside = int(np.ceil(1.5 * min(deviation, 1.0) / gap))
    shifts = np.arange(-n_beside, n_beside + 1) * gap
    out = np.repeat(x, shifts.size, axis=1)
    out[..., -3] = (nearest[..., None] + shifts).reshape(len(x), -1)
    sign = np.repeat(own_sign, shifts.size, axis=1)
    (both,) = _each(densities, (out, sign, data, prior), single(program), jnp.float32(levels))
    worth = (both[..., 0] + both[..., 1]).reshape(len(x), NOISES.size, -1)
    best = np.argsort(-worth, axis=-1, kind="stable")[..., :STARTS]
    best = (best + np.arange(NOISES.size)[:, None] * worth.shape[-1]).reshape(len(x), -1)
    return np.take_along_axis(out, best[..., None], 1), np.take_along_axis(sign, best, 1)


def with_images(
    modes: Modes, program: Program, data: Data, levels: Float[np.ndarray, " levels"], prior: Prior
) -> Modes:
    """The same, and what puts a client's ratings some levels higher or lower, or upside down, as well.

    Rows hardly tell these apart where C is open, and whoever finds one of them alone is sure of it.
    """
    gap = float(np.diff(levels).min())
    shifts = np.arange(-SHIFTS, SHIFTS + 1) * gap
    best = modes.x[:, :IMAGED]
    same, turned = np.repeat(best, shifts.size, axis=1), np.repeat(best, shifts.size, axis=1)
    each = np.tile(shifts, best.shape[1])
    same[..., -3] += each
    turned[..., -3] = levels[0] + levels[-1] - turned[..., -3] + each
    sign = np.repeat(modes.own_sign[:, :IMAGED], shifts.size, axis=1)
    x = np.concatenate([modes.x[:, IMAGED:], same, turned], axis=1)
    own_sign = np.concatenate([modes.own_sign[:, IMAGED:], sign, -sign], axis=1)
    (both,) = _each(densities, (x, own_sign, data, prior), single(program), jnp.float32(levels))
    order = np.argsort(-(both[..., 0] + both[..., 1]), axis=1, kind="stable")[:, : 2 * MODES]
    own_sign = np.take_along_axis(own_sign, order, 1)
    empty = np.zeros((*own_sign.shape, 0, 0))
    return Modes(np.take_along_axis(x, order[..., None], 1), own_sign, np.zeros(own_sign.shape), empty)


def _spread(data: Data) -> Data:
    """Some rows of each client, evenly from those that it has."""
    there = np.asarray(data.there, bool)
    n_rows = there.sum(axis=1, keepdims=True)
    step = np.maximum(n_rows / LOOKED_AT, 1.0)
    place = np.minimum((np.arange(LOOKED_AT) * step).astype(int), there.shape[1] - 1)
    row = np.take_along_axis(np.argsort(~there, axis=1, kind="stable"), place, axis=1)
    client = np.arange(len(there))[:, None]
    by_row = (np.asarray(part)[client, row] for part in data._replace(usual=data.there))
    return Data(*by_row)._replace(usual=data.usual)


def climbed(
    modes: Modes,
    program: Program,
    data: Data,
    levels: Float[np.ndarray, " levels"],
    prior: Prior,
    n_steps: int,
) -> Modes:
    """Climb on; modes that meet count once, and the best ``MODES`` are kept."""
    ends = []
    for some in np.split(np.arange(modes.x.shape[1]), range(MODES, modes.x.shape[1], MODES)):
        by_client = (modes.x[:, some], modes.own_sign[:, some], data, prior)
        ends.append(_each(ascend, by_client, single(program), jnp.float32(levels), jnp.int32(n_steps)))
    x, value, information = (np.concatenate(parts, axis=1) for parts in zip(*ends, strict=True))
    n = x.shape[-1]
    lost = ~(np.isfinite(x).all(-1) & np.isfinite(information).all((-1, -2)) & np.isfinite(value))
    information = np.where(lost[..., None, None], np.eye(n), information)
    mass = value - np.linalg.slogdet(information)[1] / 2 + n * np.log(2 * np.pi) / 2
    order = np.argsort(np.where(lost, np.inf, -mass), axis=1)
    x = np.take_along_axis(np.where(np.isfinite(x), x, 0.0), order[..., None], 1)
    own_sign = np.take_along_axis(modes.own_sign, order, 1)
    mass, lost = np.take_along_axis(mass, order, 1), np.take_along_axis(lost, order, 1)
    information = np.take_along_axis(information, order[..., None, None], 1)
    apart = np.abs(x[:, :, None] - x[:, None])
    same = (apart[..., 0] < 0.02) & (apart[..., 1] < 0.1) & (apart[..., -1] < 0.2)
    same &= (own_sign[:, :, None] == own_sign[:, None]) & (not program.offset or apart[..., -3] < 0.1)
    for mode in range(1, x.shape[1]):
        lost[:, mode] |= (same[:, mode, :mode] & ~lost[:, :mode]).any(axis=1)
    # distinct ones first
    first = np.argsort(lost, axis=1, kind="stable")[:, :MODES]
    mass = np.where(lost, -np.inf, mass)
    take = np.take_along_axis
    return Modes(
        take(x, first[..., None], 1),
        take(own_sign, first, 1),
        take(mass, first, 1),
        take(information, first[..., None, None], 1),
    )


def sampled(
    modes: Modes,
    table: Float[np.ndarray, "clients 2 A B"],
    program: Program,
    data: Data,
    levels: Float[np.ndarray, " levels"],
    prior: Prior,
    rng: np.random.Generator,
) -> Points:
    """Points from the modes and from the cells of the grid, with their densities."""
    n_clients, n_modes, n = modes.x.shape
    client = np.arange(n_clients)[:, None]
    mass = np.where(np.isfinite(modes.mass), modes.mass, -1e30)
    share = np.exp(0.7 * (mass - mass.max(axis=1, keepdims=True)))
    share /= share.sum(axis=1, keepdims=True)
    drawn = (rng.random((n_clients, 1)) + np.arange(FROM_MODES)) / FROM_MODES
    mode = (drawn[..., None] > np.cumsum(share, axis=1)[:, None, :-1]).sum(-1)
    root = np.linalg.cholesky(np.linalg.inv(modes.information))
    normal = rng.standard_normal((n_clients, FROM_MODES, n))
    student = WIDER * normal / np.sqrt(rng.chisquare(DEGREES, (n_clients, FROM_MODES, 1)) / DEGREES)
    near = modes.x[client, mode] + np.einsum("cpij,cpj->cpi", root[client, mode], student)
    chance = _cells(table, np.asarray(prior.product))
    anywhere, side = _in_cells(chance, prior, rng)
    x = np.concatenate([near, anywhere], axis=1)
    own_sign = np.concatenate([modes.own_sign[client, mode], side], axis=1)
    by_mode = np.full((*x.shape[:2], n_modes), -np.inf)
    root_of = np.linalg.slogdet(modes.information)[1] / 2
    for one in range(n_modes):
        apart = x - modes.x[:, one][:, None]
        square = ((apart @ modes.information[:, one]) * apart).sum(-1) / WIDER**2
        law = np.log(share[:, one] + 1e-300)[:, None] + root_of[:, one][:, None]
        law = law - (DEGREES + n) / 2 * np.log1p(square / DEGREES)
        here = (modes.own_sign[:, one][:, None] == own_sign) & (share[:, one] > 1e-4)[:, None]
        by_mode[..., one] = np.where(here, law, -np.inf)
    constant = gammaln((DEGREES + n) / 2) - gammaln(DEGREES / 2) - n / 2 * np.log(DEGREES * np.pi * WIDER**2)
    total = FROM_MODES + FROM_CELLS
    proposed = np.logaddexp(
        logsumexp(by_mode, axis=-1) + constant + np.log(FROM_MODES / total),
        _density_in_cells(x, own_sign, chance, prior) + np.log(FROM_CELLS / total),
    )
    (both,) = _each(densities, (x, own_sign, data, prior), single(program), jnp.float32(levels))
    return Points(x, own_sign, both[..., 0], both[..., 1], proposed, both[..., 2])


def answers(
    points: Points, program: Program, data: Data, levels: Float[np.ndarray, " levels"]
) -> Float[np.ndarray, "clients rows levels"]:
    """Probability of each level of each row."""
    log_weight = points.log_weights(TRUST)
    best = np.argsort(-log_weight, axis=1)[:, :ANSWERING]
    weight = np.take_along_axis(log_weight, best, 1)
    weight = np.exp(weight - logsumexp(weight, axis=1, keepdims=True))
    x = np.take_along_axis(points.x, best[..., None], 1)
    own_sign = np.take_along_axis(points.own_sign, best, 1)
    rest = single(program), jnp.float32(levels), jnp.float32(TRUST)
    (probability,) = _each(levels_of, (x, own_sign, weight, data), *rest)
    return probability


def _cells(table: np.ndarray, product: Float[np.ndarray, "clients 2"]) -> Float[np.ndarray, "clients 2 A B"]:
    """Chances with which cells of the grid are drawn."""
    sums = _LOG_SCALES[:, None] + np.log(LENGTHS)
    mean, deviation = (part[:, None, None, None] for part in product.T)
    log_chance = FLATTER * table - ((sums - mean) / np.hypot(deviation, 0.3)) ** 2 / 2
    flat = log_chance.reshape(len(table), -1)
    chance = np.exp(flat - flat.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    return (0.95 * chance + 0.05 / chance.shape[1]).reshape(table.shape)


def _in_cells(
    chance: np.ndarray, prior: Prior, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "clients points unknowns"], Float[np.ndarray, "clients points"]]:
    """Points anywhere in the cells that are drawn; what cells do not tell, from the prior."""
    n_clients, n = prior.mean.shape
    total = np.cumsum(chance.reshape(n_clients, -1), axis=1)
    drawn = (rng.random((n_clients, 1)) + np.arange(FROM_CELLS)) / FROM_CELLS * total[:, -1:]
    # all clients in one search: each one's chances begin where those of the one before end
    offset = 2.0 * np.arange(n_clients)[:, None]
    cell = np.searchsorted((total + offset).ravel(), (drawn + offset).ravel()).reshape(drawn.shape)
    cell = np.minimum(cell - np.arange(n_clients)[:, None] * total.shape[1], total.shape[1] - 1)
    sign, i, j = np.unravel_index(cell, chance.shape[1:])
    normal = rng.standard_normal((n_clients, FROM_CELLS, n))
    x = np.asarray(prior.mean)[:, None] + np.asarray(prior.deviation)[:, None] * normal
    x[..., 0] = _LOG_SCALES[i] + _WIDTH * (rng.random(cell.shape) - 0.5)
    x[..., 1] = _EDGES[j] + (_EDGES[j + 1] - _EDGES[j]) * rng.random(cell.shape)
    return x, 1.0 - 2 * sign


def _density_in_cells(
    x: np.ndarray, own_sign: np.ndarray, chance: np.ndarray, prior: Prior
) -> Float[np.ndarray, "clients points"]:
    """Log of the density with which ``_in_cells`` proposes points."""
    i: Int[np.ndarray, "clients points"] = np.floor((x[..., 0] - _LOG_SCALES[0]) / _WIDTH + 0.5).astype(int)
    j = np.searchsorted(_EDGES, x[..., 1]) - 1
    inside = (i >= 0) & (i < SCALES.size) & (j >= 0) & (j < LENGTHS.size)
    i, j = i.clip(0, SCALES.size - 1), j.clip(0, LENGTHS.size - 1)
    rest = (x[..., 2:] - prior.mean[:, None, 2:]) / prior.deviation[:, None, 2:]
    cell = chance[np.arange(len(x))[:, None], (own_sign < 0).astype(int), i, j]
    density = np.log(cell) - np.log(_WIDTH * (_EDGES[j + 1] - _EDGES[j])) - (rest**2).sum(-1) / 2
    density -= np.log(prior.deviation[:, None, 2:]).sum(-1) + rest.shape[-1] * np.log(2 * np.pi) / 2
    return np.where(inside, density, -np.inf)
