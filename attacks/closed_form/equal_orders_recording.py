"""All clients of a recording that starts with equal factors: one step, or rows in another order than made."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from attacks.base import Estimates, Reconstruction
from attacks.closed_form.biases.item_biases_recording import Part, first_rounds
from attacks.closed_form.equal_start.equal_orders import ALIKE, equal_orders
from attacks.closed_form.equal_start.equal_pulled import Pulled, follow_pulled
from attacks.closed_form.equal_start.equal_readings import PARALLEL
from attacks.closed_form.equal_start.equal_step import equal_step
from attacks.closed_form.uploads.answered import Answered
from attacks.closed_form.uploads.item_rows import BATCH_BYTES
from victims.transcript.view import View

ALREADY = 0.5  # share of the clients that are answered: nothing else is looked for
NOT_ORDERED = "all factors start equal, and no order of its rows puts all of them on the rating grid"


@dataclass(frozen=True)
class _All:
    """g, h and whether there is a row (clients, rows) of all parts, and whose they are."""

    scalar: Float[np.ndarray, "clients rows"]
    along: Float[np.ndarray, "clients rows"]
    there: Bool[np.ndarray, "clients rows"]


def read_equal_orders(view: View, told: Reconstruction, pull: float) -> list[Answered]:
    """Read all clients of a view together, where few are answered otherwise."""
    manifest = view.manifest
    if manifest.weighting == "include-unrated" or len(told.abstained) <= ALREADY * view.users.size:
        return []
    parts = first_rounds(view, pull) if _one_item(view) else []
    if not parts or not all(_parallel(part) for part in parts):
        return []
    every, levels = _joined(parts), np.array(manifest.rating_levels)
    precision = max(float(np.finfo(part.uploads.gradients.dtype).eps) for part in parts)
    predicted = float(np.median(every.along[every.there])) ** 2 if every.there.any() else 0.0
    signed = every.scalar * np.sign(every.along)  # the direction's sign is of no meaning
    ratings = equal_step(signed, every.there, predicted, levels, precision)
    if ratings is not None:
        answered = np.asarray(every.there.any(axis=1))
        nothing = np.zeros(answered.size)
        return _answers(parts, Pulled(ratings, answered, nothing, nothing, nothing), one_step=True)
    orders = equal_orders(every.scalar, every.along, every.there, levels, precision)
    if orders is None:
        return []
    offset = np.zeros(every.scalar.shape)
    for after in (False, True):
        found = follow_pulled(
            every.scalar, every.along, offset, every.there, orders.sequence, levels, precision, after=after,
            scale_known=manifest.scale_known, pulls=(0.0, orders.pull),
        )  # fmt: skip
        if found.told.any():
            return _answers(parts, found)
    return []


def _one_item(view: View) -> bool:
    """Whether all items have the same factors, all numbers of which are equal, and no biases."""
    for batch in view.batches(BATCH_BYTES):
        uploads = batch.rounds[0]
        shape = uploads.gradients.shape
        factors = np.broadcast_to(uploads.factors[uploads.at], shape)[
            np.broadcast_to(uploads.valid, shape[:2])
        ]
        if factors.size and np.ptp(factors) > ALIKE * np.abs(factors).max():
            return False
        if uploads.bias.any():
            return False
    return True


def _parallel(part: Part) -> bool:
    """Whether rows of each client have one direction: equal factors stay equal."""
    return bool((part.numbers.across[part.numbers.there.any(axis=1)] <= PARALLEL).all())


def _joined(parts: list[Part]) -> _All:
    """One after the other, padded."""
    width = max(part.numbers.there.shape[1] for part in parts)

    def longer(tables: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([np.pad(one, ((0, 0), (0, width - one.shape[1]))) for one in tables])

    numbers = [part.numbers for part in parts]
    return _All(
        longer([one.scalar for one in numbers]),
        longer([one.along for one in numbers]),
        longer([one.there for one in numbers]),
    )


def _answers(parts: list[Part], found: Pulled, *, one_step: bool = False) -> list[Answered]:
    """What is said of the clients of each part."""
    ends = np.cumsum([part.users.size for part in parts])
    return [
        _answered(part, Pulled(*(table[end - part.users.size : end] for table in found)), one_step=one_step)
        for part, end in zip(parts, ends.tolist(), strict=True)
    ]


def _answered(part: Part, found: Pulled, *, one_step: bool) -> Answered:
    value = found.value[:, : part.numbers.there.shape[1]]
    kind = np.broadcast_to(part.uploads.kind, part.uploads.gradients.shape[:2])[part.here]
    told, nothing = np.where(found.told, 0.0, np.nan), np.zeros(found.told.size)
    n_steps = np.ones(found.told.size) if one_step else part.numbers.there.sum(axis=1).astype(float)
    columns = (told, n_steps, nothing, np.nan_to_num(found.pull), told + 1)
    factor = np.full((found.told.size, part.uploads.gradients.shape[2]), np.nan)
    return Answered(
        Estimates(part.users, kind, part.items, value),
        dict.fromkeys(part.users[~found.told].tolist(), NOT_ORDERED),
        np.stack(columns, axis=1),
        (part.users, np.full(part.users.size, part.uploads.round), factor),
        np.zeros(found.told.size, bool),
        np.zeros(found.told.size, bool),
    )
