"""``state.arrow``: what was broadcast before the uploads of each round, checked."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float

from victims.common.errors import InputError
from victims.transcript.arrow import INT32_MAX, ColumnFile
from victims.transcript.columns import (
    finite_chunks,
    hidden_chunks,
    integer_chunks,
    kind_chunks,
    vector_chunks,
)
from victims.transcript.kinds import ATTRIBUTE, ITEM, OPAQUE, codes
from victims.transcript.manifest import Manifest
from victims.transcript.messages import Broadcast
from victims.transcript.parties import UNTOLD, party_chunks
from victims.transcript.row_checks import check_index_ranges, check_rounds
from victims.transcript.sort_keys import Column, equal_to_the_next, order_of

EVERYBODY = UNTOLD  # in place of a null holder


class State(NamedTuple):
    """The rows of ``state.arrow``."""

    broadcasts: dict[int, Broadcast]  # what everybody knows
    sealed: dict[int, pa.Array]  # empty where nothing is encrypted
    held: dict[int, dict[int, Broadcast]]  # what one party alone knows
    other: dict[str, int]  # rows of each kind that no attack reads


def read_state(whole: ColumnFile, manifest: Manifest) -> State:
    """Read and check what was broadcast in each round."""
    file, other = without_other_kinds(whole, manifest)
    rounds = integer_chunks(file, "round", 0, INT32_MAX, ">= 0")
    check_rounds(file.path, rounds, manifest.rounds, manifest.version)
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
        factors = _vectors(file, "factor", manifest.factors)
    noise = _noise_scale(file, manifest.factors) if file.has("noise_scale") else None
    bias = _bias(file) if manifest.version > 1 and file.has("bias") else None

    def of(here: slice) -> Broadcast:
        return Broadcast(
            ids[here][kind[here] == ITEM],
            ids[here][kind[here] == ATTRIBUTE],
            factors[order[here]],
            None if noise is None else noise[order[here]],
            None if bias is None else bias[order[here]],
        )

    nothing = of(slice(0, 0))
    held: dict[int, dict[int, Broadcast]] = {EVERYBODY: dict.fromkeys(sorted(manifest.rounds), nothing)}
    sealed = dict.fromkeys(manifest.rounds, ciphertext[:0]) if hidden else {}
    for here in _of_one_holder_and_round(holder, rounds_):
        party, round_ = int(holder[here.start]), int(rounds_[here.start])
        held.setdefault(party, {})[round_] = of(here)
        if hidden:
            sealed[round_] = ciphertext[here]
    broadcasts = held.pop(EVERYBODY)
    if hidden and held:
        raise InputError(f"{file.path}: rows with a holder must be in the clear")
    return State(broadcasts, sealed, held, other)


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


def _vectors(file: ColumnFile, name: str, width: int) -> Float[np.ndarray, "rows factors"]:
    nothing = np.zeros((0, width))
    return np.concatenate([nothing, *vector_chunks(file, name, width)], dtype=np.float64)


def _holders(file: ColumnFile, manifest: Manifest) -> list[np.ndarray]:
    """Who knows each row."""
    if manifest.version == 1 or not file.has("holder"):
        return [np.full(batch.num_rows, EVERYBODY, np.int32) for batch in file.batches]
    return party_chunks(file, "holder", manifest, null=True, also="null (everybody)")


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
    batches = []
    for batch, kind in zip(file.batches, file.columns("kind"), strict=True):
        plain = pa.types.is_string(kind.type) or pa.types.is_large_string(kind.type)
        words = kind.dictionary_encode() if plain else kind
        if not pa.types.is_dictionary(words.type):
            return file, {}  # refused where it is read
        names = words.dictionary.to_pylist()
        strange = np.array([name in count for name in names] + [False])  # the last one for null
        at = words.indices.to_numpy(zero_copy_only=False)
        if words.null_count:
            at = pc.fill_null(words.indices.cast(pa.int64()), len(names)).to_numpy()
        for place, n_rows in enumerate(np.bincount(at, minlength=len(names))[: len(names)].tolist()):
            if strange[place]:
                count[names[place]] += n_rows
        mask = strange[at] == kept
        batches.append(batch if mask.all() else batch.filter(pa.array(mask)))
    return ColumnFile(file.path, tuple(batches), file.metadata), count


def _bias(file: ColumnFile) -> Float[np.ndarray, " rows"]:
    """Stars that everybody adds to a prediction about the row."""
    return np.concatenate([np.zeros(0), *finite_chunks(file, "bias")], dtype=np.float64)


def _noise_scale(file: ColumnFile, width: int) -> Float[np.ndarray, "rows factors"]:
    noise = _vectors(file, "noise_scale", width)
    if (noise < 0).any():
        row = int(np.flatnonzero((noise < 0).any(axis=1))[0])
        raise InputError(f"{file.path} row {row}: noise_scale must be >= 0, got {noise[row].min():g}")
    return noise
