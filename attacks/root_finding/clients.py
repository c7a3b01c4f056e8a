"""The uploads of single clients in the rounds that a system needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from victims.transcript.manifest import Manifest
from victims.transcript.view import Uploads, View


@dataclass(frozen=True)
class ClientRows:
    """One client's rows of one round, without padding, scale and regularisation."""

    kind: np.ndarray
    index: np.ndarray
    rows: Float[np.ndarray, "rows K"]  # f = c (z - p . t) p
    factors: Float[np.ndarray, "rows K"]  # the broadcast factors t

    def __repr__(self) -> str:
        """One line: of how many rows."""
        return f"ClientRows(rows={self.index.size})"


@dataclass(frozen=True)
class ClientUploads:
    """One client, and its rows of the last round (semi-als), or of the last two consecutive ones (sgd)."""

    user: int
    rounds: tuple[ClientRows, ...]
    first: int  # number of the first of these rounds


def clients_of(view: View) -> Iterator[ClientUploads]:
    """Iterate over the clients of a view, in the order of its batches."""
    wanted = [view.rounds.size - 1]
    if view.manifest.update == "sgd":
        first = int(np.flatnonzero(np.diff(view.rounds) == 1)[-1])
        wanted = [first, first + 1]
    for batch in view.batches():
        for row, user in enumerate(batch.users):
            rounds = tuple(_rows_of(batch.rounds[t], row, view.manifest) for t in wanted)
            yield ClientUploads(int(user), rounds, int(view.rounds[wanted[0]]))


def _rows_of(uploads: Uploads, row: int, manifest: Manifest) -> ClientRows:
    def of_client(column: np.ndarray) -> np.ndarray:
        return column[0 if column.shape[0] == 1 else row]

    valid = of_client(uploads.valid)
    factors = uploads.factors[of_client(uploads.at)[valid]]
    rows = uploads.gradients[row][valid].astype(np.float64)
    rows = (rows - manifest.upload.regularization * factors) / manifest.upload.scale
    return ClientRows(of_client(uploads.kind)[valid], of_client(uploads.index)[valid], rows, factors)
