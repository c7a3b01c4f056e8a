"""A claimed epsilon against what the recommender sees: paper 002's protocols, three readings of the noise.

Behind ``factorleak claims``. A cell is one protocol and reading of the noise: the recommender's transcript is
recorded and attacked (``trajectory``), and so is what a fellow client sees, V of every round (``aggregate``);
a second one with planted canaries gives the empirical lower bound of epsilon view by view
(``audit.epsilon.canaries``, ``audit.epsilon.lower_bounds``), and training to the end gives the recommender's
error. A cell of repetitions gives a second bound, of one client's rating (``audit.epsilon.many_runs``). The
claim of a rating is its budget; a bound above the largest claim refutes it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from audit.epsilon.claim_bounds import planted_bounds, repeated_bounds
from audit.epsilon.claim_cells import Claim, cells_of, recorded, tasks_of, trained
from audit.epsilon.many_runs import typical_client
from audit.experiments.answers import answered
from audit.experiments.experiment import Experiment
from audit.experiments.grid import Cell, Procedure, Say, only_ratings
from audit.experiments.metric_rows import metric_rows
from audit.experiments.options import check
from audit.experiments.plan import Claims
from audit.experiments.plan_rules import each_once, refuse_said_elsewhere, refuse_too_many
from audit.experiments.private_mf import TESTED, VICTIM
from audit.experiments.results import Row, make_row
from audit.factories import make_attack, make_defenses, make_victim
from audit.scoring.ceiling import Ceiling
from audit.scoring.truth import Truth, read_truth
from defenses.accounting.budgets import Specification, budgets, draw
from victims.common.errors import InputError
from victims.common.files import remove
from victims.data.movielens_files import published_split
from victims.data.ratings import Ratings
from victims.data.subsets import leave_out
from victims.evaluation.rating_error import predictions
from victims.training import sent_rows
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript


def settled(plan: Claims) -> Claims:
    """Check the numbers and options of a plan."""
    check(plan, "claims")
    refuse_said_elsewhere("claims", plan.victim_options, epochs="epochs")
    plan = replace(
        plan,
        protocols=each_once(plan.protocols),
        noises=each_once(plan.noises),
        epsilons=each_once(map(float, plan.epsilons)),
    )
    refuse_too_many(
        "claims",
        protocols=plan.protocols,
        noises=plan.noises,
        epsilons=plan.epsilons,
        bounds=range(1 + bool(plan.repetitions)),
    )
    if not 2 <= plan.rounds <= plan.epochs:
        raise InputError(
            f"rounds of claims must be between 2 and the {plan.epochs} epochs, got {plan.rounds}; watch "
            "fewer, or train longer"
        )
    for task in tasks_of(plan, n_users=0):
        make_defenses(task.defense)
    make_victim(VICTIM, plan.victim)
    return plan


def budget_quantiles(epsilon: float, ratings: Ratings, seed: int) -> dict[str, list[float]]:
    """Compute quantiles 0, 1/4, 1/2, 3/4 and 1 of the budgets of users and items, and of ratings.

    References
    ----------
    Paper 002, arXiv:2212.00306, Table 2.
    """
    specification = Specification(epsilon=epsilon)
    weights = draw(specification, ratings, seed)
    parts = {
        "users": epsilon * weights.user,
        "items": epsilon * weights.item,
        "ratings": budgets(specification, ratings, seed),
    }
    return {name: np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist() for name, values in parts.items()}


def _measure(cell: Cell[Claim], ratings: Ratings, say: Say) -> list[Row]:
    task, (folder,) = cell.task, cell.scratch
    say(f"{task.protocol}, noise {task.noise}")
    rows: list[Row] = []
    try:
        planted = (planted_bounds,) if task.plan.bounds else ()
        for measured in (repeated_bounds,) if task.repetitions else (held_out_error, _leak, *planted):
            remove(folder)
            rows += measured(task, ratings, folder, task.columns())
    except InputError as error:  # diverged, say
        rows += task.failed(error)
    return rows


EXPERIMENT = Experiment(settled, cells_of, Procedure(only_ratings, _measure, Claim.failed))
run = EXPERIMENT.run


def held_out_error(task: Claim, ratings: Ratings, folder: Path, shared: Row) -> list[Row]:
    """Measure the held-out error of the same system, trained to the end."""
    plan = task.plan
    begin = time.perf_counter()
    train, test = published_split(plan.source or plan.data, ratings) or leave_out(ratings, TESTED, plan.seed)
    away = predictions(trained(task, train, plan.epochs), test) - test.values
    mean = train.values.mean() - test.values
    return [
        make_row(
            **shared,
            metric="mse",
            rounds=plan.epochs,
            value=float(np.mean(away**2)),
            baseline=float(np.mean(mean**2)),
            baseline_name="training mean",
            status="ran",
            seconds=time.perf_counter() - begin,
        )
    ]


def _leak(task: Claim, ratings: Ratings, folder: Path, shared: Row) -> list[Row]:
    """What the attacks read of all recorded rounds."""
    plan = task.plan
    view = recorded(task, ratings, folder / "leak")
    truth = read_truth(truth_path(folder / "leak"))
    limits = (
        {"rated_rating_accuracy": told_ceiling(task, ratings)}
        if task.noise in ("fresh", "composed")
        else None
    )
    rows = []
    for name in task.system.attacks:
        begin = time.perf_counter()
        found = answered(name, None, view, plan.seed)
        here = {**shared, "adversary": "server", "attack": name, "rounds": plan.rounds}
        here.pop("n_users")
        seconds = time.perf_counter() - begin
        scored = metric_rows(here, found, view.manifest, truth, ceilings=limits)
        rows += [{**row, "seconds": seconds} for row in scored]
    return [*rows, *read_by_a_fellow(task, ratings, folder / "leak", truth, shared)]


def read_by_a_fellow(task: Claim, ratings: Ratings, path: Path, truth: Truth, shared: Row) -> list[Row]:
    """What another client reads: the typical one, of V in all rounds and its own uploads."""
    adversary = f"client:{typical_client(ratings)}"
    view = open_transcript(path).view(adversary)
    begin = time.perf_counter()
    found = make_attack("aggregate").attack(view, task.plan.seed)
    here = {**shared, "adversary": adversary, "attack": "aggregate", "rounds": task.plan.rounds}
    here.pop("n_users")
    seconds = time.perf_counter() - begin
    return [{**row, "seconds": seconds} for row in metric_rows(here, found, view.manifest, truth)]


def told_ceiling(task: Claim, ratings: Ratings) -> Ceiling:
    """Count the ratings that a decoder reads which is told W, the clients' factors and the levels' shares."""
    plan = task.plan
    now = trained(task, ratings, 0)
    held, levels = now.ratings, np.array(ratings.levels)
    everybody = np.arange(ratings.n_users)
    above, below = np.zeros(held.n_ratings), np.zeros(held.n_ratings)
    for number in range(plan.rounds):
        scale = sum(
            known**2
            for defense in now.defenses
            if (known := defense.noise_scale(held, now.state.item_factors.shape[1], number, plan.seed))
            is not None
        )
        u = now.user_factors(number)[held.users]
        parts = list(sent_rows(now, everybody, number))
        rows = np.concatenate([rows_sent.gradient for rows_sent in parts])
        met = [rows_sent.reference for rows_sent in parts if rows_sent.reference is not None]
        v = np.concatenate(met) if met else now.victim.broadcast(now.state)[0][held.items]
        weight = 1 / np.asarray(scale)[held.items]
        rest = 2 * np.einsum("rk,rk->r", u, v)[:, None] * u - rows  # 2 s u, and noise
        above += np.einsum("rk,rk->r", rest * weight, 2 * u)
        below += np.einsum("rk,rk->r", weight, 4 * u**2)
        now = now.trained(number)
    name = ratings.users.astype(np.int64) * ratings.n_items + ratings.items
    whole = np.searchsorted(name, held.users.astype(np.int64) * ratings.n_items + held.items)
    actual = ratings.values[whole]
    stretch = held.values / actual
    share = np.array([np.mean(ratings.values == level) for level in levels])
    expected = stretch[:, None] * levels
    score = -0.5 * below[:, None] * ((above / below)[:, None] - expected) ** 2
    right = [np.where(ratings.values == levels[share.argmax()], 1.0, 0.0) for _ in range(2)]
    for number, prior in enumerate((0.0, np.log(np.maximum(share, 1e-12)))):
        right[number][whole] = levels[(score + prior).argmax(axis=1)] == actual
    return Ceiling(everybody, *(_over_ratings(part, ratings) for part in right))


def _over_ratings(values: Float[np.ndarray, " ratings"], ratings: Ratings) -> Float[np.ndarray, " users"]:
    counts = np.diff(ratings.indptr)
    return np.bincount(ratings.users, values, ratings.n_users) / counts
