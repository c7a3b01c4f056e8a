"""``state.arrow``: what was broadcast before the uploads of each round, checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from jaxtyping import Float

from victims.common.errors import InputError
from victims.transcript.arrow import INT32_MAX, ColumnFile
from victims.transcript.columns import hidden_chunks, integer_chunks, kind_chunks, vector_chunks
from victims.transcript.manifest import Manifest
from victims.transcript.view import ATTRIBUTE, ITEM, KINDS, Broadcast


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
    """Rows of every round of the manifest, and of no other."""
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
    if missing:
        raise InputError(
            f"{path} must have rows for every round of the manifest, none for round {missing[0]}"
        )


def read_state(file: ColumnFile, manifest: Manifest) -> tuple[dict[int, Broadcast], dict[int, pa.Array]]:
    """What was broadcast in each round, and the ciphertexts of each round where it is encrypted.

    Parameters
    ----------
    file : ColumnFile
        Rows in any order.
    manifest : Manifest

    Raises
    ------
    InputError
        If a column breaks a rule, a row occurs twice, or a round has none.
    """
    rounds = integer_chunks(file, "round", 0, INT32_MAX, ">= 0")
    check_rounds(file.path, rounds, manifest)
    kinds = kind_chunks(file, KINDS[:2])
    index = integer_chunks(file, "index", 0, INT32_MAX, ">= 0")
    check_index_ranges(file.path, kinds, index, manifest)
    rounds_, kind, ids = (np.concatenate(column) for column in (rounds, kinds, index))
    hidden = np.concatenate(hidden_chunks(file, "factor"))
    if hidden.any() and not hidden.all():
        row = int(np.flatnonzero(hidden != hidden[0])[0])
        raise InputError(f"{file.path} row {row}: either every row has a factor or none has, got both")
    order = np.lexsort((ids, kind, rounds_))
    if hidden.any():
        factors = np.broadcast_to(np.nan, (rounds_.size, manifest.factors))
        ciphertext = pa.concat_arrays(file.columns("ciphertext")).take(pa.array(order))
    else:
        factors = np.concatenate(vector_chunks(file, "factor", manifest.factors)).astype(np.float64)
    rounds_, kind, ids = rounds_[order], kind[order], ids[order]
    repeated = (np.diff(rounds_) == 0) & (np.diff(kind.astype(np.int16)) == 0) & (np.diff(ids) == 0)
    if repeated.any():
        row = int(order[1:][repeated].min())
        raise InputError(f"{file.path} row {row}: each round, kind and index must occur once")
    noise = _noise_scale(file, manifest.factors) if file.has("noise_scale") else None
    broadcasts, sealed = {}, {}
    for round_ in sorted(manifest.rounds):
        here = slice(*np.searchsorted(rounds_, [round_, round_ + 1]))
        ids_here, kind_here = ids[here], kind[here]
        broadcasts[round_] = Broadcast(
            ids_here[kind_here == ITEM],
            ids_here[kind_here == ATTRIBUTE],
            factors[order[here]],
            None if noise is None else noise[order[here]],
        )
        if hidden.any():
            sealed[round_] = ciphertext[here]
    return broadcasts, sealed


def _noise_scale(file: ColumnFile, width: int) -> Float[np.ndarray, "rows factors"]:
    noise = np.concatenate(vector_chunks(file, "noise_scale", width)).astype(np.float64)
    if (noise < 0).any():
        row = int(np.flatnonzero((noise < 0).any(axis=1))[0])
        raise InputError(f"{file.path} row {row}: noise_scale must be >= 0, got {noise[row].min():g}")
    return noise
