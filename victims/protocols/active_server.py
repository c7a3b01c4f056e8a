"""A server that sends clients crafted factors, so that sums over all clients become the rows of a few.

Other servers here send what the protocol says; this one is malicious, and every name says so: what it
recorded is that of the adversary ``active-server:...``, whose text is its whole manipulation and budget.

``suppress``. Where clients solve for their factor (semi-als, Eq. (8)), one who is sent zeros has p = 0 and
uploads rows c e p of zeros, under any encryption; that is the gradient suppression of D. Pasquini, D.
Francati and G. Ateniese (CCS 2022, arXiv:2111.07380). One who is sent some coordinates of Q has a p in these
alone. So the K coordinates are dealt out among targets and all others are sent zeros: coordinates of each sum
are then rows of one client each.

Where the factor is kept (sgd) two crafted rounds go before. All item factors are zero, and so are attribute
factors, but for an attribute of each coordinate, whose factor is s e_k. With g = 2 gamma lambda1 and d = 1 -
2 gamma lambda2 a step is p_k <- d p_k + g s (x - s p_k), so that g s^2 = d leaves p_k = g s x, and in the
second round s (1 + sqrt(1 + 4 d^2)) / (2 d) leaves 0, for both values of x. A client is sent the coordinates
that it is to lose; in the round that is read all are sent the same, honest factors.

``canary`` sends everybody the same: zeros, but for up to K items that one client each has rated (item sets
are in the open in observed-only). Whoever rated none of them has p = 0.

The server takes no step in crafted rounds. What a client can notice is ``ActiveServer.budget``. Clients who
compare what they were sent (defense ``compare-hashes``) notice that it differs, which in ``canary`` it does
not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.common.validation import one_of, require_fields, whole
from victims.data.ratings import Ratings
from victims.protocols.base import Capabilities, Received, Rows, Sample
from victims.protocols.fedmvmf import FedMVMF
from victims.protocols.fedmvmf import State as Model
from victims.transcript.adversaries import ACTIVE
from victims.transcript.manifest import Manifest

TOLD = ("manipulation", "targets", "at_once", "first")  # in the adversary's name
MOST = 999_999_999  # of a number in it


class State(NamedTuple):
    """The protocol's state, and what the server knows beside it."""

    model: Model
    targets: Int[np.ndarray, " targets"]  # clients, ascending
    canaries: Int[np.ndarray, " targets"]  # an item that each target alone rated, in ``canary``

    @property
    def round(self) -> Any:
        """How many rounds are done."""
        return self.model.round

    @property
    def item_factors(self) -> Any:
        """The server's item factors."""
        return self.model.item_factors


class Crafted(NamedTuple):
    """What is sent in a crafted round: client i is sent each row of the tables times ``mask[i]``."""

    items: Float[np.ndarray, "items K"]
    attributes: Float[np.ndarray, "attributes K"]
    mask: Float[np.ndarray, "users K"]

    @property
    def differs(self) -> bool:
        """Whether clients who compare see a difference."""
        sent = self.mask * (self.items.any(axis=0) | self.attributes.any(axis=0))
        return bool((sent != sent[0]).any())


@dataclass(frozen=True)
class ActiveServer:
    """FedMVMF under a malicious server; everything that its clients do is the protocol.

    Attributes
    ----------
    victim : FedMVMF
        The protocol that clients follow.
    manipulation : "suppress" or "canary"
        ``canary`` is for semi-als in observed-only.
    targets : int
        Clients to read, 1 to 999,999,999: evenly spaced in ``suppress``, the first who alone rated an item in
        ``canary``, as many as there are.
    at_once : int
        Targets of a round, 1 to K; each has as many coordinates as there are for all.
    first : int
        The first crafted round, 0 to 999,999,999: from then on each ``at_once`` targets take one round, in
        sgd three.
    compared : bool
        Whether clients compare what they were sent, and upload nothing in rounds in which it differs.

    References
    ----------
    D. Pasquini, D. Francati, G. Ateniese, CCS 2022, doi:10.1145/3548606.3560557 (arXiv:2111.07380).
    """

    victim: Any
    manipulation: Literal["suppress", "canary"] = "suppress"
    targets: int = 12
    at_once: int = 6
    first: int = 4
    compared: bool = False

    def __post_init__(self) -> None:
        require_fields(
            self,
            ACTIVE,
            manipulation=one_of("suppress", "canary"),
            targets=whole(1, MOST),
            at_once=whole(1, MOST),
            first=whole(0, MOST),
        )

    @property
    def text(self) -> str:
        """The adversary's name: its manipulation and budget."""
        return f"{ACTIVE}:" + ",".join(f"{name}={getattr(self, name)}" for name in TOLD)

    @property
    def budget(self) -> str:
        """What it does, how often, and what clients could notice of it, for people."""
        rounds = -(-self.targets // self.at_once) * self._n_rounds
        told = f"{self.victim.update}/{self.victim.weighting}: up to {self.targets} clients are targeted, in "
        told += f"{rounds} {'round' if rounds == 1 else 'rounds'} from round {self.first} on. "
        if self.manipulation == "canary":
            return told + "A client can notice that all factors but a few are zero; all are sent the same."
        if self._n_rounds > 1:
            return told + (
                "In two of three any client can notice that all factors are zero but those of a few "
                "attributes, which are large, and of which targets are sent fewer; then its factor is zero."
            )
        return told + (
            "Clients who are not targets can notice that they are sent zeros, targets that of each factor "
            f"{'all' if self.at_once == 1 else 'some'} coordinates are as they were."
        )

    @property
    def capabilities(self) -> Capabilities:
        """Those of the protocol, with what nobody asks of a crafted round left out.

        Raises
        ------
        InputError
            If the protocol, or its scenario, is none that the manipulation works on.
        """
        victim = self.victim
        if not isinstance(victim, FedMVMF) or not victim.published:
            raise InputError(
                "the victim of an active server must be fedmvmf without switches, whose server sees "
                "decrypted sums; elsewhere it sees none, or every row"
            )
        scenario = f"{victim.update}/{victim.weighting}"
        if self.manipulation == "canary" and scenario != "semi-als/observed-only":
            raise InputError(
                "canary must have semi-als/observed-only, where factors are solved for and item sets are in "
                f"the open, got {scenario}; use manipulation=suppress"
            )
        if victim.update == "sgd" and not (self._decay > 0 and victim.lambda_attributes > 0):
            raise InputError(
                "lambda_attributes must be > 0, and 2 client_learning_rate lambda_factors < 1, where an "
                "active server erases factors that clients keep (sgd); use the update semi-als"
            )
        if self.at_once > victim.factors:
            raise InputError(
                f"at_once of {ACTIVE} must be at most the {victim.factors} factors, got {self.at_once}"
            )
        can = victim.capabilities
        return Capabilities(
            can.centralised,
            can.attackers,
            can.sampling_obstacle,
            item_server_rows=lambda state, ratings: victim.item_server_rows(state.model, ratings),
        )

    @property
    def _n_rounds(self) -> int:
        """Rounds for each ``at_once`` targets."""
        return 3 if self.victim.update == "sgd" else 1

    @property
    def _decay(self) -> float:
        """Of a kept factor in a step."""
        return 1 - 2 * self.victim.client_learning_rate * self.victim.lambda_factors

    def init(self, ratings: Ratings, seed: int) -> State:
        """The protocol's start, and who is targeted."""
        if self._n_rounds > 1 and ratings.n_attributes < self.victim.factors:
            raise InputError(
                f"attributes must be at least the {self.victim.factors} factors where an active server "
                f"erases factors that clients keep (sgd), got {ratings.n_attributes}; use the update semi-als"
            )
        return State(self.victim.init(ratings, seed), *self.targeted(ratings))

    def targeted(self, ratings: Ratings) -> tuple[Int[np.ndarray, " targets"], Int[np.ndarray, " canaries"]]:
        """Whom the server is after, ascending, and in ``canary`` an item that each alone rated."""
        if self.manipulation == "canary":
            alone = np.bincount(ratings.items, minlength=ratings.n_items)[ratings.items] == 1
            targets, at = np.unique(ratings.users[alone], return_index=True)
            return targets[: self.targets], ratings.items[alone][at][: self.targets]
        n = min(self.targets, ratings.n_users)
        return np.arange(n) * ratings.n_users // n, np.zeros(0, np.int64)

    def crafted(self, state: State, n_users: int) -> Crafted | None:
        """What is sent in the next round; None where it is what an honest server would send."""
        batch, phase = divmod(int(state.round) - self.first, self._n_rounds)
        now = slice(batch * self.at_once, (batch + 1) * self.at_once)
        targets = state.targets[now] if batch >= 0 else state.targets[:0]
        if not targets.size or phase == 2:
            return None
        items, attributes = self.victim.broadcast(state.model)
        k = items.shape[1]
        own = np.zeros((n_users, k))
        own[targets] = np.arange(k) // (k // self.at_once) == np.arange(targets.size)[:, None]
        if self.manipulation == "canary":
            marked = np.zeros_like(items)
            at = np.arange(targets.size) * (k // self.at_once)
            marked[state.canaries[now], at] = np.sqrt(self.victim.lambda_factors) or 1
            return Crafted(marked, 0 * attributes, np.ones((n_users, k)))
        if self._n_rounds == 1:
            return Crafted(items, attributes, own)
        victim, erasing, decay = self.victim, np.zeros_like(attributes), self._decay
        size = np.sqrt(decay / (2 * victim.client_learning_rate * victim.lambda_attributes))
        size *= 1 if phase == 0 else (1 + np.sqrt(1 + 4 * decay**2)) / (2 * decay)
        erasing[:k] = size * np.eye(k)
        return Crafted(0 * items, erasing, 1 - own)

    def _groups(
        self, state: State, n_users: int
    ) -> tuple[bool, list[tuple[Model, Int[np.ndarray, " users"]]]]:
        """The state of the protocol as each group of clients is told it; whether they refuse to upload."""
        crafted = self.crafted(state, n_users)
        if crafted is None:
            return False, [(state.model, np.arange(n_users))]
        masks, group = np.unique(crafted.mask, axis=0, return_inverse=True)
        told = [
            state.model._replace(
                item_factors=jnp.asarray(crafted.items * mask),
                attribute_factors=jnp.asarray(crafted.attributes * mask),
            )
            for mask in masks
        ]
        refused = self.compared and crafted.differs
        return refused, [(model, np.flatnonzero(group.ravel() == at)) for at, model in enumerate(told)]

    def round(
        self,
        state: State,
        ratings: Ratings,
        received: Received | None = None,
        sample: Sample | None = None,
    ) -> State:
        """One round; in a crafted one clients step with what they were sent, and the server does not."""
        refused, groups = self._groups(state, ratings.n_users)
        if self.crafted(state, ratings.n_users) is None:
            return state._replace(model=self.victim.round(state.model, ratings, received, sample))
        clients = np.array(state.model.client_factors)
        if self.victim.update == "sgd" and not refused:
            for model, users in groups:
                clients[users] = self.victim.round(model, ratings, received, sample).client_factors[users]
        model = state.model._replace(round=state.model.round + 1, client_factors=jnp.asarray(clients))
        return state._replace(model=model)

    def broadcast(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """What is sent before it is masked: of each coordinate what those are told who are told any."""
        crafted = self.crafted(state, state.model.client_factors.shape[0])
        return self.victim.broadcast(state.model) if crafted is None else crafted[:2]

    def uploads(
        self, state: State, ratings: Ratings, users: np.ndarray, sample: Sample | None = None
    ) -> Iterator[Rows]:
        """Rows of the given clients, group by group of what they were sent."""
        refused, groups = self._groups(state, ratings.n_users)
        for model, group in [] if refused else groups:
            if (some := np.intersect1d(users, group)).size:
                yield from self.victim.uploads(model, ratings, some, sample)

    def user_factors(self, state: State, ratings: Ratings, sample: Sample | None = None) -> np.ndarray:
        """P as it is used in this round."""
        found = np.zeros(state.model.client_factors.shape)
        for model, users in self._groups(state, ratings.n_users)[1]:
            found[users] = self.victim.user_factors(model, ratings, sample)[users]
        return found

    def manifest(self, ratings: Ratings, rounds: list[int]) -> Manifest:
        """That of the protocol, seen by this adversary."""
        manifest = self.victim.manifest(ratings, rounds)
        return manifest.model_copy(update={"adversary": self.text})
