"""F-NCF and F-LightGCN: item embeddings and a network that all share, learned from positives and negatives.

W. Yuan, C. Yang, Q. V. H. Nguyen, L. Cui, T. He, H. Yin, "Interaction-level Membership Inference Attack
Against Federated Recommender Systems", WWW 2023, pp. 1053-1062, arXiv:2301.10964, with the
settings of the authors' program (github.com/hi-weiyuan/FedRec_IMIA).

==========  ========================================================================================
u_i         a client's embedding, which stays with it           ``client_factors``  (n_users, K)
v_j         item embeddings                                     ``item_factors``  (n_items, K)
mu          ``proximal``, weight of the defense: mu sum |v_j - v_j as broadcast|^2 in each step's loss
==========  ========================================================================================

A client's samples are its rated items, as positives, and ``negatives`` times as many others, drawn once. In a
round each client that takes part goes ``local_steps`` times through its samples, ``batch_size`` at a time and
in a new order each time, with Adam on the mean cross-entropy. It steps u, its rows of V and the network, and
uploads how its rows and the network changed; the server adds the means over clients (FedAvg), where a client
without a row of an item counts as a change of 0.

Both scorers put (user, item) through a network of ReLU layers of K, K / 2, K / 4, ... units and one output.
``ncf`` takes u and v. ``lightgcn`` takes the means of them and of what one step of propagation makes of them
on the client's own graph, a star of its n positives: (u + sum v_j / sqrt(n)) / 2, (v_j + u / sqrt(n)) / 2,
and v_j / 2 of items that are no positives.

The server sees every row with its sender, V and the network. Defenses change the rows of items alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from victims.common.limits import are_plausible, diverged
from victims.common.seeds import Purpose, generator, jax_key
from victims.common.validation import (
    Rule,
    above,
    at_least,
    between,
    one_of,
    or_none,
    require,
    require_fields,
)
from victims.data.ratings import Ratings
from victims.protocols.base import Attacker, Capabilities, Centralised, Received, Rows, Sample, SetUp
from victims.protocols.cofactor_draws import draw_absent
from victims.protocols.exchanged import ranges, summed_by
from victims.protocols.local_training import size_classes
from victims.protocols.network import SERVER
from victims.protocols.switches import Switches, check_switches, present, refuse, rule_of
from victims.transcript.kinds import ITEM, STANDARD, Kind
from victims.transcript.manifest import Manifest, Upload

jax.config.update("jax_enable_x64", True)
NETWORK = "network"  # kind of the rows that hold its parameters, K a row


class Habits(NamedTuple):
    """What is compiled: the choices that are fixed for a training."""

    scorer: str
    widths: tuple[int, ...]  # of the network's layers, the input first
    passes: int
    steps: int  # minibatches of a pass
    rate: float
    proximal: float


class Client(NamedTuple):
    """What a client trains: its embedding, its rows of V and the network."""

    own: Float[Array, " K"]
    items: Float[Array, "samples K"]
    network: Float[Array, " parameters"]


def widths_of(factors: int, hidden: int) -> tuple[int, ...]:
    """Widths of the layers, the input first.

    Examples
    --------
    >>> widths_of(64, 2)
    (128, 64, 32, 1)
    """
    return (2 * factors, *(factors >> layer for layer in range(hidden)), 1)


def logits(
    widths: tuple[int, ...],
    network: Float[Array, " parameters"],
    user: Float[Array, " K"],
    items: Float[Array, "n K"],
) -> Float[Array, " n"]:
    """What the network says of a user and items."""
    layer = jnp.concatenate([jnp.broadcast_to(user, items.shape), items], axis=1)
    at = 0
    for inputs, outputs in pairwise(widths):
        weight = network[at : at + inputs * outputs].reshape(inputs, outputs)
        layer = (jax.nn.relu(layer) if at else layer) @ weight
        at += inputs * outputs + outputs
        layer = layer + network[at - outputs : at]
    return layer[:, 0]


def seen_by(
    scorer: str, own: Float[Array, " K"], items: Float[Array, "n K"], linked: Bool[Array, " n"]
) -> tuple[Float[Array, " K"], Float[Array, "n K"]]:
    """The user and the items as the network gets them; ``linked`` are the client's positives."""
    if scorer == "ncf":
        return own, items
    scale = 1 / jnp.sqrt(jnp.maximum(jnp.sum(linked), 1)).astype(items.dtype)
    link = scale * linked.astype(items.dtype)
    return (own + link @ items) / 2, (items + link[:, None] * own) / 2


@partial(jax.jit, static_argnums=0)
@partial(jax.vmap, in_axes=(None, 0, 0, None, 0, 0, 0))
def train(
    habits: Habits,
    own: Float[Array, " K"],
    items: Float[Array, "samples K"],
    network: Float[Array, " parameters"],
    label: Bool[Array, " samples"],
    there: Bool[Array, " samples"],
    key: Array,
) -> Client:
    """Train some clients locally; ``there`` is false on padding."""
    adam = optax.adam(habits.rate)

    def loss(client: Client, batch: Int[Array, " batch"]) -> Float[Array, ""]:
        user, every = seen_by(habits.scorer, client.own, client.items, label & there)
        score = logits(habits.widths, client.network, user, every[batch])
        some = there[batch].astype(score.dtype)
        entropy = optax.sigmoid_binary_cross_entropy(score, label[batch].astype(score.dtype))
        moved = habits.proximal * jnp.sum((client.items - items) ** 2)
        return jnp.sum(some * entropy) / jnp.maximum(jnp.sum(some), 1) + moved

    def step(carried: Any, batch: Array) -> tuple[Any, None]:
        client, memory = carried
        update, new = adam.update(jax.grad(loss)(client, batch), memory)
        stepped = optax.apply_updates(client, update), new
        some = jnp.any(there[batch])  # of padding alone there is no step
        return jax.tree.map(lambda one, other: jnp.where(some, one, other), stepped, carried), None

    def one_pass(carried: Any, key: Array) -> tuple[Any, None]:
        drawn = jnp.where(there, jax.random.uniform(key, there.shape), 2.0)
        return jax.lax.scan(step, carried, jnp.argsort(drawn).reshape(habits.steps, -1))

    start = Client(own, items, network)
    (client, _), _ = jax.lax.scan(one_pass, (start, adam.init(start)), jax.random.split(key, habits.passes))
    return client


class Samples(NamedTuple):
    """Positives and negatives, ascending by user, then item."""

    start: Int[np.ndarray, " users+1"]  # each user's first sample, and their number
    item: Int[np.ndarray, " samples"]
    label: Bool[np.ndarray, " samples"]


class Outcome(NamedTuple):
    """What clients made of a round: changes by sample, by client, and the clients' embeddings."""

    users: Int[np.ndarray, " stepping"]
    heard: Bool[np.ndarray, " users"]
    own: Float[np.ndarray, "stepping K"]
    items: Float[np.ndarray, "samples K"]
    network: Float[np.ndarray, "stepping parameters"]


class Moment:
    """A state's own key, under which what its round makes of the clients is kept for as long as it lives."""


class State(NamedTuple):
    """Everything that is carried from one round to the next."""

    round: int
    item_factors: Float[np.ndarray, "items K"]
    network: Float[np.ndarray, " parameters"]
    client_factors: Float[np.ndarray, "users K"]
    seed: int
    samples: Samples
    moment: Moment


# rows, the network and the server's step are asked for one after the other, and training takes long
_OUTCOMES: WeakKeyDictionary[Moment, tuple[FedRec, np.ndarray, Outcome]] = WeakKeyDictionary()


def outcome_of(victim: FedRec, state: State) -> Outcome:
    """Train all who take part, in batches of similar size."""
    kept = _OUTCOMES.get(state.moment)
    if kept is not None and kept[0] == victim and kept[1] is state.item_factors:
        return kept[2]
    samples, network = state.samples, state.network
    stepping, heard = present(victim, len(state.client_factors), state.seed, state.round)
    users = np.flatnonzero(stepping)
    first, count = samples.start[users], np.diff(samples.start)[users]
    own, changes = state.client_factors[users].copy(), np.zeros((users.size, network.size), np.float32)
    items = np.zeros((samples.item.size, victim.factors), np.float32)
    keys = jax.random.split(jax_key(state.seed, Purpose.FEDREC_ORDER, state.round), stepping.size)[users]
    for group in size_classes(first, count, np.arange(samples.item.size), victim.ratings_of_a_step):
        n, there, entry = group.place.size, group.entry >= 0, np.maximum(group.entry, 0)
        at, before = np.resize(group.place, len(entry)), state.item_factors[samples.item[entry]]
        habits, label = victim.habits(group.steps), samples.label[entry]
        client = train(habits, own[at], before, network, label, there, keys[at])
        own[group.place], changes[group.place] = client.own[:n], np.asarray(client.network)[:n] - network
        took = there[:n]
        items[entry[:n][took]] = (np.asarray(client.items)[:n] - before[:n])[took]
    outcome = Outcome(users, heard, own, items, changes)
    _OUTCOMES[state.moment] = victim, state.item_factors, outcome
    return outcome


@dataclass(frozen=True, eq=False)
class Scores:
    """Logits of users for items, each on the graph of its positives."""

    victim: FedRec
    state: State

    def scores(self, users: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some items"]:
        """Of some clients for all items."""
        samples, state = self.state.samples, self.state
        linked = np.zeros((users.size, len(state.item_factors)), bool)
        for row, user in zip(linked, users.tolist(), strict=True):
            mine = slice(samples.start[user], samples.start[user + 1])
            row[samples.item[mine][samples.label[mine]]] = True
        own = state.client_factors[users]
        scorer, widths = self.victim.scorer, self.victim.habits(1).widths
        return np.asarray(_scores(scorer, widths, state.network, own, state.item_factors, linked), np.float64)

    def pairs(self, users: Int[np.ndarray, " n"], items: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Of pairs of a client and an item."""
        who, row = np.unique(users, return_inverse=True)
        return self.scores(who)[row, items]


@partial(jax.jit, static_argnums=(0, 1))
@partial(jax.vmap, in_axes=(None, None, None, 0, None, 0))
def _scores(
    scorer: str, widths: tuple[int, ...], network: Array, own: Array, items: Array, linked: Array
) -> Float[Array, " items"]:
    return logits(widths, network, *seen_by(scorer, own, items, linked))


@dataclass(frozen=True)
class FedRec(Switches):
    """Hyper-parameters; the defaults are those of the authors' program.

    It learns from implicit feedback: that an item is rated, not how. Rows are in single precision, as the
    program's. A round holds the rows of all who take part: 4 K bytes for each sample.

    Attributes
    ----------
    update, weighting : str
        "sgd" and "observed-only", the only ones of this protocol.
    scorer : "ncf" or "lightgcn"
    factors : int
        K, >= 1.
    hidden_layers : int
        Layers of K, K / 2, ... units before the output, 1 to 8, and as many as leave a unit in each.
    negatives : int
        Negatives for each positive, 1 to 100; a client without so many other items has fewer.
    learning_rate : float
        Of Adam (0.9, 0.999, 1e-8), which clients start anew in each round, > 0.
    proximal : float
        mu, >= 0: the paper's defense, which keeps rows near the broadcast ones; its program has 0.1.
    init_scale : float or None
        Standard deviation of embeddings at the start, > 0; None is 1 with "ncf" and 0.1 with "lightgcn".

    References
    ----------
    Yuan et al., WWW 2023, arXiv:2301.10964.
    """

    update: Literal["sgd"] = "sgd"
    weighting: Literal["observed-only"] = "observed-only"
    scorer: Literal["ncf", "lightgcn"] = "ncf"
    factors: int = 64
    hidden_layers: int = 2
    negatives: int = 4
    learning_rate: float = 1e-3
    proximal: float = 0.0
    init_scale: float | None = None
    local_steps: int = field(default=20, kw_only=True)
    batch_size: int | Literal["all"] = field(default=64, kw_only=True)
    shuffle: Literal["never", "once", "rounds"] = field(default="rounds", kw_only=True)
    reduction: Literal["sum", "mean"] = field(default="mean", kw_only=True)
    upload: Literal["gradient", "delta", "weights"] = field(default="delta", kw_only=True)

    def __post_init__(self) -> None:
        require_fields(
            self,
            "fedrec",
            update=one_of("sgd"),
            weighting=one_of("observed-only"),
            scorer=one_of("ncf", "lightgcn"),
            factors=between(1, 4096),
            hidden_layers=between(1, 8),
            negatives=between(1, 100),
            learning_rate=above(0),
            proximal=at_least(0),
            init_scale=or_none(above(0)),
        )
        deepest = self.factors.bit_length()
        fits = Rule(f"at most {deepest} where factors is {self.factors}", lambda layers: layers <= deepest)
        halved = "each layer halves the units of the one before; raise factors, or have fewer layers"
        require("fedrec", "hidden_layers", self.hidden_layers, fits, halved)
        passes = "a client draws minibatches anew in each pass, of one sample with batch_size=1"
        refuse(self, "fedrec", {"order": "batch", "shuffle": "rounds"}, passes)
        refuse(self, "fedrec", {"reduction": "mean"}, "cross-entropy is a mean over the minibatch")
        refuse(self, "fedrec", {"upload": "delta"}, "Adam moves the rows that a client uploads the change of")
        refuse(self, "fedrec", {"biases": None}, "a network scores the items")
        check_switches(self, "fedrec")

    @property
    def capabilities(self) -> Capabilities:
        """A server that averages rows of items and the network."""
        return Capabilities(
            Centralised(self.factors, 0.0),
            (Attacker("undeclared", 2), Attacker("imia"), Attacker("rated-set", 2)),
            implicit=True,
            sampling_obstacle="fedrec draws negatives itself; set negatives",
            predictor=lambda state, ratings, sample: Scores(self, state),
            shared_rows=self.shared_rows,
        )

    def habits(self, steps: int) -> Habits:
        """What local training is compiled for."""
        widths = widths_of(self.factors, self.hidden_layers)
        return Habits(self.scorer, widths, self.local_steps, steps, self.learning_rate, self.proximal)

    def init(self, ratings: Ratings, seed: int) -> State:
        """Start embeddings, the network uniform within 1 / sqrt(inputs), and the negatives."""
        scale = self.init_scale or {"ncf": 1.0, "lightgcn": 0.1}[self.scorer]
        shapes = (ratings.n_items, self.factors), (ratings.n_users, self.factors)
        rngs = [generator(seed, Purpose.FEDREC_START, table) for table in range(3)]
        tables = [
            (scale * r.standard_normal(s)).astype(np.float32) for r, s in zip(rngs, shapes, strict=False)
        ]
        widths = widths_of(self.factors, self.hidden_layers)
        layers = [
            rngs[2].uniform(-1, 1, (inputs + 1) * outputs) / np.sqrt(inputs)
            for inputs, outputs in pairwise(widths)
        ]
        samples = drawn(ratings, self.negatives, seed)
        network = np.concatenate(layers).astype(np.float32)
        return State(0, tables[0], network, tables[1], seed, samples, Moment())

    def round(
        self, state: State, ratings: Ratings, received: Received | None = None, sample: Sample | None = None
    ) -> State:
        """One round; the server uses the sums of item rows ``received`` instead of exact ones."""
        outcome = outcome_of(self, state)
        heard, samples = outcome.heard, state.samples
        kept = np.repeat(heard, np.diff(samples.start))
        sums = (
            summed_by(samples.item[kept], outcome.items[kept], len(state.item_factors))
            if received is None
            else received.items
        )
        clients, n_heard = state.client_factors.copy(), heard.sum()
        clients[outcome.users] = outcome.own
        items = (state.item_factors + sums / n_heard).astype(np.float32)
        network = state.network + outcome.network[heard[outcome.users]].mean(axis=0, dtype=np.float64)
        if not are_plausible(items, clients, network):
            raise diverged("fedrec", state.round, f"learning_rate (now {self.learning_rate:g})")
        network = network.astype(np.float32)
        return State(state.round + 1, items, network, clients, state.seed, samples, Moment())

    def broadcast(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """V as the clients receive it; there are no attributes."""
        return state.item_factors, np.zeros((0, self.factors), np.float32)

    def user_factors(self, state: State, ratings: Ratings, sample: Sample | None = None) -> np.ndarray:
        """The clients' embeddings before the round."""
        return state.client_factors

    def uploads(
        self, state: State, ratings: Ratings, users: np.ndarray, sample: Sample | None = None
    ) -> Iterator[Rows]:
        """Changes of the rows of the given clients, items ascending."""
        outcome, samples = outcome_of(self, state), state.samples
        users = users[outcome.heard[users]]
        count = np.diff(samples.start)[users]
        entry = ranges(samples.start[users], count)
        sender, kind = np.repeat(users, count).astype(np.int32), np.full(entry.size, ITEM, np.int8)
        yield Rows(
            sender, kind, samples.item[entry].astype(np.int32), outcome.items[entry].astype(np.float64)
        )

    def shared_rows(self, state: State, ratings: Ratings, users: np.ndarray) -> Iterator[SetUp]:
        """The network as broadcast, and its changes by the given clients, K parameters a row."""
        outcome = outcome_of(self, state)
        chosen = np.isin(outcome.users, users) & outcome.heard[outcome.users]
        for sender, receiver, table in (
            (np.array([SERVER]), None, state.network[None]),
            (outcome.users[chosen], SERVER, outcome.network[chosen]),
        ):
            n_rows = -(-table.shape[1] // self.factors)
            padded = np.pad(table, ((0, 0), (0, n_rows * self.factors - table.shape[1])))
            index = np.tile(np.arange(n_rows), len(table))
            values = padded.reshape(-1, self.factors).astype(np.float64)
            yield SetUp(NETWORK, receiver, np.repeat(sender, n_rows), index, values)

    def manifest(self, ratings: Ratings, rounds: list[int]) -> Manifest:
        """Everything a participant of the protocol knows."""
        said = {name: getattr(self, name) for name in ("scorer", "hidden_layers", "negatives", "proximal")}
        return Manifest(
            format="factorleak-transcript",
            version=2,
            protocol="fedrec",
            update=None,
            weighting=self.weighting,
            n_users=ratings.n_users,
            n_items=ratings.n_items,
            n_attributes=0,
            factors=self.factors,
            rounds=rounds,
            hyperparameters={"client_learning_rate": self.learning_rate},
            upload=Upload(),
            scale_known=False,
            rating_levels=[1.0],
            parties={"server": SERVER},
            kinds={**STANDARD, NETWORK: Kind(of="model", role="other")},
            recorded_by="factorleak",
            declared_rule=rule_of(
                self, "fedrec", None, True, loss="logistic", link="sigmoid", optimizer="adam", **said
            ),
        )


def drawn(ratings: Ratings, negatives: int, seed: int) -> Samples:
    """Positives, and so many times as many other items of each user, distinct ones."""
    positive = ratings.users.astype(np.int64) * ratings.n_items + ratings.items
    rng = generator(seed, Purpose.FEDREC_NEGATIVES)
    pairs = draw_absent(positive, negatives * np.diff(ratings.indptr), ratings.n_items, rng)
    key = np.concatenate([positive, pairs[:, 0] * ratings.n_items + pairs[:, 1]])
    order = np.argsort(key)
    start = np.searchsorted(key[order], np.arange(ratings.n_users + 1) * ratings.n_items)
    return Samples(start, key[order] % ratings.n_items, order < positive.size)
