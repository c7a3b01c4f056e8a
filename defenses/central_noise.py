"""User-level noise on sums: a client's whole upload is clipped, and a trusted aggregator adds the noise.

``dp-fedavg`` (McMahan, Ramage, Talwar, Zhang 2018, arXiv:1710.06963, Algorithm 1; its fixed denominator is
the server's step here): all rows of a client in a round have together an L2 norm of at most S, so that it
moves the sum by at most S; the aggregator takes each client with probability q in each round, independently,
and adds N(0, (z S)^2) to every number of the sum: of all items and attributes, also of those that nobody sent
a row of, for where noise lies would name them.

``dp-ftrl`` (Kairouz et al. 2021, arXiv:2103.00039, Algorithm 1 and appendix D): each client sends once in an
epoch of B rounds, and no sampling has to be kept secret. The noise of the running sum of the first t rounds
is the sum of those nodes N(0, (z S)^2) of a binary tree that cover them, about log2 t and not t of them; an
upload enters ceil(log2(B + 1)) nodes. After each epoch a new tree begins. Without momentum, as in FedMF, that
is DP-FTRL itself; a server that steps with differences of running sums in another way post-processes them.

The account is for whoever sees noisy sums or models, and not for the server, who receives uploads: rows are
formed from models and a client's own ratings alone, so that rounds compose adaptively. Victims' own
``participation`` draws a fixed number of clients, which Poisson's account does not cover: it counts as
sampling without replacement, proved for replaced clients, at distance 2 S (Wang, Balle, Kasiviswanathan 2019,
arXiv:1808.00087); of these zeros in the place of rows are a case.

What these do not hide: anything from the aggregator; what a client's own recommendations tell, for its factor
is trained without noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from jaxtyping import Int

from defenses.accounts import REPEATED, SCENARIO, STEPS, Proof, of_gaussian
from defenses.compression import Clip
from defenses.ranges import usable, usable_or_0
from victims.common.seeds import Purpose, generator
from victims.common.validation import (
    one_of,
    or_none,
    positive_share,
    require_fields,
    strictly_between,
    whole,
)
from victims.data.ratings import Ratings
from victims.protocols.account import Account, Line, Setting
from victims.protocols.base import Attacker, Defense, Received, Rows
from victims.protocols.network import taken
from victims.transcript.manifest import AGREEMENTS

# what each client does by itself may come before; nothing of the rows may come after the clipping
CENTRAL = Proof(
    {
        "fedmf": SCENARIO
        | STEPS
        | {"lambda_factors", "item_regularization", "client_learning_rate", "start"},
        "fedmvmf": SCENARIO
        | STEPS
        | {"lambda_attributes", "lambda_factors", "alpha", "server_learning_rate", "beta_1", "beta_2"}
        | {"epsilon", "client_learning_rate"},
        # not regularize: with every rating the server pulls an item once for each of its raters
        "mf": SCENARIO | STEPS | {"learning_rate", "epochs", "regularization"},
    },
    beside=frozenset({"clip", "top-k", "quantise", "round", "laplace", "gaussian", "dp-fedavg", "dp-ftrl"}),
)
# of sampled mechanisms the library's series at orders near 1 do not converge
NEAR_1 = (1.0005, 1.001, 1.005, 1.01, 1.02, 1.05, *(1 + n / 10 for n in range(1, 10)))
ORDERS = (*range(2, 64), 96, 128, 256, 512, 1024)
MOST, FINEST = 1e4, 5e-5  # of the loss distribution: the largest epsilon, and the grid over epsilon
NEIGHBOURS = (
    "neighbours: trainings of the same clients in which one of them sends its rows, or zeros in the place of "
    "all of them in all rounds"
)
ASSUMED = (
    "assumed: the aggregator adds the noise, keeps it, its sampling and single uploads to itself, and steps "
    "with the noisy sums alone; numbers are real ones and noise is not that of a known seed"
)
NOT_COUNTED = (
    "not counted: options that were chosen by looking at the ratings, ratings of a test set, and what "
    "recommendations to a client tell"
)


@dataclass(frozen=True)
class CentralNoise(Defense):
    """Whole uploads clipped, and noise on sums or on running sums, by a trusted aggregator.

    Attributes
    ----------
    norm : float
        S, largest L2 norm of all that a client uploads in a round, in the units of its rows: 1e-9 to 1e9.
    noise : float
        z, standard deviation of one draw of noise over S: 1e-9 to 1e9; 0 adds none, and nothing is proved.
    sampling : float
        q, with which each client is taken in a round, independently, in (0, 1]; 1 in trees.
    epoch : int
        B, rounds of a tree, in which each client sends once: 1 to 1,000,000; 1 is a draw for each round.
    delta : float or None
        At which the account states epsilon, in 0..1, exclusive; None is n_users^-1.1.

    References
    ----------
    H. B. McMahan, D. Ramage, K. Talwar, L. Zhang, ICLR 2018, arXiv:1710.06963; P. Kairouz et al., ICML 2021,
    arXiv:2103.00039, Algorithm 1 and appendix D.
    """

    norm: float = 1.0
    noise: float = 1.0
    sampling: float = 1.0
    epoch: int = 8
    delta: float | None = None
    name: str = "dp-ftrl"
    attackers = (Attacker("aggregate", 2), Attacker("undeclared"))

    def __post_init__(self) -> None:
        require_fields(
            self,
            self.name,
            norm=usable(),
            noise=usable_or_0(),
            sampling=one_of(1.0) if self.epoch != 1 else positive_share(),
            epoch=whole(1, 1_000_000),
            delta=or_none(strictly_between(0, 1)),
        )

    def turns(self, n_users: int, epoch: int, seed: int) -> Int[np.ndarray, " users"]:
        """In which round of an epoch each client sends; nobody needs to keep it secret."""
        return generator(seed, Purpose.CENTRAL_TURNS, epoch).permutation(n_users) % self.epoch

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """Rows of the clients whose turn it is, and who are taken, clipped."""
        epoch, turn = divmod(round_, self.epoch)
        here = self.turns(ratings.n_users, epoch, seed) == turn
        drawn = generator(seed, Purpose.CENTRAL_SAMPLE, round_).random(ratings.n_users)
        some = taken(rows, np.flatnonzero((here & (drawn < self.sampling))[rows.sender]))
        return Clip(self.norm).uploaded(some, ratings, round_, seed)

    def summed(self, arrived: Received, round_: int, seed: int) -> Received:
        """All sums, and what the noise of the running sums grows by, whoever sent rows of them."""
        epoch, turn = divmod(round_, self.epoch)
        items, attributes = np.array(arrived.items), np.array(arrived.attributes)
        for sign, done in ((1, turn + 1), (-1, turn)):
            for level, node in covering(done):
                rng = generator(seed, Purpose.CENTRAL_NOISE, epoch, level, node)
                items += sign * self.noise * self.norm * rng.standard_normal(items.shape)
                attributes += sign * self.noise * self.norm * rng.standard_normal(attributes.shape)
        return arrived._replace(items=items, attributes=attributes)

    def account(self, ratings: Ratings, setting: Setting) -> Account:
        """Of one client, against those who see sums or models, and against the server."""
        title = f"Privacy account of {self.name}, {setting.text}"
        if why := _gap(self, setting):
            return Account(title, unproved=f"nothing is proved: {why}", not_hidden=REPEATED[1:])
        delta = self.delta_of(ratings.n_users)
        share = float(setting.options.get("participation", 1.0))
        watched = _watched(self, setting.n_rounds, delta)
        how = "all clients in each" if self.epoch == 1 else f"each client once in every {self.epoch}"
        seen = {"and who takes part": watched}
        if self.epoch == 1 and min(self.sampling, share) < 1:
            how = f"each client in each with probability {self.sampling:g} (Poisson)"
            if self.sampling == 1:
                how = f"{share:g} of the clients in each, a fixed number without replacement"
            hidden = _sampled(self, share, ratings.n_users, setting.n_rounds, delta)
            seen = {"and not who takes part": min(hidden, watched), **seen}
        why = f"{setting.n_rounds:,} rounds from round 0 on, {how}, noise {self.noise:g} times the norm"
        lines = [
            Line(f"one client; whoever sees noisy sums or models, {who}", float("inf"), spent, delta, why)
            for who, spent in seen.items()
        ]
        nothing, why = float("nan"), "it sees each upload clipped, and without noise"
        lines.append(Line("one client; the server or whoever sees uploads", nothing, nothing, delta, why))
        return Account(title, tuple(lines), claims=(NEIGHBOURS, ASSUMED, NOT_COUNTED))

    def delta_of(self, n_users: int) -> float:
        """At which epsilon is stated."""
        return n_users**-1.1 if self.delta is None else self.delta

    def most_told(self, rounds: int) -> float:
        """How many standard deviations apart all sums with one client and without are.

        NaN where that does not tell all: under sampling and trees. Distances of normal mechanisms compose as
        squares (Dong, Roth, Su 2019, arXiv:1905.02383, Corollary 3.3).

        Examples
        --------
        >>> CentralNoise(noise=8.0, epoch=1).most_told(16)
        0.5
        """
        whole = self.epoch == 1 and self.sampling == 1 and self.noise > 0
        return float(rounds**0.5 / self.noise) if whole else float("nan")

    def public(self) -> dict[str, Any]:
        """What everybody knows: all but where epsilon is stated."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "delta"}


def covering(done: int) -> list[tuple[int, int]]:
    """Nodes of the tree, as level and number in it, whose leaves are the first ``done`` rounds.

    Examples
    --------
    >>> covering(6)
    [(1, 2), (2, 0)]
    """
    return [(level, (done >> level) - 1) for level in range(done.bit_length()) if done >> level & 1]


def _gap(defense: CentralNoise, setting: Setting) -> str:
    """What of a setting the proof does not cover; empty where it covers all."""
    if why := CENTRAL.gap(setting):
        return why
    if setting.options.get("upload") == "weights":
        return "upload=weights has the server count the clients of each item, to which no noise is added"
    others = [name for name in setting.defenses if name not in AGREEMENTS]
    if others[-1:] != [defense.name]:
        return f"what {others[-1]} does to clipped rows is not bounded; name it before"
    return "" if defense.noise else "there is no noise (noise=0), and so no finite epsilon"


def _watched(defense: CentralNoise, rounds: int, delta: float) -> float:
    """Epsilon for those who know who takes part when."""
    from dp_accounting import NeighboringRelation
    from dp_accounting import SingleEpochTreeAggregationDpEvent as Tree

    if defense.epoch == 1:
        return of_gaussian(defense.noise, 0.5, 1, rounds, delta).composed  # at distance 2 * 0.5
    epochs, left = divmod(rounds, defense.epoch)
    trees = [Tree(defense.noise, steps) for steps in [defense.epoch] * epochs + [left] * (left > 0)]
    return epsilon_of(trees, NeighboringRelation.REPLACE_SPECIAL, delta, NEAR_1)


def _sampled(defense: CentralNoise, share: float, n_users: int, rounds: int, delta: float) -> float:
    """Epsilon for those who do not know who takes part: of Poisson's samples, or of a fixed number."""
    from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
    from dp_accounting import SampledWithoutReplacementDpEvent as FixedNumber

    if defense.sampling < 1:
        event = PoissonSampledDpEvent(defense.sampling, GaussianDpEvent(defense.noise))
        return epsilon_of([event] * rounds, NeighboringRelation.REPLACE_SPECIAL, delta)
    many = max(round(share * n_users), 1)
    fixed = FixedNumber(n_users, many, GaussianDpEvent(defense.noise / 2))
    return epsilon_of([fixed] * rounds, NeighboringRelation.REPLACE_ONE, delta)


def epsilon_of(events: Sequence[Any], relation: Any, delta: float, near_1: Sequence[float] = ()) -> float:
    """Epsilon at delta, by Renyi orders, and by the loss distribution where the library has it."""
    from dp_accounting import ComposedDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    event = ComposedDpEvent([SelfComposedDpEvent(one, events.count(one)) for one in dict.fromkeys(events)])
    found = float(RdpAccountant([*near_1, *ORDERS], relation).compose(event).get_epsilon(delta))
    exact = PLDAccountant(relation, max(found * FINEST, 1e-4))
    if found < MOST and exact.supports(event):
        found = min(found, float(exact.compose(event).get_epsilon(delta)))
    return found
