"""Protocol constants that a manifest keeps silent about, from the evidence of the uploads.

The constants lambda_1, lambda_2, gamma and alpha of paper 000, Eq. (8)-(10), enter the decoder's law as
single numbers, so each is found on a logarithmic grid, constant by constant until nothing changes, and then
between the grid's points in ever smaller steps. Every candidate is judged by the evidence that learning
from a cold start ends with. A constant is determined where both ends of its grid are ``WITHIN`` nats or
more behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

from attacks import prior as priors
from attacks.learning import UNRATED, Job, learn
from attacks.typical import TYPICAL
from victims.manifest import Manifest
from victims.view import View

FIELDS = {
    "lambda_attributes": "lambda_attributes",
    "lambda_factors": "lambda_factors",
    "client_learning_rate": "rate",
    "alpha": "alpha",
}
GRIDS = {
    "lambda_attributes": np.geomspace(1e-2, 1e2, 9),
    "lambda_factors": np.geomspace(1e-1, 1e3, 9),
    "client_learning_rate": np.geomspace(1e-5, 1e-1, 9),
    "alpha": np.geomspace(1e-3, 1.0, 7),
}
START = {"lambda_attributes": 1.0, "lambda_factors": 10.0, "client_learning_rate": 1e-3, "alpha": 0.1}
FIRST_STEP, LAST_STEP = 10**0.25, 1.001  # factors tried around the best; the square root is next
ENOUGH = 0.5  # nats below the best, at which both neighbours are close enough
SWEEPS = 3  # most, over all constants
PASSES = 3  # estimates of the prior for each candidate
WITHIN = 2.0  # nats
Values = dict[str, float]
Evidence = Callable[[Values], float]


@dataclass(frozen=True)
class Found:
    """One constant: its best value and the span of candidates within ``WITHIN`` nats of it.

    ``determined`` is false where that reaches an end of the grid.
    """

    value: float
    low: float
    high: float
    determined: bool


def missing(view: View) -> tuple[str, ...]:
    """Constants that the decoder of a view needs and the manifest lacks."""
    manifest = view.manifest
    needed = []
    if manifest.weighting == "include-unrated":
        needed.append("alpha")
    consecutive = bool(np.any(np.diff(np.sort(view.rounds)) == 1))
    if manifest.update == "semi-als" or consecutive:
        needed += ["lambda_factors"] + ["lambda_attributes"] * bool(manifest.n_attributes)
    if manifest.update == "sgd" and consecutive:
        needed.append("client_learning_rate")
    return tuple(name for name in needed if name not in manifest.hyperparameters)


def with_constants(view: View, values: Values) -> View:
    """The view as if its manifest published these values, too."""
    manifest: Manifest = view.manifest
    known = {**manifest.hyperparameters, **values}
    return replace(view, manifest=manifest.model_copy(update={"hyperparameters": known}))


def settle(job: Job, names: Iterable[str]) -> dict[str, Found]:
    """The most credible values of some constants.

    Parameters
    ----------
    job : Job
        Of the view ``with_constants(view, {name: START[name], ...})``, before anything was learned.
    names : iterable of str

    Returns
    -------
    dict of name to Found
    """
    names = list(names)
    best = {name: START[name] for name in names}
    tried: dict[tuple[float, ...], float] = {}

    def evidence(values: Values) -> float:
        key = tuple(values.values())
        if key not in tried:
            tried[key] = _evidence(job, values)
        return tried[key]

    for _ in range(SWEEPS):
        before = best
        for name in names:
            best = _best_of(evidence, best, name, GRIDS[name])
        if before == best:
            break
    for name in names:
        best = _refined(evidence, best, name)
    for name in names:
        for value in GRIDS[name]:
            evidence(best | {name: float(value)})
    return {name: _found(tried, best, name) for name in names}


def _best_of(evidence: Evidence, best: Values, name: str, candidates: Iterable[float]) -> Values:
    return max([best, *(best | {name: float(value)} for value in candidates)], key=evidence)


def _refined(evidence: Evidence, best: Values, name: str) -> Values:
    """Ever smaller steps up and down, until they hardly change the evidence."""
    step = FIRST_STEP
    while step > LAST_STEP:
        around = best[name] / step, best[name] * step
        losses = [evidence(best) - evidence(best | {name: value}) for value in around]
        best = _best_of(evidence, best, name, around)
        if all(0 <= loss < ENOUGH for loss in losses):
            break
        if min(losses) >= 0:
            step = step**0.5
    return best


def _found(tried: dict[tuple[float, ...], float], best: Values, name: str) -> Found:
    """The profile of one constant with all others at their best."""
    top, place = tried[tuple(best.values())], list(best).index(name)
    others = {k: v for k, v in best.items() if k != name}
    profile = {
        key[place]: value
        for key, value in tried.items()
        if [v for i, v in enumerate(key) if i != place] == list(others.values())
    }
    close = {value for value, found in profile.items() if found >= top - WITHIN}
    ends = {float(GRIDS[name][0]), float(GRIDS[name][-1])}
    return Found(best[name], min(close), max(close), not close & ends)


def _evidence(job: Job, values: Values) -> float:
    parts = {FIELDS[name]: jnp.asarray(value) for name, value in values.items()}
    level = jnp.asarray(priors.bell(job.layer, TYPICAL, UNRATED))
    prior = job.prior._replace(level=level) if job.estimated else job.prior
    job = replace(job, constants=job.constants._replace(**parts), prior=prior)
    value = learn(job, None, PASSES if job.estimated else 1)[2]
    return value if np.isfinite(value) else -np.inf
