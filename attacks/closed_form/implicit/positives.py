"""Which of a client's two labels are the positives, and which the negatives that it drew.

Beyond the papers. With the client's factor negated and all labels exchanged the same rows are sent, in this
and every other round, under cross-entropy and pairwise losses alike
(``attacks.closed_form.links.label_split``): no number in a row names the positives. These do, in this order:

- *numbers*: clients draw one number of negatives for each positive, two or more. A negative for so many
  positives would show the same number the other way round, but where these do not divide: of clients whose
  numbers differ, and who list less than the whole catalogue, more must show it than do with one chance in
  that number each. A program that leaves out what does not divide shows it all the same: it is not believed
  where items of the fewer label are draws that are nearly even, and those of the other are not;
- *repeats*: where negatives are drawn with repetition, or are few, some come more often than others, and
  positives all come as often, once for each of their negatives (``attacks.closed_form.implicit.repeats``);
- *rounds*: a client's positives are the same in each round, and its negatives are drawn anew. Of M items that
  it did not use the same n are drawn again with a probability of one over M choose n. Negatives that are kept
  while minibatches of the positives are sent would look the same the other way round, but that these come
  again: it is believed where items of the label that changes do so more seldom, over all clients, than those
  of minibatches would whose client uses a quarter of the catalogue, and some do: minibatches that go through
  the positives without any twice look like long draws;
- *others*: negatives are drawn from all items that a client did not use, evenly, and positives are not, for
  items differ in how many people use them. With pi_j the share of the others who use item j (half of those
  who list it, of whom it is not told), A and B the items of both labels, a and b their numbers,

      x = (mean_A logit pi_j - mean_B logit pi_j) / sqrt(1 / a + 1 / b)

  is positive in the mean where A are the positives, and as far negative where B are. How many items either
  label has plays no part: pi is too large where many negatives are listed. Over clients x is a mixture of two
  normal laws, of means mu and -mu and one variance v, which its second and fourth moments tell, and the odds
  are 2 mu x / v. The smallest mu is taken that two standard errors allow.

The last is believed where the negatives that it says are even draws, item by item, and the positives are not
(chi squared): of draws by popularity neither are, and nothing is answered by it.

What it assumes: that negatives are no more lasting than positives; for *others*, that negatives are drawn
evenly, and that clients use what many use more often than what few do.

References
----------
S. Rendle et al., "BPR: Bayesian Personalized Ranking from Implicit Feedback", arXiv:1205.2618, Section 5, for
how negatives are drawn. The rest is ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array
from scipy.special import bdtrc, betaln, expit, pdtr

from attacks.closed_form.centres.unmirrored import SURE
from attacks.closed_form.implicit.repeats import nats_of
from attacks.closed_form.implicit.sides import Sides

EVEN, UNEVEN = 3.0, 6.0  # standard deviations of chi squared, up to which counts are of draws, and above not
NEARLY = 4.5  # the same, up to which few draws may be even
STRENGTHS = 2.0 ** np.arange(8)  # of the beta law of the shares, in clients
TINY = 1e-12
MOSTLY = 0.5  # of the clients that have to show the same number of repeats
MOST_LISTED = 0.5  # of the catalogue, in the mean: else items that many use, unseen, are listed by fewer
ERRORS = 2.0  # standard errors that are taken off the fourth power of mu


class Named(NamedTuple):
    """What is said of clients."""

    # the sign of the positives, 1 or -1; 0 where nothing was asked that tells
    positive: Int[np.ndarray, " clients"]
    probability: Float[np.ndarray, " clients"]  # that it is this one, 0.5 where nothing tells


def by_numbers(clients: Sequence[Sides], n_items: int) -> Named:
    """Tell positives by one number of negatives for each, two or more."""
    out = Named(np.zeros(len(clients), int), np.full(len(clients), 0.5))
    sizes = [tuple(map(tuple, np.sort(one.counts, axis=1).tolist())) for one in clients]
    each = [_number_of(size) for size in sizes]
    part = [(one.counts.sum(axis=1) < n_items).all() for one in clients]
    differing = {size: number for size, number, free in zip(sizes, each, part, strict=True) if free}
    shown = Counter(filter(None, differing.values()))
    if not shown:
        return out
    number, n_agree = shown.most_common(1)[0]
    chance = float(bdtrc(n_agree - 1, len(differing), 1 / number))
    if 1 - chance < SURE:
        return out
    for client, one in enumerate(clients):
        fewer = np.sign(one.counts[:, 1] - one.counts[:, 0])
        if part[client] and each[client] == number and (fewer == fewer[0]).all():
            out.positive[client], out.probability[client] = fewer[0], 1 - chance
    return out


def _number_of(sizes: tuple[tuple[int, ...], ...]) -> int:
    """How often the larger label of each round holds the smaller one; 0 where it does not, or once."""
    ratios = {many // few if few and many % few == 0 else 0 for few, many in sizes}
    return ratios.pop() if len(ratios) == 1 and max(ratios) > 1 else 0


def by_repeats(clients: Sequence[Sides]) -> Named:
    """Tell positives by how often each item comes: positives all as often, drawn negatives not."""
    out = Named(np.zeros(len(clients), int), np.full(len(clients), 0.5))
    shown = Counter(one.repeats for one in clients if one.even)
    if not shown:
        return out
    number, n_agree = shown.most_common(1)[0]
    agree = [one.even != 0 and one.repeats == number for one in clients]
    if n_agree < MOSTLY * len(clients):
        return out
    # the other way round all clients' draws would have come equally often
    nats = sum(
        nats_of(int((one.sign == one.even).sum()), number)
        for one, own in zip(clients, agree, strict=True)
        if own
    )
    for client in np.flatnonzero(agree).tolist():
        out.positive[client], out.probability[client] = clients[client].even, -np.expm1(-nats)
    return out


def named(clients: Sequence[Sides], n_items: int) -> Named:
    """Name the positives of each client."""
    counted, chance = _unless_drawn(by_numbers(clients, n_items), clients, n_items)
    even, sure = by_repeats(clients)
    counted, chance = np.where(counted == 0, even, counted), np.where(counted == 0, sure, chance)
    lasting = np.array([one.lasting for one in clients])
    again, of_batches = (sum(getattr(one, name) for one in clients) for name in ("again", "of_batches"))
    if again == 0 or pdtr(again, of_batches) > 1 - SURE:
        lasting[:] = 0  # what changes may be minibatches of the positives
    sure = expit(np.abs(lasting)) >= SURE
    known = np.where(counted == 0, np.where(sure, np.sign(lasting), 0), counted).astype(int)
    known[(counted != 0) & sure & (np.sign(lasting) != counted)] = 0
    odds = by_others(clients, known, n_items)
    told = np.where(counted != 0, chance, expit(np.abs(lasting)))
    positive = np.where(known != 0, known, np.where(odds >= 0, 1, -1))
    return Named(positive, np.where(known != 0, told, expit(np.abs(odds))))


def _unless_drawn(told: Named, clients: Sequence[Sides], n_items: int) -> Named:
    """Nobody's, where those that are called positives are nearly even draws, and the negatives are not."""
    here = np.flatnonzero(told.positive)
    if here.size:
        some = [clients[client] for client in here.tolist()]
        off, other = (_off_even_draws(some, turn * told.positive[here], n_items) for turn in (1, -1))
        if off >= UNEVEN and other <= NEARLY:
            return Named(np.zeros(len(clients), int), np.full(len(clients), 0.5))
    return told


def by_others(
    clients: Sequence[Sides], known: Int[np.ndarray, " clients"], n_items: int
) -> Float[np.ndarray, " clients"]:
    """Tell positives by what other clients use."""
    owner = np.repeat(np.arange(len(clients)), [one.item.size for one in clients])
    item, sign = (np.concatenate([getattr(one, name) for one in clients]) for name in ("item", "sign"))
    shape = len(clients), n_items
    if item.size > MOST_LISTED * len(clients) * n_items:
        return np.zeros(len(clients))
    first, second = (csr_array(((sign == s).astype(float), (owner, item)), shape=shape) for s in (1, -1))
    x = np.where(known == 0, _more_used((1 + known) / 2, first, second), np.nan)
    odds = np.nan_to_num(_weight(x[np.isfinite(x)]) * x, posinf=np.inf, neginf=-np.inf)
    settled = (expit(np.abs(odds)) >= SURE) | (known != 0)
    positive = np.where(known != 0, known, np.where(odds >= 0, 1, -1))[settled]
    sure = [one for one, use in zip(clients, settled, strict=True) if use]
    off, other = (_off_even_draws(sure, turn * positive, n_items) for turn in (1, -1))
    return odds if off <= EVEN and other >= UNEVEN else np.zeros(len(clients))


def _weight(x: np.ndarray) -> float:
    """2 mu / v of a mixture of normal laws of means mu and -mu and variance v; 0 where mu may be 0."""
    if x.size < 2:
        return 0.0
    second, fourth = (x**2).mean(), (x**4).mean()
    error = np.std(6 * second * x**2 - x**4) / np.sqrt(x.size)
    power = (3 * second**2 - fourth - ERRORS * error) / 2
    if not power > 0:
        return 0.0
    square = np.sqrt(power)
    return float(2 * np.sqrt(square) / max(second - square, TINY))


def _more_used(plus: np.ndarray, first: csr_array, second: csr_array) -> Float[np.ndarray, " clients"]:
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
        sizes.append(np.maximum(np.bincount(owner, minlength=n), TINY))
        means.append(np.bincount(owner, value, minlength=n) / sizes[-1])
    one_label = np.minimum(*sizes) < 1
    return np.where(one_label, np.nan, (means[0] - means[1]) / np.sqrt(1 / sizes[0] + 1 / sizes[1]))


def _off_even_draws(clients: Sequence[Sides], positive: Int[np.ndarray, " clients"], n_items: int) -> float:
    """How far items that are not ``positive`` are from even draws, in standard deviations of chi squared."""
    drawn, expected, variance = np.zeros((3, n_items))
    for one, sign in zip(clients, positive, strict=True):
        used = one.item[one.sign == sign]
        share = np.full(n_items, (one.item.size - used.size) / max(n_items - used.size, 1))
        share[used] = 0
        drawn[one.item[one.sign != sign]] += 1
        expected, variance = expected + share, variance + share * (1 - share)
    able = variance > 0
    if not able.any():
        return 0.0
    square = ((drawn - expected)[able] ** 2 / variance[able]).sum()
    return float((square - able.sum()) / np.sqrt(2 * able.sum()))
