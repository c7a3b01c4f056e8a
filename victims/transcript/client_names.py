"""The names that a program gave its clients: ``NAME.clients.json`` beside a recording, private as the truth.

Attacks know numbers alone. Names are for whoever audits: to say which client is the adversary, and to say
whom a message is about.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from victims.common.errors import InputError
from victims.common.given_files import small_file
from victims.common.json_text import json_of
from victims.transcript.beside import clients_path

CLIENT = "client:"
NEIGHBOUR, NEIGHBOURS = "neighbour:", "neighbours:"
MOST_BYTES = 1 << 30
SHOWN = 3  # names of a message


def names_of(transcript: Path) -> Mapping[int, str]:
    """Number of each client -> its name as Python writes it; empty where the recording keeps no names."""
    path = clients_path(transcript)
    if not path.is_file():
        return {}
    try:
        content = json_of(small_file(path, MOST_BYTES))
        return {int(number): str(name) for number, name in content.items()}
    except InputError:
        raise
    except (ValueError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} must map numbers of clients to names ({error}); record again, or remove it"
        ) from None


def members_of(adversary: str) -> tuple[int, ...]:
    """Numbers of the clients who are an adversary; none where it is no client.

    Examples
    --------
    >>> members_of("client:3"), members_of("neighbours:3,7"), members_of("server")
    ((3,), (3, 7), ())
    """
    for beginning in (CLIENT, NEIGHBOUR, NEIGHBOURS):
        if adversary.startswith(beginning):
            return tuple(int(number) for number in adversary.removeprefix(beginning).split(","))
    return ()


def numbered(transcript: Path, adversary: str, n_users: int) -> str:
    """``client:NAME`` as ``client:NUMBER``; a name goes before a number, every other adversary is itself.

    ``neighbour:NAME`` likewise, and ``neighbours:NAME,NAME,...`` with distinct numbers, ascending.
    """
    if adversary.startswith(CLIENT):
        return f"{CLIENT}{_number(transcript, adversary, adversary.removeprefix(CLIENT), n_users)}"
    if adversary.startswith(NEIGHBOUR):
        return f"{NEIGHBOUR}{_number(transcript, adversary, adversary.removeprefix(NEIGHBOUR), n_users)}"
    if adversary.startswith(NEIGHBOURS):
        wanted = adversary.removeprefix(NEIGHBOURS).split(",")
        numbers = sorted({_number(transcript, adversary, name, n_users) for name in wanted})
        return NEIGHBOURS + ",".join(map(str, numbers))
    return adversary


def _number(transcript: Path, adversary: str, wanted: str, n_users: int) -> int:
    names = names_of(transcript)
    found = [number for number, name in names.items() if name == wanted]
    found = found or [number for number, name in names.items() if spoken(name) == wanted]
    if len(found) > 1:
        which = " or ".join(f"{CLIENT}{names[number]}" for number in found[:SHOWN])
        raise InputError(f"adversary {adversary!r} may be {which}; give the name as it is written here")
    if found:
        return found[0]
    if wanted.isascii() and wanted.isdigit() and len(wanted) < 20 and int(wanted) < n_users:
        return int(wanted)
    raise InputError(_nobody(adversary, wanted, names, n_users))


def called_by_name(transcript: Path, adversary: str) -> str:
    """Say which client a numbered adversary is; empty where it is none, or names are not kept."""
    if not adversary.startswith(CLIENT):
        return ""
    name = names_of(transcript).get(int(adversary.removeprefix(CLIENT)))
    return f"{adversary} is the client whom the recorded program calls {name}" if name is not None else ""


def some_names(clients: Iterable[int] | np.ndarray, names: Mapping[int, str]) -> str:
    """A few clients by name, by number where they have none.

    Examples
    --------
    >>> some_names(range(9), {0: "'anna'", 1: "'ben'"})
    "'anna', 'ben', 2, ..."
    """
    numbers = [int(client) for client in clients]
    shown = ", ".join(names.get(number, str(number)) for number in numbers[:SHOWN])
    return shown + (", ..." if len(numbers) > SHOWN else "")


def spoken(name: str) -> str:
    """A name as somebody would type it: a text without its quotes, anything else as Python writes it.

    Examples
    --------
    >>> spoken("'anna'"), spoken("('anna', 2)")
    ('anna', "('anna', 2)")
    """
    try:
        value = ast.literal_eval(name)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return name
    return value if isinstance(value, str) else name


def _nobody(adversary: str, wanted: str, names: Mapping[int, str], n_users: int) -> str:
    if not names:
        return f"adversary {adversary!r} must name a client below {n_users}; the recording keeps no names"
    known = {spoken(name): name for name in names.values()}
    near = get_close_matches(wanted, known, SHOWN, 0.5)
    listed = ", ".join(f"{CLIENT}{name}" for name in near) if near else some_names(names, names)
    hint = f"the nearest are {listed}" if near else f"the recording has {listed}"
    return f"adversary {adversary!r} names no client, nor a number below {n_users}; {hint}"
