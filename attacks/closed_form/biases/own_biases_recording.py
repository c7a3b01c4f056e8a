"""All clients of a recording who keep a bias of their own beside biases of items that are broadcast."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attacks.base import Estimates, Reconstruction, Scope, joined
from attacks.closed_form.biases.bias_courses import Course, Part, course_of, joined_moves
from attacks.closed_form.biases.bias_steps import Clients, Moves, shifts_of
from attacks.closed_form.centres.centred import even
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.fit.images import abstain_if_own_lowest, implausible, in_larger_steps
from attacks.closed_form.read_rounds import EXACT
from attacks.closed_form.uploads.answered import block_of
from attacks.closed_form.uploads.item_rows import BATCH_BYTES
from victims.transcript.view import ITEM, View

OPEN_SHIFT = (
    "its ratings are read up to a shift by whole levels: a bias of the client that nobody told makes the "
    "same rows with it, it has not both the lowest and the highest level, and rounds do not tell that bias"
)

ABLE = 6  # ratings of a client that can be read alone
FEWEST, MOST = 3, 0.9  # clients who are told, and the share of those who can be: nothing else is tried
CLOSER = 10.0  # times as far from the grid, that an answer without a bias may be
NOTHING = 1e-3  # stars, below which a bias may be none
USUALLY = 0.5  # share of the clients: if as many have an implausible bias, items' are not the program's


class OwnBiases(NamedTuple):
    """What is read of all clients."""

    courses: list[Course]
    # of those who are read up to it, part by part of the courses; -1 where it is open
    shift: Int[np.ndarray, " read"]
    n_able: int  # clients with ``ABLE`` rows or more in some round
    # that of each before its first row, as of ``Shifted``, where what is found of it says none
    bias: Float[np.ndarray, " read"] | None = None

    @property
    def complete(self) -> bool:
        """Whether nearly all clients are told, with a bias: other ideas of their rows are accidents."""
        bias = [part.found.bias for course in self.courses for part in course.parts]
        told = np.abs(np.concatenate(bias)[self.shift >= 0]) > NOTHING
        return bool(told.sum() >= max(FEWEST, MOST * self.n_able))

    def told(self, levels: Float[np.ndarray, " levels"]) -> Float[np.ndarray, " told"]:
        """Biases that are known, of those whose shift is told, in stars."""
        bias = self.bias
        if bias is None:
            bias = np.concatenate([part.found.bias for course in self.courses for part in course.parts])
        return (bias + self.shift * step_of(levels))[(self.shift >= 0) & np.isfinite(bias)]


def own_biases_of(view: View, pull: float) -> OwnBiases | None:
    """Read all clients of a view as ones that may have a bias of their own beside those of items."""
    levels = np.array(view.manifest.rating_levels)
    if not _applies(view, levels):
        return None
    n_able, courses = 0, []
    for batch in view.batches(BATCH_BYTES):
        courses.append(course_of(view.manifest, batch, levels, pull))
        rows = [(one.valid & (one.kind == ITEM)).sum(axis=1) for one in batch.rounds]
        n_able += int((np.max(np.broadcast_arrays(*rows), axis=0) >= ABLE).sum())
    if not any(course.parts for course in courses):
        return None
    shift = shifts_of(*clients_and_moves(courses), levels.size, step_of(levels))
    own = OwnBiases(courses, shift, n_able)
    return own if are_ratings(own, levels) else None


def are_ratings(own: OwnBiases, levels: Float[np.ndarray, " levels"]) -> bool:
    """Whether clients are read as ones who rate in all steps, with biases that leave predictions on the grid.

    Biases of items in half the unit of the ratings leave every second level, and such of the other sign the
    mirror image of the ratings, less more than the highest of them.
    """
    parts = [part for course in own.courses for part in course.parts]
    above = [steps[steps >= 0] for part in parts for steps in part.found.above]
    coarse = [in_larger_steps(step_of(levels) * one, levels) for one in above if one.size >= ABLE]
    odd = implausible(own.told(levels), levels)
    return not any(np.mean(some) >= USUALLY for some in (coarse, odd) if len(some))


def with_own_biases(
    told: Reconstruction, own: OwnBiases, levels: Float[np.ndarray, " levels"]
) -> Reconstruction:
    """Exchange the answers about clients who are read with a bias of their own.

    Where next to nobody is told, differences of ratings are the answer about all who are read up to a shift.
    """
    found = _exchanged(told, own, own.shift, levels)
    bias = own.told(levels)
    if bias.size and np.mean(np.abs(bias - levels[0]) < NOTHING) >= USUALLY:
        found = abstain_if_own_lowest(found, levels)
    if len(found.abstained) <= found.users.size - FEWEST or OPEN_SHIFT not in found.abstained.values():
        return found
    any_shift = np.maximum(own.shift, 0)
    return replace(_exchanged(told, own, any_shift, levels), scope=Scope.DIFFERENCES)


def _exchanged(
    told: Reconstruction,
    own: OwnBiases,
    shifts: Int[np.ndarray, " read"],
    levels: Float[np.ndarray, " levels"],
) -> Reconstruction:
    """The answers with those about all who are read exchanged, at these shifts; -1 where it is open."""
    first = 0
    for course in own.courses:
        for part in course.parts:
            shift = shifts[first : first + part.place.size]
            told = _with(told, course.users[part.place], part, shift, levels)
            first += part.place.size
    return told


def _applies(view: View, levels: Float[np.ndarray, " levels"]) -> bool:
    """Whether items have known biases of their own, and the levels are an even grid."""
    biased = any(known.bias is not None and np.ptp(known.bias) > 0 for known in view.broadcasts.values())
    return biased and view.manifest.weighting == "observed-only" and even(levels)


def clients_and_moves(courses: list[Course]) -> tuple[Clients, Moves]:
    """Put clients who are read after each other."""
    reach, n_rated, first_bias, moves = [], [], [], []
    first = 0
    for course in courses:
        number = np.full(course.users.size, -1)
        for part in course.parts:
            number[part.place] = first + np.arange(part.place.size)
            first += part.place.size
            reach.append(part.found.above.max(axis=1, initial=0))
            n_rated.append((part.found.above >= 0).sum(axis=1))
            first_bias.append(course.first_bias[part.place])
        moves.append(course.moves._replace(client=number[course.moves.client]))
    return Clients(*(np.concatenate(one) for one in (reach, n_rated, first_bias))), joined_moves(moves)


def _with(
    told: Reconstruction,
    users: Int[np.ndarray, " some"],
    part: Part,
    shift: Int[np.ndarray, " some"],
    levels: Float[np.ndarray, " levels"],
) -> Reconstruction:
    """The answers with those about some clients exchanged; whose shift is open keeps one that fits."""
    above = part.found.above
    value = levels[0] + step_of(levels) * (above + np.maximum(shift, 0)[:, None])
    value = np.where(above >= 0, value, np.nan)
    before = _answers_about(told, users, part.items)
    apart = np.where(np.isnan(value), np.nan, before - value)
    kept = (shift < 0) & np.array([_one_number(own[np.isfinite(own)], step_of(levels)) for own in apart])
    # an answer by several steps (NaN), in whose span a shift is by accident, of who took one with a bias
    at = np.searchsorted(told.users, users)
    kept &= ~(np.isfinite(part.found.bias) & np.isnan(told.diagnostics["steps"][at]))
    # nor one that is nearly on the grid where ratings with a bias are on it
    kept &= told.diagnostics["misfit"][at] <= CLOSER * part.found.distance / (step_of(levels) / 4) + EXACT
    some = np.flatnonzero(~kept)
    value = np.where((shift >= 0)[:, None], value, np.nan)[some]
    block = Estimates(users[some], part.kinds[some], part.items[some], value)
    mine, answered = np.isin(told.users, users[some]), shift[some] >= 0
    abstained = {user: why for user, why in told.abstained.items() if user not in set(users[some].tolist())}
    abstained |= dict.fromkeys(users[some[~answered]].tolist(), OPEN_SHIFT)
    at = np.searchsorted(told.users, users[some])
    says: dict[str, Any] = {
        "misfit": np.where(answered, part.found.distance[some] / (step_of(levels) / 4), np.nan)
    }
    steps = np.where(np.isfinite(part.found.bias[some]), 1.0, np.nan)  # or several, over all ratings
    says |= {"steps": steps, "declared": 0.0, "pull": part.found.pull[some], "upright": 1.0}
    diagnostics = {name: column.copy() for name, column in told.diagnostics.items()}
    for name, column in says.items():
        diagnostics[name][at] = column
    known = [] if told.factors is None else [told.factors.of(told.users[~mine])]
    factors = [(one.users, one.round, one.value) for one in known]
    own = np.where(answered[:, None], part.found.factor[some], np.nan)
    factors.append((users[some], np.full(some.size, part.round), own))
    blocks = tuple(block_of(one, ~np.isin(one.users, users[some])) for one in told.blocks)
    return replace(
        told,
        blocks=(*(one for one in blocks if one.users.size), block),
        abstained=abstained,
        diagnostics=diagnostics,
        factors=joined(factors),
    )


def _one_number(apart: Float[np.ndarray, " ratings"], step: float) -> bool:
    """Whether there are answers, and all are as far from the ratings up to a shift."""
    return apart.size > 0 and bool(np.ptp(apart) < step / 2)


def _answers_about(
    told: Reconstruction, users: Int[np.ndarray, " some"], index: Int[np.ndarray, "some rows"]
) -> Float[np.ndarray, "some rows"]:
    """What is said of some clients' items; NaN where nothing is."""
    out = np.full(index.shape, np.nan)
    answered = ~np.isin(users, list(told.abstained))
    for block in told.blocks:
        items = np.broadcast_to(block.index, block.value.shape)
        for at in np.flatnonzero(answered & np.isin(users, block.users)):
            own = int(np.flatnonzero(block.users == users[at])[0])
            here = ~np.isnan(block.value[own])
            given = dict(zip(items[own, here].tolist(), block.value[own, here].tolist(), strict=True))
            out[at] = [given.get(item, np.nan) for item in index[at].tolist()]
    return out
