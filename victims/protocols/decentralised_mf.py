"""Matrix factorisation with clients on the unit ball; with defenses it is HDPMF and its family.

Paper 002: W. Hu, H. Fang, "Decentralized Matrix Factorization with Heterogeneous Differential Privacy",
2022, arXiv:2212.00306, section 4, Algorithm 1. In spite of its title all clients upload to one recommender.

=============  =====================================================================================
u_i, U         client factors, kept within the unit ball   ``client_factors``  (n_users, K)
v_j, V         item factors                                ``item_factors``  (n_items, K)
eta, lambda    ``learning_rate`` (divided by 5 after a quarter and after three quarters of ``epochs``),
               ``regularization``, which counts once per rating
=============  =====================================================================================

Client i uploads 2 (u_i . v_j - r_ij) u_i for each of its items, Eq. (4); the recommender steps with v_j, and
the client then steps with u_i and projects it to the unit ball. Defenses make the family of it:
``stretching`` and ``objective-noise`` HDPMF, ``personalized-sampling`` and ``objective-noise`` PDPMF, noise
for the smallest budget the method of Hua et al.; none of them MF.

V of every round goes to every client, and in the order batch it moves by the sums of the uploads: who is
alone on an item shows its upload to all others, unless noise covers it.

Two orders. ``batch`` is Algorithm 1: all uploads of an epoch are computed from the same V, added up, and then
all clients step with the new V. ``per-rating`` goes through the ratings in random order, first with a step
of v_j for each, then with a step of u_i for each: the published numbers need it. Its recommender sees each
upload against a v_j that it has just changed, for which a transcript of version 1 has no place, so it
can be trained and measured, but not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from victims.common.errors import InputError
from victims.common.seeds import Purpose, jax_key
from victims.common.validation import above, at_least, between, one_of, require_fields
from victims.data.ratings import Ratings
from victims.protocols.base import Attacker, Centralised, Received, Rows, Sample, pieces
from victims.protocols.decentralised_mf_steps import State, projected, step_at_once, step_one_by_one
from victims.protocols.jax_ratings import device_data
from victims.transcript.manifest import Manifest, Upload
from victims.transcript.view import ITEM

jax.config.update("jax_enable_x64", True)
DROP = 5.0
DROPS = (0.25, 0.75)  # of the epochs


@dataclass(frozen=True)
class DecentralisedMF:
    """Hyper-parameters; Table 3 of the paper needs order=per-rating and learning_rate=0.005.

    Attributes
    ----------
    update, weighting : str
        "sgd" and "observed-only", the only ones of this protocol.
    order : "batch" or "per-rating"
    factors : int
        K, >= 1.
    learning_rate : float
        > 0. In the order batch the steps of all raters of an item add up, so that it must be smaller than in
        the order per-rating.
    epochs : int
        Length of the schedule of learning rates, >= 1.
    regularization : float
        >= 0.
    init_scale : float
        Standard deviation of the start factors, > 0.

    References
    ----------
    Paper 002, W. Hu, H. Fang, "Decentralized Matrix Factorization with Heterogeneous Differential Privacy",
    arXiv:2212.00306, section 4, Algorithm 1.
    """

    update: Literal["sgd"] = "sgd"
    weighting: Literal["observed-only"] = "observed-only"
    order: Literal["batch", "per-rating"] = "batch"
    factors: int = 10
    learning_rate: float = 0.001
    epochs: int = 100
    regularization: float = 0.01
    init_scale: float = 0.1

    def __post_init__(self) -> None:
        require_fields(
            self,
            "decentralised_mf",
            update=one_of("sgd"),
            weighting=one_of("observed-only"),
            order=one_of("batch", "per-rating"),
            factors=between(1, 4096),
            learning_rate=above(0),
            epochs=between(1, 1_000_000),
            regularization=at_least(0),
            init_scale=above(0),
        )

    @property
    def blind_server(self) -> bool:
        """The recommender knows V."""
        return False

    @property
    def attackers(self) -> tuple[Attacker, ...]:
        """The closed form, the rating grid, the clients' trajectory, what V gives away, the lists."""
        return (
            Attacker("spectral", 2),
            Attacker("grid"),
            Attacker("trajectory", 2),
            Attacker("aggregate", 2),
            Attacker("rated-set", 2),
        )

    @property
    def stepwise(self) -> bool:
        """Whether v_j changes with every upload."""
        return self.order == "per-rating"

    @property
    def has_item_server(self) -> bool:
        """There are two parties."""
        return False

    @property
    def folds_in(self) -> bool:
        """It knows ratings alone."""
        return False

    @property
    def centralised(self) -> Centralised:
        """The regularization counts once per rating; clients are not kept on the unit ball."""
        return Centralised(self.factors, self.regularization, per_rating=True)

    def rate(self, round_: int) -> float:
        """The learning rate of a round."""
        passed = sum(round_ >= share * self.epochs for share in DROPS)
        return self.learning_rate / DROP**passed

    @property
    def factor_bound(self) -> float | None:
        """Clients project their factor onto the unit ball."""
        return 1.0

    def init(self, ratings: Ratings, seed: int) -> State:
        """Start factors."""
        shapes = (ratings.n_items, self.factors), (ratings.n_users, self.factors)
        items, clients = (
            self.init_scale * jax.random.normal(jax_key(seed, Purpose.MF_START, table), shape, jnp.float64)
            for table, shape in enumerate(shapes)
        )
        return State(0, seed, items, projected(clients))

    def round(
        self,
        state: State,
        ratings: Ratings,
        received: Received | None = None,
        sample: Sample | None = None,
    ) -> State:
        """One epoch; the recommender uses the sums ``received`` instead of exact ones.

        Raises
        ------
        InputError
            If a factor is no longer finite.
        """
        _refuse(sample)
        rate, data = self.rate(state.round), device_data(ratings)
        if self.stepwise:
            items, clients = step_one_by_one(state, ratings, data, rate, self.regularization, received)
        else:
            sums = None if received is None else jnp.asarray(received.items)
            items, clients = step_at_once(
                state.item_factors, state.client_factors, data, rate, self.regularization, sums
            )
        if not bool(jnp.isfinite(items).all() & jnp.isfinite(clients).all()):
            raise InputError(
                f"decentralised_mf diverged in round {state.round}: factors must stay finite; lower "
                f"learning_rate (now {self.learning_rate:g})"
                + ("" if self.stepwise else ", for the steps of all raters of an item add up")
            )
        return State(state.round + 1, state.seed, items, clients)

    def broadcast(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """V as the clients receive it; there are no attributes."""
        return np.asarray(state.item_factors), np.zeros((0, self.factors))

    def user_factors(self, state: State, ratings: Ratings, sample: Sample | None = None) -> np.ndarray:
        """U as it is used in this round."""
        return np.asarray(state.client_factors)

    def uploads(
        self, state: State, ratings: Ratings, users: np.ndarray, sample: Sample | None = None
    ) -> Iterator[Rows]:
        """Rows of the given clients, items ascending.

        Raises
        ------
        InputError
            In the order per-rating.
        """
        _refuse(sample)
        if self.stepwise:
            raise InputError(
                "order of decentralised_mf must be batch in a recording, for in per-rating v_j changes "
                "between the uploads of one round; use --set order=batch"
            )
        counts = np.diff(ratings.indptr)[users]
        items, clients = self.broadcast(state)[0], self.user_factors(state, ratings)
        for piece in pieces(users, counts, self.factors):
            chosen = np.isin(ratings.users, piece) if piece.size < ratings.n_users else slice(None)
            sender, index = ratings.users[chosen], ratings.items[chosen]
            u = clients[sender]
            error = np.einsum("rk,rk->r", u, items[index]) - ratings.values[chosen]
            u *= 2 * error[:, None]
            yield Rows(sender, np.full(sender.size, ITEM, np.int8), index, u)

    def manifest(self, ratings: Ratings, rounds: list[int]) -> Manifest:
        """Everything a participant of the protocol knows."""
        return Manifest(
            format="factorleak-transcript",
            version=1,
            protocol="mf",
            update=self.update,
            weighting=self.weighting,
            n_users=ratings.n_users,
            n_items=ratings.n_items,
            n_attributes=0,
            factors=self.factors,
            rounds=rounds,
            hyperparameters={
                "learning_rate": self.learning_rate,
                "epochs": self.epochs,
                "regularization": self.regularization,
            },
            upload=Upload(scale=-2.0),
            rating_levels=list(ratings.levels),
            attribute_groups=[],
            parties={"server": -1},
            adversary="all",
            recorded_by="factorleak",
        )


def _refuse(sample: Sample | None) -> None:
    if sample is not None:
        raise InputError("decentralised_mf has no weight for unrated items, so they must not be sampled")
