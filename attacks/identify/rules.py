"""Which of the known rules moved the clients' factors, and with what constants: linear fits to what was read.

- semi-als (Mai & Pang 2022, Eq. 8): lambda_2 p = w_items + lambda_1 w_attributes in every round;
- sgd (Eq. 9, 10; Chai et al. 2021, Eq. 2): p' = (1 - 2 gamma lambda_2) p + 2 gamma (w_items + lambda_1
  w_attributes) from one round to the next, or with 2 gamma / n for a mean over n ratings.
- projected-sgd (Hu & Fang 2023, Algorithm 1): p' = P(p - 2 eta lambda p + 2 eta w'), w' the pull of the items
  as the next round broadcasts them, P the projection to the unit ball; or with lambda n, n the number of
  ratings. Where p' has length 1, the equations across it are linear.

All are linear in constants that all clients share, and K equations for each client: a rule explains a
client where what it leaves is small beside what it has to explain. The constants are fitted to all clients,
and again to the half that they explain best, so that clients who were read wrongly do not count.

References
----------
Mai & Pang 2022, arXiv:2210.07775; Chai et al. 2021, arXiv:1906.05108; Hu & Fang 2023, arXiv:2212.00306.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attacks.client_rules.protocols import RIDGES
from attacks.identify.client_states import ClientStates

EXPLAINED = 1e-3  # of what a rule has to explain, left at most; rows in single precision leave 1e-5
SEEN = 1e-3  # of a factor's length: moves below it may be rounding
FEWEST = 3  # clients that a rule is fitted to
ROUND = 1e-6  # of 1, by which a factor on the unit ball may be shorter


class Fit(NamedTuple):
    """A rule, its constants under the manifest's names, the share of the clients that it explains, and the
    median share of what there was to explain that it leaves, 0 where that is hardly to be seen.
    """

    rule: str
    reduction: str
    constants: dict[str, float]
    share: float
    n_clients: int
    left: float = 0.0


def fits(states: ClientStates) -> list[Fit]:
    """Every known rule that the rounds can tell anything about, the best one first."""
    of_ball = sorted(_projected_sgd(states), key=lambda fit: fit.left)[:1]
    found = [*_semi_als(states), *_sgd(states), *of_ball]
    return sorted(found, key=lambda fit: -fit.share)


def _semi_als(states: ClientStates) -> Iterator[Fit]:
    known = states.read & np.isfinite(states.factor).all(axis=2)
    if known.sum() < FEWEST:
        return
    columns = np.stack([states.of_items, states.of_attributes], axis=-1)[known]
    target = states.factor[known]
    (item, attribute), good, left = _fitted(columns, target, np.linalg.norm(target, axis=1))
    constants = {}
    if item > 0:
        constants = {"lambda_factors": 1 / item}
        constants |= {"lambda_attributes": attribute / item} if states.of_attributes[known].any() else {}
    yield Fit("semi-als", "sum", constants, float(good.mean()) if item > 0 else 0.0, good.size, left)


def _sgd(states: ClientStates) -> Iterator[Fit]:
    follows = np.flatnonzero(np.diff(states.rounds) == 1)
    if not follows.size:
        return
    now, then = states.factor[follows], states.factor[follows + 1]
    known = np.isfinite(now).all(axis=2) & np.isfinite(then).all(axis=2)
    if known.sum() < FEWEST:
        return
    moved = np.linalg.norm((then - now)[known], axis=1)
    for reduction in ("sum", "mean"):
        divisor = states.n_rated[follows][known][:, None] if reduction == "mean" else 1.0
        pulls = [states.of_items[follows][known] / divisor, states.of_attributes[follows][known] / divisor]
        columns = np.stack([now[known], *pulls], axis=-1)
        (kept, item, attribute), good, left = _fitted(columns, then[known], moved)
        step = float(np.median(moved / np.linalg.norm(now[known], axis=1)))
        decay = 1 - kept if abs(1 - kept) > left * step else 0.0  # what rounding leaves of a step hides it
        left *= step > SEEN
        constants = {}
        if item > 0:
            constants = {"client_learning_rate": item / 2, "lambda_factors": decay / item}
            constants |= {"lambda_attributes": attribute / item} if pulls[1].any() else {}
        yield Fit("sgd", reduction, constants, float(good.mean()) if item > 0 else 0.0, good.size, left)


def _projected_sgd(states: ClientStates) -> Iterator[Fit]:
    follows = np.flatnonzero(np.diff(states.rounds) == 1)
    now, then, after = states.factor[follows], states.factor[follows + 1], states.of_items_after[follows]
    known = np.isfinite(now).all(axis=2) & np.isfinite(then).all(axis=2) & np.isfinite(after).all(axis=2)
    if known.sum() < FEWEST:
        return
    now, then, after = now[known], then[known], after[known]
    n_rated = states.n_rated[follows][known][:, None]
    moved = np.linalg.norm(then - now, axis=1)
    on_ball = np.abs(np.linalg.norm(then, axis=1) - 1) < ROUND
    across = np.eye(now.shape[1]) - then[:, :, None] * then[:, None, :] * on_ball[:, None, None]
    for ridge, counted in zip(RIDGES, (n_rated, np.ones_like(n_rated)), strict=True):
        columns = np.matmul(across, np.stack([-counted * now, after], axis=-1))
        (decay, pace), _, _ = _fitted(columns, np.matmul(across, (then - now)[..., None])[..., 0], moved)
        if pace <= 0:
            continue
        reached = now - decay * counted * now + pace * after
        reached = reached / np.maximum(1.0, np.linalg.norm(reached, axis=1))[:, None]
        left = np.linalg.norm(reached - then, axis=1) / np.where(moved > 0, moved, np.inf)
        constants = {"learning_rate": pace / 2, ridge: decay / pace}
        share = float(np.mean((left < EXPLAINED) & (moved > 0)))
        yield Fit("projected-sgd", "sum", constants, share, left.size, float(np.median(left)))


def _fitted(
    columns: Float[np.ndarray, "clients K columns"],
    target: Float[np.ndarray, "clients K"],
    size: Float[np.ndarray, " clients"],
) -> tuple[list[float], Bool[np.ndarray, " clients"], float]:
    """The constants, of whose target they leave less than ``EXPLAINED``, and how much in the median."""
    weight = 1 / np.where(size > 0, size, np.inf)
    keep = size > 0
    constants: Float[np.ndarray, " columns"] = np.zeros(columns.shape[2])
    left = np.ones(size.size)
    for _ in range(4):
        if not keep.any():
            break
        table = (columns * weight[:, None, None])[keep].reshape(-1, columns.shape[2])
        constants = np.linalg.lstsq(table, (target * weight[:, None])[keep].reshape(-1))[0]
        left = np.linalg.norm(target - columns @ constants, axis=1) * weight
        keep = (size > 0) & (left <= np.median(left[size > 0]))
    median = float(np.median(left[size > 0])) if (size > 0).any() else 0.0
    return constants.tolist(), (left < EXPLAINED) & (size > 0), median
