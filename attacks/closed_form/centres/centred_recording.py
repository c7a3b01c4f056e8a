"""All clients of a recording whose ratings are less a number that leaves the mirror image of each open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attacks.base import Estimates, Progress, Scope
from attacks.closed_form.centres.centred import Centred, read_centred
from attacks.closed_form.centres.mirrored import patterns_of
from attacks.closed_form.centres.unmirrored import Answer, unmirrored
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.uploads.answered import Answered
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.own_factors import factors_of
from attacks.closed_form.uploads.readings import Reading, nothing, some_of
from victims.common.seeds import Purpose, generator
from victims.transcript.view import Uploads, View


class _Part(NamedTuple):
    """Some clients in the round that they are read in."""

    users: Int[np.ndarray, " some"]
    uploads: Uploads
    here: Int[np.ndarray, " some"]
    found: Centred
    factor: Float[np.ndarray, "some K"]


def read_centred_recording(
    view: View, pull: float, key: int, progress: Progress
) -> tuple[list[Answered], Scope]:
    """Read all clients of a view whose levels are an even grid."""
    levels = np.array(view.manifest.rating_levels)
    parts = list(_parts(view, pull, levels, progress))
    index = [np.broadcast_to(one.uploads.index, one.uploads.gradients.shape[:2])[one.here] for one in parts]
    found = patterns_of([(one.found, own) for one, own in zip(parts, index, strict=True)], levels.size)
    answer = unmirrored(found, levels, generator(key, Purpose.CLIENTS_SIGNS))
    ends = np.cumsum([one.users.size for one in parts])
    scope = Scope.SIZES if answer.sizes_alone else Scope.RATINGS_AND_ATTRIBUTES
    return [
        _answered(one, own, answer.of(slice(end - one.users.size, end)), step_of(levels))
        for one, own, end in zip(parts, index, ends.tolist(), strict=True)
    ], scope


def _parts(
    view: View, pull: float, levels: Float[np.ndarray, " levels"], progress: Progress
) -> Iterator[_Part]:
    """Each client in the first round that tells it, or the last one."""
    done = 0
    for batch in view.batches(BATCH_BYTES):
        rest = np.arange(batch.users.size)
        for number, uploads in enumerate(batch.rounds, start=1):
            rows = some_of(rows_of(view.manifest, uploads, None, 0.0, pull), rest)
            found = read_centred(rows, levels)
            taken = found.told | (number == len(batch.rounds))
            if taken.any():
                here = rest[taken]
                some = Centred(*(column[taken] for column in found))
                factor = factors_of(some_of(rows, taken), _reading(some, step_of(levels)))
                yield _Part(batch.users[here], uploads, here, some, factor)
            rest = rest[~taken]
            if not rest.size:
                break
        done += batch.users.size
        progress(done, view.users.size)


def _reading(found: Centred, step: float) -> Reading:
    """Ratings less the number that is taken off them, as if no mirror image were open."""
    value = np.where(found.above >= 0, found.start[:, None] + step * found.above, np.nan)
    return nothing(value.shape)._replace(
        value=value,
        steps=found.steps,
        pull=found.pull,
        of_error=found.numbers[:, 0],
        of_factor=found.numbers[:, 1],
    )


def _answered(part: _Part, index: Int[np.ndarray, "some rows"], answer: Answer, step: float) -> Answered:
    """What is said of clients of one part."""
    above = part.found.above
    value = answer.lowest[:, None] + answer.per_step[:, None] * above
    value = np.where(above >= 0, value, np.nan)
    kind = np.broadcast_to(part.uploads.kind, part.uploads.gradients.shape[:2])[part.here]
    probability = np.where(np.isnan(value), np.nan, answer.probability[:, None])
    told = ~np.isnan(answer.lowest)
    reasons = {
        user: reason for user, reason in zip(part.users.tolist(), answer.reason, strict=True) if reason
    }
    misfit = np.where(told, 0.0, np.nan)
    columns = (misfit, part.found.steps, np.zeros(told.size), part.found.pull, answer.probability)
    signed = told & (not answer.sizes_alone)
    factor = part.factor * np.where(signed, answer.per_step / step, np.nan)[:, None]
    return Answered(
        Estimates(part.users, kind, index, value, probability=probability),
        reasons,
        np.stack(columns, axis=1),
        (part.users, np.full(part.users.size, part.uploads.round), factor),
        np.zeros(part.users.size, bool),
        np.zeros(part.users.size, bool),
    )
