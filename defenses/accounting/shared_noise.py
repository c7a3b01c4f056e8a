"""What is proved about ``objective-noise``, for whom, against which view, when the recommender knows h.

Rating pq of budget eps = w t (weight w, noise for budget t) changes its own upload by at most 2 w Delta in
the Euclidean norm, as long as u_p and v_q are the same in both worlds. Noise of item q's sum has coordinates
of Laplace's law with scale b = 2 Delta sqrt(K) / t. So, for the first round, whose u_p was drawn before any
rating:

- the sum of all raters, seen by somebody who does not know h: w t, with delta = 0. This is what Theorem 2 of
  paper 002 (Hu, Fang 2022) counts;
- client p's upload alone, h unknown: its noise is Laplace of scale b / sqrt(n), so sqrt(n) w t for n raters;
- anything, seen by the recommender, who drew h: given h the noise is normal with standard deviation
  b sqrt(2 h_k) (for an upload: over sqrt(n)), and h_k may be as near to 0 as it likes, so no epsilon is
  finite with delta = 0. At delta > 0 the shift in units of the noise is at most mu with mu^2 = n (w t)^2 / (2
  x), x ~ Exp(1) (x = K min_k h_k), whatever the direction; the delta of a Gaussian mechanism (Balle, Wang
  2018, arXiv:1805.06530, Theorem 8), averaged over x, bounds that of the view.

Beyond the first round u_p depends on the rating, and all of client p's uploads differ between the worlds: the
shift of 2 w Delta no longer bounds anything, and nothing is proved for ``fresh`` and ``composed``. With
``once`` the difference of two rounds has no noise: epsilon is infinite. The final V is what the theorem
claims eps for; its proof has V stationary and U the same in both worlds, and training for a fixed number of
epochs has neither.
"""

from __future__ import annotations

import numpy as np
from scipy import integrate, optimize, stats

from victims.common.validation import above, at_least, one_of, require, strictly_between
from victims.protocols.account import DELTA, Line

MOST = 1e9  # epsilon that counts as none
NODES = 4000  # of the integral over x


def accounts(budget: float, noise: str, raters: int, rounds: int, delta: float = DELTA) -> list[Line]:
    """The account of one rating under one reading of the noise, view by view.

    Parameters
    ----------
    budget : float
        w t of one draw, > 0; with ``composed`` that of one epoch.
    noise : "once", "fresh" or "composed"
    raters : int
        n, >= 1.
    rounds : int
        >= 1.
    delta : float
        Between 0 and 1.

    Returns
    -------
    list of Line
        Four about the first round, one about all rounds, one about the final V.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    require("the account", "budget", budget, above(0))
    require("the account", "noise", noise, one_of("once", "fresh", "composed"))
    require("the account", "raters", raters, at_least(1))
    require("the account", "rounds", rounds, at_least(1))
    require("the account", "delta", delta, strictly_between(0, 1))
    nothing, infinite = float("nan"), float("inf")
    one = "first round"
    lines = [
        Line(f"{one}: the item's sum, h unknown", budget, budget, delta, "Theorem 2's count"),
        Line(
            f"{one}: the client's upload, h unknown",
            budget * np.sqrt(raters),
            budget * np.sqrt(raters),
            delta,
            "a share has 1/sqrt(n) of the noise",
        ),
        Line(
            f"{one}: the item's sum, h known",
            infinite,
            epsilon_given_h(budget, 1, delta),
            delta,
            "normal noise given h",
        ),
        Line(
            f"{one}: the client's upload, h known (the recommender)",
            infinite,
            epsilon_given_h(budget, raters, delta),
            delta,
            "normal noise given h, 1/sqrt(n) of it",
        ),
    ]
    if noise == "once":
        every = Line("all rounds: uploads", infinite, infinite, delta, "differences of rounds have no noise")
    else:
        why = "u_p depends on the rating after the first round: no bound of the shift is proved"
        every = Line("all rounds: uploads", nothing, nothing, delta, why)
    if rounds == 1:
        every = Line("all rounds: uploads", lines[3].epsilon, lines[3].at_delta, delta, lines[3].why)
    final = Line(
        "final V", nothing, nothing, delta, "the proof needs V stationary and U unchanged; neither holds"
    )
    return [*lines, every, final]


def delta_given_h(epsilon: float, budget: float, raters: int) -> float:
    """Delta at which an upload in the first round is covered, h known; ``raters`` = 1 for the sum.

    Parameters
    ----------
    epsilon : float
        >= 0.
    budget : float
        w t, > 0.
    raters : int
        >= 1.

    Returns
    -------
    float
        From 0 to 1.
    """
    # substituting the probability of x puts nodes where its mass is
    levels = (np.arange(NODES) + 0.5) / NODES
    tail = np.geomspace(1e-14, levels[0], 400)
    middle = np.concatenate([tail, levels[1:]])
    shift = np.sqrt(raters * budget**2 / (2 * -np.log1p(-middle)))
    values = _gaussian_delta(epsilon, shift)
    return float(integrate.trapezoid(values, middle) + values[0] * middle[0] + values[-1] * (1 - middle[-1]))


def epsilon_given_h(budget: float, raters: int, delta: float = DELTA) -> float:
    """The epsilon at ``delta`` of ``delta_given_h``; infinite above 1e9.

    Parameters
    ----------
    budget : float
        w t, > 0.
    raters : int
        >= 1; 1 for the sum.
    delta : float
        Between 0 and 1.

    Returns
    -------
    float
        In nats, >= 0.

    Examples
    --------
    >>> epsilon_given_h(1.0, 1, 0.01) < epsilon_given_h(1.0, 100, 0.01)
    True
    """
    if delta_given_h(0.0, budget, raters) <= delta:
        return 0.0
    if delta_given_h(MOST, budget, raters) > delta:
        return float("inf")
    exponent_at = optimize.brentq(
        lambda exponent: delta_given_h(np.expm1(exponent), budget, raters) - delta, 0, np.log1p(MOST)
    )
    return float(np.expm1(exponent_at))


def _gaussian_delta(epsilon: float, shift: np.ndarray) -> np.ndarray:
    """Of two normal laws of variance 1 at that distance."""
    first = stats.norm.cdf(shift / 2 - epsilon / shift)
    second = np.exp(epsilon + stats.norm.logcdf(-shift / 2 - epsilon / shift))
    return np.maximum(first - second, 0)
