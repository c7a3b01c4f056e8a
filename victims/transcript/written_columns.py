"""Columns of the format, of what was checked (``victims.transcript.given_columns``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.transcript.kinds import KINDS


def kind_array(kind: Int[np.ndarray, " rows"], names: Iterable[str] = KINDS) -> pa.DictionaryArray:
    """Write positions in a list of kinds as the dictionary column of the format."""
    return pa.DictionaryArray.from_arrays(pa.array(kind.astype(np.int8)), pa.array(list(names), pa.string()))


def vector_array(values: Float[np.ndarray, "rows factors"]) -> pa.FixedSizeListArray:
    """Write vectors as the format wants them."""
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def payload(
    name: str, values: Float[np.ndarray, "rows factors"], ciphertext: Sequence[bytes | None] | None
) -> dict[str, pa.Array]:
    """Write vectors in the clear, or null beside the ciphertexts that stand for them."""
    if ciphertext is None:
        return {name: vector_array(values)}
    hidden = np.array([sealed is not None for sealed in ciphertext], bool)
    flat = pa.array(np.where(hidden[:, None], 0.0, values).reshape(-1))
    vectors = pa.FixedSizeListArray.from_arrays(flat, values.shape[1], mask=pa.array(hidden))
    try:
        column = pa.array(ciphertext, pa.large_binary())
    except (pa.ArrowException, TypeError):
        raise InputError(f"ciphertext must be bytes or None a row, got {ciphertext!r:.80}") from None
    return {name: vectors, "ciphertext": column}
