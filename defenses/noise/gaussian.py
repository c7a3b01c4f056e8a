"""Normal noise on every uploaded coordinate, drawn on the client: the Gaussian mechanism, row by row.

Each client adds independent N(0, sigma^2) noise to its gradients before they leave. Optional clipping
bounds the L2 norm of every row first (Dwork, Roth 2014, doi:10.1561/0400000042, Appendix A; clipping as in
Abadi et al. 2016, doi:10.1145/2976749.2978318, here of every single row), without which no finite epsilon
exists. Noise with sigma^2 = 2 b^2 has the variance of ``laplace`` with scale b. The account is of the uploads
of one client, seen one by one: no sampling and no sum amplifies it.

What this does not hide: in observed-only the rows name the rated items; the noise is drawn afresh in every
round while the ratings stay the same, so an adversary who watches T rounds sees it averaged over T; all rows
of a client are multiples of one vector, so many rows tell its direction. No epsilon is finite with delta = 0:
at a probability of up to delta the bound does not hold. What is left can be measured with the attacks
``likelihood`` and, for clients that keep their factor, ``trajectory``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from defenses.accounting.ranges import refuse_nothing, usable, usable_or_0
from defenses.accounting.row_noise import of_gaussian, of_rows
from defenses.noise.client_noise import by_client, standard_normal
from victims.common.seeds import Purpose
from victims.common.validation import or_none, require_fields, strictly_between
from victims.data.ratings import Ratings
from victims.protocols.account import DELTA, Account, Setting
from victims.protocols.base import Attacker, Defense, Rows


@dataclass(frozen=True)
class Gaussian(Defense):
    """Noise of the clients.

    Attributes
    ----------
    scale : float
        Standard deviation sigma, in the units of the gradients (stars squared): 1e-9 to 1e9; 0 (none)
        needs a clip.
    clip : float or None
        Largest L2 norm of a row; longer rows are shortened to it. None does not clip.
    known : bool
        Whether the adversary knows the scale, which is an ordinary constant of the protocol.
    delta : float
        At which the account states epsilon, in 0..1, exclusive; well below one over the number of clients.
    per_message : bool
        Whether each message has noise of its own, where a row goes to several receivers: several of them who
        put their copies together average it, and the account counts their copies.

    References
    ----------
    C. Dwork, A. Roth 2014, doi:10.1561/0400000042, Appendix A; M. Abadi et al. 2016,
    doi:10.1145/2976749.2978318.
    """

    scale: float = 1.0
    clip: float | None = None
    known: bool = True
    delta: float = DELTA
    per_message: bool = False
    name: str = "gaussian"
    attackers = (
        Attacker("likelihood", 2),
    )  # Maximum likelihood under its law; more rounds average the noise

    def __post_init__(self) -> None:
        require_fields(
            self,
            "gaussian",
            scale=usable_or_0(),
            clip=or_none(usable()),
            delta=strictly_between(0, 1),
        )
        refuse_nothing("gaussian", self.scale, self.clip)

    @property
    def additive(self) -> bool:
        """Clipping depends on the row."""
        return self.clip is None

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """The rows as they leave the clients in round ``round_``; seeded as in ``laplace``."""
        gradient = rows.gradient
        if self.clip is not None:
            norm = np.linalg.norm(gradient, axis=1, keepdims=True)
            gradient = gradient * np.minimum(1.0, self.clip / np.maximum(norm, np.finfo(float).tiny))
        if self.scale > 0:
            size = gradient.shape[1]
            noise = by_client(rows.sender, size, seed, Purpose.GAUSSIAN_NOISE, round_, standard_normal)
            gradient = gradient + self.scale * noise
        return replace(rows, gradient=gradient)

    def account(self, ratings: Ratings, setting: Setting) -> Account:
        """Of one rating and of clients: the Gaussian mechanism at distance 2 C."""
        spent = partial(of_gaussian, self.scale, self.clip, delta=self.delta)
        how = "at delta the Gaussian mechanism at distance 2 C sqrt(all rows), exact"
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
