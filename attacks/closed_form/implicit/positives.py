"""Which of a client's two labels are the positives, and which the negatives that it drew.

Beyond the papers. With the client's factor negated and all labels exchanged the same rows are sent, so that
no row names the positives. What all rows say together does, in nats, which are added:

- *counts*: a client draws m negatives for each of its n positives, of all items or more often popular ones,
  some of them twice or none; all clients share m, 1 to 10, or 1 / m. Beforehand n has a density of 1 / n, so
  that a negative for m positives, which shows the same counts the other way round, would divide by accident;
- *repeats*: a negative that is drawn twice has a row twice as large, and that so many are follows from how
  many are drawn; positives all come once (or all as often);
- *rounds*: positives come again, and negatives are drawn anew, evenly or by popularity, or are kept.
  Minibatches of positives come again more often than even draws, for a client uses a quarter of the catalogue
  at most, or never, where one pass goes through all;
- *popularity*: negatives are drawn evenly, and positives are not. With pi_j the share of the others who use
  item j, A and B the items of both labels, a and b their numbers,

      x = (mean_A logit pi_j - mean_B logit pi_j) / sqrt(1 / a + 1 / b)

  is positive in the mean where A are the positives, and as far negative where B are: a mixture of two normal
  laws, of means mu and -mu and one variance v, which its second and fourth moments tell, and the odds are
  2 mu x / v. The smallest mu is taken that two standard errors allow. It is believed where the negatives that
  it says are even draws, and the positives are not (chi squared): of draws by popularity neither are;
- *directions*: an entry of the rows that has one sign in the positives of most clients (a bias, the weights
  of a scorer that all share) passes on to a client what is known of the others.

What it assumes: that negatives are no more lasting than positives; that clients use what many use more often
than what few do.

References
----------
S. Rendle et al., "BPR: Bayesian Personalized Ranking from Implicit Feedback", arXiv:1205.2618, Section 5, and
X. He et al., "Neural Collaborative Filtering", WWW 2017, for how negatives are drawn. The rest is ours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float
from scipy.special import betaln, expit, gammaln, log_softmax, logsumexp, ndtr, xlogy

from attacks.closed_form.implicit.labels import WIDEST, Labels

EVEN, UNEVEN = 3.0, 6.0  # standard deviations of chi squared, up to which counts are of draws, and above not
STRENGTHS = 2.0 ** np.arange(8)  # of the beta law of the shares, in clients
MOST_LISTED = 0.5  # of the catalogue, in the mean: else items that many use, unseen, are listed by fewer
ERRORS = 2.0  # standard errors that are taken off the fourth power of mu
MOST, FEWEST = 10, 10  # negatives for each positive; positives for each negative
MISSED = (0.0, 0.02, 0.06)  # of a client's rows, by which counts are off: the side of a row is not sure
OUTLIER = 0.01  # share of clients, rows or signs that no law explains
SHARED = 0.02  # of programs, whose positives share a sign
LASTING = 0.97  # of the positives, that come again
# how much more often items come again where minibatches are drawn than under even draws
BATCHES = 2.0 ** np.arange(2, 8)
EFFECTIVE = (1.0, 1 / 3, 1 / 10)  # of the catalogue, that draws are from; less than all of it by popularity
NEAR = 0.2  # of whole multiples of the usual size of a row, within which it comes from so many draws
SMALLEST = 1e-12


class Named(NamedTuple):
    """What is said of clients and of the recording."""

    odds: Float[np.ndarray, " clients"]  # nats that label 1 is that of the positives
    nats: float  # by which draws of negatives explain the labels better than none do


def named(labels: Labels, n_items: int) -> Named:
    """Name the positives of each client."""
    sides = _sides(labels, n_items)
    counts = by_counts(sides)
    odds = counts.odds + by_repeats(sides, labels).odds + by_rounds(sides).odds
    popularity = by_popularity(sides, odds)
    odds = odds + popularity.odds
    nats = max(counts.nats, 0.0) + popularity.nats
    return Named(odds + by_directions(labels.direction, odds), nats)


class Sides(NamedTuple):
    """Items of both labels in each round of clients with rows of two labels, 1 where there is a row."""

    first: list[sp.csr_array]  # of each round, (clients, n_items)
    other: list[sp.csr_array]
    n_items: int
    two: np.ndarray


def _sides(labels: Labels, n_items: int) -> Sides:
    """Which items have which label."""
    shape = labels.two.size, n_items
    both: tuple[list[sp.csr_array], list[sp.csr_array]] = ([], [])
    for round_ in np.unique(labels.round).tolist():
        here = (labels.round == round_) & labels.two[labels.client]
        for side, some in zip(both, (here & (labels.odds > 0), here & (labels.odds < 0)), strict=True):
            one = sp.csr_array((np.ones(some.sum()), (labels.client[some], labels.item[some])), shape=shape)
            one.data[:] = 1.0
            side.append(one)
    return Sides(*both, n_items, labels.two)


def _by_families(
    plus: Float[np.ndarray, "families clients"],
    minus: Float[np.ndarray, "families clients"],
    null: Float[np.ndarray, " clients"],
    weight: Float[np.ndarray, " clients"],
) -> Named:
    """Odds of one label against the other under laws of which all clients follow one, or none."""
    laws = logsumexp([plus, minus], axis=0) - np.log(2)
    total = np.append((laws * weight).sum(axis=1) - np.log(len(plus)), (null * weight).sum())
    shares = log_softmax(total)[:, None]
    never = np.zeros((1, null.size))
    first, other = (
        logsumexp(shares + np.concatenate([np.minimum(part - laws, np.log(2)), never]), axis=0)
        for part in (plus, minus)
    )
    return Named(first - other, float(logsumexp(total[:-1]) - total[-1]))


def _counts(sides: Sides) -> tuple[np.ndarray, np.ndarray]:
    """How many items of both labels each client has in the round where it has most."""
    first, other = (np.stack([np.diff(one.indptr) for one in side]) for side in (sides.first, sides.other))
    best = (first + other).argmax(axis=0)[None]
    return tuple(np.take_along_axis(one, best, axis=0)[0] for one in (first, other))


def by_counts(sides: Sides) -> Named:
    """Tell positives by one number of negatives for each."""
    a, b = _counts(sides)
    some = (a > 0) & (b > 0) & (a + b < sides.n_items)
    weight = np.zeros(a.size)
    pair = np.stack([np.minimum(a, b), np.maximum(a, b)])[:, some]
    _, place, often = np.unique(pair, axis=1, return_inverse=True, return_counts=True)
    weight[some] = 1 / often[place.ravel()]
    a, b = np.maximum(a, 1), np.maximum(b, 1)
    plus, minus = _laws(a, b, sides.n_items), _laws(b, a, sides.n_items)
    t = a + b
    # any split is as likely, or each row has one chance, about the same in all clients
    share, spread = np.meshgrid(np.linspace(0.02, 0.5, 25), 10.0 ** np.arange(1, 5), indexing="ij")
    p, q = ((part * spread).reshape(-1, 1) for part in (share, 1 - share))
    halves = np.logaddexp(betaln(a + p, b + q), betaln(b + p, a + q)) - betaln(p, q) - np.log(2)
    halves += gammaln(t + 1) - gammaln(a + 1) - gammaln(b + 1)
    null = np.concatenate([halves, -np.log(t + 1)[None]]) - np.log(t)
    null = null[(null * weight).sum(axis=1).argmax()]
    out = _by_families(plus, minus, null, weight)
    return Named(np.where(some, out.odds, 0.0), out.nats)


def _laws(n: np.ndarray, drawn: np.ndarray, n_items: int) -> Float[np.ndarray, "families clients"]:
    """Log-likelihood of the counts, n of positives, under each law."""
    n, drawn = n.astype(float), drawn.astype(float)
    free, total, out = np.maximum(n_items - n, 1), n + drawn, []
    for m in (*range(1, MOST + 1), *(1 / k for k in range(2, FEWEST + 1))):
        laws = [(np.floor(np.minimum(m * n, free) + 1e-9), np.zeros(n.size))]
        laws += [_occupied(n, int(m), free * share) for share in EFFECTIVE if m >= 1]
        for missed in MISSED:
            for mean, variance in laws:
                spread = np.sqrt(variance + (missed * total) ** 2 + 0.01)
                law = ndtr((drawn + 0.5 - mean) / spread) - ndtr((drawn - 0.5 - mean) / spread)
                out.append(np.log((1 - OUTLIER) * law + OUTLIER / (total + 1)) - np.log(n))
    return np.array(out)


def _occupied(n: np.ndarray, m: int, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of how many of the free items n draws of m different ones hit."""
    each = np.minimum(m, free)
    missed = (1 - each / free) ** n
    both = np.maximum((1 - each / free) * (1 - each / np.maximum(free - 1, 1)), 0) ** n
    variance = free * missed + free * (free - 1) * both - (free * missed) ** 2
    return free * (1 - missed), np.maximum(variance, 0)


def by_repeats(sides: Sides, labels: Labels) -> Named:
    """Tell negatives by those that are drawn twice, whose rows are twice as large."""
    n_clients, both = labels.two.size, []
    first_round = labels.round == np.min(labels.round, initial=0)
    for sign in (1, -1):
        here = first_round & labels.two[labels.client] & (np.sign(labels.odds) == sign)
        client, size = labels.client[here], labels.size[here]
        order = np.lexsort((size, client))
        client, size = client[order], size[order]
        n = np.bincount(client, minlength=n_clients)
        usual = np.full(n_clients, np.nan)
        usual[n > 0] = size[(np.cumsum(n) - n + (n - 1) // 2)[n > 0]]
        ratio = size / usual[client]
        once, twice = np.abs(ratio - 1) < NEAR, np.abs(ratio / 2 - 1) < NEAR
        counted = (once, twice, once | twice | (ratio > 2))
        both.append((n, usual, *(np.bincount(client, one, minlength=n_clients) for one in counted)))
    laws = []
    for (n, usual, once, twice, whole), (_, other, _, other_twice, _) in (both, both[::-1]):
        expected = np.maximum(n**2 / (2 * sides.n_items), SMALLEST)
        drawn = xlogy(twice, expected) - expected - gammaln(twice + 1)
        # as often as one positive of pairs has negatives: that draws are all as often is less probable
        times = np.nan_to_num(usual / other)
        k = np.where(
            (once == n) & (other_twice > 0) & (np.abs(times - np.rint(times)) < NEAR), np.rint(times), 1
        )
        even = gammaln(n * k + 1) - n * gammaln(k + 1) - xlogy(n * k, np.maximum(n, 1))
        used = np.log(0.5 * (twice == 0) + 0.5 / (n + 1))
        laws.append((np.where(k > 1, even, drawn), used, (whole == n) & (n > 0)))
    (drawn_a, used_a, clear_a), (drawn_b, used_b, clear_b) = laws
    plus, minus, null = (
        np.where(clear_a & clear_b, one, 0.0) for one in (used_a + drawn_b, drawn_a + used_b, used_a + used_b)
    )
    return _by_families(plus[None], minus[None], null, np.ones(n_clients))


def by_rounds(sides: Sides) -> Named:
    """Tell positives by items that come again."""
    n_clients = sides.two.size
    if len(sides.first) < 2:
        return Named(np.zeros(n_clients), 0.0)
    laws = []
    for one, other in ((sides.first, sides.other), (sides.other, sides.first)):
        lasting, expected, again = (np.zeros(n_clients) for _ in range(3))
        for before, after, beside in zip(one, one[1:], other, strict=False):
            n, m = np.diff(before.indptr), np.diff(after.indptr)
            both = np.asarray(before.multiply(after).sum(axis=1)).ravel()
            fewer = np.minimum(n, m)
            lasting += np.where(fewer > 0, xlogy(both, LASTING) + (fewer - both) * np.log1p(-LASTING), 0.0)
            expected += n * m / np.maximum(sides.n_items - np.diff(beside.indptr), 1)
            again += both
        rate = np.maximum(expected, SMALLEST)
        poisson = [
            xlogy(again, rate * times) - rate * times - gammaln(again + 1) for times in (1.0, *BATCHES)
        ]
        passes = np.where(again == 0, 0.0, np.log(SMALLEST) * again)
        laws.append(
            (lasting, poisson[0], np.array(poisson[1:]), np.array([*poisson[-BATCHES.size :], passes]))
        )
    plus, minus = (
        np.concatenate([[lasting + anew, lasting + kept], lasting + popular, batches + kept, batches + anew])
        for (lasting, _, _, batches), (kept, anew, popular, _) in (laws, laws[::-1])
    )
    return _by_families(plus, minus, laws[0][0] + laws[1][0], np.ones(n_clients))


def by_popularity(sides: Sides, odds: Float[np.ndarray, " clients"]) -> Named:
    """Tell positives by what other clients use, beside what is known of them."""
    nothing = Named(np.zeros(odds.size), 0.0)
    first, other = (_any(side) for side in (sides.first, sides.other))
    n_listed = np.diff(first.indptr) + np.diff(other.indptr)
    users = np.flatnonzero(n_listed > 0)
    if users.size < 2 or n_listed.sum() > MOST_LISTED * users.size * sides.n_items:
        return nothing
    first, other, known = first[users], other[users], odds[users]
    x = _more_used(expit(known), first, other)
    finite = x[np.isfinite(x)]
    mu, variance = _two_laws(finite)
    if not mu > 0:
        return nothing
    told = np.nan_to_num(2 * mu * x / variance)
    one_law, odds_of = (finite**2).mean(), np.minimum(mu * np.abs(finite) / variance, WIDEST)
    nats = np.log(np.cosh(odds_of)) + np.log(one_law / variance) / 2
    nats += finite**2 / (2 * one_law) - (finite**2 + mu**2) / (2 * variance)
    positive = known + told > 0
    turn = sp.diags_array(positive * 1.0), sp.diags_array(~positive * 1.0)
    used, drawn = (sp.csr_array(one @ first + two @ other) for one, two in (turn, turn[::-1]))
    if off_even_draws(drawn, used) > EVEN or off_even_draws(used, drawn) < UNEVEN:
        return nothing
    out = np.zeros(odds.size)
    out[users] = told
    return Named(out, max(float(nats.sum()), 0.0))


def _any(rounds: list[sp.csr_array]) -> sp.csr_array:
    """Items of any round."""
    out = sp.csr_array(sum(rounds[1:], rounds[0]))
    out.data = np.ones(out.nnz)
    return out


def _two_laws(x: np.ndarray) -> tuple[float, float]:
    """mu and v of a mixture of normal laws of means mu and -mu and variance v; mu is 0 where it may be."""
    if x.size < 2:
        return 0.0, 1.0
    second, fourth = (x**2).mean(), (x**4).mean()
    error = np.std(6 * second * x**2 - x**4) / np.sqrt(x.size)
    power = (3 * second**2 - fourth - ERRORS * error) / 2
    if not power > 0:
        return 0.0, 1.0
    square = np.sqrt(power)
    return float(np.sqrt(square)), float(max(second - square, SMALLEST))


def _more_used(plus: np.ndarray, first: sp.csr_array, second: sp.csr_array) -> Float[np.ndarray, " clients"]:
    """How much more others use the items of the first label than those of the second; NaN without both.

    ``plus`` is the probability that 1 is the label of the positives, as far as it is told.
    """
    used, n = plus @ first + (1 - plus) @ second, len(plus)
    mean = min(used.mean() / n, 0.5)
    a, b = STRENGTHS * mean, STRENGTHS * (1 - mean)
    column = used[:, None]
    likelihood = (betaln(column + a, n - column + b) - betaln(a, b)).sum(axis=0)
    prior, rest = (float(law[likelihood.argmax()]) for law in (a, b))
    means, sizes = [], []
    for table, share in ((first, plus), (second, 1 - plus)):
        owner, item = table.nonzero()
        others = np.maximum(used[item] - share[owner], 0)
        value = np.log(others + prior) - np.log(np.maximum(n - 1 - others, 0) + rest)
        sizes.append(np.maximum(np.bincount(owner, minlength=n), SMALLEST))
        means.append(np.bincount(owner, value, minlength=n) / sizes[-1])
    one_label = np.minimum(*sizes) < 1
    return np.where(one_label, np.nan, (means[0] - means[1]) / np.sqrt(1 / sizes[0] + 1 / sizes[1]))


def off_even_draws(drawn: sp.csr_array, other: sp.csr_array) -> float:
    """How far items are from even draws of all but others, in standard deviations of chi squared."""
    n_items = drawn.shape[1]
    share = np.diff(drawn.indptr) / np.maximum(n_items - np.diff(other.indptr), 1)
    spread = share * (1 - share)
    expected, variance = share.sum() - share @ other, spread.sum() - spread @ other
    able = variance > 1e-9
    square = (np.bincount(drawn.indices, minlength=n_items) - expected)[able] ** 2 / variance[able]
    return float((square - 1).sum() / np.sqrt(2 * max(able.sum(), 1)))


def by_directions(
    direction: Float[np.ndarray, "clients K"], odds: Float[np.ndarray, " clients"]
) -> Float[np.ndarray, " clients"]:
    """Nats that signs which the positives of most clients share add to what is known of each."""
    some = (direction != 0).any(axis=1)
    if some.sum() < 2:
        return np.zeros(odds.size)
    common = np.linalg.eigh(direction[some].T @ direction[some])[1][:, -1:]
    sign = np.sign(np.concatenate([direction, direction @ common], axis=1)).T  # (features, clients)
    wrong = np.array([0.01, 0.03, 0.1, 0.2, 0.3])[:, None, None]
    known = expit(np.clip(odds, -30, 30))
    agree, against = (
        np.log(np.where(sign == 0, 0.5, np.where(sign == turn, 1 - wrong, wrong))) for turn in (1, -1)
    )
    each = np.concatenate([agree - against, against - agree]).reshape(-1, odds.size)
    law = np.concatenate(
        [
            np.log(known * np.exp(one) + (1 - known) * np.exp(two))
            for one, two in ((agree, against), (against, agree))
        ]
    ).reshape(-1, odds.size)
    total = law.sum(axis=1) + some.sum() * np.log(2)
    none = np.full((1, odds.size), np.log(len(law) / SHARED))
    share = log_softmax(np.concatenate([total[:, None] - law, none]), axis=0)  # what the others say alone
    half = np.zeros((1, odds.size))
    plus, minus = (
        logsumexp(share + np.concatenate([np.log(expit(turn * each)), half + np.log(0.5)]), axis=0)
        for turn in (1, -1)
    )
    return np.where(some, plus - minus, 0.0)
