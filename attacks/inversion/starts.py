"""Where fits begin: what the rows would say if the client had taken a single short step.

To first order a row is sigma e u, so that a rating is A g + B h: g the row and h the item's factor along the
rows' common direction, B the length of u, A = 1 / (sigma B) (``attacks.closed_form.fit.affine_grid``). A and
B are open. Some lengths are tried with the A that puts ratings nearest to the middle of their range, and the
few pairs that put them nearest to the grid: where steps are short these are close to the truth, and where
steps are long the fit finds it from afar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.closed_form.fit.affine_grid import nearest_numbers
from attacks.closed_form.uploads.readings import Rows
from attacks.closed_form.uploads.reduction import leading_direction
from attacks.inversion.least_squares import Problem, Unknowns

LENGTHS = np.logspace(-1.3, 1, 7)  # of u
STRETCHES = np.array([[a, b] for a in (1.0, 0.25) for b in (1.0, 0.5, 2.0, 4.0, 8.0)])  # of A and B


class Starts(NamedTuple):
    """Several starts of each client."""

    factor: Float[np.ndarray, "clients starts K"]
    ratings: Float[np.ndarray, "clients starts n"]  # without what everybody adds to predictions
    sigma: Float[np.ndarray, "clients starts"]  # of either sign; NaN where there is no such start


def starts_of(rows: Rows, levels: Float[np.ndarray, " levels"]) -> Starts:
    """Collect the starts of some clients."""
    direction, columns = _along(rows)
    g, h = columns[..., 0], columns[..., 1]
    b = np.broadcast_to(np.concatenate([LENGTHS, -LENGTHS]), (len(g), 2 * LENGTHS.size))
    aim = (levels[0] + levels[-1]) / 2 - rows.offset[:, None] - b[..., None] * h[:, None]
    square = (g**2).sum(axis=1)[:, None]
    a = (aim * (g * rows.item)[:, None]).sum(axis=2) / np.where(square > 0, square, np.nan)
    near = nearest_numbers(columns, rows.offset, rows.item, levels)
    return _starts(np.concatenate([np.stack([a, b], axis=2), near], axis=1), direction, columns)


def starts_with(rows: Rows, ratings: Float[np.ndarray, "clients n"]) -> Starts:
    """The start at which rows fit known ratings best, and shorter and longer factors."""
    direction, columns = _along(rows)
    square = np.matmul(columns.transpose(0, 2, 1), columns)
    inverse = np.linalg.pinv(square, rcond=1e-12, hermitian=True)
    best = np.matmul(inverse, np.matmul(columns.transpose(0, 2, 1), ratings[..., None]))[..., 0]
    return _starts(best[:, None] * STRETCHES, direction, columns)


def _along(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """The rows' common direction, and g and h along it; 0 off the items."""
    direction, _ = leading_direction(rows.rows)
    columns = np.stack(
        [np.matmul(part, direction[:, :, None])[..., 0] for part in (rows.rows, rows.factors)], axis=2
    )
    return direction, columns * rows.item[..., None]


def _starts(numbers: np.ndarray, direction: np.ndarray, columns: np.ndarray) -> Starts:
    """From A and B."""
    ratings = np.matmul(numbers, columns.transpose(0, 2, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        sigma = 1 / (numbers[..., 0] * numbers[..., 1])
    sigma[~np.isfinite(sigma) | ~np.isfinite(ratings).all(axis=2)] = np.nan
    return Starts(numbers[..., 1:] * direction[:, None], ratings, sigma)


def unknowns(
    starts: Starts,
    problem: Problem,
    ratings: Float[np.ndarray, "clients starts m"],
    constants_of: Callable[[float, float], tuple[float, ...]],
) -> Unknowns:
    """The starts as those of a problem."""
    size = np.abs(np.where(np.isnan(starts.sigma), 1.0, starts.sigma))
    square = np.matmul(problem.factors.transpose(0, 2, 1), problem.factors)
    stiffness = np.broadcast_to(np.linalg.eigvalsh(square)[:, -1:], size.shape)
    given = [constants_of(*pair) for pair in zip(size.ravel(), stiffness.ravel(), strict=True)]
    constants = np.array(given).reshape(*size.shape, -1)
    return Unknowns(np.nan_to_num(starts.factor), np.nan_to_num(ratings), constants)
