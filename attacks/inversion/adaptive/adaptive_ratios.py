"""Ratios of a client's second gradients to its first, from rows that several steps of Adam made.

Scaled by the rate, an entry of a row is a known function of how its gradient goes from step to step. With two
steps that is one ratio, and of errors e and factor u

    g2 / g1 = (e2_k / e1_k) (u2_f / u1_f) = A_k B_f,

of rank one. More steps are taken for an even course, 1 + (t - 1)(A_k B_f - 1), and what that leaves is taken
off by whoever knows better (``attacks.inversion.adaptive.adaptive_numbers``). Most entries have two such
ratios, on either side of the largest step (1.11 for Adam), and columns whose factor changes its sign have the
other sign: differences of logarithms between columns are the same in all rows for the right ones.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.client_rules.adaptive_steps import Optimizer, none_yet, step

FARTHEST, NEAREST, GRID = 1e4, 1e-6, 4000  # ratios' distances from 1 that are tabulated, and how many
NEWTON, PROBE, FLAT = 4, 1e-6, 1e-9  # steps, difference, and the slope below which there is none to be taken
DENSE = 0.4  # share of the rows that have to agree about a column
AGREE = 0.25  # share of a row's candidates that have to agree about it
OTHER_SIDE, OTHER_SIGN = 1.1, 1.5  # times as wide an agreement counts as little
WIDE, LOST = 0.1, 10.0  # widths that say nothing of a column, and of a row
NONE = 1e3  # width where there is no ratio


class Ratios(NamedTuple):
    """A and B up to one number c, A c and B / c."""

    of_error: Float[np.ndarray, " n"]  # A
    of_factor: Float[np.ndarray, " K"]  # B
    width: Float[np.ndarray, " n"]  # how far entries disagree about the logarithm of A
    turned: Bool[np.ndarray, " K"]  # columns that have the other sign


def summed(
    optimizer: Optimizer, n_steps: int, ratio: Float[np.ndarray, "*some"]
) -> Float[np.ndarray, "*some"]:
    """Sum the steps, in units of the rate, of a gradient that goes evenly from 1 to a ratio in one step.

    Examples
    --------
    >>> from attacks.client_rules.adaptive_steps import ADAM
    >>> summed(ADAM, 2, np.array([1.0, 0.0])).round(4)
    array([2.    , 1.6701])
    """
    moments, total = none_yet(ratio), np.zeros(ratio.shape)
    for number in range(1, n_steps + 1):
        by, moments = step(optimizer, moments, 1 + (number - 1) * (ratio - 1), number, 0.0)
        total = total + by
    return total


def largest(optimizer: Optimizer, n_steps: int) -> float:
    """Find the largest sum of steps, in units of the rate."""
    return float(_tabulated(optimizer, n_steps)[1].max())


def ratios(optimizer: Optimizer, n_steps: int, size: Float[np.ndarray, "n K"], slack: float) -> Ratios:
    """Take rows apart."""
    every = below, above, other = _sides(optimizer, n_steps, size, slack)
    k = size.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs, signs = np.log(np.abs(every)), np.sign(every)
        middle, width = _densest(
            np.moveaxis(logs[:, None, :, :, None] - logs[None, :2, :, None, :], 2, -1), DENSE
        )
    width = (
        np.nan_to_num(width, nan=NONE, posinf=NONE)
        * np.array([1, OTHER_SIDE, OTHER_SIGN])[:, None, None, None]
    )
    side, first = np.unravel_index(np.minimum(width.min(axis=0), WIDE).sum(axis=1).argmin(), (2, k))
    taken, column = width[:, side, :, first].argmin(axis=0), np.arange(k)
    taken[first] = side
    log_b = np.nan_to_num(middle[taken, side, column, first])
    log_b[first] = 0.0
    sign_b = _sign(np.nansum(signs[taken, :, column] * signs[side, :, first], axis=1))
    turned = taken == 2
    both = np.stack([np.where(turned, other, below), above])
    with np.errstate(divide="ignore", invalid="ignore"):
        candidates = np.concatenate(list(np.log(np.abs(both)) - log_b), axis=1)
    apart = LOST * NONE * (1 + np.arange(2 * k))
    candidates = np.where(np.isnan(candidates), apart, candidates)
    log_a, width_a = _densest(candidates, max(AGREE, 2.1 / (2 * k)))
    lost = ~(width_a < LOST)
    log_a = np.where(lost, 0.0, log_a)
    near = np.abs(candidates - log_a[:, None]) <= width_a[:, None] + FLAT
    sign_a = _sign((np.concatenate(list(np.nan_to_num(np.sign(both)) * sign_b), axis=1) * near).sum(axis=1))
    way = 1.0 if sign_a.sum() >= 0 else -1.0
    return Ratios(
        way * sign_a * np.exp(log_a), way * sign_b * np.exp(log_b), np.where(lost, LOST, width_a), turned
    )


@lru_cache
def _tabulated(optimizer: Optimizer, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Ratios, ascending, and the sums of their steps."""
    apart = np.geomspace(NEAREST, FARTHEST, GRID)
    x = np.concatenate([1 - apart[::-1], [1.0], 1 + apart])
    return x, summed(optimizer, n_steps, x)


def _sides(optimizer: Optimizer, n_steps: int, size: np.ndarray, slack: float) -> Float[np.ndarray, "3 n K"]:
    """The ratios below and above that of the largest sum, and below for the other sign; NaN where none is."""
    x, y = _tabulated(optimizer, n_steps)
    top = int(y.argmax())
    rising, falling = np.maximum.accumulate(y[: top + 1]), np.minimum.accumulate(y[top:])
    signed = np.stack([size, size, -size])
    below = np.interp(signed[[0, 2]], rising, x[: top + 1])
    above = np.interp(-size, -falling, x[top:])
    return _polished(optimizer, n_steps, signed, np.stack([below[0], above, below[1]]), slack)


def _polished(
    optimizer: Optimizer, n_steps: int, size: np.ndarray, ratio: np.ndarray, slack: float
) -> Float[np.ndarray, "3 n K"]:
    """Newton's steps from tabulated ratios; NaN where they end too far off."""
    off = size - summed(optimizer, n_steps, ratio)
    for _ in range(NEWTON):
        slope = (size - off - summed(optimizer, n_steps, ratio - PROBE)) / PROBE
        most = 0.01 * (1 + np.abs(ratio))
        by = np.where(np.abs(slope) > FLAT, off / np.where(slope == 0, 1.0, slope), 0.0)
        new = ratio + np.clip(by, -most, most)
        left = size - summed(optimizer, n_steps, new)
        nearer = np.abs(left) < np.abs(off)
        ratio, off = np.where(nearer, new, ratio), np.where(nearer, left, off)
    return np.where(np.abs(off) > slack, np.nan, ratio)


def _densest(values: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Middle and width of the narrowest interval that holds a share of the values, along the last axis."""
    ordered = np.sort(values, axis=-1)
    count = max(2, int(np.ceil(share * ordered.shape[-1])))
    width = ordered[..., count - 1 :] - ordered[..., : ordered.shape[-1] - count + 1]
    width = np.where(np.isnan(width), np.inf, width)
    at = width.argmin(axis=-1)[..., None]
    middle = np.take_along_axis(ordered, at + (count - 1) // 2, axis=-1)
    return middle[..., 0], np.take_along_axis(width, at, axis=-1)[..., 0]


def _sign(values: np.ndarray) -> np.ndarray:
    return np.where(values < 0, -1.0, 1.0)
