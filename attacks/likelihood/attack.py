"""The most likely ratings and attributes behind noisy uploads, all rounds together, all clients at once.

Beyond Mai & Pang 2022, whose noise procedure averages root solutions of one round (its section 6.2): the law
of the noise is known, ratings lie on a grid, attributes are one-hot, and ratings do not change between
rounds. The attack maximises the marginal likelihood of all uploads over the client's factor and reads
each rating off its posterior (``attacks.likelihood.ascent``), with a prior that it estimates from the same
uploads (``attacks.likelihood.prior``; ``prior="flat"`` is maximum likelihood). Several starts: the
prior's mean, the leading direction of the rows with the best length on a grid; the one with the most evidence
wins, client by client. Posteriors are of that maximum and of those one rating level away
(``attacks.likelihood.modes``), and where nothing ties the factor to the ratings they are averages over what
the uploads leave open of it, its length above all (``attacks.likelihood.chains``).

What it assumes: independent Laplace noise on every coordinate; its scale is read from the manifest or
estimated. Where the same noise comes in several rounds (``attacks.closed_form.uploads.repeated_noise``) it
reads the last one alone; ``attacks.trajectory`` reads more then. Constants of the update rule, and alpha,
that the manifest lacks are estimated (``attacks.likelihood.nuisance``). Where the uploads do not determine
them, ``estimated_constants`` says so: then every round's factor is free (less is read), and without alpha it
abstains in include-unrated.
Uploads that noise alone explains as well are abstained on; where all are, and yet the rows of a client have a
direction in common (``has_structure``), it says that its model fails instead of "noise". So it
does where noise of unknown scale turns out larger along the rows' directions than off them. Where uploads
under such noise are more likely as rows of the opposite sign, without the declared rule, or with steps of
another size, they are taken so, and the option ``declared_rule`` says it; the scale of the rows
(``upload_scale``, ``reduction``) is taken as declared. Where the rows hold no noise, and the declared rule
does not make them, it abstains (``attacks.likelihood.exact_rows``). Where it makes them, with no noise to
speak of, the closed form (``attacks.closed_form.spectral`` or ``attacks.closed_form.grid.rating_grid``,
whichever answers more clients) is the maximum, and its answer is given. Rows that clients send each other are
read where they are such uploads (``attacks.likelihood.neighbours``).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.base import Estimates, Outcome, Progress, Reconstruction, all_abstain, joined, silent
from attacks.client_rules.premises import unlike
from attacks.closed_form.grid.rating_grid import Grid
from attacks.closed_form.spectral import Spectral
from attacks.closed_form.uploads.repeated_noise import CLEAN, noise_repeats
from attacks.closed_form.uploads.upload_kind import uploaded_otherwise
from attacks.likelihood.abstention import (
    at_the_bound,
    only_signs,
    too_alike,
    unless_open_by_a_level,
    unread,
    wrong_rule,
)
from attacks.likelihood.exact_rows import exact_rows
from attacks.likelihood.learning import State
from attacks.likelihood.manifest_model import ties, unmodelled
from attacks.likelihood.modes import estimates, read
from attacks.likelihood.neighbours import as_uploads, in_stars, of_neighbours, unlike_uploads
from attacks.likelihood.preparation import Preparation, learned, settled
from attacks.likelihood.problem import BatchCache
from attacks.likelihood.upload_statistics import size_up
from attacks.obstacles import alpha_unknown, entries_missing, unreadable
from victims.common.validation import at_least, one_of, or_none, require_fields
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM, View

ABSENT = "it sent nothing in the last round, which alone is read, for the noise is the same in all"
UNDETERMINED = "its evidence hardly changes from 0.001 to 1"
OTHERWISE = "not taken as it is, for the uploads are more likely {}"
REVERSED = "as rows of the opposite sign"
STEPS = "with gradient steps of another size"
LOWERED = "as those of ratings less {:g}"
FREE = "with factors that have nothing in common from round to round"


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
        """Read all clients of a view, all its rounds together."""
        options: dict[str, Any] = {**asdict(self), "seed": key}
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, view.users, obstacle, options)
        if of_neighbours(view):
            return in_stars(self._read(as_uploads(view), key, options, progress), view.manifest)
        return self._read(view, key, options, progress)

    def obstacle(self, view: View) -> str:
        """Why the uploads have no likelihood, or nothing."""
        sent, reason = view, ""
        if of_neighbours(view):
            sent, reason = as_uploads(view), unlike_uploads(view)
        reason = unreadable(sent) or unmodelled(sent.manifest) or unlike(sent) or reason
        return reason or uploaded_otherwise(sent) or entries_missing(sent)

    def _read(self, view: View, key: int, options: dict[str, Any], progress: Progress) -> Reconstruction:
        everyone = view.users
        if repeats := noise_repeats(view):  # more rounds say nothing more of it
            options["rounds_read"] = view.rounds[-1:].tolist()
            view = view.during(view.rounds[-1:])
        absent = np.setdiff1d(everyone, view.users).tolist()
        size = size_up(view)
        if repeats:
            size = size._replace(unusable=size.unusable | dict.fromkeys(absent, ABSENT))
        unusable = {int(user): reason for user, reason in size.unusable.items()}
        if size.off_share < CLEAN:
            closed = min(
                (method.attack(view, key, progress) for method in (Spectral(), Grid())),
                key=lambda found: len(found.abstained),
            )
            if len(closed.abstained) < closed.users.size:
                return _renamed(self.name, closed, options)
        elif reason := exact_rows(view, size.deviation, key):
            return all_abstain(self.name, everyone, reason, options)
        users = np.setdiff1d(view.users, list(unusable))
        if users.size == 0:
            return Reconstruction(self.name, everyone, (), unusable, options)
        usable = view.select(users) if unusable else view
        estimated = self.prior == "estimated"
        how = Preparation(estimated, self.scale, self.steps, self.passes, self.learners, key, size)
        usable, told = settled(how, usable)
        options |= told
        if obstacle := alpha_unknown(usable):
            return all_abstain(self.name, everyone, f"{obstacle}: {UNDETERMINED}", options)
        return read_all(self.name, how, usable, self.samples, everyone, options, progress)


def _renamed(name: str, closed: Reconstruction, options: dict[str, Any]) -> Reconstruction:
    """The closed form's answer as this attack's: without noise it is certain."""
    blocks = tuple(_certain(block) for block in closed.blocks)
    return Reconstruction(
        name,
        closed.users,
        blocks,
        closed.abstained,
        options,
        {},
        scope=closed.scope,
        answered_by=closed.attack,
        factors=closed.factors,
    )


def _certain(block: Estimates) -> Estimates:
    there = ~np.isnan(block.value)
    block = replace(block, probability=np.where(there, 1.0, np.nan))
    if block.rating_if_rated is None:
        return block
    return replace(block, rated_probability=np.where(there & (block.kind == ITEM), block.value > 0, np.nan))


class _Answered(NamedTuple):
    """Answers of all clients, and per client the evidence (nats), the mean norm of p_i (stars), and p_i in
    the last round; and the share of its ratings that only clipped rows tell.
    """

    blocks: tuple[Estimates, ...]
    evidence: Float[np.ndarray, " users"]
    length: Float[np.ndarray, " users"]
    factor: Float[np.ndarray, "users K"]
    clipped: Float[np.ndarray, " users"]


def read_all(
    name: str,
    how: Preparation,
    view: View,
    samples: int,
    everyone: np.ndarray,
    options: dict[str, Any],
    progress: Progress,
) -> Reconstruction:
    """Learn, then read all clients."""
    batches, state = learned(how, view)
    options = {**options, "noise": float(state.parameters.constants.noise)}
    if told := _otherwise(view.manifest, batches.problem.view.manifest, state):
        options["declared_rule"] = OTHERWISE.format(" and ".join(told))
    if reason := wrong_rule(batches.problem, state, how.size):
        return all_abstain(name, everyone, reason, options)
    found = _answered(batches, state, samples, progress)
    silent_ones, noise_alone = unread(view, found.evidence, how.key)
    outcome = Outcome.NOTHING_FOUND if noise_alone and not how.size.unusable else Outcome.ANSWERED
    heard = ~np.isin(view.users, list(silent_ones))
    signs, reason = only_signs(view.users[heard], found.clipped[heard])
    if reason:
        return all_abstain(name, everyone, reason, options)
    abstained = dict(how.size.unusable) | silent_ones | signs
    silenced = np.array(sorted(abstained), np.int64)
    for block in found.blocks:
        block.value[np.isin(block.users, silenced)] = np.nan
    if reason := too_alike(found.blocks, view.manifest):
        return all_abstain(name, everyone, reason, options)
    diagnostics = {}
    for title, values in {"evidence": found.evidence, "length": found.length}.items():
        full = np.full(everyone.size, np.nan)
        full[np.searchsorted(everyone, view.users)] = values
        diagnostics[title] = full
    factor = np.where(np.isin(view.users, silenced)[:, None], np.nan, found.factor)
    factors = joined([(view.users, np.full(view.users.size, view.rounds[-1]), factor)])
    read = Reconstruction(
        name, everyone, found.blocks, abstained, options, diagnostics, outcome=outcome, factors=factors
    )
    return read if state.parameters.constants.lowered else unless_open_by_a_level(read, view)


def _otherwise(declared: Manifest, believed: Manifest, state: State) -> list[str]:
    """What was taken otherwise than it is declared."""
    told = [REVERSED] if believed.upload != declared.upload else []
    if believed.hyperparameters != declared.hyperparameters or believed.update != declared.update:
        told.append(STEPS if any(ties(believed)) else FREE)
    if lowered := float(state.parameters.constants.lowered):
        told.append(LOWERED.format(lowered))
    return told


def _answered(batches: BatchCache, state: State, samples: int, progress: Progress) -> _Answered:
    problem = batches.problem
    n_users = problem.view.users.size
    blocks, evidence, length = [], np.zeros(n_users), np.zeros(n_users)
    factor, clipped = np.zeros((n_users, problem.view.manifest.factors)), np.zeros(n_users)
    done, lowered = 0, float(state.parameters.constants.lowered)
    for batch, start in enumerate(state.points):
        found = read(batches, state.parameters, batch, start, samples)
        count = problem.packing.sizes[batch]
        members = problem.packing.members[batch][:count]
        evidence[members] = found.evidence[:count]
        length[members] = found.length[:count]
        factor[members] = found.factor[:count]
        clipped[members] = at_the_bound(problem, batches.rows(batch), start.p, found.answers, lowered)[:count]
        blocks.append(estimates(batches, batch, found.answers))
        done += count
        progress(done, n_users)
    return _Answered(tuple(blocks), evidence, length, factor, clipped)
