"""Who sends, receives or holds rows: clients, and the parties that the manifest names."""

from __future__ import annotations

import numpy as np

from victims.common.errors import InputError
from victims.transcript.arrow import INT32_MAX, ColumnFile
from victims.transcript.columns import integer_chunks
from victims.transcript.manifest import Manifest
from victims.transcript.messages import lookup
from victims.transcript.sort_keys import distinct

UNTOLD = -INT32_MAX - 1  # in place of null: a sender who is not told, the receivers of the graph, everybody


def party_chunks(
    file: ColumnFile, name: str, manifest: Manifest, *, null: bool = False, also: str = ""
) -> list[np.ndarray]:
    """Check a column of clients of the manifest, or its other parties."""
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
