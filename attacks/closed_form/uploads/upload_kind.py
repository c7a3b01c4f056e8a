"""Whether rows are what ``rule.upload`` declares: copies of the factors that were broadcast lie at these.

A row of weights is ``b + change`` for the factor b that it was computed at, a gradient or a change alone is
not: its distance to b is that of two unrelated vectors, and along b it is as often backwards as forwards. A
view shows weights as changes, so that b is added again where weights are declared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from victims.transcript.view import Uploads, UserBatch, View

NEAR = 0.5  # of a factor's length: weights lie closer than that in most rows
FORWARDS = 0.5  # of a factor: most rows of weights have more of it in them
ASKED, TOGETHER = 60, 10  # clients who are asked, of few and of many rows alike; of similar length at a time
CHANGES = "the gradient or a change: most rows lie nowhere near the factors that were broadcast"
WEIGHTS = "weights: most rows lie at the factors that were broadcast"


class Mismatch(NamedTuple):
    """What the rows look like instead, and of how many clients that were looked at."""

    found: str
    clients: int
    looked_at: int

    @property
    def missing(self) -> float:
        """Multiple of its factor that a view took off each row for nothing, 1; or -1 where it should have."""
        return 1.0 if self.found == CHANGES else -1.0


def mismatch(view: View) -> Mismatch | None:
    """What rows are if not what is declared; None where they are, or nothing is declared or to be seen."""
    declared = view.manifest.rule.upload
    if declared is None or not view.messages.n_rows or view.messages.gradient is None or not view.broadcasts:
        return None
    weights = declared == "weights"
    as_sent = view.manifest.rule.model_copy(update={"reduction": None})  # means stay means
    view = view.declared(declared_rule=as_sent)
    strange, looked_at = 0, 0
    for batch in _some(view):
        distance, along = (
            np.concatenate(parts, axis=1)
            for parts in zip(*(_beside(uploads, weights) for uploads in batch.rounds), strict=True)
        )
        some = ~np.isnan(distance).all(axis=1)
        away, forwards = (np.nanmedian(part[some], axis=1) for part in (distance, along))
        looked_at += int(some.sum())
        wrong = (away >= NEAR) & (forwards < FORWARDS) if weights else away < NEAR
        strange += int(wrong.sum())
    if 2 * strange <= looked_at:
        return None
    return Mismatch(CHANGES if weights else WEIGHTS, strange, looked_at)


def _some(view: View) -> Iterator[UserBatch]:
    """A sample of the clients: most of them send what the others send, and looking costs a pass over rows."""
    order = view.layout.order
    asked = order[np.unique(np.linspace(0, order.size - 1, min(ASKED, order.size)).astype(int))]
    for members in np.split(asked, np.arange(TOGETHER, asked.size, TOGETHER)):
        yield view.batch(members)


def uploaded_otherwise(view: View) -> str:
    """Say that rows are not what is declared; empty where they are, or nothing is to be seen."""
    if (wrong := mismatch(view)) is None:
        return ""
    return (
        f"upload is declared {view.manifest.rule.upload}, and the rows of {wrong.clients} of "
        f"{wrong.looked_at} clients are {wrong.found}"
    )


def _beside(
    uploads: Uploads, weights: bool
) -> tuple[Float[np.ndarray, "users rows"], Float[np.ndarray, "users rows"]]:
    """How far each row lies from its factor, in lengths of that, and which multiple of it is in the row."""
    before = uploads.factors[uploads.at]
    square = (before**2).sum(axis=-1)
    known: Bool[np.ndarray, "users rows"] = uploads.valid & (square > 0)
    rows = uploads.gradients + before if weights else uploads.gradients
    size = np.where(known, square, np.nan)
    distance = np.sqrt(((rows - before) ** 2).sum(axis=-1) / size)
    return distance, (rows * before).sum(axis=-1) / size
