"""FedMF: user-level distributed matrix factorisation; with the defense ``paillier`` as published.

Paper 001: D. Chai, L. Wang, K. Chen, Q. Yang, "Secure Federated Matrix Factorization", IEEE Intelligent
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
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from victims.common.errors import InputError
from victims.common.limits import are_plausible, diverged
from victims.common.seeds import Purpose, jax_key
from victims.common.validation import above, at_least, between, one_of, require_fields
from victims.data.ratings import Ratings
from victims.protocols.base import Attacker, Centralised, Received, Rows, Sample, pieces
from victims.protocols.client_task import ClientStep, Task, start_biases
from victims.protocols.fedmf_round import (
    Constants,
    State,
    gradient_rows,
    largest_gradients,
    round_step,
    with_zeros,
    with_zeros_at,
)
from victims.protocols.jax_ratings import device_data
from victims.protocols.local_exchange import after_round, rows_of_round
from victims.protocols.published_manifest import published_manifest
from victims.protocols.server_switches import READERS, ServerSwitches, declared
from victims.protocols.switches import check_switches
from victims.transcript.manifest import Manifest, Upload

jax.config.update("jax_enable_x64", True)


@dataclass(frozen=True)
class FedMF(ServerSwitches):
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
    Paper 001, D. Chai et al., "Secure Federated Matrix Factorization", doi:10.1109/MIS.2020.3014880
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
    def blind_server(self) -> bool:
        """Steps 1 to 4 of section 5: the server holds V encrypted and adds encrypted uploads to it."""
        return True

    @property
    def attackers(self) -> tuple[Attacker, ...]:
        """The closed form, the rating grid, paper 001's attack corrected, what V gives away, the lists."""
        if not self.published:
            return READERS
        return (
            Attacker("spectral", 2),
            Attacker("grid"),
            Attacker("eq24-corrected", 2),
            Attacker("aggregate", 2),
            Attacker("rated-set", 2),
        )

    @property
    def stepwise(self) -> bool:
        """The server steps once a round, on sums."""
        return False

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
        """Both sides with the clients' regularization."""
        return Centralised(self.factors, self.lambda_factors)

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
        self._refuse_unless_open_to(sample)
        before = state = state._replace(gradient=None)
        if self.published:
            state = round_step(self._constants(), state, device_data(ratings), received)
        else:
            outcome = after_round(self._task(state, ratings), received)
            sums = Received(outcome.items, outcome.attributes)
            state = round_step(self._constants(), state, device_data(ratings), sums)
            state = state._replace(client_factors=jnp.asarray(outcome.clients), biases=outcome.biases)
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
        self._refuse_unless_open_to(sample)
        if not self.published and self.upload != "full-text":
            yield from rows_of_round(self._task(state, ratings), users)
            return
        if not self.published:
            for rows in rows_of_round(self._task(state, ratings), users):
                yield with_zeros(replace(rows, sequence=None), np.unique(rows.sender), ratings.n_items)
            return
        items, _ = self.broadcast(state)
        clients = self.user_factors(state, ratings)
        counts = np.diff(ratings.indptr)[users]
        sent = np.full(users.size, ratings.n_items) if self.upload == "full-text" else counts
        if sample is not None:
            sent = sent + np.bincount(sample.user, minlength=ratings.n_users)[users]
        for piece in pieces(users, sent, self.factors):
            rows = gradient_rows(self._constants(), ratings, piece, clients, items)
            if sample is not None:
                rows = with_zeros_at(rows, sample.of(piece))
            yield with_zeros(rows, piece, ratings.n_items) if self.upload == "full-text" else rows

    def _constants(self) -> Constants:
        return Constants(**{name: getattr(self, name) for name in Constants._fields})

    def _task(self, state: State, ratings: Ratings) -> Task:
        """The clients' side of a round under switches."""
        rate, pull = self.client_learning_rate, self.item_regularization
        step = ClientStep(rate, self.lambda_factors, -2 * rate, 2 * rate * pull, pull)
        items, attributes = self.broadcast(state)
        clients = np.asarray(state.client_factors)
        seed, round_ = int(state.seed), int(state.round)
        return Task(self, step, device_data(ratings), items, attributes, clients, seed, round_, state.biases)

    def manifest(self, ratings: Ratings, rounds: list[int]) -> Manifest:
        """Everything a participant of the protocol knows."""
        published = self._published_manifest(ratings, rounds)
        if self.published:
            return published
        rate, pull = self.client_learning_rate, self.item_regularization
        return declared(self, published, rate=rate, item_pull=pull)

    def _published_manifest(self, ratings: Ratings, rounds: list[int]) -> Manifest:
        rate = self.client_learning_rate
        constants = {"lambda_factors": self.lambda_factors, "client_learning_rate": rate}
        pull = 2 * rate * self.item_regularization
        upload = Upload(scale=-2 * rate, regularization=pull, zeros_if_unrated=self.upload == "full-text")
        return published_manifest("fedmf", self, ratings, rounds, constants, upload=upload)

    def _refuse_unless_open_to(self, sample: Sample | None) -> None:
        obstacle = self.sampling_obstacle()
        if sample is not None and obstacle:
            raise InputError(obstacle)

    def sampling_obstacle(self) -> str:
        """Unrated items may be sampled where rows of rated ones are sent as published."""
        if self.upload == "full-text":
            return "full-text sends a row for every item, so none can be sampled; use part-text"
        if not self.published:
            return "fedmf samples unrated items as published alone; leave the switches out"
        return ""
