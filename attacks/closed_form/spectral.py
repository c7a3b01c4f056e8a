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
P. Mai, Y. Pang, "PrivMVMF: Privacy-Preserving Multi-View Matrix Factorization for Recommender
Systems", arXiv:2210.07775, Eq. (8) to (10).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from jaxtyping import Float
from scipy.special import bdtrc

from attacks.base import Progress, Reconstruction, all_abstain, silent, silent_about
from attacks.client_rules.premises import unlike
from attacks.closed_form.common_numbers import abstain_if_lowered
from attacks.closed_form.fit.arbiter import abstain_if_contradicted, abstain_if_few_fit
from attacks.closed_form.fit.bars import BARS
from attacks.closed_form.grid.exact_grid import unless_off
from attacks.closed_form.grid.rank_one import solve_clients
from attacks.closed_form.grid.readout import Readout
from attacks.closed_form.uploads.reduction import NOISES, Reduced, noise_across, projection
from attacks.closed_form.uploads.undeclared_pull import as_rows_say
from attacks.closed_form.uploads.upload_kind import uploaded_otherwise
from attacks.obstacles import alpha_unknown, unreadable
from victims.transcript.manifest import Manifest
from victims.transcript.view import ATTRIBUTE, ITEM, Uploads, UserBatch, View

PARALLEL = 1e-7  # sine of the angle below which two directions count as parallel
HALF_NORMAL_MEAN = np.sqrt(2 / np.pi)  # of |N(0, 1)|
SIGNIFICANCE = 0.01  # of the test that more clients are answered than by chance
NOISE_FACTOR = 2.0  # times the misfit that noise gives: lengths and predictions under noise add to it


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
    parallel: float = PARALLEL
    name: str = "spectral"

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Solve all clients of a view."""
        options = {**asdict(self), "seed": key}
        view, obstacle = _declared(view)
        if obstacle:
            return all_abstain(self.name, view.users, obstacle, options)
        manifest = view.manifest
        noisy = self.noisy_misfit > self.max_misfit and any(
            defense.get("name") in NOISES for defense in manifest.defenses
        )
        answer = solve_clients(
            self.name,
            options,
            view,
            partial(factor_lengths, manifest, parallel=self.parallel),
            max_misfit=partial(_max_misfit_under_noise, self, manifest)
            if noisy
            else partial(unless_off, self.max_misfit, manifest),
            no_length=_no_length(manifest),
            progress=progress,
        )
        allowed = answer.diagnostics["allowed"]
        if not noisy:
            answer = abstain_if_few_fit(answer, allowed <= 0)
            return abstain_if_lowered(abstain_if_contradicted(answer, self.max_misfit), view)
        clear = allowed < self.noisy_misfit  # noise leaves right answers near the grid
        answer = abstain_if_lowered(abstain_if_contradicted(answer, self.max_misfit, clear), view)
        return _abstain_if_by_chance(answer, self.max_misfit)

    def obstacle(self, view: View) -> str:
        """Why no client of the view can be solved, or nothing."""
        return _declared(view)[1]


def _declared(view: View) -> tuple[View, str]:
    """The view with the regularization term that rows show, or why no client can be solved."""
    obstacle = (
        unreadable(view)
        or alpha_unknown(view)
        or unlike(view, judges=True, own_references=True, follows=True)
        or uploaded_otherwise(view)
    )
    if not obstacle and view.rounds.size < 2 and view.manifest.weighting == "observed-only":
        reason = _why_length_open(view.manifest)
        obstacle = f"{reason}: a second round is needed" if reason else ""
    return (view, obstacle) if obstacle else as_rows_say(view)


def _max_misfit_under_noise(
    attack: Spectral,
    manifest: Manifest,
    batch: UserBatch,
    reduced: list[Reduced],
    lengths: Float[np.ndarray, "rounds users"],
    readout: Readout,
) -> Float[np.ndarray, " users"]:
    """The largest misfit of each client: above ``max_misfit`` no more than its noise explains.

    What is off the client's direction is noise, so that its size needs no declaration; a wrong rule or scale
    moves ratings off the grid further than that.
    """
    round_ = lengths.argmax(axis=0)
    user = np.arange(round_.size)
    noise = np.stack([noise_across(manifest, *both) for both in zip(batch.rounds, reduced, strict=True)])
    length = lengths[round_, user]
    error = HALF_NORMAL_MEAN * noise[round_, user] / np.where(length > 0, length, np.inf)
    return np.clip(NOISE_FACTOR * error / readout.chance, attack.max_misfit, attack.noisy_misfit)


def _abstain_if_by_chance(answer: Reconstruction, max_misfit: float) -> Reconstruction:
    """Abstain above ``max_misfit`` where no more clients are answered than would be by chance."""
    answered = ~np.isin(answer.users, list(answer.abstained))
    doubtful = answered & (answer.diagnostics["misfit"] > max_misfit)
    if not doubtful.any() or bdtrc(answered.sum() - 1, answered.size, BARS.accident) <= SIGNIFICANCE:
        return answer
    reason = (
        f"{answered.sum()} of {answered.size} clients fit the rating grid under noise, as few as by accident"
    )
    return silent_about(answer, doubtful, reason)


def _why_length_open(manifest: Manifest) -> str:
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


def _no_length(manifest: Manifest) -> str:
    """Why no length was found for a client."""
    if manifest.update == "semi-als":
        return "no length of the client's factor satisfies Eq. (8): rows are missing or perturbed"
    if manifest.update == "sgd" and _step_constants(manifest):
        return "no length of the client's factor satisfies Eq. (9) in two consecutive rounds"
    return "no length of the client's factor gives an item the same rating in two consecutive rounds"


def factor_lengths(
    manifest: Manifest, batch: UserBatch, reduced: list[Reduced], *, parallel: float = PARALLEL
) -> Float[np.ndarray, "rounds users"]:
    """The length |s| of every client's factor in every round; 0 where it is not identifiable."""
    lengths = np.zeros((len(reduced), batch.users.size))
    if manifest.update == "semi-als" and not _why_length_open(manifest):
        ridge = manifest.hyperparameters["lambda_factors"]
        for number, part in enumerate(reduced):
            square = np.einsum("uk,uk->u", part.direction, part.pull) / ridge
            lengths[number] = np.sqrt(np.where(part.complete & (square > 0), square, 0))
    if manifest.update == "sgd":
        for first in range(len(reduced) - 1):
            if batch.rounds[first + 1].round == batch.rounds[first].round + 1:
                pair = _lengths_from_gradient_step(manifest, reduced[first], reduced[first + 1], parallel)
                for number, length in zip((first, first + 1), pair, strict=True):
                    lengths[number] = np.where(length > 0, length, lengths[number])
    for first in range(len(reduced) - 1):
        open_ = (lengths[first] == 0) & (lengths[first + 1] == 0)
        if open_.any():
            pair = _lengths_from_repeated_ratings(manifest, batch, reduced, first)
            lengths[first] = np.where(open_, pair[0], lengths[first])
            lengths[first + 1] = np.where(open_, pair[1], lengths[first + 1])
    if manifest.weighting == "include-unrated":
        open_ = lengths.max(axis=0) == 0
        if open_.any():
            for number, part in enumerate(reduced):
                length = _length_from_unrated_rows(manifest, batch.rounds[number], part)
                lengths[number] = np.where(open_, length, lengths[number])
    return lengths


def _length_from_unrated_rows(
    manifest: Manifest, uploads: Uploads, reduced: Reduced
) -> Float[np.ndarray, " users"]:
    """s from the unrated rows of one round: g = -alpha s^2 d . q on each of them."""
    predicted = manifest.hyperparameters["alpha"] * projection(uploads, reduced.direction)
    counted = uploads.valid & (uploads.kind == ITEM) & (predicted != 0)
    square = np.where(counted, -reduced.scalar / np.where(predicted == 0, 1, predicted), np.nan)
    middle = np.zeros(square.shape[0])
    some = counted.any(axis=1) & (reduced.energy > 0)
    middle[some] = np.nanmedian(square[some], axis=1)
    return np.sqrt(np.maximum(middle, 0))


def _step_constants(manifest: Manifest) -> tuple[float, ...]:
    """gamma and lambda 2 of Eq. (9), or nothing where one is not public."""
    needed = ("client_learning_rate", "lambda_factors")
    known = manifest.hyperparameters
    return tuple(known[name] for name in needed) if known.keys() >= set(needed) else ()


def _lengths_from_gradient_step(
    manifest: Manifest, first: Reduced, second: Reduced, parallel: float
) -> tuple[np.ndarray, np.ndarray]:
    """s and s' from the clients' gradient step, Eq. (9) and (10)."""
    none = np.zeros(first.energy.size)
    if not (constants := _step_constants(manifest)):
        return none, none
    rate, ridge = constants
    shrink = 1 - 2 * rate * ridge
    if abs(shrink) < 1e-12:
        return none, none
    cosine = np.einsum("uk,uk->u", first.direction, second.direction)
    across = second.direction - cosine[:, None] * first.direction
    sine = np.linalg.norm(across, axis=1)
    usable = first.complete & (sine > parallel) & (first.energy > 0) & (second.energy > 0)
    # split 2 gamma w = B d' - shrink A d along d and across it
    product = 2 * rate * np.einsum("uk,uk->u", first.pull, across) / np.where(usable, sine, 1) ** 2
    along = 2 * rate * np.einsum("uk,uk->u", first.pull, first.direction)
    square = (product * cosine - along) / shrink
    usable &= (square > 0) & (product != 0)
    scale = np.sqrt(np.where(usable, square, 1))
    return np.where(usable, scale, 0), np.where(usable, np.abs(product) / scale, 0)


def _lengths_from_repeated_ratings(
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
