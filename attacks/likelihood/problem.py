"""A view as a problem to be solved, which never changes, and the parameters that are learned from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from numpy.typing import DTypeLike

from attacks.likelihood import prior as priors
from attacks.likelihood.batches import Packing, Rows, pack, plan
from attacks.likelihood.model import AnyArray, Constants, Model, Prior
from victims.transcript.view import View

CACHE_BYTES = 1 << 28


@dataclass(frozen=True)
class Problem:
    """What is fixed while a view is read."""

    view: View
    packing: Packing  # how its clients are cut into batches
    model: Model
    steps: int  # newton steps of a cold start
    key: int  # seed of all draws
    estimated: bool  # the prior is improved; otherwise it stays as it is
    known_noise: bool  # the scale of the noise is not estimated
    floor: float  # smallest scale that an estimate may reach, in stars squared
    precision: DTypeLike  # of the rows

    @property
    def attribute_factors(self) -> Float[np.ndarray, "rounds K attributes"]:
        """Broadcast factors of the attributes."""
        return self.packing.attribute_factors

    @property
    def n_batches(self) -> int:
        """Number of batches."""
        return len(self.packing.members)


class Parameters(NamedTuple):
    """What is known of the protocol, of ratings and of how they vary over clients and items, so far."""

    constants: Constants
    prior: Prior
    spread: priors.Spread


def problem_of(
    view: View,
    model: Model,
    *,
    steps: int,
    key: int,
    estimated: bool,
    known_noise: bool,
    floor: float,
    precision: DTypeLike,
    shape_cost: float,
) -> Problem:
    """Pack a view into a problem."""
    packing = plan(view, shape_cost)
    return Problem(view, packing, model, steps, key, estimated, known_noise, floor, precision)


def start_parameters(problem: Problem, constants: Constants) -> Parameters:
    """Make parameters before anything was learned: every answer is equally likely."""
    model, view = problem.model, problem.view
    size = view.manifest.factors * (1 if model.tied else model.n_runs)
    prior = priors.flat(model, view.users.size, problem.packing.item_ids.size, size)
    return Parameters(constants, prior, priors.start_spread(model))


def carried(problem: Problem, school: Problem, learned: Parameters) -> Parameters:
    """What some clients taught, for all of them: the clients' own random effects start anew."""
    position = np.searchsorted(problem.packing.item_ids, school.packing.item_ids)
    item = np.zeros((problem.packing.item_ids.size, problem.model.effects[1]))
    item[position] = np.asarray(learned.prior.item)
    user = np.zeros((problem.view.users.size, problem.model.effects[0]))
    return learned._replace(prior=learned.prior._replace(user=user, item=item))


def between(old: Parameters, new: Parameters, share: float) -> Parameters:
    """Move what is learned a share of the way from one set of parameters to another."""

    def part(a: AnyArray, b: AnyArray) -> np.ndarray:
        a, b = np.asarray(a), np.asarray(b)
        return np.asarray(a + share * (b - a))

    moved: Parameters = jax.tree.map(part, old, new)
    return moved


def prior_of(problem: Problem, parameters: Parameters, batch: int) -> Prior:
    """Take the prior of a batch's clients."""
    members = problem.packing.members[batch]
    return parameters.prior._replace(user=np.asarray(parameters.prior.user)[members])


def scattered(problem: Problem, batch: int, values: AnyArray) -> np.ndarray:
    """Put what belongs to the clients of one batch in the order of all clients."""
    members, size = problem.packing.members[batch], problem.packing.sizes[batch]
    out = np.zeros((problem.view.users.size, *values.shape[1:]))
    out[members[:size]] = np.asarray(values)[:size]
    return out


class BatchCache:
    """Rows of the batches of one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._kept: dict[int, Rows] = {}
        self._last: dict[int, Rows] = {}

    def rows(self, batch: int) -> Rows:
        """The rows of a batch, kept while all of them are small; the last one always is."""
        for kept in (self._kept, self._last):
            if batch in kept:
                return kept[batch]
        self._last.clear()
        problem = self.problem
        packed = pack(problem.view, problem.packing, batch, problem.precision, problem.model.law)
        rows: Rows = jax.device_put(packed)
        room = sum(_bytes(kept) for kept in self._kept.values()) + _bytes(rows) < CACHE_BYTES
        (self._kept if room else self._last)[batch] = rows
        return rows


def _bytes(rows: Rows) -> int:
    return sum(column.nbytes for column in rows)
