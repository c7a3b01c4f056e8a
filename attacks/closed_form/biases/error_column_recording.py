"""All clients of a recording who send their errors in a column, a step after every rating."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attacks.closed_form.biases.bias_courses import Course, Part
from attacks.closed_form.biases.bias_steps import no_moves, shifts_of
from attacks.closed_form.biases.error_batches import placed
from attacks.closed_form.biases.error_column import (
    Law,
    OnSteps,
    errors_of,
    law_of,
    nobody,
    on_steps,
    place_of,
)
from attacks.closed_form.biases.own_biases_recording import ABLE, FEWEST, MOST, OwnBiases, clients_and_moves
from attacks.closed_form.centres.centred import even
from attacks.closed_form.centres.shifted import told_alone
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.readings import Rows, some_of
from victims.transcript.view import UserBatch, View

CLIENTS, WIDEST = 12, 256  # clients of a round that tell its law, and most factors


def read_error_column(view: View) -> OwnBiases | None:
    """Read all clients of a view as ones who send their errors in a column.

    Parameters
    ----------
    view : View

    Returns
    -------
    OwnBiases or None
        None where there is none, or it does not tell next to all clients.
    """
    levels = np.array(view.manifest.rating_levels)
    possible = view.manifest.weighting == "observed-only" and even(levels)
    if not possible or view.manifest.factors > WIDEST or view.messages.reference is not None:
        return None
    column, n_able, courses = None, 0, []
    for batch in view.batches(BATCH_BYTES):
        rows = [rows_of(view.manifest, one, None) for one in batch.rounds]
        if column is None:
            every = range(view.manifest.factors)
            column = next((told[0].column for one in rows if (told := _told_by(one, every))), None)
        if column is None:
            return None
        course = _course_of(batch, rows, column, levels)
        courses.append(course)
        n_able += int((np.max([one.item.sum(axis=1) for one in rows], axis=0) >= ABLE).sum())
    n_read = sum(len(part.place) for course in courses for part in course.parts)
    if column is None or n_read < max(FEWEST, MOST * n_able):
        return None
    shift = shifts_of(*clients_and_moves(courses), levels.size, step_of(levels))
    return OwnBiases(courses, shift, n_able)


class _Told(NamedTuple):
    """The column of a round's errors, the law, and which step made which row."""

    column: int
    law: Law
    place: Int[np.ndarray, "users rows"]


def _told_by(rows: Rows, columns: Iterable[int]) -> list[_Told]:
    """Columns that leave next to nothing of the chain, in the order of the rows; or in others, if none do."""
    asked = _asked(rows)
    seen = [(column, law) for column in columns if (law := law_of(asked, column)) is not None]
    if seen:
        column, law = min(seen, key=lambda one: one[1].left)
        return [_Told(column, law, place_of(rows))]
    ends = sorted({0, rows.rows.shape[2] - 1} & set(columns))  # biases are at one end of a joined table
    return [_Told(column, *one) for column in ends for one in placed(rows, column, asked)]


def _asked(rows: Rows) -> Rows:
    """Those with most rows."""
    return some_of(rows, np.argsort(-rows.item.sum(axis=1), kind="stable")[:CLIENTS])


def _course_of(
    batch: UserBatch, rows: list[Rows], column: int, levels: Float[np.ndarray, " levels"]
) -> Course:
    """Each client in the first round that tells it."""
    n = batch.users.size
    first_bias, new, open_ = np.full(n, np.nan), np.ones(n, bool), np.ones(n, bool)
    parts = []
    for uploads, one in zip(batch.rounds, rows, strict=True):
        there = np.asarray(one.item.any(axis=1))
        here = np.flatnonzero(open_ & there)
        found = _of_round(some_of(one, here), column, levels)
        told = here[found.told]
        # later on it is not the one that all have in the beginning
        first_bias[told] = np.where(new[told], found.bias[found.told], np.nan)
        open_[told] = False
        new &= ~there
        if told.size:
            shape = uploads.gradients.shape[:2]
            kinds, items = (np.broadcast_to(part, shape)[told] for part in (uploads.kind, uploads.index))
            ratings = told_alone(
                found.above[found.told], found.told[found.told], found.distance[found.told], one.rows.shape[2]
            )
            parts.append(Part(told, uploads.round, kinds, items, ratings))
    return Course(batch.users, parts, first_bias, no_moves(rows[0].rows.shape[2]))


def _of_round(rows: Rows, column: int, levels: Float[np.ndarray, " levels"]) -> OnSteps:
    """Read some clients in one round."""
    told = _told_by(rows, [column]) if len(rows.rows) else []
    found = [on_steps(errors_of(rows, *one), rows.item, levels, rows.precision) for one in told]
    return max(found, key=lambda one: one.rank, default=nobody(rows.item.shape))
