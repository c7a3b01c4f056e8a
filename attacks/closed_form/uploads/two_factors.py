"""The order of a client's steps where it has two factors, so that any row lies in the plane of two others.

With x d_b + y w_b the direction of a batch c after b (``attacks.closed_form.uploads.moving_factor``), b -> c
says how long u was at b, s_b^2 = const x / y, and how long it is at c, s_c = shrink s_b / |x|. What c -> e
says of s_c is the same if b, c and e follow each other. So the quotient of the two is one number, the shrink
of all steps, for the m - 2 right triples of m batches, and any number for the others: the m^3 quotients have
one value that many of them share, to the digits that angles between directions leave.

What it assumes: six batches or more of one client, and ``MOST`` at most; in single precision few, for there
quotients meet by accident.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

FEWEST, MOST = 6, 64  # batches of a client: triples are their number cubed
ASKED = 8  # clients that say whether the others are worth the time
DIGITS = 32.0  # last digits of a sine, that it may be off
LOOSELY = 8.0  # times as far off, that a triple may be where the others tell their quotient
ALL_BUT = 0.75  # share of the triples that has to have one quotient
SHARPLY = 0.5  # natural logarithm, by which u shrinks or grows at most in a step
RARELY = 0.3  # triples that share a quotient by accident, at most, in the mean


def successors_in_a_plane(
    direction: Float[np.ndarray, "users rows 2"],
    pull: Float[np.ndarray, "users rows 2"],
    head: Bool[np.ndarray, "users rows"],
    precision: float,
) -> Int[np.ndarray, "users rows"]:
    """Find the batch that follows each batch."""
    after = np.full(head.shape, -1)
    n_told = 0
    able = np.flatnonzero((head.sum(axis=1) >= FEWEST) & (head.sum(axis=1) <= MOST))
    for number, user in enumerate(able.tolist()):
        if number == ASKED and not n_told:
            break
        here = np.flatnonzero(head[user])
        found = _order(direction[user, here], pull[user, here], max(precision, np.finfo(float).eps))
        if found is not None:
            after[user, here[found[:-1]]] = here[found[1:]]
            n_told += 1
    return after


def _order(
    direction: Float[np.ndarray, "m 2"], pull: Float[np.ndarray, "m 2"], precision: float
) -> Int[np.ndarray, " m"] | None:
    """All batches of one client in their order; None where it is not told."""
    turned = np.stack([-direction[:, 1], direction[:, 0]], axis=1)
    along, across = ((pull * part).sum(axis=1) for part in (direction, turned))
    with np.errstate(divide="ignore", invalid="ignore"):
        sine = turned @ direction.T
        y = sine / across[:, None]
        x = direction @ direction.T - y * along[:, None]
        start = np.log(np.abs(y / x)) / 2  # of one over the length of u at b, for a c that follows
        reached = start + np.log(np.abs(x))
        off = DIGITS * precision / np.abs(sine)
    found = []
    for sign in (1, -1):
        possible = x * y * sign > 0
        found.append(_path(*(np.where(possible, one, np.nan) for one in (reached, start, off))))
    told = [one for one in found if one is not None]
    return told[0] if len(told) == 1 else None


def _path(
    reached: Float[np.ndarray, "m m"], start: Float[np.ndarray, "m m"], off: Float[np.ndarray, "m m"]
) -> Int[np.ndarray, " m"] | None:
    """The one path through all batches whose triples share a quotient."""
    m = len(start)
    quotient, width = reached[:, :, None] - start[None], off[:, :, None] + off[None]
    number = np.arange(m)
    quotient[number, :, number] = np.nan  # back to where it came from
    usable = np.flatnonzero(np.abs(quotient) < SHARPLY)
    usable = usable[np.argsort(-width.flat[usable], kind="stable")]
    usable = usable[np.cumsum(width.flat[usable][::-1])[::-1] < RARELY * SHARPLY]
    if not usable.size:
        return None
    value, width = quotient.flat[usable], width.flat[usable]
    ends = np.concatenate([value - width, value + width])
    order = np.argsort(ends, kind="stable")
    many = np.cumsum(np.where(order < value.size, 1, -1))
    best = int(many.argmax())
    if many[best] < ALL_BUT * (m - 2):
        return None
    shared = usable[np.abs(value - ends[order[best]]) <= LOOSELY * width]
    triples = np.stack(np.unravel_index(shared, quotient.shape), axis=1)  # those that tell most come last
    follows = np.full(m, -1)
    links = np.stack([triples[:, :2], triples[:, 1:]], axis=1).reshape(-1, 2)
    follows[links[:, 0]] = links[:, 1]
    return _walked(follows)


def _walked(follows: Int[np.ndarray, " m"]) -> Int[np.ndarray, " m"] | None:
    """From the batch that follows none through all others; None where that is no path."""
    first = np.setdiff1d(np.arange(follows.size), follows)
    if first.size != 1:
        return None
    path = [int(first[0])]
    while len(path) < follows.size and follows[path[-1]] >= 0:
        path.append(int(follows[path[-1]]))
    whole = len(path) == follows.size and len(set(path)) == follows.size
    return np.array(path) if whole else None
