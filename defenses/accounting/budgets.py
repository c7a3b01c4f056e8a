"""Privacy budgets of ratings (Hu & Fang 2023): drawn, or weights from a file, and thresholds of sampling.

A file of weights is a table kind, id, weight, with a line for each user and each item. W_ij = beta_i gamma_j
stays a product (section 5.1.3). The file is read once while it stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float

from defenses.accounting.ranges import usable
from victims.common.errors import InputError
from victims.common.given_files import existing_file
from victims.common.seeds import Purpose, generator
from victims.common.validation import between, positive_share, require_fields
from victims.data.ratings import Ratings
from victims.data.tables import read_table

KINDS = ("user", "item")
Tables = dict[str, dict[str, float]]


def given_weights(
    path: str, ratings: Ratings
) -> tuple[Float[np.ndarray, " users"], Float[np.ndarray, " items"]]:
    """The weights of all users and items of some ratings."""
    stat = existing_file(Path(path)).stat()
    tables = _read(path, stat.st_mtime_ns, stat.st_size)
    users, items = (
        _of(path, tables[kind], kind, ids)
        for kind, ids in zip(KINDS, (ratings.user_ids, ratings.item_ids), strict=True)
    )
    return users, items


@lru_cache(maxsize=4)
def _read(path: str, changed: int, size: int) -> Tables:
    """The table; what follows the path tells one state of the file from another."""
    table = read_table(Path(path))
    table.require("kind", "id", "weight")
    found: Tables = {kind: {} for kind in KINDS}
    for row, (kind, name, text) in enumerate(
        zip(table.text("kind"), table.text("id"), table.text("weight"), strict=True)
    ):
        where = f"{path} {table.locate(row)}"
        if kind not in found:
            raise InputError(f"{where}: kind must be user or item, got {kind[:40]!r}")
        if name in found[kind]:
            raise InputError(f"{where}: {kind} {name[:40]!r} must be named once")
        try:
            weight = float(text)
        except ValueError:
            weight = float("nan")
        if not 0 < weight <= 1:
            raise InputError(f"{where}: weight must be in (0, 1], got {text[:40]!r}")
        found[kind][name] = weight
    return found


def _of(path: str, weights: dict[str, float], kind: str, ids: np.ndarray) -> Float[np.ndarray, " some"]:
    names = [str(name) for name in ids.tolist()]
    missing = [name for name in names if name not in weights]
    if missing:
        raise InputError(
            f"{path} must have a weight for every {kind} of the ratings; {len(missing):,} of {len(names):,} "
            f"have none, {missing[0][:40]!r} among them"
        )
    return np.array([weights[name] for name in names])


@dataclass(frozen=True)
class Specification:
    """Table 2; the shares of the liberal are what is left.

    Attributes
    ----------
    epsilon : float
        Largest budget, 1e-9 to 1e9.
    user_conservative, user_moderate, item_conservative, item_moderate : float
        Shares f_uc, f_um, f_ic, f_im in 0..1, adding up to at most 1 for users and for items.
    user_low, user_middle, item_low, item_middle : float
        Weights eps_uc < eps_um, eps_ic < eps_im in (0, 1].
    weights : str
        A file of weights in place of drawn ones (``defenses.accounting.budgets``); shares and bounds
        are then not used.

    References
    ----------
    Paper 002 (arXiv:2212.00306), Table 2.
    """

    epsilon: float = 1.0
    user_conservative: float = 0.54
    user_moderate: float = 0.37
    item_conservative: float = 1 / 3
    item_moderate: float = 1 / 3
    user_low: float = 0.1
    user_middle: float = 0.5
    item_low: float = 0.1
    item_middle: float = 0.5
    weights: str = ""

    def __post_init__(self) -> None:
        thing = "a privacy specification"
        require_fields(self, thing, epsilon=usable())
        for who in ("user", "item"):
            share, weight = between(0, 1), positive_share()
            require_fields(self, thing, **{f"{who}_conservative": share, f"{who}_moderate": share})
            shares = [getattr(self, f"{who}_{group}") for group in ("conservative", "moderate")]
            if sum(shares) > 1 + 1e-12:
                raise InputError(
                    f"{who}_conservative and {who}_moderate must add up to at most 1, for the liberal are "
                    f"the rest; got {shares[0]!r} + {shares[1]!r} = {sum(shares):g}"
                )
            require_fields(self, thing, **{f"{who}_low": weight, f"{who}_middle": weight})
            low, middle = getattr(self, f"{who}_low"), getattr(self, f"{who}_middle")
            if low > middle:
                raise InputError(f"{who}_low must be at most {who}_middle = {middle!r}, got {low!r}")


@dataclass(frozen=True)
class Weights:
    """Privacy weights of one draw, all in (0, 1]."""

    user: Float[np.ndarray, " users"]  # beta
    item: Float[np.ndarray, " items"]  # gamma

    def of(self, ratings: Ratings) -> Float[np.ndarray, " ratings"]:
        """W_ij of every rating."""
        return self.user[ratings.users] * self.item[ratings.items]


def draw(specification: Specification, ratings: Ratings, seed: int) -> Weights:
    """Weights of all users and items: those of the file, or drawn; group sizes are the shares, rounded."""
    s = specification
    if s.weights:
        return Weights(*given_weights(s.weights, ratings))
    user, item = (generator(seed, purpose) for purpose in (Purpose.USER_WEIGHTS, Purpose.ITEM_WEIGHTS))
    return Weights(
        _groups(user, ratings.n_users, (s.user_conservative, s.user_moderate), (s.user_low, s.user_middle)),
        _groups(item, ratings.n_items, (s.item_conservative, s.item_moderate), (s.item_low, s.item_middle)),
    )


def budgets(specification: Specification, ratings: Ratings, seed: int) -> Float[np.ndarray, " ratings"]:
    """epsilon_ij of every rating."""
    return specification.epsilon * draw(specification, ratings, seed).of(ratings)


def _groups(
    rng: np.random.Generator, size: int, shares: tuple[float, float], bounds: tuple[float, float]
) -> Float[np.ndarray, " members"]:
    weights = np.ones(size)
    order = rng.permutation(size)
    first, second = round(shares[0] * size), min(round(sum(shares) * size), size)
    weights[order[:first]] = rng.uniform(bounds[0], bounds[1], first)
    weights[order[first:second]] = rng.uniform(bounds[1], 1.0, second - first)
    return weights


Threshold = Literal["largest", "mean", "mean-rated", "smallest", "smallest-rated"]


def threshold_share(budget: Threshold, weights: Weights, ratings: Ratings) -> float:
    """t / epsilon; those that end in ``-rated`` are over training ratings, which hang on who rated what."""
    training = ratings if ratings.sampled_from is None else ratings.sampled_from
    match budget:
        case "largest":
            return 1.0
        case "mean":
            return float(weights.user.mean() * weights.item.mean())
        case "mean-rated":
            return float(weights.of(training).mean())
        case "smallest":
            return float(weights.user.min() * weights.item.min())
        case "smallest-rated":
            return float(weights.of(training).min())
