"""Noise in the objective: raters of an item share Laplace noise that none of them knows (paper 002, Theorem
3).

The recommender draws h_j ~ Exp(1)^K and hands it to the raters of item j; rater i adds
x_j^i = 2 Delta sqrt(2 K h_j) o c / t with c ~ N(0, 1 / |R_j|) to its upload, Delta = max R - min R. As
sqrt(2 h) c of a standard normal c is a Laplace variable (Kotz, Kozubowski, Podgorski 2001), the sum over the
raters has independent coordinates of Laplace's law with scale 2 Delta sqrt(K) / t. h stands inside the root.

The paper leaves open when noise is drawn, and that decides everything:

- ``once``: one draw for the whole training, as the proof of Theorem 2 has it;
- ``fresh``: a new draw at the same t in every epoch, which the published accuracy needs;
- ``composed``: a new draw in every epoch at t / epochs.

t is the largest budget where ratings are stretched, the mean budget where they are sampled, the smallest
where all are treated alike. ``mean`` and ``smallest`` are over all pairs of user and item, rated or not, so
that they say nothing of who rated what. ``mean-rated`` and ``smallest-rated`` are over the training ratings,
as in section 5.1.2 (PDPMF) and in the program of the paper's authors
(github.com/wentao-hu/decentrailized_mf_with_hdp, ``get_threshold``); that program also has one h per epoch
for all items (``mixing=draw``). The system ``dpmf-program`` is ``smallest-rated`` with that.

What this does not hide: which items a client rated. With ``once``, the difference of two rounds is free of
noise. The recommender knows h_j, so to it the noise is Gaussian of known scale, and one rater's share is
1 / sqrt(|R_j|) of the whole. ``defenses.accounting.shared_noise`` says what is proved against whom.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float

from defenses.accounting.budgets import Specification, Threshold, budgets, draw, threshold_share
from defenses.accounting.proofs import ONE_RATING
from defenses.accounting.ranges import LEAST, NOISES
from defenses.accounting.row_noise import NAMED
from defenses.accounting.shared_noise import CANCELS, first_round
from defenses.noise.client_noise import by_client, standard_normal
from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.common.validation import at_least, one_of, require, require_fields
from victims.data.ratings import Ratings
from victims.protocols.account import Account, Setting
from victims.protocols.base import Attacker, Defense, Rows

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
    Paper 002 (arXiv:2212.00306), Theorems 2 and 3.
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
        share = by_client(rows.sender, factors, seed, Purpose.CLIENT_NOISE_SHARE, drawn, standard_normal)
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
