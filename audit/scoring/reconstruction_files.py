"""Reconstruction files: user, kind, index, value (0 = unrated) and probability, Arrow IPC.

Where the attack has them also rated_probability, rating_if_rated and median_if_rated (``Estimates``). All
columns but the first four are optional and may be null anywhere. Clients' factors are rows of kind "factor":
index is the coordinate, round (null in other rows) the round whose uploads the factor made.

The schema metadata say where the answers come from (``audit.scoring.reconstruction_origin``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from attacks.base import OPTIONAL, ClientFactors, Reconstruction
from audit.scoring.reconstruction_origin import KEY, Origin, origin_of, refuse_unless_about, with_origin
from audit.scoring.reconstruction_rows import (
    ANSWERS,
    FACTOR,
    blocks_of,
    factors_of,
    optional_column,
    refuse_repeats,
    rounds_of,
)
from victims.common.errors import InputError
from victims.common.given_files import existing_file
from victims.transcript.beside import write_columns
from victims.transcript.columns import finite_chunks, integer_chunks, kind_chunks, open_columns
from victims.transcript.given_columns import kind_array
from victims.transcript.kinds import INT32_MAX
from victims.transcript.manifest import Manifest
from victims.transcript.schema import ANSWERS as COLUMNS
from victims.transcript.view import KINDS


@dataclass(frozen=True)
class StoredReconstruction:
    """A reconstruction read from a file; ``origin`` is None for files of other software."""

    reconstruction: Reconstruction
    origin: Origin | None


def write_reconstruction(
    path: Path,
    reconstruction: Reconstruction,
    manifest: Manifest,
    *,
    adversary: str,
    seconds: float,
) -> None:
    """Write a reconstruction; the file appears under its name only when it is complete."""
    origin = Origin(
        attack=reconstruction.attack,
        adversary=adversary,
        options=json.loads(json.dumps(dict(reconstruction.options), default=str)),
        users=reconstruction.users.tolist(),
        abstained=dict(reconstruction.abstained),
        outcome=reconstruction.outcome,
        obstacle=reconstruction.obstacle,
        scope=reconstruction.scope,
        identities=reconstruction.identities,
        answered_by=reconstruction.answered_by,
        seconds=seconds,
        manifest=manifest,
    )
    write_columns(path, _batches(reconstruction), {KEY: origin.model_dump_json().encode()})


def _batches(reconstruction: Reconstruction) -> Iterator[dict[str, pa.Array]]:
    blocks, factors = reconstruction.blocks, reconstruction.factors
    some = [name for name in OPTIONAL if any(getattr(block, name) is not None for block in blocks)]
    names = list(dict.fromkeys(["probability", *some]))
    blank: dict[str, np.ndarray] = dict.fromkeys(("user", "kind", "index"), np.zeros(0, np.int32))
    blank |= dict.fromkeys(("value", *names), np.zeros(0))
    parts = [blank, *reconstruction.columns()]  # a file without answers still has its columns
    if factors is None:
        yield from (_columns(columns, names) for columns in parts)
        return
    for columns in [*parts, _rows_of(factors, names)]:
        round_ = columns.get("round", np.full(columns["user"].size, -1, np.int32))
        yield _columns(columns, names, ANSWERS) | {"round": pa.array(round_, pa.int32(), mask=round_ < 0)}


def _rows_of(factors: ClientFactors, names: list[str]) -> dict[str, np.ndarray]:
    """Factors as rows, a coordinate each."""
    n_users, width = factors.value.shape
    return {
        "user": np.repeat(factors.users, width),
        "kind": np.full(n_users * width, FACTOR),
        "index": np.tile(np.arange(width), n_users),
        "value": factors.value.ravel().astype(np.float64),
        "round": np.repeat(factors.round, width).astype(np.int32),
        **dict.fromkeys(names, np.full(n_users * width, np.nan)),
    }


def _columns(
    columns: Mapping[str, np.ndarray], names: list[str], kinds: Iterable[str] = KINDS
) -> dict[str, pa.Array]:
    return {
        "user": pa.array(columns["user"].astype(np.int32)),
        "kind": kind_array(columns["kind"], kinds),
        "index": pa.array(columns["index"].astype(np.int32)),
        "value": pa.array(columns["value"]),
        **{name: pa.array(columns[name], mask=np.isnan(columns[name])) for name in names},
    }


def read_reconstruction(path: Path) -> StoredReconstruction:
    """Read a reconstruction file, of this project or of another program."""
    file = open_columns(existing_file(path), COLUMNS)
    columns = [
        integer_chunks(file, "user", 0, INT32_MAX - 1, ">= 0"),
        kind_chunks(file, ANSWERS),
        integer_chunks(file, "index", 0, INT32_MAX - 1, ">= 0"),
        finite_chunks(file, "value"),
    ]
    user, kind, index, value = (np.concatenate(chunks) if chunks else np.zeros(0) for chunks in columns)
    others = {name: optional_column(path, file, name) for name in OPTIONAL if file.has(name)}
    others = {name: column for name, column in others.items() if not np.isnan(column).all()}
    refuse_repeats(path, user, kind, index)
    factors = None
    if (kind == FACTOR).any():
        factors = factors_of(path, user, kind, index, value, rounds_of(path, file, kind == FACTOR))
    origin = origin_of(path, file.metadata)
    if origin is not None:
        refuse_unless_about(path, origin, kind, index)
        if factors is not None and factors.value.shape[1] != origin.manifest.factors:
            raise InputError(
                f"{path}: factors must have {origin.manifest.factors} numbers (factors of its header), got "
                f"{factors.value.shape[1]}"
            )
    users = np.unique(user) if origin is None else np.unique(origin.users).astype(np.int32)
    if users.size == 0:
        raise InputError(f"{path} must hold at least one client")
    strange = np.flatnonzero(~np.isin(user, users))
    if strange.size:
        raise InputError(f"{path} row {strange[0]}: client {user[strange[0]]} is not in its header")
    if factors is not None:
        answer = kind != FACTOR
        user, kind, index, value = (column[answer] for column in (user, kind, index, value))
        others = {name: column[answer] for name, column in others.items()}
    blocks = tuple(blocks_of(user, kind, index, value, others))
    return StoredReconstruction(with_origin(path, origin, users, blocks, factors), origin)
