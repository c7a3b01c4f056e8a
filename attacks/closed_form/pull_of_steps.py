"""The multiple of its factor in every row, where a client steps after each of its ratings.

The published program of paper 001 sends F_k = sigma (e_k u_k - mu v_k), and u_{k+1} = a u_k + b v_k. So
F_{k+1} + c v_{k+1}, c = sigma mu, lies in the plane of F_k and v_k, for c v_k lies there, too. With P what is
left of a vector beside that plane,

    P F_{k+1} + c P v_{k+1} = 0,

which is linear in c, and each pair of rows that follow each other says the same c; of all clients. Where a
row is about the factor after the step, F_k and F_{k+1} change places, and the plane is that of F_{k+1} and
v_{k+1}.

What it assumes: the order of the rows, three factors or more, uploads in the clear and without noise. It
judges itself: one number explains next to all that is beside the planes.

References
----------
Paper 001: D. Chai et al., "Secure Federated Matrix Factorization", arXiv:1906.05108, with its program.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from attacks.closed_form.readings import Rows

FEWEST = 12  # pairs of rows that have to agree
LEFT = 1e-3  # share of what is beside the planes that one number may leave
LEAST = 30.0  # times the size of the rows' last digits, that there is to explain


def pull_of_steps(rows: Rows) -> float | None:
    """Find the one multiple of their factors that rows hold.

    Parameters
    ----------
    rows : Rows
        With their order; nothing has been taken off.

    Returns
    -------
    float or None
        What is to be taken off, in units of the rows; None where they hold no such number.

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
