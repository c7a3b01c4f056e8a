"""Stretched ratings taken apart where they are exact: s_ij = beta_i gamma_j r_ij, by ratios alone.

Beyond Hu & Fang 2023. Where the fit leaves no noise, no expectation is needed: two clients' values of one
item have the ratio of their weights times that of two levels, and there are few of these. From one client,
whose weight is called 1, an item's weight is one of as many numbers as there are levels; a client who shares
items with those before has a weight that puts all of them on the grid, and narrows down the weights of its
own items for the next one. A client joins where no more than one weight does that and where chance would not:
so many values would meet so many products by accident with a probability of ``ACCIDENT`` at most. Where two
weights remain, as of ratings that are all 1 or 2, the shares of the levels must tell them. Unlike
``attacks.trajectory.stretched_ratings`` it serves few clients and items as well as many.

References
----------
W. Hu, H. Fang, arXiv:2212.00306, section 4, for the product of weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from attacks.closed_form.fit.bars import BARS
from attacks.metadata.rating_prior import PSEUDO_COUNTS, log_shares
from attacks.trajectory.item_quality import candidate_shares
from attacks.trajectory.stretched_ratings import Separated
from attacks.trajectory.weight_law import weight_law

NEAR = 1e-3  # relative difference of two numbers that are called the same
SEEDS = 5  # clients from whom the rest is tried to be told
SPAN = 1.6  # nats over which weights lie by accident


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
