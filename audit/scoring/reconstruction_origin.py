"""Where a reconstruction comes from: the header of its file.

The schema metadata under ``factorleak-reconstruction`` says which attack read what, on which view, and
which clients it abstained on and why, so that scoring needs no other file than the truth.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import BaseModel, ValidationError, field_serializer, field_validator, model_validator

from attacks.base import ClientFactors, Estimates, Identities, Outcome, Reconstruction, Scope
from audit.scoring.reconstruction_rows import ANSWERS
from victims.common.complaints import first_complaint
from victims.common.errors import InputError, one_line, printable
from victims.common.limits import DEEPEST, depth_of, refuse_absurd_sizes
from victims.transcript.kinds import INT32_MAX
from victims.transcript.manifest import Manifest, Manifest2, file_of
from victims.transcript.view import ATTRIBUTE, ITEM

KEY = b"factorleak-reconstruction"
FORMER_OPTIONS = {  # option and value in files before outcome, scope and identities: the field and its value
    "found_nothing": (True, "outcome", Outcome.NOTHING_FOUND),
    "pseudonyms": (True, "identities", Identities.PSEUDONYMS),
    "reads": ("rated set", "scope", Scope.RATED_SET),
}


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


def origin_of(path: Path, metadata: dict[bytes, bytes]) -> Origin | None:
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


def with_origin(
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


def refuse_unless_about(path: Path, origin: Origin, kind: np.ndarray, index: np.ndarray) -> None:
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
