"""What the rows tell of each client's factor, and which known rule moved it from round to round.

A reading (``attacks.closed_form.rows.row_readings``) gives r = A g + B h for a client's rows g along its
direction d: so its factor was p = B d, its errors A g, and what its rows are multiplied by is sigma = 1 / (A
B). With the factors that the rows were computed at, what pulls on p follows: w = sum_j e_j q_j over its
items, and the same over its attributes. Rules are linear in constants that all clients share:

- semi-als (Mai & Pang 2022, Eq. 8): lambda_2 p = w_items + lambda_1 w_attributes in every round;
- sgd (Eq. 9, 10; Chai et al. 2021, Eq. 2): p' = (1 - 2 gamma lambda_2) p + 2 gamma (w_items + lambda_1
  w_attributes) from one round to the next, or with 2 gamma / n for a mean over n ratings.
- projected-sgd (Hu & Fang 2023, Algorithm 1): p' = P(p - 2 eta lambda p + 2 eta w'), w' the pull of the items
  as the next round broadcasts them, P the projection to the unit ball; or with lambda n, n the number of
  ratings. Where p' has length 1, the equations across it are linear.

Each gives K equations for each client, and explains a client where what it leaves is small beside what it has
to explain. The constants are fitted to all clients, and again to the half that they explain best, so that
clients who were read wrongly do not count.

References
----------
Mai & Pang 2022, arXiv:2210.07775; Chai et al. 2021, arXiv:1906.05108; Hu & Fang 2023, arXiv:2212.00306.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.client_rules.protocols import RIDGES
from attacks.closed_form.common_numbers import declared_scale
from attacks.closed_form.numbers.integer_relation import precision_of
from attacks.closed_form.rows.row_readings import best_reading
from attacks.closed_form.uploads.item_rows import BATCH_BYTES, rows_of
from attacks.closed_form.uploads.moving_factor import PARALLEL
from attacks.closed_form.uploads.readings import Reading, Rows
from attacks.closed_form.uploads.reduction import leading_direction
from attacks.identify.row_rules import MAX_MISFIT
from victims.transcript.view import ATTRIBUTE, ITEM, Uploads, View

EXPLAINED = 1e-3  # of what a rule has to explain, left at most; rows in single precision leave 1e-5
SEEN = 1e-3  # of a factor's length: moves below it may be rounding
FEWEST = 3  # clients that a rule is fitted to
ROUND = 1e-6  # of 1, by which a factor on the unit ball may be shorter


class ClientStates(NamedTuple):
    """Some clients in some rounds; NaN where a client was not read."""

    users: Int[np.ndarray, " users"]
    rounds: Int[np.ndarray, " rounds"]
    factor: Float[np.ndarray, "rounds users K"]  # p, and the pulls on it
    of_items: Float[np.ndarray, "rounds users K"]  # p, and the pulls on it
    of_attributes: Float[np.ndarray, "rounds users K"]  # p, and the pulls on it
    # the pull of the items as they are broadcast in the round that follows, NaN where none does
    of_items_after: Float[np.ndarray, "rounds users K"]
    # sigma in units of the declared scale, mu, steps inside the round, and rows of items
    scale: Float[np.ndarray, "rounds users"]
    pull: Float[np.ndarray, "rounds users"]
    steps: Float[np.ndarray, "rounds users"]
    n_rated: Float[np.ndarray, "rounds users"]
    misfit: Float[np.ndarray, "rounds users"]
    # by how much a step of size 1 along the items' pull lessens that pull, relative
    bend: Float[np.ndarray, "rounds users"]
    # whether rows, freed of mu, have one direction to their last digits
    parallel: Bool[np.ndarray, "rounds users"]

    @property
    def read(self) -> Bool[np.ndarray, "rounds users"]:
        """Who was read when."""
        return np.isfinite(self.scale)


def states_of(view: View, missing: float = 0.0) -> ClientStates:
    """Read every client of a view in every round."""
    users, parts = [], []
    for batch in view.batches(BATCH_BYTES):
        users.append(batch.users)
        rounds = [_state(view, uploads, missing) for uploads in batch.rounds]
        parts.append([np.stack(column) for column in zip(*rounds, strict=True)])
    order = np.argsort(np.concatenate(users))
    columns = (np.concatenate(column, axis=1)[:, order] for column in zip(*parts, strict=True))
    return ClientStates(np.concatenate(users)[order], view.rounds, *columns)


def _state(view: View, uploads: Uploads, missing: float) -> tuple[np.ndarray, ...]:
    """The columns of ``ClientStates`` in one round."""
    pull = view.manifest.upload.regularization + missing
    rows = rows_of(view.manifest, uploads, declared_scale(view.manifest), 0.0, pull)
    found = best_reading(rows, view.manifest, MAX_MISFIT)
    clean = rows.rows - found.pull[:, None, None] * rows.factors
    direction, energy = leading_direction(clean)
    parallel = _parallel(clean, direction, energy, rows, uploads)
    told = found.answered
    scalar = np.matmul(clean, direction[:, :, None])[..., 0]
    factor = found.of_factor[:, None] * direction
    of_items = np.einsum("ur,urk->uk", found.of_error[:, None] * scalar, rows.factors)
    of_attributes = _pull_of_attributes(view, uploads, direction, found)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 1 / (found.of_error * found.of_factor)
    several = found.steps > 1  # such a client has no one factor, and its direction's sign is open
    of_items_after = _pull_after(view, uploads, rows, found, factor)
    for vectors in (factor, of_items, of_attributes, of_items_after):
        vectors[several | ~told] = np.nan
    n_rated = rows.item.sum(axis=1).astype(float)
    along = np.matmul(rows.factors, of_items[:, :, None])[..., 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        lessened = np.linalg.norm(np.einsum("ur,urk->uk", along, rows.factors), axis=1)
        bend = lessened / np.linalg.norm(of_items, axis=1)
    numbers = (scale, found.pull, found.steps, n_rated, found.misfit, bend)
    return (
        factor,
        of_items,
        of_attributes,
        of_items_after,
        *(np.where(told, part, np.nan) for part in numbers),
        parallel,
    )


def _parallel(
    clean: Float[np.ndarray, "users rows K"],
    direction: Float[np.ndarray, "users K"],
    energy: Float[np.ndarray, " users"],
    rows: Rows,
    uploads: Uploads,
) -> Bool[np.ndarray, " users"]:
    """Whether rows have one direction, to the last digits of what was sent."""
    across = clean - np.matmul(clean, direction[:, :, None]) * direction[:, None]
    sent = uploads.gradients * rows.item[..., None]
    limit = PARALLEL * precision_of(sent, rows.factors, rows.precision)
    with np.errstate(invalid="ignore"):
        return np.linalg.norm(across, axis=(1, 2)) <= limit * np.sqrt(energy)


def _pull_after(
    view: View,
    uploads: Uploads,
    rows: Rows,
    found: Reading,
    factor: Float[np.ndarray, "users K"],
) -> Float[np.ndarray, "users K"]:
    """sum_j (r_j - p . q'_j) q'_j, q' as broadcast in the next round."""
    known = view.broadcasts.get(uploads.round + 1)
    if known is None:
        return np.full(factor.shape, np.nan)
    shape = rows.item.shape
    index = np.broadcast_to(uploads.index, shape)
    at = known.positions(np.full(shape, ITEM), np.where(rows.item, index, known.item_ids[0]))
    later = np.where(rows.item & (at >= 0), 1.0, 0.0)[..., None] * known.factors[at]
    target = np.where(rows.item, found.value, 0.0) - rows.offset - found.own_bias[:, None] * rows.item
    error = target - np.matmul(later, factor[:, :, None])[..., 0]
    return np.einsum("ur,urk->uk", error, later)


def _pull_of_attributes(
    view: View, uploads: Uploads, direction: Float[np.ndarray, "users K"], found: Reading
) -> Float[np.ndarray, "users K"]:
    """sum_a h_a u_a; zeros where clients send no rows of attributes."""
    shape = uploads.gradients.shape[:2]
    here = np.broadcast_to(uploads.valid & (uploads.kind == ATTRIBUTE), shape)
    if not here.any():
        return np.zeros(direction.shape)
    factors = np.broadcast_to(uploads.factors[uploads.at], uploads.gradients.shape) * here[..., None]
    upload = view.manifest.upload
    rows = (uploads.gradients * here[..., None] - upload.regularization * factors) / upload.scale
    error = found.of_error[:, None] * np.matmul(rows, direction[:, :, None])[..., 0]
    return np.einsum("ur,urk->uk", error, factors)


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
