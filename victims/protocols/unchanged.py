"""The verbs of a defense that does nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from victims.data.ratings import Ratings
from victims.protocols.account import Account, Setting
from victims.protocols.ciphers import Cipher
from victims.protocols.exchanged import Attacker, Rows, Sample


class Unchanged:
    """The verbs of a defense that does nothing; a defense overrides those that it is about.

    What a defense changes follows from the verbs that it overrides, so that none can forget to declare it.
    """

    name: str

    @property
    def changes_uploads(self) -> bool:
        """Whether ``uploaded`` is overridden."""
        return type(self).uploaded is not Unchanged.uploaded

    @property
    def changes_predictions(self) -> bool:
        """Whether ``predicted`` is overridden."""
        return type(self).predicted is not Unchanged.predicted

    @property
    def additive(self) -> bool:
        """What is added to a row may depend on the row."""
        return False

    @property
    def per_message(self) -> bool:
        """A row is the same for all who receive it."""
        return False

    @property
    def sums_of_neighbours(self) -> bool:
        """There is no cipher."""
        return False

    @property
    def attackers(self) -> tuple[Attacker, ...]:
        """No attack knows of it."""
        return ()

    def on_device(self, ratings: Ratings, seed: int) -> Ratings:
        """Clients train on what they rated."""
        return ratings

    def sampled(self, ratings: Ratings, round_: int, seed: int) -> Sample | None:
        """No choice of unrated items."""
        return None

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """Rows are not changed."""
        return rows

    def noise_scale(
        self, ratings: Ratings, factors: int, round_: int, seed: int
    ) -> Float[np.ndarray, "items factors"] | None:
        """No noise whose scale the server is told."""
        return None

    def predicted(
        self, values: Float[np.ndarray, " entries"], at: Ratings, seed: int
    ) -> Float[np.ndarray, " entries"]:
        """Predictions are used as they are."""
        return values

    def cipher(self, n_users: int, factors: int, seed: int) -> Cipher | None:
        """Uploads stay in the clear."""
        return None

    def account(self, ratings: Ratings, setting: Setting) -> Account | None:
        """Nothing is stated."""
        return None

    def public(self) -> dict[str, Any]:
        """The name alone."""
        return {"name": self.name}
