"""All clients of a recording of implicit feedback: who send rows of positives, and of negatives they drew.

Rows are split by label (``attacks.closed_form.implicit.labels``), and all clients and rounds together say
which label is that of the positives (``attacks.closed_form.implicit.positives``). The answer about a negative
is 0, unrated; a positive that a client sent no row about is not seen.

What it assumes: one level, the mark of a positive; where ratings have several, that their rows are as draws
of negatives beside positives would be.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int
from scipy.special import expit

from attacks.base import Estimates, Reconstruction, silent_about
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.implicit.labels import BAR, Labels, labels_of
from attacks.closed_form.implicit.positives import named
from attacks.closed_form.uploads.answered import block_of
from victims.transcript.view import ITEM, View

OPEN_LABEL = (
    "its rows fall into two labels, and neither its numbers of both, nor its rounds, nor others who list the "
    "same items say which are the positives"
)
NO_POSITIVE = "its rows say of no item that it is a positive, and a client without one sends nothing"


class Positives(NamedTuple):
    """What rows of two labels say."""

    probability: sp.csr_array  # that an item of a client is a positive, where it sent a row; no other entries
    two: Bool[np.ndarray, " clients"]  # who have rows of two labels
    sure: Float[np.ndarray, " clients"]  # probability that the positives are the label that is called so

    @property
    def told(self) -> Bool[np.ndarray, " clients"]:
        """Whose positives are named."""
        return self.two & (self.sure >= BARS.sure)


def positives_of(view: View) -> Positives | None:
    """Name the positives of all clients; None where rows are of no two labels."""
    labels = labels_of(view)
    if labels is None:
        return None
    # numbers about a centre lie apart, too: of these, and where rows do not say it, draws have to
    least = -np.inf if labels.two.any() and len(view.manifest.rating_levels) == 1 else BAR
    if np.isfinite(least):
        n = labels.two.size
        both = (
            np.bincount(labels.client, side, minlength=n) > 0 for side in (labels.odds > 0, labels.odds < 0)
        )
        labels = labels._replace(two=np.logical_and(*both))
    return positives(labels, view.manifest.n_items, least)


def positives(labels: Labels, n_items: int, least: float = -np.inf) -> Positives | None:
    """Name the positives of clients with rows of two labels, where draws explain these by so many nats."""
    told = named(labels, n_items)
    if not labels.two.any() or told.nats < least:
        return None
    here = labels.two[labels.client]
    client, item = labels.client[here], labels.item[here]
    shape = labels.two.size, n_items
    odds = sp.csr_array(sp.coo_array((labels.odds[here], (client, item)), shape=shape))
    own = expit(odds.data)
    plus = np.repeat(expit(told.odds), np.diff(odds.indptr))
    odds.data = plus * own + (1 - plus) * (1 - own)
    return Positives(odds, labels.two, expit(np.abs(told.odds)))


def with_positives(found: Reconstruction, view: View, told: Positives | None) -> Reconstruction:
    """Answer clients by the labels of their rows, where these are of a loss of labels."""
    found = silent_about(found, ~_with_a_positive(found), NO_POSITIVE)
    if told is None:
        return found
    # ratings that rows of labels meet are an accident of coarse rounding
    silent = np.isin(found.users, list(found.abstained))
    found = silent_about(found, told.two & ~silent, OPEN_LABEL)
    reasons = dict.fromkeys(view.users[told.two & ~told.told].tolist(), OPEN_LABEL)
    users = view.users[told.told]
    kept = {user: why for user, why in found.abstained.items() if user not in set(users.tolist())}
    diagnostics = {name: column.copy() for name, column in found.diagnostics.items()}
    for name, column in (("misfit", 0.0), ("steps", np.nan), ("upright", told.sure[told.told])):
        diagnostics[name][told.told] = column
    rest = (block_of(block, ~np.isin(block.users, users)) for block in found.blocks)
    blocks = tuple(block for block in rest if block.users.size)
    if users.size:
        blocks += (label_estimates(users, told, float(view.manifest.rating_levels[0])),)
    return replace(found, blocks=blocks, abstained=kept | reasons, diagnostics=diagnostics)


def _with_a_positive(found: Reconstruction) -> np.ndarray:
    """Clients who are abstained on, or answered with at least one item that is not unrated."""
    some = [block.users[(block.value > 0).any(axis=1)] for block in found.blocks]
    return np.isin(found.users, np.concatenate([*some, np.array(list(found.abstained), int)]))


def label_estimates(users: Int[np.ndarray, " told"], told: Positives, level: float) -> Estimates:
    """Answer the level for positives and 0 for negatives, padded to one length."""
    table = told.probability[np.flatnonzero(told.told)]
    n = np.diff(table.indptr)
    slot = np.arange(n.max(initial=0))
    there = slot < n[:, None]
    entry = np.where(there, table.indptr[:-1, None] + slot, 0)
    positive = np.where(there, table.data[entry], np.nan)
    return Estimates(
        users,
        np.full((1, slot.size), ITEM, np.int8),
        np.where(there, table.indices[entry], 0).astype(np.int32),
        np.where(there, np.where(positive > 0.5, level, 0.0), np.nan),
        probability=np.maximum(positive, 1 - positive),
    )
