"""FedMVMF: federated multi-view matrix factorisation of explicit ratings.

Paper 000: P. Mai, Y. Pang, "PrivMVMF: Privacy-Preserving Multi-View Matrix Factorization for
Recommender Systems", sections 3.2-3.3, Algorithm 1, after A. Flanagan et al., arXiv:2004.04256.

=============  =====================================================================================
p_i, P         client factors                          ``client_factors``  (n_users, K)
q_j, Q         item factors                            ``item_factors``  (n_items, K)
u_a, U         attribute factors                       ``attribute_factors``  (n_attributes, K)
v_y, V         item-feature factors                    ``feature_factors``  (n_item_features, K)
c_ij           1 where rated; unrated: absent (observed-only) or alpha (include-unrated)
lambda 1, 2    ``lambda_attributes``, ``lambda_factors``
gamma          ``server_learning_rate`` (Adam on Q and U) and ``client_learning_rate`` (SGD on P, V)
=============  =====================================================================================

Three parties: clients hold ratings, attributes and P; the server holds Q and U; the item server holds
the item features and V. Equations as corrected: lambda 1 in (5) and (13), the sum over j in (10).

The server sees every row f(i,j) = c_ij (r_ij - p_i q_j) p_i and f(i,a) = (x_ia - p_i u_a) p_i with its
sender, what the item server sends, and knows Q, U, the weighting, alpha and the constants. The item server
and every client receive Q and U: their first step, and it alone without further work, tells the sums of the
rows of round 0, to clients in sgd only where they know the item server's part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from victims.common.errors import InputError
from victims.common.seeds import Purpose, jax_key
from victims.common.validation import (
    above,
    at_least,
    between,
    in_half_open,
    one_of,
    require_fields,
    strictly_between,
)
from victims.data.ratings import Ratings
from victims.protocols.base import Attacker, Centralised, Received, Rows, Sample, pieces
from victims.protocols.jax_ratings import Data, sampled_data
from victims.transcript.manifest import Manifest
from victims.transcript.view import ATTRIBUTE, ITEM

jax.config.update("jax_enable_x64", True)


class State(NamedTuple):
    """Everything that is carried from one round to the next."""

    round: Int[Array, ""]
    item_factors: Float[Array, "items K"]
    attribute_factors: Float[Array, "attributes K"]
    feature_factors: Float[Array, "features K"]
    client_factors: Float[Array, "users K"]
    adam: optax.OptState


@dataclass(frozen=True)
class FedMVMF:
    """Hyper-parameters; the defaults are Table 2 of the paper where it gives them.

    Attributes
    ----------
    update : "semi-als" or "sgd"
        Clients solve (8) exactly or take one gradient step (9), (10) per round.
    weighting : "observed-only" or "include-unrated"
        Upload rows of rated items only, or of all items with weight ``alpha`` on unrated ones.
    factors : int
        K, >= 1.
    lambda_attributes, lambda_factors : float
        >= 0; ``lambda_factors`` > 0 for semi-als with clients of few rows.
    alpha : float
        Weight of unrated items, 0 < alpha < 1.
    server_learning_rate : float
        Step of Adam, > 0.
    beta_1, beta_2, epsilon : float
        Adam's constants.
    client_learning_rate : float
        Step of SGD, > 0. The paper does not give it; its server rate 0.05 makes 1 - 2 gamma lambda 2
        zero and diverges on real users.
    init_scale : float
        Standard deviation of the start factors, > 0.
    """

    update: Literal["semi-als", "sgd"] = "semi-als"
    weighting: Literal["observed-only", "include-unrated"] = "observed-only"
    factors: int = 6
    lambda_attributes: float = 1.0
    lambda_factors: float = 10.0
    alpha: float = 0.1
    server_learning_rate: float = 0.05
    beta_1: float = 0.5
    beta_2: float = 0.99
    epsilon: float = 1e-8
    client_learning_rate: float = 2e-4
    init_scale: float = 0.1

    def __post_init__(self) -> None:
        require_fields(
            self,
            "fedmvmf",
            update=one_of("semi-als", "sgd"),
            weighting=one_of("observed-only", "include-unrated"),
            factors=between(1, 4096),
            lambda_attributes=at_least(0),
            lambda_factors=at_least(0),
            alpha=strictly_between(0, 1),
            server_learning_rate=above(0),
            beta_1=in_half_open(0, 1),
            beta_2=in_half_open(0, 1),
            epsilon=above(0),
            client_learning_rate=above(0),
            init_scale=above(0),
        )

    @property
    def blind_server(self) -> bool:
        """Adam needs the sums in the clear, and the server knows Q and U."""
        return False

    @property
    def attackers(self) -> tuple[Attacker, ...]:
        """The closed form, and the paper's own procedure."""
        return (Attacker("spectral", 2), Attacker("root-hybr", 2))

    @property
    def stepwise(self) -> bool:
        """The server steps once a round, on sums."""
        return False

    @property
    def centralised(self) -> Centralised:
        """Ratings alone, both sides with the clients' regularization; unrated items where they take part."""
        weight = self.alpha if self.weighting == "include-unrated" else 0.0
        return Centralised(self.factors, self.lambda_factors, weight)

    @property
    def factor_bound(self) -> float | None:
        """Nothing bounds a client's factor."""
        return None

    def init(self, ratings: Ratings, seed: int) -> State:
        """Draw all factors from N(0, ``init_scale``)."""
        rows = (
            ratings.n_items,
            ratings.n_attributes,
            ratings.item_features.shape[1],
            ratings.n_users,
        )
        keys = (jax_key(seed, Purpose.FEDMVMF_START, part) for part in range(len(rows)))
        items, attributes, features, clients = (
            self.init_scale * jax.random.normal(key, (n, self.factors), jnp.float64)
            for key, n in zip(keys, rows, strict=True)
        )
        adam = _optimizer(self).init((items, attributes))
        return State(jnp.asarray(0), items, attributes, features, clients, adam)

    def round(
        self,
        state: State,
        ratings: Ratings,
        received: Received | None = None,
        sample: Sample | None = None,
    ) -> State:
        """One round of Algorithm 1; the server uses the sums ``received`` instead of exact ones.

        Raises
        ------
        InputError
            If a factor is no longer finite.
        """
        data = self._data(ratings, sample)
        state = _round(self, state, data, received, sample is not None)
        if not bool(jnp.isfinite(state.item_factors).all() & jnp.isfinite(state.client_factors).all()):
            raise InputError(
                f"fedmvmf diverged in round {int(state.round) - 1}: factors must stay finite; lower "
                f"client_learning_rate (now {self.client_learning_rate:g}) or server_learning_rate "
                f"(now {self.server_learning_rate:g})"
            )
        return state

    def broadcast(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Q and U as the clients receive them."""
        return np.asarray(state.item_factors), np.asarray(state.attribute_factors)

    def _data(self, ratings: Ratings, sample: Sample | None) -> Data:
        if sample is not None and self.weighting != "include-unrated":
            raise InputError(
                "weighting of fedmvmf must be include-unrated where unrated items are sampled, for they have "
                f"the weight alpha; got {self.weighting}"
            )
        return sampled_data(ratings, sample, self.alpha)

    def user_factors(self, state: State, ratings: Ratings, sample: Sample | None = None) -> np.ndarray:
        """P as it is used in this round."""
        data = self._data(ratings, sample)
        return np.asarray(_client_factors(self, state, data, sample is not None))

    def new_clients(
        self, state: State, attributes: Float[np.ndarray, "users attributes"]
    ) -> Float[np.ndarray, "users K"]:
        """Factors of clients without ratings from their attributes, Eq. (15)."""
        return self._folded_in(np.asarray(state.attribute_factors), attributes)

    def new_items(
        self, state: State, features: Float[np.ndarray, "items features"]
    ) -> Float[np.ndarray, "items K"]:
        """Factors of items without ratings from their features, Eq. (17)."""
        return self._folded_in(np.asarray(state.feature_factors), features)

    def _folded_in(self, sides: np.ndarray, known: np.ndarray) -> np.ndarray:
        """Ridge regression of known columns on their factors; (14) and (16) must regularise p and q."""
        ridge = self.lambda_factors / max(self.lambda_attributes, 1e-12)
        return np.linalg.solve(sides.T @ sides + ridge * np.eye(self.factors), sides.T @ known.T).T

    def uploads(
        self, state: State, ratings: Ratings, users: np.ndarray, sample: Sample | None = None
    ) -> Iterator[Rows]:
        """Rows of the given clients: items ascending, then attributes."""
        items, attributes = self.broadcast(state)
        clients = self.user_factors(state, ratings, sample)
        if self.weighting == "include-unrated" and sample is None:
            counts = np.full(users.size, ratings.n_items + ratings.n_attributes)
            for part in pieces(users, counts, self.factors):
                yield _dense_rows(self, ratings, part, clients[part], items, attributes)
            return
        data = self._data(ratings, sample)
        entries = _Entries(*(np.asarray(part) for part in (data.user, data.item, data.value, data.weight)))
        counts = np.bincount(entries.user, minlength=ratings.n_users)[users] + ratings.n_attributes
        for part in pieces(users, counts, self.factors):
            yield _sparse_rows(self, entries, ratings.attributes, part, clients[part], items, attributes)

    def item_server_rows(self, state: State, ratings: Ratings) -> Float[np.ndarray, "items K"]:
        """sum_y (y_jy - v_y . q_j) v_y of every item, with which the item server takes part in the step."""
        known = jnp.asarray(ratings.item_features)
        features = _feature_factors(self, state, known)
        return np.asarray((known - state.item_factors @ features.T) @ features)

    def manifest(self, ratings: Ratings, rounds: list[int]) -> Manifest:
        """Everything a participant of the protocol knows."""
        constants = {
            "lambda_attributes": self.lambda_attributes,
            "lambda_factors": self.lambda_factors,
            "server_learning_rate": self.server_learning_rate,
            "adam_epsilon": self.epsilon,
        }
        if self.weighting == "include-unrated":
            constants["alpha"] = self.alpha
        if self.update == "sgd":
            constants["client_learning_rate"] = self.client_learning_rate
        return Manifest(
            format="factorleak-transcript",
            version=1,
            protocol="fedmvmf",
            update=self.update,
            weighting=self.weighting,
            n_users=ratings.n_users,
            n_items=ratings.n_items,
            n_attributes=ratings.n_attributes,
            factors=self.factors,
            rounds=rounds,
            hyperparameters=constants,
            rating_levels=list(ratings.levels),
            attribute_groups=[list(group) for group in ratings.attribute_groups],
            item_features=_named_features(ratings),
            parties={"server": -1, "item_server": -2},
            adversary="all",
            recorded_by="factorleak",
        )


def _named_features(ratings: Ratings) -> list[list[int]] | None:
    """Genres and decades are public; principal components have no names."""
    table = ratings.item_features
    if not np.isin(table, (0, 1)).all():
        return None
    return [np.flatnonzero(row).tolist() for row in table]


def _optimizer(victim: FedMVMF) -> optax.GradientTransformation:
    return optax.adam(victim.server_learning_rate, b1=victim.beta_1, b2=victim.beta_2, eps=victim.epsilon)


def _unrated_weight(victim: FedMVMF, sampled: bool) -> float:
    """Weight of all unrated items at once; sampled ones have theirs in the data."""
    return victim.alpha if victim.weighting == "include-unrated" and not sampled else 0.0


def _client_factors(
    victim: FedMVMF, state: State, data: Data, sampled: bool = False
) -> Float[Array, "users K"]:
    if victim.update == "sgd":
        return state.client_factors
    return _solve_clients(victim, sampled, state.item_factors, state.attribute_factors, data)


@partial(jax.jit, static_argnums=(0, 1))
def _solve_clients(
    victim: FedMVMF,
    sampled: bool,
    items: Float[Array, "items K"],
    attributes: Float[Array, "attributes K"],
    data: Data,
) -> Float[Array, "users K"]:
    """Eq. (8). Q'CQ = alpha Q'Q + (1 - alpha) sum over rated items of q q', so that unrated items
    cost nothing per user; only the upper triangle is summed."""
    n_users, k = data.attributes.shape[0], victim.factors
    upper = jnp.triu_indices(k)
    rated = items[data.item]
    alpha = _unrated_weight(victim, sampled)
    weighted = data.weight[:, None] * rated
    gram = jax.ops.segment_sum(
        weighted[:, upper[0]] * rated[:, upper[1]], data.user, n_users, indices_are_sorted=True
    )
    square = jnp.zeros((n_users, k, k)).at[:, upper[0], upper[1]].set((1 - alpha) * gram)
    square = square.at[:, upper[1], upper[0]].set((1 - alpha) * gram)
    common = alpha * items.T @ items + victim.lambda_attributes * attributes.T @ attributes
    right = jax.ops.segment_sum(data.value[:, None] * rated, data.user, n_users, indices_are_sorted=True)
    right += victim.lambda_attributes * data.attributes @ attributes
    square = square + common + victim.lambda_factors * jnp.eye(k)
    return jnp.linalg.solve(square, right[..., None])[..., 0]


def _feature_factors(
    victim: FedMVMF, state: State, known: Float[Array, "items features"]
) -> Float[Array, "features K"]:
    """V as this round uses it: Eq. (11) in semi-als."""
    items = state.item_factors
    if victim.update == "sgd" or not known.shape[1]:
        return state.feature_factors
    ridge = victim.lambda_factors / jnp.maximum(victim.lambda_attributes, 1e-12)
    square = items.T @ items + ridge * jnp.eye(victim.factors)
    return jnp.linalg.solve(square, items.T @ known).T


@partial(jax.jit, static_argnums=(0, 4))
def _round(
    victim: FedMVMF, state: State, data: Data, received: Received | None, sampled: bool = False
) -> State:
    items, attributes = state.item_factors, state.attribute_factors
    clients = _client_factors(victim, state, data, sampled)
    alpha = _unrated_weight(victim, sampled)
    rated_items, raters = items[data.item], clients[data.user]
    # c e over all items = alpha (0 - p q) everywhere + (r - (1 - alpha) p q) where rated
    excess = data.weight * (data.value - (1 - alpha) * jnp.sum(rated_items * raters, axis=1))
    residual = data.attributes - clients @ attributes.T
    to_items = jax.ops.segment_sum(excess[:, None] * raters, data.item, items.shape[0])
    to_items -= alpha * items @ (clients.T @ clients)
    to_attributes = residual.T @ clients
    if received is not None:
        to_items, to_attributes = jnp.asarray(received.items), jnp.asarray(received.attributes)

    features = _feature_factors(victim, state, data.item_features)
    misfit = data.item_features - items @ features.T
    item_gradient = (
        -2 * to_items - 2 * victim.lambda_attributes * misfit @ features + 2 * victim.lambda_factors * items
    )
    attribute_gradient = (
        -2 * victim.lambda_attributes * to_attributes + 2 * victim.lambda_factors * attributes
    )
    step, adam = _optimizer(victim).update((item_gradient, attribute_gradient), state.adam)
    new_items, new_attributes = optax.apply_updates((items, attributes), step)

    if victim.update == "sgd":  # Eq. (9), (10) for P and (12), (13) for V
        rate = victim.client_learning_rate
        ascent = jax.ops.segment_sum(
            excess[:, None] * rated_items, data.user, clients.shape[0], indices_are_sorted=True
        )
        ascent -= alpha * clients @ (items.T @ items)
        ascent += victim.lambda_attributes * residual @ attributes
        clients = (1 - 2 * rate * victim.lambda_factors) * clients + 2 * rate * ascent
        features = (1 - 2 * rate * victim.lambda_factors) * features
        features += 2 * rate * victim.lambda_attributes * misfit.T @ items
    return State(state.round + 1, new_items, new_attributes, features, clients, adam)


class _Entries(NamedTuple):
    """What clients upload rows of: ratings and sampled unrated items, grouped by user."""

    user: Int[np.ndarray, " entries"]
    item: Int[np.ndarray, " entries"]
    value: Float[np.ndarray, " entries"]
    weight: Float[np.ndarray, " entries"]


def _sparse_rows(
    victim: FedMVMF,
    entries: _Entries,
    all_attributes: np.ndarray,
    users: np.ndarray,
    clients: np.ndarray,
    items: np.ndarray,
    attributes: np.ndarray,
) -> Rows:
    """Rows of listed items and all attributes of some clients (Eq. 18, 36)."""
    n_attributes = attributes.shape[0]
    first, last = (np.searchsorted(entries.user, users, side=side) for side in ("left", "right"))
    listed = last - first
    length = listed + n_attributes
    client = np.repeat(np.arange(users.size), length)
    slot = np.arange(client.size) - np.repeat(np.cumsum(length) - length, length)
    is_item = slot < listed[client]
    entry = (first[client] + slot)[is_item]
    index = np.empty(client.size, np.int32)
    index[is_item] = entries.item[entry]
    index[~is_item] = (slot - listed[client])[~is_item]
    target, weight = np.empty(client.size), np.ones(client.size)
    target[is_item], weight[is_item] = entries.value[entry], entries.weight[entry]
    target[~is_item] = all_attributes[users[client[~is_item]], index[~is_item]]
    row_factors = np.empty((client.size, victim.factors))
    row_factors[is_item] = items[index[is_item]]
    row_factors[~is_item] = attributes[index[~is_item]]
    p = clients[client]
    error = weight * (target - np.einsum("rk,rk->r", p, row_factors))
    kind = np.where(is_item, ITEM, ATTRIBUTE).astype(np.int8)
    return Rows(users[client].astype(np.int32), kind, index, error[:, None] * p)


def _dense_rows(
    victim: FedMVMF,
    ratings: Ratings,
    users: np.ndarray,
    clients: np.ndarray,
    items: np.ndarray,
    attributes: np.ndarray,
) -> Rows:
    """Rows of all items and all attributes of some clients (Eq. 22)."""
    n_items, n_attributes = items.shape[0], attributes.shape[0]
    target = np.zeros((users.size, n_items + n_attributes))
    target[:, :n_items] = ratings.matrix()[users].toarray()
    weight = np.where(target > 0, 1.0, victim.alpha)
    weight[:, n_items:] = 1.0
    target[:, n_items:] = ratings.attributes[users]
    error = weight * (target - clients @ np.concatenate([items, attributes]).T)
    gradient = error[:, :, None] * clients[:, None, :]
    kind = np.repeat(np.array([ITEM, ATTRIBUTE], np.int8), [n_items, n_attributes])
    index = np.concatenate([np.arange(n, dtype=np.int32) for n in (n_items, n_attributes)])
    return Rows(
        np.repeat(users.astype(np.int32), n_items + n_attributes),
        np.tile(kind, users.size),
        np.tile(index, users.size),
        gradient.reshape(-1, victim.factors),
    )
