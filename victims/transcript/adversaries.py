"""Who an adversary is, and what of a recording it sees."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.common.errors import InputError
from victims.transcript.client_names import CLIENT, members_of
from victims.transcript.manifest import Manifest
from victims.transcript.view import Sums

ADVERSARIES = {
    "server": "receives every client's upload, and decrypted sums, and knows what it broadcast",
    "server+client": "the server together with one client, whose key opens whatever is encrypted",
    "eavesdropper": "reads every message on the wire, or of sealed links who sends how much; the broadcast",
    "decrypter": "the first client who decrypts sums: those that it decrypts, and the broadcast",
    "item-server": "knows the broadcast, which tells sums of uploads, and its own part of the server's step",
    "client:N": "a client, by name or number: its own messages and the broadcast, which tells sums",
    "neighbour:N": "a client of a graph: what its neighbours send it, and what it holds",
    "neighbours:N,M": "several clients of a graph who put together what they receive and hold",
    "helper": "what clients send before the first round to be told their neighbours, and the graph",
}


@dataclass(frozen=True)
class Sent:
    """Rows in the clear that are no client's upload, and who sent and received them, (n_rows, ...) each."""

    round: Int[np.ndarray, " rows"]
    sender: Int[np.ndarray, " rows"]
    receiver: Int[np.ndarray, " rows"]
    kind: Int[np.ndarray, " rows"]
    index: Int[np.ndarray, " rows"]
    gradient: Float[np.ndarray, "rows factors"]


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
    if adversary == "decrypter":
        if decrypters.size == 0:
            raise InputError("adversary 'decrypter' needs decrypted sums, and nobody decrypts here")
        return Party(int(decrypters.min()), key=True)
    if members := members_of(adversary):
        single = adversary.startswith(CLIENT)
        return Party(members[0], key=single, members=members, adds_up=not single)
    with_key = adversary == "server+client"
    name = "server" if with_key else adversary
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
    # whether it knows the whole graph, and the weights of edges that are not its members'
    knows_edges: bool = False
    # whether it knows the whole graph, and the weights of edges that are not its members'
    knows_weights: bool = False

    @property
    def parties(self) -> tuple[int, ...]:
        """Numbers of the format."""
        return self.members or (self.identifier,)


def seen_by(party: Party, rows: Sent) -> dict[int, Sums]:
    """Rows that a party sent or received, by round."""
    on_the_wire = rows.receiver != rows.sender  # what somebody adds up by itself is not sent
    seen = on_the_wire & party.everything
    seen |= np.isin(rows.receiver, party.parties) | np.isin(rows.sender, party.parties)
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
