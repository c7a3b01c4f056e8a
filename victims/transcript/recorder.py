"""Record a program that is not ours, a few lines beside its own: transcript version 2.

    with factorleak.Recorder("run", rating_levels=[1, 2, 3, 4, 5], rule={"rule": "sgd"}) as recorder:
        recorder.broadcast(0, item_factors)
        recorder.upload(0, "anna", gradients, items=[3, 17])

What is declared is what the adversary is taken to know; what is left out, it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Float, Int
from pydantic import ValidationError

from victims.common.errors import InputError
from victims.common.files import PRIVATE, output, partial_name, unfinished, write_text
from victims.transcript.beside import truth_path
from victims.transcript.client_rule import ClientRule
from victims.transcript.given_columns import Numbers, array_of, ids_of, rows_of_numbers, same_length
from victims.transcript.kinds import ATTRIBUTE, ITEM, OF_FACTORS
from victims.transcript.manifest import INT32_MAX, Manifest
from victims.transcript.manifest_2 import Manifest2, file_of
from victims.transcript.spool import NULL, Spool

SERVER_NUMBER = -1
KEPT_ROUNDS = 4  # whose broadcast is at hand for dense uploads of weights
OFF_GRID = 1e-6  # of a star


class _Nobody:
    """A receiver that is no client."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


def clients_path(transcript: Path | str) -> Path:
    """``NAME.clients.json`` beside the transcript ``NAME``: which number stands for which client."""
    transcript = Path(transcript)
    return transcript.with_name(f"{transcript.name}.clients.json")


class Recorder:
    """Writes what a program sends as a transcript of version 2; use it as a context manager.

    The transcript appears under its name when the context ends without an error; an error or Ctrl-C
    removes what is unfinished. Sizes, rounds and types of numbers are found out at the end, memory stays
    bounded. Clients may have any hashable name; they are numbered in the order in which they appear, and
    ``NAME.clients.json`` beside the transcript, as private as the truth, tells who is who.

    Parameters
    ----------
    path : Path or str
        Directory to create; it must not exist.
    rating_levels : array_like
        Stars that exist, ascending, > 0.
    weighting : {"observed-only", "include-unrated"}
    rule : mapping
        Keys of ``victims.transcript.client_rule.ClientRule``: how clients turn ratings into uploads, as far
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

    SERVER: Final = _Nobody("Recorder.SERVER")
    NEIGHBOURS: Final = _Nobody("Recorder.NEIGHBOURS")

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
        for there in (self.path, truth_path(self.path), clients_path(self.path)):
            if there.exists():
                raise InputError(f"{there} exists; choose another name or remove it first")
        self._rule = dict(rule or {})
        self._declared: dict[str, Any] = {
            "rating_levels": rating_levels,
            "weighting": weighting,
            "constants": dict(constants or {}),
            "protocol": protocol,
            "attribute_groups": attribute_groups,
            "item_features": item_features,
            "defenses": list(defenses),
            "recorded_by": recorded_by,
        }
        self._n = {ITEM: n_items or 0, ATTRIBUTE: 0}
        self._fixed_items = n_items
        self._width = 0
        self._rounds: set[int] = set()
        self._clients: dict[Hashable, int] = {}
        self._anonymous = False
        self._dense = self._sparse = False
        self._sent: dict[tuple[int, int], int] = {}  # rows of a round and client so far
        self._items_of: dict[tuple[int, int], list[np.ndarray]] = {}  # of the newest round
        self._newest = -1
        self._broadcast: dict[int, np.ndarray] = {}
        self._partial = partial_name(self.path)
        self._open = ExitStack()
        # what is declared wrongly is told before any work
        self._levels = np.array(self._manifest(1, 1).rating_levels)

    def __enter__(self) -> Recorder:
        with output(self.path):
            self._partial.mkdir(parents=True)
        self._open.enter_context(unfinished(self._partial))
        self._state = Spool(self._partial / "state.arrow", ("holder",))
        self._messages = Spool(self._partial / "messages.arrow", ("sender", "receiver"))
        self._edges = Spool(self._partial / "deliveries.arrow")
        self._truth = Spool(self._partial / "truth.arrow")
        return self

    def __exit__(self, error_type: type | None, *_: object) -> None:
        with self._open, output(self.path):
            if error_type is not None:
                for spool in (self._state, self._messages, self._edges, self._truth):
                    with suppress(OSError):  # the first error is what counts
                        spool.abandon()
                return
            self._finish()

    @property
    def clients(self) -> dict[Hashable, int]:
        """Number of each client in the files."""
        return dict(self._clients)

    def broadcast(
        self, round_: int, factors: Numbers, *, kind: str = "item", to: Hashable | None = None
    ) -> None:
        """Record what was sent before the uploads of a round.

        Parameters
        ----------
        round_ : int
            >= 0; the numbers need not be consecutive.
        factors : (n_items, K)
            Row j is about item j (or attribute j).
        kind : {"item", "attribute"}
        to : hashable, optional
            A client who alone gets, or starts from, these factors; everybody without it.
        """
        number, code = self._round(round_), self._kind(kind)
        rows = self._vectors("factors", factors)
        self._count(code, len(rows))
        if to is None and code == ITEM:
            self._broadcast[number] = rows
            for old in sorted(self._broadcast)[:-KEPT_ROUNDS]:
                del self._broadcast[old]
        index = np.arange(len(rows), dtype=np.int32)
        holder = NULL if to is None else self._client(to)
        self._state.add(
            {
                "round": np.full(index.size, number, np.int32),
                "holder": np.full(index.size, holder, np.int32),
                "kind": np.full(index.size, code, np.int8),
                "index": index,
                "factor": rows,
            }
        )
        self._rounds.add(number)

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
        kind : {"item", "attribute"}
        to : hashable
            A client who receives the rows; ``Recorder.SERVER``; ``Recorder.NEIGHBOURS``, those of ``edge``.
        references : (n_rows, K), optional
            The factors that the rows were computed at, where these are not what was broadcast. Either all
            calls give it or none does.
        """
        number, code = self._round(round_), self._kind(kind)
        vectors = self._vectors("rows", rows)
        index, sequence = self._indices(number, code, vectors, items)
        columns: dict[str, np.ndarray] = {}
        if references is not None:
            columns["reference"] = self._vectors("references", references)
            same_length(rows=vectors, references=columns["reference"])
        if items is None:
            keep = self._telling(number, code, vectors, columns.get("reference"))
            vectors, index, sequence = vectors[keep], index[keep], sequence[keep]
            columns = {name: column[keep] for name, column in columns.items()}
            self._dense = True
        else:
            self._sparse = True
        self._anonymous |= client is None
        sender = NULL if client is None else self._client(client)
        if client is not None:
            sequence = sequence + self._refuse_again(number, sender, code, index, client)
        self._count(code, int(index.max(initial=-1)) + 1)
        self._messages.add(
            {
                "round": np.full(index.size, number, np.int32),
                "sender": np.full(index.size, sender, np.int32),
                "receiver": np.full(index.size, self._receiver(to), np.int32),
                "kind": np.full(index.size, code, np.int8),
                "index": index,
                "sequence": sequence.astype(np.int32),
                "gradient": vectors,
                **columns,
            }
        )
        self._rounds.add(number)

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
        first, last = (self._round(number) for number in (first_round, last_round))
        if first > last:
            raise InputError(f"last_round must be >= first_round, got {last} and {first}")
        value = rows_of_numbers("weight", np.atleast_2d(np.asarray(weight, float)), 1)[:, 0]
        self._edges.add(
            {
                "sender": np.array([self._client(sender)], np.int32),
                "receiver": np.array([self._client(receiver)], np.int32),
                "weight": value.astype(np.float64),
                "first_round": np.array([first], np.int32),
                "last_round": np.array([last], np.int32),
            }
        )

    def truth(self, client: Hashable, items: Numbers, ratings: Numbers) -> None:
        """Record what a client keeps private, to score against: it is written beside the transcript.

        Parameters
        ----------
        client : hashable
        items : (n_ratings,) whole numbers
        ratings : (n_ratings,)
            Of ``rating_levels``.
        """
        index = ids_of("items", items, 0, INT32_MAX - 1, ">= 0 and fit into 32 bits")
        value = rows_of_numbers("ratings", array_of("ratings", ratings).reshape(-1, 1), 1)[:, 0]
        same_length(items=index, ratings=value)
        away = np.abs(value[:, None] - self._levels).min(axis=1, initial=np.inf)
        if (away > OFF_GRID).any():
            row = int((away > OFF_GRID).argmax())
            raise InputError(
                f"ratings must be of rating_levels {self._levels.tolist()!s:.80}, got {value[row]:g} of "
                f"client {client!r:.40}; declare all levels that occur"
            )
        self._count(ITEM, int(index.max(initial=-1)) + 1)
        self._private(client, ITEM, index, value)

    def attributes(self, client: Hashable, values: Numbers) -> None:
        """Record a client's attributes, to score against.

        Parameters
        ----------
        client : hashable
        values : (n_attributes,)
        """
        value = rows_of_numbers("values", array_of("values", values).reshape(-1, 1), 1)[:, 0]
        self._count(ATTRIBUTE, value.size)
        self._private(client, ATTRIBUTE, np.arange(value.size, dtype=np.int32), value)

    def _private(self, client: Hashable, code: int, index: np.ndarray, value: np.ndarray) -> None:
        self._truth.add(
            {
                "user": np.full(index.size, self._client(client), np.int32),
                "kind": np.full(index.size, code, np.int8),
                "index": index,
                "value": value.astype(np.float64),
            }
        )

    def _round(self, given: Any) -> int:
        if isinstance(given, bool) or not isinstance(given, int | np.integer):
            raise InputError(f"round must be a whole number, got {given!r:.80}")
        if not 0 <= given <= INT32_MAX:
            raise InputError(f"round must be >= 0 and fit into 32 bits, got {given}")
        return int(given)

    def _kind(self, kind: str) -> int:
        if kind not in OF_FACTORS:
            raise InputError(f"kind must be one of {', '.join(OF_FACTORS)}, got {kind!r:.80}")
        return OF_FACTORS[kind]

    def _vectors(self, name: str, values: Numbers) -> Float[np.ndarray, "rows factors"]:
        array = array_of(name, values)
        if self._width == 0:
            if array.ndim != 2 or array.shape[1] == 0:
                raise InputError(f"{name} must be rows of K numbers each, got shape {array.shape}")
            self._width = array.shape[1]
        return rows_of_numbers(name, array, self._width).copy()  # the program goes on with its own

    def _client(self, key: Hashable) -> int:
        try:
            return self._clients.setdefault(key, len(self._clients))
        except TypeError:
            raise InputError(
                f"a client must have a hashable name, got {key!r:.80}; use a number or text"
            ) from None

    def _receiver(self, to: Hashable) -> int:
        if to is self.SERVER:
            return SERVER_NUMBER
        return NULL if to is self.NEIGHBOURS else self._client(to)

    def _count(self, code: int, size: int) -> None:
        if code == ITEM and self._fixed_items is not None and size > self._fixed_items:
            raise InputError(f"items must be below n_items = {self._fixed_items}, got {size - 1}")
        self._n[code] = max(self._n[code], size)

    def _indices(
        self, round_: int, code: int, vectors: np.ndarray, items: Numbers | None
    ) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:
        if items is None:
            index = np.arange(len(vectors), dtype=np.int32)
        else:
            index = ids_of("items", items, 0, INT32_MAX - 1, ">= 0 and fit into 32 bits")
            same_length(items=index, rows=vectors)
        return index, np.arange(index.size)

    def _refuse_again(self, round_: int, sender: int, code: int, index: np.ndarray, client: Hashable) -> int:
        """How many rows the client sent in this round before; none of them is about these items."""
        if round_ > self._newest:
            self._newest = round_
            self._items_of.clear()
        before = self._items_of.setdefault((round_, sender), [])
        before.append(index.astype(np.int64) * 2 + code)
        everything = np.concatenate(before)
        if np.unique(everything).size < everything.size:
            values, count = np.unique(everything, return_counts=True)
            raise InputError(
                f"client {client!r:.40} must upload each item once in a round, got item "
                f"{values[count > 1][0] // 2} again in round {round_}; add the rows up, or count rounds finer"
            )
        start = self._sent.get((round_, sender), 0)
        self._sent[round_, sender] = start + index.size
        return start

    def _telling(
        self, round_: int, code: int, vectors: np.ndarray, references: np.ndarray | None
    ) -> Int[np.ndarray, " rows"]:
        """Rows of a dense upload that carry something."""
        before: np.ndarray | int = 0
        if self._rule.get("upload") == "weights":
            known = references if references is not None else self._broadcast.get(round_)
            if known is None or code != ITEM or len(known) < len(vectors):
                return np.arange(len(vectors))
            before = known[: len(vectors)].astype(vectors.dtype)
        return np.flatnonzero((vectors != before).any(axis=1))

    def _manifest(self, n_users: int, n_items: int) -> Manifest:
        rule = dict(self._rule)
        if "rows" not in rule and (self._dense or self._sparse):
            rule["rows"] = "all" if self._dense else "rated"
        try:
            content = {
                **self._declared,
                "format": "factorleak-transcript",
                "version": 2,
                "rule": ClientRule.model_validate(rule),
                "n_users": n_users,
                "n_items": n_items,
                "n_attributes": self._n[ATTRIBUTE],
                "factors": max(self._width, 1),
                "rounds": sorted(self._rounds) or [0],
                "anonymous": self._anonymous,
            }
            if not self._rounds:  # looked at before anything is known of the sizes
                content |= {"attribute_groups": [], "item_features": None}
            return Manifest2.model_validate(content).as_manifest()
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the declaration"
            message = first["msg"].removeprefix("Value error, ")
            raise InputError(f"{where}: {message}, got {str(first.get('input'))[:80]}") from None

    def _finish(self) -> None:
        if self._messages.n_rows == 0:
            raise InputError(f"{self.path} would hold no upload; call upload at least once")
        for spool in (self._state, self._messages, self._edges, self._truth):
            spool.close()
        if self._state.n_rows == 0:
            raise InputError(
                f"{self.path} would hold no broadcast; call broadcast before the uploads of a round, or give "
                "upload its references and broadcast once"
            )
        manifest = self._manifest(max(len(self._clients), 1), max(self._n[ITEM], 1))
        write_text(self._partial / "manifest.json", json.dumps(file_of(manifest), indent=1) + "\n")
        truth = self._partial / "truth.arrow"
        if truth.exists():
            truth.chmod(PRIVATE)
            truth.rename(truth_path(self.path))
        names = {str(number): repr(key) for key, number in self._clients.items()}
        write_text(clients_path(self.path), json.dumps(names, indent=1) + "\n", PRIVATE)
        self._partial.rename(self.path)
