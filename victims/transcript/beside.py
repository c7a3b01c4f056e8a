"""The files beside a transcript: the truth and the clients' key, and any other file of columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from victims.common.errors import InputError
from victims.common.files import PRIVATE, PUBLIC, replacing, write_text
from victims.transcript.given_columns import Numbers, ids_of, kind_array, rows_of_numbers, same_length
from victims.transcript.kinds import ATTRIBUTE, INT32_MAX, ITEM


def truth_path(transcript: Path | str) -> Path:
    """Say where the truth lies: ``NAME.truth.arrow`` beside the transcript ``NAME``."""
    transcript = Path(transcript)
    return transcript.with_name(f"{transcript.name}.truth.arrow")


def factors_path(transcript: Path | str) -> Path:
    """Say where the clients' factors lie: ``NAME.factors.arrow`` beside the transcript ``NAME``."""
    transcript = Path(transcript)
    return transcript.with_name(f"{transcript.name}.factors.arrow")


def key_path(transcript: Path | str) -> Path:
    """Say where the clients' key lies: ``NAME.key.json`` beside the transcript ``NAME``."""
    transcript = Path(transcript)
    return transcript.with_name(f"{transcript.name}.key.json")


def clients_path(transcript: Path | str) -> Path:
    """Say where the clients' names lie: ``NAME.clients.json`` beside the transcript ``NAME``."""
    transcript = Path(transcript)
    return transcript.with_name(f"{transcript.name}.clients.json")


def write_key(path: Path, key: Mapping[str, str]) -> None:
    """Write a key, readable by its owner only."""
    write_text(path, json.dumps(dict(key), indent=1) + "\n", PRIVATE)


def write_columns(
    path: Path,
    batches: Iterable[dict[str, pa.Array]],
    metadata: dict[bytes, bytes] | None = None,
    mode: int = PUBLIC,
) -> None:
    """Write an Arrow IPC file batch by batch; it appears under its name only when complete."""
    with replacing(path, mode) as partial, ExitStack() as opened:
        writer = None
        for columns in batches:
            batch = pa.RecordBatch.from_pydict(columns)
            if writer is None:
                schema = batch.schema.with_metadata(metadata)
                writer = opened.enter_context(pa.ipc.new_file(str(partial), schema))
            writer.write_batch(batch.replace_schema_metadata(metadata))
        if writer is None:
            raise InputError(f"{path} would hold no row")


def write_truth(path: Path | str, user: Numbers, kind: Numbers, index: Numbers, value: Numbers) -> None:
    """Write what the clients kept private: ratings that exist, and all attribute columns.

    The file is as private as a key, readable by its owner only: it holds what everything here is about.
    """
    fits = ">= 0 and fit into 32 bits"
    columns = {
        "user": ids_of("user", user, 0, INT32_MAX, fits),
        "kind": ids_of("kind", kind, ITEM, ATTRIBUTE, f"{ITEM} (item) or {ATTRIBUTE} (attribute)"),
        "index": ids_of("index", index, 0, INT32_MAX, fits),
        "value": rows_of_numbers("value", np.asarray(value).reshape(-1, 1), 1)[:, 0].astype(np.float64),
    }
    same_length(**columns)
    write_columns(
        Path(path),
        [{name: kind_array(array) if name == "kind" else pa.array(array) for name, array in columns.items()}],
        mode=PRIVATE,
    )
