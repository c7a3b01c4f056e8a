"""Who an adversary is, and what of a recording it sees."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.transcript.client_names import CLIENT
from victims.transcript.manifest import Manifest
from victims.transcript.view import Sums

ADVERSARIES = {
    "server": "receives every client's upload, and decrypted sums, and knows what it broadcast",
    "server+client": "the server together with one client, whose key opens whatever is encrypted",
    "eavesdropper": "reads every message on the wire and the broadcast",
    "decrypter": "the first client who decrypts sums: those that it decrypts, and the broadcast",
    "item-server": "knows the broadcast, which tells sums of uploads, and its own part of the server's step",
    "client:N": "a client, by name or number: its own messages and the broadcast, which tells sums",
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
    """Who an adversary is.

    Parameters
    ----------
    path : Path
        Of the recording, for messages.
    manifest : Manifest
    decrypters : (n_sums,) int
        Senders of decrypted sums.
    adversary : str
        One of ``ADVERSARIES``; ``client:3`` is client 3, clients by their numbers.

    Raises
    ------
    InputError
        If nobody, or somebody who was not recorded.
    """
    if not isinstance(adversary, str):
        raise InputError(f"adversary must be one of {', '.join(ADVERSARIES)}, got {adversary!r:.80}")
    recorded = manifest.adversary
    if recorded not in ("all", adversary):
        raise InputError(
            f"{path} holds what {recorded!r} saw, not what {adversary!r} saw; use --adversary {recorded}"
        )
    if adversary == "eavesdropper":
        return Party(-1, everything=True)
    if adversary == "decrypter":
        if decrypters.size == 0:
            raise InputError("adversary 'decrypter' needs decrypted sums, and nobody decrypts here")
        return Party(int(decrypters.min()), key=True)
    if adversary.startswith(CLIENT):
        return Party(int(adversary.removeprefix(CLIENT)), key=True)
    with_key = adversary == "server+client"
    name = "server" if with_key else adversary
    defaults = {"server": -1, "item-server": -2}
    party = manifest.parties.get(name.replace("-", "_"), manifest.parties.get(name, defaults.get(name)))
    if party is None:
        raise InputError(f"adversary must be one of {', '.join(ADVERSARIES)}, got {adversary!r:.80}")
    return Party(party, key=with_key)


class Party(NamedTuple):
    """Who sees.

    Attributes
    ----------
    identifier : int
        Of the format: a client, or a negative number of the manifest.
    everything : bool
        Whether it reads every message.
    key : bool
        Whether it holds the clients' key.
    """

    identifier: int
    everything: bool = False
    key: bool = False


def seen_by(party: Party, rows: Sent) -> dict[int, Sums]:
    """Rows that a party sent or received, by round.

    Parameters
    ----------
    party : Party
    rows : Sent

    Returns
    -------
    dict of int to Sums
        Only rounds of which it sees some.
    """
    seen = np.full(rows.round.size, party.everything)
    seen |= (rows.receiver == party.identifier) | (rows.sender == party.identifier)
    out = {}
    for round_ in np.unique(rows.round[seen]).tolist():
        here = seen & (rows.round == round_)
        out[round_] = Sums((rows.kind[here] % 2).astype(np.int8), rows.index[here], rows.gradient[here])
    return out
