"""What a recorder was given so far, as far as later calls must agree with it.

Memory stays bounded: a byte, or four, are kept for each client of each round, and items for the latest
clients only; what is forgotten is looked up in the files when they are complete.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from victims.common.errors import InputError
from victims.transcript.kinds import ATTRIBUTE, IMPLICIT_NAME, ITEM, RECORDED
from victims.transcript.received import overlapping
from victims.transcript.sort_keys import equal_to_the_next, order_of, repeated

KEPT = 1 << 18  # numbers at once


class Latest:
    """Whole numbers of a key, ``KEPT`` of them of the latest keys; those of others are forgotten."""

    def __init__(self) -> None:
        self.forgot = False
        self._total = 0
        self._numbers: OrderedDict[Hashable, np.ndarray | set[int]] = OrderedDict()

    def again(self, key: Hashable, numbers: Int[np.ndarray, " numbers"]) -> int | None:
        """One of the numbers that repeats another, or one that the key has; None where there is none."""
        if not (numbers[1:] > numbers[:-1]).all():
            ascending = np.sort(numbers)
            same = np.flatnonzero(ascending[1:] == ascending[:-1])
            if same.size:
                return int(ascending[same[0]])
        before = self._set_of(key)
        return min(before.intersection(numbers.tolist()), default=None) if before else None

    def add(self, key: Hashable, numbers: Int[np.ndarray, " numbers"], earlier: bool) -> None:
        """Note numbers of a key."""
        before = self._set_of(key)
        if before is None:
            self.forgot |= earlier
            self._numbers[key] = numbers.copy()  # the program may fill its array anew
            self._total += len(numbers)
        else:
            self._total -= len(before)
            before.update(numbers.tolist())
            self._total += len(before)
            self._numbers.move_to_end(key)
        while self._total > KEPT:
            _, oldest = self._numbers.popitem(last=False)
            self._total -= len(oldest)

    def _set_of(self, key: Hashable) -> set[int] | None:
        """What a key has; most keys come once, and those need no set."""
        numbers = self._numbers.get(key)
        if isinstance(numbers, np.ndarray):
            numbers = self._numbers[key] = set(numbers.tolist())
        return numbers


EACH = 1 << 32  # numbers that stand for the indices of a kind


class Nobody:
    """A receiver that is no client."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


class Ledger:
    """Clients by number, sizes, what was broadcast, who sent how many rows.

    A method that begins with ``check`` changes nothing, so that a call that is refused leaves no trace.
    """

    def __init__(self, n_items: int | None = None) -> None:
        self.clients: dict[Hashable, int] = {}
        self.rounds: set[int] = set()
        self.n_items, self.n_attributes = n_items or 0, 0
        self.implicit = self.again = False
        self.names = list(RECORDED)  # of kinds, by their codes
        self.items, self.rated = Latest(), Latest()
        self._fixed_items = n_items
        self._known: dict[tuple[int, int], int] = {}
        self._holders: dict[tuple[int, int], bytearray] = {}
        self._sent: dict[int, array[int]] = {}
        self._passed_on: dict[int, bytearray] = {}
        self._truth: dict[int, bytearray] = {ITEM: bytearray(), ATTRIBUTE: bytearray()}

    def number(self, client: Hashable) -> int:
        """Number of a client; a new one gets the next."""
        return self.clients.setdefault(client, len(self.clients))

    def name(self, number: int) -> Hashable:
        """The client of a number."""
        return next(name for name, other in self.clients.items() if other == number)

    def provisional(self, what: str, client: Hashable) -> int:
        """Number that a client has or would get; nobody is numbered."""
        try:
            number = self.clients.get(client)
        except TypeError:
            raise InputError(f"{what} must be hashable, got {client!r:.80}; use a number or text") from None
        if number is None and (client is None or isinstance(client, Nobody) or _is_nan(client)):
            raise InputError(f"{what} must name a client, got {client!r:.80}; use a number or text")
        return len(self.clients) if number is None else number

    def check_size(self, code: int, size: int) -> None:
        """No index beyond what is declared."""
        if code != ATTRIBUTE and self._fixed_items is not None and size > self._fixed_items:
            raise InputError(f"items must be below n_items = {self._fixed_items}, got {size - 1}")

    def check_first_broadcast(self, round_: int, code: int, to: Hashable | None, holder: int) -> None:
        """Factors of a kind are broadcast once in a round, and once to each client who alone holds some."""
        if _at(self._holders.get((round_, code)), max(holder, -1) + 1):
            client = "" if to is None else f" to client {to!r:.40}"
            raise InputError(
                f"broadcast must be called once for the {self.names[code]} factors of a round{client}, got "
                f"round {round_} again; give all rows at once, or count rounds finer"
            )

    def held(self, round_: int, code: int, name: str, holder: int | None) -> None:
        """Note rows that no attack reads; of those that were broadcast, to a client or everybody."""
        if code == len(self.names):
            self.names.append(name)
        if holder is not None:
            _mark(self._holders.setdefault((round_, code), bytearray()), max(holder, -1) + 1)
        self.rounds.add(round_)

    def broadcast(self, round_: int, code: int, holder: int, size: int) -> None:
        """Note that factors were sent to a client, or everybody."""
        _mark(self._holders.setdefault((round_, code), bytearray()), max(holder, -1) + 1)
        self._known[round_, code] = max(size, self._known.get((round_, code), 0))
        self._count(code, size)
        self.rounds.add(round_)

    def holds_own(self, round_: int, code: int, client: int) -> bool:
        """Whether a client got factors of its own."""
        return client >= 0 and bool(_at(self._holders.get((round_, code)), client + 1))

    def check_known(self, round_: int, code: int, size: int) -> None:
        """A row about something must find its factor."""
        known = self._known.get((round_, code), 0)
        if size > known:
            raise InputError(
                f"upload must be about {self.names[code]}s whose factors were broadcast before, got "
                f"{self.names[code]} {size - 1} in round {round_}, where {known} were; call broadcast first, "
                "or give references"
            )

    def sent(self, round_: int, client: int) -> int:
        """How many rows a client sent so far in a round."""
        return _at(self._sent.get(round_), client)

    def upload(
        self,
        round_: int,
        client: int,
        code: int,
        index: Int[np.ndarray, " rows"],
        to: Hashable,
        *,
        passed_on: bool,
    ) -> None:
        """Note that a client sent rows, and whether ``edge`` tells to whom."""
        key, places = (round_, client, to), _places(index, code)
        self.again |= self.items.again(key, places) is not None
        self.items.add(key, places, self.sent(round_, client) > 0)
        self.count(round_, client, index.size, passed_on=passed_on)

    def count(self, round_: int, client: int, n_rows: int, *, passed_on: bool) -> None:
        """Note how many rows a client sent."""
        count = self._sent.setdefault(round_, array("i"))
        if client >= len(count):
            count.extend([0] * (2 * client + 64 - len(count)))
        count[client] += n_rows
        if passed_on and n_rows:
            _mark(self._passed_on.setdefault(round_, bytearray()), client)

    def named(self, round_: int, code: int, size: int) -> None:
        """Note that rows of a round were about something."""
        self._count(code, size)
        self.rounds.add(round_)

    def passed_on(self) -> dict[int, Int[np.ndarray, " clients"]]:
        """Round by round the clients whose rows go where ``edge`` says."""
        flags = self._passed_on.items()
        return {round_: np.flatnonzero(np.frombuffer(marks, np.uint8)) for round_, marks in flags}

    def check_first_truth(self, client: Hashable, code: int, index: Int[np.ndarray, " rows"]) -> None:
        """Each item of a client is told once, and its attributes in one call."""
        number = self.provisional("client", client)
        if code == ATTRIBUTE and _at(self._truth[code], number):
            raise InputError(
                f"attributes must be called once for a client, got client {client!r:.40} again; give all "
                "values at once"
            )
        repeated = self.rated.again(number, index) if code == ITEM else None
        if repeated is not None:
            raise told_again(client, repeated)

    def truth(self, client: int, code: int, index: Int[np.ndarray, " rows"]) -> None:
        """Note what of a client was told."""
        if code == ITEM:
            self.rated.add(client, index, bool(_at(self._truth[code], client)))
        _mark(self._truth[code], client)
        self._count(code, int(index.max(initial=-1)) + 1)

    def _count(self, code: int, size: int) -> None:
        if code == ATTRIBUTE:
            self.n_attributes = max(self.n_attributes, size)
        else:
            self.n_items = max(self.n_items, size)
        self.implicit |= code == RECORDED.index(IMPLICIT_NAME)


def told_again(client: Hashable, item: int) -> InputError:
    """Make the error about an item that the truth of a client has twice."""
    return InputError(
        f"truth of client {client!r:.40} must name each item once, got item {item} again; give the last"
    )


def _places(index: Int[np.ndarray, " rows"], code: int) -> Int[np.ndarray, " rows"]:
    """A number for each index of a kind; of items, of which most rows are, the index itself."""
    return index if code == ITEM else index + np.int64(code * EACH)


def _is_nan(client: Hashable) -> bool:
    """Whether it is not itself, also inside a tuple: each would be a new client."""
    if isinstance(client, tuple | frozenset):
        return any(map(_is_nan, client))
    try:
        return bool(client != client)  # noqa: PLR0124
    except (TypeError, ValueError):  # neither equal nor unequal, as a missing value of pandas
        return True


def _at(flags: bytearray | array[int] | None, place: int) -> int:
    return flags[place] if flags is not None and place < len(flags) else 0


def _mark(flags: bytearray, place: int) -> None:
    if place >= len(flags):
        flags.extend(bytes(2 * place + 64 - len(flags)))
    flags[place] = 1


def check_files(folder: Path, ledger: Ledger) -> None:
    """Check complete files against each other where memory does not hold all calls any more."""
    if ledger.rated.forgot:
        row = _first_repeated(folder / "truth.arrow", ("user", "kind", "index"))
        if row is not None:
            raise told_again(ledger.name(row[0]), row[2])
    _check_edges(folder / "deliveries.arrow", ledger)


def _check_edges(path: Path, ledger: Ledger) -> None:
    """One edge in a round, and one for each client that sends to neighbours."""
    names = ("sender", "receiver", "first_round", "last_round")
    sender, receiver, first, last = (
        _columns(path, names) if path.exists() else [np.zeros(0, np.int32) for _ in names]
    )
    rows = overlapping(sender, receiver, first, last)
    if rows is not None:
        one, other = (ledger.name(int(column[rows[1]])) for column in (sender, receiver))
        raise InputError(
            f"edge must be called once for a sender, a receiver and a round, got {one!r:.40} to "
            f"{other!r:.40} again in round {first[rows[1]]}; end the first edge with last_round"
        )
    for round_, senders in ledger.passed_on().items():
        alone = np.setdiff1d(senders, sender[(first <= round_) & (round_ <= last)])
        if alone.size:
            raise InputError(
                f"upload to Recorder.NEIGHBOURS needs an edge, got none from client "
                f"{ledger.name(int(alone[0]))!r:.40} in round {round_}; call edge(sender, receiver), or give "
                "upload to=receiver"
            )


def rows_again(folder: Path) -> Int[np.ndarray, " rows"]:
    """Find uploads about what their sender sent the receiver a row of before: their kinds; -1 elsewhere."""
    names = ("round", "sender", "receiver", "kind", "index")
    path = folder / "messages.arrow"
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
        signed = file.read_all().column("sender").is_valid().to_numpy()
    out = np.full(signed.size, -1)
    columns = [[column] for column in _columns(path, names)]
    order = order_of(columns)
    later = order[np.flatnonzero(equal_to_the_next(columns, order)) + 1]
    out[np.flatnonzero(signed)[later]] = columns[3][0][later]
    return out


def _first_repeated(path: Path, names: Sequence[str]) -> list[int] | None:
    """The columns of the first row that repeats another."""
    columns = [[column] for column in _columns(path, names)]
    if not repeated(columns):
        return None
    order = order_of(columns)
    row = int(order[np.flatnonzero(equal_to_the_next(columns, order)) + 1].min())
    return [int(column[0][row]) for column in columns]


def _columns(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """Columns of whole numbers, kinds by their place in the dictionary, of rows that have a client."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
        batches = [file.get_batch(number).select(list(names)) for number in range(file.num_record_batches)]
        keep = [batch.filter(batch.column(names[1]).is_valid()) for batch in batches]
        return [np.concatenate([_whole(batch.column(name)) for batch in keep]) for name in names]


def _whole(column: pa.Array) -> np.ndarray:
    indices = column.indices if pa.types.is_dictionary(column.type) else column
    if indices.null_count:  # receivers of what goes along ``edge``
        indices = indices.cast(pa.int64()).fill_null(np.iinfo(np.int32).min)
    return indices.to_numpy(zero_copy_only=False)
