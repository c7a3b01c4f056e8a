"""Uploads as changes of the factors, without the rows that carry nothing: what attacks are written for.

Programs that upload their whole copy of the factors send ``b + change`` for every item; with weight decay
even the items that nobody touched move, all by the same multiple of ``b``, as exactly as copies of ``b``
are held: a change of a thousandth in single precision has four digits. Nothing of this has to be declared: it
shows in the rows, held against the factors ``b`` that they were computed at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.transcript.manifest import Manifest
from victims.transcript.messages import Broadcast, Messages, Told

BLOCK = 1 << 18  # rows that are held as float64 at a time
SAMPLED = 100_000  # rows that are asked whether they are weights
NEAR = 0.5  # of a factor's length: rows are weights where half of them lie so close to it
ULPS = 8.0  # rounding errors of the program that sent a row, in units of its type
LEAST_ROWS = 3  # of one client that move alike, and
LEAST_SHARE = 0.1  # of its rows, before that is called a pull


class Block(NamedTuple):
    """Some rows of one chunk, and the factors that they were computed at, in float64."""

    rows: Float[np.ndarray, "rows factors"]
    before: Float[np.ndarray, "rows factors"]


def as_changes(
    messages: Messages, broadcasts: Mapping[int, Broadcast], manifest: Manifest, tables: Told | None = None
) -> tuple[Messages, Manifest]:
    """Uploads without what was broadcast and without rows that carry nothing.

    Weights become changes. Of clients that send a row for every item, rows of zeros, weights as they were
    broadcast, and rows that are the multiple of their factor that the client's other rows share, are left
    out; where that multiple (weight decay) is not public, it is taken off the other rows, too. ``tables``
    tell who sent whole tables, where some send rows of a list: those of a list all stay.
    """
    assert messages.gradient is not None
    rule = manifest.rule
    dense = manifest.unrated_rows
    weights = rule.upload == "weights"
    if rule.upload is None and are_weights(messages, broadcasts):
        weights = True
        found = rule.model_copy(update={"upload": "weights"})
        manifest = manifest.model_copy(update={"declared_rule": found})
    still: Sequence[np.ndarray] = ()
    if weights:
        messages, still = _without_broadcast(messages, broadcasts)
    if not dense:
        return messages, manifest
    if not weights:
        assert messages.gradient is not None
        still = [(chunk == 0).all(axis=1) for chunk in messages.gradient]
    if manifest.version > 1:
        messages, pulled = _without_pull(messages, broadcasts, weights, manifest)
        still = [mask | alike for mask, alike in zip(still, pulled, strict=True)]
    if tables is not None:
        whole = set(zip(tables.round.tolist(), tables.sender.tolist(), strict=True))
        ends = zip(messages.round, messages.sender, strict=True)
        still = [mask & _among(whole, *pair) for mask, pair in zip(still, ends, strict=True)]
    return (messages.rows([~mask for mask in still]) if any(m.any() for m in still) else messages), manifest


def _among(
    pairs: set[tuple[int, int]], round_: Int[np.ndarray, " rows"], sender: Int[np.ndarray, " rows"]
) -> Bool[np.ndarray, " rows"]:
    """Which rows are of the rounds and senders of some pairs."""
    found, at = np.unique(np.stack([round_, sender]), axis=1, return_inverse=True)
    return np.array([pair in pairs for pair in zip(*found.tolist(), strict=True)], bool)[at.ravel()]


def are_weights(messages: Messages, broadcasts: Mapping[int, Broadcast]) -> bool:
    """Whether rows lie where their factors lie, as copies of factors do and gradients do not."""
    step = max(messages.n_rows // SAMPLED, 1)
    sample = messages.rows([np.arange(chunk.size) % step == 0 for chunk in messages.sender])
    blocks = [block for chunk in _blocks(sample, broadcasts) for block in chunk]
    if not blocks:
        return False
    size = np.concatenate([_length(block.before) for block in blocks])
    distance = np.concatenate([_length(block.rows - block.before) for block in blocks])
    known = (size > 0) & np.isfinite(distance)
    return bool(known.any() and np.median(distance[known] / size[known]) < NEAR)


def positions(messages: Messages, broadcasts: Mapping[int, Broadcast]) -> Iterator[Int[np.ndarray, " rows"]]:
    """Find, chunk by chunk, the row of each upload's factor in the broadcast of its round."""
    for round_, kind, index in zip(messages.round, messages.kind, messages.index, strict=True):
        position = np.empty(round_.size, np.int64)
        for number in np.unique(round_).tolist():
            here = round_ == number
            position[here] = broadcasts[number].positions(kind[here], index[here])
        yield position


def _without_broadcast(
    messages: Messages, broadcasts: Mapping[int, Broadcast]
) -> tuple[Messages, list[Bool[np.ndarray, " rows"]]]:
    """Changes in the type of the weights, and which of them are nothing but rounding."""
    assert messages.gradient is not None
    changes, unchanged = [], []
    for chunk, blocks in zip(messages.gradient, _blocks(messages, broadcasts), strict=True):
        change, still = np.empty_like(chunk), np.zeros(len(chunk), bool)
        start = 0
        for block in blocks:
            stop = start + len(block.rows)
            moved = block.rows - block.before
            change[start:stop] = moved
            still[start:stop] = _length(moved) <= _rounding(chunk) * _length(block.before)
            start = stop
        changes.append(change)
        unchanged.append(still)
    return replace(messages, gradient=tuple(changes)), unchanged


def _without_pull(
    messages: Messages, broadcasts: Mapping[int, Broadcast], weights: bool, manifest: Manifest
) -> tuple[Messages, list[Bool[np.ndarray, " rows"]]]:
    """Rows less the multiple of their factor that a client's rows share, and which are nothing else."""
    assert messages.gradient is not None
    nothing = [np.zeros(chunk.size, bool) for chunk in messages.sender]
    if not messages.n_rows or messages.gradient[0].shape[1] == 1:  # every row is a multiple of its factor
        return messages, nothing
    along: list[np.ndarray] = []
    alike: list[np.ndarray] = []
    slack: list[np.ndarray] = []
    for chunk, blocks in zip(messages.gradient, _blocks(messages, broadcasts), strict=True):
        for block in blocks:
            of_copies = weights | _between_copies(block, chunk.dtype)
            multiple, parallel, error = _multiple(block, _rounding(chunk), of_copies)
            along.append(multiple)
            alike.append(parallel)
            slack.append(error)
    multiple, parallel, error = map(np.concatenate, (along, alike, slack))
    group = _by_client(messages)
    shared = _shared(group, multiple, parallel)[group]
    pulled = parallel & (shared != 0) & (np.abs(multiple - shared) <= error)
    # the row in the middle shares its multiple with itself
    agreed = _enough(group, pulled)[group]
    if manifest.upload.zeros_if_unrated:
        agreed &= ~_equal_ratings(messages, broadcasts, group, multiple != 0)
    pulled, shared = pulled & agreed, np.where(agreed, shared, 0.0)
    if not pulled.any():
        return messages, nothing
    cut = messages.offsets[1:-1]
    if not manifest.scale_known:
        gradients = []
        pieces = zip(messages.gradient, _blocks(messages, broadcasts), np.split(shared, cut), strict=True)
        for chunk, blocks, pull in pieces:
            out, start = np.empty_like(chunk), 0
            for block in blocks:
                stop = start + len(block.rows)
                out[start:stop] = block.rows - pull[start:stop, None] * block.before
                start = stop
            gradients.append(out)
        messages = replace(messages, gradient=tuple(gradients))
    return messages, np.split(pulled, cut)


def _multiple(
    block: Block, rounding: float, of_copies: Bool[np.ndarray, " rows"]
) -> tuple[Float[np.ndarray, " rows"], Bool[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
    """Which multiple of its factor each row is; whether it is one but for rounding; the multiple's error."""
    square = (block.before**2).sum(axis=1)
    some = square > 0
    multiple = (block.rows * block.before).sum(axis=1) / np.where(some, square, 1)
    size = np.sqrt(square)
    allowed = rounding * np.where(of_copies, size, _length(block.rows))
    off = _length(block.rows - multiple[:, None] * block.before)
    error = 2 * allowed / np.where(some, size, 1)
    return multiple, some & (off <= allowed) & (np.abs(multiple) > error), error


def _between_copies(block: Block, dtype: np.dtype) -> Bool[np.ndarray, " rows"]:
    """Which rows are changes of factors that a program held in this type: rows as inexact as the factors.

    The difference of two such numbers ends at the digits that they end at, so that adding it to the one
    gives the other without rounding. Gradients have digits of their own, which are lost in the sum.
    """
    before, rows = block.before.astype(dtype), block.rows.astype(dtype)
    after = before + rows
    moved = after - before
    lost = (before - (after - moved)) + (rows - moved)
    return (lost == 0).all(axis=1)


def _by_client(messages: Messages) -> Int[np.ndarray, " rows"]:
    """A number for each round and sender."""
    round_, sender = np.concatenate(messages.round), np.concatenate(messages.sender)
    pairs = round_.astype(np.int64) * (int(sender.max()) + 1) + sender
    return np.unique(pairs, return_inverse=True)[1]


def _shared(
    group: Int[np.ndarray, " rows"], multiple: Float[np.ndarray, " rows"], parallel: Bool[np.ndarray, " rows"]
) -> Float[np.ndarray, " groups"]:
    """The median multiple of each group's parallel rows; 0 where these are too few."""
    count = np.bincount(group[parallel], minlength=int(group.max()) + 1)
    order = np.lexsort((multiple[parallel], group[parallel]))
    first = np.cumsum(count) - count
    middle = np.minimum(first + count // 2, max(order.size - 1, 0))
    value = multiple[parallel][order][middle] if order.size else np.zeros(count.size)
    return np.where(_enough(group, parallel), value, 0.0)


def _equal_ratings(
    messages: Messages,
    broadcasts: Mapping[int, Broadcast],
    group: Int[np.ndarray, " rows"],
    moved: Bool[np.ndarray, " rows"],
) -> Bool[np.ndarray, " rows"]:
    """Whose equal rows are of equal ratings: all factors are one, and some items are not pulled."""
    numbers = np.array(sorted(broadcasts))
    tables = [broadcasts[number].factors for number in numbers.tolist()]
    alike = [len(part) if (part == part[:1]).all() else 0 for part in tables]
    known = np.array(alike)[np.searchsorted(numbers, np.concatenate(messages.round))]
    return np.bincount(group, weights=moved)[group] < known


def _enough(
    group: Int[np.ndarray, " rows"], chosen: Bool[np.ndarray, " rows"]
) -> Bool[np.ndarray, " groups"]:
    """Which groups have so many of these rows that it is no accident."""
    total = np.bincount(group)
    count = np.bincount(group[chosen], minlength=total.size)
    return (count >= LEAST_ROWS) & (count >= LEAST_SHARE * total)


def _blocks(messages: Messages, broadcasts: Mapping[int, Broadcast]) -> Iterator[Iterator[Block]]:
    """For each chunk its rows with their factors, a block at a time."""
    assert messages.gradient is not None
    references: Sequence[np.ndarray | None] = messages.reference or (None,) * len(messages.gradient)
    columns = zip(messages.gradient, messages.round, positions(messages, broadcasts), references, strict=True)
    for rows, round_, position, reference in columns:
        yield _blocks_of(rows, round_, position, reference, broadcasts)


def _blocks_of(
    rows: np.ndarray,
    round_: np.ndarray,
    position: np.ndarray,
    reference: np.ndarray | None,
    broadcasts: Mapping[int, Broadcast],
) -> Iterator[Block]:
    for start in range(0, len(rows), BLOCK):
        here = slice(start, start + BLOCK)
        taken = rows[here].astype(np.float64)
        if reference is not None:
            yield Block(taken, reference[here].astype(np.float64))
            continue
        before = np.full(taken.shape, np.nan)
        for number in np.unique(round_[here]).tolist():
            of_round = (round_[here] == number) & (position[here] >= 0)
            before[of_round] = broadcasts[number].factors[position[here][of_round]]
        # a program of single precision holds its factors in it: what was broadcast is as exact as the rows
        yield Block(taken, before.astype(rows.dtype).astype(np.float64))


def _length(vectors: Float[np.ndarray, "rows factors"]) -> Float[np.ndarray, " rows"]:
    return np.sqrt((vectors**2).sum(axis=1))


def _rounding(chunk: np.ndarray) -> float:
    return ULPS * float(np.finfo(chunk.dtype).eps)
