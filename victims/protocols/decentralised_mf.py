"""Matrix factorisation with clients on the unit ball; with defenses it is HDPMF and its family.

W. Hu, H. Fang, "Decentralized Matrix Factorization with Heterogeneous Differential Privacy",
2022, arXiv:2212.00306, section 4, Algorithm 1. In spite of its title all clients upload to one recommender.

=============  =====================================================================================
u_i, U         client factors, kept within the unit ball   ``client_factors``  (n_users, K)
v_j, V         item factors                                ``item_factors``  (n_items, K)
eta, lambda    ``learning_rate`` (divided by 5 after a quarter and after three quarters of ``epochs``),
               ``regularization``, which counts once per step, Eq. (4)
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
upload against a v_j that it has just changed, so that every message has a reference factor of its own
(transcript version 2).

Clients who step after every rating on the V of the broadcast are ``batch_size=1``. Where clients step between
broadcast and upload (``local_steps``, ``batch_size``), those are their steps; the step with the new V is
that of Algorithm 1 alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from victims.common.limits import are_plausible, diverged
from victims.common.seeds import Purpose, generator, jax_key
from victims.common.validation import above, at_least, between, one_of, require_fields
from victims.data.ratings import Ratings
from victims.protocols.base import Attacker, Capabilities, Centralised, Received, Rows, Sample, pieces
from victims.protocols.jax_ratings import Data, device_data
from victims.protocols.local_training import (
    Biases,
    ClientStep,
    Outcome,
    Task,
    after_round,
    rows_of_round,
    start_biases,
    task_of,
)
from victims.protocols.sequential import chains
from victims.protocols.switches import (
    READERS,
    Present,
    Switches,
    check_switches,
    declared,
    present,
    published_manifest,
    refuse,
)
from victims.transcript.kinds import ITEM
from victims.transcript.manifest import Manifest, Upload

jax.config.update("jax_enable_x64", True)
DROP = 5.0
DROPS = (0.25, 0.75)  # of the epochs
UNWEIGHED = "mf has no weight for unrated items, so they must not be sampled; leave the sampling out"
RULE = "projected-sgd"  # the name of the clients' rule in version 2
IN_TURN = {  # what is left of the switches where the recommender steps at every upload
    "local_steps": 1,
    "shuffle": "never",
    "reduction": "sum",
    "upload": "gradient",
    "row_factor": "before",
    "biases": None,
}
Scalar = float | Array


class State(NamedTuple):
    """Everything that is carried from one round to the next."""

    round: int
    seed: int
    item_factors: Float[Array, "items K"]
    client_factors: Float[Array, "users K"]
    biases: Biases | None = None


def projected(clients: Float[Array, "users K"]) -> Float[Array, "users K"]:
    """Shorten rows that are longer than 1 to length 1 (Algorithm 1)."""
    return clients / jnp.maximum(jnp.linalg.norm(clients, axis=1, keepdims=True), 1.0)


@partial(jax.jit, static_argnames="each")
def step_at_once(
    items: Array, clients: Array, data: Data, rate: Scalar, ridge: Scalar, sums: Array | None, each: bool
) -> tuple[Array, Array]:
    """Make a round of Algorithm 1: one step of V, then one of U with the new V (Eq. (4))."""
    if sums is None:
        raters = clients[data.user]
        error = jnp.sum(raters * items[data.item], axis=1) - data.value
        sums = jax.ops.segment_sum(2 * error[:, None] * raters, data.item, items.shape[0])
    counted = jnp.ones(data.item.shape)
    of_items = jax.ops.segment_sum(counted, data.item, items.shape[0])[:, None] if each else 1.0
    items = items - rate * (sums + 2 * ridge * of_items * items)
    rated = items[data.item]
    error = jnp.sum(clients[data.user] * rated, axis=1) - data.value

    def over_users(values: Array) -> Array:
        return jax.ops.segment_sum(values, data.user, clients.shape[0], indices_are_sorted=True)

    of_clients = over_users(counted)[:, None] if each else 1.0
    gradient = over_users(2 * error[:, None] * rated) + 2 * ridge * of_clients * clients
    return items, projected(clients - rate * gradient)


def step_one_by_one(
    state: State,
    ratings: Ratings,
    data: Data,
    rate: float,
    ridge: float,
    received: Received | None,
    there: Present,
) -> tuple[Array, Array]:
    """Step with v_j for each rating, in random order, then with u_i for each in another."""
    rng = generator(state.seed, Purpose.RATING_ORDER, state.round)
    added = None if received is None else jnp.asarray(received.added)
    items, clients = state.item_factors, state.client_factors
    by_item = chains(ratings.items, ratings.n_items, rng)
    moved = items[by_item.groups]
    for table in _of(by_item.tables, ratings, there.heard):
        stepped = _item_steps(moved[: table.shape[1]], table, clients, data, rate, ridge, added, False)[0]
        moved = moved.at[: table.shape[1]].set(stepped)
    items = items.at[by_item.groups].set(moved)
    by_user = chains(ratings.users, ratings.n_users, rng)
    moved = clients[by_user.groups]
    for table in _of(by_user.tables, ratings, there.stepping):
        stepped = _client_steps(moved[: table.shape[1]], table, items, data, rate, ridge)
        moved = moved.at[: table.shape[1]].set(stepped)
    stepped = clients.at[by_user.groups].set(moved)
    if there.stepping.all():
        return items, stepped
    return items, jnp.where(
        there.stepping[:, None], stepped, clients
    )  # a projection may move others by an ulp


def references_one_by_one(
    state: State,
    ratings: Ratings,
    data: Data,
    rate: float,
    ridge: float,
    received: Received | None,
    there: Present,
) -> Float[np.ndarray, "entries K"]:
    """Find the v_j that each rating meets in ``step_one_by_one``."""
    rng = generator(state.seed, Purpose.RATING_ORDER, state.round)
    added = None if received is None else jnp.asarray(received.added)
    by_item = chains(ratings.items, ratings.n_items, rng)
    moved = state.item_factors[by_item.groups]
    found = np.array(state.item_factors)[ratings.items]
    for table in _of(by_item.tables, ratings, there.heard):
        width = table.shape[1]
        stepped, met = _item_steps(moved[:width], table, state.client_factors, data, rate, ridge, added, True)
        found[table[table >= 0]] = np.asarray(met)[table >= 0]
        moved = moved.at[:width].set(stepped)
    return found


def _of(tables: list[np.ndarray], ratings: Ratings, users: np.ndarray) -> list[np.ndarray]:
    """The same steps without the ratings of other users."""
    if users.all():
        return tables
    return [np.where((table >= 0) & users[ratings.users[table]], table, -1) for table in tables]


@partial(jax.jit, static_argnums=7)
def _item_steps(
    items: Array,
    table: Array,
    clients: Array,
    data: Data,
    rate: Scalar,
    ridge: Scalar,
    added: Array | None,
    keep: bool,
) -> tuple[Array, Array | None]:
    """The factors after all steps, and before each where they are to be kept."""

    def step(v: Array, entry: Array) -> tuple[Array, Array | None]:
        return item_step(v, entry, clients, data, rate, ridge, added), v if keep else None

    return jax.lax.scan(step, items, table)


def item_step(
    v: Array, entry: Array, clients: Array, data: Data, rate: Scalar, ridge: Scalar, added: Array | None
) -> Array:
    """Step once with the factor of each of some items."""
    rating = jnp.maximum(entry, 0)
    u = clients[data.user[rating]]
    error = jnp.sum(u * v, axis=1) - data.value[rating]
    gradient = 2 * error[:, None] * u + 2 * ridge * v
    gradient = gradient if added is None else gradient + added[rating]
    return v - rate * jnp.where(entry[:, None] >= 0, gradient, 0)


@jax.jit
def _client_steps(
    clients: Array, table: Array, items: Array, data: Data, rate: Scalar, ridge: Scalar
) -> Array:
    def step(u: Array, entry: Array) -> tuple[Array, None]:
        return client_step(u, entry, items, data, rate, ridge), None

    return jax.lax.scan(step, clients, table)[0]


def client_step(u: Array, entry: Array, items: Array, data: Data, rate: Scalar, ridge: Scalar) -> Array:
    """Step once with the factor of each of some clients, and project it to the unit ball."""
    rating = jnp.maximum(entry, 0)
    v = items[data.item[rating]]
    error = jnp.sum(u * v, axis=1) - data.value[rating]
    gradient = 2 * error[:, None] * v + 2 * ridge * u
    return projected(u - rate * jnp.where(entry[:, None] >= 0, gradient, 0))


def gradient_rows(
    ratings: Ratings, users: np.ndarray, state: State, met: Float[np.ndarray, "entries K"] | None = None
) -> Iterator[Rows]:
    """Compute the uploads of some clients, items ascending, in memory-sized pieces (Eq. (4))."""
    items, clients = np.asarray(state.item_factors), np.asarray(state.client_factors)
    for piece in pieces(users, np.diff(ratings.indptr)[users], items.shape[1]):
        chosen = np.isin(ratings.users, piece) if piece.size < ratings.n_users else slice(None)
        sender, index = ratings.users[chosen], ratings.items[chosen]
        u, reference = clients[sender], None if met is None else met[chosen]
        at = items[index] if reference is None else reference
        error = np.einsum("rk,rk->r", u, at) - ratings.values[chosen]
        u *= 2 * error[:, None]
        yield Rows(sender, np.full(sender.size, ITEM, np.int8), index, u, reference=reference)


@dataclass(frozen=True)
class DecentralisedMF(Switches):
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
    regularize : "step" or "sample"
        Whether lambda counts once in every step, as in Eq. (4), or with every rating of the step. They are
        the same in the order per-rating, the authors' program, whose steps are of one rating.
    init_scale : float
        Standard deviation of the start factors, > 0.

    References
    ----------
    Hu & Fang 2023, W. Hu, H. Fang, "Decentralized Matrix Factorization with Heterogeneous Differential
    Privacy", arXiv:2212.00306, section 4, Algorithm 1.
    """

    update: Literal["sgd"] = "sgd"
    weighting: Literal["observed-only"] = "observed-only"
    order: Literal["batch", "per-rating"] = "batch"
    factors: int = 10
    learning_rate: float = 0.001
    epochs: int = 100
    regularization: float = 0.01
    regularize: Literal["step", "sample"] = "step"
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
            regularize=one_of("step", "sample"),
            init_scale=above(0),
        )
        check_switches(self, "decentralised_mf")
        if self.stepwise:
            why = "in order=per-rating the recommender steps at every upload; for clients see batch_size=1"
            refuse(self, "decentralised_mf", IN_TURN, why)

    @property
    def stepwise(self) -> bool:
        """Whether v_j changes with every upload."""
        return self.order == "per-rating"

    @property
    def capabilities(self) -> Capabilities:
        """The loss with the same regularization, and no unit ball; in order=per-rating uploads in turn."""
        attackers = (*READERS, Attacker("trajectory", 2))
        if self.published:
            more = Attacker("trajectory", 2), Attacker("aggregate", 2), Attacker("rated-set", 2)
            attackers = (Attacker("spectral", 2), Attacker("grid"), *more)
        return Capabilities(
            Centralised(self.factors, self.regularization, per_rating=self.each_rating),
            attackers,
            sampling_obstacle=UNWEIGHED,
            has_biases=self.biases is not None,
            uploads_in_turn=self.uploads_in_turn if self.stepwise else None,
        )

    @property
    def each_rating(self) -> bool:
        """Whether the regularization counts with each rating."""
        return self.regularize == "sample" or self.stepwise

    def rate(self, round_: int) -> float:
        """The learning rate of a round."""
        passed = sum(round_ >= share * self.epochs for share in DROPS)
        return self.learning_rate / DROP**passed

    def init(self, ratings: Ratings, seed: int) -> State:
        """Start factors."""
        shapes = (ratings.n_items, self.factors), (ratings.n_users, self.factors)
        items, clients = (
            self.init_scale * jax.random.normal(jax_key(seed, Purpose.MF_START, table), shape, jnp.float64)
            for table, shape in enumerate(shapes)
        )
        return State(0, seed, items, projected(clients), start_biases(self, ratings))

    def round(
        self,
        state: State,
        ratings: Ratings,
        received: Received | None = None,
        sample: Sample | None = None,
    ) -> State:
        """One epoch; the recommender uses the sums ``received`` instead of exact ones."""
        rate, data = self.rate(state.round), device_data(ratings)
        biases = state.biases
        if self.stepwise:
            there = present(self, ratings.n_users, state.seed, state.round)
            items, clients = step_one_by_one(state, ratings, data, rate, self.regularization, received, there)
        elif self.published:
            sums = None if received is None else jnp.asarray(received.items)
            items, clients = step_at_once(
                state.item_factors,
                state.client_factors,
                data,
                rate,
                self.regularization,
                sums,
                self.each_rating,
            )
        else:
            outcome = after_round(self._task(state, ratings), received)
            biases = outcome.biases
            items, clients = self._stepped(state, ratings, outcome)
        if not are_plausible(items, clients):
            add_up = "" if self.stepwise else ": the steps of all raters of an item add up"
            raise diverged(
                "decentralised_mf", state.round, f"learning_rate (now {self.learning_rate:g}{add_up})"
            )
        return State(state.round + 1, state.seed, items, clients, biases)

    def _stepped(self, state: State, ratings: Ratings, outcome: Outcome) -> tuple[Array, Array]:
        """V and U after a round under switches."""
        rate, ridge, before = self.rate(state.round), self.regularization, np.asarray(state.item_factors)
        absent = np.bincount(ratings.items, minlength=ratings.n_items) - outcome.senders
        # with every rating the step adds 2 lambda v_j for every rater, heard or not
        unheard = 2 * ridge * absent[:, None] * before if self.each_rating else 0.0
        items, after = step_at_once(
            state.item_factors,
            state.client_factors,
            device_data(ratings),
            rate,
            ridge,
            jnp.asarray(outcome.items - unheard),
            self.each_rating,
        )
        if not self.steps_with_new_items:
            return items, jnp.asarray(outcome.clients)
        return items, jnp.where(outcome.stepping[:, None], after, state.client_factors)

    @property
    def steps_with_new_items(self) -> bool:
        """Whether clients step as in Algorithm 1, after the recommender, and not before they upload."""
        return self.one_step and self.reduction == "sum" and self.biases is None

    def _task(self, state: State, ratings: Ratings) -> Task:
        """The clients' side of a round under switches."""
        step = ClientStep(
            self.rate(state.round),
            self.regularization,
            -2.0,
            ridge_per_rating=self.each_rating,
            unit_ball=True,
        )
        return task_of(self, step, device_data(ratings), state, state.client_factors)

    def broadcast(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """V as the clients receive it; there are no attributes."""
        return np.asarray(state.item_factors), np.zeros((0, self.factors))

    def user_factors(self, state: State, ratings: Ratings, sample: Sample | None = None) -> np.ndarray:
        """U as it is used in this round."""
        return np.asarray(state.client_factors)

    def uploads(
        self, state: State, ratings: Ratings, users: np.ndarray, sample: Sample | None = None
    ) -> Iterator[Rows]:
        """Rows of the given clients, items ascending, at the V of the broadcast (``uploads_in_turn``)."""
        if not self.published and not self.stepwise:
            yield from rows_of_round(self._task(state, ratings), users)
            return
        yield from gradient_rows(ratings, users, state)

    def uploads_in_turn(
        self, state: State, ratings: Ratings, users: np.ndarray, received: Received | None
    ) -> Iterator[Rows]:
        """Rows of the given clients in the order per-rating, each at the v_j of its moment."""
        there = present(self, ratings.n_users, state.seed, state.round)
        data, rate = device_data(ratings), self.rate(state.round)
        met = references_one_by_one(state, ratings, data, rate, self.regularization, received, there)
        yield from gradient_rows(ratings, users[there.heard[users]], state, met)

    def manifest(self, ratings: Ratings, rounds: list[int]) -> Manifest:
        """Everything a participant of the protocol knows."""
        name = "regularization" if self.each_rating else "step_regularization"
        constants = {"learning_rate": self.learning_rate, "epochs": self.epochs, name: self.regularization}
        published = published_manifest("mf", self, ratings, rounds, constants, upload=Upload(scale=-2.0))
        rates = {self.rate(round_) for round_ in rounds}
        return declared(self, published, rate=rates.pop() if len(rates) == 1 else None, rule=RULE)
