"""The most likely ratings and attributes behind noisy uploads, all rounds together, all clients at once.

Beyond paper 000, whose noise procedure averages root solutions of one round (its section 6.2): the law of
the noise is known, ratings lie on a grid, attributes are one-hot, and ratings do not change between
rounds. The attack maximises the marginal likelihood of all uploads over the client's factor and reads
each rating off its posterior (``attacks.likelihood.rating_posterior``), with a prior that it estimates from
the same uploads (``attacks.likelihood.prior``; ``prior="flat"`` is maximum likelihood). Several starts: the
prior's mean, the leading direction of the rows with the best length on a grid; the one with the most evidence
wins, client by client. Posteriors are of that maximum and of those one rating level away
(``attacks.likelihood.modes``).

What it assumes: independent Laplace noise on every coordinate, drawn afresh in each round; its scale is
read from the manifest or estimated. Constants of the update rule, and alpha, that the manifest lacks are
estimated (``attacks.likelihood.nuisance``). Where the uploads do not determine them, ``estimated_constants``
says so: then every round's factor is free (less is read), and without alpha it abstains in include-unrated.
Uploads that noise alone explains as well are abstained on; where all are, and yet the rows of a client have a
direction in common (``attacks.likelihood.sign_test``), it says that its model fails instead of "noise". So it
does where noise of unknown scale turns out larger along the rows' directions than off them. Where the rows
have no noise to speak of, the closed form (``attacks.closed_form.spectral``, else
``attacks.closed_form.rating_grid``) is the maximum, and its answer is given.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from attacks.base import (
    Estimates,
    Outcome,
    Progress,
    Reconstruction,
    all_abstain,
    alpha_unknown,
    silent,
    unreadable,
)
from attacks.client_rules.premises import unlike
from attacks.closed_form.rating_grid import Grid
from attacks.closed_form.spectral import Spectral
from attacks.likelihood.hyperparameters import Job, State, carried, estimates, learn, new_job, search
from attacks.likelihood.manifest_model import known_scale, law_of, noise_law, ties, unmodelled
from attacks.likelihood.modes import read
from attacks.likelihood.nuisance import START, missing, settle, with_constants
from attacks.likelihood.sign_test import has_structure
from victims.common.seeds import Purpose, generator
from victims.common.validation import at_least, one_of, or_none, require_fields
from victims.transcript.view import ITEM, View

CLEAN = 1e-5  # rows whose part off their leading direction is below this share have no noise
COARSE = 1e-3  # noise over the rows' root mean square, above which float32 rows are exact enough
OFTEN, ONCE = 1e5, 4e5  # slots x rounds that cost as much as a compilation, while learning and later
FEWEST, FEWEST_ROUNDS, ENOUGH = 64, 4, 400_000  # clients, rounds, and rows, that tell the prior
UNDETERMINED = "its evidence hardly changes from 0.001 to 1"
UNEXPLAINED = (
    "the rows of a client have a direction in common, and no ratings explain them: the clients' rule is not "
    "the declared one"
)
APPROXIMATE = 0.05  # share of noise of known scale that the model's approximations may add to it
ALONG = 2.0  # times the noise off the rows' directions that noise along them may have
LEAST_ODDS = 3.0  # nats by which the model must beat noise alone, over all clients


@dataclass(frozen=True)
class Likelihood:
    """Hyper-parameters of the attack.

    Attributes
    ----------
    prior : "estimated" or "flat"
        Maximum a posteriori with a prior estimated from the uploads, or maximum likelihood.
    scale : float or None
        Laplace scale b of the uploads, if the adversary knows better than the manifest.
    steps : int
        Newton steps of a cold start; later passes take a third of them.
    passes : int
        Most estimates of the prior from each start; three times as many where p is free, for they converge
        slowly. The best start goes on until next to nothing is gained.
    learners : int
        Most clients on which starts of the prior are tried; fewer, and fewer rounds, where each one has
        many rows.
    samples : int
        Draws of the client's factor over which posteriors are averaged.
    """

    prior: Literal["estimated", "flat"] = "estimated"
    scale: float | None = None
    steps: int = 30
    passes: int = 4
    learners: int = 256
    samples: int = 12
    name: str = "likelihood"

    def __post_init__(self) -> None:
        require_fields(
            self,
            "likelihood",
            prior=one_of("estimated", "flat"),
            scale=or_none(at_least(0)),
            steps=at_least(3),
            passes=at_least(1),
            learners=at_least(1),
            samples=at_least(1),
        )

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Read all clients of a view, all its rounds together.

        Parameters
        ----------
        view : View
        key : int
            Seed of the draws and of the choice of learners.
        progress : callable

        Returns
        -------
        Reconstruction
            ``value`` is the most probable rating (0 for unrated) or the probability that an attribute is
            active; ``probability`` that the rounded value is right; of items also the median rating, and
            in include-unrated the probability that the item is rated and its rating if it is. Diagnostics:
            ``evidence`` against noise alone (nats) and ``length`` (mean norm of p_i, stars).
        """
        options: dict[str, Any] = {**asdict(self), "seed": key}
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, view.users, obstacle, options)
        size = size_up(view)
        unusable = {int(user): reason for user, reason in size.unusable.items()}
        if size.off_share < CLEAN:
            for method in (Spectral(), Grid()):
                closed = method.attack(view, key, progress)
                if len(closed.abstained) < closed.users.size:
                    return _renamed(self.name, closed, options)
        users = np.setdiff1d(view.users, list(unusable))
        if users.size == 0:
            return Reconstruction(self.name, view.users, (), unusable, options)
        usable = view.select(users) if unusable else view
        usable, told = _settled(self, usable, size, key)
        options |= told
        obstacle = alpha_unknown(usable)
        if obstacle:
            return all_abstain(self.name, view.users, f"{obstacle}: {UNDETERMINED}", options)
        return _run(self, usable, size, view.users, options, progress)

    def obstacle(self, view: View) -> str:
        """Why the uploads have no likelihood, or nothing."""
        return unreadable(view) or unmodelled(view.manifest) or unlike(view)


def _renamed(name: str, closed: Reconstruction, options: dict[str, Any]) -> Reconstruction:
    """The closed form's answer as this attack's: without noise it is certain."""
    blocks = tuple(_certain(block) for block in closed.blocks)
    return Reconstruction(
        name, closed.users, blocks, closed.abstained, options, {}, answered_by=closed.attack
    )


def _certain(block: Estimates) -> Estimates:
    there = ~np.isnan(block.value)
    block = replace(block, probability=np.where(there, 1.0, np.nan))
    if block.rating_if_rated is None:
        return block
    return replace(block, rated_probability=np.where(there & (block.kind == ITEM), block.value > 0, np.nan))


class Size(NamedTuple):
    """off_share: root of the rows' energy off their leading direction, over all of it; scale: of noise of
    the manifest's law that would be this part; length: root mean square of the coordinates; unusable: clients
    that no attack can read, and why. Scale and length are in stars squared."""

    off_share: float
    scale: float
    length: float
    unusable: dict[int, str]


def size_up(view: View) -> Size:
    """Scale of the noise and of the rows, before anything is decoded."""
    off = energy = freedom = 0.0
    unusable = {}
    k = view.manifest.factors
    for batch in view.batches():
        for uploads in batch.rounds:
            rows = uploads.gradients.astype(np.float64)
            if view.manifest.upload.regularization != 0:
                own = uploads.factors[uploads.at] * view.manifest.upload.regularization
                rows = np.where(uploads.valid[..., None], rows - own, 0)
            with np.errstate(over="ignore", invalid="ignore"):
                gram = np.matmul(rows.transpose(0, 2, 1), rows)
            finite = np.isfinite(gram).all(axis=(1, 2)) & (np.abs(gram).max(axis=(1, 2)) < 1e200)
            values = np.linalg.eigvalsh(np.where(finite[:, None, None], gram, 0))
            total = values.sum(axis=1)
            for user in batch.users[~finite]:
                unusable[int(user)] = "the uploaded numbers are too large to square"
            count = np.broadcast_to(uploads.valid, rows.shape[:2]).sum(axis=1)
            off += float(np.maximum(total - values[:, -1], 0).sum())
            energy += float(total.sum())
            freedom += float((np.maximum(count[finite] - 1, 0) * (k - 1)).sum())
    if energy == 0:
        unusable |= {
            int(user): "all uploaded rows are zero" for user in view.users if int(user) not in unusable
        }
    variance = off / freedom if freedom else energy / max(view.messages.n_rows * k, 1)
    unit = abs(view.manifest.upload.scale)
    scale = noise_law(view.manifest).scale_of_variance(variance) / unit
    length = float(np.sqrt(energy / max(view.messages.n_rows * k, 1))) / unit
    share = float(np.sqrt(off / energy)) if energy and freedom else (1.0 if energy else 0.0)
    return Size(share, scale, length, unusable)


def _prepare(attack: Likelihood, view: View, size: Size, key: int, worth: float) -> Job:
    """A job before anything was learned, with what the manifest says."""
    manifest = view.manifest
    scale = attack.scale if attack.scale is not None else known_scale(manifest)
    noise = size.scale if scale is None else scale / abs(manifest.upload.scale)
    floor = max(1e-3 * size.scale, 1e-6 * size.length, 1e-12)
    layer, constants = law_of(manifest, view.rounds, max(noise, floor))
    return new_job(
        view,
        layer,
        constants,
        steps=attack.steps,
        key=key,
        estimated=attack.prior == "estimated",
        known_noise=scale is not None,
        floor=floor,
        precision=np.float32 if noise > COARSE * size.length else np.float64,
        worth=worth,
    )


def _learners(attack: Likelihood, view: View, key: int) -> View:
    """As many clients and rounds as tell the prior."""
    rows_of_one = view.messages.n_rows / view.users.size
    enough = min(attack.learners, max(FEWEST, int(ENOUGH / max(rows_of_one, 1))))
    if view.users.size > enough:
        rng = generator(key, Purpose.LIKELIHOOD_SAMPLE)
        view = view.select(np.sort(rng.choice(view.users, enough, replace=False)))
    n_rounds = view.rounds.size
    most = max(FEWEST_ROUNDS, int(ENOUGH * n_rounds / max(view.messages.n_rows, 1)))
    tied, linked = ties(view.manifest)
    if n_rounds <= most or not (tied or linked):
        return view
    block = np.arange(most) + (n_rounds - most) // 2  # linked: (9), (10) need rounds in a row
    places = block if linked else np.linspace(0, n_rounds - 1, most).astype(int)
    return view.during(view.rounds[places])


def _settled(attack: Likelihood, view: View, size: Size, key: int) -> tuple[View, dict[str, Any]]:
    """The view with constants that its manifest lacks, as far as the uploads determine them."""
    names = missing(view)
    if not names:
        return view, {}
    some = with_constants(_learners(attack, view, key), {name: START[name] for name in names})
    found = settle(_prepare(attack, some, size, key, OFTEN), names)
    determined = {name: constant.value for name, constant in found.items() if constant.determined}
    if "lambda_attributes" in found and "lambda_factors" in {*view.manifest.hyperparameters, *determined}:
        # too small to be told from 0, or about nothing: any value that fits ties as well
        determined["lambda_attributes"] = found["lambda_attributes"].value
    told = {"estimated_constants": {name: asdict(constant) for name, constant in found.items()}}
    return with_constants(view, determined), told


def _schooled(attack: Likelihood, view: View, size: Size, key: int) -> State:
    """A view that is small enough to try starts of the prior."""
    job = _prepare(attack, view, size, key, OFTEN)
    return search(job, attack.passes if job.layer.tied else 3 * attack.passes)


def _learned(attack: Likelihood, view: View, size: Size, key: int) -> State:
    """Learn on some clients, then climb with all of them."""
    some = _learners(attack, view, key)
    if some is view:
        return _schooled(attack, view, size, key)
    school = _schooled(attack, some, size, key)
    job = carried(_prepare(attack, view, size, key, ONCE), school.job)
    del school  # and the rows that it keeps in memory
    jax.clear_caches()  # its shapes do not come again, and their programs take a gigabyte
    return learn(job, 2 if job.estimated else 1)


def _run(
    attack: Likelihood,
    view: View,
    size: Size,
    everyone: np.ndarray,
    options: dict[str, Any],
    progress: Progress,
) -> Reconstruction:
    """Learn, then read all clients."""
    key = options["seed"]
    state = _learned(attack, view, size, key)
    job, noise = state.job, float(state.job.constants.noise)
    if reason := _wrong_rule(state, size):
        return all_abstain(attack.name, everyone, reason, {**options, "noise": noise})
    n_users = view.users.size
    blocks, evidence, length = [], np.zeros(n_users), np.zeros(n_users)
    done = 0
    for number, start in enumerate(state.points):
        found = read(job, number, start, attack.samples)
        count = job.packing.sizes[number]
        members = job.packing.members[number][:count]
        evidence[members] = found.evidence[:count]
        length[members] = found.length[:count]
        blocks.append(estimates(job, number, found.answers))
        done += count
        progress(done, n_users)
    options = options | {"noise": noise}
    silent_ones, noise_alone = _silent(view, evidence, key)
    outcome = Outcome.NOTHING_FOUND if noise_alone and not size.unusable else Outcome.ANSWERED
    abstained = dict(size.unusable) | silent_ones
    silenced = np.array(sorted(abstained), np.int64)
    for block in blocks:
        block.value[np.isin(block.users, silenced)] = np.nan
    diagnostics = {}
    for name, values in {"evidence": evidence, "length": length}.items():
        full = np.full(everyone.size, np.nan)
        full[np.searchsorted(everyone, view.users)] = values
        diagnostics[name] = full
    return Reconstruction(
        attack.name, everyone, tuple(blocks), abstained, options, diagnostics, outcome=outcome
    )


def _wrong_rule(state: State, size: Size) -> str:
    """Why what the fit leaves is more than noise, or nothing.

    Answers of a rule that does not hold leave signal along the clients' directions. Noise of a known scale
    leaves itself, but for five standard errors of its mean size (that of Laplace and normal noise is at most
    its scale over the root of the number of coordinates) and a twentieth for what the model approximates; of
    an unknown one, what lies off the directions, whose law is not known either.
    """
    left, b = state.residual, float(state.job.constants.noise)
    allowed = 1 + APPROXIMATE + 5 / np.sqrt(max(float(state.total.coordinates), 1.0))
    if state.job.known_noise and left > allowed * b:
        return (
            f"the fit leaves {left:.2g} where noise of the declared scale leaves {b:.2g}: the clients' rule, "
            "or the scale, is not the declared one"
        )
    if not state.job.known_noise and left > ALONG * max(size.scale, state.job.floor):
        return (
            f"the fit leaves {left:.2g} along the clients' directions and {size.scale:.2g} off them, and "
            "noise would leave as much: the clients' rule is not the declared one"
        )
    return ""


def _silent(view: View, evidence: np.ndarray, key: int) -> tuple[dict[int, str], bool]:
    """Clients without an answer, and why; and whether that says that there is nothing in their uploads.

    It does where the model explains the uploads of others, and where all of them are noise to a test that
    knows no model.
    """
    users = view.users
    if float(np.sum(evidence, where=np.isfinite(evidence))) > LEAST_ODDS:
        quiet = users[~(evidence > -LEAST_ODDS)].tolist()
        return dict.fromkeys(
            quiet, "noise alone explains this client's uploads better than any rating does"
        ), bool(quiet)
    if has_structure(view, generator(key, Purpose.SIGN_FLIPS)):
        return dict.fromkeys(users.tolist(), UNEXPLAINED), False
    return dict.fromkeys(
        users.tolist(), "the uploads of all clients together cannot be told from noise alone"
    ), True
