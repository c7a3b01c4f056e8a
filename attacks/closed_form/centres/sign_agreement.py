"""Which of two mirror images each client's ratings are: what clients say of the same items tells them apart.

Beyond the papers. Of clients whose ratings are read up to their sign
(``attacks.closed_form.centres.centred``), those who rated the same items agree more than they would with one
of them turned round: items differ in quality. So the signs are told relative to each other, up to one bit for
all clients together. The model, of ratings z less the client's mean and in units of their deviation, and of
the means m, as shares of the grid from its middle:

    z_ij = s_i (a_i Q_j + e_ij),   a_i ~ N(1, v),   Q_j ~ N(0, tau),   e_ij ~ N(0, sigma)
    m_i  = s_i (b + b_i + e_i),    b_i ~ N(0, omega)

s_i is the sign; a_i says how far the client's taste is that of all; of a share ``ODD`` of the clients neither
taste nor mean says anything of the sign. Nothing is fitted: Gibbs' sampler draws all of it, in a few chains
from random signs, and the probability of a sign is the mean of its conditional probability. So items that do
not differ (random ratings), few clients or few common items leave signs open, and so do chains that disagree.

The bit that is left: of a recording and its mirror image the same rows are sent, and nothing in them prefers
one. What is taken is that people rate more high than low: means of published sets lie near ``MIDDLE`` of the
grid (``attacks.metadata.rating_prior``), give or take ``APART`` and what so many clients leave open. Of two
levels nothing is taken: likes are most of what a program learns, and clicks a tenth of what it showed. A
recording of a program that stores 6 - r, or of jokes that nobody likes, is taken for its mirror image.

References
----------
Singer 2011, arXiv:0905.3174, for signs told by products of pairs; Geman and Geman 1984,
doi:10.1109/TPAMI.1984.4767596, for the sampler. Its use against uploads is ours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse
from jaxtyping import Float, Int
from scipy.special import expit

from attacks.metadata.rating_prior import MIDDLE

APART = 0.1  # standard deviation of published sets' mean ratings, as a share of the grid
ODD = 0.05  # share of clients whose taste and mean say nothing of their sign
CHAINS, SWEEPS, BURN_IN = 8, 300, 100
WIDE = 0.04  # variance of clients' means that say nothing, shares of the grid squared
TINY, SURE = 1e-12, 1e3
# inverse gamma laws: shape and scale of a variance, as of so many halves of observations
QUALITY, TASTE, NOISE, MEANS = (1.0, 0.02), (2.0, 0.3), (1.0, 1.0), (2.0, 0.02)


class Evidence(NamedTuple):
    """Ratings of some clients up to a sign, +1 or -1, for each."""

    owner: Int[np.ndarray, " ratings"]  # numbers from 0 on
    item: Int[np.ndarray, " ratings"]  # numbers from 0 on
    value: Float[np.ndarray, " ratings"]  # under the sign +1, up to a shift for each client; any unit
    # mean rating under +1 and under -1, as a share of the grid, less 1/2; NaN where the shift is open
    mean: Float[np.ndarray, "clients 2"]
    # standard deviation of the client's ratings, as a share of the grid
    deviation: Float[np.ndarray, " clients"]
    known: Int[np.ndarray, " clients"]  # A sign that is told anyhow; 0 where both are possible
    n_levels: int  # of the grid


class Agreement(NamedTuple):
    """What clients say together."""

    # probability that the sign is +1, where the whole is the way round that is likelier
    plus: Float[np.ndarray, " clients"]
    turned: bool  # whether that is the mirror image of the ratings under the signs
    upright: float  # probability of that way round, 0.5 to 1, by how high the ratings are


def log_odds_upright(
    mean: Float[np.ndarray, "*shape"], variance: Float[np.ndarray, "*shape"], n_levels: int
) -> Float[np.ndarray, "*shape"]:
    """Weigh ratings against their mirror image by their mean alone.

    Examples
    --------
    >>> bool(log_odds_upright(np.array(0.132), np.array(0.0), 5) > 5)  # of ML-100K
    True
    """
    odds = 2 * mean * (2 * MIDDLE - 1) / (2 * (APART**2 + variance))
    return np.asarray(odds if n_levels > 2 else np.zeros_like(odds))


def mean_and_variance(
    mean: Float[np.ndarray, "clients chains"], count: Float[np.ndarray, " clients"]
) -> tuple[Float[np.ndarray, " chains"], Float[np.ndarray, " chains"]]:
    """Average clients' means over all of their ratings."""
    share = count / max(count.sum(), 1)
    middle = share @ mean
    # few clients differ from their own mean by less than from that of all; one not at all
    usual = MEANS[1] / (MEANS[0] - 1)
    return middle, (share**2) @ (mean - middle) ** 2 + (share @ share) ** 2 * usual


def agreement(evidence: Evidence, rng: np.random.Generator) -> Agreement:
    """Tell clients' signs by what they say of the same items, and by how high their ratings are."""
    n_clients = evidence.known.size
    count = np.bincount(evidence.owner, minlength=n_clients).astype(float)
    table, rated = _tables(evidence, count)
    shifted = np.isnan(evidence.mean).any(axis=1)
    m = np.where(shifted[:, None], 0.0, evidence.mean)[..., None]
    m_variance = (evidence.deviation**2 / np.maximum(count, 1))[:, None]
    known = np.where(shifted, 0.0, count)  # whose mean is told
    state = _State.start(evidence.known, table.shape[1], rng)
    plus, turned, upright = np.zeros(n_clients), 0.0, 0.0
    for sweep in range(SWEEPS):
        likely = state.sweep(table, rated, m, m_variance, ~shifted, evidence.known, rng)
        if sweep < BURN_IN:
            continue
        own = np.where(state.sign > 0, m[:, 0], m[:, 1])
        mean, variance = mean_and_variance(own, known)
        down = mean < 0
        # where signs are told the whole is turned with them as they are
        turns = down & ~evidence.known.any()
        plus += np.where(turns, 1 - likely, likely).mean(axis=1)
        turned += down.mean()
        odds = log_odds_upright(mean, variance, evidence.n_levels)
        upright += np.maximum(expit(odds), expit(-odds)).mean()
    drawn = SWEEPS - BURN_IN
    whole = bool(turned > drawn / 2)
    if evidence.known.any():
        upright -= min(turned, drawn - turned)  # draws that are the other way round
        return Agreement(plus / drawn, whole, max(upright / drawn, 0.5))
    return Agreement(plus / drawn, False, upright / drawn)


class _Tables(NamedTuple):
    """A table of clients and items, and its transpose."""

    by_client: scipy.sparse.csr_array
    by_item: scipy.sparse.csr_array

    @property
    def shape(self) -> tuple[int, int]:
        return self.by_client.shape


def _tables(evidence: Evidence, count: Float[np.ndarray, " clients"]) -> tuple[_Tables, _Tables]:
    """Ratings less the client's mean, in units of their deviation; and ones where there are some."""
    owner, n = evidence.owner, np.maximum(count, 1)
    z = evidence.value - (np.bincount(owner, evidence.value, minlength=n.size) / n)[owner]
    deviation = np.sqrt(np.bincount(owner, z**2, minlength=n.size) / n)
    z = z / np.where(deviation > 0, deviation, 1)[owner]
    shape = (n.size, int(evidence.item.max(initial=0)) + 1)
    out = []
    for values in (z, np.ones(z.size)):
        whole = scipy.sparse.csr_array((values, (owner, evidence.item)), shape=shape)
        out.append(_Tables(whole, whole.T.tocsr()))
    return out[0], out[1]


class _State:
    """What the sampler draws, for each chain: signs and tastes of clients, and the variances of the model."""

    def __init__(self, sign: Float[np.ndarray, "clients chains"], n_items: int) -> None:
        n_chains = sign.shape[1]
        self.sign, self.taste = sign, sign.copy()  # the taste with its sign
        self.n_items = n_items
        self.quality, self.spread = np.full(n_chains, 0.1), np.full(n_chains, 0.2)  # tau, v
        self.noise = np.full(n_chains, 0.9)  # sigma
        self.middle, self.means = np.full(n_chains, 0.1), np.full(n_chains, 0.01)  # b, omega

    @classmethod
    def start(cls, known: Int[np.ndarray, " clients"], n_items: int, rng: np.random.Generator) -> _State:
        """Signs at random, but for those that are told."""
        sign = np.where(rng.random((known.size, CHAINS)) < 0.5, 1.0, -1.0)
        return cls(np.where(known[:, None] != 0, known[:, None], sign), n_items)

    def sweep(
        self,
        table: _Tables,
        rated: _Tables,
        m: Float[np.ndarray, "clients 2 1"],
        m_variance: Float[np.ndarray, "clients 1"],
        placed: np.ndarray,
        known: Int[np.ndarray, " clients"],
        rng: np.random.Generator,
    ) -> Float[np.ndarray, "clients chains"]:
        """Draw everything once; the conditional probability of each sign +1 comes back."""
        precision = 1 / self.quality + (rated.by_item @ self.taste**2) / self.noise
        q = (table.by_item @ self.taste) / self.noise / precision
        q += rng.standard_normal(q.shape) / np.sqrt(precision)
        known_of, product = np.maximum(rated.by_client @ q**2, TINY), table.by_client @ q
        slope, error = product / known_of, self.noise / known_of
        law = (self.spread + error, self.middle, self.means + m_variance, placed)
        plus, odd_plus = _usual_and_odd(slope, 1.0, m[:, 0], *law)
        minus, odd_minus = _usual_and_odd(slope, -1.0, m[:, 1], *law)
        odds = np.logaddexp(plus, odd_plus) - np.logaddexp(minus, odd_minus)
        odds = np.where(known[:, None] != 0, SURE * known[:, None], odds)
        likely = expit(odds)
        up = rng.random(likely.shape) < likely
        self.sign = np.where(up, 1.0, -1.0)
        usual, odd = np.where(up, plus, minus), np.where(up, odd_plus, odd_minus)
        drawn_odd = rng.random(likely.shape) < expit(odd - usual)
        self._draw_tastes(drawn_odd, known_of, product, rng)
        count = int(rated.by_client.nnz)
        left = count - 2 * (self.taste * product).sum(axis=0) + (self.taste**2 * known_of).sum(axis=0)
        self.noise = _variance(NOISE, np.maximum(left, 0), count, rng)
        self.quality = _variance(QUALITY, (q**2).sum(axis=0), self.n_items, rng)
        self._draw_means(m, m_variance, placed[:, None] & ~drawn_odd, rng)
        return likely

    def _draw_tastes(
        self, odd: np.ndarray, known_of: np.ndarray, product: np.ndarray, rng: np.random.Generator
    ) -> None:
        """Tastes given signs, and how they differ among clients who are not odd."""
        prior_mean, prior = np.where(odd, 0.0, self.sign), np.where(odd, 1 + self.spread, self.spread)
        precision = 1 / prior + known_of / self.noise
        self.taste = (prior_mean / prior + product / self.noise) / precision
        self.taste += rng.standard_normal(odd.shape) / np.sqrt(precision)
        square = np.where(odd, 0.0, (self.taste * self.sign - 1) ** 2).sum(axis=0)
        self.spread = _variance(TASTE, square, (~odd).sum(axis=0), rng)

    def _draw_means(
        self,
        m: Float[np.ndarray, "clients 2 1"],
        m_variance: Float[np.ndarray, "clients 1"],
        counted: np.ndarray,
        rng: np.random.Generator,
    ) -> None:
        """How high clients rate, and how they differ, among those who count."""
        own = np.where(self.sign > 0, m[:, 0], m[:, 1])
        precision = 1 / self.means + 1 / np.maximum(m_variance, TINY)
        drawn = (self.middle / self.means + own / np.maximum(m_variance, TINY)) / precision
        drawn += rng.standard_normal(own.shape) / np.sqrt(precision)
        precision = counted.sum(axis=0) / self.means + 1 / WIDE
        self.middle = np.where(counted, drawn, 0.0).sum(axis=0) / self.means / precision
        self.middle += rng.standard_normal(self.middle.size) / np.sqrt(precision)
        square = np.where(counted, (drawn - self.middle) ** 2, 0.0).sum(axis=0)
        self.means = _variance(MEANS, square, counted.sum(axis=0), rng)


def _variance(
    law: tuple[float, float], square: np.ndarray, count: np.ndarray | int, rng: np.random.Generator
) -> Float[np.ndarray, " chains"]:
    """Draw a variance given a sum of squares."""
    shape, scale = law
    return (scale + square / 2) / rng.gamma(np.broadcast_to(shape + np.asarray(count) / 2, square.shape))


def _normal(value: np.ndarray, middle: np.ndarray | float, variance: np.ndarray) -> np.ndarray:
    """Logarithm of the density of a normal law, but for a constant."""
    return -0.5 * (value - middle) ** 2 / variance - 0.5 * np.log(variance)


def _usual_and_odd(
    slope: np.ndarray, sign: float, own: np.ndarray, error: np.ndarray, middle: np.ndarray,
    variance: np.ndarray, placed: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Log likelihood of clients' slopes and means as those of usual clients of a sign, and of odd ones."""
    of_mean = (
        np.where(placed[:, None], _normal(own, *law), 0.0)
        for law in ((middle, variance), (0.0, middle**2 + WIDE + variance))
    )
    usual = np.log1p(-ODD) + _normal(slope, sign, error) + next(of_mean)
    return usual, np.log(ODD) + _normal(slope, 0.0, 1 + error) + next(of_mean)
