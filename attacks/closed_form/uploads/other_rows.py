"""A view whose clients send other rows about the same items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.readings import Rows
from victims.transcript.view import Messages, Uploads, UserBatch, View


class OtherRows(NamedTuple):
    """What some clients send in one round instead."""

    users: Int[np.ndarray, " users"]
    uploads: Uploads  # what they sent
    here: Bool[np.ndarray, "users rows"]  # of which rows there are others
    rows: Float[np.ndarray, "users rows K"]  # these, and what they are about
    factors: Float[np.ndarray, "users rows K"]  # these, and what they are about


def is_plain(view: View) -> bool:
    """Whether rows are seen, about factors that were broadcast to all, without biases."""
    biased = any(one.bias is not None for one in view.broadcasts.values())
    return view.messages.gradient is not None and view.messages.reference is None and not biased


def rows_of_all(view: View, pull: float) -> Iterator[tuple[UserBatch, Uploads, Rows]]:
    """What all clients send in all rounds."""
    for batch in view.batches(BATCH_BYTES):
        for uploads in batch.rounds:
            if uploads.gradients.shape[1]:
                yield batch, uploads, rows_of(view.manifest, uploads, None, 0.0, pull)


def view_of(view: View, parts: Sequence[OtherRows], kind: type[np.floating]) -> View:
    """Make a view of other rows, of which no scale and no reduction is declared."""
    columns: dict[str, list[np.ndarray]] = {name: [] for name in ("round", "sender", "kind", "index")}
    for one in parts:
        columns["round"].append(np.full(int(one.here.sum()), one.uploads.round, np.int32))
        columns["sender"].append(np.broadcast_to(one.users[:, None], one.here.shape)[one.here])
        columns["kind"].append(np.broadcast_to(one.uploads.kind, one.here.shape)[one.here])
        columns["index"].append(np.broadcast_to(one.uploads.index, one.here.shape)[one.here])
    flat = {name: (np.concatenate(column),) for name, column in columns.items()}
    rows = np.concatenate([one.rows[one.here] for one in parts]).astype(kind)
    factors = np.concatenate([one.factors[one.here] for one in parts])
    messages = Messages(**flat, gradient=(rows,), reference=(factors,))
    rounds = np.unique(messages.round[0]).tolist()
    # sums are made of means as they are read
    rule = view.manifest.rule.model_copy(update={"reduction": None})
    bare = view.declared(scale_known=False, rule=rule, rounds=rounds)
    return replace(bare, messages=messages, broadcasts={one: view.broadcasts[one] for one in rounds})
