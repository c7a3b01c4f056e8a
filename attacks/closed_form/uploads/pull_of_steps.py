"""The multiple of its factor in every row, where a client steps after each of its ratings.

The published program of Chai et al. 2021 sends F_k = sigma (e_k u_k - mu v_k), and u_{k+1} = a u_k + b v_k.
So F_{k+1} + c v_{k+1}, c = sigma mu, lies in the plane of F_k and v_k, for c v_k lies there, too. With P what
is left of a vector beside that plane,

    P F_{k+1} + c P v_{k+1} = 0,

which is linear in c, and each pair of rows that follow each other says the same c; of all clients. Where a
row is about the factor after the step, F_k and F_{k+1} change places, and the plane is that of F_{k+1} and
v_{k+1}.

Where the order is not seen, or is not that of the steps, any row may follow any other. The c of each pair of
one client's rows is tried on all rows: the right one puts next to every row into the plane of some other, to
the digits, which no other does.

What it assumes: three factors or more, uploads in the clear and without noise. It judges itself: one number
explains next to all that is beside the planes.

References
----------
D. Chai et al., "Secure Federated Matrix Factorization", arXiv:1906.05108, with its program.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from attacks.closed_form.uploads.readings import Rows

FEWEST = 12  # pairs of rows that have to agree
LEFT = 1e-3  # share of what is beside the planes that one number may leave
LEAST = 30.0  # times the size of the rows' last digits, that there is to explain
MOST, AT_MOST = 0.75, 0.25  # share of the rows in another one's plane: with the number, and without it
CLIENTS, ROWS = 12, 32  # that are asked where the order is hidden, and of each client


def pull_of_steps(rows: Rows) -> float | None:
    """Find the one multiple of their factors that rows hold.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> v, u, sent = rng.normal(size=(20, 4)), np.ones(4), []
    >>> for one in v:
    ...     sent.append((3 - u @ one) * u - 0.25 * one)
    ...     u = u + 0.01 * (3 - u @ one) * one
    >>> order, all_ = np.arange(20)[None], np.ones((1, 20), bool)
    >>> none = np.zeros((1, 20))
    >>> known = Rows(np.array(sent)[None], v[None], none, all_, np.array([np.nan]), 2.0**-52, order)
    >>> round(pull_of_steps(known), 9)
    -0.25
    """
    if rows.sequence is None or rows.rows.shape[2] < 3:
        return None
    pairs = [_pairs(*one) for one in zip(rows.rows, rows.factors, rows.item, rows.sequence, strict=True)]
    first, second, v, w = (np.concatenate(part) for part in zip(*pairs, strict=True))
    for row, factor, other, in_plane in ((second, w, first, v), (first, v, second, w)):
        sent, pulled, size = _beside(row, factor, other, in_plane)
        known = np.isfinite(sent).all(axis=1) & np.isfinite(pulled).all(axis=1)
        sent, pulled, size = sent[known], pulled[known], size[known]
        if len(sent) < FEWEST:
            continue
        # rows are exact to digits of their own size
        weight = 1 / np.maximum(size, np.finfo(float).tiny)[:, None]
        sent, pulled = sent * weight, pulled * weight
        there = float((pulled**2).sum())
        c = float((sent * pulled).sum()) / there if there > 0 else 0.0
        total, left = float((sent**2).sum()), float(((sent - c * pulled) ** 2).sum())
        if total > len(sent) * (LEAST * rows.precision) ** 2 and left <= LEFT * total:
            return c
    return None


def pull_of_hidden_steps(rows: Rows) -> float | None:
    """The same where nobody sees in which order a client went through its ratings.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> v, u, sent = rng.normal(size=(20, 4)), np.ones(4), np.zeros((20, 4))
    >>> for at in rng.permutation(20):
    ...     sent[at] = (3 - u @ v[at]) * u - 0.25 * v[at]
    ...     u = u + 0.01 * (3 - u @ v[at]) * v[at]
    >>> none, all_ = np.zeros((1, 20)), np.ones((1, 20), bool)
    >>> known = Rows(sent[None], v[None], none, all_, np.array([np.nan]), 2.0**-52, None)
    >>> round(pull_of_hidden_steps(known), 9)
    -0.25
    """
    if rows.rows.shape[2] < 3:
        return None
    here = rows.item & (rows.rows != 0).any(axis=2) & np.isfinite(rows.rows).all(axis=2)
    most = np.argsort(-here.sum(axis=1), kind="stable")[:CLIENTS]
    asked = [
        _beside_others(*(part[user, here[user]][:ROWS] for part in (rows.rows, rows.factors)))
        for user in most
    ]
    if sum(len(sent) for sent, _ in asked) < FEWEST:
        return None
    digits = LEAST * rows.precision
    sent, pulled = asked[0]
    square = (pulled**2).sum(axis=2)
    numbers = (sent * pulled).sum(axis=2) / np.where(square > 0, square, 1)
    near = np.linalg.norm(sent - numbers[..., None] * pulled, axis=2) < digits
    numbers = numbers[near & (square > 0)]
    if not numbers.size or _share_explained(asked, 0.0, digits) > AT_MOST:
        return None
    first = np.array([_share_explained(asked[:1], c, digits) for c in numbers.tolist()])
    best = float(np.median(numbers[first == first.max()]))
    return best if _share_explained(asked, best, digits) >= MOST else None


def _beside_others(
    rows: Float[np.ndarray, "n K"], factors: Float[np.ndarray, "n K"]
) -> tuple[Float[np.ndarray, "n n K"], Float[np.ndarray, "n n K"]]:
    """Each row and its factor beside the plane of each other, over the row's size; 1 and 0 on itself."""
    first, second = (part.ravel() for part in np.indices((len(rows), len(rows))))
    factors = factors.astype(float)
    sent, pulled, size = _beside(rows[first], factors[first], rows[second], factors[second])
    weight = 1 / np.maximum(size, np.finfo(float).tiny)[:, None]
    shape = (len(rows), len(rows), rows.shape[1])
    sent, pulled = (np.nan_to_num(part * weight).reshape(shape) for part in (sent, pulled))
    own = np.arange(len(rows))
    sent[own, own], pulled[own, own] = 1.0, 0.0
    return sent, pulled


def _share_explained(asked: list[tuple[np.ndarray, np.ndarray]], c: float, digits: float) -> float:
    """Share of the rows that lie in the plane of another one, without c times their factor."""
    left = [np.linalg.norm(sent - c * pulled, axis=2).min(axis=1, initial=np.inf) for sent, pulled in asked]
    return float(np.mean(np.concatenate(left) < digits))


def _pairs(
    rows: np.ndarray, factors: np.ndarray, item: np.ndarray, sequence: np.ndarray
) -> tuple[Float[np.ndarray, "pairs K"], ...]:
    """Rows that follow each other, and their factors."""
    order = np.flatnonzero(item & (rows != 0).any(axis=1))
    order = order[np.argsort(sequence[order], kind="stable")]
    return rows[order[:-1]], rows[order[1:]], factors[order[:-1]], factors[order[1:]]


def _beside(
    row: np.ndarray, factor: np.ndarray, other: np.ndarray, in_plane: np.ndarray
) -> tuple[Float[np.ndarray, "pairs K"], Float[np.ndarray, "pairs K"], Float[np.ndarray, " pairs"]]:
    """A row and its factor without what lies in the plane of the other row and factor; the row's size."""
    with np.errstate(divide="ignore", invalid="ignore"):
        axis, _ = np.linalg.qr(np.stack([in_plane, other], axis=2))
        out = [
            part - np.matmul(axis, np.matmul(axis.transpose(0, 2, 1), part[..., None]))[..., 0]
            for part in (row, factor)
        ]
    return out[0], out[1], np.linalg.norm(row, axis=1)
