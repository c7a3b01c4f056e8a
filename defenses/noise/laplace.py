"""Laplace noise on every uploaded coordinate, drawn on the client.

Paper 000, section 6.2 ("Robustness"): each client adds independent Laplace noise of scale b to its
gradients before they leave. Optional clipping bounds the L1 norm of every row first, without which no
finite epsilon exists.

What this does not hide: in observed-only the rows name the rated items; the noise is drawn afresh in
every round while the ratings stay the same, so an adversary who watches T rounds sees it averaged over T;
all rows of a client are multiples of one vector, so many rows tell its direction. What is left can be
measured with the attack ``likelihood``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from defenses.accounting.ranges import refuse_nothing, usable, usable_or_0
from defenses.accounting.row_noise import of_laplace, of_rows
from defenses.noise.client_noise import by_client
from victims.common.seeds import Purpose
from victims.common.validation import or_none, require_fields
from victims.data.ratings import Ratings
from victims.protocols.account import Account, Setting
from victims.protocols.base import Attacker, Defense, Rows


@dataclass(frozen=True)
class Laplace(Defense):
    """Noise of the clients.

    Attributes
    ----------
    scale : float
        b of the Laplace law, in the units of the gradients (stars squared); its standard deviation is
        b times the root of 2. 1e-9 to 1e9; 0 adds none, and needs a clip.
    clip : float or None
        Largest L1 norm of a row; longer rows are shortened to it. None does not clip.
    known : bool
        Whether the adversary knows the scale, which is an ordinary constant of the protocol.
    per_message : bool
        Whether each message has noise of its own, where a row goes to several receivers: several of them who
        put their copies together average it, and the account counts their copies.

    References
    ----------
    Paper 000 (arXiv:2210.07775), section 6.2; C. Dwork, F. McSherry, K. Nissim, A. Smith, TCC 2006.
    """

    scale: float = 1.0
    clip: float | None = None
    known: bool = True
    per_message: bool = False
    name: str = "laplace"
    attackers = (
        Attacker("likelihood", 2),
    )  # Maximum likelihood under its law; more rounds average the noise

    def __post_init__(self) -> None:
        require_fields(
            self,
            "laplace",
            scale=usable_or_0(),
            clip=or_none(usable()),
        )
        refuse_nothing("laplace", self.scale, self.clip)

    @property
    def additive(self) -> bool:
        """Clipping depends on the row."""
        return self.clip is None

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """The rows as they leave the clients in round ``round_``.

        The noise of a client depends on (seed, round, client) alone: which other clients are recorded,
        or in which order, changes nothing.
        """
        gradient = rows.gradient
        if self.clip is not None:
            norm = np.abs(gradient).sum(axis=1, keepdims=True)
            gradient = gradient * np.minimum(1.0, self.clip / np.maximum(norm, np.finfo(float).tiny))
        if self.scale > 0:
            noise = by_client(rows.sender, gradient.shape[1], seed, Purpose.LAPLACE_NOISE, round_, _standard)
            gradient = gradient + self.scale * noise
        return replace(rows, gradient=gradient)

    def account(self, ratings: Ratings, setting: Setting) -> Account:
        """Of one rating and of clients: Laplace mechanisms at distance 2 C."""
        spent = partial(of_laplace, self.scale, self.clip)
        how = "by the plain sum, at delta by the privacy loss distribution"
        return of_rows(self.name, setting, spent, how)

    def public(self) -> dict[str, Any]:
        """What the manifest tells about this defense."""
        told: dict[str, Any] = {"name": self.name}
        if self.known:
            told["scale"] = self.scale
        if self.clip is not None:
            told["clip"] = self.clip
        if self.per_message:
            told["per_message"] = True
        return told


def _standard(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Laplace noise of scale 1."""
    return rng.laplace(size=shape)
