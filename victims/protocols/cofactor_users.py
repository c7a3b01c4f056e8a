"""What ``dpmf-yang`` and ``dmf`` have in common: users who send to those they trust (Yang et al. 2022).

The paper gives no start. The model has no biases and a logistic link, so that a user who hears nothing of an
item predicts from the shared start: with zero-mean factors that is 1/2, far below a mean rating. ``positive``
starts U and V from uniform numbers in s / sqrt(K) (1 -+ spread), whose products have the mean s^2 at every K.
The spread decides how much items differ that nobody told the user of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

from victims.common.limits import are_plausible, diverged
from victims.common.seeds import Purpose, generator
from victims.common.validation import above, at_least, between, one_of
from victims.data.ratings import Ratings
from victims.protocols.base import (
    Attacker,
    Capabilities,
    Centralised,
    Edges,
    Graph,
    Holding,
    Predictor,
    Received,
    Rows,
    Sample,
    Shape,
    pieces,
)
from victims.protocols.cofactor_draws import EXPLICIT, RatingMap, Samples, in_stars
from victims.protocols.cofactor_round import (
    Copies,
    Heard,
    Rules,
    State,
    Table,
    after_round,
    copies_of,
    explicit_counts,
    heard_along,
    key_of,
    moved_items,
    sent_of,
    trained_of,
    whole,
)
from victims.protocols.exchanged import summed_by
from victims.protocols.switches import Switches, edges_present, peer_manifest, present
from victims.transcript.kinds import IMPLICIT, ITEM, STANDARD, with_implicit
from victims.transcript.manifest import Manifest

FIELD_RULES = {  # of hyper-parameters that both victims have
    "update": one_of("sgd"),
    "weighting": one_of("observed-only"),
    "factors": between(1, 4096),
    "degree": between(1, 1_000_000),
    "learning_rate": above(0),
    "lambda_users": at_least(0),
    "lambda_items": at_least(0),
    "regularize": one_of("sample", "round"),
    "positive_share": between(0, 1),
    "fallback": one_of("nobody", "random", "similarity"),
    "rating_map": one_of("max", "min-max"),
    "start": one_of("positive", "normal"),
    "init_scale": above(0),
    "init_spread": between(0, 1),
    "personal_start": one_of("zero", "private"),
}


@dataclass(frozen=True, eq=False)
class OwnTables:
    """Predictions of users with their own U, V and Z."""

    state: State
    levels: tuple[float, ...]
    rating_map: RatingMap
    link: str  # of ratings
    # whether ratings are predicted with U^, as in training, or with U alone, as (19) is printed
    with_offsets: bool
    implicit: bool  # whether items are recommended by Z; without implicit feedback by V

    def unit(self, users: Int[np.ndarray, " n"], items: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Predicted ratings on the scale 0..1."""
        keys = key_of(users, items, len(self.state.items.public.start))
        return self._linked(np.einsum("nk,nk->n", self._left[users], self.state.items.at(keys)))

    def pairs(self, users: Int[np.ndarray, " n"], items: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Predicted ratings, in stars."""
        return in_stars(self.unit(users, items), self.levels, self.rating_map)

    def scores(self, users: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some items"]:
        """Recommendation of all items: the chance g(U . Z), or the rating in stars where there is no Z."""
        table = self.state.implicit if self.implicit else self.state.items
        left = self.state.clients if self.implicit else self._left
        factors = whole(table.public, users) + whole(table.personal, users)
        product = np.einsum("uik,uk->ui", factors, left[users])
        if self.implicit:
            return expit(product)
        return in_stars(self._linked(product), self.levels, self.rating_map)

    @property
    def _left(self) -> Float[np.ndarray, "users K"]:
        return self.state.clients + self.state.offsets if self.with_offsets else self.state.clients

    def _linked(self, product: np.ndarray) -> np.ndarray:
        return expit(product) if self.link == "logistic" else product


class Start(NamedTuple):
    """How factors start."""

    factors: int  # K
    kind: Literal["positive", "normal"]  # of U and V: uniform as above, or N(0, scale)
    scale: float  # s, or the standard deviation
    spread: float  # of ``positive``, in 0..1
    implicit_scale: float  # standard deviation of Z and Q, which start around zero
    # whether v_q and z_q start at zero, or each user's at its own draw: then no pair of user and item is left
    # where the start is, and a copy of both tables is held for every user
    personal: Literal["zero", "private"]
    personal_scale: float  # standard deviation of that draw


def start_state(start: Start, ratings: Ratings, samples: Samples, edges: Edges | None, seed: int) -> State:
    """The state before round 0."""
    n_users, n_items = ratings.n_users, ratings.n_items
    clients = _main(start, n_users, seed, 0)
    shared = _main(start, n_items, seed, 1), _small(start, n_items, seed, 2)
    items, implicit = (
        Table(copies_of(table), _personal(start, n_users, n_items, seed, number))
        for number, table in enumerate(shared)
    )
    user = samples.user[samples.kind == EXPLICIT]
    drawn = _small(start, user.size, seed, 3)
    offsets = summed_by(user, drawn, n_users) / np.maximum(explicit_counts(samples, n_users), 1)[:, None]
    return State(0, seed, clients, offsets, items, implicit, samples, edges)


def _main(start: Start, n_rows: int, seed: int, number: int) -> Float[np.ndarray, "rows K"]:
    rng = generator(seed, Purpose.DPMF_START, number)
    if start.kind == "normal":
        return start.scale * rng.normal(size=(n_rows, start.factors))
    middle = start.scale / np.sqrt(start.factors)
    return middle * rng.uniform(1 - start.spread, 1 + start.spread, (n_rows, start.factors))


def _small(start: Start, n_rows: int, seed: int, number: int) -> Float[np.ndarray, "rows K"]:
    rng = generator(seed, Purpose.DPMF_START, number)
    return start.implicit_scale * rng.normal(size=(n_rows, start.factors))


def _personal(start: Start, n_users: int, n_items: int, seed: int, number: int) -> Copies:
    zero = np.zeros((n_items, start.factors))
    if start.personal == "zero":
        return copies_of(zero)
    keys = np.arange(n_users * n_items, dtype=np.int64)
    drawn = generator(seed, Purpose.PERSONAL_START, number).normal(size=(keys.size, start.factors))
    return Copies(zero, keys, start.personal_scale * drawn)


def manifest_of(
    victim: Any,
    ratings: Ratings,
    rounds: list[int],
    link: Literal["sigmoid", "identity"],
    constants: tuple[str, ...],
    said: tuple[str, ...],
) -> Manifest:
    """The manifest of a recording: options that are public constants, and those that the rule declares."""
    return peer_manifest(
        victim.name,
        victim,
        ratings,
        rounds,
        {name: getattr(victim, name) for name in constants},
        victim.lambda_items,
        victim.local_steps > 1 or victim.sends != "gradient",
        {"link": link} | {name: getattr(victim, name) for name in said},
        kinds=with_implicit(sums=True) if victim.rows_about_implicit else dict(STANDARD),
    )


class AmongTrusted(Switches):
    """Verbs by ``rules``, ``samples_of``, ``drawn`` and ``predictor``, which victims have beside these.

    Attributes
    ----------
    row_factor : "before"
        No other is taken here: a row is the gradient by which its sender steps its own copy.
    biases : none
        No others are taken here: neighbours send rows about copies of item factors.
    """

    rows_about_implicit: ClassVar[bool]  # whether there is a Z, so that rows about it are sent, too
    read_by: ClassVar[tuple[Attacker, ...]]
    name: str
    factors: int
    degree: int
    lambda_items: float
    rules: Rules

    def samples_of(self, state: State, ratings: Ratings) -> Samples:
        """What users step on in this round."""
        raise NotImplementedError

    def drawn(self, ratings: Ratings, seed: int, draw: int) -> Edges:
        """Who receives whose rows, as drawn for a round, or for all."""
        raise NotImplementedError

    def edges_of(self, state: State, ratings: Ratings) -> Edges:
        """Who receives whose rows in this round."""
        return self.drawn(ratings, state.seed, state.round) if state.edges is None else state.edges

    def predictor(self, state: State, ratings: Ratings, sample: Sample | None = None) -> Predictor:
        """What users predict in this round."""
        raise NotImplementedError

    @property
    def capabilities(self) -> Capabilities:
        """One V, without link and implicit feedback, ridge once per rating; users who send to each other."""
        drawn = "draws its own negatives, so unrated items must not be sampled; leave the sampling out"
        return Capabilities(
            Centralised(self.factors, self.lambda_items, per_rating=True),
            self.read_by,
            sampling_obstacle=f"{self.name} {drawn}",
            network=self.network,
            holdings=self.holdings,
            predictor=self.predictor,
        )

    def round(
        self,
        state: State,
        ratings: Ratings,
        received: Received | None = None,
        sample: Sample | None = None,
    ) -> State:
        """One round; receivers get the rows ``received`` instead of exact ones."""
        samples = self.samples_of(state, ratings)
        trained = trained_of(self.rules, state, samples)
        is_explicit = samples.kind == EXPLICIT
        heard = present(self, ratings.n_users, state.seed, state.round).heard[samples.user]
        sent = sent_of(self.rules, state, samples, trained)
        if received is not None and received.rows is not None:
            sent = _in_place(received.rows, samples, ratings.n_items)
        edges = self._edges(state, ratings)
        explicit, implicit = (
            heard_along(
                edges,
                samples.user[chosen],
                samples.item[chosen],
                sent[chosen],
                ratings.n_users,
                ratings.n_items,
                1 / self.degree,
            )
            for chosen in (is_explicit & heard, ~is_explicit & heard)
        )
        if received is not None and received.copies is not None:
            explicit, implicit = self._copies(received.copies, edges, ratings)
        after = after_round(self.rules, state, samples, trained, explicit, implicit)
        if not are_plausible(after.clients, after.items.public.values, after.implicit.public.values):
            raise diverged(self.name, state.round, f"learning_rate (now {self.rules.rate:g})")
        return after

    def broadcast(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """The shared start of V, which everybody knows."""
        return state.items.public.start, np.zeros((0, self.factors))

    def network(self, state: State, ratings: Ratings) -> Graph:
        """The graph of trust of this round, to those who take part in it."""
        n_implicit = ratings.n_items if self.rows_about_implicit else 0
        shape = Shape(ratings.n_items, 0, self.factors, n_implicit)
        return Graph(shape, self._edges(state, ratings))

    def holdings(
        self, state: State, ratings: Ratings, watched: Int[np.ndarray, " clients"]
    ) -> Iterator[Holding]:
        """V of each user where it has left the shared start; where there is a Z its start, and likewise."""
        yield from _moved(state.items, watched, ITEM)
        if self.rows_about_implicit:
            start = state.implicit.public.start
            yield Holding(None, np.arange(len(start)), start, IMPLICIT)
            yield from _moved(state.implicit, watched, IMPLICIT)

    def user_factors(self, state: State, ratings: Ratings, sample: Sample | None = None) -> np.ndarray:
        """U^ before the pass of this round: what the rows of explicit samples are made of."""
        return state.clients + state.offsets

    def uploads(
        self, state: State, ratings: Ratings, users: np.ndarray, sample: Sample | None = None
    ) -> Iterator[Rows]:
        """Rows about V of the given users, items ascending, and about Z of positives, then of negatives."""
        samples = self.samples_of(state, ratings)
        trained = trained_of(self.rules, state, samples)
        sent = sent_of(self.rules, state, samples, trained)
        order = trained.last.place if self.sends == "gradient" else None
        counts = np.bincount(samples.user, minlength=ratings.n_users)
        users = users[present(self, ratings.n_users, state.seed, state.round).heard[users]]
        for piece in pieces(users, counts[users], self.factors):
            entry = np.flatnonzero(np.isin(samples.user, piece))
            place = None if order is None else order[entry]
            kind = np.where(samples.kind[entry] == EXPLICIT, ITEM, IMPLICIT).astype(np.int8)
            yield Rows(samples.user[entry], kind, samples.item[entry], sent[entry], place)

    def _edges(self, state: State, ratings: Ratings) -> Edges:
        edges = self.edges_of(state, ratings)
        return edges_present(self, edges, ratings.n_users, state.seed, state.round)

    def _copies(self, copies: Callable[[int], Rows], edges: Edges, ratings: Ratings) -> tuple[Heard, Heard]:
        """Messages that were changed one by one: those about V, and those about Z."""
        keys, rows = [np.zeros(0, np.int64)], [np.zeros((0, self.factors))]
        kinds, times = [np.zeros(0, np.int8)], [np.zeros(0)]
        for receiver in np.unique(edges.receiver).tolist():
            copy = copies(receiver)
            keys.append(key_of(np.full(copy.index.size, receiver), copy.index, ratings.n_items))
            rows.append(copy.gradient / self.degree)
            kinds.append(copy.kind)
            here = slice(*np.searchsorted(edges.receiver, [receiver, receiver + 1]))
            of_sender = np.searchsorted(edges.sender[here], copy.sender)
            times.append(edges.weight[here][of_sender] / self.degree)
        key, row, time = np.concatenate(keys), np.concatenate(rows), np.concatenate(times)
        is_item = np.concatenate(kinds) == ITEM
        explicit, implicit = (Heard(key[at], row[at], time[at]) for at in (is_item, ~is_item))
        return explicit, implicit


def _moved(table: Table, watched: Int[np.ndarray, " clients"], kind: int) -> Iterator[Holding]:
    """Each client's copies that have left the shared start."""
    for user in watched.tolist():
        items = np.union1d(moved_items(table.public, user), moved_items(table.personal, user))
        if items.size:
            keys = key_of(np.full(items.size, user), items, len(table.public.start))
            yield Holding(user, items, table.at(keys), kind)


def _in_place(rows: Rows, samples: Samples, n_items: int) -> Float[np.ndarray, "samples K"]:
    """What left the users, in the order of the samples; rows that were left out are zeros."""
    keys = key_of(samples.user, samples.item, n_items)  # nobody has an item in two samples
    order = np.argsort(keys)
    place = np.searchsorted(keys[order], key_of(rows.sender, rows.index, n_items))
    sent = np.zeros((keys.size, rows.gradient.shape[1]))
    sent[order[place]] = rows.gradient
    return sent
