"""What a program sends, as a recorder writes it: factors, uploads, and the graph that they travel along."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.transcript.given_columns import (
    Numbers,
    array_of,
    items_of,
    kind_of,
    number_of,
    numbers_of,
    round_of,
    rows_of_numbers,
    same_length,
)
from victims.transcript.kinds import ITEM
from victims.transcript.ledger import EVERYBODY, Ledger, Nobody
from victims.transcript.recorded_files import RecordedFiles
from victims.transcript.spool import NULL

SERVER_NUMBER = -1
KEPT_ROUNDS = 4  # whose broadcast is at hand for dense uploads of weights


class Traffic:
    """State, messages and deliveries; see the methods of ``Recorder``.

    Every call is checked before anything of it is noted, so that one that is refused leaves no trace.
    """

    def __init__(
        self, files: RecordedFiles, ledger: Ledger, weights: bool, server: Nobody, neighbours: Nobody
    ) -> None:
        self.width = 0
        self.anonymous = self.dense = False
        self._files, self._ledger, self._weights = files, ledger, weights
        self._server, self._neighbours = server, neighbours
        self._references: bool | None = None
        self._biased: bool | None = None
        self._broadcast: dict[int, np.ndarray] = {}

    def broadcast(
        self, round_: int, factors: Numbers, kind: str, to: Hashable | None, biases: Numbers | None
    ) -> None:
        """Factors that everybody gets, or one client."""
        state, ledger = self._files.state, self._ledger
        number, code = round_of("round", round_), kind_of(kind)
        rows = self._vectors("factors", factors)
        columns: dict[str, np.ndarray | int] = {"index": _count(len(rows)), "factor": rows}
        columns |= self._biases(biases, len(rows))
        holder = EVERYBODY if to is None else ledger.provisional("to", to)
        ledger.refuse_second_broadcast(number, code, to, holder)
        ledger.refuse_size(code, len(rows))
        if to is not None:
            ledger.number(to)
        elif code == ITEM and self._weights:
            self._broadcast[number] = rows.copy()  # the program goes on with its own
            for old in sorted(self._broadcast)[:-KEPT_ROUNDS]:
                del self._broadcast[old]
        ledger.broadcast(number, code, holder, len(rows))
        self.width = rows.shape[1]
        self._biased = biases is not None
        columns |= {"round": number, "holder": NULL if to is None else holder, "kind": code}
        state.add(len(rows), columns)

    def upload(
        self,
        round_: int,
        client: Hashable | None,
        rows: Numbers,
        items: Numbers | None,
        kind: str,
        to: Hashable,
        references: Numbers | None,
    ) -> None:
        """Rows of a client, in the order sent."""
        messages, ledger = self._files.messages, self._ledger
        number, code = round_of("round", round_), kind_of(kind)
        sender = NULL if client is None else ledger.provisional("client", client)
        receiver = self._receiver(to, client)
        columns = self._columns(rows, items, references)
        if items is None:
            keep = self._telling(number, code, sender, columns["gradient"], columns.get("reference"))
            columns = {name: column[keep] for name, column in columns.items()}
        index = columns["index"]
        size = int(index.max(initial=-1)) + 1
        ledger.refuse_size(code, size)
        if references is None:
            ledger.refuse_unknown(number, code, size)
        if client is not None:
            ledger.refuse_second_upload(number, client, code, index, to)
            columns["sequence"] += np.int32(ledger.sent(number, sender))
            ledger.number(client)
            ledger.upload(number, sender, code, index, to, size=size, passed_on=to is self._neighbours)
        else:
            ledger.named(number, code, size)
        if receiver >= 0:
            receiver = ledger.number(to)  # the client may have been numbered just now
        self.width = columns["gradient"].shape[1]
        self.anonymous |= client is None
        self.dense |= items is None
        self._references = references is not None
        same = {"round": number, "sender": sender, "receiver": receiver, "kind": code}
        messages.add(index.size, {**same, **columns})

    def edge(
        self, sender: Hashable, receiver: Hashable, weight: float, first_round: int, last_round: int
    ) -> None:
        """Who receives what goes to neighbours."""
        deliveries, ledger = self._files.deliveries, self._ledger
        first, last = round_of("first_round", first_round), round_of("last_round", last_round)
        if first > last:
            raise InputError(f"last_round must be >= first_round = {first}, got {last}")
        value = number_of("weight", weight)
        for name, client in (("sender", sender), ("receiver", receiver)):
            ledger.provisional(name, client)
        columns: dict[str, np.ndarray | int] = {
            "sender": ledger.number(sender),
            "receiver": ledger.number(receiver),
            "weight": np.array([value]),
            "first_round": first,
            "last_round": last,
        }
        deliveries.add(1, columns)

    def _biases(self, biases: Numbers | None, n_rows: int) -> dict[str, np.ndarray]:
        given = biases is not None
        if self._biased not in (None, given):
            raise InputError(
                f"biases must be given in every broadcast or in none, got {'some' if given else 'none'} "
                f"after {'none' if given else 'some'}; give zeros where there are none"
            )
        if biases is None:
            return {}
        bias = numbers_of("biases", biases)
        same_length(factors=range(n_rows), biases=bias)
        return {"bias": bias}

    def _columns(
        self, rows: Numbers, items: Numbers | None, references: Numbers | None
    ) -> dict[str, np.ndarray]:
        vectors = self._vectors("rows", rows)
        index = _count(len(vectors)) if items is None else items_of(items)
        columns = {"index": index, "sequence": _count(len(vectors)), "gradient": vectors}
        if references is not None:
            columns["reference"] = self._vectors("references", references, vectors.shape[1])
        same_length(rows=vectors, items=index, references=columns.get("reference"))
        given = references is not None
        if self._references not in (None, given):
            raise InputError(
                f"references must be given in every upload or in none, got {'some' if given else 'none'} "
                f"after {'none' if given else 'some'}; give what was broadcast where nothing else is known"
            )
        return columns

    def _vectors(self, name: str, values: Numbers, width: int = 0) -> Float[np.ndarray, "rows factors"]:
        array = array_of(name, values)
        width = width or self.width
        if width == 0:
            if array.ndim != 2 or array.shape[1] == 0:
                raise InputError(f"{name} must be rows of K numbers each, got shape {array.shape}")
            width = array.shape[1]
        return rows_of_numbers(name, array, width)

    def _receiver(self, to: Hashable, client: Hashable | None) -> int:
        if to is self._server:
            return SERVER_NUMBER
        if to is not self._neighbours:
            return self._ledger.provisional("to", to)
        if client is None:
            raise InputError(
                "client must be named where rows go to Recorder.NEIGHBOURS, for edge goes by it, got None; "
                "give upload to=receiver"
            )
        return NULL

    def _telling(
        self, round_: int, code: int, sender: int, vectors: np.ndarray, references: np.ndarray | None
    ) -> Int[np.ndarray, " rows"] | slice:
        """Rows of a dense upload that carry something."""
        before: np.ndarray | int = 0
        if self._weights:
            own = references is None and self._ledger.holds_own(round_, code, sender)
            known = references if references is not None else self._broadcast.get(round_)
            if known is None or own or code != ITEM or len(known) < len(vectors):
                return slice(None)
            before = known[: len(vectors)].astype(vectors.dtype, copy=False)
        telling = (vectors != before).any(axis=1)
        return slice(None) if telling.all() else np.flatnonzero(telling)


def _count(size: int) -> Int[np.ndarray, " rows"]:
    return np.arange(size, dtype=np.int32)
