"""``state.arrow``: what was broadcast before the uploads of each round, checked."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float

from victims.common.errors import InputError
from victims.transcript.arrow import INT32_MAX, ColumnFile
from victims.transcript.columns import hidden_chunks, integer_chunks, kind_chunks, vector_chunks
from victims.transcript.kinds import ATTRIBUTE, ITEM, KINDS, OPAQUE, codes
from victims.transcript.manifest import Manifest
from victims.transcript.messages import Broadcast


def check_index_ranges(
    path: Path, kinds: list[np.ndarray], index: list[np.ndarray], manifest: Manifest
) -> None:
    """Item indices below n_items, attribute indices below n_attributes."""
    start = 0
    for kind, chunk in zip(kinds, index, strict=True):
        limit = np.where(kind % 2 == ATTRIBUTE, manifest.n_attributes, manifest.n_items)
        bad = np.flatnonzero(chunk >= limit)
        if bad.size:
            row = int(bad[0])
            raise InputError(
                f"{path} row {start + row}: index of kind {KINDS[kind[row]]} must be below "
                f"{limit[row]} (manifest), got {chunk[row]}"
            )
        start += chunk.size


def check_rounds(path: Path, rounds: list[np.ndarray], manifest: Manifest) -> None:
    """Rows of no other rounds than those of the manifest, and in version 1 of every one."""
    start = 0
    declared = np.array(sorted(manifest.rounds))
    seen: set[int] = set()
    for chunk in rounds:
        distinct = np.unique(chunk)
        strange = distinct[~np.isin(distinct, declared)]
        if strange.size:
            row = int(np.flatnonzero(chunk == strange[0])[0])
            raise InputError(
                f"{path} row {start + row}: round must be one of the manifest's rounds, got {strange[0]}"
            )
        seen.update(distinct.tolist())
        start += chunk.size
    missing = sorted(set(manifest.rounds) - seen)
    if missing and manifest.version == 1:  # later, nobody may take part in a round
        raise InputError(
            f"{path} must have rows for every round of the manifest, none for round {missing[0]}"
        )


EVERYBODY = -INT32_MAX - 1  # in place of a null holder


class State(NamedTuple):
    """The rows of ``state.arrow``.

    Attributes
    ----------
    broadcasts : dict of round to Broadcast
        What everybody knows.
    sealed : dict of round to ciphertexts
        Empty where nothing is encrypted.
    held : dict of party to dict of round to Broadcast
        What one party alone knows.
    other : dict of str to int
        Rows of each kind that no attack reads.
    """

    broadcasts: dict[int, Broadcast]
    sealed: dict[int, pa.Array]
    held: dict[int, dict[int, Broadcast]]
    other: dict[str, int]


def read_state(whole: ColumnFile, manifest: Manifest) -> State:
    """What was broadcast in each round.

    Parameters
    ----------
    whole : ColumnFile
        Rows in any order.
    manifest : Manifest

    Raises
    ------
    InputError
        If a column breaks a rule, a row occurs twice, or a round has none.
    """
    file, other = without_other_kinds(whole, manifest)
    rounds = integer_chunks(file, "round", 0, INT32_MAX, ">= 0")
    check_rounds(file.path, rounds, manifest)
    of_factors = {name: code for name, code in codes(manifest.kinds).items() if code <= ATTRIBUTE}
    kinds = kind_chunks(file, of_factors)
    index = integer_chunks(file, "index", 0, INT32_MAX, ">= 0")
    check_index_ranges(file.path, kinds, index, manifest)
    rounds_, kind, ids = (np.concatenate(column) for column in (rounds, kinds, index))
    holder = np.concatenate(_holders(file, manifest))
    hidden = np.concatenate(hidden_chunks(file, "factor"))
    if hidden.any() and not hidden.all():
        row = int(np.flatnonzero(hidden != hidden[0])[0])
        raise InputError(f"{file.path} row {row}: either every row has a factor or none has, got both")
    order = np.lexsort((ids, kind, rounds_, holder))
    if hidden.any():
        factors = np.broadcast_to(np.nan, (rounds_.size, manifest.factors))
        ciphertext = pa.concat_arrays(file.columns("ciphertext")).take(pa.array(order))
    else:
        factors = np.concatenate(vector_chunks(file, "factor", manifest.factors)).astype(np.float64)
    rounds_, kind, ids, holder = rounds_[order], kind[order], ids[order], holder[order]
    repeated = (np.diff(rounds_) == 0) & (np.diff(kind.astype(np.int16)) == 0) & (np.diff(ids) == 0)
    repeated &= holder[1:] == holder[:-1]
    if repeated.any():
        row = int(order[1:][repeated].min())
        raise InputError(f"{file.path} row {row}: each round, kind and index must occur once")
    noise = _noise_scale(file, manifest.factors) if file.has("noise_scale") else None

    def of(here: slice) -> Broadcast:
        return Broadcast(
            ids[here][kind[here] == ITEM],
            ids[here][kind[here] == ATTRIBUTE],
            factors[order[here]],
            None if noise is None else noise[order[here]],
        )

    held: dict[int, dict[int, Broadcast]] = {}
    sealed = {}
    for party in np.unique(holder).tolist():
        start, stop = np.searchsorted(holder, [party, party + 1])
        for round_ in sorted(manifest.rounds):
            low, high = start + np.searchsorted(rounds_[start:stop], [round_, round_ + 1])
            if party == EVERYBODY or low < high:
                held.setdefault(party, {})[round_] = of(slice(low, high))
            if hidden.any() and party == EVERYBODY:
                sealed[round_] = ciphertext[low:high]
    nothing = Broadcast(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros((0, manifest.factors)))
    broadcasts = held.pop(EVERYBODY, dict.fromkeys(sorted(manifest.rounds), nothing))
    if hidden.any() and held:
        raise InputError(f"{file.path}: rows with a holder must be in the clear")
    return State(broadcasts, sealed, held, other)


def _holders(file: ColumnFile, manifest: Manifest) -> list[np.ndarray]:
    """Who knows each row."""
    if manifest.version == 1 or not file.has("holder"):
        return [np.full(batch.num_rows, EVERYBODY) for batch in file.batches]
    parties = [-1, *manifest.parties.values()]
    rule = f"a client below n_users = {manifest.n_users}, a party of the manifest, or null (everybody)"
    chunks = integer_chunks(file, "holder", EVERYBODY, manifest.n_users - 1, rule, EVERYBODY)
    for start, chunk in zip(file.offsets, chunks, strict=False):
        bad = np.flatnonzero((chunk < 0) & ~np.isin(chunk, [*parties, EVERYBODY]))
        if bad.size:
            raise InputError(f"{file.path} row {start + bad[0]}: holder must be {rule}, got {chunk[bad[0]]}")
    return chunks


def without_other_kinds(file: ColumnFile, manifest: Manifest) -> tuple[ColumnFile, dict[str, int]]:
    """The rows of the kinds that attacks know, and how many there are of each other kind."""
    other = [name for name, kind in manifest.kinds.items() if kind.code == OPAQUE]
    if not other:
        return file, {}
    count = dict.fromkeys(other, 0)
    batches = []
    for batch, kind in zip(file.batches, file.columns("kind"), strict=True):
        if not (pa.types.is_dictionary(kind.type) or pa.types.is_string(kind.type)):
            return file, {}  # refused where it is read
        words = kind.cast(pa.string())
        for name in other:
            count[name] += pc.sum(pc.equal(words, name)).as_py() or 0
        batches.append(batch.filter(pc.invert(pc.is_in(words, pa.array(other)))))
    return ColumnFile(file.path, tuple(batches), file.metadata), count


def _noise_scale(file: ColumnFile, width: int) -> Float[np.ndarray, "rows factors"]:
    noise = np.concatenate(vector_chunks(file, "noise_scale", width)).astype(np.float64)
    if (noise < 0).any():
        row = int(np.flatnonzero((noise < 0).any(axis=1))[0])
        raise InputError(f"{file.path} row {row}: noise_scale must be >= 0, got {noise[row].min():g}")
    return noise
