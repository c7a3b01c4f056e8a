"""PDMFRec: matrix factorisation among neighbours, without a server; gradients go one way and without a name.

Paper 003: Z. Li, a report that reproduces E. Duriakova, E. Tragos, B. Smyth et al., "PDMFRec: A Decentralised
Matrix Factorisation with Tunable User-centric Privacy", RecSys 2019, doi:10.1145/3298689.3347035; Algorithm 1
and equations (1) to (6).

================  ==================================================================================
U_u               a client's own factor                     ``State.clients``
V_i^u             its own copy of an item's factor          ``OwnItems``
W_uu'             similarity of neighbours                  ``similarity_graph``
gamma, alpha      ``learning_rate``, ``regularization``
d                 ``factors``
================  ==================================================================================

Before the first round a helper is told what it needs for W: each client's set of items, or, as from a
private set intersection, the sizes of their intersections and of the sets (paper 003 does not say which).
It tells each client its neighbours and W. Then in every round each client goes through its ratings, e = r -
U.V, U <- U - gamma (-e V + alpha U), V_i <- V_i - gamma (-e U + alpha V_i), both gradients at the same
point, and sends (i, W_uu' grad V_i) to every neighbour u'. After all have, V_j^u <- V_j^u - gamma mean_w
(W_wu grad V_j^w) over the neighbours w that sent j.

Open in the paper, an option each: W is in the message and again in line 11 (``weight=twice``) or once; the
start is one matrix for all (``start=shared``) or each client's own; gradients step by step
(``order=per-rating``, as Algorithm 1 is indented) or all at the state before the round (``batch``); receivers
step after all have sent, as line 9 says (``receive=barrier``), or at each row (``arrival``). Not given: T,
alpha, the threshold, the start, the order of a pass. The threshold is one of co-rated items (6), not of
similarity.

A neighbour sees the rows that its neighbours send it, with ``anonymous`` without their names; it knows its
own factors, its ratings, W of its neighbours, and the shared start. Nobody holds all of V.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int

from victims.common.errors import InputError
from victims.common.limits import are_plausible, diverged
from victims.common.validation import above, at_least, between, one_of, require_fields
from victims.data.ratings import Ratings
from victims.protocols.base import (
    Attacker,
    Capabilities,
    Centralised,
    Edges,
    Graph,
    Holding,
    Received,
    Rows,
    Sample,
    SetUp,
    Shape,
    pieces,
)
from victims.protocols.pdmfrec_round import (
    OwnItems,
    Rules,
    Start,
    State,
    after_round,
    by_item,
    moved_items,
    order_of_pass,
    passed_of,
)
from victims.protocols.switches import (
    Switches,
    check_peer_switches,
    edges_present,
    present,
    refuse,
    rule_of,
)
from victims.transcript.kinds import ITEM, STANDARD, Kind
from victims.transcript.manifest import Manifest, Upload

ATTACKERS = (  # linking and reading what neighbours receive, and lists: named, or told to the helper
    Attacker("peers", 1),
    Attacker("peers-named", 1),
    Attacker("peers-lists", 1),
    Attacker("rated-set", 2),
    Attacker("helper-lists", 1),
)
UNWEIGHED = "pdmfrec has no weight for unrated items, so they must not be sampled; leave the sampling out"
UNRECORDED = (
    "receive=arrival of pdmfrec forms no rows to record or to change by defenses: each is computed at a copy "
    "that others of the same round have moved, and no recording holds that copy; use receive=barrier"
)
ONE_PASS = {  # what is left of the switches
    "order": "per-rating",
    "local_steps": 1,
    "upload": "gradient",
    "participation": 1.0,
    "dropout": 0.0,
}
HELPER = -3
ITEM_SET, CO_RATED = "item-set", "co-rated"
Variant = Literal["full", "-sim", "-sim,all"]


@dataclass(frozen=True, eq=False)
class SimilarityGraph:
    """The graph; it has no direction."""

    weight: Float[np.ndarray, "users users"]  # W, 0 where there is no edge

    @property
    def edges(self) -> Edges:
        """By receiver, then sender."""
        receiver, sender = np.nonzero(self.weight)
        return Edges(sender.astype(np.int32), receiver.astype(np.int32), self.weight[receiver, sender])


def co_rated(ratings: Ratings) -> Int[np.ndarray, "users users"]:
    """|I_u n I_u'| of all pairs; |I_u| on the diagonal."""
    ones = np.ones(ratings.n_ratings, np.int32)
    rated = sp.csr_array((ones, ratings.items, ratings.indptr), shape=(ratings.n_users, ratings.n_items))
    return (rated @ rated.T).toarray()


def similarity_graph(ratings: Ratings, threshold: int, variant: Variant) -> SimilarityGraph:
    """The graph of a variant of the protocol."""
    if variant == "-sim,all":
        weight = np.ones((ratings.n_users, ratings.n_users))
    else:
        common = co_rated(ratings)
        near = common >= threshold
        if variant == "-sim":
            weight = near.astype(np.float64)
        else:
            size = np.sqrt(np.maximum(np.diag(common), 1).astype(np.float64))
            weight = np.where(near, common, 0) / size[:, None] / size
    np.fill_diagonal(weight, 0.0)
    return SimilarityGraph(weight)


def told_to_the_helper(helper: Literal["item-set", "counts"], ratings: Ratings) -> Iterator[SetUp]:
    """Form what the helper needs for W."""
    if helper == "item-set":
        yield SetUp(ITEM_SET, HELPER, ratings.users, ratings.items)
        return
    common = co_rated(ratings)
    one, other = np.nonzero(np.triu(common))
    yield SetUp(CO_RATED, HELPER, one, other, common[one, other].astype(np.float64))


def manifest_of(victim: Any, ratings: Ratings, rounds: list[int]) -> Manifest:
    """Write down everything that neighbours know."""
    beyond: dict[str, Any] = {"own_items": True}  # each client has copies of its own, and keeps them
    beyond |= {name: getattr(victim, name) for name in ("own_step", "weight", "variant", "threshold")}
    moves = victim.own_step and (victim.local_steps > 1 or victim.sends != "gradient")
    rule = rule_of(victim, "pdmfrec", "rated", moves, **beyond)
    rate = -1.0 if victim.sends == "gradient" else victim.learning_rate  # of errors in a row
    kinds = {
        ITEM_SET: Kind(of="item", role="other", width=1),
        CO_RATED: Kind(of="client", role="other", width=1),
    }
    return Manifest(
        format="factorleak-transcript",
        version=2,
        protocol="pdmfrec",
        update=None,
        weighting="observed-only",
        n_users=ratings.n_users,
        n_items=ratings.n_items,
        n_attributes=0,
        factors=victim.factors,
        rounds=rounds,
        hyperparameters={"learning_rate": victim.learning_rate, "regularization": victim.regularization},
        upload=Upload(scale=rate, regularization=-rate * victim.regularization),
        rating_levels=list(ratings.levels),
        parties={"helper": HELPER},
        recorded_by="factorleak",
        declared_rule=rule,
        kinds={**STANDARD, **kinds},
        roles={"helper": "helper"},
        links=victim.links,
        senders_hidden=victim.anonymous,
    )


@dataclass(frozen=True)
class PDMFRec(Switches):
    """Hyper-parameters; d and the candidates of gamma are those of section 4.4, the rest is not given.

    Attributes
    ----------
    update, weighting : str
        "sgd" and "observed-only", the only ones of this protocol.
    factors : int
        d, >= 1.
    learning_rate, regularization : float
        gamma > 0, alpha >= 0.
    variant : "full", "-sim" or "-sim,all"
        Similarities as weights; the same neighbours with weight 1; everybody with weight 1.
    threshold : int
        Fewest co-rated items of neighbours, >= 1.
    weight : "once" or "twice"
        Whether W is in the message alone, or in line 11 again.
    own_step : bool
        Whether clients step their own V_i by their own gradient (line 5), as published; else by those of
        neighbours alone.
    order : "per-rating" or "batch"
        Whether U moves after every rating, as Algorithm 1 is indented, or once per step.
    receive : "barrier" or "arrival"
        Whether receivers step once all have sent, as line 9 has it, or at every row that arrives
        (``after_arrivals``), which is not recorded.
    start : "shared" or "private"
        One start of V for all clients, which is public, or one for each.
    start_law : "uniform" or "normal"
        Entries of U and V are uniform on 0..``init_scale``, or normal with that standard deviation.
    init_scale : float
        > 0.
    helper : "item-set" or "counts"
        What clients tell the helper.
    anonymous : bool
        Whether neighbours do not see who sends a row.
    links : "sealed" or "plain"
        Whether others cannot read what is on the links.
    row_factor : "before"
        No other is taken here: a row is the gradient by which its sender steps its own copy.
    biases : none
        No others are taken here: neighbours send rows about copies of item factors.

    References
    ----------
    Paper 003; E. Duriakova et al., RecSys 2019, doi:10.1145/3298689.3347035.
    """

    update: Literal["sgd"] = "sgd"
    weighting: Literal["observed-only"] = "observed-only"
    factors: int = 20
    learning_rate: float = 0.02
    regularization: float = 0.01
    variant: Literal["full", "-sim", "-sim,all"] = "full"
    threshold: int = 1
    weight: Literal["once", "twice"] = "twice"
    own_step: bool = True
    order: Literal["batch", "per-rating"] = field(default="per-rating", kw_only=True)
    receive: Literal["barrier", "arrival"] = field(default="barrier", kw_only=True)
    start: Literal["shared", "private"] = "shared"
    start_law: Literal["uniform", "normal"] = "uniform"
    init_scale: float = 0.5
    helper: Literal["item-set", "counts"] = "item-set"
    anonymous: bool = True
    links: Literal["sealed", "plain"] = "plain"

    def __post_init__(self) -> None:
        require_fields(
            self,
            "pdmfrec",
            update=one_of("sgd"),
            weighting=one_of("observed-only"),
            factors=between(1, 4096),
            learning_rate=above(0),
            regularization=at_least(0),
            variant=one_of("full", "-sim", "-sim,all"),
            threshold=at_least(1),
            weight=one_of("once", "twice"),
            receive=one_of("barrier", "arrival"),
            start=one_of("shared", "private"),
            start_law=one_of("uniform", "normal"),
            init_scale=above(0),
            helper=one_of("item-set", "counts"),
            links=one_of("sealed", "plain"),
        )
        check_peer_switches(self, "pdmfrec")
        if not self.own_step:
            refuse(
                self, "pdmfrec", {"upload": "gradient"}, "own_step=false leaves the sender's copy as it is"
            )

        if self.receive == "arrival":
            refuse(self, "pdmfrec", ONE_PASS, "receive=arrival sends a row at every rating")

    @property
    def rules(self) -> Rules:
        """How clients step."""
        twice, on_arrival = self.weight == "twice", self.receive == "arrival"
        return Rules(self.learning_rate, self.regularization, twice, self.own_step, on_arrival, self)

    @property
    def start_rule(self) -> Start:
        """How factors start."""
        return Start(self.factors, self.start, self.start_law, self.init_scale)

    @property
    def capabilities(self) -> Capabilities:
        """The loss (1) with one V: ridge counts once per rating; clients who send to each other."""
        return Capabilities(
            Centralised(self.factors, self.regularization, per_rating=True),
            ATTACKERS,
            sampling_obstacle=UNWEIGHED,
            network=self.network,
            holdings=self.holdings,
            set_up=self.set_up,
            predictor=self.predictor,
        )

    def init(self, ratings: Ratings, seed: int) -> State:
        """Start factors, and the graph."""
        graph = similarity_graph(ratings, self.threshold, self.variant)
        rated = self.start_rule.at(seed, ratings, ratings.users, ratings.items)
        clients = self.start_rule.clients(seed, ratings.n_users)
        edges, nothing = graph.edges, np.zeros_like(rated)
        return State(0, seed, clients, rated, nothing, by_item(ratings), graph.weight, edges)

    def round(
        self,
        state: State,
        ratings: Ratings,
        received: Received | None = None,
        sample: Sample | None = None,
    ) -> State:
        """One round of Algorithm 1; neighbours get the rows ``received`` instead of exact ones."""
        with np.errstate(over="ignore", invalid="ignore"):  # told below
            after = after_round(self.rules, self.start_rule, state, ratings, received)
        if not are_plausible(after.clients, after.rated):
            rates = f"learning_rate (now {self.learning_rate:g})"
            raise diverged(
                "pdmfrec",
                state.round,
                rates + (", use order=per-rating" * (self.order == "batch")),
            )
        return after

    def broadcast(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """The shared start, which everybody knows; nothing where starts are private."""
        nothing = np.zeros((0, self.factors))
        if self.start == "private":
            return nothing, nothing
        n_items = state.by_item.indptr.size - 1
        return self.start_rule.shared(state.seed, n_items), nothing

    def network(self, state: State, ratings: Ratings) -> Graph:
        """The graph of similar clients, those who take part in this round."""
        edges = edges_present(self, state.edges, ratings.n_users, state.seed, state.round)
        return Graph(Shape(ratings.n_items, 0, self.factors), edges)

    def holdings(
        self, state: State, ratings: Ratings, watched: Int[np.ndarray, " clients"]
    ) -> Iterator[Holding]:
        """V of each client, where it differs from the shared start."""
        own = self.predictor(state, ratings)
        for client in watched.tolist():
            items = np.arange(ratings.n_items)
            if self.start == "shared":
                items = moved_items(state, ratings, client)
            if items.size:
                yield Holding(client, items, own.factors(np.full(items.size, client), items))

    def set_up(self, state: State, ratings: Ratings) -> Iterator[SetUp]:
        """What the helper is told: sets of items, or sizes of intersections and of sets."""
        return told_to_the_helper(self.helper, ratings)

    def user_factors(self, state: State, ratings: Ratings, sample: Sample | None = None) -> np.ndarray:
        """U before the pass of this round."""
        return state.clients

    def items_of(
        self,
        state: State,
        ratings: Ratings,
        users: Int[np.ndarray, " pairs"],
        items: Int[np.ndarray, " pairs"],
    ) -> Float[np.ndarray, "pairs K"]:
        """V_j^u of pairs of a client and an item."""
        return OwnItems(self.rules, self.start_rule, state, ratings).factors(users, items)

    def predictor(self, state: State, ratings: Ratings, sample: Sample | None = None) -> OwnItems:
        """U_u . V_j^u."""
        return OwnItems(self.rules, self.start_rule, state, ratings)

    def uploads(
        self, state: State, ratings: Ratings, users: np.ndarray, sample: Sample | None = None
    ) -> Iterator[Rows]:
        """Rows of those of the given clients who are heard, items ascending, with their places in a pass."""
        if self.receive == "arrival":
            raise InputError(UNRECORDED)
        row = passed_of(self.rules, state, ratings).sent(self, state)
        position = np.empty(ratings.n_ratings, np.int32)
        order = order_of_pass(ratings, self.shuffle, state.seed, state.round)
        position[order] = np.arange(ratings.n_ratings) - ratings.indptr[ratings.users]
        in_order = self.ratings_of_a_step is not None and self.sends == "gradient"
        users = users[present(self, ratings.n_users, state.seed, state.round).heard[users]]
        for piece in pieces(users, np.diff(ratings.indptr)[users], self.factors):
            entry = np.flatnonzero(np.isin(ratings.users, piece))
            yield Rows(
                ratings.users[entry],
                np.full(entry.size, ITEM, np.int8),
                ratings.items[entry].astype(np.int32),
                row[entry],
                position[entry] if in_order else None,
            )

    def manifest(self, ratings: Ratings, rounds: list[int]) -> Manifest:
        """Everything that neighbours know."""
        if self.receive == "arrival":
            raise InputError(UNRECORDED)
        return manifest_of(self, ratings, rounds)
