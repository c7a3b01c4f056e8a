"""The closed form: every client's ratings and attributes by linear algebra, all clients at once.

Beyond Mai & Pang 2022 (its section 4 solves non-linear systems instead). Every row that client i uploads is a
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

References
----------
Paper 000: P. Mai, Y. Pang, "PrivMVMF: Privacy-Preserving Multi-View Matrix Factorization for Recommender
Systems", arXiv:2210.07775, Eq. (8) to (10).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from jaxtyping import Float
from scipy.special import bdtrc

from attacks.base import Progress, Reconstruction, all_abstain, silent
from attacks.client_rules.premises import unlike
from attacks.closed_form.fit.contradicted import silent_about, unless_contradicted, unless_most_fit
from attacks.closed_form.fit.goodness_of_fit import ACCIDENT
from attacks.closed_form.grid.exact_grid import unless_off
from attacks.closed_form.grid.rank_one import Limit, solve_clients
from attacks.closed_form.grid.readout import Readout
from attacks.closed_form.lowered import unless_lowered
from attacks.closed_form.uploads.reduction import NOISES, Reduced, noise_across, projection
from attacks.closed_form.uploads.undeclared_pull import as_rows_say
from attacks.closed_form.uploads.upload_kind import uploaded_otherwise
from attacks.obstacles import alpha_unknown, unreadable
from victims.transcript.manifest import Manifest
from victims.transcript.view import ATTRIBUTE, ITEM, Uploads, UserBatch, View

MEAN_OF_NORMAL = np.sqrt(2 / np.pi)  # of its absolute value, in standard deviations
UNLIKELY = 0.01  # probability of as many accidents as clients are answered
EXPLAINS = 2.0  # times the misfit that noise gives, which lengths and predictions read under noise add to


@dataclass(frozen=True)
class Spectral:
    """Hyper-parameters of the closed form.

    Attributes
    ----------
    max_misfit : float
        Abstain where the distance of the answer from the grid exceeds this share of what random
        pairing gives; ``inf`` never abstains for that reason.
    noisy_misfit : float
        The same where noise in the uploads is declared, which moves right answers off the grid, too; no more
        than the noise that a client's rows show explains.
    parallel : float
        Sine of the angle below which two directions count as parallel.
    """

    max_misfit: float = 0.25
    noisy_misfit: float = 0.5
    parallel: float = 1e-7
    name: str = "spectral"

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Solve all clients of a view."""
        options = {**asdict(self), "seed": key}
        obstacle = self._obstacle(view)
        if not obstacle:
            view, obstacle = as_rows_say(view)
        if obstacle:
            return all_abstain(self.name, view.users, obstacle, options)
        found = solve_clients(
            self.name,
            options,
            view,
            partial(factor_lengths, self, view.manifest),
            max_misfit=self._largest_misfit(view.manifest),
            no_length=_no_scale(view.manifest),
            progress=progress,
        )
        if not self._bears_noise(view.manifest):
            found = unless_most_fit(found, found.diagnostics["allowed"] <= 0)
            return unless_lowered(unless_contradicted(found, self.max_misfit), view)
        small = found.diagnostics["allowed"] < self.noisy_misfit  # noise leaves right answers near the grid
        found = unless_lowered(unless_contradicted(found, self.max_misfit, small), view)
        return _without_accidents(found, self.max_misfit)

    def _largest_misfit(self, manifest: Manifest) -> Limit:
        if self._bears_noise(manifest):
            return partial(_with_noise, self, manifest)
        return partial(unless_off, self.max_misfit, manifest)

    def _bears_noise(self, manifest: Manifest) -> bool:
        noisy = any(entry.get("name") in NOISES for entry in manifest.defenses)
        return noisy and self.noisy_misfit > self.max_misfit

    def obstacle(self, view: View) -> str:
        """Why no client of the view can be solved, or nothing."""
        return self._obstacle(view) or as_rows_say(view)[1]

    def _obstacle(self, view: View) -> str:
        """The same, but for what only rows say of a multiple of their factors."""
        reason = unreadable(view) or alpha_unknown(view)
        reason = reason or unlike(view, judges=True, own_references=True, follows=True)
        if reason:
            return reason
        if reason := uploaded_otherwise(view):
            return reason
        if view.rounds.size < 2 and view.manifest.weighting == "observed-only":
            reason = _open_scale(view.manifest)
            if reason:
                return f"{reason}: a second round is needed"
        return ""


def _with_noise(
    attack: Spectral,
    manifest: Manifest,
    batch: UserBatch,
    reduced: list[Reduced],
    scales: Float[np.ndarray, "rounds users"],
    readout: Readout,
) -> Float[np.ndarray, " users"]:
    """The largest misfit of each client: above ``max_misfit`` no more than its noise explains.

    What is off the client's direction is noise, so that its size needs no declaration; a wrong rule or scale
    moves ratings off the grid further than that.
    """
    read = scales.argmax(axis=0)
    everyone = np.arange(read.size)
    noise = np.stack([noise_across(manifest, *both) for both in zip(batch.rounds, reduced, strict=True)])
    length = scales[read, everyone]
    away = MEAN_OF_NORMAL * noise[read, everyone] / np.where(length > 0, length, np.inf)
    return np.clip(EXPLAINS * away / readout.chance, attack.max_misfit, attack.noisy_misfit)


def _without_accidents(found: Reconstruction, max_misfit: float) -> Reconstruction:
    """Without answers above ``max_misfit`` where no more clients are answered than would be by accident."""
    answered = ~np.isin(found.users, list(found.abstained))
    doubtful = answered & (found.diagnostics["misfit"] > max_misfit)
    if not doubtful.any() or bdtrc(answered.sum() - 1, answered.size, ACCIDENT) <= UNLIKELY:
        return found
    reason = (
        f"{answered.sum()} of {answered.size} clients fit the rating grid under noise, as few as by accident"
    )
    return silent_about(found, doubtful, reason)


def _open_scale(manifest: Manifest) -> str:
    """Why one round leaves the length of p_i open, or nothing."""
    if manifest.update != "semi-als":
        who = "clients that take gradient steps"
        if manifest.rule.rule is None:
            who = "clients whose rule is not declared"
        return f"one round of {who} leaves the length of their factors open"
    needed = ["lambda_factors"] + ["lambda_attributes"] * (manifest.n_attributes > 0)
    missing = [name for name in needed if name not in manifest.hyperparameters]
    if missing:
        return f"{' and '.join(missing)} are not public"
    if manifest.hyperparameters["lambda_factors"] <= 0:
        return "lambda_factors is 0, so Eq. (8) leaves the length of the client's factor open"
    return ""


def _no_scale(manifest: Manifest) -> str:
    if manifest.update == "semi-als":
        return "no length of the client's factor satisfies Eq. (8): rows are missing or perturbed"
    if manifest.update == "sgd" and _constants_of_step(manifest):
        return "no length of the client's factor satisfies Eq. (9) in two consecutive rounds"
    return "no length of the client's factor gives an item the same rating in two consecutive rounds"


def factor_lengths(
    attack: Spectral, manifest: Manifest, batch: UserBatch, reduced: list[Reduced]
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


def _unrated_scale(manifest: Manifest, uploads: Uploads, reduced: Reduced) -> Float[np.ndarray, " users"]:
    """s from the unrated rows of one round: g = -alpha s^2 d . q on each of them."""
    predicted = manifest.hyperparameters["alpha"] * projection(uploads, reduced.direction)
    counted = uploads.valid & (uploads.kind == ITEM) & (predicted != 0)
    square = np.where(counted, -reduced.scalar / np.where(predicted == 0, 1, predicted), np.nan)
    middle = np.zeros(square.shape[0])
    some = counted.any(axis=1) & (reduced.energy > 0)
    middle[some] = np.nanmedian(square[some], axis=1)
    return np.sqrt(np.maximum(middle, 0))


def _constants_of_step(manifest: Manifest) -> tuple[float, ...]:
    """gamma and lambda 2 of Eq. (9), or nothing where one is not public."""
    needed = ("client_learning_rate", "lambda_factors")
    known = manifest.hyperparameters
    return tuple(known[name] for name in needed) if known.keys() >= set(needed) else ()


def _step_scales(
    attack: Spectral, manifest: Manifest, now: Reduced, then: Reduced
) -> tuple[np.ndarray, np.ndarray]:
    """s and s' from the clients' gradient step, Eq. (9) and (10)."""
    none = np.zeros(now.energy.size)
    if not (constants := _constants_of_step(manifest)):
        return none, none
    rate, ridge = constants
    shrink = 1 - 2 * rate * ridge
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
    manifest: Manifest, batch: UserBatch, reduced: list[Reduced], first: int
) -> tuple[np.ndarray, np.ndarray]:
    """s and s' from the rows whose rating or attribute is the same in two rounds."""
    a, b = batch.rounds[first], batch.rounds[first + 1]
    width = min(a.gradients.shape[1], b.gradients.shape[1])
    counted = a.valid[:, :width] & a.same_list(b)[:, None]
    if manifest.weighting == "include-unrated":
        counted = counted & (a.kind[:, :width] == ATTRIBUTE)
    columns = []
    for part, uploads, sign in ((reduced[first], a, 1), (reduced[first + 1], b, -1)):
        pair = part.scalar, projection(uploads, part.direction)
        columns += [sign * column[:, :width] for column in pair]
    table = np.stack(columns, axis=-1) * counted[..., None]
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
