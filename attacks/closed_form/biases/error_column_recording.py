"""All clients of a recording who send their errors in a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attacks.base import Reconstruction, Scope
from attacks.closed_form.biases.bias_courses import Course, Part
from attacks.closed_form.biases.bias_steps import no_moves, shifts_of
from attacks.closed_form.biases.error_batches import placed
from attacks.closed_form.biases.error_column import Law, errors_of, law_of, place_of
from attacks.closed_form.biases.error_ratings import OnSteps, nobody, on_steps, through_links
from attacks.closed_form.biases.own_biases_recording import (
    ABLE,
    FEWEST,
    MOST,
    OwnBiases,
    are_ratings,
    clients_and_moves,
    with_own_biases,
)
from attacks.closed_form.centres.centred import even
from attacks.closed_form.centres.shifted import told_alone
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.fit.images import abstain_if_own_lowest
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.pull_of_steps import ROWS
from attacks.closed_form.uploads.readings import Rows, some_of
from victims.transcript.view import UserBatch, View

CLIENTS, WIDEST = 12, 256  # clients of a round that tell its law, and most factors


def read_error_column(view: View) -> OwnBiases | None:
    """Read all clients of a view as ones who send their errors in a column."""
    levels = np.array(view.manifest.rating_levels)
    possible = view.manifest.weighting == "observed-only" and even(levels)
    if not possible or view.manifest.factors > WIDEST or view.messages.reference is not None:
        return None
    with np.errstate(all="ignore"):  # numbers of columns that hold something else
        courses, bias, n_able = _courses_of(view, levels)
    n_read = sum(len(part.place) for course in courses for part in course.parts)
    if n_read < max(FEWEST, MOST * n_able):
        return None
    shift = shifts_of(*clients_and_moves(courses), levels.size, step_of(levels))
    behind_link = np.isnan(bias)
    own = OwnBiases(courses, np.where(behind_link, 0, shift), n_able, bias)
    # nobody's ratings span half of the grid: a program that learns half of them looks like that
    reach = max(int(part.found.above.max(initial=0)) for course in courses for part in course.parts)
    return own if 2 * reach >= levels.size - 1 and are_ratings(own, levels) else None


def _courses_of(
    view: View, levels: Float[np.ndarray, " levels"]
) -> tuple[list[Course], Float[np.ndarray, " read"], int]:
    """What is read of all clients, their biases, NaN behind a link, and how many have ``ABLE`` rows."""
    column, n_able, courses = None, 0, []
    bias = [np.zeros(0)]
    for batch in view.batches(BATCH_BYTES):
        rows = [rows_of(view.manifest, one, None) for one in batch.rounds]
        if column is None:
            chosen = sorted({0, len(rows) // 2, len(rows) - 1})
            found = (_column_of(rows[number], levels) for number in chosen)
            column = next((one for one in found if one is not None), None)
        if column is None:
            return [], bias[0], 0
        course, own = _course_of(batch, rows, column, levels)
        courses.append(course)
        bias.append(own)
        n_able += int((np.max([one.item.sum(axis=1) for one in rows], axis=0) >= ABLE).sum())
    return courses, np.concatenate(bias), n_able


def with_error_column(
    found: Reconstruction, own: OwnBiases, levels: Float[np.ndarray, " levels"]
) -> Reconstruction:
    """Exchange the answers about clients who send their errors in a column.

    A column of biases that are taken off predictions makes the rows of the mirror images. So people who rate
    low are answered up to it, and so are likes and dislikes.
    """
    told = abstain_if_own_lowest(with_own_biases(found, own, levels), levels)
    if told.scope == Scope.RATINGS_AND_ATTRIBUTES:
        value = np.concatenate([block.value[np.isfinite(block.value)] for block in told.blocks])
        if levels.size > 2 and (not value.size or value.mean() >= (levels[0] + levels[-1]) / 2):
            return told
    elif levels.size > 2:
        return told
    sizes = with_own_biases(found, own._replace(shift=np.full(own.shift.size, -1)), levels)
    return replace(sizes, scope=Scope.SIZES)


class _Told(NamedTuple):
    """The column of a round's errors, the law, and which step made which row."""

    column: int
    law: Law
    place: Int[np.ndarray, "users rows"]


def _column_of(rows: Rows, levels: Float[np.ndarray, " levels"]) -> int | None:
    """The column that tells most of those with most rows, and half of them or more."""
    some = _most_rows(rows)
    asked = some_of(rows, some)
    # a table that was joined has biases at one end
    told = _told_by(rows, [0, rows.rows.shape[2] - 1])
    found = [(_read(asked, [one._replace(place=one.place[some])], levels), one.column) for one in told]
    best, column = max(found, key=lambda one: one[0].rank, default=(nobody(asked.item.shape), 0))
    return column if best.told.any() and 2 * best.told.sum() >= len(best.told) else None


def _told_by(rows: Rows, columns: Sequence[int]) -> list[_Told]:
    """Columns that leave next to nothing of the chain, in the order of the rows; or in others, if none do."""
    asked = some_of(rows, _most_rows(rows))
    seen = [(column, law) for column in columns if (law := law_of(asked, column)) is not None]
    if seen:
        return [_Told(column, law, place_of(rows)) for column, law in seen]
    shorter = some_of(rows, _most_rows(rows, ROWS))
    return [_Told(column, *one) for column in columns for one in placed(rows, column, shorter)]


def _most_rows(rows: Rows, most: int | None = None) -> Int[np.ndarray, " some"]:
    """Clients with most rows, up to so many; whoever has more comes last."""
    n_rows = rows.item.sum(axis=1)
    short = n_rows <= (n_rows.max(initial=0) if most is None else most)
    return np.argsort(np.where(short, -n_rows, n_rows), kind="stable")[:CLIENTS]


def _course_of(
    batch: UserBatch, rows: list[Rows], column: int, levels: Float[np.ndarray, " levels"]
) -> tuple[Course, Float[np.ndarray, " read"]]:
    """Each client in the first round that tells it; its bias, part by part, NaN where there is no shift."""
    n = batch.users.size
    first_bias, new, open_ = np.full(n, np.nan), np.ones(n, bool), np.ones(n, bool)
    parts, bias = [], [np.zeros(0)]
    for uploads, one in zip(batch.rounds, rows, strict=True):
        there = np.asarray(one.item.any(axis=1))
        here = np.flatnonzero(open_ & there)
        some = some_of(one, here)
        found = _read(some, _told_by(some, [column]) if here.size else [], levels)
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
            bias.append(found.bias[found.told])
            ratings = ratings._replace(pull=np.full(told.size, found.pull))
            parts.append(Part(told, uploads.round, kinds, items, ratings))
    course = Course(batch.users, parts, first_bias, no_moves(rows[0].rows.shape[2]))
    return course, np.concatenate(bias)


def _read(rows: Rows, told: Sequence[_Told], levels: Float[np.ndarray, " levels"]) -> OnSteps:
    """Read some clients in one round, by whatever tells most of them."""
    errors = [errors_of(rows, *one) for one in told]
    found = [
        on_steps(one, rows.item, levels, rows.precision)._replace(pull=-by.law.pull)
        for one, by in zip(errors, told, strict=True)
    ]
    best = max(found, key=lambda one: one.rank, default=nobody(rows.item.shape))
    if 2 * best.told.sum() < len(best.told):
        through = [
            through_links(one, rows.item, levels, rows.precision)._replace(pull=-by.law.pull)
            for one, by in zip(errors, told, strict=True)
        ]
        best = max([best, *through], key=lambda one: one.rank)
    return best
