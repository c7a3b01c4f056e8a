"""A victim in training under its defenses: the state of the moment, and what its clients send in a round.

Nothing here writes: every function is one of the run and of its seed, so that a recording, an evaluation
and a cost measurement see the same uploads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float

from victims.data.ratings import Ratings
from victims.defense_rules import (
    refuse_beside_biases,
    refuse_in_turn,
    refuse_on_the_way,
    refuse_twice,
    sampled,
)
from victims.protocols.base import (
    Cipher,
    Defense,
    InTurn,
    Network,
    Predictor,
    Received,
    Rows,
    Sample,
    Stopping,
    Victim,
)
from victims.protocols.client_task import Biases
from victims.protocols.network import Protect
from victims.protocols.row_sums import Sums
from victims.protocols.switches import Switches
from victims.transcript.view import ITEM


class Run(NamedTuple):
    """A training in progress."""

    victim: Victim
    ratings: Ratings  # those that clients train on, on their devices
    defenses: tuple[Defense, ...]
    seed: int
    cipher: Cipher | None  # none where uploads stay in the clear
    state: Any  # of the victim, before the next round

    def trained(self, round_: int, sums: Sequence[Sums] = (), on_received: bool = True) -> Run:
        """The run after a round."""
        sample = sampled(self.defenses, self.ratings, round_, self.seed)
        arrived = received(self, round_, sums, sample) if on_received else None
        return self._replace(state=self.victim.round(self.state, self.ratings, arrived, sample))

    @property
    def stopped(self) -> bool:
        """Whether the training is over, by the victim's own criterion."""
        return isinstance(self.victim, Stopping) and self.victim.stopped(self.state)

    def user_factors(self, round_: int) -> Float[np.ndarray, "users factors"]:
        """The clients' factors in a round."""
        sample = sampled(self.defenses, self.ratings, round_, self.seed)
        return self.victim.user_factors(self.state, self.ratings, sample)

    def predictor(self, round_: int) -> Predictor:
        """What the clients predict in a round."""
        sample = sampled(self.defenses, self.ratings, round_, self.seed)
        return self.victim.predictor(self.state, self.ratings, sample)

    @property
    def network(self) -> Network:
        """Whom the rows of the next round go to."""
        return self.victim.network(self.state, self.ratings)


def biases_of(run: Run) -> Biases | None:
    """Look up the biases of a victim that has the switch for them."""
    if not isinstance(run.victim, Switches) or run.victim.biases is None:
        return None
    return run.state.biases


def start(victim: Victim, ratings: Ratings, defenses: Sequence[Defense], seed: int) -> Run:
    """A training before round 0."""
    refuse_twice(defenses)
    for defense in defenses:
        ratings = defense.on_device(ratings, seed)
        refuse_in_turn(victim, defense)
    state, cipher = victim.init(ratings, seed), None
    network = victim.network(state, ratings)
    factors = victim.broadcast(state)[0].shape[1]
    for position, defense in enumerate(defenses):
        cipher = defense.cipher(ratings.n_users, factors, seed)
        refuse_beside_biases(victim, defense, encrypts=cipher is not None)
        shares_scale = network.edges is not None and (
            defense.noise_scale(ratings, factors, 0, seed) is not None
        )
        refuse_on_the_way(network, defenses, position, encrypts=cipher is not None, shares_scale=shares_scale)
    if cipher is not None and victim.blind_server:  # which starts from encrypted, so from rounded, factors
        state = state._replace(item_factors=cipher.rules.rounded(np.asarray(state.item_factors)))
    return Run(victim, ratings, tuple(defenses), seed, cipher, state)


def formed_rows(
    run: Run, users: np.ndarray, round_: int, sample: Sample | None = None, on_received: bool = True
) -> Iterator[Rows]:
    """Rows of clients after what defenses do once for all who receive them."""
    sample = sample or sampled(run.defenses, run.ratings, round_, run.seed)
    if run.victim.stepwise:
        arrived = received(run, round_) if on_received else None
        uploads = cast(InTurn, run.victim).uploads_in_turn(run.state, run.ratings, users, arrived)
    else:
        uploads = run.victim.uploads(run.state, run.ratings, users, sample)
    for rows in uploads:
        yield _through(_once_and_each(run.defenses)[0], rows, run.ratings, round_, run.seed)


def each_message(run: Run, round_: int) -> Protect | None:
    """What defenses do to every message anew, from the first that does on; None where none does."""
    each = _once_and_each(run.defenses)[1]
    if not each:
        return None
    return lambda rows, seed: _through(each, rows, run.ratings, round_, seed)


def sent_rows(
    run: Run, users: np.ndarray, round_: int, sample: Sample | None = None, on_received: bool = True
) -> Iterator[Rows]:
    """Rows as they leave the clients, before they are encrypted, for one who receives those of all."""
    each = each_message(run, round_)
    for rows in formed_rows(run, users, round_, sample, on_received):
        yield rows if each is None else each(rows, run.seed)


def received(
    run: Run, round_: int, sums: Sequence[Sums] = (), sample: Sample | None = None
) -> Received | None:
    """What arrives in a round, as those who receive it step with it."""
    if run.cipher is None and not any(defense.changes_uploads for defense in run.defenses):
        return None
    if run.victim.stepwise:
        return _added(run, round_)
    rows = _rows_of_all(run, round_, sample)
    return run.network.arrived(rows, each_message(run, round_), run.cipher, sums, run.seed)


def sums_of(run: Run, round_: int, watched: np.ndarray) -> list[Sums]:
    """The sums that are seen of encrypted rows."""
    assert run.cipher is not None
    rows, each = _rows_of_all(run, round_), each_message(run, round_)
    return run.network.sums(rows, each, run.cipher, watched, run.seed)


def _rows_of_all(run: Run, round_: int, sample: Sample | None = None) -> Callable[[], Iterator[Rows]]:
    return partial(formed_rows, run, np.arange(run.ratings.n_users), round_, sample)


def _once_and_each(defenses: Sequence[Defense]) -> tuple[Sequence[Defense], Sequence[Defense]]:
    """Those that treat a row once, and those from the first on that treats every message anew."""
    first = next((at for at, defense in enumerate(defenses) if defense.per_message), len(defenses))
    return defenses[:first], defenses[first:]


def _through(defenses: Sequence[Defense], rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
    for defense in defenses:
        rows = defense.uploaded(rows, ratings, round_, seed)
    return rows


def _added(run: Run, round_: int) -> Received:
    """What additive defenses add to the upload of every rating."""
    ratings, factors = run.ratings, run.victim.broadcast(run.state)[0].shape[1]
    kind = np.full(ratings.n_ratings, ITEM, np.int8)
    rows = Rows(ratings.users, kind, ratings.items, np.zeros((ratings.n_ratings, factors)))
    for defense in run.defenses:
        rows = defense.uploaded(rows, ratings, round_, run.seed)
    nothing = np.zeros((0, factors))
    return Received(nothing, nothing, rows.gradient)
