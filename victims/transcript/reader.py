"""Transcripts on disk, format version 1: read memory-mapped and checked.

A transcript is a directory with ``manifest.json``, ``state.arrow`` (what was broadcast before the
uploads of each round) and ``messages.arrow`` (what was sent). What the clients kept private lies in
``NAME.truth.arrow`` beside it, never in it.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from victims.common.errors import InputError
from victims.common.files import small_file
from victims.common.limits import refuse_absurd_sizes, refuse_absurd_table
from victims.transcript.adversaries import ADVERSARIES
from victims.transcript.arrow import (
    find_columns,
    open_columns,
)
from victims.transcript.manifest import Manifest
from victims.transcript.message_table import read_messages
from victims.transcript.recorded import Opener, Sealed, Transcript
from victims.transcript.row_checks import check_rows, check_sums
from victims.transcript.state_table import read_state
from victims.transcript.view import Broadcast, Messages

__all__ = [
    "ADVERSARIES",
    "MANIFEST_BYTES",
    "Opener",
    "Transcript",
    "open_transcript",
    "read_manifest",
]


MANIFEST_BYTES = 64 << 20


def open_transcript(path: Path | str) -> Transcript:
    """Open and check a transcript directory.

    Parameters
    ----------
    path : Path or str

    Returns
    -------
    Transcript
        Memory-mapped where the files are uncompressed Arrow. Every column, type, range, null,
        non-finite number, repeated row and missing state is checked here, once; attacks rely on it.

    Raises
    ------
    InputError
        Naming file, row and rule.
    """
    path = Path(path)
    manifest = read_manifest(path)
    state = open_columns(find_columns(path, "state"))
    broadcasts, sealed_state = read_state(state, manifest)
    file = open_columns(find_columns(path, "messages"))
    table = read_messages(file, manifest)
    _refuse_absurd_sizes(path, manifest, broadcasts, table.uploads)
    check_rows(file.path, broadcasts, table.uploads)
    for rows in (table.sums, table.item_server):
        check_sums(file.path, rows, broadcasts)
    return Transcript(
        path,
        manifest,
        broadcasts,
        table.uploads,
        table.receiver,
        table.sums,
        table.item_server,
        Sealed(table.ciphertexts, sealed_state),
    )


def read_manifest(path: Path) -> Manifest:
    """Read and check ``manifest.json`` of a transcript directory.

    Raises
    ------
    InputError
        If it is missing, cannot be read, or breaks a rule.
    """
    file = path / "manifest.json"
    if not file.is_file():
        raise InputError(f"{path} is not a transcript: it must contain manifest.json")
    try:
        content = json.loads(small_file(file, MANIFEST_BYTES))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not valid JSON: {error}") from None
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "manifest"
        got = str(first.get("input"))[:80]
        raise InputError(f"{file}: {where}: {first['msg']}, got {got}") from None


def _refuse_absurd_sizes(
    path: Path, manifest: Manifest, broadcasts: dict[int, Broadcast], messages: Messages
) -> None:
    """Declared sizes must be plausible beside the rows, or scores would be about nothing."""
    items = max(b.item_ids.size for b in broadcasts.values())
    attributes = max(b.attribute_ids.size for b in broadcasts.values())
    file = path / "manifest.json"
    seen = {
        "n_items": (items, "items in the state"),
        "n_attributes": (attributes, "attributes in the state"),
        "n_users": (messages.n_rows, "uploaded rows"),
    }
    refuse_absurd_sizes(file, {name: getattr(manifest, name) for name in seen}, seen)
    senders = min(manifest.n_users, messages.n_rows)
    refuse_absurd_table(file, senders, manifest.n_attributes, messages.n_rows)
