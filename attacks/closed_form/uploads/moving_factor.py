"""The order of a client's steps inside one round, and each row's error, where its factor moves between rows.

Beyond Chai et al. 2021, whose published program steps with the client's factor after every rating: row k is
sigma e_k u_k with the u of that moment, and u_{k+1} = shrink u_k + pull e_k v_k. Rows of one minibatch share
their u; one minibatch of all ratings is the batch order. With d_b the direction of a batch's rows, g_j the
rows along it, and w_b = sum_j g_j v_j over its items,

    d_{b+1} is parallel to d_b + beta_b w_b,    beta_b = c / s_b^2,    c = pull / (sigma shrink),

with s_b the length of u. So the next batch's direction lies in the plane of d_b and w_b: a test without any
constant, which finds the order of the rows where the adversary does not see it, and beta_b, up to c, the
length of every u. With two factors every direction lies in that plane, and an order that is not seen stays
open. A row then reads

    r_j = A g_j sqrt|beta_b| + B d_b . v_j / sqrt|beta_b|,    A = 1 / (sigma sqrt|c|),  B = sqrt|c|,

with one A and one B for all rows of a client (of all clients, where they step alike), 1 / A = B where sigma
is known: the numbers that ``attacks.closed_form.grid.rating_grid`` puts on the rating grid. The last batch
has no successor; its length follows from the one before.

Symbols: shrink = 1 - 2 gamma lambda and pull = 2 gamma of the client's step (Chai et al. 2021, Eq. 2).

What it assumes: uploads of one round in the clear and without noise, freed of what regularises the item.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.closed_form.uploads.reduction import unit_vectors

PARALLEL = 64.0  # times the last digit of a row: sines below it are no angle
NEAREST = 4  # batches whose distance from the plane is computed to the last digit
CLEARLY = 1e-4  # of the second nearest's distance from the plane, which the nearest must be below
FEWEST = 4  # lengths that agree, the one in the middle with itself
MOSTLY = 0.75  # share of the lengths that has to


class Chain(NamedTuple):
    """The steps of some clients in one round."""

    # g sqrt|beta| and d . v / sqrt|beta|: ratings are A scalar + B along. 0 on padding
    scalar: Float[np.ndarray, "users rows"]
    # g sqrt|beta| and d . v / sqrt|beta|: ratings are A scalar + B along. 0 on padding
    along: Float[np.ndarray, "users rows"]
    # number of the batch that a row belongs to, in the client's order; -1 where it is in no chain
    step: Int[np.ndarray, "users rows"]
    # batches in the chain; 1 where all rows are parallel, so that nothing tells A or B apart from a common
    # length: scalar and along are then g and d . v
    n_steps: Int[np.ndarray, " users"]
    whole: Bool[np.ndarray, " users"]  # all rows with an error are in the chain
    # what multiplies u at each step: as told, or as the chain tells; 1 where it has one link
    shrink: Float[np.ndarray, " users"]
    sign: Float[np.ndarray, " users"]  # of sigma, 1 or -1


class Batches(NamedTuple):
    """Rows grouped by direction."""

    label: Int[np.ndarray, "users rows"]  # first row of the group; -1 on padding and on rows of zeros
    head: Bool[np.ndarray, "users rows"]  # whether the row leads a group
    direction: Float[np.ndarray, "users rows K"]  # of the heads
    scalar: Float[np.ndarray, "users rows"]  # rows along their group's direction
    pull: Float[np.ndarray, "users rows K"]  # w of the heads


def follow(
    rows: Float[np.ndarray, "users rows K"],
    factors: Float[np.ndarray, "users rows K"],
    valid: Bool[np.ndarray, "users rows"],
    precision: float,
    sequence: Int[np.ndarray, "users rows"] | None = None,
    shrink: float | None = None,
    clearly: float = CLEARLY,
) -> Chain:
    """Order the rows of each client and give each its error up to two common numbers.

    References
    ----------
    Chai et al. 2021 (arXiv:1906.05108), Eq. (2) and Algorithm 1; the plane is ours.
    """
    batches = grouped(rows, factors, valid, precision)
    if sequence is None and rows.shape[2] > 2:
        return _read_off(batches, factors, _successors(batches, precision, clearly), shrink)[0]
    if sequence is None:
        return _read_off(batches, factors, np.full(batches.head.shape, -1), shrink)[0]
    chain, ratio = _read_off(batches, factors, _in_sequence(batches, sequence), shrink)
    return chain._replace(whole=chain.whole & _one_shrink(ratio, chain.shrink, precision))


def grouped(rows: np.ndarray, factors: np.ndarray, valid: np.ndarray, precision: float) -> Batches:
    """Group rows by direction: those of one batch are parallel to the last digit."""
    unit, length = unit_vectors(rows)
    there = valid & (length > 0)
    cosine = np.matmul(unit, unit.swapaxes(1, 2))
    # 1 - cos^2 is good to a few last digits of 1
    limit = np.maximum((PARALLEL * precision) ** 2, 32 * np.finfo(float).eps)
    same = (1 - cosine**2 < limit) & there[:, :, None] & there[:, None, :]
    label = np.where(there, same.argmax(axis=2), -1)
    number = np.arange(rows.shape[1])
    head = there & (label == number)
    leader = np.take_along_axis(unit, np.maximum(label, 0)[..., None], axis=1) * there[..., None]
    scalar = np.einsum("unk,unk->un", rows, leader)
    member = (label[:, None, :] == number[:, None]) & there[:, None, :]
    pull = np.matmul(member * scalar[:, None], factors) * head[..., None]
    return Batches(label, head, unit * head[..., None], scalar, pull)


def _successors(batches: Batches, precision: float, clearly: float) -> np.ndarray:
    """The head that follows each head, the nearest to its plane; -1 where none is clearly nearest."""
    _users, n, _k = batches.direction.shape
    across, width = unit_vectors(
        batches.pull
        - np.einsum("unk,unk->un", batches.pull, batches.direction)[..., None] * batches.direction
    )
    first, second = (
        np.matmul(part, batches.direction.swapaxes(1, 2)) for part in (batches.direction, across)
    )
    off = 1 - first**2 - second**2
    off[~(batches.head[:, :, None] & batches.head[:, None, :])] = np.inf
    off[:, np.arange(n), np.arange(n)] = np.inf
    few = min(NEAREST, n)
    near = np.argpartition(off, few - 1, axis=2)[:, :, :few] if n > few else np.argsort(off, axis=2)
    exact = np.full(near.shape, np.inf)
    for column in range(near.shape[2]):
        number = near[:, :, column]
        direction = np.take_along_axis(batches.direction, number[..., None], axis=1)
        left = direction
        for axis in (batches.direction, across, batches.direction):  # twice along d: to the last digit
            left = left - np.einsum("unk,unk->un", left, axis)[..., None] * axis
        reachable = np.isfinite(np.take_along_axis(off, number[..., None], axis=2)[..., 0])
        exact[:, :, column] = np.where(reachable, np.linalg.norm(left, axis=-1), np.inf)
    order = np.argsort(exact, axis=2)
    after = np.take_along_axis(near, order[..., :1], axis=2)[..., 0]
    best = np.take_along_axis(exact, order[..., :1], axis=2)[..., 0]
    other = np.full(best.shape, np.inf)
    if few > 1:
        other = np.take_along_axis(exact, order[..., 1:2], axis=2)[..., 0]
    limit = PARALLEL * max(precision, np.finfo(float).eps)
    found = batches.head & (best < limit) & (width > 0)
    found &= (best < clearly * other) | ~np.isfinite(other)
    return np.where(found, after, -1)


def _in_sequence(batches: Batches, sequence: np.ndarray) -> np.ndarray:
    """The head that follows each head in the order in which the client sent its rows."""
    users, n = batches.label.shape
    order = np.argsort(np.where(batches.head, sequence, np.inf), axis=1, kind="stable")
    after = np.full((users, n), -1)
    count = batches.head.sum(axis=1)
    here = np.arange(n - 1) < (count - 1)[:, None]
    user, place = np.nonzero(here)
    after[user, order[user, place]] = order[user, place + 1]
    return after


def _one_shrink(ratio: np.ndarray, shrink: np.ndarray, precision: float) -> Bool[np.ndarray, " users"]:
    """Whether lengths are those of steps in this order."""
    known = np.isfinite(ratio)
    same = known & (np.abs(ratio / shrink[:, None] - 1) <= max(precision, np.finfo(float).eps) ** (1 / 2))
    return (same.sum(axis=1) >= FEWEST) & (same.sum(axis=1) >= MOSTLY * known.sum(axis=1))


def _read_off(
    batches: Batches, factors: np.ndarray, after: np.ndarray, shrink: float | None
) -> tuple[Chain, Float[np.ndarray, "users rows"]]:
    """Lengths along the chain, and with them each row's two numbers; and what shrinks each length."""
    users, _n = batches.label.shape
    client = np.arange(users)[:, None]
    follower = batches.direction[client, np.maximum(after, 0)]
    along = np.einsum("unk,unk->un", batches.pull, batches.direction)
    across = batches.pull - along[..., None] * batches.direction
    square = np.einsum("unk,unk->un", across, across)
    # the follower is x d + y w
    y = np.einsum("unk,unk->un", follower, across) / np.where(square > 0, square, 1)
    x = np.einsum("unk,unk->un", follower, batches.direction) - y * along
    linked = (after >= 0) & (square > 0) & (x * y != 0)
    # beta has the sign of sigma, which is one for all rows of a client
    usual = np.where(np.sum(np.sign(x * y), axis=1, where=linked) < 0, -1.0, 1.0)[:, None]
    linked &= x * y * usual > 0
    after = np.where(linked, after, -1)
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.where(linked, np.sqrt(np.abs(y / x)), np.nan)  # of beta: one over the length of u
    step, sign = _walked(after, np.sign(x), batches.head)
    n_steps = step.max(axis=1, initial=-1) + 1
    ratio = _ratios(root, np.abs(x), after)
    kept = _usual_shrink(ratio, shrink)
    root = _with_the_last(root, np.abs(x), after, kept)
    root = np.where((n_steps == 1)[:, None] & (step == 0), 1.0, root)
    head = np.maximum(batches.label, 0)
    rows = (batches.label >= 0) & (step[client, head] >= 0)
    factor = np.where(rows, (root * sign)[client, head], 1.0)
    inward = np.einsum("unk,unk->un", factors, batches.direction[client, head])
    scalar = np.where(rows, batches.scalar * factor, 0.0)
    chain = Chain(
        scalar,
        np.where(rows, inward / factor, 0.0),
        np.where(rows, step[client, head], -1),
        n_steps,
        (rows | (batches.label < 0)).all(axis=1),
        kept,
        usual[:, 0],
    )
    return chain, ratio


def _walked(after: np.ndarray, turn: np.ndarray, head: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each head's place in its client's longest chain, -1 off it, and the sign that its direction takes."""
    users, n = after.shape
    client = np.arange(users)
    depth = np.where(head, 1, 0)
    for _ in range(n):  # links of a chain; a circle, which no client walks, ends at n
        longer = np.where(after >= 0, 1 + np.take_along_axis(depth, np.maximum(after, 0), axis=1), depth)
        longer = np.minimum(longer, n)
        if (longer == depth).all():
            break
        depth = longer
    step, sign = np.full((users, n), -1), np.ones((users, n))
    here = depth.argmax(axis=1)
    going = head[client, here]
    now = np.ones(users)
    for place in range(n):
        going &= step[client, here] < 0
        if not going.any():
            break
        step[client[going], here[going]] = place
        sign[client[going], here[going]] = now[going]
        now = now * np.where(going & (turn[client, here] < 0), -1.0, 1.0)
        onward = after[client, here]
        going &= onward >= 0
        here = np.where(going, onward, here)
    return step, sign


def _ratios(root: np.ndarray, x: np.ndarray, after: np.ndarray) -> Float[np.ndarray, "users rows"]:
    """What multiplies u at each step, from two lengths and the turn between them; NaN at the last ones."""
    following = np.where(after >= 0, np.take_along_axis(root, np.maximum(after, 0), axis=1), np.nan)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(following), root * x / following, np.nan)


def _usual_shrink(
    ratio: Float[np.ndarray, "users rows"], shrink: float | None
) -> Float[np.ndarray, " users"]:
    """What most steps multiply u by, or what is told; 1 where none says so."""
    if shrink is not None:
        return np.full(len(ratio), shrink)
    known = np.isfinite(ratio).any(axis=1)
    usual = np.ones(len(ratio))
    usual[known] = np.nanmedian(ratio[known], axis=1)
    return usual


def _with_the_last(root: np.ndarray, x: np.ndarray, after: np.ndarray, usual: np.ndarray) -> np.ndarray:
    """The length of the last u of a chain, from the one before: |u'| = shrink |u| |d + beta w|."""
    following = np.where(after >= 0, np.take_along_axis(root, np.maximum(after, 0), axis=1), np.nan)
    reached = root * x  # of the follower, times shrink
    out = root.copy()
    client, place = np.nonzero((after >= 0) & ~np.isfinite(following))
    out[client, after[client, place]] = reached[client, place] / usual[client]
    return out
