"""Which client rule the uploads follow, with what constants, by evidence: for recordings that declare none.

1. What the rows of one round may be is asked idea by idea (``attacks.identify.row_rules``): a step over all
   ratings, over minibatches or single ones; sums or means; biases of the clients; a link and its loss. The
   one with most evidence counts; where another has as much, only what both say is told, and the rest named.
2. Rows that are none of these may be several steps or passes (``attacks.identify.local_rules``).
3. Where each row tells the client's factor (``attacks.identify.factor_moves``), a known step from round to
   round is fitted to the factors.

What the rows say is held against what is declared: a wrong declaration is named, with how many clients
contradict it. No declaration of the rule takes part in finding it.

What it assumes: uploads of rated items in the clear and without noise, and the rating grid. Where few clients
can be explained it says so, and nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from attacks.closed_form.common_numbers import untold_offset
from attacks.closed_form.uploads.common_scale import MOST, common, common_scale
from attacks.closed_form.uploads.upload_kind import mismatch
from attacks.identify.factor_moves import ClientStates, Fit, fits, states_of
from attacks.identify.identification import Identification
from attacks.identify.local_rules import LocalFit, passes_fit, steps_fit
from attacks.identify.row_rules import MAX_MISFIT, RowFit, noise_fit, row_fits
from attacks.obstacles import unreadable
from victims.transcript.view import View

CLIENTS, ROUNDS = 200, 4  # that are looked at
ASKED = 40  # of them, whose rows are asked one idea after the other
LEAST_RATINGS = 4  # of clients that are looked at, if there are such
EXACT = 1e-3  # misfit of rows that are what they are taken for, up to rounding
EQUAL = 0.05  # of the evidence, by which two ideas differ that explain rows equally well
HALVED, CLEARLY = 1e-4, 10.0  # of a factor's move, and times what is left, that half steps must differ by
LOWEST = "whether ratings are learned less the lowest level: nobody's tell"
OF_STEPS = ("order", "batch_size", "local_steps")


@threadpool_limits.wrap(limits=1, user_api="blas")  # as where attacks are run (audit.experiments.answers)
def identify(view: View, *, with_noise: bool = True) -> Identification:
    """Find the clients' rule from what they upload.

    ``with_noise`` asks rows that no rule explains for a noise term, seconds, which tells nothing of a rule.
    """
    reason = unreadable(view)
    if not reason and view.manifest.weighting != "observed-only":
        reason = "rows of unrated items have a weight of their own"
    if reason:
        return Identification({}, {}, obstacle=reason)
    chosen = _sample(view)
    wrong = mismatch(chosen)
    some = _undeclared(chosen)
    missing = 0.0 if wrong is None else -wrong.missing
    states = states_of(some, missing)
    here = states.read.any(axis=0)
    n_clients, n_read = here.size, int(here.sum())
    mostly = n_read >= MOST * n_clients
    pull = some.manifest.upload.regularization + missing
    if mostly and some.manifest.rule.upload != "weights":
        pull += common(states.pull[states.read])[0] * some.manifest.upload.scale
    asked = _fewer(some, ASKED)
    offset = untold_offset(asked, MAX_MISFIT)
    rows = tuple(row_fits(asked, offset.lowered, pull))
    found = Identification({}, {}, (), n_clients, n_read, rows=rows, upload=wrong)
    explaining = [one for one in rows if one.explains]
    if explaining:
        by_rows = _by_rows(found, explaining, states, some)
        return by_rows if offset.settled else replace(by_rows, undecided=(*by_rows.undecided, LOWEST))
    if local := _local(asked, states, n_read):
        told, constants, n_read, n_clients, undecided = local
        told = {"rule": "sgd"} | told if "local_steps" in told else told
        rows = (*rows, RowFit(local.name, told, 0, n_read, n_clients, np.nan))
        return Identification(
            told, constants, (), n_clients, n_read, rows=rows, upload=wrong, undecided=undecided
        )
    if mostly:
        return _rounded(found, states, some)
    obstacle = (
        f"{n_read} of {n_clients} clients sent rows of one step that fit the rating levels, and no "
        "other rule that is known explains half of them"
    )
    if with_noise and (noisy := noise_fit(asked)):
        obstacle += (
            f", but the rows of {noisy.clients} of {noisy.looked_at} are linear in ratings, with noise, "
            "which undeclared reads"
        )
        return replace(found, rows=(*rows, noisy), obstacle=obstacle)
    return replace(found, obstacle=f"{obstacle}; attacks may read others")


def _sample(view: View) -> View:
    """Some clients, evenly spaced among those with enough ratings, in rounds that follow each other."""
    rounds = max(np.split(view.rounds, np.flatnonzero(np.diff(view.rounds) != 1) + 1), key=len)[:ROUNDS]
    seen = view.during(rounds.tolist())
    count = np.bincount(np.searchsorted(seen.users, np.concatenate(seen.messages.sender)))
    enough = np.flatnonzero(count >= LEAST_RATINGS * rounds.size)
    chosen = enough if enough.size else np.arange(count.size)
    return _fewer(seen.select(seen.users[chosen]), CLIENTS)


def _fewer(view: View, most: int) -> View:
    """Evenly spaced clients, so many at most."""
    return view.select(view.users[:: max(1, -(-view.users.size // most))])


def _undeclared(view: View) -> View:
    """The same rows with nothing declared of the rule but what they are: means stay means."""
    upload = view.manifest.rule.upload
    kept: dict[str, Any] = {
        "rule": view.manifest.rule.rule,
        "upload": upload if upload == "weights" else None,
    }
    bare = type(view.manifest.rule)(**kept)
    return view.declared(declared_rule=bare)


def _by_rows(
    found: Identification, explaining: list[RowFit], states: ClientStates, view: View
) -> Identification:
    """What the rows of single rounds say that are exact, and the factors."""
    best = max(explaining, key=lambda one: one.clients * one.nats)
    equal = [
        one
        for one in explaining
        if one.numbers == best.numbers and one.clients * one.nats >= (1 - EQUAL) * best.clients * best.nats
    ]
    rule = {
        key: value for key, value in best.rule.items() if all(one.rule.get(key) == value for one in equal)
    }
    undecided = [
        f"{key} " + " or ".join(dict.fromkeys(str(one.rule.get(key, "unknown")) for one in equal))
        for key in dict.fromkeys(key for one in equal for key in one.rule)
        if key not in rule
    ]
    n_read = max(best.clients, found.n_read)
    n_clients = found.n_clients if n_read == found.n_read else best.looked_at
    constants: dict[str, float] = {}
    if rule.get("batch_size") == "all":
        more, constants, open_ = _scales(states, best, view)
        rule, undecided = rule | more, undecided + open_
        rule.pop("local_steps", None)  # parallel rows may be several steps too short to be seen
    elif len(equal) == 1 and np.isfinite(best.scale).any():
        value, share = common(best.scale[np.isfinite(best.scale)])
        constants = {"upload_scale": value * view.manifest.upload.scale} if share >= MOST else {}
    if view.messages.reference is not None:  # all rows were computed before the client stepped
        rule = {key: value for key, value in rule.items() if key not in OF_STEPS}
    found = replace(
        found, rule=rule, constants=constants, n_read=n_read, n_clients=n_clients, undecided=tuple(undecided)
    )
    if rule.get("batch_size") in ("all", None) and rule.get("link") == "identity":
        return _moved(found, states)
    return replace(found, rule=rule | {"rule": "sgd"})


def _scales(
    states: ClientStates, best: RowFit, view: View
) -> tuple[dict[str, Any], dict[str, float], list[str]]:
    """What multiplies the rows of one step, sums or means of the client's ratings, and regularises them."""
    read = states.read
    upload = view.manifest.upload
    if read.any():
        rated, scale, pull = states.n_rated[read], states.scale[read] * upload.scale, states.pull[read]
    else:
        known = np.isfinite(best.scale)
        rated, scale, pull = best.n_rated[known], best.scale[known] * upload.scale, np.zeros(int(known.sum()))
    shared = common_scale(scale, rated)
    if shared is None:
        return {}, {}, []
    several = np.unique(rated).size > 1
    told: dict[str, Any] = {"reduction": shared.reduction} if several else {}
    open_ = [] if several else ["reduction sum or mean: all clients have as many ratings"]
    constants = {"upload_scale": shared.value}
    taken = pull * upload.scale * (rated if shared.reduction == "mean" else 1)
    more, share = common(taken)
    if share >= MOST:
        constants["upload_regularization"] = upload.regularization + more
    return told, constants, open_


def _moved(found: Identification, states: ClientStates) -> Identification:
    """With the step that moved the clients' factors from round to round."""
    tried: tuple[Fit, ...] = tuple(fits(states))
    found = replace(found, fits=tried)
    if not (tried and tried[0].share >= MOST):
        return found
    best = tried[0]
    rule = {**found.rule, "rule": best.rule} | ({} if best.rule == "semi-als" else {"start": "kept"})
    if best.rule == "semi-als" or _one_step_shows(best, states):
        rule["local_steps"] = 1
    return replace(found, rule=rule, constants={**found.constants, **best.constants})


def _one_step_shows(best: Fit, states: ClientStates) -> bool:
    """Whether two half steps in place of one would leave more of the factors than the rule does.

    They end where one does but for half the step's pace times what it lessens its own pull by, over two.
    """
    pace = 2 * best.constants.get("client_learning_rate", best.constants.get("learning_rate", 0.0))
    bend = states.bend / (states.n_rated if best.reduction == "mean" else 1.0)
    known = bend[np.isfinite(bend)]
    return bool(known.size) and pace * float(np.median(known)) / 4 > max(HALVED, CLEARLY * best.left)


def _local(asked: View, states: ClientStates, n_read: int) -> LocalFit | None:
    """Several steps or passes, unless the rows of most clients are parallel to the last digit."""
    if states.parallel.mean() >= MOST:
        return None
    return steps_fit(asked) or (passes_fit(asked) if n_read < MOST * states.users.size else None)


def _rounded(found: Identification, states: ClientStates, view: View) -> Identification:
    """Rows of one step, or one for each rating, up to rounding."""
    read = states.read
    steps, rated = states.steps[read], states.n_rated[read]
    rule: dict[str, Any] = {}
    constants: dict[str, float] = {}
    if np.mean(states.misfit[read] < EXACT) >= MOST:
        rule |= {"loss": "squared", "link": "identity"}
        if np.mean(steps == 1) >= MOST:
            rule |= {"order": "batch", "batch_size": "all"}
            more, constants, open_ = _scales(states, RowFit("", {}, 0, 0, 0, 0.0), view)
            found = replace(found, undecided=tuple(open_))
            rule |= more
        elif np.mean((steps == rated) & (steps > 1)) >= MOST:
            rule |= {"order": "per-rating", "batch_size": 1, "local_steps": 1, "rule": "sgd"}
    return _moved(replace(found, rule=rule, constants=constants), states)
