"""Record a program that is not ours, a few lines beside its own: transcript version 2.

    with factorleak.Recorder("run", rating_levels=[1, 2, 3, 4, 5], rule={"rule": "sgd"}) as recorder:
        recorder.broadcast(0, item_factors)
        recorder.upload(0, "anna", gradients, items=[3, 17])

What is declared is what the adversary is taken to know; what is left out, it does not know.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np

from victims.common.errors import InputError
from victims.transcript.declared import constants_of, manifest_of, mapping_of, size_of
from victims.transcript.given_columns import Numbers
from victims.transcript.kinds import with_implicit
from victims.transcript.ledger import Ledger, Nobody
from victims.transcript.manifest import INT32_MAX, Manifest
from victims.transcript.private_rows import PrivateRows
from victims.transcript.recorded_files import RecordedFiles
from victims.transcript.recorder_checks import refuse_contradictions
from victims.transcript.traffic import Traffic


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
        self._files = RecordedFiles(self.path)
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
        levels = np.array(self._manifest().rating_levels)  # what is declared wrongly is told before any work
        weights = self._rule.get("upload") == "weights"
        self._traffic = Traffic(self._files, self._ledger, weights, self.SERVER, self.NEIGHBOURS)
        self._private = PrivateRows(self._files, self._ledger, levels)

    def __enter__(self) -> Recorder:
        self._files.begin()
        return self

    def __exit__(self, error_type: type | None, *_: object) -> None:
        with self._call, self._files.ending(error_type):
            if error_type is None:
                self._finish()

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
        with self._call:
            self._traffic.broadcast(round_, factors, kind, to, biases)

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
        with self._call:
            self._traffic.upload(round_, client, rows, items, kind, to, references)

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
        with self._call:
            self._traffic.edge(sender, receiver, weight, first_round, last_round)

    def truth(self, client: Hashable, items: Numbers, ratings: Numbers) -> None:
        """Record what a client keeps private, to score against: it is written beside the transcript.

        Parameters
        ----------
        client : hashable
        items : (n_ratings,) whole numbers
        ratings : (n_ratings,)
            Of ``rating_levels``.
        """
        with self._call:
            self._private.truth(client, items, ratings)

    def attributes(self, client: Hashable, values: Numbers) -> None:
        """Record a client's attributes, to score against.

        Parameters
        ----------
        client : hashable
        values : (n_attributes,)
            In 0..1.
        """
        with self._call:
            self._private.attributes(client, values)

    def _manifest(self, traffic: Traffic | None = None) -> Manifest:
        """What is declared, and what the traffic told; without it, nothing is known of the sizes."""
        ledger, rule, declared = self._ledger, dict(self._rule), dict(self._declared)
        if traffic is None:
            declared |= {"attribute_groups": [], "item_features": None}
        elif "rows" not in rule:
            rule["rows"] = "all" if traffic.dense else "rated"
            declared["inferred"] = ["rows"]
        if ledger.implicit:
            declared["kinds"] = with_implicit(sums=False)
        return manifest_of(
            declared,
            rule,
            n_users=max(len(ledger.clients), 1),
            n_items=max(ledger.n_items, 1),
            n_attributes=ledger.n_attributes,
            factors=max(traffic.width, 1) if traffic else 1,
            rounds=sorted(ledger.rounds) or [0],
            anonymous=traffic is not None and traffic.anonymous,
        )

    def _finish(self) -> None:
        files = self._files
        if files.messages.n_rows == 0:
            raise InputError(f"{self.path} would hold no upload; call upload at least once")
        if files.state.n_rows == 0:
            raise InputError(
                f"{self.path} would hold no broadcast; call broadcast before the uploads of a round, or give "
                "upload its references and broadcast once"
            )
        files.end()
        refuse_contradictions(files, self._ledger)
        files.appear(self._manifest(self._traffic), self._ledger.clients)
