"""The graph of each recorded round, written once for as many rounds as it stays the same."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from victims.protocols.network import Edges
from victims.transcript.kinds import INT32_MAX
from victims.transcript.writer import TranscriptWriter


class GraphsWritten:
    """Edges along which the rows of the kept clients go."""

    def __init__(self, writer: TranscriptWriter, users: Int[np.ndarray, " users"]) -> None:
        self._writer, self._users = writer, users
        self._edges: Edges | None = None
        self._first = 0

    def add(self, round_: int, edges: Edges | None) -> None:
        """Take the graph of a round that is recorded; None where rows go to one server."""
        if edges is None or (self._edges is not None and _same(edges, self._edges)):
            return
        if self._edges is not None:
            self._write(self._edges, round_ - 1)
            self._first = round_
        self._edges = edges

    def end(self) -> None:
        """Write the last graph: nothing is known of its end."""
        if self._edges is not None:
            self._write(self._edges, INT32_MAX)

    def _write(self, edges: Edges, last: int) -> None:
        kept = np.isin(edges.sender, self._users)
        sender, receiver, weight = (column[kept] for column in edges)
        self._writer.deliveries(sender, receiver, weight, self._first, last)


def _same(one: Edges, other: Edges) -> bool:
    return one is other or all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
