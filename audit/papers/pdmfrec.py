"""Prediction error among neighbours: Duriakova et al. 2019, Table 2, and the error against rounds.

Behind ``papers predict --victim pdmfrec``. Ratings are cut into five random equal parts, three to train
on, one to choose by, one to measure on, in five rotations. A cell trains one method at one learning rate
and measures after the given rounds, beside the mean of the training ratings; which rate, and after how many
rounds, is chosen by the validation MAE alone (``chosen``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from audit.code_identity import code_used
from audit.experiments.cells import Cell, Procedure, Say, cell_path, content_of, only_ratings
from audit.experiments.options import check, each_once, refuse_said_elsewhere, refuse_too_many
from audit.experiments.results import Row, make_row
from audit.experiments.rows import failed_row
from audit.experiments.runner import Experiment
from audit.factories import make_victim
from audit.papers.plans import PEER_METHODS, PEER_RATES, PartsPlan
from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.data.subsets import rotations
from victims.protocols.base import Predictor, Products, Victim
from victims.training import start

VICTIM, PMF = "pdmfrec", "pmf"
THING = "a prediction with pdmfrec"


def victim_of(plan: PartsPlan, method: str, rate: float) -> Victim:
    """The victim of a method; of ``pmf`` the one whose loss it has."""
    options = {**plan.victim_options, "learning_rate": rate}
    return make_victim(VICTIM, options | ({"variant": PEER_METHODS[method]} if PEER_METHODS[method] else {}))


@dataclass(frozen=True)
class Training:
    """The task of a cell: a method at one rate in one rotation."""

    plan: PartsPlan
    method: str
    rate: float
    rotation: int
    n_users: int

    def columns(self) -> Row:
        """Columns that all rows of the cell have in common."""
        said = " ".join(f"{name}={value}" for name, value in sorted(self.plan.victim_options.items()))
        return {
            "victim": f"{self.method} rate={self.rate:g} {said}".strip(),
            "update": "sgd",
            "weighting": "observed-only",
            "data": self.plan.data,
            "defense": "none",
            "seed": self.rotation,
            "n_users": self.n_users,
        }


def settled(plan: PartsPlan) -> PartsPlan:
    """Check every name and number of a plan."""
    check(plan, THING)
    refuse_said_elsewhere(THING, plan.victim_options, learning_rate="rates", variant="methods")
    plan = replace(
        plan,
        methods=each_once(plan.methods) or tuple(PEER_METHODS),
        rates=each_once(map(float, plan.rates)) or PEER_RATES,
        rounds=tuple(sorted(set(map(int, plan.rounds)))),
    )
    refuse_too_many(THING, methods=plan.methods, rates=plan.rates, runs=range(plan.runs))
    for method in plan.methods:
        for rate in plan.rates:
            victim_of(plan, method, rate)
    return plan


def cells_of(plan: PartsPlan, ratings: Ratings, directory: Path) -> list[Cell[Training]]:
    """List the cells of a plan."""
    content = content_of(ratings)
    return [
        _cell(Training(plan, method, rate, rotation, ratings.n_users), content, directory)
        for method in plan.methods
        for rate in plan.rates
        for rotation in range(plan.runs)
    ]


def _cell(task: Training, content: str, directory: Path) -> Cell[Training]:
    plan = task.plan
    identity = {
        "code": code_used(VICTIM, []),
        "ratings": content,
        "method": task.method,
        "rate": task.rate,
        "rounds": plan.rounds,
        "victim": plan.victim_options,
        "seed": [plan.seed, task.rotation],
    }
    return Cell(task, cell_path(directory, f"{task.method}-{task.rate:g}-{task.rotation}", identity))


def _measure(cell: Cell[Training], ratings: Ratings, say: Say) -> list[Row]:
    task = cell.task
    say(f"{task.method}, rate {task.rate:g}, rotation {task.rotation + 1}")
    train, validation, test = next(islice(rotations(ratings, task.plan.seed), task.rotation, None))
    mean, begin, rows = train.values.mean(), time.perf_counter(), []
    here = task.columns()
    try:
        for done, predictor in _trained(task, train):
            of_test, of_validation = _errors(predictor, test), _errors(predictor, validation)
            seconds = time.perf_counter() - begin
            for metric, size, error, held in (
                ("mae", _mae, of_test, test),
                ("rmse", _rmse, of_test, test),
                ("validation_mae", _mae, of_validation, validation),
            ):
                rows.append(
                    make_row(
                        **here,
                        rounds=done,
                        metric=metric,
                        value=size(error),
                        baseline=size(mean - held.values),
                        baseline_name="training mean",
                        status="ran",
                        seconds=seconds,
                    )
                )
    except InputError as error:  # diverged: what was measured before stays
        rows.append(failed_row(here, error, "mae", verdict=""))
    return rows


def _trained(task: Training, train: Ratings) -> Iterator[tuple[int, Predictor]]:
    """What is predicted after each of the rounds that are measured."""
    plan, last = task.plan, task.plan.rounds[-1]
    victim: Any = victim_of(plan, task.method, task.rate)
    if task.method == PMF:
        factors = pmf_start(train, victim.factors, victim.init_scale, plan.seed)
        batches = disjoint_batches(train, plan.seed)
        for epoch in range(last):
            factors = pmf_epoch(factors, train, batches, task.rate, victim.regularization, plan.seed, epoch)
            if epoch + 1 in plan.rounds:
                yield epoch + 1, factors.predictor()
        return
    now = start(victim, train, [], plan.seed)
    for number in range(last):
        now = now.trained(number)
        if number + 1 in plan.rounds:
            yield number + 1, now.predictor(number + 1)


def _errors(predictor: Predictor, held: Ratings) -> np.ndarray:
    """Differences from the ratings, in stars, after clipping to the grid."""
    with np.errstate(over="ignore", invalid="ignore"):
        predicted = predictor.pairs(held.users, held.items)
    if np.isnan(predicted).any():
        raise InputError("predictions must be numbers; lower the learning rate, factors grow without bound")
    return np.clip(predicted, held.levels[0], held.levels[-1]) - held.values


def _mae(error: np.ndarray) -> float:
    return float(np.abs(error).mean())


def _rmse(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(error**2)))


def _failed(task: Training, error: Exception) -> list[Row]:
    return [failed_row(task.columns(), error, "mae", verdict="")]


EXPERIMENT = Experiment(settled, cells_of, Procedure(only_ratings, _measure, _failed))
run = EXPERIMENT.run


# The reference: probabilistic matrix factorisation with every rating in one place (R. Salakhutdinov, A. Mnih,
# NIPS 2007), explicit and Gaussian, on raw ratings. Loss and steps are those of ``victims.protocols.pdmfrec``
# with one V: e = r - u.v, u <- u - gamma (-e v + alpha u), v <- v - gamma (-e u + alpha v), rating by rating.
# Ratings that share neither a client nor an item do not meet each other's factors, so a batch of such is one
# step of arrays, and the same as its ratings one after the other.


class Factors(NamedTuple):
    """U (n_users, K) and V (n_items, K)."""

    clients: Float[np.ndarray, "users K"]
    items: Float[np.ndarray, "items K"]

    def predictor(self) -> Products:
        """U V'."""
        return Products(*self)


def pmf_start(ratings: Ratings, factors: int, init_scale: float, seed: int) -> Factors:
    """Entries uniform on 0..``init_scale``."""
    rng = generator(seed, Purpose.PMF_START)
    shapes = (ratings.n_users, factors), (ratings.n_items, factors)
    return Factors(*(init_scale * rng.random(shape) for shape in shapes))


def disjoint_batches(ratings: Ratings, seed: int) -> list[Int[np.ndarray, " _"]]:
    """Numbers of ratings, cut so that no two of a batch share a client or an item.

    Ratings in random order, each into the first batch that has neither its client nor its item.
    """
    order = generator(seed, Purpose.PMF_START, 1).permutation(ratings.n_ratings)
    of_user, of_item = [0] * ratings.n_users, [0] * ratings.n_items  # a bit for each batch they are in
    batch = np.empty(ratings.n_ratings, np.int64)
    for entry, user, item in zip(
        order.tolist(), ratings.users[order].tolist(), ratings.items[order].tolist(), strict=True
    ):
        free = ~(of_user[user] | of_item[item])
        first = free & -free
        of_user[user] |= first
        of_item[item] |= first
        batch[entry] = first.bit_length() - 1
    by_batch = np.argsort(batch, kind="stable")
    return np.split(by_batch, np.flatnonzero(np.diff(batch[by_batch])) + 1)


def pmf_epoch(
    now: Factors,
    ratings: Ratings,
    batches: list[Int[np.ndarray, " _"]],
    rate: float,
    alpha: float,
    seed: int,
    epoch: int,
) -> Factors:
    """One pass over all ratings, batches in a new random order."""
    clients, items, users = now.clients.copy(), now.items.copy(), ratings.users
    with np.errstate(over="ignore", invalid="ignore"):  # told below
        for at in generator(seed, Purpose.PMF_START, 2, epoch).permutation(len(batches)).tolist():
            entry = batches[at]
            user, item = users[entry], ratings.items[entry]
            u, v = clients[user], items[item]
            error = (ratings.values[entry] - np.einsum("nk,nk->n", u, v))[:, None]
            clients[user] = u + rate * (error * v - alpha * u)
            items[item] = v + rate * (error * u - alpha * v)
    if not (np.isfinite(clients).all() and np.isfinite(items).all()):
        raise InputError(f"pmf diverged in epoch {epoch}; lower learning_rate (now {rate:g})")
    return Factors(clients, items)
