"""The clients' key of an encrypted recording, for the adversaries who hold it."""

from __future__ import annotations

import json

from defenses.paillier import opener
from victims.errors import InputError
from victims.transcript import Opener, Transcript
from victims.view import View
from victims.writing import key_path

KEY_BYTES = 1 << 16


def view_of(recorded: Transcript, adversary: str) -> View:
    """What an adversary sees; a key file beside the recording is used where the adversary holds the key.

    Raises
    ------
    InputError
        If the party is unknown or was not recorded, or the key or a ciphertext is damaged.
    """
    return recorded.view(adversary, _opener(recorded))


def _opener(recorded: Transcript) -> Opener | None:
    path = key_path(recorded.path)
    if not path.is_file():
        return None
    if path.stat().st_size > KEY_BYTES:
        raise InputError(f"{path} must be at most {KEY_BYTES} bytes")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold a JSON object, got {str(content)[:80]}")
    return opener(recorded.manifest, content)
