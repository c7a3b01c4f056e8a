"""The tables of a recording, checked row by row: what was broadcast, what was sent, and to whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Float

from victims.common.errors import InputError
from victims.transcript.columns import (
    DELIVERIES,
    VERSION_1,
    ColumnFile,
    finite_chunks,
    hidden_chunks,
    integer_chunks,
    kind_chunks,
    open_columns,
    vector_chunks,
    words_of,
)
from victims.transcript.kinds import ATTRIBUTE, INT32_MAX, ITEM, KINDS, OPAQUE, codes
from victims.transcript.manifest import Manifest
from victims.transcript.messages import UNTOLD, Broadcast, Messages, Sent, Told, lookup
from victims.transcript.received import Deliveries, overlapping
from victims.transcript.sort_keys import Column, distinct, equal_to_the_next, order_of


def party_chunks(file: ColumnFile, name: str, manifest: Manifest, also: str = "") -> list[np.ndarray]:
    """Check a column of clients of the manifest, or its other parties; ``UNTOLD`` where null may stand."""
    null = file.schema.field(name).nullable
    rule = f"a client below n_users = {manifest.n_users}"
    rule += f", a party of the manifest, or {also}" if also else " or a party of the manifest"
    parties = np.unique([-1, *manifest.parties.values(), *([UNTOLD] if null else [])])
    chunks = integer_chunks(file, name, int(parties[0]), manifest.n_users - 1, rule, UNTOLD if null else None)
    start = 0
    for chunk in chunks:
        if chunk.min(initial=0) < 0:
            named = distinct(chunk)
            strange = named[(named < 0) & (lookup(parties, named) < 0)]
            if strange.size:
                row = int(np.flatnonzero(np.isin(chunk, strange))[0])
                raise InputError(f"{file.path} row {start + row}: {name} must be {rule}, got {chunk[row]}")
        start += chunk.size
    return chunks


def check_rounds(file: ColumnFile, rounds: Column, declared: Sequence[int]) -> None:
    """Check that rows are of rounds of the manifest, and where the table wants it that none is missing."""
    start = 0
    ascending = np.array(sorted(declared))
    seen: set[int] = set()
    for chunk in rounds:
        found = distinct(chunk)
        strange = found[lookup(ascending, found) < 0]
        if strange.size:
            row = int(np.flatnonzero(chunk == strange[0])[0])
            raise InputError(
                f"{file.path} row {start + row}: round must be one of the manifest's rounds, got {strange[0]}"
            )
        seen.update(found.tolist())
        start += chunk.size
    missing = sorted(set(declared) - seen)
    if missing and file.schema.metadata == VERSION_1:
        raise InputError(
            f"{file.path} must have rows for every round of the manifest, none for round {missing[0]}"
        )


def check_index_ranges(path: Path, kinds: Column, index: Column, manifest: Manifest) -> None:
    """Refuse item indices from n_items on, and attribute indices from n_attributes on."""
    start = 0
    for kind, chunk in zip(kinds, index, strict=True):
        most, of_attributes = int(chunk.max(initial=-1)), (kind & 1).astype(bool)
        if most >= manifest.n_items or chunk[of_attributes].max(initial=-1) >= manifest.n_attributes:
            limit = np.where(of_attributes, manifest.n_attributes, manifest.n_items)
            bad = np.flatnonzero(chunk >= limit)
            if bad.size:
                row = int(bad[0])
                raise InputError(
                    f"{path} row {start + row}: index of kind {KINDS[kind[row]]} must be below "
                    f"{limit[row]} (manifest), got {chunk[row]}"
                )
        start += chunk.size


class State(NamedTuple):
    """The rows of ``state.arrow``."""

    broadcasts: dict[int, Broadcast]  # what everybody knows
    sealed: dict[int, pa.Array]  # empty where nothing is encrypted
    held: dict[int, dict[int, Broadcast]]  # what one party alone knows
    other: dict[str, int]  # rows of each kind that no attack reads
    told: dict[str, Told]  # those rows


def read_state(whole: ColumnFile, manifest: Manifest) -> State:
    """Read and check what was broadcast in each round."""
    file, other = without_other_kinds(whole, manifest)
    rounds = integer_chunks(file, "round", 0, INT32_MAX, ">= 0")
    check_rounds(file, rounds, manifest.rounds)
    of_factors = {name: code for name, code in codes(manifest.kinds).items() if code <= ATTRIBUTE}
    kinds = kind_chunks(file, of_factors)
    index = integer_chunks(file, "index", 0, INT32_MAX, ">= 0")
    check_index_ranges(file.path, kinds, index, manifest)
    columns = [_holders(file, manifest), rounds, kinds, index]
    order = order_of(columns)
    again = np.flatnonzero(equal_to_the_next(columns, order))
    if again.size:
        row = int(order[again + 1].min())
        raise InputError(f"{file.path} row {row}: each round, kind and index must occur once")
    holder, rounds_, kind, ids = (_joined(column)[order] for column in columns)
    hidden = _all_hidden(file)
    if hidden:
        factors = np.broadcast_to(np.nan, (rounds_.size, manifest.factors))
        ciphertext = pa.concat_arrays(file.columns("ciphertext")).take(pa.array(order))
    else:
        factors = _factors(file, "factor", manifest.factors)
    noise = _noise_scale(file, manifest.factors) if file.has("noise_scale") else None
    bias = _bias(file) if file.has("bias") else None

    def of(here: slice) -> Broadcast:
        return Broadcast(
            ids[here][kind[here] == ITEM],
            ids[here][kind[here] == ATTRIBUTE],
            factors[order[here]],
            None if noise is None else noise[order[here]],
            None if bias is None else bias[order[here]],
        )

    nothing = of(slice(0, 0))
    held: dict[int, dict[int, Broadcast]] = {UNTOLD: dict.fromkeys(sorted(manifest.rounds), nothing)}
    sealed = dict.fromkeys(manifest.rounds, ciphertext[:0]) if hidden else {}
    for here in _of_one_holder_and_round(holder, rounds_):
        party, round_ = int(holder[here.start]), int(rounds_[here.start])
        held.setdefault(party, {})[round_] = of(here)
        if hidden:
            sealed[round_] = ciphertext[here]
    broadcasts = held.pop(UNTOLD)
    if hidden and held:
        raise InputError(f"{file.path}: rows with a holder must be in the clear")
    told = read_told(whole, manifest) if other else {}
    return State(broadcasts, sealed, held, other, told)


def _of_one_holder_and_round(holder: np.ndarray, rounds: np.ndarray) -> Iterator[slice]:
    cuts = np.flatnonzero((np.diff(holder) != 0) | (np.diff(rounds) != 0)) + 1
    for low, high in pairwise([0, *cuts.tolist(), holder.size]):
        if low < high:
            yield slice(low, high)


def _all_hidden(file: ColumnFile) -> bool:
    """Whether ciphertexts stand for the factors, for all of them."""
    hidden = hidden_chunks(file, "factor")
    some = any(chunk.any() for chunk in hidden)
    if some and not all(chunk.all() for chunk in hidden):
        whole = np.concatenate(hidden)
        row = int(np.flatnonzero(whole != whole[0])[0])
        raise InputError(f"{file.path} row {row}: either every row has a factor or none has, got both")
    return some


def _joined(column: Column) -> np.ndarray:
    return np.concatenate(list(column)) if len(column) else np.zeros(0, np.int32)


def _factors(file: ColumnFile, name: str, width: int) -> Float[np.ndarray, "rows factors"]:
    nothing = np.zeros((0, width))
    return np.concatenate([nothing, *vector_chunks(file, name, width)], dtype=np.float64)


def _holders(file: ColumnFile, manifest: Manifest) -> list[np.ndarray]:
    """Who knows each row."""
    if not file.has("holder"):
        return [np.full(batch.num_rows, UNTOLD, np.int32) for batch in file.batches]
    return party_chunks(file, "holder", manifest, "null (everybody)")


def without_other_kinds(file: ColumnFile, manifest: Manifest) -> tuple[ColumnFile, dict[str, int]]:
    """Keep the rows of the kinds that attacks know, and count those of each other kind."""
    other = [name for name, kind in manifest.kinds.items() if kind.code == OPAQUE]
    if not other:
        return file, {}
    kept, count = split_by_kind(file, other, kept=False)
    return kept, {name: rows for name, rows in count.items() if not manifest.kinds[name].implicit}


def split_by_kind(file: ColumnFile, other: list[str], *, kept: bool) -> tuple[ColumnFile, dict[str, int]]:
    """Rows of some kinds, or all others."""
    count = dict.fromkeys(other, 0)
    masks = []
    for kind in file.columns("kind"):
        words, at = words_of(kind)
        among = np.array([word in count for word in words], bool)
        for word, n_rows in zip(words, np.bincount(at, minlength=len(words)).tolist(), strict=True):
            if word in count:
                count[word] += n_rows
        masks.append(among[at] == kept)
    return file.only(masks), count


def _bias(file: ColumnFile) -> Float[np.ndarray, " rows"]:
    """Stars that everybody adds to a prediction about the row."""
    return np.concatenate([np.zeros(0), *finite_chunks(file, "bias")], dtype=np.float64)


def _noise_scale(file: ColumnFile, width: int) -> Float[np.ndarray, "rows factors"]:
    noise = _factors(file, "noise_scale", width)
    if (noise < 0).any():
        row = int(np.flatnonzero((noise < 0).any(axis=1))[0])
        raise InputError(f"{file.path} row {row}: noise_scale must be >= 0, got {noise[row].min():g}")
    return noise


def read_deliveries(directory: Path, manifest: Manifest) -> Deliveries | None:
    """Read and check the graph of a recording."""
    files = [directory / f"deliveries{suffix}" for suffix in (".arrow", ".parquet")]
    path = next((file for file in files if file.is_file()), None)
    if path is None:
        return None
    file = open_columns(path, DELIVERIES)
    sender, receiver = (_joined(party_chunks(file, name, manifest)) for name in ("sender", "receiver"))
    weight = np.concatenate([np.zeros(0), *finite_chunks(file, "weight")])
    first, last = (
        _joined(integer_chunks(file, name, 0, INT32_MAX, ">= 0")) for name in ("first_round", "last_round")
    )
    bad = np.flatnonzero(last < first)
    if bad.size:
        raise InputError(f"{path} row {bad[0]}: last_round must be >= first_round")
    pair = overlapping(sender, receiver, first, last)
    if pair is not None:
        raise InputError(
            f"{path} row {pair[1]}: sender and receiver must have one edge in a round, they have two"
        )
    order = np.lexsort([first, sender, receiver])
    return Deliveries(*(column[order] for column in (sender, receiver, weight, first, last)))


def read_told(file: ColumnFile, manifest: Manifest) -> dict[str, Told]:
    """Rows of each kind of role other, of a file whose kinds are checked."""
    kinds = manifest.kinds.items()
    names = [name for name, kind in kinds if kind.code == OPAQUE and kind.implicit is None]
    return {name: told for name in names if (told := _of_kind(file, manifest, name)).index.size}


def _of_kind(whole: ColumnFile, manifest: Manifest, name: str) -> Told:
    file, _ = split_by_kind(whole, [name], kept=True)
    if file.has("sender"):
        sender, receiver = (_joined(party_chunks(file, side, manifest)) for side in ("sender", "receiver"))
    else:  # a broadcast
        receiver = _joined(_holders(file, manifest))
        sender = np.full_like(receiver, manifest.parties.get("server", -1))
    index, rounds = (
        _joined(integer_chunks(file, column, 0, INT32_MAX, ">= 0")) for column in ("index", "round")
    )
    numbers = _numbers(file, manifest.kinds[name].width, manifest.factors)
    order = np.lexsort([index, sender, receiver, rounds])
    return Told(*(column[order] for column in (rounds, sender, receiver, index, numbers)))


def _numbers(file: ColumnFile, width: int | None, factors: int) -> Float[np.ndarray, "rows width"]:
    """What rows of a kind hold: a number or a list of its width each, K numbers without one, or nothing."""
    names = ("value",) if width is not None else ("value", "gradient", "factor")
    full = (
        name for name in names if file.has(name) and any(c.null_count < len(c) for c in file.columns(name))
    )
    if (name := next(full, "")) == "":
        return np.full((file.offsets[-1], 1), np.nan)
    columns = file.columns(name)
    if all(pa.types.is_floating(column.type) for column in columns):
        return np.concatenate(finite_chunks(file, name, null=True))[:, None]
    if any(column.null_count for column in columns):  # or few lists would stand for a table of any size
        raise InputError(f"{file.path}: either every row of a kind has numbers or none has, got both")
    return np.concatenate(vector_chunks(file, name, factors if width is None else width), dtype=np.float64)


class MessageTable(NamedTuple):
    """The rows of ``messages.arrow``."""

    uploads: Messages  # what clients sent, in the chunks of the file
    receiver: tuple[np.ndarray, ...]  # of the uploads; ``UNTOLD`` where ``deliveries.arrow`` says who
    sums: Sent  # decrypted ones
    item_server: Sent  # what the item server sends
    ciphertexts: tuple[pa.Array, ...]  # of the uploads; none where they are in the clear
    anonymous: Messages | None  # uploads whose sender is not told
    anonymous_receiver: tuple[np.ndarray, ...]
    other: dict[str, int]  # rows of each kind of role other
    told: dict[str, Told]  # those rows


def read_messages(whole: ColumnFile, manifest: Manifest) -> MessageTable:
    """Read and check every column; the gradients are passed over once."""
    rounds = integer_chunks(whole, "round", 0, INT32_MAX, ">= 0")
    if sum(chunk.size for chunk in rounds) == 0:
        raise InputError(f"{whole.path} must hold at least one row")
    check_rounds(whole, rounds, manifest.rounds)
    file, other = without_other_kinds(whole, manifest)
    rounds = rounds if file is whole else integer_chunks(file, "round", 0, INT32_MAX, ">= 0")
    sender, receiver = (tuple(party_chunks(file, name, manifest)) for name in ("sender", "receiver"))
    kinds = kind_chunks(file, codes(manifest.kinds))
    index = integer_chunks(file, "index", 0, INT32_MAX, ">= 0")
    check_index_ranges(file.path, kinds, index, manifest)
    masks = _masks(kinds, sender, manifest.parties.get("item_server", UNTOLD))
    uploaded = None if masks is None else [own | unsigned for own, unsigned in zip(*masks[:2], strict=True)]
    encrypted = _encrypted(file, uploaded)
    everything = Messages(
        tuple(rounds),
        sender,
        tuple(kinds),
        tuple(index),
        None if encrypted else tuple(vector_chunks(file, "gradient", manifest.factors)),
        _optional(file, "exponent", -INT32_MAX) if encrypted else None,
        _optional(file, "sequence", 0),
        _references(file, manifest, uploaded),
    )
    ciphertexts = tuple(file.columns("ciphertext")) if encrypted else ()
    told = read_told(whole, manifest) if other else {}
    if masks is None:
        nothing = _nothing(manifest)
        return MessageTable(everything, receiver, nothing, nothing, ciphertexts, None, (), other, told)
    own, unsigned, sums, of_item_server = masks
    return MessageTable(
        everything.rows(own),
        _kept(receiver, own),
        _read_sent(file, manifest, everything, receiver, sums),
        _read_sent(file, manifest, everything, receiver, of_item_server),
        tuple(chunk.filter(pa.array(mask)) for chunk, mask in zip(ciphertexts, own, strict=False)),
        everything.rows(unsigned),
        _kept(receiver, unsigned),
        other,
        told,
    )


def _masks(kinds: Column, sender: Column, item_server: int) -> tuple[list[np.ndarray], ...] | None:
    """Uploads of clients, uploads without a sender, sums, and what the item server sends, chunk by chunk.

    None where all are the first.
    """
    chunks = [_masks_of(*pair, item_server) for pair in zip(kinds, sender, strict=True)]
    if all(own.all() for own, *_ in chunks):
        return None
    own, unsigned, sums, of_item_server = (list(masks) for masks in zip(*chunks, strict=True))
    return own, unsigned, sums, of_item_server


def _masks_of(kind: np.ndarray, person: np.ndarray, item_server: int) -> tuple[np.ndarray, ...]:
    nothing = np.zeros(kind.size, bool)
    if kind.max(initial=0) <= ATTRIBUTE and person.min(initial=0) >= 0:
        return ~nothing, nothing, nothing, nothing
    upload = kind <= ATTRIBUTE
    from_server = nothing if item_server == UNTOLD else (kind == ITEM) & (person == item_server)
    return upload & (person >= 0), upload & (person == UNTOLD), ~upload, from_server


def _kept(column: Column, masks: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    chunks = zip(column, masks, strict=True)
    return tuple(chunk if mask.all() else chunk[mask] for chunk, mask in chunks)


def _optional(file: ColumnFile, name: str, low: int) -> tuple[np.ndarray, ...] | None:
    """A column of whole numbers that may be missing."""
    if not file.has(name):
        return None
    return tuple(integer_chunks(file, name, low, INT32_MAX, f"a whole number >= {low}"))


def _references(
    file: ColumnFile, manifest: Manifest, uploaded: list[np.ndarray] | None
) -> tuple[np.ndarray, ...] | None:
    """The factor that each uploaded row was computed at; 0 for other rows, which need none."""
    if not file.has("reference"):
        return None
    found = vector_chunks(file, "reference", manifest.factors, uploaded)
    out = []
    for number, vectors in enumerate(found):
        if uploaded is None or uploaded[number].all():
            out.append(vectors)
            continue
        out.append(np.zeros((uploaded[number].size, manifest.factors), vectors.dtype))
        out[-1][uploaded[number]] = vectors
    return tuple(out)


def _encrypted(file: ColumnFile, uploaded: list[np.ndarray] | None) -> bool:
    """Either all uploads are encrypted or none is; sums are in the clear."""
    if not any(column.null_count for column in file.columns("gradient")):
        return False
    start, first = 0, None
    for number, null in enumerate(hidden_chunks(file, "gradient")):
        sent = np.ones(null.size, bool) if uploaded is None else uploaded[number]
        if first is None and sent.any():
            first = bool(null[sent.argmax()])
        bad = np.flatnonzero(np.where(sent, null != first, null))
        if bad.size:
            row = int(bad[0])
            rule = "either every upload has a gradient or none has" if sent[row] else "a sum needs a gradient"
            raise InputError(f"{file.path} row {start + row}: {rule}")
        start += sent.size
    return bool(first)


def _read_sent(
    file: ColumnFile,
    manifest: Manifest,
    messages: Messages,
    receiver: Column,
    chosen: list[np.ndarray],
) -> Sent:
    """The chosen rows, which are no uploads."""

    def of_these(column: Column) -> np.ndarray:
        return np.concatenate([chunk[keep] for chunk, keep in zip(column, chosen, strict=True)])

    if not any(mask.any() for mask in chosen):
        return _nothing(manifest)
    chunks = vector_chunks(file, "gradient", manifest.factors, chosen)
    gradient = np.concatenate(chunks).astype(np.float64)
    columns = [
        of_these(column)
        for column in (messages.round, messages.sender, receiver, messages.kind, messages.index)
    ]
    order = order_of([[columns[key]] for key in (0, 3, 4)])  # rows come in any order
    return Sent(*(column[order] for column in (*columns, gradient)))


def _nothing(manifest: Manifest) -> Sent:
    empty = np.zeros(0, np.int32)
    return Sent(empty, empty, empty, empty, empty, np.zeros((0, manifest.factors)))
