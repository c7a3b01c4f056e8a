"""Stretched ratings taken apart where they are exact: s_ij = beta_i gamma_j r_ij, by ratios alone.

Beyond Hu & Fang 2023. Where the fit leaves no noise, no expectation is needed: two clients' values of one
item have the ratio of their weights times that of two levels, and there are few of these. From one client,
whose weight is called 1, an item's weight is one of as many numbers as there are levels; a client who shares
items with those before has a weight that puts all of them on the grid, and narrows down the weights of its
own items for the next one. A client joins where no more than one weight does that and where chance would not:
so many values would meet so many products by accident with a probability of ``ACCIDENT`` at most. Where two
weights remain, as of ratings that are all 1 or 2, the shares of the levels must tell them. Unlike
``attacks.trajectory.stretched_ratings`` it serves few clients and items as well as many.

Where ratings leave several weights of an item, the likelier one counts. Specifications of privacy give a
third of the items the weight 1 and the others any (Hu & Fang 2023, Table 2), so that one of two weights which
many items have to the last digits is the right one, nearly always. The share of weights that others repeat is
fitted by leaving each one out: where none repeats, coincidences tell nothing.

Each such weight names other levels of all raters of the item, who agree in part, as items differ in quality.
Ten raters of a bad item are no ten independent witnesses that its ratings are low. So a
level l of an item of quality z has probability p(l | z) ~ exp(a_l + z x_l), x_l the levels from -1 to 1 and z
normal; a and the spread of z are fitted to all items by expectation-maximisation, those with several weights
counted by how likely each is. Items that are told alone would mislead: their ratings are spread more widely.

References
----------
W. Hu, H. Fang, arXiv:2212.00306, section 4, for the product of weights, and Table 2. B. W. Silverman
1986, Density Estimation for Statistics and Data Analysis, Eq. (3.31).
R. D. Bock 1972, doi:10.1007/BF02291411, for the model of levels. A. P. Dempster, N. M. Laird, D. B. Rubin
1977, doi:10.1111/j.2517-6161.1977.tb01600.x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from attacks.closed_form.fit.bars import BARS
from attacks.metadata.rating_prior import PSEUDO_COUNTS, log_shares
from attacks.trajectory.stretched_ratings import Separated

NEAR = 1e-3  # relative difference of two numbers that are called the same
SEEDS = 5  # clients from whom the rest is tried to be told
SPAN = 1.6  # nats over which weights lie by accident
SAME = 1e-4  # difference of log weights that are called one
LOG_SPAN = 4.0  # nats around the middle of the weights over which one weight more is spread
STEPS = 50
GRID, AT_ONCE = 512, 4096  # places at which the spread part is computed, from so many weights at a time
REACH = 6.0  # bandwidths beyond the weights
PASSES, STILL = 2000, 1e-6  # at most; nats by which levels of a fit that has come to rest still move
NODES = np.linspace(-4, 4, 33)  # standard deviations of z
SPREADS = np.array([0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])  # standard deviations of z that are tried


def candidate_shares(
    counts: Sequence[Float[np.ndarray, "_ levels"]],
    log_weight: Sequence[Float[np.ndarray, " _"]],
    levels: Float[np.ndarray, " levels"],
    known: Float[np.ndarray, " levels"],
) -> list[Float[np.ndarray, " _"]]:
    """Weigh the candidates of each item by how its raters' levels go together under them.

    Examples
    --------
    >>> told = [np.array([[6.0, 2, 0]]), np.array([[0.0, 2, 6]])] * 10
    >>> weights = [np.zeros(1)] * 20 + [np.zeros(2)]
    >>> open_ = np.array([[6.0, 0, 0], [0, 6.0, 0]])
    >>> candidate_shares([*told, open_], weights, np.arange(1.0, 4), np.ones(3))[-1].round(2)
    array([0.97, 0.03])
    """
    if not counts:
        return []
    table, offset = np.concatenate(counts), np.concatenate(log_weight)
    starts = np.cumsum([0, *(len(own) for own in counts[:-1])])
    item = np.repeat(np.arange(len(counts)), [len(own) for own in counts])
    x = 2 * (levels - levels[0]) / max(levels[-1] - levels[0], 1e-12) - 1
    best, answer = -np.inf, 1 / np.repeat([len(own) for own in counts], [len(own) for own in counts])
    for spread in SPREADS:
        share, likelihood = _fitted(table, offset, starts, item, x * spread, known)
        if likelihood > best:
            best, answer = likelihood, share
    return np.split(answer, starts[1:])


def _fitted(
    table: np.ndarray,
    offset: np.ndarray,
    starts: np.ndarray,
    item: np.ndarray,
    x: np.ndarray,
    known: np.ndarray,
) -> tuple[np.ndarray, float]:
    """Probabilities of the candidates under one spread of z, and the log likelihood of all items.

    The likelihood is -inf where the frequencies of the levels do not come to rest.
    """
    prior = -0.5 * NODES**2 - np.log(np.exp(-0.5 * NODES**2).sum())
    log_share = np.log(known / known.sum())
    size = table.sum(axis=1)
    for _ in range(PASSES):
        tilted = log_share + NODES[:, None] * x
        tilted -= np.logaddexp.reduce(tilted, axis=1)[:, None]
        joint = table @ tilted.T + prior + offset[:, None]
        own = np.logaddexp.reduce(joint, axis=1)
        whole = np.logaddexp.reduceat(own, starts) if starts.size else own
        candidate = np.exp(own - whole[item])
        weight = np.exp(joint - whole[item][:, None])  # of a candidate and a quality
        seen = candidate @ table + known
        expected = (weight * size[:, None]).sum(axis=0) @ np.exp(tilted) + known.sum() * np.exp(log_share)
        before, log_share = log_share, log_share + np.log(seen / expected)
        log_share -= np.logaddexp.reduce(log_share)
        if np.abs(log_share - before).max() < STILL:
            return candidate, float(whole.sum() + known @ log_share)
    return candidate, -np.inf


@dataclass(frozen=True)
class WeightLaw:
    """The density of log weights: ``repeated`` of them as the others to the last digits."""

    told: Float[np.ndarray, " told"]  # log weights that are known, ascending
    repeated: float  # share in 0..1
    # where the density of the rest is known, and that density times ``n_told``
    places: Float[np.ndarray, " grid"]
    # where the density of the rest is known, and that density times ``n_told``
    spread: Float[np.ndarray, " grid"]

    def log_density(self, weights: Float[np.ndarray, " weights"]) -> Float[np.ndarray, " weights"]:
        """Log density of further log weights, in nats."""
        alike = _alike(self.told, weights) / (2 * SAME)
        around = np.interp(weights, self.places, self.spread, left=0.0, right=0.0)
        mixed = self.repeated * alike + (1 - self.repeated) * around
        return np.log((mixed + 1 / LOG_SPAN) / (self.told.size + 1))


def weight_law(told: Float[np.ndarray, " told"]) -> WeightLaw:
    """Fit the law of log weights.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> law = weight_law(np.append(rng.uniform(-2, 0, 60), np.zeros(30)))
    >>> 0.2 < law.repeated < 0.5, bool(np.diff(law.log_density(np.array([-1.0, 0.0])))[0] > 3)
    (True, True)
    """
    told = np.sort(told)
    if told.size < 2:
        return WeightLaw(told, 0.0, np.zeros(1), np.zeros(1))
    quarter = np.subtract(*np.percentile(told, [75, 25])) / 1.34
    width = max(0.9 * min(float(told.std()), float(quarter) or np.inf) * told.size**-0.2, SAME)
    places = np.linspace(told[0] - REACH * width, told[-1] + REACH * width, GRID)
    spread = np.zeros(GRID)
    for some in np.array_split(told, -(-told.size // AT_ONCE)):
        spread += np.exp(-0.5 * ((places[:, None] - some) / width) ** 2).sum(axis=1)
    spread /= width * np.sqrt(2 * np.pi)
    alike = (_alike(told, told) - 1) / (2 * SAME)
    around = np.interp(told, places, spread) - 1 / (width * np.sqrt(2 * np.pi))
    share = 0.5
    for _ in range(STEPS):
        mixed = share * alike + (1 - share) * np.maximum(around, 0) + 1 / LOG_SPAN
        share = float(np.mean(share * alike / mixed))
    return WeightLaw(told, share, places, spread)


def _alike(told: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """How many of the told ones each weight repeats."""
    return np.searchsorted(told, weights + SAME) - np.searchsorted(told, weights - SAME)


@dataclass
class _Known:
    """Weights told so far: log beta of clients, and the log gammas that an item may have."""

    logs: Float[np.ndarray, " levels"]
    beta: dict[int, float] = field(default_factory=dict)
    gamma: dict[int, Float[np.ndarray, " weights"]] = field(default_factory=dict)

    def take(self, user: int, beta: float, items: np.ndarray, values: np.ndarray) -> None:
        """Add a client, and keep the weights of its items that put it on the grid."""
        self.beta[user] = beta
        for item, value in zip(items.tolist(), values - beta, strict=True):
            left = value - self.logs
            if item in self.gamma:
                before = self.gamma[item]
                left = before[np.abs(before[:, None] - left).min(axis=1) < NEAR]
            self.gamma[item] = left


def taken_apart(
    user: Int[np.ndarray, " entries"],
    item: Int[np.ndarray, " entries"],
    value: Float[np.ndarray, " entries"],
    deviation: Float[np.ndarray, " entries"],
    levels: Float[np.ndarray, " levels"],
) -> Separated:
    """Separate exact ratings from the weights by which they were stretched."""
    del deviation
    order = np.argsort(user, kind="stable")
    ends = np.searchsorted(user[order], np.arange(user.max() + 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(value)
    of_user = {
        who: (item[rows], logs[rows])
        for who in range(user.max() + 1)
        if (rows := order[ends[who] : ends[who + 1]]).size and np.isfinite(logs[rows]).all()
    }
    parts: list[_Known] = []
    while of_user:
        part = _component(of_user, np.log(levels))
        if len(part.beta) < 2:
            break
        parts.append(part)
        taken = set(part.gamma)
        of_user = {
            who: own for who, own in of_user.items() if who not in part.beta and taken.isdisjoint(own[0])
        }
    return _answers(user, item, logs, levels, parts)


def _component(of_user: dict[int, tuple[np.ndarray, np.ndarray]], logs: np.ndarray) -> _Known:
    """The largest set of clients that are told from one of a few of them."""
    best = _Known(logs)
    by_size = sorted(of_user, key=lambda who: (-of_user[who][0].size, who))
    for seed in by_size[:SEEDS]:
        known = _Known(logs)
        known.take(seed, 0.0, *of_user[seed])
        waiting = [who for who in by_size if who != seed]
        for sure in (True, False):  # at last where the levels' shares have to tell
            joined = True
            while joined and waiting:
                joined, later = False, []
                waiting.sort(key=lambda who: -sum(one in known.gamma for one in of_user[who][0].tolist()))
                for who in waiting:
                    beta = _weight(known, *of_user[who], sure)
                    if beta is None:
                        later.append(who)
                        continue
                    known.take(who, beta, *of_user[who])
                    joined = True
                waiting = later
        if len(known.beta) > len(best.beta):
            best = known
        if 2 * len(best.beta) > len(of_user):
            break
    return best


def _weight(known: _Known, items: np.ndarray, values: np.ndarray, sure: bool) -> float | None:
    """The one weight that puts a client's values on the grid; None where there is none, or more than one."""
    shared = [n for n, one in enumerate(items.tolist()) if known.gamma.get(one, np.zeros(0)).size]
    if len(shared) < 2:
        return None
    products = [(known.gamma[int(items[n])][:, None] + known.logs).ravel() for n in shared]
    table = np.full((len(shared), max(part.size for part in products)), np.inf)
    for row, part in zip(table, products, strict=True):
        row[: part.size] = part
    own = values[shared]
    first = min(range(len(shared)), key=lambda n: products[n].size)
    tried = np.unique((own[first] - products[first]).round(9))
    # so many weights tried, each to meet one of an item's products
    chance = np.log(tried.size) + sum(
        np.log(min(1.0, part.size * 2 * NEAR / SPAN)) for n, part in enumerate(products) if n != first
    )
    if chance > np.log(BARS.accident):
        return None
    away = np.abs(own[None, :, None] - tried[:, None, None] - table).min(axis=2)
    fits = tried[(away < NEAR).all(axis=1)]
    if fits.size and np.ptp(fits) < NEAR:
        return float(fits.mean())
    return None if sure or not fits.size else _likelier(known, items[shared], own, fits)


def _likelier(known: _Known, items: np.ndarray, values: np.ndarray, fits: np.ndarray) -> float | None:
    """The weight whose levels are far more usual than those of the others, by items of one weight."""
    told = np.array([known.gamma[int(one)].size == 1 for one in items])
    if not told.any():
        return None
    level = values[told] - np.array([known.gamma[int(one)][0] for one in items[told]]) - fits[:, None]
    nearest = np.abs(level[..., None] - known.logs).argmin(axis=2)
    score = _usual(np.exp(known.logs))[nearest].sum(axis=1)
    best, *others = np.argsort(-score)
    apart = fits[others][np.abs(fits[others] - fits[best]) > NEAR]
    second = score[others][np.abs(fits[others] - fits[best]) > NEAR].max() if apart.size else -np.inf
    return float(fits[best]) if score[best] - second > -np.log(BARS.accident) else None


def _usual(levels: np.ndarray) -> np.ndarray:
    """Log frequencies of the levels, half of them spread evenly: one set is not as the others are."""
    return np.log(0.5 * np.exp(log_shares(levels)) + 0.5 / levels.size)


def _answers(
    user: np.ndarray, item: np.ndarray, logs: np.ndarray, levels: np.ndarray, parts: list[_Known]
) -> Separated:
    """Levels under the weights that are left; where several are, by how usual these and their levels are."""
    beta, gamma = np.full(user.max() + 1, np.nan), np.full(item.max() + 1, np.nan)
    posterior = np.full((user.size, levels.size), 1 / levels.size)
    by_item = np.argsort(item, kind="stable")
    ends = np.searchsorted(item[by_item], np.arange(item.max() + 2))
    for part in parts:
        for who, weight in part.beta.items():
            beta[who] = weight
        found: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # rows of each item, their levels by its weights
        for one, weights in part.gamma.items():
            rows = by_item[ends[one] : ends[one + 1]]
            rows = rows[[int(who) in part.beta for who in user[rows]]]
            if weights.size and rows.size:
                left = logs[rows] - beta[user[rows]] - weights[:, None]
                found[one] = rows, np.abs(left[..., None] - np.log(levels)).argmin(axis=2)
        alone = [one for one in found if np.ptp(part.gamma[one]) < NEAR]
        law = weight_law(np.array([part.gamma[one][0] for one in alone]))
        counts = [
            np.stack([np.bincount(own, minlength=levels.size) for own in level]).astype(float)
            for _, level in found.values()
        ]
        shares = candidate_shares(
            counts,
            [law.log_density(part.gamma[one]) for one in found],
            levels,
            PSEUDO_COUNTS * np.exp(_usual(levels)),
        )
        for (one, (rows, level)), share in zip(found.items(), shares, strict=True):
            gamma[one] = part.gamma[one][share.argmax()]
            posterior[rows] = 0
            for own, likely in zip(level, share, strict=True):
                posterior[rows, own] += likely
    top = np.nanpercentile(gamma, 99) if np.isfinite(gamma).any() else 0.0
    counted = posterior[np.isfinite(beta[user])].sum(axis=0) + PSEUDO_COUNTS * np.exp(_usual(levels))
    return Separated(posterior, np.exp(beta + top), np.exp(gamma - top), counted / counted.sum())
