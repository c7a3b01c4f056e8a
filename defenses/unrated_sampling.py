"""Sampling of unrated items: rows of some of them hide which items a client rated.

Mai & Pang 2022, section 5.2, Eq. (36): a client draws rho times as many unrated items as it has rated and
treats them as zeros of weight alpha (the victim's), in (8) and in its uploads; other unrated items do not
take part. The paper bounds the probability that an uploaded item is rated by 1 / (rho + 1).

In FedMF, for which Chai et al. 2021 suggest the same "between FullText and PartText" (section 7), a client
sends rows of zeros about sampled items. They weigh nothing and change no factor, so that they cost
ciphertexts alone; only encrypted rows hide which ones are zeros.

What this does not hide: that bound holds for one round and an adversary who knows nothing of popularity. If
the sample is drawn anew in each round, as published, items that a client uploads in every round are
rated, for a sampled one comes back with probability about rho n / (m - n) only; drawn once, the sample
keeps the bound. Values of plaintext rows tell rated items from sampled ones at once. Popular items are
more often rated than sampled, and popularity is public through the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from victims.common.seeds import Purpose, generator
from victims.common.validation import above, require_fields
from victims.data.ratings import Ratings
from victims.protocols.base import Attacker, Defense, Sample


@dataclass(frozen=True)
class UnratedSampling(Defense):
    """The clients' choice.

    Attributes
    ----------
    rho : float
        Sampled unrated items per rated one, > 0, rounded up; all of them where there are not as many.
    redrawn : bool
        Whether the sample is drawn anew in each round (as published) or once for the whole training.

    References
    ----------
    Mai & Pang 2022 (arXiv:2210.07775), section 5.2, Eq. (36).
    """

    rho: float = 1.0
    redrawn: bool = True
    name: str = "unrated-sampling"
    attackers = (Attacker("rated-set", 2),)  # The lists of several rounds

    def __post_init__(self) -> None:
        require_fields(self, "unrated-sampling", rho=above(0))

    def sampled(self, ratings: Ratings, round_: int, seed: int) -> Sample | None:
        """Each client's own draw, which depends on (seed, round, client) alone."""
        draw = round_ if self.redrawn else 0
        counts = np.diff(ratings.indptr)
        wanted = np.minimum(np.ceil(self.rho * counts).astype(np.int64), ratings.n_items - counts)
        items = np.empty(wanted.sum(), np.int32)
        end = np.cumsum(wanted)
        for user in range(ratings.n_users):
            rng = generator(seed, Purpose.UNRATED_SAMPLE, draw, user)
            rated = ratings.items[ratings.indptr[user] : ratings.indptr[user + 1]]
            unrated = np.sort(rng.choice(ratings.n_items - rated.size, wanted[user], replace=False))
            # the u-th unrated item comes after as many rated ones as have at most u unrated before them
            before = np.searchsorted(rated - np.arange(rated.size), unrated, side="right")
            items[end[user] - wanted[user] : end[user]] = unrated + before
        return Sample(np.repeat(np.arange(ratings.n_users, dtype=np.int32), wanted), items)

    def public(self) -> dict[str, Any]:
        """What the manifest tells about this defense."""
        return {"name": self.name, "rho": self.rho, "redrawn": self.redrawn}
