"""A victim in training under its defenses: the state of the moment, and what its clients send in a round.

Nothing here writes: every function is one of the run and of its seed, so that a recording, an evaluation
and a cost measurement see the same uploads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Bool, Float, Int

from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.protocols.base import Cipher, Defense, InTurn, Received, Rows, Sample, Stopping, Total, Victim
from victims.protocols.client_task import Biases
from victims.protocols.switches import Switches
from victims.transcript.view import ATTRIBUTE, ITEM


class Run(NamedTuple):
    """A training in progress.

    Attributes
    ----------
    victim : Victim
    ratings : Ratings
        Those that clients train on, on their devices.
    defenses : tuple of Defense
    seed : int
    cipher : Cipher or None
        None where uploads stay in the clear.
    state : Any
        Of the victim, before the next round.
    """

    victim: Victim
    ratings: Ratings
    defenses: tuple[Defense, ...]
    seed: int
    cipher: Cipher | None
    state: Any

    def trained(self, round_: int, sums: Sums | None = None, on_received: bool = True) -> Run:
        """The run after a round.

        Parameters
        ----------
        round_ : int
            Its number, from 0.
        sums : Sums, optional
            Of the round, where they are formed already.
        on_received : bool
            Whether the server steps with what reaches it, or with the uploads before the defenses.
        """
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

    def predicting(
        self, round_: int
    ) -> tuple[Float[np.ndarray, "users columns"], Float[np.ndarray, "items columns"]]:
        """Tables of clients and items whose products are the predictions: factors, and biases if any.

        Parameters
        ----------
        round_ : int
            Of the clients' factors.
        """
        clients, items = self.user_factors(round_), self.victim.broadcast(self.state)[0]
        biases = biases_of(self)
        if biases is None:
            return clients, items
        of_clients, of_items = np.ones((len(clients), 2)), np.ones((len(items), 2))
        of_clients[:, 0], of_items[:, 1] = biases.clients, biases.items
        return np.concatenate([clients, of_clients], axis=1), np.concatenate([items, of_items], axis=1)


def biases_of(run: Run) -> Biases | None:
    """Biases of a victim with the switch for them."""
    if not isinstance(run.victim, Switches) or run.victim.biases is None:
        return None
    return run.state.biases


class Sums(NamedTuple):
    """Sums over all clients of what they send in a round; items first, then attributes.

    Attributes
    ----------
    values : (n_items + n_attributes, factors) float64
        Zero where not released.
    released : (n_items + n_attributes,) bool
        Formed and decrypted.
    n_items : int
    """

    values: Float[np.ndarray, "rows factors"]
    released: Bool[np.ndarray, " rows"]
    n_items: int


def start(victim: Victim, ratings: Ratings, defenses: Sequence[Defense], seed: int) -> Run:
    """A training before round 0.

    Parameters
    ----------
    victim : Victim
    ratings : Ratings
    defenses : sequence of Defense
        Applied in this order to every upload; encryption comes last.
    seed : int

    Raises
    ------
    InputError
        If encryption is not the last defense or named twice, or a defense changes uploads by what is in them
        where the server steps at every upload.
    """
    for defense in defenses:
        ratings = defense.on_device(ratings, seed)
        if victim.stepwise and defense.changes_uploads and not defense.additive:
            raise InputError(
                f"{defense.name} cannot be applied where the server steps at every upload: what is done to "
                "a row must not depend on the row; use order=batch"
            )
    state, cipher = victim.init(ratings, seed), None
    factors = victim.broadcast(state)[0].shape[1]
    for position, defense in enumerate(defenses):
        cipher = defense.cipher(ratings.n_users, factors, seed)
        if cipher is not None and position < len(defenses) - 1:
            raise InputError(
                f"{defense.name} must be the last defense, for nothing can be done to encrypted rows; "
                f"got {defenses[position + 1].name} after it"
            )
    if cipher is not None and victim.blind_server:  # which starts from encrypted, so from rounded, factors
        state = state._replace(item_factors=cipher.rules.rounded(np.asarray(state.item_factors)))
    return Run(victim, ratings, tuple(defenses), seed, cipher, state)


def sampled(defenses: Sequence[Defense], ratings: Ratings, round_: int, seed: int) -> Sample | None:
    """Unrated items that take part in a round, by the one defense that chooses them.

    Parameters
    ----------
    defenses : sequence of Defense
    ratings : Ratings
    round_ : int
    seed : int

    Raises
    ------
    InputError
        If two defenses choose.
    """
    samples = [sample for d in defenses if (sample := d.sampled(ratings, round_, seed)) is not None]
    if len(samples) > 1:
        raise InputError("at most one defense may sample unrated items; leave the others out")
    return samples[0] if samples else None


def sent_rows(
    run: Run, users: np.ndarray, round_: int, sample: Sample | None = None, on_received: bool = True
) -> Iterator[Rows]:
    """Uploads as they leave the clients, before they are encrypted.

    Parameters
    ----------
    run : Run
    users : (n,) int
        Ascending.
    round_ : int
    sample : Sample, optional
        Of the round, where it is drawn already.
    on_received : bool
        As of ``Run.trained``; where the server steps at every upload, the next ones depend on it.
    """
    sample = sample or sampled(run.defenses, run.ratings, round_, run.seed)
    if run.victim.stepwise:
        arrived = received(run, round_) if on_received else None
        uploads = cast(InTurn, run.victim).uploads_in_turn(run.state, run.ratings, users, arrived)
    else:
        uploads = run.victim.uploads(run.state, run.ratings, users, sample)
    for rows in uploads:
        for defense in run.defenses:
            rows = defense.uploaded(rows, run.ratings, round_, run.seed)  # noqa: PLW2901
        yield rows


def received(
    run: Run, round_: int, sums: Sums | None = None, sample: Sample | None = None
) -> Received | None:
    """Sums over all clients of what they send in a round, as the server's step uses them.

    Parameters
    ----------
    run : Run
    round_ : int
    sums : Sums, optional
        Of the round, where they are formed already.
    sample : Sample, optional
        Of the round, where it is drawn already.

    Returns
    -------
    Received or None
        None where nothing is done to the uploads: the victim then sums by itself, without forming the rows.
    """
    if run.cipher is None and not any(defense.changes_uploads for defense in run.defenses):
        return None
    if run.victim.stepwise:
        return _added(run, round_)
    sums = sums or sums_of(run, round_, sample)
    return Received(sums.values[: sums.n_items], sums.values[sums.n_items :])


def sums_of(run: Run, round_: int, sample: Sample | None = None) -> Sums:
    """Form the sums as the server does, and decrypt those that may be.

    Parameters
    ----------
    run : Run
    round_ : int
    sample : Sample, optional
        Of the round, where it is drawn already.
    """
    items, attributes = run.victim.broadcast(run.state)
    n_rows = items.shape[0] + attributes.shape[0]
    new_total = run.cipher.total if run.cipher is not None else plain_total
    total: Total = new_total(n_rows, items.shape[1])
    contributors = np.zeros(n_rows, np.int64)
    for rows in sent_rows(run, np.arange(run.ratings.n_users), round_, sample):
        group = np.where(rows.kind == ATTRIBUTE, items.shape[0] + rows.index, rows.index).astype(np.int64)
        total.add(group, rows.gradient)
        contributors += np.bincount(group, minlength=n_rows)
    fewest = run.cipher.rules.min_contributors if run.cipher is not None else 1
    released = contributors >= max(fewest, 1)
    return Sums(total.opened(released), released, items.shape[0])


class PlainTotal(NamedTuple):
    """Sums of numbers in the clear; ``add`` changes ``values`` in place."""

    values: Float[np.ndarray, "groups factors"]

    def add(self, group: Int[np.ndarray, " rows"], values: Float[np.ndarray, "rows factors"]) -> None:
        """Add each row to the sum of its group."""
        for column in range(values.shape[1]):
            self.values[:, column] += np.bincount(group, values[:, column], minlength=len(self.values))

    def opened(self, wanted: Bool[np.ndarray, " groups"]) -> Float[np.ndarray, "groups factors"]:
        """The sums."""
        return self.values


def plain_total(groups: int, factors: int) -> PlainTotal:
    """Sums in the clear, all zero."""
    return PlainTotal(np.zeros((groups, factors)))


def _added(run: Run, round_: int) -> Received:
    """What additive defenses add to the upload of every rating."""
    ratings, factors = run.ratings, run.victim.broadcast(run.state)[0].shape[1]
    kind = np.full(ratings.n_ratings, ITEM, np.int8)
    rows = Rows(ratings.users, kind, ratings.items, np.zeros((ratings.n_ratings, factors)))
    for defense in run.defenses:
        rows = defense.uploaded(rows, ratings, round_, run.seed)
    nothing = np.zeros((0, factors))
    return Received(nothing, nothing, rows.gradient)
