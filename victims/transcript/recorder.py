"""Record a program that is not ours, a few lines beside its own: transcript version 2.

    with factorleak.Recorder("run", rating_levels=[1, 2, 3, 4, 5], rule={"rule": "sgd"}) as recorder:
        recorder.broadcast(0, item_factors)
        recorder.upload(0, "anna", gradients, items=[3, 17])

What is declared is what the adversary is taken to know; what is left out, it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    kind_of,
    number_of,
    numbers_of,
    round_of,
    rows_of_numbers,
    same_length,
)
from victims.transcript.kinds import ATTRIBUTE, INT32_MAX, ITEM, with_implicit
from victims.transcript.ledger import Ledger, Nobody, check_files
from victims.transcript.manifest import CONSTANTS, PULL, SCALE, ClientRule, Manifest, Manifest2
from victims.transcript.messages import UNTOLD
from victims.transcript.writer import SERVER, TranscriptWriter

PUBLIC = (*CONSTANTS, SCALE, PULL)
KEPT_ROUNDS = 4  # whose broadcast is at hand for dense uploads of weights
OFF_GRID = 1e-6  # of a star


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
    protocol : str
        A name for readers.
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
        protocol: str = "unknown",
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
            "protocol": protocol,
            "attribute_groups": attribute_groups,
            "item_features": item_features,
            "defenses": list(defenses),
            "recorded_by": recorded_by,
        }
        self._ledger = Ledger(size_of("n_items", n_items))
        self._width = 0
        self._anonymous = self._dense = False
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
        kind : {"item", "attribute", "item-implicit"}
            The last is a second table of item factors, that of implicit feedback.
        to : hashable, optional
            A client who alone gets, or starts from, these factors; everybody without it.
        biases : (n_items,), optional
            What the program adds to the prediction of each item, in stars: biases of items, the mean of all
            ratings. Either all calls give it or none does.
        """
        with self._calling() as ledger:
            number, code = round_of("round", round_), kind_of(kind)
            rows = self._vectors("factors", factors)
            columns: dict[str, np.ndarray | int] = {"index": _count(len(rows)), "factor": rows}
            columns |= self._biases(biases, len(rows))
            holder = UNTOLD if to is None else ledger.provisional("to", to)
            ledger.check_first_broadcast(number, code, to, holder)
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
            Items of the rows. Without it there is a row for every item, and those that carry nothing
            (zeros; for ``rule["upload"] = "weights"``, what was broadcast) are not stored.
        kind : {"item", "attribute", "item-implicit"}
        to : hashable
            A client who receives the rows; ``Recorder.SERVER``; ``Recorder.NEIGHBOURS``, those of ``edge``.
        references : (n_rows, K), optional
            The factors that the rows were computed at, where these are not what was broadcast. Either all
            calls give it or none does.
        """
        with self._calling() as ledger:
            number, code = round_of("round", round_), kind_of(kind)
            sender = UNTOLD if client is None else ledger.provisional("client", client)
            receiver = self._receiver(to, client)
            columns = self._columns(rows, items, references)
            if items is None:
                keep = self._telling(number, code, sender, columns["gradient"], columns.get("reference"))
                columns = {name: column[keep] for name, column in columns.items()}
            index = columns["index"]
            size = int(index.max(initial=-1)) + 1
            ledger.check_size(code, size)
            if references is None:
                ledger.check_known(number, code, size)
            if client is not None:
                ledger.check_first_upload(number, client, code, index, to)
                columns["sequence"] += np.int32(ledger.sent(number, sender))
                ledger.number(client)
                ledger.upload(number, sender, code, index, to, passed_on=to is self.NEIGHBOURS)
            ledger.named(number, code, size)
            if receiver >= 0:
                receiver = ledger.number(to)  # the client may have been numbered just now
            self._width = columns["gradient"].shape[1]
            self._anonymous |= client is None
            self._dense |= items is None
            self._with_references = references is not None
            same = {"round": number, "sender": sender, "receiver": receiver, "kind": code}
            self._writer.table("messages").add(index.size, {**same, **columns})

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
            columns["reference"] = self._vectors("references", references, vectors.shape[1])
        same_length(rows=vectors, items=index, references=columns.get("reference"))
        remedy = "what was broadcast where nothing else is known"
        _check_same("references", "upload", references, self._with_references, remedy)
        return columns

    def _vectors(self, name: str, values: Numbers, width: int = 0) -> Float[np.ndarray, "rows factors"]:
        array = array_of(name, values)
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
        if ledger.implicit:
            declared["kinds"] = with_implicit(sums=False)
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
        names = {str(number): repr(client) for client, number in ledger.clients.items()}
        write_text(writer.folder / "clients.json", json.dumps(names, indent=1) + "\n", PRIVATE)
        writer.appear(self._manifest(begun=True))


def _count(size: int) -> Int[np.ndarray, " rows"]:
    return np.arange(size, dtype=np.int32)


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
