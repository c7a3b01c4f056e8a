"""Rows of one step of which some entries are not sent, completed by those that are.

Rows e_j p have rank one in what is kept. Entries that are kept tell e and p up to a number, along rows and
columns that share some, and with them what is missing. The kept ones must have rank one to their last digits,
so that entries rounded to 0 are not taken for missing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.closed_form.numbers.integer_relation import LOOSE, precision_of
from attacks.closed_form.uploads.readings import Rows

GROWN = 60  # times, that rows and columns are made of each other, at most


class Filled(NamedTuple):
    """Some clients' rows with what is missing, where the kept entries are of one step."""

    # as sent where something else is the case; 0 in columns that are seen nowhere
    rows: Float[np.ndarray, "users rows K"]
    kept: Bool[np.ndarray, "users rows K"]  # entries that were sent
    seen: Bool[np.ndarray, "users K"]  # columns of which something was
    joined: Bool[np.ndarray, "users rows"]  # rows that share columns with the others
    one_step: Bool[np.ndarray, " users"]


def with_gaps(rows: Rows) -> Bool[np.ndarray, " users"]:
    """Tell who sent rows with some entries exactly 0 and others not."""
    kept = rows.rows != 0
    return (kept.any(axis=2) & ~kept.all(axis=2) & rows.item).any(axis=1)


def filled_in(rows: Rows) -> Filled:
    """Complete rows of one step by their kept entries."""
    sent = np.where(rows.item[..., None] & np.isfinite(rows.rows), rows.rows, 0.0)
    size = np.abs(sent).max(axis=(1, 2), initial=0)
    sent = sent / np.where(size > 0, size, 1)[:, None, None]
    kept = sent != 0
    error, factor, joined = of_rank_one(sent, kept)
    product = error[..., None] * factor[:, None]
    digits = LOOSE * precision_of(rows.rows, rows.factors, rows.precision)
    away = np.where(kept & joined[..., None], np.abs(sent - product), 0.0).max(axis=(1, 2), initial=0)
    one_step = (away <= digits) & joined.any(axis=1)
    whole = np.where(kept, sent, product) * np.where(size > 0, size, 1)[:, None, None]
    return Filled(
        np.where(one_step[:, None, None], whole, rows.rows), kept, kept.any(axis=1), joined, one_step
    )


def of_rank_one(
    sent: Float[np.ndarray, "users rows K"], kept: Bool[np.ndarray, "users rows K"]
) -> tuple[Float[np.ndarray, "users rows"], Float[np.ndarray, "users K"], Bool[np.ndarray, "users rows"]]:
    """Find what the kept entries are the product of, from the longest row on."""
    users, n, k = sent.shape
    error, factor = np.zeros((users, n)), np.zeros((users, k))
    if not n:
        return error, factor, np.zeros((users, n), bool)
    user = np.arange(users)
    first = (kept.sum(axis=2) + np.linalg.norm(sent, axis=2) / np.sqrt(k)).argmax(axis=1)
    factor[user] = sent[user, first]
    weight = kept.astype(float)
    for _ in range(GROWN):
        before = factor
        error = _quotient(np.einsum("unk,uk->un", sent, factor), np.einsum("unk,uk->un", weight, factor**2))
        factor = _quotient(np.einsum("unk,un->uk", sent, error), np.einsum("unk,un->uk", weight, error**2))
        if np.abs(factor - before).max(initial=0) <= 1e-15 * np.abs(factor).max(initial=0):
            break
    return error, factor, error != 0


def _quotient(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return above / np.where(below > 0, below, np.inf)
