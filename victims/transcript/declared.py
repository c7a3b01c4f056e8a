"""What a program declares of itself to a recorder, held against the manifest's rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import ValidationError

from victims.common.complaints import first_complaint
from victims.common.errors import InputError
from victims.transcript.client_rule import ClientRule
from victims.transcript.given_columns import number_of
from victims.transcript.manifest import CONSTANTS, INT32_MAX, Manifest
from victims.transcript.manifest_2 import PULL, SCALE, Manifest2
from victims.transcript.spelling import closest

PUBLIC = (*CONSTANTS, SCALE, PULL)


def manifest_of(declared: Mapping[str, Any], rule: Mapping[str, Any], **found: Any) -> Manifest:
    """Make the manifest of version 2 of what is declared and what was found out."""
    try:
        content = {"format": "factorleak-transcript", "version": 2, **declared, **found}
        content["rule"] = ClientRule.model_validate(dict(rule))
        return Manifest2.model_validate(content).as_manifest()
    except ValidationError as error:
        wrong = first_complaint(error)
        got = "" if isinstance(wrong.got, dict) else f", got {str(wrong.got)[:80]}"
        raise InputError(f"{wrong}{got}") from None


def constants_of(given: Mapping[str, Any] | None) -> dict[str, float]:
    """Check public numbers, by the names that the format knows.

    A file may have other keys, which say nothing that is used. Here one is refused: what somebody declares
    is meant to be known.
    """
    out = {}
    for key, value in mapping_of("constants", given).items():
        if key not in PUBLIC:
            meant = closest(str(key), PUBLIC)
            hint = f"did you mean {meant!r}? " if meant else ""
            raise InputError(
                f"constants must have names of the format, got {key!r:.40}; {hint}What else the clients do "
                "goes into rule"
            )
        if value is None:
            continue
        out[key] = number_of(f"{key} of constants", value)
    return out


def mapping_of(name: str, given: Any) -> dict[str, Any]:
    """Copy what was given as a mapping; None is an empty one."""
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"{name} must map names to values, got {given!r:.80}")
    return dict(given or {})


def size_of(name: str, given: Any) -> int | None:
    """Check a size >= 1, where one is given."""
    whole = isinstance(given, int | np.integer) and not isinstance(given, bool)
    if given is not None and not (whole and 1 <= given <= INT32_MAX):
        raise InputError(f"{name} must be a whole number >= 1, got {given!r:.80}; leave it out if unknown")
    return None if given is None else int(given)
