"""What one adversary sees of a recording, laid out so that all clients are solved together.

Of ``victims``, attacks import this, the manifest, errors and seeds, nothing else. A view holds the public
manifest, what was broadcast, and the uploads that the adversary receives: no ratings, no victim, no other
party's rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Int

from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.transcript.adversaries import members_of
from victims.transcript.batches import Layout, Uploads, UserBatch, gathered, layout_of
from victims.transcript.kinds import ATTRIBUTE, ITEM, KINDS
from victims.transcript.manifest import Manifest
from victims.transcript.messages import UNTOLD, Broadcast, Messages, Sums, rows_of
from victims.transcript.received import Copies, Links, Told, Traffic

__all__ = [
    "ATTRIBUTE",
    "BATCH_BYTES",
    "ITEM",
    "KINDS",
    "UNTOLD",
    "Broadcast",
    "Copies",
    "Layout",
    "Links",
    "Messages",
    "Sums",
    "Told",
    "Traffic",
    "Uploads",
    "UserBatch",
    "View",
    "rows_of",
]


BATCH_BYTES = 12 << 20  # gradients of one batch and round: few calls, yet near the processor


@dataclass(frozen=True)
class View:
    """What one adversary sees.

    Rows come in any order, and no answer depends on it: ``batches``, ``batch`` and ``shuffled`` show each
    client's rows of a round by kind and index. Whoever reads ``messages`` itself must not mind the order.

    Attributes
    ----------
    adversary : str
    manifest : Manifest
    broadcasts : mapping of round to Broadcast
        Empty where the factors are encrypted and the adversary has no key.
    messages : Messages
        Weights are changes of what was broadcast, and rows that carry nothing are left out
        (``victims.transcript.changes``).
    sums : mapping of round to Sums
        Rounds whose decrypted sums the adversary sees; no uploads are among them.
    item_server : mapping of round to Sums
        What the item server sends the server about each item, where the adversary is one of them or reads
        the wire.
    anonymous_rows : int
        Uploads that the adversary receives without their sender; they are not among ``messages``.
    unplaced_rows : int
        Uploads that it receives about factors that others alone hold; they are not among ``messages``.
    copies : Copies, or None
        Where clients are the adversary: rows of others as they arrive, one for each that receives it. Those
        with a sender are among ``messages``, too: for ``neighbour:N`` and ``neighbours:N,M`` there as their
        senders had them before the weights, of several copies their best average.
    links : Links, or None
        Edges of the graph that the adversary knows.
    told : mapping of kind to Told
        Rows of kinds of role other that it receives.
    traffic : Traffic, or None
        Where it sees that rows are sent, and not what they are.
    holdings : mapping of client to mapping of round to Broadcast
        What each member of the adversary alone knows; ``broadcasts`` has the first one's in it.
    sums_of_members : mapping of client to mapping of round to Sums
        Where clients are the adversary: the sums that each sees; ``sums`` has the first one's of each item.
    implicit : View, or None
        The same party's view of the rows about a second table of item factors, that of implicit feedback,
        as if they were a recording of their own.
    """

    adversary: str
    manifest: Manifest
    broadcasts: Mapping[int, Broadcast]
    messages: Messages
    sums: Mapping[int, Sums] = field(default_factory=dict)
    item_server: Mapping[int, Sums] = field(default_factory=dict)
    anonymous_rows: int = 0
    unplaced_rows: int = 0
    copies: Copies | None = None
    links: Links | None = None
    told: Mapping[str, Told] = field(default_factory=dict)
    traffic: Traffic | None = None
    holdings: Mapping[int, Mapping[int, Broadcast]] = field(default_factory=dict)
    sums_of_members: Mapping[int, Mapping[int, Sums]] = field(default_factory=dict)
    implicit: View | None = None

    def __repr__(self) -> str:
        """One line: who sees how much."""
        return (
            f"View({self.adversary!r}, rounds={len(self.broadcasts)}, uploaded rows={self.messages.n_rows}, "
            f"rounds with sums={len(self.sums)})"
        )

    @property
    def members(self) -> tuple[int, ...]:
        """Clients who are the adversary, ascending."""
        return members_of(self.adversary)

    @property
    def layout(self) -> Layout:
        """Where each client's rows lie."""
        return layout_of(self.messages)

    @property
    def users(self) -> Int[np.ndarray, " users"]:
        """Clients with at least one row, ascending."""
        return self.layout.users

    @property
    def rounds(self) -> Int[np.ndarray, " rounds"]:
        """Rounds with at least one row, ascending."""
        return self.layout.rounds

    def select(self, users: np.ndarray) -> View:
        """The same view restricted to some clients (rows are copied)."""
        keep = [
            np.flatnonzero(np.isin(sender, users)) + start
            for sender, start in zip(self.messages.sender, self.messages.offsets, strict=False)
        ]
        copies = self.copies
        if copies is not None:
            copies = copies.where(np.isin(copies.sender, [*users, UNTOLD]))
        implicit = None if self.implicit is None else self.implicit.select(users)
        messages = rows_of(self.messages, np.concatenate(keep))
        return replace(self, messages=messages, copies=copies, implicit=implicit)

    def declared(self, **changes: Any) -> View:
        """The same view as if some fields of its manifest said something else (messages are shared)."""
        return replace(self, manifest=self.manifest.model_copy(update=changes))

    def during(self, rounds: Sequence[int] | np.ndarray) -> View:
        """The same view restricted to some rounds (rows are copied).

        Raises
        ------
        InputError
            If a round is not in the view.
        """
        wanted = np.unique(np.asarray(rounds))
        recorded = np.union1d(self.rounds, list(self.broadcasts)).astype(int)
        missing = np.setdiff1d(wanted, recorded)
        if missing.size:
            raise InputError(
                f"round {missing[0]} is not in the view, which holds {', '.join(map(str, recorded))}"
            )
        keep = [
            np.flatnonzero(np.isin(round_, wanted)) + start
            for round_, start in zip(self.messages.round, self.messages.offsets, strict=False)
        ]
        chosen = wanted.tolist()
        return replace(
            self,
            manifest=self.manifest.model_copy(update={"rounds": chosen}),
            broadcasts={round_: self.broadcasts[round_] for round_ in chosen if round_ in self.broadcasts},
            messages=rows_of(self.messages, np.concatenate(keep)),
            sums={round_: self.sums[round_] for round_ in chosen if round_ in self.sums},
            item_server={round_: self.item_server[round_] for round_ in chosen if round_ in self.item_server},
            copies=None if self.copies is None else self.copies.where(np.isin(self.copies.round, wanted)),
            holdings={
                member: {round_: held[round_] for round_ in chosen if round_ in held}
                for member, held in self.holdings.items()
            },
            sums_of_members={
                member: {round_: own[round_] for round_ in chosen if round_ in own}
                for member, own in self.sums_of_members.items()
            },
            implicit=None if self.implicit is None else self.implicit.during(chosen),
        )

    def shuffled(self, seed: int) -> View | None:
        """The null: gradients, and sums, are dealt out anew among the rows of their round and kind.

        Lists of items and attributes, sizes of gradients and the broadcast stay as they are; the
        tie between a row and its client, item and rating is cut. Rows come back in the order of
        ``Messages.in_order``. None where the view has neither.
        """
        messages = self.messages
        if messages.gradient is None and not self.sums:
            return None
        rng = generator(seed, Purpose.SHUFFLED_VIEW)
        sums = {round_: _dealt(seen, rng) for round_, seen in self.sums.items()}
        implicit = None if self.implicit is None else self.implicit.shuffled(seed)
        if messages.gradient is None:
            return replace(self, sums=sums, implicit=implicit)
        copies = None
        if self.copies is not None:
            copies = self.copies.dealt(generator(seed, Purpose.SHUFFLED_VIEW, 1))
        whole = rows_of(messages, messages.in_order())
        rounds, kinds = whole.round[0], whole.kind[0]
        deal = np.lexsort((rng.random(rounds.size), kinds, rounds))
        in_kind_order = np.lexsort((kinds, rounds))
        source = np.empty_like(deal)
        source[in_kind_order] = deal
        assert whole.gradient is not None
        dealt = replace(whole, gradient=(whole.gradient[0][source],))
        return replace(self, messages=dealt, sums=sums, copies=copies, implicit=implicit)

    def batches(self, max_bytes: int = BATCH_BYTES) -> Iterator[UserBatch]:
        """Clients in batches of similar length, each with its uploads of all rounds.

        The gradients of a batch and round take about ``max_bytes``. Batches are views of the
        memory-mapped file where clients with equal lists lie one after the other. There is none where
        uploads or factors are encrypted and the adversary has no key.
        """
        if self.messages.gradient is None or not self.broadcasts:
            return
        for start, stop in self.layout.slices(self.manifest.factors, max_bytes):
            yield self.batch(self.layout.order[start:stop])

    def batch(self, members: np.ndarray) -> UserBatch:
        """The uploads of the clients ``users[members]``."""
        layout = self.layout
        uploads = tuple(
            gathered(self.messages, layout, self.broadcasts[round_], row, members, self.manifest.rule)
            for row, round_ in enumerate(layout.rounds.tolist())
        )
        return UserBatch(layout.users[members], uploads)


def _dealt(sums: Sums, rng: np.random.Generator) -> Sums:
    """Values of sums dealt out among those of the same kind."""
    order = np.lexsort((sums.index, sums.kind))
    deal = np.lexsort((rng.random(sums.kind.size), sums.kind[order]))
    values = np.empty_like(sums.values)
    values[order] = sums.values[order][deal]
    if sums.error is None:
        return replace(sums, values=values)
    error = np.empty_like(sums.error)
    error[order] = sums.error[order][deal]
    return replace(sums, values=values, error=error)
