"""By how many levels clients' ratings are shifted: what their biases do from round to round says it.

One step leaves c_u, the client's bias, open by whole levels z_u: C_u = c_u + mu - step z_u is what its rows
say (``attacks.closed_form.centres.shifted``). Two things tell z_u:

- one number for all: clients who start from a bias of 0, or have none beside a mean that nobody told, have
  C_u = mu - step z_u, which are one number up to whole steps;
- the decay: from one round in which the client takes part to the next its bias steps as
  c_u <- c_u + rho sum e - kappa c_u, so that

      C_u' - C_u = rho sum e - kappa C_u + kappa (mu - step z_u).

  rho, kappa and mu are three numbers for all clients. n clients who take part in k rounds are n (k - 1)
  equations in these and n integers; a client who has both ends of the grid has z_u = 0. Without decay
  (kappa = 0) every z_u fits, and nothing is told.

  Where the client's factor has the same rate and decay, p' - p = rho sum e q - kappa p are K equations more
  for each of these.

Errors may be summed or averaged, and the decay may be that of each rating: all are tried, with and without
the factor. Either way all clients have one shift in common, which is told where a single one leaves all
ratings on the grid.

What it assumes: one rate and one decay for all clients. It judges itself: more equations than unknowns have
to hold, and intercepts of clients have to lie on whole steps by more than chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

FEWEST, ALL = 3, 0.95  # clients that say one number, or a shift, and the share that has to
NEAR = 1e-3  # of a step, within which numbers of clients are one
SPARE = 3  # equations beyond unknowns
SHARP, WHOLE = 0.05, 0.1  # of a step: standard error of a shift, and how far it may be from whole
EVIDENCE = 20.0  # nats against whole shifts by accident
FINEST = 1e-6  # of a step, that digits of shifts tell


class Clients(NamedTuple):
    """Clients who are read up to a shift."""

    # steps from the lowest to the highest rating; how many ratings there are
    reach: Int[np.ndarray, " clients"]
    # steps from the lowest to the highest rating; how many ratings there are
    n_rated: Int[np.ndarray, " clients"]
    # C in the first round in which the client takes part, stars; NaN where that is not told
    first_bias: Float[np.ndarray, " clients"]


class Moves(NamedTuple):
    """From one round in which a client takes part to its next."""

    client: Int[np.ndarray, " n"]
    bias: Float[np.ndarray, " n"]  # C before, by how much it changes, and the sum of errors between, in stars
    # C before, by how much it changes, and the sum of errors between, in stars
    change: Float[np.ndarray, " n"]
    # C before, by how much it changes, and the sum of errors between, in stars
    pushed: Float[np.ndarray, " n"]
    # the same of the client's factor; what pushes it is the sum of errors times factors of their items
    factor: Float[np.ndarray, "n K"]
    # the same of the client's factor; what pushes it is the sum of errors times factors of their items
    factor_change: Float[np.ndarray, "n K"]
    # the same of the client's factor; what pushes it is the sum of errors times factors of their items
    factor_pushed: Float[np.ndarray, "n K"]

    def per_rating(self, n_rated: Int[np.ndarray, " n"]) -> Moves:
        """The same of the mean error."""
        return self._replace(
            pushed=self.pushed / n_rated, factor_pushed=self.factor_pushed / n_rated[:, None]
        )

    def slower(self, n_rated: Int[np.ndarray, " n"]) -> Moves:
        """The same of changes that are so much smaller."""
        return self._replace(
            change=self.change / n_rated, factor_change=self.factor_change / n_rated[:, None]
        )


def no_moves(n_factors: int) -> Moves:
    """Make the moves of clients of whom one round is told."""
    none, wide = np.zeros(0), np.zeros((0, n_factors))
    return Moves(np.zeros(0, int), none, none, none, wide, wide, wide)


class _Law(NamedTuple):
    """What a law of the biases says."""

    shift: Float[np.ndarray, " clients"]  # in steps, relative to one client's or to those with both ends
    sharp: Bool[np.ndarray, " clients"]  # whose shift is sharp, and is not that of whom it is relative to
    tells: Bool[np.ndarray, " clients"]  # whose shift is sharp, and is not that of whom it is relative to
    left: float  # share of the changes that it does not explain


def shifts_of(clients: Clients, moves: Moves, n_levels: int, step: float) -> Int[np.ndarray, " clients"]:
    """Find by how many steps each client's lowest rating is above the lowest level."""
    room = n_levels - 1 - clients.reach
    shift = np.where(room == 0, 0, -1)
    for told in (_by_one_number(clients.first_bias, room, step), _by_decay(clients, moves, room, step)):
        agree = (told < 0) | (shift < 0) | (told == shift)
        shift = np.where((shift < 0) & agree.all(), told, shift)
    return shift


def _by_one_number(
    bias: Float[np.ndarray, " clients"], room: Int[np.ndarray, " clients"], step: float
) -> Int[np.ndarray, " clients"]:
    """Shifts that give all clients the same bias, where nearly all can have it."""
    out = np.full(room.size, -1)
    here = np.flatnonzero(np.isfinite(bias))
    if here.size < FEWEST:
        return out
    part = bias[here] / step % 1
    distance = np.abs((part[:, None] - part + 0.5) % 1 - 0.5)
    best = int((distance < NEAR).sum(axis=1).argmax())
    same = here[distance[best] < NEAR]
    if same.size < max(FEWEST, ALL * here.size):
        return out
    out[same] = _placed(np.rint((bias[here[best]] - bias[same]) / step), room[same])
    return out


def _placed(shift: Float[np.ndarray, " some"], room: Int[np.ndarray, " some"]) -> Int[np.ndarray, " some"]:
    """Shifts with what they have in common, where one number of steps leaves all on the grid; else -1."""
    lowest, highest = -shift, room - shift
    least, most = int(lowest.max()), int(highest.min())
    # one client's levels are as few by accident
    alone = min((lowest == least).sum(), (highest == most).sum()) < 2
    return np.full(room.size, -1) if least != most or alone else (shift + least).astype(int)


def _by_decay(
    clients: Clients, moves: Moves, room: Int[np.ndarray, " clients"], step: float
) -> Int[np.ndarray, " clients"]:
    """Shifts that the decay tells, by the law that leaves least of the changes."""
    none = np.full(room.size, -1)
    out = none
    for law in _laws(clients, moves, room, step):
        told = none if law is None else _whole(law, room)
        both = (told >= 0) & (out >= 0)
        if (told != out)[both].any():
            return none
        out = np.maximum(out, told)
    return out


def _whole(law: _Law, room: Int[np.ndarray, " clients"]) -> Int[np.ndarray, " clients"]:
    """Shifts by a law, where they are whole by more than chance."""
    out = np.full(room.size, -1)
    here = np.flatnonzero(law.sharp)
    off = np.abs(law.shift[here] - np.rint(law.shift[here]))
    nats = -np.log(2 * np.maximum(off[law.tells[here]], FINEST)).sum()
    if not here.size or (off < WHOLE).mean() < ALL or nats < EVIDENCE:
        return out
    here = here[off < WHOLE]
    out[here] = _placed(np.rint(law.shift[here]), room[here])
    return out


def _laws(
    clients: Clients, moves: Moves, room: Int[np.ndarray, " clients"], step: float
) -> Iterator[_Law | None]:
    """Sums of errors with a decay of the client's, means with it, and a decay for each rating."""
    n_rated = clients.n_rated[moves.client]
    ideas = [moves]
    if np.unique(n_rated).size > 1:
        means = moves.per_rating(n_rated)
        ideas += [means, means.slower(n_rated)]
    for idea, as_factor in product(ideas, (False, True)):
        yield _fitted_law(idea, room, step, as_factor)


def _fitted_law(moves: Moves, room: Int[np.ndarray, " clients"], step: float, as_factor: bool) -> _Law | None:
    """Rate and decay by least squares, with an intercept for each client, and one for those of both ends."""
    _, group = np.unique(np.where(room[moves.client] == 0, -1, moves.client), return_inverse=True)
    count = np.bincount(group).astype(float)
    table = np.stack([moves.pushed, -moves.bias, moves.change], axis=1)
    middle = np.stack([np.bincount(group, column) for column in table.T], axis=1) / count[:, None]
    within = table - middle[group]
    if as_factor:
        known = np.stack([moves.factor_pushed, -moves.factor, moves.factor_change], axis=2)
        within = np.concatenate([within, known.reshape(-1, 3)])
    spare = len(within) - count.size - 2
    size = np.linalg.norm(within, axis=0)
    if spare < SPARE or not (size > 0).all():
        return None
    x, y = within[:, :2] / size[:2], within[:, 2] / size[2]
    value, *_ = np.linalg.lstsq(x, y, rcond=None)
    left = float(((y - x @ value) ** 2).sum())
    value, variance = value * size[2], left * size[2] ** 2 / spare
    covariance = variance * np.linalg.pinv(x.T @ x)
    decay = value[1] / size[1]
    if decay == 0:
        return None
    # an intercept over the decay is mu - step z; how sure one is beside another
    slope = middle[:, :2] / size[:2]
    shift = (slope @ value - middle[:, 2]) / (decay * step)
    reference = int(count.argmax()) if (room[moves.client] > 0).all() else 0
    shift = shift - shift[reference]
    by_value = slope - slope[reference] - np.outer(shift, [0.0, decay * step / value[1]])
    error = variance * (1 / count + 1 / count[reference]) + np.einsum(
        "gi,ij,gj->g", by_value, covariance, by_value
    )
    sharp = np.sqrt(error) < SHARP * np.abs(decay) * step
    out = _Law(np.full(room.size, np.nan), np.zeros(room.size, bool), np.zeros(room.size, bool), left)
    out.shift[moves.client], out.sharp[moves.client] = shift[group], sharp[group]
    out.tells[moves.client] = (sharp & (np.arange(count.size) != reference))[group]
    return out
