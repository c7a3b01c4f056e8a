"""FedMF: user-level distributed matrix factorisation; with the defense ``paillier`` as published.

D. Chai, L. Wang, K. Chen, Q. Yang, "Secure Federated Matrix Factorization", IEEE Intelligent
Systems 2021, doi:10.1109/MIS.2020.3014880 (arXiv:1906.05108), section 3, Algorithm 1.

=============  =====================================================================================
u_i, U         client factors                          ``client_factors``  (n_users, K)
v_j, V         item factors                            ``item_factors``  (n_items, K)
gamma          ``client_learning_rate``
lambda, mu     ``lambda_factors`` of the clients, ``item_regularization``
=============  =====================================================================================

In every round each client takes a full-batch step u <- (1 - 2 gamma lambda) u + 2 gamma sum_j e_ij v_j and
uploads, from the same u and v, gamma (-2 e_ij u_i + 2 mu v_j) for its items; the server subtracts the sum
of all uploads from V. Equations as corrected: the sums in (2), mu in (6), gamma in (9).

``part-text`` uploads rows of rated items only; ``full-text`` uploads a row for every item, zeros where
nothing is rated, so that row numbers say nothing once the rows are encrypted. Between the two (section 7)
lies ``part-text`` with the defense ``unrated-sampling``: rows of zeros for some unrated items. A row of zeros
adds nothing to V, so that this needs no weight and changes no number of the training.

The server sees every row with its sender, and knows V and the constants. Under encryption (section 5) it
sees which rows each client sends, and nothing else: V is encrypted, too, and clients decrypt it. Every
client sees V fall by the sum of all uploads in every round.

The authors' program (github.com/Di-Chai/FedMF, ``FedMF_Part.py``) is not Algorithm 1: it starts from the
constant 0.01, steps after every rating, in each client's own order, and uploads e_k of the factor before a
step along with the factor after it. As switches: ``start=constant init_scale=0.01 order=per-rating
shuffle=once row_factor=after``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from victims.common.limits import are_plausible, diverged
from victims.common.seeds import Purpose, jax_key
from victims.common.validation import above, at_least, between, one_of, require_fields
from victims.data.ratings import Ratings
from victims.protocols.base import Attacker, Capabilities, Centralised, Received, Rows, Sample, pieces
from victims.protocols.exchanged import ranges
from victims.protocols.jax_ratings import Data, device_data
from victims.protocols.local_training import (
    Biases,
    ClientStep,
    Task,
    after_round,
    rows_of_round,
    start_biases,
    task_of,
)
from victims.protocols.switches import READERS, Switches, check_switches, declared, published_manifest
from victims.transcript.kinds import ITEM
from victims.transcript.manifest import Manifest, Upload

jax.config.update("jax_enable_x64", True)


class Constants(NamedTuple):
    """The hyper-parameters that a round reads; ``fedmf.FedMF`` explains them."""

    lambda_factors: float
    item_regularization: float
    client_learning_rate: float


class State(NamedTuple):
    """Everything that is carried from one round to the next."""

    round: Int[Array, ""]
    item_factors: Float[Array, "items K"]
    client_factors: Float[Array, "users K"]
    seed: Int[Array, ""]
    biases: Biases | None = None
    gradient: tuple[float, float] | None = None  # norm of the last round's largest: of clients, of items


@partial(jax.jit, static_argnums=0)
def round_step(constants: Constants, state: State, data: Data, received: Received | None) -> State:
    """The state after a round."""
    rate = constants.client_learning_rate
    items, clients = state.item_factors, state.client_factors
    rated, raters = items[data.item], clients[data.user]
    error = data.value - jnp.sum(rated * raters, axis=1)
    ascent = jax.ops.segment_sum(error[:, None] * rated, data.user, clients.shape[0], indices_are_sorted=True)
    if received is None:
        pull = jax.ops.segment_sum(error[:, None] * raters, data.item, items.shape[0])
        raters_of = jax.ops.segment_sum(jnp.ones(data.item.shape), data.item, items.shape[0])
        sums = rate * (-2 * pull + 2 * constants.item_regularization * raters_of[:, None] * items)
    else:
        sums = jnp.asarray(received.items)
    clients = (1 - 2 * rate * constants.lambda_factors) * clients + 2 * rate * ascent
    return state._replace(round=state.round + 1, item_factors=items - sums, client_factors=clients)


def gradient_rows(
    constants: Constants, ratings: Ratings, users: np.ndarray, clients: np.ndarray, items: np.ndarray
) -> Rows:
    """Form gamma (-2 e u + 2 mu v) of every rating of some clients (Eq. (6))."""
    rated = np.diff(ratings.indptr)[users]
    sender = np.repeat(users, rated)
    entry = ranges(ratings.indptr[users], rated)
    index = ratings.items[entry]
    u, v = clients[sender], items[index]
    error = ratings.values[entry] - np.einsum("rk,rk->r", u, v)
    gradient = -2 * error[:, None] * u + 2 * constants.item_regularization * v
    kind = np.full(sender.size, ITEM, np.int8)
    return Rows(
        sender.astype(np.int32), kind, index.astype(np.int32), constants.client_learning_rate * gradient
    )


def with_zeros(rows: Rows, users: np.ndarray, n_items: int) -> Rows:
    """Add rows of zeros for all items that a client has not rated."""
    slot = np.searchsorted(users, rows.sender) * n_items + rows.index
    gradient = np.zeros((users.size * n_items, rows.gradient.shape[1]))
    gradient[slot] = rows.gradient
    bias = None
    if rows.bias is not None:
        bias = np.zeros(len(gradient))
        bias[slot] = rows.bias
    return Rows(
        np.repeat(users.astype(np.int32), n_items),
        np.full(users.size * n_items, ITEM, np.int8),
        np.tile(np.arange(n_items, dtype=np.int32), users.size),
        gradient,
        bias=bias,
    )


def with_zeros_at(rows: Rows, sample: Sample) -> Rows:
    """Add rows of zeros for sampled unrated items, among the others by client and item."""
    sender = np.concatenate([rows.sender, sample.user.astype(np.int32)])
    index = np.concatenate([rows.index, sample.item.astype(np.int32)])
    zeros = np.zeros((sample.user.size, rows.gradient.shape[1]))
    order = np.lexsort((index, sender))
    kind = np.full(sender.size, ITEM, np.int8)
    return Rows(sender[order], kind, index[order], np.concatenate([rows.gradient, zeros])[order])


def largest_gradients(constants: Constants, before: State, after: State) -> tuple[float, float]:
    """The largest norm among the clients' gradients (5), and among the items' (6), of the round in between.

    Both are what moved the factors, over gamma: of items the sums as the server received them.
    """
    moved = (
        (before.client_factors, after.client_factors),
        (before.item_factors, after.item_factors),
    )
    clients, items = (
        float(jnp.linalg.norm(new - old, axis=1).max()) / constants.client_learning_rate for old, new in moved
    )
    return clients, items


@dataclass(frozen=True)
class FedMF(Switches):
    """Hyper-parameters; the defaults are section 6.1 of the paper, except for the start.

    Attributes
    ----------
    update, weighting : str
        "sgd" and "observed-only", the only ones of this protocol.
    upload : "part-text", "full-text", "gradient", "delta" or "weights"
        Gradients of the rated items, or with zeros for all others; ``gradient`` is ``part-text``.
    factors : int
        K, >= 1.
    lambda_factors, item_regularization : float
        >= 0.
    client_learning_rate : float
        > 0; all of a client's ratings, and all clients of an item, add up in one step.
    start : "normal" or "constant"
        Start factors from N(0, ``init_scale``), or all equal to ``init_scale``. The published program
        starts from the constant 0.01, which keeps all K dimensions equal for ever.
    init_scale : float
        > 0.
    stop_gradient : float
        The threshold epsilon of section 3.1: the training is over after the first round in which no gradient
        had this norm, >= 0; 0 leaves it to the number of rounds.
    stop_side : "both", "clients" or "items"
        Whose gradients must be below it ("or one of them").

    References
    ----------
    Chai et al. 2021, D. Chai et al., "Secure Federated Matrix Factorization", doi:10.1109/MIS.2020.3014880
    (arXiv:1906.05108), section 3, Algorithm 1.
    """

    update: Literal["sgd"] = "sgd"
    weighting: Literal["observed-only"] = "observed-only"
    upload: Literal["part-text", "full-text", "gradient", "delta", "weights"] = "part-text"  # type: ignore[assignment]
    factors: int = 100
    lambda_factors: float = 1e-4
    item_regularization: float = 1e-4
    client_learning_rate: float = 1e-3
    start: Literal["normal", "constant"] = "normal"
    init_scale: float = 0.1
    stop_gradient: float = 0.0
    stop_side: Literal["both", "clients", "items"] = "both"

    def __post_init__(self) -> None:
        require_fields(
            self,
            "fedmf",
            update=one_of("sgd"),
            weighting=one_of("observed-only"),
            factors=between(1, 4096),
            lambda_factors=at_least(0),
            item_regularization=at_least(0),
            client_learning_rate=above(0),
            start=one_of("normal", "constant"),
            init_scale=above(0),
            stop_gradient=at_least(0),
            stop_side=one_of("both", "clients", "items"),
        )
        check_switches(self, "fedmf", ("part-text", "full-text", "gradient", "delta", "weights"))

    @property
    def capabilities(self) -> Capabilities:
        """A blind server (section 5: it holds V encrypted, and adds encrypted uploads to it)."""
        obstacle, attackers = "", READERS
        if self.upload == "full-text":
            obstacle = "full-text sends a row for every item, so none can be sampled; use part-text"
        elif not self.published:
            obstacle = "fedmf samples unrated items as published alone; leave the switches out"
        if self.published:  # Chai et al.'s attack corrected, and what V gives away
            corrected = Attacker("eq24-corrected", 2), Attacker("aggregate", 2)
            attackers = Attacker("spectral", 2), Attacker("grid"), *corrected, Attacker("rated-set", 2)
        return Capabilities(
            Centralised(self.factors, self.lambda_factors),
            attackers,
            sampling_obstacle=obstacle,
            blind_server=True,
            has_biases=self.biases is not None,
            stopped=self.stopped,
        )

    def init(self, ratings: Ratings, seed: int) -> State:
        """Start factors."""
        shapes = (ratings.n_items, self.factors), (ratings.n_users, self.factors)
        if self.start == "constant":
            items, clients = (jnp.full(shape, self.init_scale) for shape in shapes)
        else:
            keys = (jax_key(seed, Purpose.FEDMF_START, table) for table in range(len(shapes)))
            items, clients = (
                self.init_scale * jax.random.normal(key, shape, jnp.float64)
                for key, shape in zip(keys, shapes, strict=True)
            )
        return State(jnp.asarray(0), items, clients, jnp.asarray(seed), start_biases(self, ratings))

    def round(
        self,
        state: State,
        ratings: Ratings,
        received: Received | None = None,
        sample: Sample | None = None,
    ) -> State:
        """One round of Algorithm 1; the server uses the sums ``received`` instead of exact ones."""
        before = state = state._replace(gradient=None)
        local = None if self.published else after_round(self._task(state, ratings), received)
        arrived = received if local is None else Received(local.items, local.attributes)
        state = round_step(self._constants(), state, device_data(ratings), arrived)
        if local is not None:
            state = state._replace(client_factors=jnp.asarray(local.clients), biases=local.biases)
        if not are_plausible(state.item_factors, state.client_factors):
            add_up = "the steps of all clients of an item add up"
            raise diverged(
                "fedmf",
                int(state.round) - 1,
                f"client_learning_rate (now {self.client_learning_rate:g}: {add_up})",
            )
        if self.stop_gradient > 0:
            state = state._replace(gradient=largest_gradients(self._constants(), before, state))
        return state

    def stopped(self, state: State) -> bool:
        """Whether the gradients of the last round were below ``stop_gradient``."""
        if state.gradient is None:
            return False
        clients, items = (size < self.stop_gradient for size in state.gradient)
        return {"both": clients and items, "clients": clients, "items": items}[self.stop_side]

    def broadcast(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """V as the clients receive it; there are no attributes."""
        return np.asarray(state.item_factors), np.zeros((0, self.factors))

    def user_factors(self, state: State, ratings: Ratings, sample: Sample | None = None) -> np.ndarray:
        """U as it is used in this round."""
        return np.asarray(state.client_factors)

    def uploads(
        self, state: State, ratings: Ratings, users: np.ndarray, sample: Sample | None = None
    ) -> Iterator[Rows]:
        """Rows of the given clients, items ascending; of sampled items rows of zeros."""
        every = self.upload == "full-text"
        if not self.published:
            for rows in rows_of_round(self._task(state, ratings), users):
                if every:
                    yield with_zeros(replace(rows, sequence=None), np.unique(rows.sender), ratings.n_items)
                else:
                    yield rows
            return
        items, _ = self.broadcast(state)
        clients = self.user_factors(state, ratings)
        sent = np.full(users.size, ratings.n_items) if every else np.diff(ratings.indptr)[users]
        if sample is not None:
            sent = sent + np.bincount(sample.user, minlength=ratings.n_users)[users]
        for piece in pieces(users, sent, self.factors):
            rows = gradient_rows(self._constants(), ratings, piece, clients, items)
            if sample is not None:
                rows = with_zeros_at(rows, sample.of(piece))
            yield with_zeros(rows, piece, ratings.n_items) if every else rows

    def _constants(self) -> Constants:
        return Constants(**{name: getattr(self, name) for name in Constants._fields})

    def _task(self, state: State, ratings: Ratings) -> Task:
        """The clients' side of a round under switches."""
        rate, pull = self.client_learning_rate, self.item_regularization
        step = ClientStep(rate, self.lambda_factors, -2 * rate, 2 * rate * pull, pull)
        return task_of(self, step, device_data(ratings), state, state.client_factors)

    def manifest(self, ratings: Ratings, rounds: list[int]) -> Manifest:
        """Everything a participant of the protocol knows."""
        rate, pull = self.client_learning_rate, self.item_regularization
        constants = {"lambda_factors": self.lambda_factors, "client_learning_rate": rate}
        zeros = self.upload == "full-text"
        upload = Upload(scale=-2 * rate, regularization=2 * rate * pull, zeros_if_unrated=zeros)
        published = published_manifest("fedmf", self, ratings, rounds, constants, upload=upload)
        return declared(self, published, rate=rate, item_pull=pull)
