"""What the clients of a recording share: one program at one rate, the noise it leaves, how people rate.

Of one step, A B = 1 / rate for every client, whatever its factor; of several it is nearly one number. So it
is one number with a spread, as is the size of the noise; both are those of most evidence over all clients.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import log_softmax

from attacks.linear_forms.forms import Forms
from attacks.linear_forms.integral import Points
from attacks.linear_forms.posterior import Prior, Program

ERROR, PREDICTION = (2.0, 0.8), (0.3, 1.5)  # stars, and the deviation of its logarithm
MEAN_RATING = (0.5, 0.6)  # above the middle of the levels, and its deviation, in stars
USUAL = 1.2  # deviation of ratings in stars, to begin with where C is open
MOVED, RAGGED = (0.0, 1.0), (np.log(1.8), 0.5)  # Q; log f
PRODUCT_SPREADS = (0.25, 0.5, 1.0, 2.0)
NOISE_SPREADS = (0.25, 0.4, 0.8)
NOISES = np.log(np.geomspace(0.01, 1.2, 24))  # of a level
MEAN_SPREADS, ADDED_SPREADS = (0.2, 0.35, 0.5, 0.7), (0.01, 0.03, 0.1, 0.2, 0.35, 0.6)
STRAY = 0.1  # clients whose C is not found
FEWEST = 1e-3  # weight of a point that counts in where to look


class Shared(NamedTuple):
    """Laws of what clients share: means and deviations."""

    product: tuple[float, float]  # of log A + log B in units of the rows
    noise: tuple[float, float]  # of the log of the noise in levels
    mean: tuple[float, float]  # of clients' mean ratings; and of C, or C less the mean rating
    added: tuple[float, float]
    levels: Float[np.ndarray, " levels"]  # log of how often each is given

    def prior(self, forms: Forms, gap: float, *, offset: bool) -> Prior:
        """The prior of some clients' unknowns."""
        n_more = forms.coordinates.shape[2] - 1
        rest = [
            *[MOVED] * n_more,
            *[self.mean] * offset,
            RAGGED,
            (self.noise[0] + np.log(gap), self.noise[1]),
        ]
        laws = np.array([(np.log(ERROR[0]), ERROR[1]), (np.log(PREDICTION[0]), PREDICTION[1]), *rest])
        one = np.ones((len(forms.log_size), 1))
        product = np.stack([self.product[0] + forms.log_size, 0 * forms.log_size + self.product[1]], axis=1)
        return Prior(one * laws[:, 0], one * laws[:, 1], product, one * np.array(self.added))

    def loose(self, levels: Float[np.ndarray, " levels"]) -> Shared:
        """The same, but that of how high a client rates nothing is taken but what is usual anywhere.

        Where C is each client's own, several laws explain all of them about equally well, and put clients
        at different heights, or all of them upside down.
        """
        anywhere = unknown(levels, offset=True).mean
        even = np.full(self.levels.size, -np.log(self.levels.size))
        return self._replace(
            mean=anywhere, added=(self.added[0], max(self.added[1], anywhere[1])), levels=even
        )

    def usual(self, levels: Float[np.ndarray, " levels"]) -> tuple[float, float]:
        """Mean and variance of ratings."""
        chance = np.exp(self.levels)
        mean = float(chance @ levels)
        return mean, float(chance @ (levels - mean) ** 2)


def unknown(levels: Float[np.ndarray, " levels"], *, offset: bool) -> Shared:
    """Before anything is learned."""
    mean = float(levels[0] + levels[-1]) / 2 + MEAN_RATING[0]
    usual = log_softmax(-(((levels - mean) / USUAL) ** 2) / 2 * offset)
    return Shared((0.0, 1e3), (np.log(0.2), 1.0), (mean, MEAN_RATING[1]), (mean, 1e3), usual)


def learned(
    shared: Shared,
    points: Points,
    forms: Forms,
    program: Program,
    levels: Float[np.ndarray, " levels"],
    counts: Float[np.ndarray, " levels"],
) -> Shared:
    """The laws of most evidence, from points that were weighted under the present ones."""
    log_weight = points.log_weights()
    share = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    numbers = {
        "product": (points.x[..., 0] + points.x[..., 1] - forms.log_size[:, None], PRODUCT_SPREADS),
        "noise": (points.x[..., -1] - np.log(np.diff(levels).min()), NOISE_SPREADS),
    }
    if program.offset:
        mean = points.x[..., -3]
        numbers["mean"] = mean, MEAN_SPREADS
        numbers["added"] = points.added - program.own * mean, ADDED_SPREADS
    laws: dict[str, tuple[float, float]] = {name: getattr(shared, name) for name in numbers}
    bare = log_weight - sum(_log_normal(x, *laws[name]) for name, (x, _) in numbers.items())
    for _ in range(2):
        for name, (x, spreads) in numbers.items():
            first, last = (float(end) for end in np.quantile(x[share > FEWEST], [0.02, 0.98]))
            tried = [
                (
                    NOISES
                    if name == "noise"
                    else np.linspace(first, last, int(min(200, (last - first) / s * 3 + 2))),
                    s,
                )
                for s in spreads
            ]
            others = (_log_normal(x, *laws[one]) for one, (x, _) in numbers.items() if one != name)
            laws[name] = _best(bare + sum(others), x, tried, STRAY * (name == "added"))
    new = shared._replace(**laws, levels=np.log((counts + 1) / (counts + 1).sum()))
    ends = float(levels[0] + levels[-1])
    if not program.offset or new.mean[0] >= ends / 2 or forms.given.any():
        return new
    # all upside down explains rows as well where nothing is given, and people rate more high than low
    return new._replace(
        mean=(ends - new.mean[0], new.mean[1]),
        added=(ends * (1 - float(program.own)) - new.added[0], new.added[1]),
        levels=new.levels[::-1],
    )


def _log_normal(x: np.ndarray, mean: float, deviation: float) -> np.ndarray:
    return -(((x - mean) / deviation) ** 2) / 2 - np.log(deviation)


def _best(
    log_weight: np.ndarray, x: np.ndarray, laws: list[tuple[np.ndarray, float]], stray: float = 0.0
) -> tuple[float, float]:
    """Mean and deviation of a normal law of x under which all clients together have most evidence.

    A share of them may be elsewhere: what was found of these is not what they did.
    """
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    best = (-np.inf, 0.0, 1.0)
    for means, deviation in laws:
        for mean in means:
            law = np.exp(-(((x - mean) / deviation) ** 2) / 2) / deviation
            if stray:
                law = (1 - stray) * law + stray * np.exp(-((x - mean) ** 2) / 2)
            evidence = np.log((weight * law).sum(axis=1) + 1e-30).sum()
            best = max(best, (float(evidence), float(mean), deviation))
    return best[1:]
