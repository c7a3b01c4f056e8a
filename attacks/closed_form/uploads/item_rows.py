"""Rows of items as clients computed them, free of a scale and of a multiple of their factors."""

from __future__ import annotations

from itertools import islice

import numpy as np
from jaxtyping import Float

from attacks.closed_form.uploads.common_scale import Scale
from attacks.closed_form.uploads.readings import Rows
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM, Uploads

SURE = 64.0  # bits, all of which are 0 by chance in one of 2^64 recordings
ROUGH = 0.01  # of a row, from where on its last place is not allowed for: next to anything fits then
HALF_PRECISION = 1 / 8  # of its last digit, that rounding leaves of a row: longer ones hide steps of clients
MOST_DECIMALS = 12  # after the point
SAMPLE = 1 << 12  # numbers of rows that are looked at
BATCH_BYTES = 1 << 20  # of the uploads of one batch: the planes of a client take its rows squared


def rows_of(
    manifest: Manifest,
    uploads: Uploads,
    shared: Scale | None,
    lowered: float = 0.0,
    pull: float | None = None,
) -> Rows:
    """Rows of items freed of scale and declared regularisation, and what they were computed at."""
    shape = uploads.gradients.shape[:2]
    item = np.broadcast_to(uploads.valid & (uploads.kind == ITEM), shape)
    factors = np.broadcast_to(uploads.factors[uploads.at], uploads.gradients.shape) * item[..., None]
    taken = manifest.upload.regularization if pull is None else pull
    rows = (uploads.gradients - taken * factors) * item[..., None]
    # an item that did not move where others are pulled took no part, whatever is left of its row
    unmoved = (uploads.gradients == 0).all(axis=2) | (uploads.gradients == factors).all(axis=2)
    item = item & ~(unmoved & (rows != 0).any(axis=2))
    rows, factors = rows * item[..., None], factors * item[..., None]
    precision = digit_of(_as_sent(manifest, uploads), factors)
    n_rated = np.maximum(item.sum(axis=1), 1).astype(float)
    scale = np.full(shape[0], np.nan) if shared is None else shared.of(n_rated)
    divisor = np.where(np.isnan(scale), 1.0, scale) * manifest.upload.scale
    rows = rows.astype(np.float64) / divisor[:, None, None]
    offset = np.broadcast_to(uploads.bias + lowered, shape) * item
    return Rows(rows, factors, offset, item, scale, precision, uploads.sequence)


def _as_sent(manifest: Manifest, uploads: Uploads) -> Float[np.ndarray, "users rows K"]:
    """Rows before declared means became sums: these have other digits."""
    if manifest.rule.reduction != "mean" or manifest.rule.batch_size != "all":
        return uploads.gradients
    n_rows = np.broadcast_to(uploads.valid, uploads.gradients.shape[:2]).sum(axis=1)
    return uploads.gradients / np.maximum(n_rows, 1)[:, None, None].astype(uploads.gradients.dtype)


def digit_of(
    gradients: Float[np.ndarray, "users rows K"], factors: Float[np.ndarray, "users rows K"]
) -> float:
    """Find the relative size of the last digit of rows: of differences, or rounded rows, a larger one.

    A change, or weights less what was broadcast, has the digits of the copies of the factors that it is the
    difference of: short rows have few of their own. It shows, for they are whole multiples of those digits.
    So does a last place that all entries share (``fixed_point_of``).

    Examples
    --------
    >>> random = np.random.RandomState(0)
    >>> v, change = random.randn(1, 9, 4), 1e-6 * random.randn(1, 9, 4)
    >>> bool(digit_of(change, v) < 1e-15), bool(1e-11 < digit_of(v + change - v, v) < 1e-9)
    (True, True)
    """
    digit = float(np.finfo(gradients.dtype).eps)
    rounded = rounding_of(gradients)
    if np.unique(np.abs(gradients)).size * np.log2(rounded / digit) > SURE:
        digit = rounded * HALF_PRECISION if rounded == np.finfo(np.float16).eps else rounded
    place = rounded_place_of(gradients, factors)
    # readings allow for short rows themselves: in single precision twice that leaves such digits nothing
    if not place and (gradients.dtype != np.float64 or not _are_differences(gradients, factors)):
        return digit
    with np.errstate(over="ignore"):
        length = np.linalg.norm(gradients, axis=2)
    there = (length > 0) & np.isfinite(length)
    if not there.any():
        return digit
    if place:
        rounded = place / float(np.median(length[there]))
        return max(digit, rounded) if rounded < ROUGH else digit
    last = np.linalg.norm(_spacing(factors, gradients), axis=2)
    return max(digit, float(np.median(last[there] / length[there])))


def rounded_place_of(
    gradients: Float[np.ndarray, "users rows K"], factors: Float[np.ndarray, "users rows K"]
) -> float:
    """Find the last place of rows that were rounded to so many places."""
    place = fixed_point_of(gradients)
    if not place or not _are_differences(gradients, factors):
        return place
    return place if place > _spacing(factors, gradients).max(initial=0.0) else 0.0


def _are_differences(gradients: np.ndarray, factors: np.ndarray) -> bool:
    """Whether rows are multiples of the last digits of numbers whose difference they may be."""
    # one client is enough to see that rows are gradients
    if _zero_bits(gradients[:1], factors[:1]) is None:
        return False
    return (_zero_bits(gradients, factors) or 0.0) >= SURE


def _zero_bits(gradients: np.ndarray, factors: np.ndarray) -> float | None:
    """How many bits are 0 because entries are multiples of their factor's last digit; None if one is not."""
    unit = _spacing(factors, gradients)
    spared = np.log2(unit) - np.log2(np.spacing(np.abs(gradients)))  # their ratio may be less than any number
    asked = np.isfinite(gradients) & (gradients != 0) & (spared > 0)
    multiples = np.fmod(gradients[asked], unit[asked]) == 0
    return float(spared[asked].sum()) if multiples.all() else None


def _spacing(factors: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Last digits of the smaller of two numbers whose difference an entry may be."""
    before = factors.astype(gradients.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        after = before + gradients
    return np.spacing(np.minimum(np.abs(before), np.abs(after)))


def fixed_point_of(gradients: Float[np.ndarray, "users rows K"]) -> float:
    """Find the last place of rows that were rounded to so many places after the point.

    Programs round so what they encrypt, add up under masks or quantise, and a row's digits are then fewer the
    shorter it is.

    Examples
    --------
    >>> rows = np.array([[[0.7654321, -0.1234567, 0.9753124]]])
    >>> fixed_point_of(rows.round(4)), fixed_point_of(np.rint(rows * 2**16) / 2**16) == 2**-16
    (0.0001, True)
    >>> fixed_point_of(rows * np.pi)
    0.0
    """
    every = gradients.ravel()
    numbers = every[:: every.size // SAMPLE | 1]  # odd, so that all columns take part
    entries = numbers[np.isfinite(numbers) & (numbers != 0)]
    if not entries.size:
        return 0.0
    wide = entries.astype(np.float64)
    mantissa, exponent = np.frexp(wide)
    whole = (mantissa * 2.0**53).astype(np.int64)
    lowest = np.log2((whole & -whole).astype(np.float64)) + exponent - 53
    with np.errstate(over="ignore"):
        decimals = (n for n in range(MOST_DECIMALS + 1) if _same(wide.round(n), entries))
        place = max([float(2.0 ** lowest.min()), *(10.0**-n for n in islice(decimals, 1))])
    if not place > 0:
        return 0.0
    spared = np.log2(place) - np.log2(np.spacing(np.unique(np.abs(entries))).astype(np.float64))
    return place if spared[spared > 0].sum() > SURE else 0.0


def _same(rounded: Float[np.ndarray, " some"], entries: Float[np.ndarray, " some"]) -> bool:
    return bool(np.array_equal(rounded.astype(entries.dtype), entries))


def rounding_of(gradients: Float[np.ndarray, "users rows K"]) -> float:
    """Find the relative size of the last digit of rows, which may have been rounded more than their type is.

    Examples
    --------
    >>> rows = np.array([[[0.5, 1 / 3]]])
    >>> [rounding_of(rows.astype(np.float16).astype(kind)) for kind in (np.float32, np.float64)]
    [0.0009765625, 0.0009765625]
    """
    for kind in (np.float16, np.float32):
        if np.finfo(kind).eps <= np.finfo(gradients.dtype).eps:
            break
        with np.errstate(over="ignore"):
            if np.array_equal(gradients.astype(kind), gradients):
                return float(np.finfo(kind).eps)
    return float(np.finfo(gradients.dtype).eps)
