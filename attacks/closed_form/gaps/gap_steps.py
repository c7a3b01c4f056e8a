"""Rows of which some entries are not sent, of a client that steps after each rating: its steps, fitted.

A client that steps after each of its ratings sends F_k = sigma e_k u_k, or what of it is large, and goes on
from u_{k+1} = shrink u_k + pull e_k v_k. With x_k = u_k / |u_0|, g_k = sigma |u_0| e_k and
c = pull / (sigma |u_0|^2),

    F_k = g_k x_k,    x_{k+1} = shrink x_k + c g_k v_k,

so that x_0, c, shrink and one number per row make up all rows: n + K + 2 unknowns, less the length of x_0,
which entries that are sent outnumber where more than a few of each row are. They are fitted to these (by
Levenberg and Marquardt, from rows of rank one). A row of which nothing was sent is an unknown without an
equation of its own. The fit judges itself: another order of the steps, or another rule, leaves entries that
it does not meet to their last digits. What is met reads as any chain does
(``attacks.closed_form.uploads.moving_factor``): r_k = A g_k + B x_k . v_k. Columns that are seen nowhere
leave their part of x_0 open: ratings are then integers in the span of these two and of shrink^k v_k there
(``attacks.closed_form.gaps.gap_spans``).

What it assumes: uploads in the clear, rounded no more than to single precision, and rows that lie in the
order of the steps, or in that of the items. Beyond the papers; the step is that of Chai et al. 2021
(arXiv:1906.05108, Algorithm 1), whose published program sends rows about the factor after the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import least_squares

from attacks.closed_form.gaps.filled_rows import of_rank_one
from attacks.closed_form.gaps.gap_spans import OneClient, Told, nearly_in_columns
from attacks.closed_form.uploads.readings import Rows

EXCESS = 4  # entries more than unknowns
MOST_ROWS = 300  # of a client: each step of the fit takes their number squared
MOST_STEPS = 40  # of the fit
CLOSE = 0.02  # distance of an entry without a shrink, from which on one is worth trying
LAST = 1e-15  # relative change that ends it
SHARP = 1e-3  # relative, within which a row's two numbers must be told
LOG_SHRINK, PULL, START = 0, 1, 2  # places of the unknowns: x_0 begins at the last, and g behind it


class Fit(NamedTuple):
    """Unknowns fitted to entries."""

    unknowns: Float[np.ndarray, " m"]
    off: float  # largest distance of an entry; infinite where nothing could be fitted


class _Case(NamedTuple):
    """Rows of one client in the order of its steps, of size 1; whether they are about the factor after it."""

    sent: Float[np.ndarray, "n K"]
    v: Float[np.ndarray, "n K"]
    kept: Bool[np.ndarray, "n K"]
    after: bool


def of_steps(one: OneClient) -> Told:
    """Ratings of one client that steps after each of them."""
    rows, filled, user, _, digits = one
    here = np.flatnonzero(rows.item[user])
    if not 0 < len(here) <= MOST_ROWS:
        return None
    kept = filled.kept[user, here]
    seen = kept.any(axis=0)
    if not kept.sum() >= kept.any(axis=1).sum() + seen.sum() + 1 + EXCESS:
        return None
    for order, after in product(_orders(rows, user, here), (False, True)):
        placed = here[order]
        sent = rows.rows[user, placed] / np.abs(rows.rows[user, here]).max()
        case = _Case(sent, rows.factors[user, placed].astype(float), kept[order], after)
        unknowns = _fitted(case, seen, digits)
        if unknowns is None:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):  # predictions of 0 alone
            told, table = _table(case, seen, unknowns, digits)
        if not told.any():
            return None
        return nearly_in_columns(table[told], one, placed[told], float(len(here)))
    return None


def _orders(rows: Rows, user: int, here: Int[np.ndarray, " n"]) -> Iterator[Int[np.ndarray, " n"]]:
    """Orders that a client may have stepped in: that of the rows in the recording, and that of the items."""
    if rows.sequence is not None:
        yield np.argsort(rows.sequence[user, here], kind="stable")
    yield np.arange(len(here))


def _fitted(case: _Case, seen: Bool[np.ndarray, " K"], digits: float) -> Float[np.ndarray, " m"] | None:
    """Unknowns that meet all entries; None where there are none."""
    n = len(case.sent)
    error, factor, _ = of_rank_one(case.sent[None], case.kept[None])
    length = np.linalg.norm(factor)
    now = np.concatenate([[0.0, 0.0], factor[0] / length, error[0] * length])
    shown = np.concatenate([[False, True], seen, np.ones(n, bool)])
    for shrinks in (False, True):
        shown[LOG_SHRINK] = shrinks
        if case.kept.sum() < shown.sum():
            break
        fit = fitted(lambda x: _rows(x, case), now, shown, case.sent, case.kept)
        if fit.off <= digits:
            return fit.unknowns
        if not fit.off < CLOSE:
            break
        now = fit.unknowns
    return None


def _rows(
    unknowns: Float[np.ndarray, " m"], case: _Case
) -> tuple[Float[np.ndarray, "n K"], Float[np.ndarray, "n K m"]]:
    """All entries of the rows, and how they change with the unknowns."""
    x, slope = _path(unknowns, case.v)
    g = unknowns[START + case.v.shape[1] :]
    x, slope = (x[1:], slope[1:]) if case.after else (x[:-1], slope[:-1])
    own = START + case.v.shape[1] + np.arange(len(g))
    slope = g[:, None, None] * slope
    slope[np.arange(len(g)), :, own] += x
    return g[:, None] * x, slope


def _path(
    unknowns: Float[np.ndarray, " m"], v: Float[np.ndarray, "n K"]
) -> tuple[Float[np.ndarray, "n_1 K"], Float[np.ndarray, "n_1 K m"]]:
    """The factor before each row and after the last, and how it changes with the unknowns."""
    n, k = v.shape
    shrink, pull, g = np.exp(unknowns[LOG_SHRINK]), unknowns[PULL], unknowns[START + k :]
    x, slope = np.empty((n + 1, k)), np.zeros((n + 1, k, unknowns.size))
    x[0] = unknowns[START : START + k]
    slope[0, :, START : START + k] = np.eye(k)
    for row in range(n):
        x[row + 1] = shrink * x[row] + pull * g[row] * v[row]
        slope[row + 1] = shrink * slope[row]
        slope[row + 1, :, LOG_SHRINK] += shrink * x[row]
        slope[row + 1, :, PULL] += g[row] * v[row]
        slope[row + 1, :, START + k + row] += pull * v[row]
    return x, slope


def _table(
    case: _Case, seen: Bool[np.ndarray, " K"], unknowns: Float[np.ndarray, " m"], digits: float
) -> tuple[Bool[np.ndarray, " n"], Float[np.ndarray, "n columns"]]:
    """Columns that ratings are in the span of, and the rows of which they are told."""
    k = case.v.shape[1]
    x, slope = _path(unknowns, case.v)
    g, h = unknowns[START + k :], (x[:-1] * case.v).sum(axis=1)
    free = np.concatenate([[unknowns[LOG_SHRINK] != 0, True], seen, np.ones(len(g), bool)])
    # a length of x_0 is chosen, for the rows leave it open
    chosen = np.zeros(unknowns.size)
    chosen[START : START + k] = x[0]
    table = np.concatenate([_rows(unknowns, case)[1][case.kept], chosen[None]])[:, free]
    numbers = np.concatenate(
        [
            np.eye(unknowns.size)[START + k :] / np.abs(g).max(),
            np.einsum("nkm,nk->nm", slope[:-1], case.v) / np.abs(h).max(),
        ]
    )
    size = np.linalg.norm(table, axis=0)
    size[size == 0] = 1.0
    _, values, right = np.linalg.svd(table / size, full_matrices=False)
    spread = np.linalg.norm(
        (numbers[:, free] / size) @ right.T * (digits / np.maximum(values, digits**2)), axis=1
    )
    told = (spread < SHARP).reshape(2, -1).all(axis=0)
    decay = np.exp(unknowns[LOG_SHRINK] * np.arange(len(g)))
    return told, np.concatenate([g[:, None], h[:, None], decay[:, None] * case.v[:, ~seen]], axis=1)


def fitted(
    model: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    first: Float[np.ndarray, " m"],
    free: Bool[np.ndarray, " m"],
    sent: Float[np.ndarray, "n K"],
    kept: Bool[np.ndarray, "n K"],
    most: int = MOST_STEPS,
) -> Fit:
    """Fit the unknowns of a model to the entries that were sent.

    References
    ----------
    J. J. Moré 1978, doi:10.1007/BFb0067700 (MINPACK).
    """

    @lru_cache(maxsize=1)
    def at(some: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
        rows, slope = model(_put(first, free, np.array(some)))
        return (rows - sent)[kept], slope[kept][:, free]

    with np.errstate(all="ignore"):
        try:
            found = least_squares(
                lambda some: at(tuple(some))[0], first[free], lambda some: at(tuple(some))[1],
                method="lm", x_scale="jac", ftol=LAST, xtol=LAST, gtol=LAST, max_nfev=most,
            )  # fmt: skip
        except ValueError:  # numbers that are not finite
            return Fit(first, np.inf)
    off = np.abs(found.fun).max(initial=0)
    return Fit(_put(first, free, found.x), float(off) if np.isfinite(off) else np.inf)


def _put(whole: np.ndarray, free: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Some unknowns put in the place of those that are free."""
    out = whole.copy()
    out[free] = some
    return out
