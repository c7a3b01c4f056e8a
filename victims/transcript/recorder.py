"""Record a program that is not ours, a few lines beside its own: transcript version 2.

    with factorleak.Recorder("run", rating_levels=[1, 2, 3, 4, 5], rule={"rule": "sgd"}) as recorder:
        recorder.broadcast(0, item_factors)
        recorder.upload(0, "anna", gradients, items=[3, 17])

What is declared is what the adversary is taken to know; what is left out, it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np
from jaxtyping import Float, Int
from pydantic import ValidationError

from victims.common.declarations import closest, first_complaint
from victims.common.errors import InputError
from victims.common.files import PRIVATE, write_text
from victims.transcript.beside import clients_path, truth_path
from victims.transcript.given_columns import (
    Numbers,
    array_of,
    items_of,
    kind_name,
    number_of,
    numbers_of,
    round_of,
    rows_of_numbers,
    same_length,
)
from victims.transcript.kinds import (
    ATTRIBUTE,
    IMPLICIT_NAME,
    INT32_MAX,
    ITEM,
    OF_FACTORS,
    RECORDED,
    STANDARD,
    TABLE_ROWS,
    Kind,
    again,
    named_kind,
    with_implicit,
)
from victims.transcript.ledger import Ledger, Nobody, check_files, rows_again
from victims.transcript.manifest import CONSTANTS, PULL, SCALE, ClientRule, Manifest, Manifest2
from victims.transcript.messages import UNTOLD
from victims.transcript.writer import SERVER, TranscriptWriter

PUBLIC = (*CONSTANTS, SCALE, PULL)
KEPT_ROUNDS = 4  # whose broadcast is at hand for dense uploads of weights
OFF_GRID = 1e-6  # of a star
STEP = 1e-5  # of a difference, about the third root of a rounding error
MOST_KINDS = 90  # that no attack reads; a manifest has 100 kinds at most


class Recorder:
    """Writes what a program sends as a transcript of version 2; use it as a context manager.

    The transcript appears under its name when the context ends without an error; an error or Ctrl-C
    removes what is unfinished. Sizes, rounds and types of numbers are found out at the end, memory stays
    bounded. Several threads may call it, and each call is whole before the next one. Clients may have any
    hashable name; they are numbered in the order in which they appear, and ``NAME.clients.json`` beside the
    transcript, as private as the truth, tells who is who.

    Parameters
    ----------
    path : Path or str
        Directory to create; it must not exist.
    rating_levels : array_like
        Stars that exist, ascending, > 0.
    weighting : {"observed-only", "include-unrated"}
    rule : mapping
        Keys of ``victims.transcript.manifest.ClientRule``: how clients turn ratings into uploads, as far
        as it is public.
    constants : mapping
        Public numbers (``client_learning_rate``, ``lambda_factors``, ``upload_scale``, ...).
    n_items : int, optional
        Otherwise as many as are broadcast or named.
    name : str
        What the system is called, for readers: "our recommender 2.3".
    protocol : str
        The name of a protocol, where it has one and ``name`` is not given.
    kinds : mapping of name to mapping
        ``of`` ("item", "attribute", "client", "model") and ``width`` of rows that no attack reads, where the
        first call does not tell: without it a name that begins with item, attribute or client is of these,
        any other of the model that clients share.
    attribute_groups, item_features, defenses, recorded_by
        As in the manifest.

    Raises
    ------
    InputError
        Naming what was given, the rule and the value; also by the methods.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Recorder(f"{folder.name}/run", rating_levels=range(1, 6)) as recorder:
    ...     recorder.broadcast(0, [[1.0, 0.0], [0.5, 2.0], [1.0, 1.0]])
    ...     recorder.upload(0, "anna", [[0.5, 0.1]], items=[2])
    >>> from victims.transcript.reader import open_transcript
    >>> open_transcript(f"{folder.name}/run").manifest.n_items
    3
    >>> folder.cleanup()
    """

    SERVER: Final = Nobody("Recorder.SERVER")
    NEIGHBOURS: Final = Nobody("Recorder.NEIGHBOURS")

    def __init__(
        self,
        path: Path | str,
        *,
        rating_levels: Numbers,
        weighting: str = "observed-only",
        rule: Mapping[str, Any] | None = None,
        constants: Mapping[str, Any] | None = None,
        n_items: int | None = None,
        name: str = "",
        protocol: str = "unknown",
        kinds: Mapping[str, Mapping[str, Any]] | None = None,
        attribute_groups: Sequence[Sequence[int]] = (),
        item_features: Sequence[Sequence[int]] | None = None,
        defenses: Sequence[Mapping[str, Any]] = (),
        recorded_by: str = "factorleak.Recorder",
    ) -> None:
        self.path = Path(path)
        self._call = Lock()  # a call is noted whole before the next one
        self._stage = "not begun"
        beside = {"clients.json": clients_path(self.path), "truth.arrow": truth_path(self.path)}
        self._writer = TranscriptWriter(self.path, beside=beside)
        self._rule = mapping_of("rule", rule)
        self._declared: dict[str, Any] = {
            "rating_levels": rating_levels,
            "weighting": weighting,
            "constants": constants_of(constants),
            "protocol": name or protocol,
            "attribute_groups": attribute_groups,
            "item_features": item_features,
            "defenses": list(defenses),
            "recorded_by": recorded_by,
        }
        self._ledger = Ledger(size_of("n_items", n_items))
        self._width = 0
        self._kinds = {
            kind_name(one): _held_kind(one, what) for one, what in mapping_of("kinds", kinds).items()
        }
        self._held: dict[str, Kind] = {}  # kinds that no attack reads, and that have rows
        self._more: dict[str, Kind] = {}  # those that are found out at the end
        self._anonymous = self._dense = self._listed = self._empty = False
        self._shortest: dict[int, int] = {}  # table of each kind that was uploaded whole
        self._with_references: bool | None = None
        self._with_biases: bool | None = None
        self._weights = self._rule.get("upload") == "weights"
        self._broadcast: dict[int, np.ndarray] = {}
        # what is declared wrongly is told before any work
        self._levels = np.array(self._manifest(begun=False).rating_levels)

    def __enter__(self) -> Recorder:
        if self._stage != "not begun":
            raise InputError(
                f"a Recorder writes one recording, this one of {self.path} is {self._stage}; make another"
            )
        self._writer.begin()
        self._stage = "open"
        return self

    def __exit__(self, error_type: type | None, *_: object) -> None:
        with self._call, self._writer.ending():
            self._stage = "over"
            if error_type is None:
                self._finish()

    @contextmanager
    def _calling(self) -> Iterator[Ledger]:
        with self._call:
            if self._stage != "open":
                raise InputError(
                    f"a Recorder must be called inside its context, this one of {self.path} is "
                    f"{self._stage}; write with Recorder(...) as recorder: and call it there"
                )
            yield self._ledger

    @property
    def clients(self) -> dict[Hashable, int]:
        """Number of each client in the files."""
        with self._call:
            return dict(self._ledger.clients)

    def broadcast(
        self,
        round_: int,
        factors: Numbers,
        *,
        kind: str = "item",
        to: Hashable | None = None,
        biases: Numbers | None = None,
    ) -> None:
        """Record what was sent before the uploads of a round.

        Parameters
        ----------
        round_ : int
            >= 0; the numbers need not be consecutive.
        factors : (n_items, K)
            Row j is about item j (or attribute j).
        kind : str
            "item", "attribute"; "item-implicit", a second table of K item factors, that of implicit feedback;
            any other name is of rows that are held and that no attack reads: the rest of the model, a
            further table, one that clients are pulled towards, a basis, user rows.
        to : hashable, optional
            A client who alone gets, or starts from, these factors and biases; everybody without it.
        biases : (n_items,), optional
            What the program adds to the prediction of each item, in stars: biases of items, the mean of all
            ratings. Either all calls give it or none does.
        """
        with self._calling() as ledger:
            number, name = round_of("round", round_), kind_name(kind)
            held = self._held_of(name, "factors", factors)
            rows = self._vectors("factors", factors, held)
            code = self._code(name)
            holder = UNTOLD if to is None else ledger.provisional("to", to)
            ledger.check_first_broadcast(number, code, to, holder)
            if held is not None:
                _refuse_beside(name, biases=biases)
                if to is not None:
                    ledger.number(to)
                self._hold(
                    "state", name, held, rows, {"round": number, "holder": holder, "index": _count(len(rows))}
                )
                ledger.held(number, code, name, holder)
                return
            columns: dict[str, np.ndarray | int] = {"index": _count(len(rows)), "factor": rows}
            columns |= self._biases(biases, len(rows))
            ledger.check_size(code, len(rows))
            if to is not None:
                ledger.number(to)
            elif code == ITEM and self._weights:
                self._broadcast[number] = rows.copy()  # the program goes on with its own
                for old in sorted(self._broadcast)[:-KEPT_ROUNDS]:
                    del self._broadcast[old]
            ledger.broadcast(number, code, holder, len(rows))
            self._width = rows.shape[1]
            self._with_biases = biases is not None
            columns |= {"round": number, "holder": holder, "kind": code}
            self._writer.table("state").add(len(rows), columns)

    def upload(
        self,
        round_: int,
        client: Hashable | None,
        rows: Numbers,
        items: Numbers | None = None,
        *,
        kind: str = "item",
        to: Hashable = SERVER,
        references: Numbers | None = None,
        basis: Numbers | None = None,
    ) -> None:
        """Record what a client sent, in the order sent.

        Parameters
        ----------
        round_ : int
        client : hashable, or None
            None where the receiver does not see who sends.
        rows : (n_rows, K)
            Gradients, changes or weights.
        items : (n_rows,) whole numbers, optional
            Items of the rows; one may come several times. Without it there is a row for every item, and
            those that carry nothing (zeros; for ``rule["upload"] = "weights"``, what was broadcast) are not
            stored: who sent a whole table is, where that does not follow.
        kind : str
            As of ``broadcast``; rows of other names are held as they are.
        to : hashable
            A client who receives the rows; ``Recorder.SERVER``; ``Recorder.NEIGHBOURS``, those of ``edge``.
        references : (n_rows, K), optional
            The factors that the rows were computed at, where these are not what was broadcast. Either all
            calls give it or none does.
        basis : (n, K), optional
            What the rows are coefficients of, where everybody knows it: rows times basis are recorded.
        """
        if basis is not None:
            rows = _product(rows, basis)
        with self._calling() as ledger:
            number, name = round_of("round", round_), kind_name(kind)
            sender = UNTOLD if client is None else ledger.provisional("client", client)
            receiver = self._receiver(to, client)
            held, code = self._held_of(name, "rows", rows), self._code(name)
            if held is not None:
                _refuse_beside(name, references=references)
                vectors = self._vectors("rows", rows, held)
                index = _count(len(vectors)) if items is None else items_of(items)
                same_length(rows=vectors, items=index)
                sequence = _count(len(vectors))
                if client is not None:
                    sequence += np.int32(ledger.sent(number, sender))
                    ledger.number(client)
                    ledger.count(number, sender, index.size, passed_on=to is self.NEIGHBOURS)
                receiver = ledger.number(to) if receiver >= 0 else receiver
                ends: dict[str, np.ndarray | int] = {"round": number, "sender": sender, "receiver": receiver}
                self._hold("messages", name, held, vectors, {**ends, "index": index, "sequence": sequence})
                ledger.held(number, code, name, None)
                self._anonymous |= client is None
                return
            columns = self._columns(rows, items, references)
            n_sent = len(columns["index"])
            if items is None:
                keep = self._telling(number, code, sender, columns["gradient"], columns.get("reference"))
                columns = {name: column[keep] for name, column in columns.items()}
            index = columns["index"]
            size = int(index.max(initial=-1)) + 1
            ledger.check_size(code, size)
            if references is None:
                ledger.check_known(number, code, size)
            if client is not None:
                columns["sequence"] += np.int32(ledger.sent(number, sender))
                ledger.number(client)
                ledger.upload(number, sender, code, index, to, passed_on=to is self.NEIGHBOURS)
            ledger.named(number, code, size)
            if receiver >= 0:
                receiver = ledger.number(to)  # the client may have been numbered just now
            self._width = columns["gradient"].shape[1]
            self._anonymous |= client is None
            self._listed |= items is not None
            self._with_references = references is not None
            same = {"round": number, "sender": sender, "receiver": receiver, "kind": code}
            self._writer.table("messages").add(index.size, {**same, **columns})
            if items is None:
                self._whole(
                    {"round": number, "sender": sender, "receiver": receiver}, code, n_sent, index.size
                )

    def jacobian(
        self,
        round_: int,
        score: Callable[[Any, Any, Any], Any],
        user: Any,
        factors: Any,
        rest: Any = None,
        *,
        to: Hashable | None = None,
    ) -> None:
        """Record how the outputs of the program's own model change with the rows of items.

        The function is called here and is not stored; the Jacobian is, as rows of kind ``item-jacobian``.

        Parameters
        ----------
        round_ : int
        score : callable
            ``score(user, factors, rest)`` gives an output, or several, for each item, from its row alone.
        user : array
            A vector that the adversary knows: of a public user, or the start of everybody.
        factors : (n_items, K)
            NumPy arrays are differenced, those of JAX and PyTorch differentiated.
        rest
            Whatever else the function needs.
        to : hashable, optional
            A client who alone knows it.
        """
        self.broadcast(
            round_, jacobian_of(lambda q: score(user, q, rest), factors), kind="item-jacobian", to=to
        )

    def edge(
        self,
        sender: Hashable,
        receiver: Hashable,
        weight: float = 1.0,
        first_round: int = 0,
        last_round: int = INT32_MAX,
    ) -> None:
        """Say that rows sent to ``Recorder.NEIGHBOURS`` reach somebody, times a weight.

        Parameters
        ----------
        sender, receiver : hashable
            Clients.
        weight : float
        first_round, last_round : int
            Rounds in which the edge is there, both included.
        """
        with self._calling() as ledger:
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
            self._writer.table("deliveries").add(1, columns)

    def truth(self, client: Hashable, items: Numbers, ratings: Numbers) -> None:
        """Record what a client keeps private, to score against: it is written beside the transcript.

        Parameters
        ----------
        client : hashable
        items : (n_ratings,) whole numbers
        ratings : (n_ratings,)
            Of ``rating_levels``.
        """
        with self._calling() as ledger:
            ledger.provisional("client", client)
            index, value = items_of(items), numbers_of("ratings", ratings)
            same_length(items=index, ratings=value)
            away = np.abs(value[:, None] - self._levels).min(axis=1, initial=np.inf)
            if (away > OFF_GRID).any():
                row = int((away > OFF_GRID).argmax())
                raise InputError(
                    f"ratings must be of rating_levels {self._levels.tolist()!s:.80}, got {value[row]:g} of "
                    f"client {client!r:.40}; declare all levels that occur"
                )
            self._add_private(client, ITEM, index, value)

    def attributes(self, client: Hashable, values: Numbers) -> None:
        """Record a client's attributes, to score against.

        Parameters
        ----------
        client : hashable
        values : (n_attributes,)
            In 0..1.
        """
        with self._calling() as ledger:
            ledger.provisional("client", client)
            value = numbers_of("values", values)
            outside = np.flatnonzero((value < 0) | (value > 1))
            if outside.size:
                raise InputError(
                    f"values must be in 0..1, got {value[outside[0]]:g} of client {client!r:.40}; make "
                    "categories columns of 0 and 1"
                )
            self._add_private(client, ATTRIBUTE, _count(value.size), value)

    def _add_private(
        self, client: Hashable, code: int, index: Int[np.ndarray, " rows"], value: Float[np.ndarray, " rows"]
    ) -> None:
        ledger = self._ledger
        ledger.check_size(code, int(index.max(initial=-1)) + 1)
        ledger.check_first_truth(client, code, index)
        user = ledger.number(client)
        ledger.truth(user, code, index)
        columns: dict[str, np.ndarray | int] = {"user": user, "kind": code, "index": index, "value": value}
        self._writer.table("truth").add(index.size, columns)

    def _biases(self, biases: Numbers | None, n_rows: int) -> dict[str, np.ndarray]:
        _check_same("biases", "broadcast", biases, self._with_biases, "zeros where there are none")
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
            columns["reference"] = self._vectors("references", references, width=vectors.shape[1])
        same_length(rows=vectors, items=index, references=columns.get("reference"))
        remedy = "what was broadcast where nothing else is known"
        _check_same("references", "upload", references, self._with_references, remedy)
        return columns

    def _whole(self, ends: dict[str, np.ndarray | int], code: int, n_sent: int, n_stored: int) -> None:
        """Note that a whole table was sent, in a file of its own for the case that this does not follow."""
        self._dense = True
        self._empty |= n_stored == 0
        self._shortest[code] = min(n_sent, self._shortest.get(code, n_sent))
        columns = {**ends, "index": code, "sequence": UNTOLD, "value": np.full((1, 1), n_sent, np.float64)}
        self._writer.table(f"messages.{TABLE_ROWS}").add(1, columns)

    def _code(self, name: str) -> int:
        """Place of a kind among those that there are; a new one gets the next."""
        names = self._ledger.names
        return names.index(name) if name in names else len(names)

    def _held_of(self, name: str, what: str, values: Numbers) -> Kind | None:
        """What rows of a kind are, where no attack reads them."""
        if name in OF_FACTORS or name in self._held:
            return self._held.get(name)
        shape = array_of(what, values).shape
        width = shape[1] if len(shape) == 2 else 1
        if name == IMPLICIT_NAME and name not in self._kinds and self._width in (0, width):
            return None
        if name == IMPLICIT_NAME and self._ledger.implicit:
            return None
        if len(self._held) == MOST_KINDS:
            raise InputError(
                f"kind must be one of {MOST_KINDS} at most that no attack reads, got {name!r:.40} beside "
                "these; record the tables that matter"
            )
        declared = self._kinds.get(name, named_kind(name, None))
        return (
            declared if declared.width is not None else _held_kind(name, {"of": declared.of, "width": width})
        )

    def _hold(
        self,
        table: str,
        name: str,
        kind: Kind,
        vectors: Float[np.ndarray, "rows numbers"],
        columns: dict[str, np.ndarray | int],
    ) -> None:
        """Put rows of another width into a file of their own until the end."""
        self._held[name] = kind
        part = self._writer.table(f"{table}.{list(self._held).index(name)}")
        part.add(len(vectors), {**columns, "value": vectors})

    def _vectors(
        self, name: str, values: Numbers, held: Kind | None = None, width: int = 0
    ) -> Float[np.ndarray, "rows factors"]:
        array = array_of(name, values)
        if held is not None:
            assert held.width is not None
            return rows_of_numbers(name, array.reshape(-1, 1) if array.ndim == 1 else array, held.width)
        width = width or self._width
        if width == 0:
            if array.ndim != 2 or array.shape[1] == 0:
                raise InputError(f"{name} must be rows of K numbers each, got shape {array.shape}")
            width = array.shape[1]
        return rows_of_numbers(name, array, width)

    def _receiver(self, to: Hashable, client: Hashable | None) -> int:
        if to is self.SERVER:
            return SERVER
        if to is not self.NEIGHBOURS:
            return self._ledger.provisional("to", to)
        if client is None:
            raise InputError(
                "client must be named where rows go to Recorder.NEIGHBOURS, for edge goes by it, got None; "
                "give upload to=receiver"
            )
        return UNTOLD

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

    def _manifest(self, *, begun: bool) -> Manifest:
        """What is declared, and what the calls told; before them nothing is known of the sizes."""
        ledger, rule, declared = self._ledger, dict(self._rule), dict(self._declared)
        if not begun:
            declared |= {"attribute_groups": [], "item_features": None}
        elif "rows" not in rule:
            rule["rows"] = "all" if self._dense else "rated"
            declared["inferred"] = ["rows"]
        kinds = with_implicit(sums=False) if ledger.implicit else dict(STANDARD)
        declared["kinds"] = kinds | self._held | self._more
        return manifest_of(
            declared,
            rule,
            n_users=max(len(ledger.clients), 1),
            n_items=max(ledger.n_items, 1),
            n_attributes=ledger.n_attributes,
            factors=max(self._width, 1),
            rounds=sorted(ledger.rounds) or [0],
            anonymous=self._anonymous,
        )

    def _finish(self) -> None:
        writer, ledger = self._writer, self._ledger
        if writer.table("messages").n_rows == 0:
            raise InputError(f"{self.path} would hold no upload; call upload at least once")
        if writer.table("state").n_rows == 0:
            raise InputError(
                f"{self.path} would hold no broadcast; call broadcast before the uploads of a round, or give "
                "upload its references and broadcast once"
            )
        writer.close()
        check_files(writer.folder, ledger)
        self._join()
        names = {str(number): repr(client) for client, number in ledger.clients.items()}
        write_text(writer.folder / "clients.json", json.dumps(names, indent=1) + "\n", PRIVATE)
        writer.appear(self._manifest(begun=True))

    def _join(self) -> None:
        """Put rows that no attack reads behind the others; those that come again get a kind of theirs."""
        writer, ledger = self._writer, self._ledger
        items, attributes = ledger.n_items, ledger.n_attributes
        short = any(n < (attributes if code == ATTRIBUTE else items) for code, n in self._shortest.items())
        if self._dense and (self._listed or self._empty or short):
            self._more[TABLE_ROWS] = Kind(of="model", role="other", width=1)
        moved = rows_again(writer.folder) if ledger.again or ledger.items.forgot else np.zeros(0, int)
        for code in np.unique(moved[moved >= 0]).tolist():
            of = "attribute" if code == ATTRIBUTE else "item"
            self._more[again(RECORDED[code])] = Kind(of=of, role="other")  # type: ignore[arg-type]
        names = [*ledger.names, *self._more]
        parts = [f"{number}" for number in range(len(self._held))]
        places = {part: names.index(name) for part, name in zip(parts, self._held, strict=True)}
        if TABLE_ROWS in self._more:
            places[TABLE_ROWS] = names.index(TABLE_ROWS)
        for code in np.unique(moved[moved >= 0]).tolist():
            moved[moved == code] = names.index(again(RECORDED[code]))
        writer.join("state", names, places)
        writer.join("messages", names, places, moved if (moved >= 0).any() else None)


def _count(size: int) -> Int[np.ndarray, " rows"]:
    return np.arange(size, dtype=np.int32)


def _held_kind(name: str, given: Any) -> Kind:
    """Check what is declared of rows that no attack reads."""
    try:
        return Kind.model_validate(
            {"of": named_kind(name, None).of, "role": "other", **mapping_of(name, given)}
        )
    except ValidationError as error:
        wrong = first_complaint(error)
        raise InputError(f"kind {name!r}: {wrong}, got {str(wrong.got)[:80]}") from None


def _refuse_beside(kind: str, **given: Numbers | None) -> None:
    """Rows that no attack reads have nothing beside them."""
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{name} must be left out of rows of kind {kind!r}, which no attack reads")


def _product(rows: Numbers, basis: Numbers) -> np.ndarray:
    """Rows of which coefficients are given."""
    left, right = array_of("rows", rows), array_of("basis", basis)
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        raise InputError(
            f"basis must have a row for each coefficient, got {right.shape} for rows {left.shape}"
        )
    return left @ right


def jacobian_of(score: Callable[[Any], Any], factors: Any) -> np.ndarray:
    """Derivatives of each item's outputs by its own row, (n_items, n_outputs K): the K of an output together.

    Examples
    --------
    >>> jacobian_of(lambda q: q @ np.array([1.0, 2.0]), np.ones((2, 2))).round(6)
    array([[1., 2.],
           [1., 2.]])
    """
    module, n_items = type(factors).__module__.partition(".")[0], len(factors)
    if module == "torch":  # an output depends on one row, so their sum has the slopes of all
        rows = factors.detach().requires_grad_()
        outputs = score(rows).reshape(n_items, -1)
        grad = import_module("torch").autograd.grad
        slopes = [grad(one.sum(), rows, retain_graph=True)[0].cpu().numpy() for one in outputs.T]
        return np.concatenate(slopes, axis=1)
    columns = []
    for axis in np.eye(factors.shape[1]):
        along = np.broadcast_to(axis, factors.shape).astype(factors.dtype)
        if module in ("jax", "jaxlib"):
            slope = np.asarray(import_module("jax").jvp(score, (factors,), (along,))[1])
        else:
            up, down = (np.asarray(score(factors + step * along)) for step in (STEP, -STEP))
            slope = (up - down) / (2 * STEP)
        columns.append(slope.reshape(n_items, -1))
    return np.stack(columns, axis=2).reshape(n_items, -1)


def _check_same(name: str, call: str, given: Numbers | None, before: bool | None, remedy: str) -> None:
    """What may be left out is given in every call or in none."""
    now = given is not None
    if before not in (None, now):
        some, none = ("some", "none") if now else ("none", "some")
        raise InputError(
            f"{name} must be given in every {call} or in none, got {some} after {none}; give {remedy}"
        )


def manifest_of(declared: Mapping[str, Any], rule: Mapping[str, Any], **found: Any) -> Manifest:
    """Make the manifest of version 2 of what is declared and what was found out."""
    try:
        content = {"format": "factorleak-transcript", "version": 2, **declared, **found}
        content["rule"] = ClientRule.model_validate(dict(rule))
        return Manifest2.model_validate(content).as_manifest()
    except ValidationError as error:
        wrong = first_complaint(error)
        got = "" if isinstance(wrong.got, dict) else f", got {str(wrong.got)[:80]}"
        raise InputError(f"{wrong}{got}") from None


def constants_of(given: Mapping[str, Any] | None) -> dict[str, float]:
    """Check public numbers, by the names that the format knows.

    A file may have other keys, which say nothing that is used. Here one is refused: what somebody declares
    is meant to be known.
    """
    out = {}
    for key, value in mapping_of("constants", given).items():
        if key not in PUBLIC:
            meant = closest(str(key), PUBLIC)
            hint = f"did you mean {meant!r}? " if meant else ""
            raise InputError(
                f"constants must have names of the format, got {key!r:.40}; {hint}What else the clients do "
                "goes into rule"
            )
        if value is None:
            continue
        out[key] = number_of(f"{key} of constants", value)
    return out


def mapping_of(name: str, given: Any) -> dict[str, Any]:
    """Copy what was given as a mapping; None is an empty one."""
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"{name} must map names to values, got {given!r:.80}")
    return dict(given or {})


def size_of(name: str, given: Any) -> int | None:
    """Check a size >= 1, where one is given."""
    whole = isinstance(given, int | np.integer) and not isinstance(given, bool)
    if given is not None and not (whole and 1 <= given <= INT32_MAX):
        raise InputError(f"{name} must be a whole number >= 1, got {given!r:.80}; leave it out if unknown")
    return None if given is None else int(given)
