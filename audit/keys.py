"""The clients' key of an encrypted recording, for the adversaries who hold it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Float

from defenses.encryption import opener
from victims.common.errors import InputError
from victims.common.files import json_of, small_file
from victims.transcript.beside import key_path
from victims.transcript.recorded import Opener, Transcript
from victims.transcript.view import View

KEY_BYTES = 1 << 16
REMEDY = "give the key file that was written with the recording"


def view_of(recorded: Transcript, adversary: str) -> View:
    """What an adversary sees; a key file beside the recording is used where the adversary holds the key."""
    path = key_path(recorded.path)
    if not path.is_file():
        return recorded.view(adversary)

    @cache
    def found() -> Opener:  # only if this adversary opens anything
        with _about(path):
            return opener(recorded.manifest, _content(path))

    def opened(sealed: Sequence[bytes]) -> Float[np.ndarray, "rows factors"]:
        key = found()
        with _about(recorded.path):
            return key(sealed)

    return recorded.view(adversary, opened)


@contextmanager
def _about(path: Path) -> Iterator[None]:
    """Errors inside name the file that they are about."""
    try:
        yield
    except InputError as error:
        raise (error if str(path) in str(error) else InputError(f"{path}: {error}")) from None


def _content(path: Path) -> dict[str, str]:
    try:
        content = json_of(small_file(path, KEY_BYTES))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON: {error}; {REMEDY}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold a JSON object, got {str(content)[:80]}; {REMEDY}")
    return content
