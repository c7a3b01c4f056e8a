"""Rows of several rounds of a client below one another, as a problem of one round.

A client that keeps its factor from round to round, and its ratings, has no more unknowns in several rounds
than in the first of them, for a rule says what the factor is after a round
(``attacks.client_rules.differentiable``). Where a client does not take part its factor stands still, so that
drop-outs cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from attacks.client_rules.differentiable import ClientRule
from attacks.closed_form.uploads.readings import Rows, among, narrowed, some_of
from attacks.inversion.answers import Found
from attacks.inversion.clients import rows_in
from attacks.inversion.compression import spare_of
from attacks.inversion.least_squares import Problem
from victims.transcript.manifest import Manifest
from victims.transcript.view import Uploads, UserBatch, View

MOST_ROUNDS = 4  # of a client, the first ones
WIDTHS = (8, 32)  # rows of clients that are fitted at once; who has more is read without a fit


@dataclass(frozen=True)
class RoundAfterRound:
    """A rule of several rounds as one of a single one, with the factors of all rounds, one below another.

    Where these are 0 the client took no part.
    """

    rule: ClientRule
    n_rounds: int = MOST_ROUNDS
    mixes_rows: bool = False

    @property
    def name(self) -> str:
        """That of the rule."""
        return self.rule.name

    def families(self, manifest: Manifest) -> tuple:
        """Those of the rule."""
        return self.rule.families(manifest)

    def upload(
        self,
        factor: Float[Array, " K"],
        ratings: Float[Array, " n"],
        factors: Float[Array, "rows K"],
        constants: Float[Array, " c"],
    ) -> tuple[Float[Array, "rows K"], Float[Array, " K"]]:
        """The rows of all rounds, and the factor after the last."""

        def once(kept: Array, broadcast: Array) -> tuple[Array, Array]:
            rows, after = self.rule.upload(kept, ratings, broadcast, constants)
            took_part = (broadcast != 0).any()
            return jnp.where(took_part, after, kept), jnp.where(took_part, rows, 0.0)

        each = factors.reshape(self.n_rounds, ratings.shape[0], factor.shape[0])
        last, rows = jax.lax.scan(once, factor, each)
        return rows.reshape(factors.shape), last


class Together(NamedTuple):
    """Some clients that took part in several rounds with the same items."""

    users: Int[np.ndarray, " clients"]
    items: Int[np.ndarray, "clients n"]
    first: Rows  # (clients, n, ...), of the first round
    # rows and factors of ``MOST_ROUNDS`` rounds, one below another, (clients, rounds n, K); 0 in those that a
    # client has not
    joined: Problem
    n_rounds: Int[np.ndarray, " clients"]


def together(view: View, batch: UserBatch, found: Found) -> Iterator[Together]:
    """Clients without an answer that took part in several rounds, those of similar size together."""
    rounds = [uploads for uploads in batch.rounds if uploads.index.shape[-1]]
    n_rows = np.array([np.broadcast_to(one.valid.sum(axis=1), batch.users.shape) for one in rounds])
    took_part = n_rows > 0
    open_ = ~found.answered[np.searchsorted(view.users, batch.users)]
    open_ &= (n_rows <= WIDTHS[-1]).all(axis=0) & (took_part.sum(axis=0) > 1)
    if not open_.any():
        return
    nth = np.where(took_part & open_, np.cumsum(took_part, axis=0), 0)
    seen = [_nth_round(view, rounds, nth, number, found) for number in range(1, MOST_ROUNDS + 1)]
    items, first = seen[0]
    alike = [
        ((index == items) | ~first.item).all(axis=1)
        & (rows.item == first.item).all(axis=1)
        & (rows.offset == first.offset).all(axis=1)
        for index, rows in seen
    ]
    n_rounds = np.cumprod(alike, axis=0).sum(axis=0)
    width = np.where(first.item, np.arange(1, first.item.shape[1] + 1), 0).max(axis=1, initial=0)
    narrower = 0
    for wide in WIDTHS:
        here = (narrower < width) & (width <= wide) & (n_rounds > 1)
        if here.any():
            parts = [
                narrowed(among(rows, rows.item & (number < n_rounds)[:, None]), wide)
                for number, (_, rows) in enumerate(seen)
            ]
            joined = Problem(
                np.concatenate([part.rows[here] for part in parts], axis=1),
                np.concatenate([part.factors[here] for part in parts], axis=1),
            )
            yield Together(
                batch.users[here], items[here, :wide], some_of(parts[0], here), joined, n_rounds[here]
            )
        narrower = wide


def _nth_round(
    view: View, rounds: list[Uploads], nth: Int[np.ndarray, "rounds users"], number: int, found: Found
) -> tuple[Int[np.ndarray, "users n"], Rows]:
    """Items and rows of the round that is each client's first, second, ...; none where there is no such."""
    n_users, _, k = rounds[0].gradients.shape
    n = WIDTHS[-1]
    items, item = np.zeros((n_users, n), int), np.zeros((n_users, n), bool)
    sent, factors = np.zeros((2, n_users, n, k))
    offset, precision = np.zeros((n_users, n)), 0.0
    for uploads, here in zip(rounds, nth == number, strict=True):
        if here.any():
            rows = rows_in(view, uploads, found)
            index = np.broadcast_to(uploads.index, rows.item.shape)
            whole = (items, sent, factors, offset, item)
            for out, part in zip(whole, (index, *rows[:4]), strict=True):
                out[here, : part.shape[1]] = part[here, :n]
            precision = max(precision, rows.precision)
    return items, Rows(sent, factors, offset, item, np.full(n_users, np.nan), precision, None)


def part_of(group: Together, here: Int[np.ndarray, " some"]) -> Together:
    """Some clients of a group."""
    joined = Problem(*(part[here] for part in group.joined))
    return Together(
        group.users[here], group.items[here], some_of(group.first, here), joined, group.n_rounds[here]
    )


def spare_together(
    n_rated: Int[np.ndarray, " clients"], factors: int, n_free: int, n_rounds: Int[np.ndarray, " clients"]
) -> Int[np.ndarray, " clients"]:
    """Count by how many equations several rounds are more than there are unknowns.

    Off their items' factors the rows of few ratings have one direction, which a later round does not tell
    anew: it gives n^2 + n equations, m K with m = min(n, K + 1) at most, and brings no unknowns.

    Examples
    --------
    >>> spare_together(np.array([1, 2, 1]), 2, 1, np.array([2, 2, 3]))
    array([0, 3, 2])
    """
    m = np.minimum(n_rated, factors + 1)
    later = np.minimum(m * factors, n_rated**2 + n_rated)
    return spare_of(m, factors, n_free) + (n_rounds - 1) * later
