"""Who an adversary is, by the names that a program gave its clients, and what of a recording it sees.

Names lie in ``NAME.clients.json`` beside a recording, private as the truth. Attacks know numbers alone;
names are for whoever audits: to say which client is the adversary, and whom a message is about.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from victims.common.errors import InputError
from victims.common.files import json_of, small_file
from victims.transcript.beside import clients_path
from victims.transcript.manifest import Manifest
from victims.transcript.messages import Sent, Sums
from victims.transcript.sybils import SYBILS, sybils_of

ACTIVE = "active-server"  # and after a colon its manipulation and budget
ADVERSARIES = {
    "server": "receives every client's upload, and decrypted sums, and knows what it broadcast",
    "server+client": "the server together with one client, whose key opens whatever is encrypted",
    "eavesdropper": "reads every message on the wire, or of sealed links who sends how much; the broadcast",
    "decrypter": "the first client who decrypts sums: those that it decrypts, and the broadcast",
    "item-server": "knows the broadcast, which tells sums of uploads, and its own part of the server's step",
    "client:N": "a client, by name or number: its own messages and the broadcast, which tells sums",
    "neighbour:N": "a client of a graph: what its neighbours send it, and what it holds",
    "neighbours:N,M": "several clients of a graph who put together what they receive and hold",
    "active-server": "malicious: crafted factors make sums the rows of few; active-server:targets=9, say",
    "sybils:SHARE": "the server with a share of the clients, FIRST-LAST of them, or all-but-one of each sum",
    "helper": "what clients send before the first round to be told their neighbours, and the graph",
}


def party_of(path: Path, manifest: Manifest, decrypters: Int[np.ndarray, " rows"], adversary: str) -> Party:
    """Who an adversary is."""
    if not isinstance(adversary, str):
        raise InputError(f"adversary must be one of {', '.join(ADVERSARIES)}, got {adversary!r:.80}")
    recorded = manifest.adversary
    if recorded not in ("all", adversary):
        raise InputError(
            f"{path} holds what {recorded!r} saw, not what {adversary!r} saw; use --adversary {recorded}"
        )
    if adversary == "eavesdropper":
        return Party(-1, everything=True, knows_edges=True)
    if adversary.startswith(SYBILS):
        sybils = sybils_of(adversary)
        own = None if sybils is None else tuple(sybils.among(manifest.n_users).tolist())
        return Party(-1, key=own != (), own_clients=own or (), all_but_one=sybils is None)
    if adversary == "decrypter":
        decrypters = decrypters[decrypters >= 0]
        if decrypters.size == 0:
            raise InputError("adversary 'decrypter' needs decrypted sums, and nobody decrypts here")
        return Party(int(decrypters.min()), key=True)
    if members := members_of(adversary):
        single = adversary.startswith(CLIENT)
        return Party(members[0], key=single, members=members, adds_up=not single)
    with_key = adversary == "server+client"
    if adversary.startswith(ACTIVE) and not recorded.startswith(ACTIVE):
        raise InputError(f"adversary {ACTIVE} needs a recording that it made; {path} is of an honest server")
    name = "server" if with_key or adversary.startswith(ACTIVE) else adversary
    defaults = {"server": -1, "item-server": -2}
    party = manifest.parties.get(name.replace("-", "_"), manifest.parties.get(name, defaults.get(name)))
    if party is None and name in ADVERSARIES:
        raise InputError(
            f"adversary {adversary!r} takes no part in this recording; {path} names no such party"
        )
    if party is None:
        raise InputError(f"adversary must be one of {', '.join(ADVERSARIES)}, got {adversary!r:.80}")
    helps = manifest.roles.get(name, name) == "helper"
    return Party(party, key=with_key, knows_edges=helps, knows_weights=helps)


class Party(NamedTuple):
    """Who sees."""

    identifier: int  # of the format: a client, or a negative number of the manifest
    everything: bool = False  # whether it reads every message
    key: bool = False  # whether it holds the clients' key
    members: tuple[int, ...] = ()  # clients who are the adversary, ascending
    adds_up: bool = False  # whether it makes one row of the copies of a row that reach its members
    knows_edges: bool = False  # whether it knows the whole graph
    knows_weights: bool = False  # and the weights of edges that are not its members'
    own_clients: tuple[int, ...] = ()  # of a server: Sybils, ascending
    all_but_one: bool = False  # whether every client is alone among Sybils

    @property
    def parties(self) -> tuple[int, ...]:
        """Numbers of the format."""
        return self.members or (self.identifier,)


def seen_by(party: Party, rows: Sent) -> dict[int, Sums]:
    """Rows that a party sent or received, by round."""
    on_the_wire = rows.receiver != rows.sender  # what somebody adds up by itself is not sent
    seen = on_the_wire
    if not party.everything:
        seen = np.isin(rows.receiver, party.parties) | np.isin(rows.sender, party.parties)
    out = {}
    for round_ in np.unique(rows.round[seen]).tolist():
        here = seen & (rows.round == round_)
        here &= _once(rows, here)
        out[round_] = Sums((rows.kind[here] % 2).astype(np.int8), rows.index[here], rows.gradient[here])
    return out


def _once(rows: Sent, here: Bool[np.ndarray, " rows"]) -> Bool[np.ndarray, " rows"]:
    """The first row of each kind and index among some: members of an adversary may each have one."""
    at = np.flatnonzero(here)
    _, first = np.unique(np.stack([rows.kind[at], rows.index[at]]), axis=1, return_index=True)
    keep = np.zeros(here.size, bool)
    keep[at[first]] = True
    return keep


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
    for beginning in (CLIENT, NEIGHBOUR, NEIGHBOURS):
        if adversary.startswith(beginning):
            told = adversary.removeprefix(beginning)
            wanted = told.split(",") if beginning == NEIGHBOURS else [told]
            numbers = sorted({_number(transcript, adversary, name, n_users) for name in wanted})
            return beginning + ",".join(map(str, numbers))
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
