"""FedMVMF: federated multi-view matrix factorisation of explicit ratings.

P. Mai, Y. Pang, "PrivMVMF: Privacy-Preserving Multi-View Matrix Factorization for
Recommender Systems", arXiv:2210.07775, sections 3.2-3.3, Algorithm 1, after
A. Flanagan et al., arXiv:2004.04256.

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

Under switches, attributes are part of a step over all ratings, and a last step of their own where clients
step by minibatches; clients in semi-als solve for their factor, so that their steps have no switches.

A round is bound by its sums over ratings, which are products of sparse matrices: as a compressed matrix the
entries are read once, in order, and what is added to lies in the caches; a scatter of one row per entry,
which XLA makes of a segment sum on processors, took twenty times as long on ML-1M.
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
import scipy.sparse as sp
from jaxtyping import Array, Float, Int

from victims.common.limits import are_plausible, diverged
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
from victims.protocols.base import Attacker, Capabilities, Centralised, Received, Rows, Sample, pieces
from victims.protocols.exchanged import ranges
from victims.protocols.jax_ratings import Data, all_data, sampled_data
from victims.protocols.local_training import (
    Biases,
    ClientStep,
    Task,
    after_round,
    rows_of_round,
    start_biases,
    task_of,
)
from victims.protocols.switches import (
    READERS,
    Switches,
    check_switches,
    declared,
    published_manifest,
    refuse,
)
from victims.transcript.kinds import ATTRIBUTE, ITEM
from victims.transcript.manifest import Manifest

jax.config.update("jax_enable_x64", True)

COLUMN_BYTES = 1 << 26  # of the products of factors that are formed at a time


class Constants(NamedTuple):
    """The hyper-parameters that a round reads; ``fedmvmf.FedMVMF`` explains them."""

    update: Literal["semi-als", "sgd"]
    weighting: Literal["observed-only", "include-unrated"]
    factors: int
    lambda_attributes: float
    lambda_factors: float
    alpha: float
    server_learning_rate: float
    beta_1: float
    beta_2: float
    epsilon: float
    client_learning_rate: float


class State(NamedTuple):
    """Everything that is carried from one round to the next."""

    round: Int[Array, ""]
    item_factors: Float[Array, "items K"]
    attribute_factors: Float[Array, "attributes K"]
    feature_factors: Float[Array, "features K"]
    client_factors: Float[Array, "users K"]
    adam: optax.OptState
    seed: Int[Array, ""]
    biases: Biases | None = None


def optimizer(constants: Constants) -> optax.GradientTransformation:
    """Make the Adam with which the server steps."""
    return optax.adam(
        constants.server_learning_rate, b1=constants.beta_1, b2=constants.beta_2, eps=constants.epsilon
    )


def _unrated_weight(constants: Constants, sampled: bool) -> float:
    """Weight of all unrated items at once; sampled ones have theirs in the data."""
    return constants.alpha if constants.weighting == "include-unrated" and not sampled else 0.0


def client_factors(
    constants: Constants, state: State, data: Data, sampled: bool = False
) -> Float[Array, "users K"]:
    """Compute P as this round uses it: Eq. (8) in semi-als; in sgd it stays that of the state."""
    if constants.update == "sgd":
        return state.client_factors
    return _solve_clients(constants, sampled, state.item_factors, state.attribute_factors, data)


def _solve_clients(
    constants: Constants,
    sampled: bool,
    items: Float[Array, "items K"],
    attributes: Float[Array, "attributes K"],
    data: Data,
) -> Float[Array, "users K"]:
    """Eq. (8), with what it sums over entries formed first."""
    gram, right = normal_equations(data, np.asarray(items))
    return _solved(constants, sampled, items, attributes, data.attributes, gram, right)


@partial(jax.jit, static_argnums=(0, 1))
def _solved(
    constants: Constants,
    sampled: bool,
    items: Float[Array, "items K"],
    attributes: Float[Array, "attributes K"],
    clients_attributes: Float[Array, "users attributes"],
    gram: Float[Array, "users pairs"],
    right: Float[Array, "users K"],
) -> Float[Array, "users K"]:
    """Eq. (8). Q'CQ = alpha Q'Q + (1 - alpha) sum over rated items of q q', so that unrated items
    cost nothing per user; of that sum only the upper triangle is given.
    """
    n_users, k = right.shape
    upper = jnp.triu_indices(k)
    alpha = _unrated_weight(constants, sampled)
    square = jnp.zeros((n_users, k, k)).at[:, upper[0], upper[1]].set((1 - alpha) * gram)
    square = square.at[:, upper[1], upper[0]].set((1 - alpha) * gram)
    common = alpha * items.T @ items + constants.lambda_attributes * attributes.T @ attributes
    right += constants.lambda_attributes * clients_attributes @ attributes
    square = square + common + constants.lambda_factors * jnp.eye(k)
    return jnp.linalg.solve(square, right[..., None])[..., 0]


def feature_factors(
    constants: Constants, state: State, table: Float[Array, "items features"]
) -> Float[Array, "features K"]:
    """Compute V as this round uses it: Eq. (11) in semi-als; in sgd it stays that of the state.

    It stays, too, where items have no features.
    """
    if constants.update == "sgd" or not table.shape[1]:
        return state.feature_factors
    ridge = constants.lambda_factors / max(constants.lambda_attributes, 1e-12)
    return _solved_features(ridge, state.item_factors, table)


@jax.jit
def _solved_features(
    ridge: float | Array, items: Float[Array, "items K"], table: Float[Array, "items features"]
) -> Float[Array, "features K"]:
    square = items.T @ items + ridge * jnp.eye(items.shape[1])
    return jnp.linalg.solve(square, items.T @ table).T


def round_step(
    constants: Constants, state: State, data: Data, received: Received | None, sampled: bool = False
) -> State:
    """Compute the state after one round of Algorithm 1."""
    clients = client_factors(constants, state, data, sampled)
    items, to_clients = state.item_factors, None
    to_items = received.items if received is not None else None
    if to_items is None or constants.update == "sgd":
        excess = weighted_errors(items, clients, data, _unrated_weight(constants, sampled))
        if to_items is None:
            to_items = summed_by_item(data, excess, np.asarray(clients), items.shape[0])
        if constants.update == "sgd":
            to_clients = summed_by_user(data, excess, np.asarray(items))
    features = feature_factors(constants, state, data.item_features)
    tables = data.attributes, data.item_features
    arrived = received.attributes if received is not None else None
    return _stepped(constants, sampled, state, clients, features, tables, to_items, to_clients, arrived)


@partial(jax.jit, static_argnums=(0, 1))
def _stepped(
    constants: Constants,
    sampled: bool,
    state: State,
    clients: Float[Array, "users K"],
    features: Float[Array, "features K"],
    tables: tuple[Float[Array, "users attributes"], Float[Array, "items features"]],
    to_items: Float[Array, "items K"],
    to_clients: Float[Array, "users K"] | None,
    arrived: Float[Array, "attributes K"] | None,
) -> State:
    """The steps of all parties, given the sums over entries, and over attributes where those arrived."""
    items, attributes = state.item_factors, state.attribute_factors
    alpha = _unrated_weight(constants, sampled)
    residual = tables[0] - clients @ attributes.T
    to_attributes = residual.T @ clients
    if arrived is None:
        to_items -= alpha * items @ (clients.T @ clients)
    else:
        to_attributes = arrived

    misfit = tables[1] - items @ features.T
    item_gradient = (
        -2 * to_items
        - 2 * constants.lambda_attributes * misfit @ features
        + 2 * constants.lambda_factors * items
    )
    attribute_gradient = (
        -2 * constants.lambda_attributes * to_attributes + 2 * constants.lambda_factors * attributes
    )
    step, adam = optimizer(constants).update((item_gradient, attribute_gradient), state.adam)
    new_items, new_attributes = optax.apply_updates((items, attributes), step)

    if to_clients is not None:  # sgd: Eq. (9), (10) for P and (12), (13) for V
        rate = constants.client_learning_rate
        ascent = to_clients - alpha * clients @ (items.T @ items)
        ascent += constants.lambda_attributes * residual @ attributes
        clients = (1 - 2 * rate * constants.lambda_factors) * clients + 2 * rate * ascent
        features = (1 - 2 * rate * constants.lambda_factors) * features
        features += 2 * rate * constants.lambda_attributes * misfit.T @ items
    return state._replace(
        round=state.round + 1,
        item_factors=new_items,
        attribute_factors=new_attributes,
        feature_factors=features,
        client_factors=clients,
        adam=adam,
    )


def normal_equations(
    data: Data, items: Float[np.ndarray, "items K"]
) -> tuple[Float[np.ndarray, "users pairs"], Float[np.ndarray, "users K"]]:
    """Sum c q q' and c r q over the entries of each client (Eq. (8))."""
    n_items, k = items.shape
    weights = _matrix(data, data.weight, n_items)
    first, second = np.triu_indices(k)
    gram = np.empty((data.start.size - 1, first.size))
    width = max(1, COLUMN_BYTES // (8 * max(n_items, 1)))
    for start in range(0, first.size, width):
        some = slice(start, start + width)
        gram[:, some] = weights @ (items[:, first[some]] * items[:, second[some]])
    return gram, _matrix(data, data.value, n_items) @ items


@partial(jax.jit, static_argnums=3)
def weighted_errors(
    items: Float[Array, "items K"], clients: Float[Array, "users K"], data: Data, alpha: float
) -> Float[Array, " entries"]:
    """Compute c e of every entry, without its part of the sum over all items (Algorithm 1).

    c e over all items = alpha (0 - p . q) everywhere + (r - (1 - alpha) p . q) where rated.
    """
    by_item, by_user = items.T, clients.T

    def added(factor: Array, predicted: Array) -> Array:
        return predicted + by_item[factor][data.item] * by_user[factor][data.user]

    predicted = jax.lax.fori_loop(0, items.shape[1], added, jnp.zeros(data.value.shape))
    return data.weight * (data.value - (1 - alpha) * predicted)


def summed_by_item(
    data: Data, values: Float[Array, " entries"], clients: Float[np.ndarray, "users K"], n_items: int
) -> Float[np.ndarray, "items K"]:
    """Sum a number of each entry times its client's factor over the entries of each item."""
    return _matrix(data, values, n_items).T @ clients


def summed_by_user(
    data: Data, values: Float[Array, " entries"], items: Float[np.ndarray, "items K"]
) -> Float[np.ndarray, "users K"]:
    """Sum a number of each entry times its item's factor over the entries of each client."""
    return _matrix(data, values, items.shape[0]) @ items


def _matrix(data: Data, values: Float[Array, " entries"], n_items: int) -> sp.csr_array:
    """Clients by items; the arrays are those of the data, not copies."""
    shape = data.start.size - 1, n_items
    return sp.csr_array((np.asarray(values), np.asarray(data.item), np.asarray(data.start)), shape=shape)


SOLVED = {  # what is left of the switches where clients do not step
    "order": "batch",
    "local_steps": 1,
    "batch_size": "all",
    "row_factor": "before",
    "biases": None,
}


class Entries(NamedTuple):
    """What clients upload rows of: ratings and sampled unrated items, grouped by user."""

    user: Int[np.ndarray, " entries"]
    item: Int[np.ndarray, " entries"]
    value: Float[np.ndarray, " entries"]
    weight: Float[np.ndarray, " entries"]


def sparse_rows(
    entries: Entries,
    all_attributes: np.ndarray,
    users: np.ndarray,
    clients: np.ndarray,
    items: np.ndarray,
    attributes: np.ndarray,
) -> Rows:
    """Compute the rows of listed items and all attributes of some clients (Eq. 18, 36)."""
    n_attributes = attributes.shape[0]
    first, last = (np.searchsorted(entries.user, users, side=side) for side in ("left", "right"))
    listed = last - first
    length = listed + n_attributes
    client = np.repeat(np.arange(users.size), length)
    slot = ranges(np.zeros_like(length), length)
    is_item = slot < listed[client]
    entry = (first[client] + slot)[is_item]
    index = np.empty(client.size, np.int32)
    index[is_item] = entries.item[entry]
    index[~is_item] = (slot - listed[client])[~is_item]
    target, weight = np.empty(client.size), np.ones(client.size)
    target[is_item], weight[is_item] = entries.value[entry], entries.weight[entry]
    target[~is_item] = all_attributes[users[client[~is_item]], index[~is_item]]
    row_factors = np.empty((client.size, items.shape[1]))
    row_factors[is_item] = items[index[is_item]]
    row_factors[~is_item] = attributes[index[~is_item]]
    p = clients[client]
    error = weight * (target - np.einsum("rk,rk->r", p, row_factors))
    kind = np.where(is_item, ITEM, ATTRIBUTE).astype(np.int8)
    return Rows(users[client].astype(np.int32), kind, index, error[:, None] * p)


def dense_rows(
    alpha: float,
    ratings: Ratings,
    users: np.ndarray,
    clients: np.ndarray,
    items: np.ndarray,
    attributes: np.ndarray,
) -> Rows:
    """Compute the rows of all items and all attributes of some clients (Eq. 22)."""
    n_items, n_attributes = items.shape[0], attributes.shape[0]
    target = np.zeros((users.size, n_items + n_attributes))
    target[:, :n_items] = ratings.matrix()[users].toarray()
    weight = np.where(target > 0, 1.0, alpha)
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
        gradient.reshape(-1, items.shape[1]),
    )


@dataclass(frozen=True)
class FedMVMF(Switches):
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

    References
    ----------
    Mai & Pang 2022, P. Mai, Y. Pang, "PrivMVMF: Privacy-Preserving Multi-View Matrix Factorization for
    Recommender Systems", arXiv:2210.07775, sections 3.2-3.3, Algorithm 1; A. Flanagan et al.,
    arXiv:2004.04256.
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
        check_switches(self, "fedmvmf")
        if self.update == "semi-als":
            refuse(
                self, "fedmvmf", SOLVED, "in semi-als clients solve for their factor; update=sgd has steps"
            )

    @property
    def capabilities(self) -> Capabilities:
        """An item server, factors of newcomers; the server is not blind, for Adam needs sums in the clear."""
        obstacle, every = "", self.weighting == "include-unrated"
        if not every:
            obstacle = (
                "weighting of fedmvmf must be include-unrated where unrated items are sampled, for they have "
                f"the weight alpha; got {self.weighting}"
            )
        return Capabilities(
            Centralised(self.factors, self.lambda_factors, self.alpha if every else 0.0),
            (Attacker("spectral", 2), Attacker("root-hybr", 2)) if self.published else READERS,
            sampling_obstacle=obstacle,
            has_biases=self.biases is not None,
            item_server_rows=self.item_server_rows,
            new_clients=self.new_clients,
            new_items=self.new_items,
        )

    def init(self, ratings: Ratings, seed: int) -> State:
        """Draw all factors from N(0, ``init_scale``)."""
        rows = (
            ratings.n_items,
            ratings.n_attributes,
            ratings.item_features.shape[1],
            ratings.n_users,
        )
        keys = tuple(jax_key(seed, Purpose.FEDMVMF_START, table) for table in range(len(rows)))
        items, attributes, features, clients = _drawn(keys, self.init_scale, rows, self.factors)
        adam = optimizer(self._constants()).init((items, attributes))
        seed_, biases = jnp.asarray(seed), start_biases(self, ratings)
        return State(jnp.asarray(0), items, attributes, features, clients, adam, seed_, biases)

    def round(
        self,
        state: State,
        ratings: Ratings,
        received: Received | None = None,
        sample: Sample | None = None,
    ) -> State:
        """One round of Algorithm 1; the server uses the sums ``received`` instead of exact ones."""
        data, constants = sampled_data(ratings, sample, self.alpha), self._constants()
        local = None if self.published else after_round(self._task(state, ratings, sample), received)
        arrived = received if local is None else Received(local.items, local.attributes)
        state = round_step(constants, state, data, arrived, sample is not None)
        if local is not None:
            clients = jnp.asarray(local.clients) if self.update == "sgd" else state.client_factors
            state = state._replace(client_factors=clients, biases=local.biases)
        if not are_plausible(state.item_factors, state.client_factors):
            raise diverged(
                "fedmvmf",
                int(state.round) - 1,
                f"client_learning_rate (now {self.client_learning_rate:g}), server_learning_rate (now "
                f"{self.server_learning_rate:g})",
            )
        return state

    def broadcast(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Q and U as the clients receive them."""
        return np.asarray(state.item_factors), np.asarray(state.attribute_factors)

    def _constants(self) -> Constants:
        return Constants(**{name: getattr(self, name) for name in Constants._fields})

    def _task(self, state: State, ratings: Ratings, sample: Sample | None) -> Task:
        """The clients' side of a round under switches."""
        every = self.weighting == "include-unrated" and sample is None
        data = all_data(ratings, self.alpha) if every else sampled_data(ratings, sample, self.alpha)
        step = ClientStep(
            self.client_learning_rate, self.lambda_factors, 1.0, attribute_weight=self.lambda_attributes
        )
        return task_of(self, step, data, state, self.user_factors(state, ratings, sample))

    def user_factors(self, state: State, ratings: Ratings, sample: Sample | None = None) -> np.ndarray:
        """P as it is used in this round."""
        data = sampled_data(ratings, sample, self.alpha)
        return np.asarray(client_factors(self._constants(), state, data, sample is not None))

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

    def _folded_in(self, factors: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Ridge regression of public columns on their factors; (14) and (16) must regularise p and q."""
        ridge = self.lambda_factors / max(self.lambda_attributes, 1e-12)
        gram = factors.T @ factors + ridge * np.eye(self.factors)
        return np.linalg.solve(gram, factors.T @ columns.T).T

    def uploads(
        self, state: State, ratings: Ratings, users: np.ndarray, sample: Sample | None = None
    ) -> Iterator[Rows]:
        """Rows of the given clients: items ascending, then attributes."""
        if not self.published:
            yield from rows_of_round(self._task(state, ratings, sample), users)
            return
        items, attributes = self.broadcast(state)
        clients = self.user_factors(state, ratings, sample)
        if self.weighting == "include-unrated" and sample is None:
            counts = np.full(users.size, ratings.n_items + ratings.n_attributes)
            for piece in pieces(users, counts, self.factors):
                yield dense_rows(self.alpha, ratings, piece, clients[piece], items, attributes)
            return
        data = sampled_data(ratings, sample, self.alpha)
        entries = Entries(*map(np.asarray, (data.user, data.item, data.value, data.weight)))
        counts = np.bincount(entries.user, minlength=ratings.n_users)[users] + ratings.n_attributes
        for piece in pieces(users, counts, self.factors):
            yield sparse_rows(entries, ratings.attributes, piece, clients[piece], items, attributes)

    def item_server_rows(self, state: State, ratings: Ratings) -> Float[np.ndarray, "items K"]:
        """sum_y (y_jy - v_y . q_j) v_y of every item, with which the item server takes part in the step."""
        table = jnp.asarray(ratings.item_features)
        features = feature_factors(self._constants(), state, table)
        return np.asarray((table - state.item_factors @ features.T) @ features)

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
        published = published_manifest(
            "fedmvmf",
            self,
            ratings,
            rounds,
            constants,
            n_attributes=ratings.n_attributes,
            attribute_groups=[list(group) for group in ratings.attribute_groups],
            item_features=_named_features(ratings),
            parties={"server": -1, "item_server": -2},
        )
        return declared(self, published, rate=self.client_learning_rate)


@partial(jax.jit, static_argnums=(2, 3))
def _drawn(
    keys: tuple[Array, ...], scale: float | Array, rows: tuple[int, ...], factors: int
) -> tuple[Array, ...]:
    """All tables by one program."""
    shapes = zip(keys, rows, strict=True)
    return tuple(scale * jax.random.normal(key, (n, factors), jnp.float64) for key, n in shapes)


def _named_features(ratings: Ratings) -> list[list[int]] | None:
    """Genres and decades are public; principal components have no names."""
    table = ratings.item_features
    if not np.isin(table, (0, 1)).all():
        return None
    return [np.flatnonzero(row).tolist() for row in table]
