"""Empirical lower bounds of epsilon beside what is claimed and what is proved, view by view.

Part of ``audit.epsilon.claims``: from ratings planted in one run (all clients at once), and from repetitions
of the protocol (one client).
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from jaxtyping import Float

from audit.epsilon.accounts import accounts_of
from audit.epsilon.canaries import Worlds, plant, score_exact, score_final, score_noisy, worlds
from audit.epsilon.claim_cells import BOUND, NO_NOISE, Claim, recorded, trained
from audit.epsilon.lower_bounds import Bound, from_one_run, from_repetitions
from audit.epsilon.many_runs import repeat, typical_client
from audit.experiments.private_mf import VICTIM
from audit.experiments.results import Row, make_row
from audit.factories import make_defenses, make_victim
from defenses.accounting.promises import Promising
from defenses.accounting.shared_noise import epsilon_given_h
from victims.data.ratings import Ratings
from victims.transcript.view import View

VIEWS = ("all rounds", "first round", "final V")


def planted_bounds(task: Claim, ratings: Ratings, folder: Path, shared: Row) -> list[Row]:
    """Bound epsilon from below, view by view, by ratings planted in one run.

    For all canaries, and for the third of them with the smallest claims.

    References
    ----------
    Steinke, Nasr and Jagielski 2023, arXiv:2305.08846.
    """
    plan = task.plan
    canaries = plant(ratings, plan.seed)
    defenses = make_defenses(task.defense)
    both = worlds(canaries, defenses, plan.seed)
    view = recorded(task, canaries.ratings, folder / "canaries")
    rows = []
    for name in VIEWS if task.noise != NO_NOISE else ("all rounds", "final V"):
        begin = time.perf_counter()
        score = _scores(task, name, view, both, canaries.ratings)
        seconds = time.perf_counter() - begin
        found = _bound_rows(task, name, score, canaries.coin, ratings, canaries.entry, shared)
        rows += [{**row, "seconds": seconds} for row in found]
    return rows


def _scores(
    task: Claim, name: str, view: View, both: Worlds, ratings: Ratings
) -> Float[np.ndarray, " users"]:
    noisy = task.noise in ("fresh", "composed")
    if name == "final V":
        last = trained(task, ratings, task.plan.epochs)
        return score_final(np.asarray(last.state.item_factors), both)
    if name == "first round":
        first = view.during([int(view.rounds[0])])
        return score_noisy(first, both, task.plan.seed)
    return score_noisy(view, both, task.plan.seed) if noisy else score_exact(view, both)


def _bound_rows(
    task: Claim,
    view: str,
    score: Float[np.ndarray, " users"],
    coin: np.ndarray,
    ratings: Ratings,
    entry: np.ndarray,
    shared: Row,
) -> list[Row]:
    claim = _claims(task, ratings, task.plan.seed)[entry]
    groups = {"all": np.ones(claim.size, bool)}
    if claim.min() < claim.max():
        groups["smallest third"] = claim <= np.quantile(claim, 1 / 3)
    return [
        _bound_row(task, view, words, from_one_run(score[chosen], coin[chosen]), float(claim[chosen].max()),
                   ratings, shared)
        for words, chosen in groups.items()
    ]  # fmt: skip


def _bound_row(
    task: Claim, view: str, words: str, bound: Bound, claim: float, ratings: Ratings, shared: Row
) -> Row:
    """A bound beside the largest claim that it speaks of."""
    return make_row(
        **{**shared, "n_users": bound.trials},
        adversary=f"{view}, {words}",
        attack="neighbours",
        rounds=1 if view == "first round" else task.plan.rounds,
        metric=BOUND,
        value=bound.epsilon,
        ci_low=bound.epsilon,
        ci_high=float("inf"),
        baseline=claim,
        baseline_name="largest claim",
        ceiling=bound.most,
        status="ran",
        verdict=_refuted(bound.epsilon, claim),
        reason=_account(task, view, claim, ratings),
    )


def repeated_bounds(task: Claim, ratings: Ratings, folder: Path, shared: Row) -> list[Row]:
    """Bound epsilon from below, view by view, for one client's rating, by independent runs."""
    plan = task.plan
    canaries = plant(ratings, plan.seed)
    begin = time.perf_counter()
    found = repeat(
        make_victim(VICTIM, plan.victim),
        canaries,
        lambda: make_defenses(task.defense),
        folder / "repeated",
        rounds=plan.rounds,
        noisy=task.noise != "once",
        runs=task.repetitions,
        seed=plan.seed,
    )
    who = typical_client(ratings)
    words = f"client {who}, {task.repetitions} runs a world"
    seeds = range(plan.seed + 1, plan.seed + 1 + 2 * task.repetitions)
    claim = max(float(_claims(task, ratings, seed)[canaries.entry[who]]) for seed in seeds)
    seconds = time.perf_counter() - begin
    return [
        {
            **_bound_row(task, view, words, from_repetitions(found.high[view], found.low[view]), claim,
                         ratings, shared),
            "seconds": seconds,
        }
        for view in found.high
    ]  # fmt: skip


def _claims(task: Claim, ratings: Ratings, seed: int) -> Float[np.ndarray, " ratings"]:
    """The budget that each rating was promised; infinite where no defense promises any."""
    promising = [defense for defense in make_defenses(task.defense) if isinstance(defense, Promising)]
    if not promising:
        return np.full(ratings.n_ratings, np.inf)
    return promising[0].promised(ratings, seed)


def _refuted(bound: float, claim: float) -> str:
    if not np.isfinite(claim):
        return "no claim"
    return "CLAIM REFUTED" if bound > claim else "not refuted"


def _account(task: Claim, view: str, claim: float, ratings: Ratings) -> str:
    """What is proved for that view, in words: of the recommender, who knows h."""
    if task.noise == NO_NOISE:
        return "no noise"
    rounds = 1 if view == "first round" else task.plan.rounds
    defenses, victim = make_defenses(task.defense), make_victim(VICTIM, task.plan.victim)
    told = accounts_of(VICTIM, [victim], defenses, ratings, n_rounds=rounds, seed=task.plan.seed)
    (account,) = next(one.accounts for one in told if one.accounts)
    if account.unproved or view == "final V":
        return account.unproved or "nothing is proved: the proof needs V stationary and U unchanged"
    line = account.lines[-1]
    if not np.isfinite(line.at_delta):
        return f"none: {line.why}"
    share = claim / task.plan.epochs if task.noise == "composed" else claim
    raters = int(np.bincount(ratings.items, minlength=ratings.n_items).max())
    least = epsilon_given_h(share, raters, line.delta)
    size = f"{least:,.0f}" if least >= 100 else f"{least:.2g}"
    return f"delta = 0: none; delta = {line.delta:g}: {size} ({raters} raters)"
