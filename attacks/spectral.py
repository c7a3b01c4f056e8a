"""The closed form: every client's ratings and attributes by linear algebra, all clients at once.

Beyond paper 000 (its section 4 solves non-linear systems instead). Every row that client i uploads is a
scalar times p_i. With d the leading right singular vector of its rows, p_i = s d, g_j = f(i,j) . d,
T the broadcast factors (q_j, then u_a) and w = sum_j g_j q_j + lambda_1 sum_a h_a u_a:

- semi-als: (8) says lambda_2 p = w / s, so s^2 = d . w / lambda_2, from one round;
- sgd: (9), (10) of rounds t, t+1 say (1 - 2 gamma lambda_2) A d - B d' = -2 gamma w with A = s^2 and
  B = s s', two unknowns in K equations;
- where these leave s open (d parallel to d', 1 = 2 gamma lambda_2, rounds that do not follow each other,
  constants that are not public): the rating of an item is the same in two rounds,
  g_j / s + s d . q_j = g'_j / s' + s' d' . q'_j, a null vector of four columns. With include-unrated this
  holds for the attributes, whose weight is 1;
- include-unrated, where that fails, too: every unrated row says s^2 = -g_j / (alpha d . q_j), so where most
  items are unrated the median over the items is s^2, from one round and without any update rule;
- then r_j = g_j / s + s d . q_j, and in include-unrated an item is unrated where g_j / s = -alpha s d . q_j.

The sign of s makes ratings positive.

What it assumes: uploads in the clear and without noise, and the public constants that the chosen
equation needs. It measures how well its answer fits the rating grid, against what the same numbers give
when paired at random, and abstains where the fit is no better than half of that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from attacks.decode import distance_to_levels, looks_unrated
from attacks.interface import Estimates, Progress, Reconstruction, alpha_unknown, silent, unreadable
from victims.manifest import Manifest
from victims.view import ATTRIBUTE, BATCH_BYTES, ITEM, Uploads, UserBatch, View

FIT_ROWS = 64  # rows per client that the check of the fit looks at
SAMPLE_ROWS = 256  # rows per client that give the direction where they have rank one
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Spectral:
    """Hyper-parameters of the closed form.

    Attributes
    ----------
    max_misfit : float
        Abstain where the distance of the answer from the grid exceeds this share of what random
        pairing gives; ``inf`` never abstains for that reason.
    parallel : float
        Sine of the angle below which two directions count as parallel.
    """

    max_misfit: float = 0.5
    parallel: float = 1e-7
    name: str = "spectral"

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Solve all clients of a view.

        Parameters
        ----------
        view : View
        key : int
            Unused: the attack draws nothing at random.
        progress : callable

        Returns
        -------
        Reconstruction
            Values are not rounded; diagnostics hold ``length`` (the estimated norm of p_i, stars)
            and ``misfit`` (0 fits the grid exactly, 1 no better than chance).
        """
        options = {**asdict(self), "seed": key}
        obstacle = _obstacle(view)
        if obstacle:
            users = view.users
            everybody = {int(user): obstacle for user in users}
            return Reconstruction(self.name, users, (), everybody, options)
        solved = list(_each(view, lambda batch: _solve(self, view.manifest, batch), progress))
        users = np.concatenate([part.estimates.users for part in solved])
        order = np.argsort(users)
        diagnostics = {
            "length": np.concatenate([part.length for part in solved])[order],
            "misfit": np.concatenate([part.misfit for part in solved])[order],
        }
        abstained = {user: reason for part in solved for user, reason in part.abstained.items()}
        blocks = tuple(part.estimates for part in solved)
        return Reconstruction(self.name, users[order], blocks, abstained, options, diagnostics)


@dataclass(frozen=True)
class _Solved:
    estimates: Estimates
    length: Float[np.ndarray, " users"]
    misfit: Float[np.ndarray, " users"]
    abstained: dict[int, str]


def _each(view: View, solve: Callable[[UserBatch], _Solved], progress: Progress) -> Iterator[_Solved]:
    """Solve the batches on all cores; NumPy releases the interpreter lock inside its loops."""
    cuts = view.layout.slices(view.manifest.factors, BATCH_BYTES)
    members = [view.layout.order[start:stop] for start, stop in cuts]
    done = 0
    # one thread per batch: BLAS threads of its own would fight with these
    with (
        threadpool_limits(1, user_api="blas"),
        ThreadPoolExecutor(min(len(members), os.cpu_count() or 1)) as pool,
    ):
        for part in pool.map(lambda m: solve(view.batch(m)), members):
            done += part.estimates.users.size
            progress(done, view.users.size)
            yield part


def _obstacle(view: View) -> str:
    """Why no client of the view can be solved, or nothing."""
    reason = unreadable(view) or alpha_unknown(view)
    if reason:
        return reason
    if view.rounds.size < 2 and view.manifest.weighting == "observed-only":
        reason = _open_scale(view.manifest)
        if reason:
            return f"{reason}; a second round would determine the answer"
    return ""


def _open_scale(manifest: Manifest) -> str:
    """Why one round leaves the length of p_i open, or nothing."""
    if manifest.update == "sgd":
        return "sgd needs two rounds, one was recorded"
    needed = ["lambda_factors"] + ["lambda_attributes"] * (manifest.n_attributes > 0)
    missing = [name for name in needed if name not in manifest.hyperparameters]
    if missing:
        return f"{' and '.join(missing)} are not public"
    if manifest.hyperparameters["lambda_factors"] <= 0:
        return "lambda_factors is 0, so Eq. (8) leaves the length of the client's factor open"
    return ""


def _solve(attack: Spectral, manifest: Manifest, batch: UserBatch) -> _Solved:
    # finite files may hold numbers whose squares are not; such clients are abstained on below
    with np.errstate(over="ignore", invalid="ignore"):
        reduced = [_reduce(manifest, uploads) for uploads in batch.rounds]
        scales = _scales(attack, manifest, batch, reduced)
        kind, index, value, misfit = _decode(manifest, batch, reduced, scales)
    used = scales.max(axis=0)
    abstained = {}
    energy = np.stack([part.energy for part in reduced]).max(axis=0)
    for user, size, scale, fit in zip(batch.users, energy, used, misfit, strict=True):
        if size == 0:
            abstained[int(user)] = "all uploaded rows are zero"
        elif not np.isfinite(size):
            abstained[int(user)] = "the uploaded numbers are too large to square"
        elif not scale > 0:
            abstained[int(user)] = _no_scale(manifest)
        elif not fit <= attack.max_misfit:
            abstained[int(user)] = (
                f"the answer fits the rating grid little better than chance (misfit {fit:.2f} of 1)"
            )
    silenced = np.isin(batch.users, list(abstained))
    value[silenced] = np.nan
    return _Solved(Estimates(batch.users, kind, index, value), used, misfit, abstained)


def _no_scale(manifest: Manifest) -> str:
    if manifest.update == "semi-als":
        return "no length of the client's factor satisfies Eq. (8): rows are missing or perturbed"
    return "no length of the client's factor satisfies Eq. (9) in two consecutive rounds"


@dataclass(frozen=True)
class _Reduced:
    """One round of a batch, reduced to scalars along each client's direction.

    direction d (users, K); scalar g (users, rows), 0 on padding; pull w (users, K); energy: the sum of
    squares of the rows; complete: Eq. (8) and (10) can be formed from the rows.
    """

    direction: Float[np.ndarray, "users K"]
    scalar: Float[np.ndarray, "users rows"]
    pull: Float[np.ndarray, "users K"]
    energy: Float[np.ndarray, " users"]
    complete: np.ndarray


def _reduce(manifest: Manifest, uploads: Uploads) -> _Reduced:
    rows = uploads.gradients
    factors = uploads.broadcast.factors
    if manifest.upload.regularization != 0:
        own = manifest.upload.regularization * factors[uploads.position]
        rows = np.where(uploads.valid[..., None], rows - own, 0)
    rows = rows if rows.dtype == np.float64 else rows.astype(np.float64)
    direction, energy = _direction(rows)
    scalar = np.matmul(rows, direction[:, :, None])[..., 0]
    if manifest.upload.scale != 1:
        scalar /= manifest.upload.scale
    attribute_weight = manifest.hyperparameters.get("lambda_attributes", np.nan)
    is_attribute = uploads.kind == ATTRIBUTE
    weight = np.where(is_attribute, attribute_weight, 1.0) if is_attribute.any() else None
    if uploads.shared:
        own_factors = factors[uploads.position[0]]
        weighted = own_factors if weight is None else own_factors * weight[0][:, None]
        pull = scalar @ weighted
    else:
        weighted_scalar = scalar if weight is None else scalar * weight
        pull = np.matmul(np.where(uploads.valid, weighted_scalar, 0)[:, None, :], factors[uploads.position])[
            :, 0
        ]
    attributes_sent = np.sum(is_attribute & uploads.valid, axis=1)
    complete = np.broadcast_to(attributes_sent == manifest.n_attributes, energy.shape)
    return _Reduced(direction, scalar, pull, energy, complete)


def _direction(
    rows: Float[np.ndarray, "users rows K"],
) -> tuple[Float[np.ndarray, "users K"], Float[np.ndarray, " users"]]:
    """Leading right singular vector of each client's rows, and the sum of their squares.

    Evenly spaced rows are enough where those have rank one to the last bit of float64; otherwise
    (noise, rounding to float32, a sample of zeros) every row counts.
    """
    stride = max(1, rows.shape[1] // SAMPLE_ROWS)
    for step in (stride, 1):
        sample = rows[:, ::step]
        gram = np.matmul(sample.transpose(0, 2, 1), sample)
        finite = np.isfinite(gram).all(axis=(1, 2))
        values, vectors = np.linalg.eigh(np.where(finite[:, None, None], gram, 0))
        second = np.abs(values[:, :-1]).max(axis=1, initial=0)
        if step == 1 or (second < 1e-14 * values[:, -1]).all():
            break
    energy = np.where(finite, step * np.maximum(values.sum(axis=1), 0), np.inf)
    return vectors[:, :, -1], energy


def _scales(
    attack: Spectral, manifest: Manifest, batch: UserBatch, reduced: list[_Reduced]
) -> Float[np.ndarray, "rounds users"]:
    """Signed-free length s of every client in every round; 0 where it is not determined."""
    scales = np.zeros((len(reduced), batch.users.size))
    if manifest.update == "semi-als" and not _open_scale(manifest):
        ridge = manifest.hyperparameters["lambda_factors"]
        for number, part in enumerate(reduced):
            square = np.einsum("uk,uk->u", part.direction, part.pull) / ridge
            scales[number] = np.sqrt(np.where(part.complete & (square > 0), square, 0))
    if manifest.update == "sgd":
        for first in range(len(reduced) - 1):
            if batch.rounds[first + 1].round == batch.rounds[first].round + 1:
                pair = _step_scales(attack, manifest, reduced[first], reduced[first + 1])
                for number, scale in zip((first, first + 1), pair, strict=True):
                    scales[number] = np.where(scale > 0, scale, scales[number])
    for first in range(len(reduced) - 1):
        open_ = (scales[first] == 0) & (scales[first + 1] == 0)
        if open_.any():
            pair = _repeat_scales(manifest, batch, reduced, first)
            scales[first] = np.where(open_, pair[0], scales[first])
            scales[first + 1] = np.where(open_, pair[1], scales[first + 1])
    if manifest.weighting == "include-unrated":
        open_ = scales.max(axis=0) == 0
        if open_.any():
            for number, part in enumerate(reduced):
                found = _unrated_scale(manifest, batch.rounds[number], part)
                scales[number] = np.where(open_, found, scales[number])
    return scales


def _unrated_scale(manifest: Manifest, uploads: Uploads, reduced: _Reduced) -> Float[np.ndarray, " users"]:
    """s from the unrated rows of one round: g = -alpha s^2 d . q on each of them."""
    predicted = manifest.hyperparameters["alpha"] * _projection(uploads, reduced.direction)
    counted = uploads.valid & (uploads.kind == ITEM) & (predicted != 0)
    square = np.where(counted, -reduced.scalar / np.where(predicted == 0, 1, predicted), np.nan)
    middle = np.zeros(square.shape[0])
    some = counted.any(axis=1) & (reduced.energy > 0)
    middle[some] = np.nanmedian(square[some], axis=1)
    return np.sqrt(np.maximum(middle, 0))


def _step_scales(
    attack: Spectral, manifest: Manifest, now: _Reduced, then: _Reduced
) -> tuple[np.ndarray, np.ndarray]:
    """s and s' from the clients' gradient step, Eq. (9) and (10)."""
    constants = manifest.hyperparameters
    none = np.zeros(now.energy.size)
    if "client_learning_rate" not in constants or "lambda_factors" not in constants:
        return none, none
    rate = constants["client_learning_rate"]
    shrink = 1 - 2 * rate * constants["lambda_factors"]
    if abs(shrink) < 1e-12:
        return none, none
    cosine = np.einsum("uk,uk->u", now.direction, then.direction)
    across = then.direction - cosine[:, None] * now.direction
    sine = np.linalg.norm(across, axis=1)
    usable = now.complete & (sine > attack.parallel) & (now.energy > 0) & (then.energy > 0)
    # split 2 gamma w = B d' - shrink A d along d and across it
    product = 2 * rate * np.einsum("uk,uk->u", now.pull, across) / np.where(usable, sine, 1) ** 2
    along = 2 * rate * np.einsum("uk,uk->u", now.pull, now.direction)
    square = (product * cosine - along) / shrink
    usable &= (square > 0) & (product != 0)
    scale = np.sqrt(np.where(usable, square, 1))
    return np.where(usable, scale, 0), np.where(usable, np.abs(product) / scale, 0)


def _repeat_scales(
    manifest: Manifest, batch: UserBatch, reduced: list[_Reduced], first: int
) -> tuple[np.ndarray, np.ndarray]:
    """s and s' from the rows whose rating or attribute is the same in two rounds."""
    none = np.zeros(batch.users.size)
    a, b = batch.rounds[first], batch.rounds[first + 1]
    same = a.index.shape == b.index.shape and (a.index == b.index).all() and (a.kind == b.kind).all()
    if not same:
        return none, none
    counted = a.valid & b.valid
    if manifest.weighting == "include-unrated":
        counted = counted & (a.kind == ATTRIBUTE)
    columns = []
    for part, uploads, sign in ((reduced[first], a, 1), (reduced[first + 1], b, -1)):
        columns += [sign * part.scalar, sign * _projection(uploads, part.direction)]
    table = np.stack(columns, axis=-1) * np.broadcast_to(counted, part.scalar.shape)[..., None]
    norm = np.linalg.norm(table, axis=1)
    table = table / np.where(norm > 0, norm, 1)[:, None, :]
    _, singular, right = np.linalg.svd(np.matmul(table.transpose(0, 2, 1), table))
    null = right[:, -1] / np.where(norm > 0, norm, 1)
    # the null vector is tau (1/s, s, 1/s', s'); a second one would leave s open
    unique = (singular[:, 2] > 1e-12 * singular[:, 0]) & (singular[:, 3] < 1e-3 * singular[:, 2])
    with np.errstate(divide="ignore", invalid="ignore"):
        square_a, square_b = null[:, 1] / null[:, 0], null[:, 3] / null[:, 2]
    usable = unique & (square_a > 0) & (square_b > 0) & np.isfinite(square_a + square_b)
    return tuple(np.sqrt(np.where(usable, square, 0)) for square in (square_a, square_b))  # type: ignore[return-value]


def _projection(uploads: Uploads, along: Float[np.ndarray, "users K"]) -> np.ndarray:
    """``along`` . t_j for the factor t_j of every row, (users, rows)."""
    factors = uploads.broadcast.factors.astype(along.dtype, copy=False)
    if uploads.shared:
        return along @ factors[uploads.position[0]].T
    return (
        np.take_along_axis(along @ factors.T, uploads.position, axis=1)
        if (factors.shape[0] <= 4 * uploads.position.shape[1])
        else np.matmul(factors[uploads.position], along[:, :, None])[..., 0]
    )


def _decode(
    manifest: Manifest, batch: UserBatch, reduced: list[_Reduced], scales: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Kind, index, value and misfit, from the round in which the client's factor is longest.

    The length of p_i is what carries the answer: an error in a row is divided by it.
    """
    best = scales.argmax(axis=0)
    if (best == best[0]).all():
        number = int(best[0])
        uploads = batch.rounds[number]
        value, misfit = _read(manifest, uploads, reduced[number], scales[number])
        return uploads.kind, uploads.index, value, misfit
    width = max(uploads.gradients.shape[1] for uploads in batch.rounds)
    shape = batch.users.size, width
    kind, index = np.zeros(shape, np.int8), np.zeros(shape, np.int32)
    value, misfit = np.full(shape, np.nan, np.float32), np.ones(batch.users.size)
    for number in np.unique(best):
        uploads = batch.rounds[number]
        here = best == number
        part, fit = _read(manifest, uploads, reduced[number], scales[number])
        rows = part.shape[1]
        kind[here, :rows] = np.broadcast_to(uploads.kind, part.shape)[here]
        index[here, :rows] = np.broadcast_to(uploads.index, part.shape)[here]
        value[here, :rows] = part[here]
        misfit[here] = fit[here]
    return kind, index, value, misfit


def _read(
    manifest: Manifest, uploads: Uploads, reduced: _Reduced, scale: np.ndarray
) -> tuple[Float[np.ndarray, "users rows"], Float[np.ndarray, " users"]]:
    """Values of one round: g / s + s d . t, or 0 where the row says "unrated"."""
    usable = np.where(scale > 0, scale, 1)[:, None]
    level = np.array(manifest.rating_levels, np.float32)
    # float32 from here on: a quarter of a star is 2^20 of its steps, and half the memory traffic
    error = np.empty(reduced.scalar.shape, np.float32)
    np.divide(reduced.scalar, usable, out=error, casting="same_kind")
    predicted = _projection(uploads, (reduced.direction * usable).astype(np.float32))
    value = error + predicted
    weight = None
    if manifest.weighting == "include-unrated":
        weight = np.float32(manifest.hyperparameters["alpha"])
    flip = _sign(value, error, predicted, uploads, weight)
    if (flip < 0).any():
        value *= flip[:, None]
        error *= flip[:, None]
        predicted *= flip[:, None]
    misfit = _misfit(error, predicted, uploads, level, weight)
    if weight is not None:
        unrated = looks_unrated(error, predicted, level, weight)
        unrated &= uploads.kind == ITEM
        value[unrated] = 0
    if not uploads.valid.all():
        value[np.broadcast_to(~uploads.valid, value.shape)] = np.nan
    return value, misfit


def _sign(
    value: np.ndarray,
    error: np.ndarray,
    predicted: np.ndarray,
    uploads: Uploads,
    weight: np.float32 | None,
) -> Float[np.ndarray, " users"]:
    """1 or -1 per client, so that attributes and ratings come out positive.

    One-hot attributes add up to the number of blocks. Where a client sent none, its ratings decide:
    their sum, in include-unrated with each row weighted by how far it is from "unrated" (0 where it
    is unrated).
    """
    is_attribute = uploads.valid & (uploads.kind == ATTRIBUTE)
    columns = np.flatnonzero(is_attribute.any(axis=0))
    total = np.sum(value[:, columns], axis=1, where=is_attribute[:, columns])
    open_ = np.flatnonzero(np.abs(total) < 0.5)
    if open_.size:
        strength = np.ones_like(value[open_])
        if weight is not None:
            strength = np.abs(error[open_] + weight * predicted[open_])
        strength *= np.broadcast_to(uploads.valid & (uploads.kind == ITEM), value.shape)[open_]
        total[open_] = np.einsum("ur,ur->u", value[open_], strength)
    return np.where(total < 0, np.float32(-1), np.float32(1))


def _misfit(
    error: np.ndarray,
    predicted: np.ndarray,
    uploads: Uploads,
    level: np.ndarray,
    weight: np.float32 | None,
) -> Float[np.ndarray, " users"]:
    """Mean distance from the grid, relative to chance; 0 is a perfect fit, 1 is chance.

    Chance is a quarter of a rating step (observed-only, where that is the larger), or what the same
    rows give when every error is paired with the next row's prediction.
    """
    stride = max(1, -(-error.shape[1] // FIT_ROWS))
    rows = slice(None, None, stride)
    error, predicted = error[:, rows], predicted[:, rows]
    item = np.broadcast_to((uploads.kind == ITEM), uploads.position.shape)[:, rows]
    valid = np.broadcast_to(uploads.valid[:, rows], error.shape)

    def mean_distance(pairing: np.ndarray) -> np.ndarray:
        value = error + pairing
        near = distance_to_levels(value, level)
        if weight is not None:
            near = np.minimum(near, np.abs(error + weight * pairing))
        flag = np.minimum(np.abs(value), np.abs(value - 1))
        near = np.where(item, near, flag) * valid
        return near.sum(axis=1) / np.maximum(valid.sum(axis=1), 1)

    fit = mean_distance(predicted)
    chance = mean_distance(np.roll(predicted, 1, axis=1))
    if weight is None:
        step = np.diff(level).min(initial=level[0]) if level.size > 1 else level[0]
        chance = np.maximum(chance, step / 4)
    return (fit / np.maximum(chance, np.float32(TINY))).astype(np.float64)
