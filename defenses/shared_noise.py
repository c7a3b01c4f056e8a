"""What is proved about ``objective-noise``, for whom, against which view, when the recommender knows h.

Rating pq of budget eps = w t (weight w, noise for budget t) changes its own upload by at most 2 w Delta in
the Euclidean norm, as long as u_p and v_q are the same in both worlds. Noise of item q's sum has coordinates
of Laplace's law with scale b = 2 Delta sqrt(K) / t. So, for the first round, whose u_p was drawn before any
rating:

- the sum of all raters, seen by somebody who does not know h: w t, with delta = 0. This is what Theorem 2 of
  Hu & Fang 2023 count;
- another rater knows h, and takes its own share off the sum: of n raters (n - 1) / n of the variance is left,
  half of it for two;
- client p's upload, h unknown: nothing, for who receives it receives those of the other raters, too, and
  estimates h from them;
- anything, seen by the recommender, who drew h: given h the noise is normal with standard deviation
  b sqrt(2 h_k) (for an upload: over sqrt(n)), and h_k may be as near to 0 as it likes, so no epsilon is
  finite with delta = 0. At delta > 0 the shift in units of the noise is at most mu with mu^2 = n (w t)^2 / (2
  x), x ~ Exp(1) (x = K min_k h_k), whatever the direction; the delta of a Gaussian mechanism (Balle, Wang
  2018, arXiv:1805.06530, Theorem 8), averaged over x, bounds that of the view.

That is all that is proved, and of a training whose only round is round 0 (``defenses.accounts``).
Beyond it u_p depends on the rating, and all of client p's uploads differ between the worlds: the shift of 2 w
Delta no longer bounds anything. With ``once`` the difference of two rounds has no noise: epsilon is infinite.
The final V is what the theorem claims eps for; its proof has V stationary and U the same in both worlds, and
training for a fixed number of epochs has neither. A client that does not upload keeps its share of the noise,
so that a sum without it has less than is counted.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy import integrate, optimize, stats

from victims.common.validation import above, at_least, require, strictly_between
from victims.data.ratings import Ratings
from victims.protocols.account import DELTA, Line

MOST = 1e9  # epsilon that counts as none
NODES = 4000  # of the integral over x
CANCELS = Line("uploads", float("inf"), float("inf"), DELTA, "the difference of two rounds has no noise")


def first_round(budget: float, raters: int, delta: float = DELTA) -> list[Line]:
    """The account of one rating, view by view, where round 0 is the only one."""
    require("the account", "budget", budget, above(0))
    require("the account", "raters", raters, at_least(1))
    require("the account", "delta", delta, strictly_between(0, 1))
    infinite, known = float("inf"), "normal noise given h"
    return [
        Line("the item's sum, h unknown (clients who did not rate it)", budget, budget, delta,
             "Theorem 2's count"),
        Line("the item's sum, h known (another rater of it)", infinite, epsilon_given_h(budget, 2, delta),
             delta, f"{known}, less its own share of two"),
        Line("the client's upload, h known (the recommender)", infinite,
             epsilon_given_h(budget, raters, delta), delta, f"{known}, 1/sqrt(n) of it"),
    ]  # fmt: skip


def delta_given_h(epsilon: float, budget: float, raters: int) -> float:
    """Delta at which an upload in the first round is covered, h known; ``raters`` = 1 for the sum."""
    # substituting the probability of x puts nodes where its mass is
    levels = (np.arange(NODES) + 0.5) / NODES
    tail = np.geomspace(1e-14, levels[0], 400)
    middle = np.concatenate([tail, levels[1:]])
    shift = np.sqrt(raters * budget**2 / (2 * -np.log1p(-middle)))
    values = _gaussian_delta(epsilon, shift)
    return float(integrate.trapezoid(values, middle) + values[0] * middle[0] + values[-1] * (1 - middle[-1]))


def epsilon_given_h(budget: float, raters: int, delta: float = DELTA) -> float:
    """The epsilon at ``delta`` of ``delta_given_h``; infinite above 1e9.

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


@runtime_checkable
class Promising(Protocol):
    """A defense that promises a budget to each rating; others promise nothing.

    It is a claim, not a proof: what is proved is the defense's account (``victims.protocols.account``).
    """

    def promised(self, ratings: Ratings, seed: int) -> Float[np.ndarray, " ratings"]:
        """Budget epsilon of every rating in nats, > 0, in the run of this seed."""
        ...
