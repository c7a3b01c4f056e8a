"""Verbs that ``dpmf-yang`` and ``dmf`` have in common: users who send to those they trust (paper 004)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

from victims.common.errors import InputError
from victims.common.limits import are_plausible, diverged
from victims.common.validation import above, at_least, between, one_of
from victims.data.ratings import Ratings
from victims.protocols.cofactor_round import (
    Heard,
    State,
    Table,
    after_round,
    heard_along,
    sent_of,
    trained_of,
)
from victims.protocols.cofactor_steps import Rules
from victims.protocols.exchanged import Centralised, Holding, Received, Rows, Sample, SetUp, pieces
from victims.protocols.feedback import EXPLICIT, RatingMap, Samples, in_stars
from victims.protocols.network import Edges, Graph
from victims.protocols.own_copies import key_of, moved_items, whole
from victims.protocols.peer_switches import PeerSwitches, edges_present
from victims.protocols.presence import present
from victims.protocols.row_sums import Shape
from victims.transcript.kinds import IMPLICIT, ITEM

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


class AmongTrusted(PeerSwitches):
    """Verbs by ``rules``, ``samples_of`` and ``edges_of``, which victims have beside these.

    ``rows_about_implicit`` says whether there is a Z, so that rows about it are sent, too.
    """

    rows_about_implicit: ClassVar[bool]
    name: str
    factors: int
    degree: int
    lambda_items: float
    rules: Rules

    def samples_of(self, state: State, ratings: Ratings) -> Samples:
        """What users step on in this round."""
        raise NotImplementedError

    def edges_of(self, state: State, ratings: Ratings) -> Edges:
        """Who receives whose rows in this round."""
        raise NotImplementedError

    def sampling_obstacle(self) -> str:
        """Unrated items are drawn by the protocol itself, if at all."""
        name = self.name
        return f"{name} draws its own negatives, so unrated items must not be sampled; leave the sampling out"

    @property
    def centralised(self) -> Centralised:
        """One V, without link and implicit feedback; ridge counts once per rating."""
        return Centralised(self.factors, self.lambda_items, per_rating=True)

    def round(
        self,
        state: State,
        ratings: Ratings,
        received: Received | None = None,
        sample: Sample | None = None,
    ) -> State:
        """One round; receivers get the rows ``received`` instead of exact ones."""
        _refuse(self.sampling_obstacle(), sample)
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

    def set_up(self, state: State, ratings: Ratings) -> Iterator[SetUp]:
        """Nobody is told anything before the first round: who trusts whom is public."""
        yield from ()

    def user_factors(self, state: State, ratings: Ratings, sample: Sample | None = None) -> np.ndarray:
        """U^ before the pass of this round: what the rows of explicit samples are made of."""
        return state.clients + state.offsets

    def uploads(
        self, state: State, ratings: Ratings, users: np.ndarray, sample: Sample | None = None
    ) -> Iterator[Rows]:
        """Rows about V of the given users, items ascending, and about Z of positives, then of negatives."""
        _refuse(self.sampling_obstacle(), sample)
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


def _refuse(obstacle: str, sample: Sample | None) -> None:
    if sample is not None:
        raise InputError(obstacle)
