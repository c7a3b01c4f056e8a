"""Posteriors of a batch as an attack's answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from attacks.base import Estimates
from attacks.likelihood.batch_cache import BatchCache
from attacks.likelihood.model import Answers, Model
from victims.transcript.view import ATTRIBUTE, ITEM


def estimates(batches: BatchCache, batch: int, answers: Answers) -> Estimates:
    """The most probable answer of every row of a batch, its probability, and what holds if it is rated."""
    problem, rows = batches.problem, batches.rows(batch)
    size, item_ids = problem.packing.sizes[batch], problem.packing.item_ids
    users = problem.view.users[problem.packing.members[batch][:size]]
    items = np.asarray(answers.items)[:, :size]
    attributes = np.asarray(answers.attributes)[:size]
    valid = np.asarray(rows.valid)[:size]
    n_slots, n_attributes = valid.shape[1], attributes.shape[1]
    sent = np.asarray(rows.attributes_sent)[:, :size].any(axis=0)
    answer = np.array(problem.model.levels)[items.argmax(axis=0)]
    value = np.concatenate([np.where(valid, answer, np.nan), np.where(sent, attributes, np.nan)], axis=1)
    sure = np.concatenate([items.max(axis=0), np.maximum(attributes, 1 - attributes)], axis=1)
    sure = np.where(np.isnan(value), np.nan, np.clip(sure, 0, 1))
    index = np.zeros((size, n_slots + n_attributes), np.int32)
    index[:, :n_slots] = item_ids[np.asarray(rows.item)[:size]] if item_ids.size else 0
    index[:, n_slots:] = np.arange(n_attributes)
    kind = np.repeat([ITEM, ATTRIBUTE], [n_slots, n_attributes]).astype(np.int8)[None]
    found = Estimates(users.astype(np.int32), kind, index, value, sure)
    return replace(found, **_if_rated(problem.model, items, n_attributes))


def _if_rated(
    model: Model, items: Float[np.ndarray, "candidates users slots"], n_attributes: int
) -> dict[str, Float[np.ndarray, "users rows"]]:
    """How likely items are rated, and the most probable and the median rating if they are."""
    levels = np.array(model.levels)
    rated, levels = items[levels > 0], levels[levels > 0]
    below = np.cumsum(rated, axis=0)
    found = {"median_if_rated": levels[(below >= below[-1] / 2).argmax(axis=0)]}
    if any(model.weighted):
        found |= {
            "rated_probability": np.clip(below[-1], 0, 1),
            "rating_if_rated": levels[rated.argmax(axis=0)],
        }
    beside = (0, 0), (0, n_attributes)
    return {name: np.pad(column, beside, constant_values=np.nan) for name, column in found.items()}
