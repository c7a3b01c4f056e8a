"""Heterogeneous differential privacy: budgets of ratings, stretching, sampling, and noise that raters share.

Hu & Fang 2023 (arXiv:2212.00306), section 4, and what it compares with.

Budgets are drawn, or a file of weights says them: a table kind, id, weight, with a line for each user and
each item, read once while it stays as it is. W_ij = beta_i gamma_j stays a product (section 5.1.3).

``stretching``: clients train on W o R and divide predictions by W. Alaggan, Gambs, Kermarrec 2016
(doi:10.29012/jpc.v7i2.652) shrink each input by its privacy weight, so that noise for the largest budget
epsilon protects rating ij at epsilon W_ij. HDPMF rescales predictions by 1 / W_ij on the user's side and
clips them to the rating range; without rescaling it is HDPMF-R.

``personalized-sampling`` (PDPMF): Jorgensen, Yu, Cormode 2015 (doi:10.1109/ICDE.2015.7113353) and Eq. (5):
with noise for budget t, a rating of budget epsilon_ij < t takes part with probability (e^epsilon_ij - 1) /
(e^t - 1), else always; t is the mean budget of the training ratings. One draw serves the whole training.

``objective-noise``, Theorem 3: raters of an item share Laplace noise that none of them knows. The recommender
draws h_j ~ Exp(1)^K and hands it to the raters of item j; rater i adds x_j^i = 2 Delta sqrt(2 K h_j) o c / t
with c ~ N(0, 1 / |R_j|) to its upload, Delta = max R - min R. As sqrt(2 h) c of a standard normal c is a
Laplace variable (Kotz, Kozubowski, Podgorski 2001), the sum over the raters has independent coordinates of
Laplace's law with scale 2 Delta sqrt(K) / t. h stands inside the root. The paper leaves open when noise is
drawn, and that decides everything:

- ``once``: one draw for the whole training, as the proof of Theorem 2 has it;
- ``fresh``: a new draw at the same t in every epoch, which the published accuracy needs;
- ``composed``: a new draw in every epoch at t / epochs.

t is the largest budget where ratings are stretched, the mean budget where they are sampled, the smallest
where all are treated alike. ``mean`` and ``smallest`` are over all pairs of user and item, rated or not, so
that they say nothing of who rated what. ``mean-rated`` and ``smallest-rated`` are over the training ratings,
as in section 5.1.2 (PDPMF) and in the program of the paper's authors
(github.com/wentao-hu/decentrailized_mf_with_hdp, ``get_threshold``); that program also has one h per epoch
for all items (``mixing=draw``). The system ``dpmf-program`` is ``smallest-rated`` with that.

What this does not hide: which items a client rated, or which of its rated items it uploads.

Stretching alone adds no noise: whoever learns W o R (attack ``trajectory``) learns a product beta_i gamma_j
r_ij, whose factors repeat across the client's and the item's other ratings, so that integers r_ij show.

Sampling amplifies privacy only where nobody sees who was sampled, and here every upload names its sender and
item: the sampled ratings are protected by the noise at t alone, which may be several times their budget, and
the others are left out of the recommender for good.

With ``once``, the difference of two rounds is free of noise. The recommender knows h_j, so to it the noise is
Gaussian of known scale, and one rater's share is 1 / sqrt(|R_j|) of the whole. ``defenses.shared_noise`` says
what is proved against whom.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float

from defenses.accounts import NAMED, ONE_RATING
from defenses.ranges import LEAST, NOISES, usable
from defenses.row_noise import client_noise
from defenses.shared_noise import CANCELS, first_round
from victims.common.errors import InputError
from victims.common.files import existing_file
from victims.common.seeds import Purpose, generator
from victims.common.validation import at_least, between, one_of, positive_share, require, require_fields
from victims.data.ratings import Ratings
from victims.data.subsets import without
from victims.data.tables import read_table
from victims.protocols.account import Account, Setting
from victims.protocols.base import Attacker, Defense, Rows

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
        A file of weights in place of drawn ones (``defenses.heterogeneous``); shares and bounds
        are then not used.

    References
    ----------
    Hu & Fang 2023 (arXiv:2212.00306), Table 2.
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


@dataclass(frozen=True)
class Stretching(Specification, Defense):
    """Privacy weights of ``defenses.heterogeneous``.

    Attributes
    ----------
    rescale : bool
        Divide predictions by W; False is HDPMF-R.

    References
    ----------
    Hu & Fang 2023 (arXiv:2212.00306), section 4; M. Alaggan, S. Gambs, A.-M. Kermarrec 2016,
    doi:10.29012/jpc.v7i2.652.
    """

    rescale: bool = True
    name: str = "stretching"
    attackers = (Attacker("trajectory", 12),)  # W o R fitted and taken apart

    def on_device(self, ratings: Ratings, seed: int) -> Ratings:
        """W o R; the levels stay those of the ratings as they were given."""
        return replace(ratings, values=ratings.values * draw(self, ratings, seed).of(ratings))

    def predicted(
        self, values: Float[np.ndarray, " entries"], at: Ratings, seed: int
    ) -> Float[np.ndarray, " entries"]:
        """u . v / W."""
        return values / draw(self, at, seed).of(at) if self.rescale else values

    def public(self) -> dict[str, Any]:
        """The largest budget; weights stay with the users."""
        return {"name": self.name, "epsilon": self.epsilon}


def probabilities(budget: Float[np.ndarray, " ratings"], threshold: float) -> Float[np.ndarray, " ratings"]:
    """pi of Eq. (5), in (0, 1].

    Examples
    --------
    >>> probabilities(np.array([0.5, 1.0, 2.0]), 1.0).round(3).tolist()
    [0.378, 1.0, 1.0]
    """
    return np.where(budget < threshold, np.expm1(budget) / np.expm1(threshold), 1.0)


@dataclass(frozen=True)
class PersonalizedSampling(Specification, Defense):
    """Budgets of ``defenses.heterogeneous``.

    Attributes
    ----------
    budget : "mean-rated" or "mean"
        Whether t is the mean over the training ratings, as in section 5.1.2 and the program of the paper's
        authors, which depends on who rated what; or over all pairs of user and item, which does not. Noise
        is made for it by ``objective-noise`` with the same ``budget``.

    References
    ----------
    Z. Jorgensen, T. Yu, G. Cormode 2015, doi:10.1109/ICDE.2015.7113353; Hu & Fang 2023 (arXiv:2212.00306),
    Eq. (5).
    """

    budget: Literal["mean-rated", "mean"] = "mean-rated"
    name: str = "personalized-sampling"
    attackers = (Attacker("trajectory", 2), Attacker("rated-set"))  # What is left is uploaded as before

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fields(self, "personalized-sampling", budget=one_of("mean-rated", "mean"))

    def on_device(self, ratings: Ratings, seed: int) -> Ratings:
        """The ratings that take part."""
        weights = draw(self, ratings, seed)
        threshold = self.epsilon * threshold_share(self.budget, weights, ratings)
        taking_part = probabilities(self.epsilon * weights.of(ratings), threshold)
        drawn = generator(seed, Purpose.PERSONALIZED_SAMPLE).random(ratings.n_ratings)
        return replace(without(ratings, drawn >= taking_part), sampled_from=ratings)

    def public(self) -> dict[str, Any]:
        """The largest budget; weights stay with the users."""
        return {"name": self.name, "epsilon": self.epsilon}


ONE_VALUE = (
    "neighbours: recordings that differ in the value of one rating; view: round 0, the only one that ran; "
    "not claimed: anything of a client's ratings together, of which items it rated, or of later rounds"
)


@dataclass(frozen=True)
class ObjectiveNoise(Specification, Defense):
    """Noise of the raters.

    Attributes
    ----------
    noise : "once", "fresh" or "composed"
    budget : "largest", "mean", "mean-rated", "smallest" or "smallest-rated"
        Which budget of the specification t is; those of training ratings depend on who rated what, which no
        account counts.
    epochs : int
        Epochs that share the budget where ``composed``, >= 1.
    mixing : "item" or "draw"
        Whether each item has an h of its own, as Theorem 3 has it, or all items share that of a draw. The law
        of an item's sum is the same; items are no longer independent, and h of one item is that of all.

    References
    ----------
    Hu & Fang 2023 (arXiv:2212.00306), Theorems 2 and 3.
    """

    noise: Literal["once", "fresh", "composed"] = "once"
    budget: Threshold = "largest"
    epochs: int = 100
    mixing: Literal["item", "draw"] = "item"
    name: str = "objective-noise"
    attackers = (
        Attacker("trajectory", 12),
    )  # Noise that repeats cancels in differences of rounds; fresh noise averages out over them

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fields(
            self,
            "objective-noise",
            noise=one_of(*NOISES),
            budget=one_of(*get_args(Threshold)),
            epochs=at_least(1),
            mixing=one_of("item", "draw"),
        )

    @property
    def additive(self) -> bool:
        """Noise does not depend on the rows."""
        return True

    def threshold(self, ratings: Ratings, seed: int) -> float:
        """t: the budget that the noise of one draw is made for; with ``composed`` that of one epoch."""
        whole = self.epsilon * threshold_share(self.budget, draw(self, ratings, seed), ratings)
        budget = whole / self.epochs if self.noise == "composed" else whole
        require(
            "objective-noise", "budget of one draw", budget, at_least(LEAST), "raise epsilon or the weights"
        )
        return budget

    def promised(self, ratings: Ratings, seed: int) -> Float[np.ndarray, " ratings"]:
        """epsilon_ij of every rating; the smallest of these for all of them where all are treated alike."""
        each = budgets(self, ratings, seed)
        return np.full(each.shape, each.min()) if self.budget.startswith("smallest") else each

    def laplace_scale(self, ratings: Ratings, factors: int, seed: int) -> float:
        """b of the noise in an item's sum, 2 Delta sqrt(K) / t, in stars."""
        width = ratings.levels[-1] - ratings.levels[0]
        return float(2 * width * np.sqrt(factors) / self.threshold(ratings, seed))

    def noise_scale(
        self, ratings: Ratings, factors: int, round_: int, seed: int
    ) -> Float[np.ndarray, "items factors"]:
        """Standard deviation of each rater's share, b sqrt(2 h_j / |R_j|)."""
        if ratings.levels[-1] <= ratings.levels[0]:
            raise InputError(
                "objective-noise needs ratings of at least two levels, for its noise has the size of their "
                f"range; got the one level {ratings.levels[0]:g}"
            )
        raters = np.bincount(ratings.items, minlength=ratings.n_items)
        shape = ratings.n_items if self.mixing == "item" else 1, factors
        mixed = generator(seed, Purpose.SHARED_NOISE_SCALE, self._draw(round_)).exponential(size=shape)
        per_rater = np.sqrt(2 * mixed / np.maximum(raters, 1)[:, None])
        return self.laplace_scale(ratings, factors, seed) * per_rater

    def uploaded(self, rows: Rows, ratings: Ratings, round_: int, seed: int) -> Rows:
        """Each row with its client's share."""
        scale = self.noise_scale(ratings, rows.gradient.shape[1], round_, seed)
        factors, drawn = rows.gradient.shape[1], self._draw(round_)
        share = client_noise(
            rows.sender, factors, seed, Purpose.CLIENT_NOISE_SHARE, drawn, np.random.Generator.standard_normal
        )
        return replace(rows, gradient=rows.gradient + scale[rows.index] * share)

    def account(self, ratings: Ratings, setting: Setting) -> Account:
        """View by view, for an item with as many raters as any: more of them have smaller shares."""
        raters = int(np.bincount(ratings.items, minlength=ratings.n_items).max())
        threshold = self.threshold(ratings, setting.seed)
        title = f"Privacy account of {self.name}, {setting.text}: {self.noise}, budget {threshold:.3g}"
        if self.noise == "once" and setting.n_rounds > 1 and setting.on_received:
            return Account(title, (CANCELS,), not_hidden=(NAMED,))
        why = ONE_RATING.gap(setting)
        if self.mixing == "draw":
            why = why or "items share h, which whoever sees several of them can estimate"
        if why:
            return Account(title, unproved=f"nothing is proved: {why}", not_hidden=(NAMED,))
        lines = tuple(first_round(threshold, raters))
        return Account(title, lines, claims=(f"{ONE_VALUE}; {raters:,} raters",), not_hidden=(NAMED,))

    def public(self) -> dict[str, Any]:
        """What the recommender knows beside h: when noise is drawn, and for which budget."""
        told = {"name": self.name, "noise": self.noise, "budget": self.budget, "epsilon": self.epsilon}
        return told if self.mixing == "item" else told | {"mixing": self.mixing}

    def _draw(self, round_: int) -> int:
        return 0 if self.noise == "once" else round_
