"""The ratings of all senders, each from the round that tells them best.

What is left of a row that is freed of what regularises the item is W e u with the u of its moment: the
closed forms of one round read it, with the weight W for unknown (``attacks.closed_form.rows.row_readings``).
With r = A g + B h, the numbers A and B that put a sender's rows on the rating grid tell W = 1 / |A B|.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attacks.closed_form.fit.decoding import nearest_level
from attacks.closed_form.rows.row_readings import best_reading
from attacks.closed_form.uploads.readings import Rows
from attacks.closed_form.uploads.reduction import leading_direction
from attacks.peers.nearby import Nearby, read_nearby
from attacks.peers.received import Arrived
from attacks.peers.row_form import form_of, ratings_of_steps
from attacks.peers.senders import Sorted
from victims.common.seeds import Purpose, generator
from victims.transcript.manifest import Manifest
from victims.transcript.view import UNTOLD

EXACT = 1e-3  # of a step between levels, by which a rating is off the grid that is read exactly


class Read(NamedTuple):
    """What is read of the rows of one round."""

    value: Float[np.ndarray, " rows"]  # ratings in stars, not rounded; NaN where not told
    # distance of a sender's ratings from the grid, 1 is chance; NaN where there is no answer
    misfit: Float[np.ndarray, " senders"]
    # what multiplies a sender's rows, as they tell it; NaN where they do not
    scale: Float[np.ndarray, " senders"]


def read_senders(
    label: Int[np.ndarray, " rows"],
    rows: Float[np.ndarray, "rows K"],
    factors: Float[np.ndarray, "rows K"],
    manifest: Manifest,
    max_misfit: float,
    precision: float,
) -> Read:
    """Read the senders of one round."""
    n = int(label.max(initial=-1)) + 1
    value, misfit, scale = np.full(label.size, np.nan), np.full(n, np.nan), np.full(n, np.nan)
    kept = np.flatnonzero(label >= 0)
    order = kept[np.argsort(label[kept], kind="stable")]
    count = np.bincount(label[kept], minlength=n)
    start = np.cumsum(count) - count
    for members in _alike(count):
        width = int(count[members].max())
        slot = np.arange(width)
        there = slot < count[members, None]
        at = order[np.where(there, start[members, None] + slot, 0)]
        row, factor = (np.where(there[..., None], part[at], 0.0) for part in (rows, factors))
        unknown = np.full(members.size, np.nan)
        nothing = np.zeros(there.shape)
        found = best_reading(
            Rows(row, factor, nothing, there, unknown, precision, None), manifest, max_misfit
        )
        answered = found.answered
        told = there & answered[:, None]
        value[at[told]] = found.value[told]
        misfit[members] = np.where(answered, found.misfit, np.nan)
        with np.errstate(divide="ignore"):
            scale[members] = np.where(answered, 1 / np.abs(found.of_error * found.of_factor), np.nan)
    return Read(value, misfit, scale)


def _alike(count: Int[np.ndarray, " senders"]) -> list[np.ndarray]:
    """Senders by the number of their rows, so that padding at most doubles a table."""
    order = np.argsort(count, kind="stable")
    order = order[count[order] > 0]
    out = []
    while order.size:
        size = int(np.searchsorted(count[order], 2 * max(count[order[0]], 8), side="right"))
        out.append(order[:size])
        order = order[size:]
    return out


class Claims(NamedTuple):
    """What is said, flat."""

    sender: Int[np.ndarray, " claims"]  # places of senders; items
    item: Int[np.ndarray, " claims"]  # places of senders; items
    # ratings in stars, not rounded, NaN where a row is linked and not read; and how sure
    value: Float[np.ndarray, " claims"]
    # ratings in stars, not rounded, NaN where a row is linked and not read; and how sure
    probability: Float[np.ndarray, " claims"]
    # of ratings from equal factors, and what multiplies the rows; NaN where there are none
    misfit: Float[np.ndarray, " senders"]
    # of ratings from equal factors, and what multiplies the rows; NaN where there are none
    scale: Float[np.ndarray, " senders"]


def read_all(
    manifest: Manifest, rounds: Sequence[Arrived], found: Sorted, max_misfit: float, key: int
) -> Claims:
    """Read all senders."""
    misfit, scale = np.full(found.n, np.nan), np.full(found.n, np.nan)
    chosen = np.full(found.n, -1)
    uneven = bool(np.isnan(ratings_of_steps(manifest, np.ones(1)))[0])
    values = []
    for number, one in enumerate(rounds):
        if found.base not in (-1, number):
            values.append(np.full(one.item.size, np.nan))
            continue
        read = read_senders(
            found.label[number], _freed(manifest, one, found.pull[number]), one.factors, manifest,
            max_misfit, one.precision,
        )  # fmt: skip
        values.append(_on_the_grid(read.value, np.array(manifest.rating_levels)) if uneven else read.value)
        n = read.misfit.size
        better = np.isfinite(read.misfit) & ~(misfit[:n] <= read.misfit)
        for whole, part in ((misfit, read.misfit), (scale, read.scale)):
            whole[:n][better] = part[better]
        chosen[:n][better] = number
    exact = chosen >= 0
    parts: list[tuple[np.ndarray, ...]] = []
    for number, one in enumerate(rounds):
        label = found.label[number]
        here = np.flatnonzero(label >= 0)
        here = here[chosen[label[here]] == number]
        sure = np.where(np.isfinite(values[number][here]), 1.0, np.nan)
        parts.append((label[here], one.item[here], values[number][here], sure))
    parts += _near(manifest, rounds, found, ~exact, key)
    sender, item, value, probability = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Claims(sender, item, value, probability, misfit, scale)


def _on_the_grid(
    value: Float[np.ndarray, " messages"], levels: Float[np.ndarray, " levels"]
) -> Float[np.ndarray, " messages"]:
    """Values that are levels; rows of a smaller last minibatch, read by the divisor of others, are not."""
    step = np.diff(levels).min() if levels.size > 1 else 1.0
    return np.where(np.abs(value - nearest_level(value, levels)) <= EXACT * step, value, np.nan)


def _freed(manifest: Manifest, one: Arrived, pull: np.ndarray) -> Float[np.ndarray, "messages K"]:
    """Rows without multiples of their factors: what planes tell, or what is declared."""
    declared = np.nan_to_num(form_of(manifest).pull)
    return one.rows - np.where(np.isfinite(pull), pull, declared)[:, None] * one.factors


def _product(manifest: Manifest, n_rows: int) -> float | None:
    """A B of r = A g + B h, where the scale of rows and how stars are mapped are public; else None."""
    mapped = (manifest.rule.model_extra or {}).get("rating_map")
    if not manifest.scale_known or mapped not in (None, "max"):
        return None
    stars = 1.0 if mapped is None else manifest.rating_levels[-1]
    product = stars**2 * ratings_of_steps(manifest, np.array([float(n_rows)]))[0] / form_of(manifest).error
    return float(product) if np.isfinite(product) else None


def _near(
    manifest: Manifest, rounds: Sequence[Arrived], found: Sorted, wanted: np.ndarray, key: int
) -> list[tuple[np.ndarray, ...]]:
    """Senders whom no round tells exactly: each in its first one, and what is linked of them."""
    levels = np.array(manifest.rating_levels)
    out: list[tuple[np.ndarray, ...]] = []
    left = wanted.copy()
    for number in range(len(rounds)) if found.base < 0 else (found.base,):
        one, label = rounds[number], found.label[number]
        rows = _freed(manifest, one, found.pull[number])
        for sender in np.flatnonzero(left).tolist():
            here = np.flatnonzero(label == sender)
            if not here.size:
                continue
            left[sender] = False
            direction = leading_direction(rows[here][None])[0][0]
            rng = generator(key, Purpose.PAIRINGS, sender)
            product = _product(manifest, here.size) if one.sender[here[0]] != UNTOLD else None
            read = read_nearby(rows[here] @ direction, one.factors[here] @ direction, levels, rng, product)
            if np.isnan(ratings_of_steps(manifest, np.ones(1)))[0]:  # no one A for all rows
                read = Nearby(np.full(here.size, np.nan), np.full(here.size, np.nan))
            out.append((np.full(here.size, sender), one.item[here], read.value, read.probability))
    return out
