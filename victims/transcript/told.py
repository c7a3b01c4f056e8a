"""Rows of declared kinds that are no gradients: what is sent to set a protocol up, and to whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from victims.transcript.arrow import INT32_MAX, ColumnFile
from victims.transcript.columns import finite_chunks, integer_chunks
from victims.transcript.kinds import OPAQUE
from victims.transcript.manifest import Manifest
from victims.transcript.neighbourhood import Told
from victims.transcript.parties import party_chunks


def read_told(file: ColumnFile, manifest: Manifest) -> dict[str, Told]:
    """Rows of each kind of role other, of a file whose kinds are checked."""
    kinds = manifest.kinds.items()
    names = [name for name, kind in kinds if kind.code == OPAQUE and kind.implicit is None]
    return {name: told for name in names if (told := _of_kind(file, manifest, name)).index.size}


def _of_kind(file: ColumnFile, manifest: Manifest, name: str) -> Told:
    masks = [pc.fill_null(pc.equal(kind.cast(pa.string()), name), False) for kind in file.columns("kind")]
    batches = tuple(batch.filter(mask) for batch, mask in zip(file.batches, masks, strict=True))
    some = ColumnFile(file.path, tuple(batch for batch in batches if batch.num_rows), file.metadata)
    nothing = np.zeros(0, np.int32)
    if not some.batches:
        return Told(nothing, nothing, nothing, nothing, np.zeros(0))
    parties = [
        np.concatenate(party_chunks(some, side, manifest, null=True)) for side in ("sender", "receiver")
    ]
    index = np.concatenate(integer_chunks(some, "index", 0, INT32_MAX, ">= 0"))
    rounds = np.concatenate(integer_chunks(some, "round", 0, INT32_MAX, ">= 0"))
    order = np.lexsort([index, *parties, rounds])
    return Told(rounds[order], parties[0][order], parties[1][order], index[order], _values(some)[order])


def _values(file: ColumnFile) -> np.ndarray:
    """One number a row; NaN where there is none."""
    if not file.has("value") or not all(pa.types.is_floating(c.type) for c in file.columns("value")):
        return np.full(sum(batch.num_rows for batch in file.batches), np.nan)
    filled = []
    for batch in file.batches:
        column = batch.column("value")
        filled.append(batch.set_column(batch.schema.names.index("value"), "value", pc.fill_null(column, 0.0)))
    numbers = np.concatenate(finite_chunks(ColumnFile(file.path, tuple(filled), file.metadata), "value"))
    null = np.concatenate(
        [column.is_null().to_numpy(zero_copy_only=False) for column in file.columns("value")]
    )
    return np.where(null, np.nan, numbers)


def received_by(told: Mapping[str, Told], parties: Sequence[int]) -> dict[str, Told]:
    """What an adversary receives, or sent itself."""
    out = {}
    for name, rows in told.items():
        keep = np.isin(rows.receiver, parties) | np.isin(rows.sender, parties)
        if keep.any():
            out[name] = Told(**{key: column[keep] for key, column in vars(rows).items()})
    return out
