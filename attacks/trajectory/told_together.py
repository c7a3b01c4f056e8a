"""What the trajectories of many clients tell together: a wrong scale, the lowest level taken off.

Who has no rating of the lowest level fits the grid one level too low where a program learns ratings less that
level, and nothing else about it is odd; who has one fits with it taken off alone. The same vote as of single
rounds (``attacks.closed_form.common_numbers``) is held among trajectories, where noise that repeats lets no
round be read alone. Likewise two levels of a client may be two others under a declared scale that most
clients contradict.

Exact trajectories say what a client learns, up to the sign of all of it. Less a number that nobody told, the
ratings of some clients are levels by accident, lower ones; those of others are none, or 0, or negative. One
number that puts more clients on the grid than are there without it is then what the program takes off, or
may be, and who is on the grid without it is so by accident.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.base import Reconstruction, silent_about
from attacks.closed_form.common_numbers import offset_by_votes
from attacks.closed_form.fit.arbiter import abstain_if_off_the_grid
from attacks.closed_form.fit.decoding import distance_to_levels
from attacks.closed_form.fit.goodness_of_fit import step_of
from attacks.closed_form.fit.images import (
    OPEN_OFFSET,
    abstain_if_own_lowest,
    differences_if_all_open,
    may_be_lowered,
)
from attacks.trajectory.trajectory_model import TrajectoryModel

EXACT = 1e-4  # misfit of an answer that no other offset could better
NEAR = 0.05  # of a step: four numbers of nothing are as near to levels with probability 1e-4
ASKED = 24  # clients whose numbers say which shifts are tried


def clients_explained(
    value: Float[np.ndarray, "users rows"], levels: Float[np.ndarray, " levels"], shift: float
) -> Bool[np.ndarray, " users"]:
    """Find the clients whose numbers are levels once a number is added to them, or to their mirror image."""
    there = np.isfinite(value)
    near = NEAR * step_of(levels)
    fits = [
        ((distance_to_levels(np.where(there, sign * value, 0) + shift, levels) < near) | ~there).all(axis=1)
        for sign in (1, -1)
    ]
    return there.any(axis=1) & (fits[0] | fits[1])


def explained_otherwise(
    value: Float[np.ndarray, "users rows"], levels: Float[np.ndarray, " levels"], shift: float
) -> int:
    """Count the clients whom the best other shift explains.

    Nobody takes the highest level off, or more: of each number that explains somebody this leaves out that
    of the mirror image.

    Examples
    --------
    >>> stars = np.array([[3.0, 4.0], [1.0, 2.0], [4.0, 5.0]])
    >>> levels = np.arange(1.0, 6.0)
    >>> explained_otherwise(stars - 2, levels, 0.0), int(clients_explained(stars - 2, levels, 0.0).sum())
    (3, 2)
    """
    if not value.size:
        return 0
    there = np.isfinite(value)
    width = np.where(there, value, -np.inf).max(axis=1) - np.where(there, value, np.inf).min(axis=1)
    widest = np.argsort(np.where(there.any(axis=1), -width, np.inf), kind="stable")[:ASKED]
    first = np.array([own[np.isfinite(own)][0] for own in value[widest] if np.isfinite(own).any()])
    tried = np.unique(np.round((levels - np.array([1, -1])[:, None, None] * first[:, None]).ravel(), 3))
    near = NEAR * step_of(levels)
    other = tried[(np.abs(tried - shift) > near) & (tried < levels[-1] - near)]
    return max((int(clients_explained(value, levels, one).sum()) for one in other), default=0)


class Told(NamedTuple):
    """What trajectories say under one model."""

    found: Reconstruction
    # whom the rating grid told what its rows are multiplied with: its answer owes nothing to a declaration
    by_grid: Bool[np.ndarray, " users"]
    off_grid: Bool[np.ndarray, " users"]  # whose exact rows are of numbers on no multiple of the grid
    # what clients learn under the declared scale, one array for each batch; none without such a scale
    learned: tuple[Float[np.ndarray, "_ _"], ...]

    @property
    def answered(self) -> Bool[np.ndarray, " users"]:
        """Who is not abstained on."""
        return ~np.isin(self.found.users, list(self.found.abstained))

    def of_clients(
        self, question: Callable[[Float[np.ndarray, "some rows"]], Bool[np.ndarray, " some"]]
    ) -> Bool[np.ndarray, " users"]:
        """Ask something of the values of each client."""
        said = np.zeros(self.found.users.size, bool)
        for block in self.found.blocks:
            said[np.searchsorted(self.found.users, block.users)] = question(block.value)
        return said


def read_together(
    model: TrajectoryModel, fitted: Callable[[TrajectoryModel], Told]
) -> tuple[Reconstruction, float]:
    """Read clients as most of them say: the declared scale or any, the lowest level taken off or not."""
    as_declared = fitted(model)
    told = _scaled(model, fitted, as_declared)
    levels = model.levels
    open_ = told.answered & told.of_clients(lambda value: may_be_lowered(value, levels))
    saying = _saying(told, model, fitted)
    denying = told.answered & ~open_ & ~saying
    offset = offset_by_votes(float(levels[0]), int(saying.sum()), int(denying.sum()))
    if offset.lowered:
        told = _scaled(model._replace(lowered=offset.lowered), fitted)
        found = _unless_refuted(told, as_declared.learned, model, offset.lowered)
        return abstain_if_own_lowest(found, levels), offset.lowered
    # a declared scale is believed unless somebody speaks against it
    doubted = np.zeros_like(open_) if offset.settled else open_ & (told.by_grid | saying.any())
    found = _unless_refuted(told, as_declared.learned, model, 0.0)
    if not saying.any():
        return differences_if_all_open(found, doubted, OPEN_OFFSET), 0.0
    left = ~np.isin(found.users, list(found.abstained))
    return silent_about(found, (doubted | saying) & left, OPEN_OFFSET), 0.0


def _unless_refuted(
    told: Told, learned: tuple[Float[np.ndarray, "_ _"], ...], model: TrajectoryModel, lowered: float
) -> Reconstruction:
    """Answer nobody where those who are off the grid say that the others are on it by accident."""
    found = abstain_if_off_the_grid(told.found, told.off_grid, model.levels)
    return _unless_shifted(found, learned, model.levels, lowered)


def _unless_shifted(
    found: Reconstruction,
    learned: tuple[Float[np.ndarray, "_ _"], ...],
    levels: Float[np.ndarray, " levels"],
    lowered: float,
) -> Reconstruction:
    """Answer nobody where the declared scale lets another number explain as many clients, or more."""
    if not learned:
        return found
    width = max(part.shape[1] for part in learned)
    value = np.concatenate(
        [np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=np.nan) for part in learned]
    )
    answered = ~np.isin(found.users, list(found.abstained))
    other, so = (
        explained_otherwise(value, levels, lowered),
        int(clients_explained(value, levels, lowered).sum()),
    )
    # of two numbers that are not declared neither is likelier
    if other < answered.sum() or other < so or (other == so and not lowered):
        return found
    reason = (
        f"under the declared scale another number taken off all ratings explains {other} clients, and "
        f"{lowered:g} explains {so}: who fits the grid may do so by accident; "
        "undeclared reads them where clients tell the number"
    )
    return silent_about(found, answered, reason)


def _scaled(
    model: TrajectoryModel, fitted: Callable[[TrajectoryModel], Told], told: Told | None = None
) -> Told:
    """Under the declared scale; under any, where it is the grid that tells most clients' scale."""
    told = told or fitted(model)
    believed = told.answered & ~told.by_grid
    telling = believed & told.of_clients(_differ)  # equal numbers are on the grid under many a scale
    if not model.known_scale or not believed.any() or (told.answered & told.by_grid).sum() <= telling.sum():
        return told
    return fitted(model._replace(known_scale=False, known_step=False))


def _saying(
    told: Told, model: TrajectoryModel, fitted: Callable[[TrajectoryModel], Told]
) -> Bool[np.ndarray, " users"]:
    """Who has a rating of the lowest level once that is taken off, and fits better so."""
    answered, off = told.answered, told.found.diagnostics["misfit"]
    if (answered & (off <= EXACT)).all():
        return np.zeros_like(answered)
    # the closed form tells; fits from random starts would say no more
    other = _scaled(model._replace(lowered=float(model.levels[0]), known_step=False), fitted)
    better = other.answered & ~(answered & (off <= other.found.diagnostics["misfit"]))
    near = step_of(model.levels) / 4
    return better & other.of_clients(lambda value: (np.abs(value - model.levels[0]) < near).any(axis=1))


def _differ(value: Float[np.ndarray, "some rows"]) -> Bool[np.ndarray, " some"]:
    """Whose values are not all the same."""
    there = np.isfinite(value)
    highest, lowest = (
        np.where(there, value, -np.inf).max(axis=1),
        np.where(there, value, np.inf).min(axis=1),
    )
    return highest > lowest
