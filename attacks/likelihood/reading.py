"""Read all clients of a view whose constants are known: learn, then posteriors batch by batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from attacks.base import Estimates, Outcome, Progress, Reconstruction, all_abstain, joined
from attacks.likelihood.abstention import (
    at_the_bound,
    only_signs,
    too_alike,
    unless_open_by_a_level,
    unread,
    wrong_rule,
)
from attacks.likelihood.batch_cache import BatchCache
from attacks.likelihood.estimates import estimates
from attacks.likelihood.learning import State
from attacks.likelihood.manifest_model import ties
from attacks.likelihood.modes import read
from attacks.likelihood.preparation import Preparation, learned
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

OTHERWISE = "not taken as it is, for the uploads are more likely {}"
REVERSED = "as rows of the opposite sign"
STEPS = "with gradient steps of another size"
LOWERED = "as those of ratings less {:g}"
FREE = "with factors that have nothing in common from round to round"


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
