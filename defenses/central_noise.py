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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from defenses.accounts import REPEATED, SCENARIO, STEPS, Proof, of_gaussian
from defenses.compression import Clip
from defenses.ranges import usable, usable_or_0
from victims.common.seeds import Purpose, generator
from victims.common.validation import (
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
ATTACKERS = (Attacker("aggregate", 2), Attacker("undeclared"))
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
class DPFedAvg(Defense):
    """Clipped uploads, sampled clients, independent noise on the sum of each round, by a trusted aggregator.

    Attributes
    ----------
    norm : float
        S, largest L2 norm of all that a client uploads in a round, in the units of its rows: 1e-9 to 1e9.
    noise : float
        z, standard deviation of the noise over S: 1e-9 to 1e9; 0 adds none, and nothing is proved.
    sampling : float
        q, with which each client is taken in a round, independently, in (0, 1].
    delta : float or None
        At which the account states epsilon, in 0..1, exclusive; None is n_users^-1.1.

    References
    ----------
    H. B. McMahan, D. Ramage, K. Talwar, L. Zhang, ICLR 2018, arXiv:1710.06963.
    """

    norm: float = 1.0
    noise: float = 1.0
    sampling: float = 1.0
    delta: float | None = None
    name: str = "dp-fedavg"
    attackers = ATTACKERS

    def __post_init__(self) -> None:
        require_fields(self, self.name, norm=usable(), noise=usable_or_0(), sampling=positive_share())
        require_fields(self, self.name, delta=or_none(strictly_between(0, 1)))

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """Rows of the clients who are taken, clipped."""
        drawn = generator(seed, Purpose.CENTRAL_SAMPLE, round_).random(ratings.n_users)
        return _clipped(rows, drawn < self.sampling, self.norm, round_, ratings, seed)

    def summed(self, arrived: Received, round_: int, seed: int) -> Received:
        """The sums and their noise."""
        return _noisy(arrived, self.noise * self.norm, seed, round_)

    def account(self, ratings: Ratings, setting: Setting) -> Account:
        """Of one client: subsampled Gaussian mechanisms, one for each round."""
        from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
        from dp_accounting import SampledWithoutReplacementDpEvent as FixedSize

        n, rounds = ratings.n_users, setting.n_rounds
        share = float(setting.options.get("participation", 1.0))

        def watched(delta: float) -> float:
            return of_gaussian(self.noise, 0.5, 1, rounds, delta).composed  # at distance 2 * 0.5

        def sampled(delta: float) -> float:
            if self.sampling < 1:
                each, relation = GaussianDpEvent(self.noise), NeighboringRelation.REPLACE_SPECIAL
                event = PoissonSampledDpEvent(self.sampling, each)
            else:
                each, relation = GaussianDpEvent(self.noise / 2), NeighboringRelation.REPLACE_ONE
                event = FixedSize(n, max(round(share * n), 1), each)
            return min(watched(delta), epsilon_of([event] * rounds, relation, delta))

        seen = "the noisy sums or the models of all rounds"
        if self.sampling == share == 1:
            return _account(self, setting, n, {seen: watched}, "all clients in each")
        how = f"each client in each with probability {self.sampling:g} (Poisson)"
        if self.sampling == 1:
            how = f"{share:g} of the clients in each, a fixed number without replacement"
        views = {f"{seen}, and not who takes part": sampled, f"{seen}, and who takes part": watched}
        return _account(self, setting, n, views, how)

    def public(self) -> dict[str, Any]:
        """What the manifest tells about this defense."""
        return _public(self)


@dataclass(frozen=True)
class DPFTRL(Defense):
    """Clipped uploads, each client once an epoch, tree-shared noise on running sums, by a trusted aggregator.

    Attributes
    ----------
    norm : float
        S, largest L2 norm of all that a client uploads in a round, in the units of its rows: 1e-9 to 1e9.
    noise : float
        z, standard deviation of a node over S: 1e-9 to 1e9; 0 adds none, and nothing is proved.
    epoch : int
        B, rounds of a tree, in which each client sends once: 1 to 1,000,000.
    delta : float or None
        At which the account states epsilon, in 0..1, exclusive; None is n_users^-1.1.

    References
    ----------
    P. Kairouz et al., ICML 2021, arXiv:2103.00039, Algorithm 1 and appendix D.
    """

    norm: float = 1.0
    noise: float = 1.0
    epoch: int = 8
    delta: float | None = None
    name: str = "dp-ftrl"
    attackers = ATTACKERS

    def __post_init__(self) -> None:
        require_fields(self, self.name, norm=usable(), noise=usable_or_0(), epoch=whole(1, 1_000_000))
        require_fields(self, self.name, delta=or_none(strictly_between(0, 1)))

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """Rows of the clients whose turn it is, clipped."""
        epoch, turn = divmod(round_, self.epoch)
        return _clipped(
            rows, self.turns(ratings.n_users, epoch, seed) == turn, self.norm, round_, ratings, seed
        )

    def turns(self, n_users: int, epoch: int, seed: int) -> Int[np.ndarray, " users"]:
        """In which round of an epoch each client sends; nobody needs to keep it secret."""
        return generator(seed, Purpose.CENTRAL_SAMPLE, epoch).permutation(n_users) % self.epoch

    def summed(self, arrived: Received, round_: int, seed: int) -> Received:
        """The sums and the growth of the running sum's noise."""
        epoch, turn = divmod(round_, self.epoch)
        for sign, done in ((1, turn + 1), (-1, turn)):
            for level, node in covering(done):
                arrived = _noisy(arrived, sign * self.noise * self.norm, seed, epoch, level, node)
        return arrived

    def account(self, ratings: Ratings, setting: Setting) -> Account:
        """Of one client: a tree for each epoch, which it enters once."""
        from dp_accounting import NeighboringRelation
        from dp_accounting import SingleEpochTreeAggregationDpEvent as Tree

        epochs, left = divmod(setting.n_rounds, self.epoch)
        steps = [self.epoch] * epochs + [left] * (left > 0)

        def composed(delta: float) -> float:
            trees = [Tree(self.noise, count) for count in steps]
            return epsilon_of(trees, NeighboringRelation.REPLACE_SPECIAL, delta)

        seen = "the noisy sums or the models of all rounds, and who takes part"
        how = f"each client once in every {self.epoch}, {len(steps)} trees"
        return _account(self, setting, ratings.n_users, {seen: composed}, how)

    def public(self) -> dict[str, Any]:
        """What the manifest tells about this defense."""
        return _public(self)


def covering(done: int) -> list[tuple[int, int]]:
    """Nodes of the tree, as level and number in it, whose leaves are the first ``done`` rounds.

    Examples
    --------
    >>> covering(6)
    [(1, 2), (2, 0)]
    """
    return [(level, (done >> level) - 1) for level in range(done.bit_length()) if done >> level & 1]


def _clipped(
    rows: Rows, chosen: Bool[np.ndarray, " users"], norm: float, round_: int, ratings: Ratings, seed: int
) -> Rows:
    return Clip(norm).uploaded(taken(rows, np.flatnonzero(chosen[rows.sender])), ratings, round_, seed)


def _noisy(arrived: Received, scale: float, seed: int, *numbers: int) -> Received:
    """Add normal noise to the sums of all items and attributes, whoever sent rows of them."""
    rng = generator(seed, Purpose.CENTRAL_NOISE, *numbers)
    items = arrived.items + scale * rng.standard_normal(arrived.items.shape)
    attributes = arrived.attributes + scale * rng.standard_normal(arrived.attributes.shape)
    return arrived._replace(items=items, attributes=attributes)


def epsilon_of(events: Sequence[Any], relation: Any, delta: float) -> float:
    """Epsilon at delta, by Renyi orders, and by the loss distribution where the library has it."""
    from dp_accounting import ComposedDpEvent, SelfComposedDpEvent, SingleEpochTreeAggregationDpEvent
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    event = ComposedDpEvent([SelfComposedDpEvent(one, events.count(one)) for one in dict.fromkeys(events)])
    tree = isinstance(events[0], SingleEpochTreeAggregationDpEvent)
    # of a sampled mechanism the library's series at orders near 1 do not converge
    found = RdpAccountant([*(NEAR_1 if tree else ()), *ORDERS], relation).compose(event).get_epsilon(delta)
    exact = PLDAccountant(relation, max(float(found) * FINEST, 1e-4))
    if found < MOST and exact.supports(event):
        found = min(found, exact.compose(event).get_epsilon(delta))
    return float(found)


def _account(
    defense: DPFedAvg | DPFTRL,
    setting: Setting,
    n_users: int,
    views: Mapping[str, Callable[[float], float]],
    how: str,
) -> Account:
    """The smallest epsilon of each view that is proved, and that there is none of single uploads."""
    title = f"Privacy account of {defense.name}, {setting.text}"
    why = CENTRAL.gap(setting)
    if not why and setting.options.get("upload") == "weights":
        why = "upload=weights has the server count the clients of each item, to which no noise is added"
    if not why and setting.defenses[-1:] != (defense.name,):
        why = f"what {setting.defenses[-1]} does to clipped rows is not bounded; name it before"
    if not why and defense.noise == 0:
        why = "there is no noise (noise=0), and so no finite epsilon"
    if why:
        return Account(title, unproved=f"nothing is proved: {why}", not_hidden=REPEATED[1:])
    delta = n_users**-1.1 if defense.delta is None else defense.delta
    said = f"{setting.n_rounds:,} rounds from round 0 on, {how}, noise {defense.noise:g} times the norm"
    lines = []
    for seen, spent in views.items():
        lines.append(Line(f"one client; whoever sees {seen}", float("inf"), spent(delta), delta, said))
    nothing, why = float("nan"), "it sees each upload clipped, and without noise"
    server = Line("one client; the server or whoever sees uploads", nothing, nothing, delta, why)
    return Account(title, (*lines, server), claims=(NEIGHBOURS, ASSUMED, NOT_COUNTED))


def _public(defense: DPFedAvg | DPFTRL) -> dict[str, Any]:
    """What everybody knows: all but when epsilon is stated."""
    return {one.name: getattr(defense, one.name) for one in fields(defense) if one.name != "delta"}
