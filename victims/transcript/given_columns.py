"""What is given to a writer, checked, and as columns of the format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int

from victims.common.declarations import nearest
from victims.common.errors import InputError
from victims.common.limits import LARGEST, Implausible, scanned
from victims.transcript.kinds import INT32_MAX, KINDS, LONGEST_NAME, RECORDED, RESERVED

Numbers = np.ndarray | Sequence[Any]  # checked where they are written


def array_of(name: str, values: Numbers) -> np.ndarray:
    """Make an array of what was given."""
    _refuse_masked(name, values)
    try:
        return np.asarray(values)
    except ValueError:
        raise InputError(f"{name} must have rows of one length, got {values!r:.80}; fill them up") from None


def _refuse_masked(name: str, values: Numbers) -> None:
    """A masked entry is no number, and what lies under the mask would be taken for what was sent."""
    if not isinstance(values, list | tuple) and not _has_masked(values):
        return
    rows = values if isinstance(values, list | tuple) or np.ndim(values) else [values]  # a number is a row
    for row, one in enumerate(rows):
        if _has_masked(one):
            raise InputError(
                f"{name} must have no masked entries, got some in row {row}; leave those rows out, or fill "
                "them with what was sent"
            )


def _has_masked(one: object) -> bool:
    """Whether an array, a number, or a row that is a list of them is masked."""
    if isinstance(one, list | tuple):
        return any(value is np.ma.masked for value in one)
    return isinstance(one, np.ma.MaskedArray) and bool(np.ma.getmaskarray(one).any())


def ids_of(name: str, values: Numbers, low: int, high: int, rule: str) -> Int[np.ndarray, " rows"]:
    """Whole numbers of any width in ``[low, high]`` as int32, one a row."""
    array = array_of(name, values)
    if array.size == 0 and array.ndim == 1:
        return np.zeros(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"{name} must be one whole number a row, got {array.dtype} of shape {array.shape}; "
            "convert it to int32 or int64"
        )
    if array.min() < low or array.max() > high:
        row = int(np.flatnonzero((array < low) | (array > high))[0])
        raise InputError(f"{name} must be {rule}, got {array[row]} in row {row}")
    return array.astype(np.int32, copy=False)


def items_of(values: Numbers) -> Int[np.ndarray, " rows"]:
    """Check indices of items, or of attributes."""
    return ids_of("items", values, 0, INT32_MAX - 1, ">= 0 and fit into 32 bits")


def round_of(name: str, given: Any) -> int:
    """Check the number of a round."""
    if isinstance(given, bool) or not isinstance(given, int | np.integer):
        raise InputError(f"{name} must be a whole number, got {given!r:.80}")
    if not 0 <= given <= INT32_MAX:
        raise InputError(f"{name} must be >= 0 and fit into 32 bits, got {given}")
    return int(given)


def kind_name(name: Any) -> str:
    """Check the name of a kind of rows."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise InputError(f"kind must be a name of 1 to {LONGEST_NAME} printable letters, got {name!r:.80}")
    if name in RESERVED:
        raise InputError(f"kind {name!r} is what the format calls rows of its own; choose another name")
    if name not in RECORDED and (meant := nearest(name, RECORDED)):
        raise InputError(
            f"kind must be one of item, attribute, item-implicit, or another name, got {name!r:.80}; did you "
            f"mean {meant!r}?"
        )
    return name


def number_of(name: str, given: Any) -> float:
    """Check a finite number of a plausible size."""
    number = isinstance(given, int | float | np.number) and not isinstance(given, bool | np.complexfloating)
    if not number or not abs(given) <= LARGEST:  # also where it is NaN
        raise InputError(f"{name} must be a number of at most {LARGEST:g} in size, got {given!r:.80}")
    return float(given)


def rows_of_numbers(
    name: str, values: Numbers, width: int, hidden: np.ndarray | None = None
) -> Float[np.ndarray, "rows factors"]:
    """Finite vectors in float32 or float64."""
    array = array_of(name, values)
    if array.size == 0 and array.shape in ((0,), (0, width)):
        return np.zeros((0, width), array.dtype if array.dtype == np.float32 else np.float64)
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise InputError(f"{name} must be float32 or float64, got {array.dtype}; convert it first")
    if array.ndim != 2 or array.shape[1] != width:
        raise InputError(f"{name} must have K = {width} numbers a row (manifest), got shape {array.shape}")
    if array.dtype not in (np.float32, np.float64):  # both hold every number of the narrower ones
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    seen = array if hidden is None or not hidden.any() else array[~hidden]
    if np.vdot(seen, seen) <= LARGEST:  # the squares together: each number is far below it, and finite
        return array
    bad, _ = scanned(seen)
    if bad is not None:
        row = bad if seen is array or hidden is None else int(np.flatnonzero(~hidden)[bad])
        if not np.isfinite(array[row]).all():
            raise Implausible(f"{name} must be finite, got {array[row]} in row {row}")
        raise Implausible(
            f"{name} must be at most {LARGEST:g} in size, got {np.abs(array[row]).max():g} in row {row}; "
            "record before the training diverges"
        )
    return array


def numbers_of(name: str, given: Numbers) -> Float[np.ndarray, " rows"]:
    """Check finite numbers, one a row."""
    column = array_of(name, given).reshape(-1, 1)
    return rows_of_numbers(name, column, 1)[:, 0].astype(np.float64, copy=False)


def same_length(**columns: Sequence[Any] | np.ndarray | None) -> None:
    """Refuse columns of several lengths; None is no column."""
    sizes = {name: len(column) for name, column in columns.items() if column is not None}
    first, size = next(iter(sizes.items()))
    for name, other in sizes.items():
        if other != size:
            raise InputError(f"{name} must have as many rows as {first}, {size}, got {other}")


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
