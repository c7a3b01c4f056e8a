"""Protocol constants that a manifest keeps silent about, from the evidence of the uploads.

The constants lambda_1, lambda_2, gamma and alpha of Mai & Pang 2022, Eq. (8)-(10), enter the law of the
uploads as single numbers, so each is found on a logarithmic grid, constant by constant until nothing changes,
and then between the grid's points in ever smaller steps. Candidates of the grid are judged by the evidence
that learning from a cold start ends with, later ones by that of learning on from the state of the best so
far: cold starts may end in different optima, whose difference would hide theirs. A constant is determined
where both ends of its grid are ``WITHIN`` nats or more behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from attacks.likelihood import prior as priors
from attacks.likelihood.learning import FURTHER, UNRATED, State, learn
from attacks.likelihood.problem import BatchCache, Parameters
from attacks.metadata.rating_prior import MIDDLE
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

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
ENOUGH = 0.5  # nats, a difference to the neighbours that is close enough
SWEEPS = 3  # most, over all constants
PASSES = 5  # estimates of the prior for each candidate
WITHIN = 2.0  # nats
Values = dict[str, float]


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
    """Name the constants that the model of a view needs and the manifest lacks."""
    manifest = view.manifest
    needed = []
    if manifest.weighting == "include-unrated":
        needed.append("alpha")
    consecutive = manifest.rule.start == "kept" and bool(np.any(np.diff(np.sort(view.rounds)) == 1))
    if manifest.update == "semi-als" or consecutive:
        needed += ["lambda_factors"] + ["lambda_attributes"] * bool(manifest.n_attributes)
    if manifest.update == "sgd" and consecutive:
        needed.append("client_learning_rate")
    return tuple(name for name in needed if name not in manifest.hyperparameters)


def with_constants(view: View, values: Values) -> View:
    """Make the view as if its manifest published some more values."""
    manifest: Manifest = view.manifest
    known = {**manifest.hyperparameters, **values}
    return view.declared(hyperparameters=known)


def settle(batches: BatchCache, parameters: Parameters, names: Iterable[str]) -> dict[str, Found]:
    """The most credible values of some constants."""
    names = list(names)
    best = {name: START[name] for name in names}
    candidates = _Candidates(batches, parameters)
    for _ in range(SWEEPS):
        before = best
        for name in names:
            best = _best_of(candidates, best, name, GRIDS[name])
        if before == best:
            break
    candidates.learn_on()
    for name in names:
        best = _refined(candidates, best, name)
    for name in names:
        for value in GRIDS[name]:
            candidates.evidence(best | {name: float(value)})
    return {name: _found(candidates.tried, best, name) for name in names}


@dataclass
class _Candidates:
    """Values of the constants that were tried, their evidence, and the state of the best of them."""

    batches: BatchCache
    parameters: Parameters
    tried: dict[tuple[float, ...], float] = field(default_factory=dict)
    best: State | None = None
    warm: bool = False

    def evidence(self, values: Values) -> float:
        """Evidence of one candidate, learned at most once."""
        key = tuple(values.values())
        if key not in self.tried:
            parts = {FIELDS[name]: np.asarray(value) for name, value in values.items()}
            state = self._learned(parts)
            self.tried[key] = state.evidence if np.isfinite(state.evidence) else -np.inf
            if self.best is None or state.evidence > self.best.evidence:
                self.best = state
        return self.tried[key]

    def learn_on(self) -> None:
        """Learn the best to its end; all candidates are learned from its state from now on."""
        assert self.best is not None
        key = max(self.tried, key=lambda key: self.tried[key])
        passes = FURTHER if self.batches.problem.estimated else 1
        self.best = learn(self.batches, self.best.parameters, passes, self.best.points)
        self.tried = {key: self.best.evidence}
        self.warm = True

    def _learned(self, parts: dict[str, np.ndarray]) -> State:
        problem = self.batches.problem
        passes = PASSES if problem.estimated else 1
        warm = self.best if self.warm else None
        start = self.parameters if warm is None else warm.parameters
        start = start._replace(constants=start.constants._replace(**parts))
        if warm is not None:
            return learn(self.batches, start, passes, warm.points)
        if problem.estimated:
            level = priors.bell(problem.model, MIDDLE, UNRATED)
            start = start._replace(prior=start.prior._replace(level=level))
        return learn(self.batches, start, passes)


def _best_of(tried: _Candidates, best: Values, name: str, values: Iterable[float]) -> Values:
    return max([best, *(best | {name: float(value)} for value in values)], key=tried.evidence)


def _refined(tried: _Candidates, best: Values, name: str) -> Values:
    """Ever smaller steps up and down, until they hardly change the evidence."""
    step = FIRST_STEP
    while step > LAST_STEP:
        around = best[name] / step, best[name] * step
        top = tried.evidence(best)
        losses = [top - tried.evidence(best | {name: value}) for value in around]
        best = _best_of(tried, best, name, around)
        if all(abs(loss) < ENOUGH for loss in losses):
            break
        if min(losses) > -ENOUGH:
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
