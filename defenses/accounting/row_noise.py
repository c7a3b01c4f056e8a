"""The differential privacy that noise on clipped rows gives: of one row, and of one client.

Two recordings are neighbours if they differ in the values of one client's ratings and attributes. The set
of rated items is not protected: in observed-only it is in the clear, in include-unrated all items are
uploaded either way. A row that is clipped to norm C moves by at most 2 C in that norm. One rating enters
its own row and, through p_i, every other row of its client; the bound of one rating is therefore that of
the client, except where p_i does not depend on it yet (the first round of sgd), where one row moves. m rows
in T rounds compose m T times.

Where rows go along a graph, noise that is drawn once for a row is the same at all receivers, and whatever
they put together or pass on is made of the same m T rows. Noise that is drawn anew for every message gives c
receivers of a row c draws, whose mean has 1/sqrt(c) of the noise: c m T rows. Their own copies are all that
they see in one round; later rows of others depend on the copies that those got, so that beyond it the count
of all receivers alone bounds a view of other clients' rows, too.

Laplace noise of scale b, rows clipped in L1: a row is 2 C / b - private (Dwork, McSherry, Nissim, Smith 2006,
Proposition 1), m T of them by the plain sum, and by the privacy loss distribution (dp-accounting; Sommer,
Meiser, Mohammadi 2019, doi:10.2478/popets-2019-0029), for which the one-dimensional Laplace pair at distance
2 C dominates a row's.

Normal noise of standard deviation sigma, rows clipped in L2: no finite epsilon with delta = 0. m T rows are
one row at distance 2 C sqrt(m T), also where later rows depend on earlier ones (Dong, Roth, Su 2019,
arXiv:1905.02383, Corollary 3.3), whose epsilon at delta is exact (Balle, Wang 2018, arXiv:1805.06530, Theorem
8, as dp-accounting has it).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from defenses.accounting.ranges import usable, usable_or_0
from victims.common.validation import at_least, or_none, require, strictly_between
from victims.data.ratings import Ratings
from victims.protocols.account import DELTA, Account, Line, Listeners, Setting

NOT_HIDDEN = {
    "observed-only": (
        "which items a client rated: the uploads name them",
        "what repeats: the noise is fresh in every round, the ratings stay, so T rounds average it",
        "the direction that all rows of a client share: many rows tell it",
    ),
    "include-unrated": (
        "what repeats: the noise is fresh in every round, the ratings stay, so T rounds average it",
        "the direction that all rows of a client share: one row per item tells it",
    ),
}
PASSED_ON = (
    "what others pass on: beyond the first round their rows depend on the messages that they got, and the "
    "lines of all receivers alone bound a view that has such rows"
)
CELLS = 2_000_000  # of the discretised privacy loss
LARGE, SMALL = 1e3, 1e-6  # epsilon of one Laplace mechanism, and of all together
LEAST_MULTIPLIER, MOST_MULTIPLIER = 1e-6, 1e5  # of normal noise, sigma over the distance


class Spent(NamedTuple):
    """What a number of noisy rows gives away at most.

    rows : all rounds together; pure : epsilon with delta = 0, infinite where no finite one holds; composed :
    epsilon at delta, never above ``pure``; delta.
    """

    rows: int
    pure: float
    composed: float
    delta: float


def of_laplace(scale: float, clip: float | None, rows: int, rounds: int = 1, delta: float = DELTA) -> Spent:
    """What ``rows`` rows in each of ``rounds`` rounds give away under Laplace noise.

    Parameters
    ----------
    scale : float
        b: 0, or 1e-9 to 1e9.
    clip : float or None
        L1 norm to which rows are clipped, 1e-9 to 1e9; None gives no finite epsilon.
    rows, rounds : int
        >= 1.
    delta : float
        In 0..1, exclusive.

    Returns
    -------
    Spent
        epsilon in nats, without bound where ``clip`` is None or ``scale`` is 0.

    Raises
    ------
    InputError
        If a number is out of range.

    Examples
    --------
    >>> of_laplace(scale=2.0, clip=1.0, rows=1).pure
    1.0
    >>> of_laplace(scale=2.0, clip=None, rows=1).pure
    inf
    """
    count = _checked(scale, clip, rows, rounds, delta)
    if clip is None or scale == 0:
        return Spent(count, float("inf"), float("inf"), delta)
    single = 2 * clip / scale
    return Spent(count, single * count, _composed(single, count, delta), delta)


def of_gaussian(scale: float, clip: float | None, rows: int, rounds: int = 1, delta: float = DELTA) -> Spent:
    """What ``rows`` rows in each of ``rounds`` rounds give away under normal noise.

    Parameters
    ----------
    scale : float
        sigma: 0, or 1e-9 to 1e9.
    clip : float or None
        L2 norm to which rows are clipped, 1e-9 to 1e9; None gives no finite epsilon.
    rows, rounds : int
        >= 1.
    delta : float
        In 0..1, exclusive.

    Returns
    -------
    Spent
        epsilon in nats; that with delta = 0 is infinite.

    Raises
    ------
    InputError
        If a number is out of range.

    References
    ----------
    J. Dong, A. Roth, W. Su 2019, arXiv:1905.02383, Corollary 3.3; B. Balle, Y.-X. Wang 2018,
    arXiv:1805.06530, Theorem 8.

    Examples
    --------
    >>> spent = of_gaussian(scale=2.0, clip=1.0, rows=1)
    >>> spent.pure, round(spent.composed, 3)
    (inf, 4.377)
    """
    count = _checked(scale, clip, rows, rounds, delta)
    if clip is None or scale == 0:
        return Spent(count, float("inf"), float("inf"), delta)
    from dp_accounting import get_epsilon_gaussian

    multiplier = scale / (2 * clip * np.sqrt(count))
    if multiplier < LEAST_MULTIPLIER:  # an epsilon above 1e11 is none
        return Spent(count, float("inf"), float("inf"), delta)
    # less noise than there is gives a bound, and the library's numbers do not overflow
    composed = float(get_epsilon_gaussian(min(multiplier, MOST_MULTIPLIER), delta))
    return Spent(count, float("inf"), composed, delta)


def _checked(scale: float, clip: float | None, rows: int, rounds: int, delta: float) -> int:
    """The number of rows of all rounds."""
    require("the account", "scale", scale, usable_or_0())
    require("the account", "clip", clip, or_none(usable()))
    require("the account", "rows", rows, at_least(1))
    require("the account", "rounds", rounds, at_least(1))
    require("the account", "delta", delta, strictly_between(0, 1))
    return rows * rounds


def _composed(single: float, count: int, delta: float) -> float:
    """Epsilon of ``count`` Laplace mechanisms of epsilon ``single`` each."""
    from dp_accounting.pld.privacy_loss_distribution import from_laplace_mechanism

    total = single * count
    step = max(single / 100, total / CELLS)
    # the plain sum where the grid is too coarse to do better; where it is at most a thousandth too large (a
    # loss of one mechanism is on average within 1 of its epsilon); and where it is so small that the library
    # overflows
    if step > single or single > LARGE or total < SMALL:
        return total
    loss = from_laplace_mechanism(1 / single, value_discretization_interval=step)
    return min(total, float(loss.self_compose(count).get_epsilon_for_delta(delta)))


def of_rows(
    name: str,
    ratings: Ratings,
    setting: Setting,
    spent: Callable[[int, int], Spent],
    how: str,
    *,
    per_message: bool = False,
) -> Account:
    """The account of noise on clipped rows, for one row and for the median and the largest client.

    Parameters
    ----------
    name : str
        The defense.
    ratings : Ratings
        Those that clients train on.
    setting : Setting
    spent : callable
        From rows in each round and rounds to what they give away; infinite where nothing bounds it.
    how : str
        How epsilon at delta is composed.
    per_message : bool
        Whether every message has noise of its own: lines are then for each of ``setting.listeners``.

    Returns
    -------
    Account
        Without lines, and with the reason, where no epsilon is finite.
    """
    not_hidden = NOT_HIDDEN[setting.weighting]
    if not np.isfinite(spent(1, 1).composed):
        why = "there is no finite epsilon: rows have no bound without clipping and noise (clip=C, scale=b)"
        return Account(f"Privacy account of {name}", unproved=why, not_hidden=not_hidden)
    views = setting.listeners if per_message else ()
    if views and setting.n_rounds > 1:
        not_hidden = (*not_hidden, PASSED_ON)
    rows = _rows_of_clients(ratings, setting)
    lines = []
    for view in views or (None,):
        unit = "rows" if view is None else "messages"
        for what, count in _counted(rows, view).items():
            for length in dict.fromkeys((1, setting.n_rounds)):
                given_away = spent(max(count, 1), length)
                why = f"{unit} a round: {count:,}, rounds: {length}; {how}"
                lines.append(Line(what, given_away.pure, given_away.composed, given_away.delta, why))
    title = f"Privacy account of {name}, {setting.weighting}"
    return Account(title, tuple(lines), not_hidden=not_hidden)


def _rows_of_clients(ratings: Ratings, setting: Setting) -> Int[np.ndarray, " users"]:
    if setting.rows is not None:
        return setting.rows
    rated = np.full(ratings.n_users, ratings.n_items)
    if setting.weighting == "observed-only":
        rated = np.diff(ratings.indptr)
    return rated + ratings.n_attributes


def _counted(rows: Int[np.ndarray, " users"], view: Listeners | None) -> dict[str, int]:
    """What is protected, and how many draws of noise are about it in a round."""
    copies = np.ones_like(rows) if view is None else view.copies
    sends = copies > 0
    draws, seen = (rows * copies)[sends], "" if view is None else f"; {view.who}"
    return {
        f"one row, nothing else of the client moving{seen}": int(copies.max()),
        f"one rating or one client, median client{seen}": int(np.median(draws)),
        f"one rating or one client, largest client{seen}": int(draws.max()),
    }
