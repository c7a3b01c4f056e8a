"""Whom the clients' rows go to: a star around a server, or a graph of clients; all else is the same.

A victim says which it is (``Victim.network``). Whatever records or trains asks the network for what depends
on it: which receivers a row has, what arrives there, which encryptions make sense. Rows are formed and
stored once. What rows are about, and their sums over senders, is their ``Shape``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.protocols.exchanged import Cipher, Received, Rows, Total, summed_by
from victims.transcript.kinds import ATTRIBUTE, IMPLICIT, IMPLICIT_SUM, ITEM, KINDS

SERVER = -1
ITEM_SUM, ATTRIBUTE_SUM = KINDS.index("item-sum"), KINDS.index("attribute-sum")
Protect = Callable[[Rows, int], Rows]  # rows on their way and a seed -> rows as they leave


class Shape(NamedTuple):
    """What rows are about: n_items, n_attributes, how many numbers a row has, and items of a second table."""

    n_items: int
    n_attributes: int
    factors: int
    n_implicit: int = 0

    @property
    def groups(self) -> int:
        """Sums that there can be."""
        return self.n_items + self.n_attributes + self.n_implicit

    def group_of(self, rows: Rows) -> Int[np.ndarray, " rows"]:
        """Place of each row's sum: items first, then attributes, then items of the second table."""
        before = np.zeros(max(ITEM, ATTRIBUTE, IMPLICIT) + 1, np.int64)
        before[[ATTRIBUTE, IMPLICIT]] = self.n_items, self.n_items + self.n_attributes
        return before[rows.kind] + rows.index

    def about(self, group: Int[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray]:
        """Kind and index of some sums."""
        ends = np.cumsum([self.n_items, self.n_attributes])
        part = np.searchsorted(ends, group, side="right")
        kind = np.array([ITEM_SUM, ATTRIBUTE_SUM, IMPLICIT_SUM])[part]
        return kind, group - np.array([0, *ends])[part]

    def summed(self, rows: Iterable[Rows], cipher: Cipher | None) -> tuple[np.ndarray, np.ndarray]:
        """Sums over the senders, and which of them are released: those of enough senders."""
        plain = PlainTotal(np.zeros((self.groups, self.factors)))
        total: Total = plain if cipher is None else cipher.total(self.groups, self.factors)
        contributors = np.zeros(self.groups, np.int64)
        for some in rows:
            group = self.group_of(some)
            total.add(group, some.gradient)
            contributors += np.bincount(group, minlength=self.groups)
        released = contributors >= max(1 if cipher is None else cipher.rules.min_contributors, 1)
        return total.opened(released), released


class Sums(NamedTuple):
    """Sums of what is sent in a round, as one party sees them, in the order of ``Shape.group_of``."""

    values: Float[np.ndarray, "rows factors"]  # zero where not released
    released: Bool[np.ndarray, " rows"]  # formed, and shown
    shape: Shape  # what each is about
    receiver: int  # who sees them
    sender: Int[np.ndarray, " rows"]  # who sends them back to it; itself where it adds up by itself


class PlainTotal(NamedTuple):
    """Sums of numbers in the clear; ``add`` changes ``values`` in place."""

    values: Float[np.ndarray, "groups factors"]

    def add(self, group: Int[np.ndarray, " rows"], values: Float[np.ndarray, "rows factors"]) -> None:
        """Add each row to the sum of its group."""
        self.values[:] += summed_by(group, values, len(self.values))

    def opened(self, wanted: Bool[np.ndarray, " groups"]) -> Float[np.ndarray, "groups factors"]:
        """The sums."""
        return self.values


class Edges(NamedTuple):
    """Who receives whose rows, and times what; (n_edges,) each."""

    sender: Int[np.ndarray, " edges"]
    receiver: Int[np.ndarray, " edges"]
    weight: Float[np.ndarray, " edges"]


class Envelope(NamedTuple):
    """Rows and their receiver; None where the network's edges say who receives them."""

    receiver: int | None
    rows: Rows


@dataclass(frozen=True)
class Star:
    """Every client's rows go to the server, which forms their sums, or has them decrypted."""

    shape: Shape

    @property
    def edges(self) -> Edges | None:
        """There is one receiver."""
        return None

    def check(self, name: str, cipher: Cipher | None) -> None:
        """A server adds up rows under a key, which clients open, or under masks, which cancel."""

    def sent(
        self, rows: Rows, each: Protect | None, watched: Int[np.ndarray, " clients"], seed: int
    ) -> Iterator[Envelope]:
        """To the server: a row is one message."""
        yield Envelope(SERVER, rows if each is None else each(rows, seed))

    def sums(
        self,
        rows: Callable[[], Iterable[Rows]],
        each: Protect | None,
        cipher: Cipher,
        watched: Int[np.ndarray, " clients"],
        seed: int,
    ) -> list[Sums]:
        """The sums that the decrypters send back to the server."""
        return [self._sums(rows, each, cipher, seed)]

    def arrived(
        self,
        rows: Callable[[], Iterable[Rows]],
        each: Protect | None,
        cipher: Cipher | None,
        sums: Sequence[Sums],
        seed: int,
    ) -> Received:
        """Sums over clients, as the server steps with them."""
        values = (sums[0] if sums else self._sums(rows, each, cipher, seed)).values
        return Received(values[: self.shape.n_items], values[self.shape.n_items :])

    def _sums(
        self, rows: Callable[[], Iterable[Rows]], each: Protect | None, cipher: Cipher | None, seed: int
    ) -> Sums:
        protected = (some if each is None else each(some, seed) for some in rows())
        values, released = self.shape.summed(protected, cipher)
        decrypters = np.array([SERVER])  # masks cancel where rows are added up
        if cipher is not None and cipher.rules.decrypters.size:
            decrypters = cipher.rules.decrypters
        sender = decrypters[np.arange(self.shape.groups) % decrypters.size]
        return Sums(values, released, self.shape, SERVER, sender)


@dataclass(frozen=True, eq=False)
class Graph:
    """A client's rows go to its neighbours, each times the weight of its edge."""

    shape: Shape
    links: Edges  # by receiver, then sender

    @property
    def edges(self) -> Edges | None:
        """The graph."""
        return self.links

    def check(self, name: str, cipher: Cipher | None) -> None:
        """Nobody adds up what all clients send."""
        if cipher is not None and cipher.rules.decrypters.size:
            raise InputError(
                f"{name} needs a server that adds up encrypted rows, and here neighbours receive them; use "
                "secure-sum"
            )

    def arriving(self, rows: Rows, receiver: int) -> Rows:
        """The rows that somebody receives, times their weights."""
        here = slice(*np.searchsorted(self.links.receiver, [receiver, receiver + 1]))
        senders, weights = self.links.sender[here], self.links.weight[here]
        if senders.size == 0:
            return taken(rows, np.zeros(0, np.int64))
        at = np.minimum(np.searchsorted(senders, rows.sender), senders.size - 1)
        found = np.flatnonzero(senders[at] == rows.sender)
        some = taken(rows, found)
        return replace(some, gradient=some.gradient * weights[at[found], None])

    def sent(
        self, rows: Rows, each: Protect | None, watched: Int[np.ndarray, " clients"], seed: int
    ) -> Iterator[Envelope]:
        """Once for all neighbours; a copy for each watched one where every message is changed anew."""
        if each is None:
            yield Envelope(None, rows)
            return
        for receiver in watched.tolist():
            copy = self._copy(rows, each, receiver, seed)
            if copy.sender.size:
                yield Envelope(receiver, copy)

    def sums(
        self,
        rows: Callable[[], Iterable[Rows]],
        each: Protect | None,
        cipher: Cipher,
        watched: Int[np.ndarray, " clients"],
        seed: int,
    ) -> list[Sums]:
        """The sum over its neighbours that each watched client sees of an item."""
        together, out = joined_rows(list(rows())), []
        for receiver in watched.tolist():
            values, released = self.shape.summed([self._copy(together, each, receiver, seed)], cipher)
            sender = np.full(self.shape.groups, receiver)
            out.append(Sums(values, released, self.shape, receiver, sender))
        return out

    def arrived(
        self,
        rows: Callable[[], Iterable[Rows]],
        each: Protect | None,
        cipher: Cipher | None,
        sums: Sequence[Sums],
        seed: int,
    ) -> Received:
        """The rows, which the victim delivers along its own graph, and what each message was made of them."""
        nothing, together = np.zeros((0, self.shape.factors)), joined_rows(list(rows()))
        copies = None if each is None else partial(self._copy, together, each, seed=seed)
        return Received(nothing, nothing, rows=together, copies=copies)

    def _copy(self, rows: Rows, each: Protect | None, receiver: int, seed: int) -> Rows:
        copy = self.arriving(rows, receiver)
        return copy if each is None else each(copy, seed_of_message(seed, receiver))


Network = Star | Graph  # whom rows go to, and what depends on it


def seed_of_message(seed: int, receiver: int) -> int:
    """Derive the seed of what defenses do to the messages to one receiver."""
    return int(generator(seed, Purpose.MESSAGES_TO, receiver).integers(2**62))


def taken(rows: Rows, at: Int[np.ndarray, " some"]) -> Rows:
    """Take some of the rows, in the order given."""
    given = {name: column[at] for name, column in vars(rows).items() if column is not None}
    return replace(rows, **given)


def joined_rows(pieces: Sequence[Rows]) -> Rows:
    """Join the rows of several pieces."""
    given = [name for name, column in vars(pieces[0]).items() if column is not None]
    columns = {name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in given}
    return replace(pieces[0], **columns)
