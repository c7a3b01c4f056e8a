"""A checked recording; attacks get a view of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Float

from victims.common.errors import InputError, printable
from victims.common.limits import scanned
from victims.transcript.adversaries import Party, numbered, party_of, seen_by
from victims.transcript.beside import key_path
from victims.transcript.changes import as_changes
from victims.transcript.kinds import TABLE_ROWS
from victims.transcript.manifest import Manifest
from victims.transcript.messages import UNTOLD, Broadcast, Messages, Sent, Sums, Told, joined
from victims.transcript.received import (
    Copies,
    Deliveries,
    Links,
    averaged,
    copies_at,
    links_seen,
    once,
    placed,
    placed_sums,
    received_by,
    traffic_of,
    weighted,
    with_indices_of,
    with_own,
)
from victims.transcript.sybils import SYBILS, less, lone
from victims.transcript.view import View

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
    held : mapping of party to mapping of round to Broadcast
        What one party alone knows.
    deliveries : Deliveries, or None
        Who passes rows on to whom.
    anonymous : Messages, or None
        Uploads whose sender is not told, and ``anonymous_receiver`` of each.
    repeated_for_receivers : bool
        Whether some rows are there once for each of several receivers.
    other : mapping of kind to number of rows
        Kinds of role other.
    told : mapping of kind to Told
        Their rows among the messages.
    implicit : Transcript, or None
        Rows about a second table of item factors, as a recording of their own.
    """

    path: Path
    manifest: Manifest
    broadcasts: dict[int, Broadcast]
    messages: Messages
    receiver: tuple[np.ndarray, ...]
    sums: Sent
    item_server: Sent
    sealed: Sealed
    held: Mapping[int, Mapping[int, Broadcast]] = field(default_factory=dict)
    deliveries: Deliveries | None = None
    anonymous: Messages | None = None
    anonymous_receiver: tuple[np.ndarray, ...] = ()
    repeated_for_receivers: bool = False
    other: Mapping[str, int] = field(default_factory=dict)
    told: Mapping[str, Told] = field(default_factory=dict)
    implicit: Transcript | None = None

    def __repr__(self) -> str:
        """One line: what was recorded, and how much of it."""
        about = self.manifest
        return (
            f"Transcript({str(self.path)!r}, {about.title}, "
            f"rounds={about.rounds!s:.60}, users={about.n_users}, items={about.n_items}, "
            f"uploaded rows={self.messages.n_rows})"
        )

    @property
    def unread(self) -> dict[str, str]:
        """How much there is of each kind of rows that no attack reads: no lists, no scorer's network."""
        kinds, told = self.manifest.kinds, self.told
        read = {"network"} if "scorer" in (self.manifest.rule.model_extra or {}) else set()  # by imia
        read |= {name for name in told if kinds[name].of == "item" and np.isnan(told[name].numbers).all()}
        width = {name: one.numbers.shape[1] for name, one in told.items()}
        return {
            printable(name): f"{rows:,} rows"
            + f" of {width.get(name, 1):,} numbers" * (width.get(name, 1) > 1)
            for name, rows in self.other.items()
            if name not in read
        }

    def view(self, adversary: str = "server", opener: Opener | None = None) -> View:
        """Only what one party sees.

        Parameters
        ----------
        adversary : str
            One of ``ADVERSARIES``; ``client:anna`` is the client of that name, where the recording keeps
            names, ``client:3`` else client 3. The view has the number.
        opener : callable, optional
            Turns ciphertexts into rows; used for parties who hold the clients' key.

        Raises
        ------
        InputError
            If the party is unknown or was not recorded, or holds a key that is not given.
        """
        adversary = self.adversary(adversary)
        party = party_of(self.path, self.manifest, self.sums.sender, adversary)
        return self._view(adversary, party, opener)

    def _view(self, adversary: str, party: Party, opener: Opener | None) -> View:
        messages = self._uploads(party)
        broadcasts = dict(self.broadcasts)
        if self.sealed.state:
            broadcasts = self._opened_state(opener) if party.key else {}
        holdings = {member: self.held[member] for member in party.parties if member in self.held}
        for held in reversed(list(holdings.values())):  # of several, the first one's own stands
            for round_, own in held.items():
                broadcasts[round_] = joined(broadcasts[round_], own)
        # masks are agreed on in pairs, along a graph and where the manifest says so
        common_key = party.key and self.deliveries is None and not self.manifest.masked
        if messages.gradient is None and common_key and messages.n_rows:
            gradient = _opened(self._ciphertexts(party), opener, self.path)
            messages = replace(messages, gradient=gradient)
        sums, item_server = (seen_by(party, rows) for rows in (self.sums, self.item_server))
        if party.own_clients or party.all_but_one:
            messages, sums = self._of_honest(party, messages, sums, opener)
        unplaced = 0
        if messages.reference is not None and broadcasts:
            broadcasts = with_indices_of(messages, broadcasts)
        elif self.held:
            received = messages.n_rows
            messages = placed(messages, broadcasts)
            unplaced = received - messages.n_rows
        manifest = self.manifest.of_rows()
        if messages.gradient is not None and broadcasts:
            messages, manifest = as_changes(messages, broadcasts, manifest, self.told.get(TABLE_ROWS))
        if self.held and broadcasts:
            sums, item_server = placed_sums(sums, broadcasts), placed_sums(item_server, broadcasts)
        copies = self._copies(party)
        return View(
            adversary,
            manifest,
            broadcasts,
            messages,
            sums,
            item_server,
            self._anonymous_rows(party, copies),
            unplaced,
            copies=copies,
            links=self._links(party),
            told=received_by(self.told, party.parties),
            traffic=traffic_of(once(self.messages)) if self._sealed(party) else None,
            holdings=holdings,
            sums_of_members={
                member: seen_by(Party(member, members=(member,)), self.sums) for member in party.members
            },
            implicit=None if self.implicit is None else self.implicit._view(adversary, party, opener),
        )

    def _of_honest(
        self, party: Party, messages: Messages, sums: dict[int, Sums], opener: Opener | None
    ) -> tuple[Messages, dict[int, Sums]]:
        """Uploads and sums without what the adversary's own clients sent."""
        if self.deliveries is not None:
            raise InputError(
                f"adversary {SYBILS} needs a server, and clients send to each other in {self.path}; use "
                "neighbours:N,M"
            )
        is_own = [np.isin(sender, party.own_clients) for sender in messages.sender]
        honest = messages.rows([~mask for mask in is_own])
        if messages.gradient is not None:
            return honest, sums if party.all_but_one else less(sums, messages.rows(is_own))
        masks = [mask | party.all_but_one for mask in is_own]
        ciphertexts = zip(self._ciphertexts(party), masks, strict=True)
        rows = _opened([chunk.filter(pa.array(mask)) for chunk, mask in ciphertexts], opener, self.path)
        known = replace(messages.rows(masks), gradient=rows)
        if party.all_but_one:  # no sum of several honest clients
            return known, {}
        rest = less(sums, known)
        alone = np.unique(np.concatenate(honest.sender)).size == 1
        return (lone(honest, rest) if alone else honest), rest

    def adversary(self, name: str) -> str:
        """The adversary of a name, with a client's number in place of its own name.

        Parameters
        ----------
        name : str
            One of ``ADVERSARIES``; empty: the one who recorded, or the server.

        Raises
        ------
        InputError
            If no client has that name.
        """
        recorded_by = self.manifest.adversary
        name = name or ("server" if recorded_by == "all" else recorded_by)
        return numbered(self.path, name, self.manifest.n_users) if isinstance(name, str) else name

    def _anonymous_rows(self, party: Party, copies: Copies | None) -> int:
        if copies is not None:
            return int((copies.sender == UNTOLD).sum())
        return sum(
            chunk.size if party.everything else int(np.isin(chunk, party.parties).sum())
            for chunk in self.anonymous_receiver
        )

    def _sealed(self, party: Party) -> bool:
        """Whether somebody sees that rows are sent, and not what they are."""
        return party.everything and self.manifest.links == "sealed"

    def _links(self, party: Party) -> Links | None:
        if self.deliveries is None:
            return None
        weights = party.knows_weights or bool(party.members)
        return links_seen(self.deliveries, party.members, everything=party.knows_edges, weights=weights)

    def _copies(self, party: Party) -> Copies | None:
        """Rows of others as they arrive at clients."""
        if not party.members or self.messages.gradient is None:
            return None
        hidden = self.manifest.senders_hidden
        signed = copies_at(self.messages, self.receiver, self.deliveries, party.members, anonymous=hidden)
        if self.anonymous is None:
            return signed
        unsigned = copies_at(self.anonymous, self.anonymous_receiver, None, party.members, anonymous=True)
        return signed.with_more(unsigned)

    def _uploads(self, party: Party) -> Messages:
        keep = self._received(party)
        if self._sealed(party):
            keep = [np.zeros_like(mask) for mask in keep]
        elif party.members and self.manifest.senders_hidden:
            keep = [np.isin(sender, party.members) for sender in self.messages.sender]
        messages = self.messages if all(mask.all() for mask in keep) else self.messages.rows(keep)
        if self.deliveries is not None and not party.everything and not party.adds_up:
            messages = weighted(messages, self._along(keep), self.deliveries, party.identifier)
        if self.repeated_for_receivers or len(party.members) > 1:
            messages = once(messages)
        if party.adds_up and not self.manifest.senders_hidden and messages.gradient is not None:
            copies = self._copies(party)
            own = messages.rows([np.isin(sender, party.members) for sender in messages.sender])
            return messages if copies is None else with_own(averaged(copies.signed()), own)
        return messages

    def _along(self, keep: list[np.ndarray]) -> list[np.ndarray]:
        """Which of the kept rows go along the graph."""
        return [chunk[mask] == UNTOLD for chunk, mask in zip(self.receiver, keep, strict=True)]

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
        columns = zip(self.receiver, self.messages.sender, self.messages.round, strict=True)
        keep = []
        for receiver, sender, round_ in columns:
            mask = np.isin(receiver, party.parties) | np.isin(sender, party.parties)
            if self.deliveries is not None:
                along = np.flatnonzero(receiver == UNTOLD)
                for member in party.parties:
                    multiple = self.deliveries.weights(member, sender[along], round_[along])
                    mask[along[multiple != 0]] = True
            keep.append(mask)
        return keep


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
