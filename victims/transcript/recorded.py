"""A checked recording; attacks get a view of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Float

from victims.common.errors import InputError
from victims.common.limits import scanned
from victims.transcript.adversaries import Party, Sent, party_of, seen_by
from victims.transcript.manifest import Manifest
from victims.transcript.view import Broadcast, Messages, View
from victims.transcript.writer import key_path

Opener = Callable[[Sequence[bytes]], Float[np.ndarray, "rows factors"]]


class Sealed(NamedTuple):
    """Ciphertexts, (n_rows,) of large binary: of the uploads, in their chunks, and of the state."""

    uploads: tuple[pa.Array, ...]
    state: Mapping[int, pa.Array]


@dataclass(frozen=True)
class Transcript:
    """A checked recording. Attacks get a ``view`` of it, never the object itself.

    Attributes
    ----------
    path : Path
    manifest : Manifest
    broadcasts : mapping of round to Broadcast
        Factors are NaN where they are encrypted.
    messages : Messages
        What clients uploaded.
    receiver : chunks of int32
    sums : Sent
        Decrypted ones.
    item_server : Sent
        What the item server sends about items.
    sealed : Sealed
        Empty where nothing is encrypted.
    """

    path: Path
    manifest: Manifest
    broadcasts: dict[int, Broadcast]
    messages: Messages
    receiver: tuple[np.ndarray, ...]
    sums: Sent
    item_server: Sent
    sealed: Sealed

    def __repr__(self) -> str:
        """One line: what was recorded, and how much of it."""
        about = self.manifest
        return (
            f"Transcript({str(self.path)!r}, {about.protocol} {about.update}/{about.weighting}, "
            f"rounds={about.rounds!s:.60}, users={about.n_users}, items={about.n_items}, "
            f"uploaded rows={self.messages.n_rows})"
        )

    def view(self, adversary: str = "server", opener: Opener | None = None) -> View:
        """Only what one party sees.

        Parameters
        ----------
        adversary : str
            One of ``ADVERSARIES``; ``client:3`` is client 3.
        opener : callable, optional
            Turns ciphertexts into rows; used for parties who hold the clients' key.

        Raises
        ------
        InputError
            If the party is unknown or was not recorded, or holds a key that is not given.
        """
        party = party_of(self.path, self.manifest, self.sums.sender, adversary)
        messages = self._uploads(party)
        broadcasts = dict(self.broadcasts)
        if self.sealed.state:
            broadcasts = self._opened_state(opener) if party.key else {}
        if messages.gradient is None and party.key and messages.n_rows:
            gradient = _opened(self._ciphertexts(party), opener, self.path)
            messages = replace(messages, gradient=gradient)
        if self.manifest.upload.zeros_if_unrated and messages.gradient is not None:
            # zeros in the clear say what they stand for
            keep = [(chunk != 0).any(axis=1) for chunk in messages.gradient]
            messages = messages if all(mask.all() for mask in keep) else messages.rows(keep)
        sums, item_server = (seen_by(party, rows) for rows in (self.sums, self.item_server))
        return View(adversary, self.manifest, broadcasts, messages, sums, item_server)

    def _uploads(self, party: Party) -> Messages:
        keep = self._received(party)
        return self.messages if all(mask.all() for mask in keep) else self.messages.rows(keep)

    def _ciphertexts(self, party: Party) -> list[pa.Array]:
        masks = self._received(party)
        return [chunk.filter(pa.array(mask)) for chunk, mask in zip(self.sealed.uploads, masks, strict=True)]

    def _opened_state(self, opener: Opener | None) -> dict[int, Broadcast]:
        out = {}
        for round_, broadcast in self.broadcasts.items():
            (factors,) = _opened([self.sealed.state[round_]], opener, self.path)
            out[round_] = replace(broadcast, factors=factors)
        return out

    def _received(self, party: Party) -> list[np.ndarray]:
        """Which uploads a party sent or received, chunk by chunk."""
        if party.everything:
            return [np.ones(chunk.size, bool) for chunk in self.receiver]
        return [
            (receiver == party.identifier) | (sender == party.identifier)
            for receiver, sender in zip(self.receiver, self.messages.sender, strict=True)
        ]


def _opened(column: list[pa.Array], opener: Opener | None, path: Path) -> tuple[np.ndarray, ...]:
    """Ciphertexts, chunk by chunk, as rows in the clear."""
    if opener is None:
        raise InputError(
            f"{path} is encrypted and this adversary holds the clients' key; "
            f"put the key file {key_path(path).name} beside the recording"
        )
    opened = tuple(opener(chunk.to_pylist()) for chunk in column)
    if any(scanned(chunk)[0] is not None for chunk in opened):
        raise InputError(
            f"{path} must hold numbers of a plausible size once it is decrypted; use its own key"
        )
    return opened
