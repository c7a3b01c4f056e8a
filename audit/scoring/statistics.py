"""Intervals over clients, and tests that they are read better than by the best guess.

A sign test over clients asks whether the next client is read, too, and of fewer than seven it cannot tell.
Whether these clients are read has an answer for one, from its single ratings (``ratings_test``) or from what
is read of its rows, permuted (``permutation_p_value``; ``audit.scoring.nulls`` says what is permuted).
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import bdtrc, gammaincc  # scipy.stats takes a second to import

from victims.common.seeds import Purpose, generator

RESAMPLES = 1000
CONFIDENCE = 0.95
LEAK_LEVEL = 0.01  # of the one-sided sign tests
FEWEST = math.ceil(-math.log2(LEAK_LEVEL))  # clients with whom that level can be reached: 2^-7 < 0.01
TOLD = 0.9  # of a client's ratings that anybody is right about who has been told all the others, at most
GUESSED = 0.75  # right by the guess, or of one level, above which single ratings say nothing of an attack
FEWEST_RATINGS = math.ceil(math.log(LEAK_LEVEL) / math.log(TOLD))  # all right, that level by ratings: 44
RESAMPLE_CELLS = 4_000_000


def resampled_sums(
    samples: tuple[Float[np.ndarray, " users"], ...], seed: int
) -> Float[np.ndarray, "samples resamples"]:
    """Compute sums of bootstrap samples, clients resampled together; one alone where all are alike.

    References
    ----------
    B. Efron 1979, doi:10.1214/aos/1176344552.
    """
    if all((sample == sample[0]).all() for sample in samples):
        return np.array([[sample.sum()] for sample in samples])
    size, rng = samples[0].size, generator(seed, Purpose.BOOTSTRAP)
    batch = max(1, RESAMPLE_CELLS // size)
    found = []
    for begin in range(0, RESAMPLES, batch):
        drawn = rng.integers(0, size, (min(batch, RESAMPLES - begin), size))
        found.append([sample[drawn].sum(axis=-1) for sample in samples])
    return np.concatenate(found, axis=1)


def ends(*resampled: Float[np.ndarray, " resamples"]) -> list[tuple[float, float]]:
    """The ends of 95 % percentile intervals."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.stack(resampled), (tail, 1 - tail), axis=1)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def interval(sample: Float[np.ndarray, " users"], seed: int) -> tuple[float, float]:
    """Compute a 95 % percentile bootstrap interval of a mean over clients."""
    (found,) = ends(*resampled_sums((sample,), seed) / sample.size)
    return found


def most_unlike(n_users: int) -> float:
    """Bound the share of clients who are unlike all of a sample, which resampling that sample cannot show.

    References
    ----------
    C. J. Clopper, E. S. Pearson 1934, doi:10.1093/biomet/26.4.404.

    Examples
    --------
    >>> round(most_unlike(12), 3), round(most_unlike(72), 3)
    (0.265, 0.05)
    """
    return float(1 - ((1 - CONFIDENCE) / 2) ** (1 / n_users))


def sign_test(gain: Float[np.ndarray, " users"]) -> tuple[float, float]:
    """Test exactly, over clients, that gains over the baseline are above 0; and that they are below.

    Ties say nothing and are left out.

    References
    ----------
    W. J. Dixon, A. M. Mood 1946, doi:10.1080/01621459.1946.10501898.

    Examples
    --------
    >>> [round(p_value, 6) for p_value in sign_test(np.ones(10))]
    [0.000977, 1.0]
    """
    wins, losses = int((gain > 1e-12).sum()), int((gain < -1e-12).sum())
    return at_least(wins, wins + losses, 0.5), at_least(losses, wins + losses, 0.5)


def ratings_test(
    values: Float[np.ndarray, " users"],
    baseline: Float[np.ndarray, " users"],
    n_ratings: Float[np.ndarray, " users"],
) -> float:
    """Test by single ratings that more is told than anybody can guess, for clients too few for a sign test.

    The null is generous in place of exact: whoever has not seen the transcript, but has been told all other
    ratings of the client and everything of the others, is right about the next one with probability
    ``TOLD`` at most. Ratings one after the other then give at most binomially many right ones, whatever they
    have to do with each other. That cannot be said of clients who nearly always give one rating, whom the
    caller leaves out by their ratings alone, nor where the best guess tells more than ``GUESSED`` of those
    that are left. Nobody is left out for what was answered.

    Examples
    --------
    >>> ratings_test(np.ones(5), np.full(5, 0.3), np.full(5, 10.0)) < LEAK_LEVEL
    True
    >>> ratings_test(np.ones(5), np.full(5, 0.3), np.full(5, 8.0)) < LEAK_LEVEL
    False
    """
    if not (baseline * n_ratings).sum() <= GUESSED * n_ratings.sum():
        return 1.0
    return at_least(int(np.rint(values * n_ratings).sum()), int(n_ratings.sum()), TOLD)


def at_least(wins: int, trials: int, chance: float) -> float:
    """Compute the probability of so many successes or more, each of a chance.

    Examples
    --------
    >>> at_least(0, 5, 0.5), at_least(5, 5, 0.5), at_least(6, 5, 0.5)
    (1.0, 0.03125, 0.0)
    """
    return 1.0 if wins <= 0 else float(bdtrc(wins - 1, trials, chance))


def permutation_p_value(
    right: Float[np.ndarray, " users"],
    permuted: Float[np.ndarray, "replicates users"],
    *,
    n_beaten: int = 0,
    n_unbeaten: int = 0,
) -> float:
    """Test one-sidedly that clients are read better from their rows than from permuted ones.

    If rows say nothing of a client's ratings, the real order is one of the best m of all with a probability
    of m / (replicates + 1) at most, so that the sum of the clients' -log m / (replicates + 1) is no larger
    than one of exponential numbers. Clients are taken to be read on their own account.

    Replicates may end as soon as ``n_beaten`` of all that are left would not make it significant. At every
    level below that one it then errs no more often than with all of them, for whoever is significant has had
    them all; of one client the p-value is one at every level (Besag and Clifford).

    References
    ----------
    E. J. G. Pitman 1937, doi:10.2307/2984124 (permutation within blocks); R. A. Fisher, "Statistical Methods
    for Research Workers", 4th ed., 1932, section 21.1; J. Besag, P. Clifford 1991,
    doi:10.1093/biomet/78.2.301 (replicates that end early).

    Examples
    --------
    >>> round(permutation_p_value(np.ones(3), np.array([[0.4, np.nan, 0.2]] * 20)), 4)
    0.0056
    >>> permutation_p_value(np.full(3, 0.4), np.full((4, 3), 0.4))
    1.0
    """
    real, other = (np.where(np.isnan(part), 0.0, part) for part in (right, permuted))
    among_best = 1 + n_unbeaten + (other >= real).sum(axis=0)
    n_all = 1 + n_unbeaten + n_beaten + len(permuted)
    return float(gammaincc(right.size, -np.log(among_best / n_all).sum()))


def answers_test(
    answered: Bool[np.ndarray, " users"], permuted: Int[np.ndarray, " users"], n_replicates: int
) -> float:
    """Test exactly and one-sidedly that clients are answered more often than their rows, permuted.

    Of each client the number of answers among its rows as they are and as permuted is given; which of them
    is the real one is a draw. Clients are taken to be answered on their own account. One replicate makes this
    a sign test over clients, which of fewer than seven cannot be significant; more of them can.

    References
    ----------
    E. J. G. Pitman 1937, doi:10.2307/2984124 (permutation within blocks).

    Examples
    --------
    >>> round(answers_test(np.ones(4, bool), np.zeros(4, int), 3), 4)
    0.0039
    >>> answers_test(np.ones(4, bool), np.full(4, 3), 3)
    1.0
    """
    count = np.ones(1)
    for chance in (answered + permuted) / (n_replicates + 1):
        count = np.convolve(count, [1 - chance, chance])
    return float(min(count[int(answered.sum()) :].sum(), 1.0))
