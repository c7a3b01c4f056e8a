"""What clients keep private, as a recorder writes it beside a transcript."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.transcript.given_columns import Numbers, items_of, numbers_of, same_length
from victims.transcript.kinds import ATTRIBUTE, ITEM
from victims.transcript.ledger import Ledger
from victims.transcript.recorded_files import RecordedFiles

OFF_GRID = 1e-6  # of a star


class PrivateRows:
    """Ratings and attributes of clients; see the methods of ``Recorder``."""

    def __init__(self, files: RecordedFiles, ledger: Ledger, levels: Float[np.ndarray, " levels"]) -> None:
        self._files, self._ledger, self._levels = files, ledger, levels

    def truth(self, client: Hashable, items: Numbers, ratings: Numbers) -> None:
        """Ratings of a client."""
        self._ledger.provisional("client", client)
        index, value = items_of(items), numbers_of("ratings", ratings)
        same_length(items=index, ratings=value)
        away = np.abs(value[:, None] - self._levels).min(axis=1, initial=np.inf)
        if (away > OFF_GRID).any():
            row = int((away > OFF_GRID).argmax())
            raise InputError(
                f"ratings must be of rating_levels {self._levels.tolist()!s:.80}, got {value[row]:g} of "
                f"client {client!r:.40}; declare all levels that occur"
            )
        self._add(client, ITEM, index, value)

    def attributes(self, client: Hashable, values: Numbers) -> None:
        """Attributes of a client."""
        self._ledger.provisional("client", client)
        value = numbers_of("values", values)
        outside = np.flatnonzero((value < 0) | (value > 1))
        if outside.size:
            raise InputError(
                f"values must be in 0..1, got {value[outside[0]]:g} of client {client!r:.40}; make "
                "categories columns of 0 and 1"
            )
        self._add(client, ATTRIBUTE, np.arange(value.size, dtype=np.int32), value)

    def _add(
        self,
        client: Hashable,
        code: int,
        index: Int[np.ndarray, " rows"],
        value: Float[np.ndarray, " rows"],
    ) -> None:
        truth, ledger = self._files.truth, self._ledger
        ledger.refuse_size(code, int(index.max(initial=-1)) + 1)
        ledger.refuse_second_truth(client, code, index)
        user = ledger.number(client)
        ledger.truth(user, code, index)
        truth.add(index.size, {"user": user, "kind": code, "index": index, "value": value})
