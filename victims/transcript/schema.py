"""The tables of a recording, and of the files beside it: columns, their types, and where null may stand.

These types are written. Read are whole numbers of any width, vectors and numbers of single or double
precision, and words in place of their dictionary; columns that are not named here are nobody's business.
"""

from __future__ import annotations

import pyarrow as pa

WHOLE, NUMBER, SEALED = pa.int32(), pa.float64(), pa.large_binary()
KIND = pa.dictionary(pa.int8(), pa.string())
VECTOR = pa.list_(NUMBER)  # of K numbers, the factors of the manifest
ANY = pa.null()  # of whatever rows of other kinds have: a number, or vectors of another width


def _table(always: dict[str, pa.DataType], sometimes: dict[str, pa.DataType] | None = None) -> pa.Schema:
    """Columns that are never null, and columns that may be."""
    never = [pa.field(name, kind, nullable=False) for name, kind in always.items()]
    return pa.schema([*never, *(sometimes or {}).items()])


_ROW = {"round": WHOLE, "kind": KIND, "index": WHOLE}
_ENDS = {"sender": WHOLE, "receiver": WHOLE}
_STATE = {"factor": VECTOR, "ciphertext": SEALED, "noise_scale": VECTOR}
_SENT = {"gradient": VECTOR, "ciphertext": SEALED, "exponent": WHOLE}

VERSION_1 = {b"version": b"1"}  # rows in every round; later, nobody may take part in one
STATE_1 = _table(_ROW, _STATE).with_metadata(VERSION_1)
MESSAGES_1 = _table(_ROW | _ENDS, _SENT).with_metadata(VERSION_1)
STATE = _table(_ROW, _STATE | {"bias": NUMBER, "holder": WHOLE})
MESSAGES = _table(_ROW, _ENDS | _SENT | {"value": ANY, "sequence": WHOLE, "reference": VECTOR})
DELIVERIES = _table(_ENDS | {"weight": NUMBER, "first_round": WHOLE, "last_round": WHOLE})
TRUTH = _table({"user": WHOLE, "kind": KIND, "index": WHOLE, "value": NUMBER})
FACTORS = _table({"user": WHOLE, "round": WHOLE, "factor": VECTOR})
ANSWERS = _table({"user": WHOLE, "kind": KIND, "index": WHOLE, "value": NUMBER}, {"round": WHOLE})
TABLES = {"state": STATE, "messages": MESSAGES, "deliveries": DELIVERIES, "truth": TRUTH}
ADDED = (set(STATE.names) | set(MESSAGES.names)) - set(STATE_1.names) - set(MESSAGES_1.names)  # by version 2
