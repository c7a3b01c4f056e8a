"""Laplace and Gaussian mechanisms on the clients: optional clipping and independent noise, row by row.

Mai & Pang 2022 (arXiv:2210.07775), section 6.2: each client adds independent Laplace noise of scale b to its
gradients before they leave. ``gaussian`` adds N(0, sigma^2) instead: the Gaussian mechanism (Dwork, Roth
2014, doi:10.1561/0400000042, Appendix A), of the same variance at sigma^2 = 2 b^2. Optional clipping bounds
the norm of every single row first, L1 or L2 (as Abadi et al. 2016, doi:10.1145/2976749.2978318), without
which no finite epsilon exists. The account is of the uploads of one client, seen one by one: no sampling and
no sum amplifies it.

What this does not hide: in observed-only the rows name the rated items; the noise is drawn afresh in every
round while the ratings stay the same, so an adversary who watches T rounds sees it averaged over T; all rows
of a client are multiples of one vector, so many rows tell its direction. Of ``gaussian`` no epsilon is finite
with delta = 0. What is left can be measured with the attacks ``likelihood`` and, for clients that keep their
factor, ``trajectory``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from defenses.accounts import of_gaussian, of_laplace, of_rows
from defenses.ranges import refuse_nothing, usable, usable_or_0
from victims.common.seeds import Purpose, generator
from victims.common.validation import or_none, require_fields, strictly_between
from victims.data.ratings import Ratings
from victims.protocols.account import DELTA, Account, Setting
from victims.protocols.base import Attacker, Defense, Rows

Law = Callable[[np.random.Generator, tuple[int, int]], Float[np.ndarray, "some K"]]  # of noise of scale 1


def client_noise(
    sender: Int[np.ndarray, " rows"],
    factors: int,
    seed: int,
    purpose: Purpose,
    draw: int,
    law: Law,
) -> Float[np.ndarray, "rows K"]:
    """Draw noise of one law for rows, seeded by (seed, purpose, draw, client)."""
    noise = np.empty((sender.size, factors))
    start = np.concatenate([[0], np.flatnonzero(np.diff(sender)) + 1, [sender.size]])
    for low, high in pairwise(start):
        if high > low:
            rng = generator(seed, purpose, draw, int(sender[low]))
            noise[low:high] = law(rng, (int(high - low), factors))
    return noise


def standard_laplace(rng: np.random.Generator, shape: tuple[int, int]) -> Float[np.ndarray, "rows K"]:
    """Draw Laplace noise of scale 1; the method of a generator has its size in third place."""
    return rng.laplace(size=shape)


def _clip_and_add_noise(
    defense: Laplace | Gaussian, rows: Rows, order: int, purpose: Purpose, round_: int, law: Law, seed: int
) -> Rows:
    """Clip each row in its norm of an order, and add noise that depends on (seed, round, client) alone."""
    gradient = rows.gradient
    if defense.clip is not None:
        norm = np.linalg.norm(gradient, order, axis=1, keepdims=True)
        gradient = gradient * np.minimum(1.0, defense.clip / np.maximum(norm, np.finfo(float).tiny))
    if defense.scale > 0:
        noise = client_noise(rows.sender, gradient.shape[1], seed, purpose, round_, law)
        gradient = gradient + defense.scale * noise
    return replace(rows, gradient=gradient)


def _public(defense: Laplace | Gaussian) -> dict[str, Any]:
    """What the manifest tells: the scale where it is known."""
    public: dict[str, Any] = {"name": defense.name}
    if defense.known:
        public["scale"] = defense.scale
    if defense.clip is not None:
        public["clip"] = defense.clip
    if defense.per_message:
        public["per_message"] = True
    return public


@dataclass(frozen=True)
class Laplace(Defense):
    """The Laplace mechanism, on the clients.

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
    Mai & Pang 2022 (arXiv:2210.07775), section 6.2; C. Dwork, F. McSherry, K. Nissim, A. Smith, TCC 2006.
    """

    scale: float = 1.0
    clip: float | None = None
    known: bool = True
    per_message: bool = False
    name: str = "laplace"
    attackers = (Attacker("likelihood", 2),)  # more rounds average the noise

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
        """The rows as they leave the clients in round ``round_``."""
        return _clip_and_add_noise(self, rows, 1, Purpose.LAPLACE_NOISE, round_, standard_laplace, seed)

    def account(self, ratings: Ratings, setting: Setting) -> Account:
        """Of one rating and of clients: Laplace mechanisms at distance 2 C."""
        spent = partial(of_laplace, self.scale, self.clip)
        how = "by the plain sum, at delta by the privacy loss distribution"
        return of_rows(self.name, setting, spent, how)

    def public(self) -> dict[str, Any]:
        """What the manifest tells about this defense."""
        return _public(self)


@dataclass(frozen=True)
class Gaussian(Defense):
    """The Gaussian mechanism, on the clients.

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
    attackers = (Attacker("likelihood", 2),)  # more rounds average the noise

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
        """The rows as they leave the clients in round ``round_``."""
        return _clip_and_add_noise(
            self, rows, 2, Purpose.GAUSSIAN_NOISE, round_, np.random.Generator.standard_normal, seed
        )

    def account(self, ratings: Ratings, setting: Setting) -> Account:
        """Of one rating and of clients: the Gaussian mechanism at distance 2 C."""
        spent = partial(of_gaussian, self.scale, self.clip, delta=self.delta)
        how = "at delta the Gaussian mechanism at distance 2 C sqrt(all rows), exact"
        return of_rows(self.name, setting, spent, how)

    def public(self) -> dict[str, Any]:
        """What the manifest tells about this defense."""
        return _public(self)
