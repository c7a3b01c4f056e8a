"""From a view to parameters: what the manifest says, what some clients teach, an ascent with all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from attacks.likelihood.ascent import ascend
from attacks.likelihood.learning import FREE_PASSES, State, learn, search
from attacks.likelihood.lowered_ratings import as_learned
from attacks.likelihood.manifest_model import known_scale, law_of, ties
from attacks.likelihood.model import log_prior
from attacks.likelihood.nuisance import START, missing, settle, with_constants
from attacks.likelihood.problem import BatchCache, Parameters, carried, problem_of, start_parameters
from attacks.likelihood.starts import line, start_from_prior
from attacks.likelihood.summaries import summarise
from attacks.likelihood.upload_statistics import Size
from victims.common.seeds import Purpose, generator
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

LEAST_ODDS = 3.0  # nats by which another declaration must beat that of the recording
COARSE = 1e-3  # noise over the rows' root mean square, above which float32 rows are exact enough
OVERSTATED = 2.0  # times the noise that rows show, above which a scale that is told is not believed
OFTEN, ONCE = 1e5, 4e5  # slots x rounds that cost as much as a compilation, while learning and later
FEWEST, FEWEST_ROUNDS, ENOUGH = 64, 4, 400_000  # clients, rounds, and rows, that tell the prior
# those that learning compiles
PROGRAMS: tuple[Any, ...] = (log_prior, start_from_prior, line, ascend, summarise)


@dataclass(frozen=True)
class Preparation:
    """How views are prepared."""

    estimated: bool  # the prior is estimated from the uploads
    # scale of the noise in the units of the uploads, if the adversary knows better than the manifest
    scale: float | None
    steps: int  # newton steps of a cold start
    passes: int  # most estimates of the prior from each start; three times as many where p is free
    learners: int  # most clients on which starts of the prior are tried
    key: int  # seed
    size: Size  # of the whole view's uploads


def prepare(how: Preparation, view: View, shape_cost: float) -> tuple[BatchCache, Parameters]:
    """Make a view's batches and its parameters before anything was learned, with what the manifest says."""
    manifest, size = view.manifest, how.size
    scale = how.scale if how.scale is not None else _believed(manifest, size)
    noise = size.scale if scale is None else scale / abs(manifest.upload.scale)
    floor = max(1e-3 * size.scale, 1e-6 * size.length, 1e-12)
    model, constants = law_of(manifest, view.rounds, max(noise, floor))
    problem = problem_of(
        view,
        model,
        steps=how.steps,
        key=how.key,
        estimated=how.estimated,
        known_noise=scale is not None,
        floor=floor,
        precision=np.float32 if noise > COARSE * size.length else np.float64,
        shape_cost=shape_cost,
    )
    return BatchCache(problem), start_parameters(problem, constants)


def _believed(manifest: Manifest, size: Size) -> float | None:
    """The scale that the manifest tells, in the units of the uploads; None where rows show far less noise.

    Off their clients' directions rows are noise and nothing else. A scale that is told too large would take
    what a wrong rule or step leaves for noise, and answer by it.
    """
    scale = known_scale(manifest)
    if scale is None or scale > OVERSTATED * size.scale * abs(manifest.upload.scale):
        return None
    return scale


def _learners(how: Preparation, view: View) -> View:
    """As many clients and rounds as tell the prior."""
    rows_of_one = view.messages.n_rows / view.users.size
    enough = min(how.learners, max(FEWEST, int(ENOUGH / max(rows_of_one, 1))))
    if view.users.size > enough:
        rng = generator(how.key, Purpose.LIKELIHOOD_SAMPLE)
        view = view.select(np.sort(rng.choice(view.users, enough, replace=False)))
    n_rounds = view.rounds.size
    most = max(FEWEST_ROUNDS, int(ENOUGH * n_rounds / max(view.messages.n_rows, 1)))
    tied, linked = ties(view.manifest)
    if n_rounds <= most or not (tied or linked):
        return view
    block = np.arange(most) + (n_rounds - most) // 2  # linked: (9), (10) need rounds in a row
    places = block if linked else np.linspace(0, n_rounds - 1, most).astype(int)
    return view.during(view.rounds[places])


def settled(how: Preparation, view: View) -> tuple[View, dict[str, Any]]:
    """Add constants that the manifest lacks to a view, as far as the uploads determine them."""
    names = missing(view)
    if not names:
        return view, {}
    some = with_constants(_learners(how, view), {name: START[name] for name in names})
    found = settle(*prepare(how, some, OFTEN), names)
    determined = {name: constant.value for name, constant in found.items() if constant.determined}
    if "lambda_attributes" in found and "lambda_factors" in {*view.manifest.hyperparameters, *determined}:
        # too small to be told from 0, or about nothing: any value that fits ties as well
        determined["lambda_attributes"] = found["lambda_attributes"].value
    told = {"estimated_constants": {name: asdict(constant) for name, constant in found.items()}}
    return with_constants(view, determined), told


def learned(how: Preparation, view: View) -> tuple[BatchCache, State]:
    """Learn on some clients, then ascend with all of them.

    Noise of unknown scale hides that what is declared does not hold: it is taken for more noise. Then
    learning is tried with rows of the opposite sign, without the rule (each round's factor on its own), and
    with gradient steps of another size. Ratings less the lowest level are tried in any case.
    """
    some = _learners(how, view)
    small = some is view
    school, taught = _schooled(how, some)
    if not school.problem.known_noise:
        school, taught = _most_likely(how, some, school, taught)
        view = replace(view, manifest=school.problem.view.manifest)
    taught = as_learned(school, taught, how.passes)
    if small:
        return school, taught
    batches, start = prepare(how, view, ONCE)
    parameters = carried(batches.problem, school.problem, taught.parameters)
    del school, taught, start  # and the rows that they keep in memory
    for program in PROGRAMS:  # their shapes do not come again, and they take a gigabyte
        program.clear_cache()
    return batches, learn(batches, parameters, 2 if batches.problem.estimated else 1)


def _most_likely(how: Preparation, view: View, school: BatchCache, taught: State) -> tuple[BatchCache, State]:
    """What explains a view best: what its manifest declares, which is learned, or another declaration."""
    best, tried = view, [view.manifest]
    rivals: tuple[Callable[[View], View], ...] = (
        lambda _: _without_rule(view),
        # where noise alone explains as much no size of a step is told
        lambda _: _with_steps(how, view) if np.nansum(taught.total.evidence) > LEAST_ODDS else view,
        _reversed,
        lambda _: _reversed(view),  # whose rule may have looked wrong for its sign alone
    )
    for rival in rivals:
        candidate = rival(best)
        if candidate.manifest in tried:
            continue
        tried.append(candidate.manifest)
        other, found = _schooled(how, candidate)
        if found.evidence > taught.evidence + LEAST_ODDS:
            best, school, taught = candidate, other, found
    return school, taught


def _reversed(view: View) -> View:
    """Make the view as if its rows had the opposite sign: changes in place of gradients, say."""
    upload = view.manifest.upload
    return view.declared(upload=upload.model_copy(update={"scale": -upload.scale}))


def _without_rule(view: View) -> View:
    """Make the view as if nothing were known of how a client's factor comes about: ``ties`` finds none."""
    known = {name: x for name, x in view.manifest.hyperparameters.items() if name != "lambda_factors"}
    return view.declared(hyperparameters=known)


def _with_steps(how: Preparation, view: View) -> View:
    """Make the view as if clients took gradient steps, of a size that its uploads tell."""
    names = ("lambda_factors", "client_learning_rate")
    rule = view.manifest.rule.model_copy(update={"rule": "sgd", "start": "kept"})
    stepping = with_constants(
        view.declared(update="sgd", declared_rule=rule), {name: START[name] for name in names}
    )
    found = settle(*prepare(how, stepping, OFTEN), names)
    # all of its values that fit do as well, for rounds on their own are the alternative
    return with_constants(stepping, {name: constant.value for name, constant in found.items()})


def _schooled(how: Preparation, view: View) -> tuple[BatchCache, State]:
    """Learn on a view that is small enough to try starts of the prior."""
    batches, parameters = prepare(how, view, OFTEN)
    passes = how.passes if batches.problem.model.tied else FREE_PASSES * how.passes
    return batches, search(batches, parameters, passes)
