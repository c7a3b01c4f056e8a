"""Reconstruction files: user, kind, index, value (0 = unrated) and probability, Arrow IPC.

Where the attack has them also rated_probability, rating_if_rated and median_if_rated (``Estimates``). All
columns but the first four are optional and may be null anywhere. Clients' factors are rows of kind "factor":
index is the coordinate, round (null in other rows) the round whose uploads the factor made.

The schema metadata under ``factorleak-reconstruction`` say which attack read what, on which view, and which
clients it abstained on and why (``Origin``), so that scoring needs no other file than the truth.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from jaxtyping import Float
from pydantic import BaseModel, ValidationError, field_serializer, field_validator, model_validator

from attacks.base import OPTIONAL, ClientFactors, Estimates, Identities, Outcome, Reconstruction, Scope
from victims.common.declarations import first_complaint
from victims.common.errors import InputError, one_line, printable
from victims.common.files import existing_file
from victims.common.limits import DEEPEST, depth_of, refuse_absurd_sizes
from victims.transcript.beside import write_columns
from victims.transcript.columns import ANSWERS as COLUMNS
from victims.transcript.columns import ColumnFile, finite_chunks, integer_chunks, kind_chunks, open_columns
from victims.transcript.given_columns import kind_array
from victims.transcript.kinds import INT32_MAX, OF_FACTORS
from victims.transcript.manifest import Manifest, Manifest2, file_of
from victims.transcript.view import ATTRIBUTE, ITEM, KINDS

KEY = b"factorleak-reconstruction"
FORMER_OPTIONS = {  # option and value in files before outcome, scope and identities: the field and its value
    "found_nothing": (True, "outcome", Outcome.NOTHING_FOUND),
    "pseudonyms": (True, "identities", Identities.PSEUDONYMS),
    "reads": ("rated set", "scope", Scope.RATED_SET),
}
PAD_CELLS = 1 << 22
FACTOR = len(OF_FACTORS)
ANSWERS = {**OF_FACTORS, "factor": FACTOR}  # kinds of rows; those of a recording's kinds first


class Origin(BaseModel):
    """Where a reconstruction comes from.

    ``users``, each once, are clients of the manifest, or pseudonyms where ``identities`` says so; the
    attack abstained on some of them. Older files tell outcome, scope and identities among the options.
    """

    attack: str
    adversary: str = "server"
    options: dict[str, object] = {}
    users: list[int]
    abstained: dict[int, str] = {}
    outcome: Outcome = Outcome.ANSWERED
    obstacle: str = ""
    scope: Scope = Scope.RATINGS_AND_ATTRIBUTES
    identities: Identities = Identities.CLIENTS
    answered_by: str = ""
    seconds: float = float("nan")
    manifest: Manifest

    @model_validator(mode="before")
    @classmethod
    def _of_older_files(cls, header: object) -> object:
        """Move what older files say among the options to its field."""
        if not isinstance(header, dict) or not isinstance(header.get("options"), dict):
            return header
        options = dict(header["options"])
        moved = {
            field: value
            for option, (said, field, value) in FORMER_OPTIONS.items()
            if field not in header and options.get(option) == said
        }
        for option, (_, field, _) in FORMER_OPTIONS.items():
            if field in moved:
                del options[option]
        return {**header, **moved, "options": options}

    @field_serializer("manifest")
    def _as_in_its_file(self, manifest: Manifest) -> dict[str, object]:
        return file_of(manifest)

    @field_validator("manifest", mode="before")
    @classmethod
    def _of_either_version(cls, content: object) -> object:
        if not isinstance(content, dict) or content.get("version") != 2:
            return content
        try:
            return Manifest2.model_validate(content).as_manifest()
        except ValidationError as error:
            raise ValueError(_first(error)) from None

    @field_validator("options")
    @classmethod
    def _flat(cls, value: dict[str, object]) -> dict[str, object]:
        if depth_of(value) > DEEPEST:
            raise ValueError(f"options must be nested at most {DEEPEST} deep")
        return value

    @model_validator(mode="after")
    def _check(self) -> Origin:
        known = set(self.users)
        if len(known) < len(self.users):
            raise ValueError("users must name each client once")
        most = INT32_MAX if self.identities == Identities.PSEUDONYMS else self.manifest.n_users
        strange = next((user for user in self.users if not 0 <= user < most), None)
        if strange is not None:
            raise ValueError(f"users must be clients below {most}, got {str(strange)[:20]}")
        strange = next((user for user in self.abstained if user not in known), None)
        if strange is not None:
            raise ValueError(f"abstained must name clients among users, got {str(strange)[:20]}")
        return self


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
    others = {name: _optional_column(path, file, name) for name in OPTIONAL if file.has(name)}
    others = {name: column for name, column in others.items() if not np.isnan(column).all()}
    _check_repeats(path, user, kind, index)
    factors = None
    if (kind == FACTOR).any():
        factors = _factors_of(path, user, kind, index, value, _rounds_of(path, file, kind == FACTOR))
    origin = _origin_of(path, file.metadata)
    if origin is not None:
        _check_about(path, origin, kind, index)
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
    blocks = tuple(_blocks_of(user, kind, index, value, others))
    return StoredReconstruction(_with_origin(path, origin, users, blocks, factors), origin)


def _origin_of(path: Path, metadata: dict[bytes, bytes]) -> Origin | None:
    """Read the header of a file."""
    if KEY not in metadata:
        return None
    try:
        origin = Origin.model_validate_json(metadata[KEY])
    except (ValidationError, RecursionError, ValueError) as error:
        raise InputError(f"{path}: its header is damaged ({_first(error)}); run the attack again") from None
    reasons = {client: one_line(reason) for client, reason in origin.abstained.items()}
    shown = {"attack": printable(origin.attack), "answered_by": printable(origin.answered_by)}
    return origin.model_copy(update={"abstained": reasons, "obstacle": one_line(origin.obstacle), **shown})


def _first(error: Exception) -> str:
    """The first thing that is wrong, and where."""
    if not isinstance(error, ValidationError):
        return str(error)
    return str(first_complaint(error))


def _with_origin(
    path: Path,
    origin: Origin | None,
    users: np.ndarray,
    blocks: tuple[Estimates, ...],
    factors: ClientFactors | None,
) -> Reconstruction:
    """Put answers and header together."""
    if origin is None:
        return Reconstruction("unknown", users, blocks, factors=factors)
    try:
        return Reconstruction(
            origin.attack,
            users,
            blocks,
            origin.abstained,
            origin.options,
            outcome=origin.outcome,
            obstacle=origin.obstacle,
            scope=origin.scope,
            identities=origin.identities,
            answered_by=origin.answered_by,
            factors=factors,
        )
    except InputError as error:
        raise InputError(f"{path}: its header is damaged ({error}); run the attack again") from None


def _check_about(path: Path, origin: Origin, kind: np.ndarray, index: np.ndarray) -> None:
    """Refuse a header whose manifest has not the items, attributes and factors of the rows, or many more."""
    manifest = origin.manifest
    n_attributes = int(np.count_nonzero(kind == ATTRIBUTE))
    seen = {
        "n_items": (int(np.count_nonzero(kind == ITEM)), "answers about items"),
        "n_attributes": (n_attributes, "answers about attributes"),
        "n_users": (len(origin.users), "clients in the header"),
    }
    refuse_absurd_sizes(path, {name: getattr(manifest, name) for name in seen}, seen)
    limits = np.array([manifest.n_items, manifest.n_attributes, manifest.factors])
    limit = limits[kind.astype(int)]
    bad = np.flatnonzero(index >= limit)
    if bad.size:
        row = int(bad[0])
        name = list(ANSWERS)[kind[row]]
        raise InputError(
            f"{path} row {row}: index of kind {name} must be below {limit[row]} (its header), "
            f"got {index[row]}"
        )


def _rounds_of(path: Path, file: ColumnFile, factor: np.ndarray) -> np.ndarray:
    """Read the column ``round``, which rows of factors need."""
    chunks = integer_chunks(file, "round", -1, INT32_MAX - 1, ">= 0", null=-1) if file.has("round") else []
    round_ = np.concatenate(chunks) if chunks else np.full(factor.size, -1)
    wrong = np.flatnonzero(factor & (round_ < 0))
    if wrong.size:
        raise InputError(f"{path} row {wrong[0]}: a row of kind factor needs a round, it has none")
    return round_


def _factors_of(
    path: Path, user: np.ndarray, kind: np.ndarray, index: np.ndarray, value: np.ndarray, round_: np.ndarray
) -> ClientFactors:
    """Put rows of kind factor together as vectors."""
    rows = np.flatnonzero(kind == FACTOR)
    rows = rows[np.lexsort((index[rows], user[rows]))]
    users, first = np.unique(user[rows], return_index=True)
    width = int(index[rows].max()) + 1
    if rows.size != users.size * width:
        raise InputError(
            f"{path}: factors must have every coordinate of every client once, {users.size:,} x {width:,} "
            f"rows, got {rows.size:,}"
        )
    rounds = round_[rows].reshape(users.size, width)
    if (rounds != rounds[:, :1]).any():
        raise InputError(f"{path}: the coordinates of a client's factor must be of one round")
    values = value[rows].reshape(users.size, width)
    return ClientFactors(users.astype(np.int32), round_[rows[first]].astype(np.int32), values)


def _optional_column(path: Path, file: ColumnFile, name: str) -> Float[np.ndarray, " rows"]:
    """Read a column that may be null anywhere."""
    arrays = file.columns(name)
    for array in arrays:
        kind = array.type
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
            raise InputError(f"{path}: {name} must hold numbers or null, got {kind}")
    chunks = [array.to_numpy(zero_copy_only=False) for array in arrays]
    column = np.concatenate(chunks).astype(np.float64) if chunks else np.zeros(0)
    probability = name.endswith("probability")
    rule = "in 0..1" if probability else "finite"
    wrong = np.flatnonzero(np.isinf(column) | (probability & ((column < 0) | (column > 1))))
    if wrong.size:
        raise InputError(f"{path} row {wrong[0]}: {name} must be {rule} or null, got {column[wrong[0]]:g}")
    return column


def _check_repeats(path: Path, user: np.ndarray, kind: np.ndarray, index: np.ndarray) -> None:
    """Refuse two rows of one user, kind and index."""
    if user.size < 2:
        return
    order = np.lexsort((index, kind, user))
    same = np.ones(user.size - 1, bool)
    for column in (user, kind, index):
        ordered = column[order]
        same &= ordered[1:] == ordered[:-1]
    if same.any():
        row = int(np.maximum(order[1:], order[:-1])[same].min())
        raise InputError(f"{path} row {row}: each user, kind and index must occur once")


def _blocks_of(
    user: np.ndarray,
    kind: np.ndarray,
    index: np.ndarray,
    value: np.ndarray,
    others: Mapping[str, np.ndarray],
) -> Iterator[Estimates]:
    """Pad clients with similar numbers of rows to common blocks."""
    order = np.argsort(user, kind="stable")
    users, start, length = np.unique(user[order], return_index=True, return_counts=True)
    by_length = np.argsort(length, kind="stable")
    position = 0
    while position < users.size:
        longest = length[by_length]
        limit = int(np.searchsorted(longest, 2 * longest[position], side="right"))
        cells = np.arange(1, limit - position + 1) * longest[position:limit]
        count = max(1, int(np.searchsorted(cells, PAD_CELLS, side="right")))
        members = by_length[position : position + count]
        position += count
        slot = np.arange(int(length[members].max()))
        valid = slot < length[members][:, None]
        rows = order[np.where(valid, start[members][:, None] + slot, 0)]
        yield Estimates(
            users[members].astype(np.int32),
            kind[rows].astype(np.int8),
            index[rows].astype(np.int32),
            np.where(valid, value[rows], np.nan),
            **{name: np.where(valid, column[rows], np.nan) for name, column in others.items()},
        )
