"""What leaks even if the protocol were perfect: membership of ratings and of users, from outputs alone.

Models are trained by the victim's own protocol, under its defenses, on random halves of the ratings, or of
the users, and each is attacked with the others as its shadows (``attacks.membership``). The adversary
``outputs`` sees no message. Of ratings it is given what each user is predicted, or its list of ten, which
leaves out what the user rated; of users what the model predicts for the accounts that it holds, a fifth of
all, which always take part. It knows all other ratings of the population, and the target's, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import ndtr, ndtri
from threadpoolctl import threadpool_limits

from attacks.membership import likelihood_ratios, list_ratios, offline_ratios, unexplained
from audit.accounts import accounts_of
from audit.code_identity import code_used
from audit.experiments.attack_cells import Source
from audit.experiments.cells import Cell, Procedure, Say, cell_path, only_ratings
from audit.experiments.results import Row, make_row
from audit.experiments.rows import failed_row
from audit.experiments.scenarios import obstacle_of, standing_in
from audit.factories import make_defenses
from audit.scoring.lower_bounds import from_one_run
from audit.scoring.membership import AREA, RATES, membership_scores
from audit.scoring.verdicts import as_record, joined_reasons, why_verdict
from defenses.central_noise import CentralNoise
from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.data.subsets import of_users, without
from victims.protocols.base import Predictor
from victims.training import as_read, start
from victims.transcript.manifest import AGREEMENTS

ADVERSARY, EPSILON = "outputs", "membership_epsilon"
SEES = "no message: what the trained recommender predicts and lists; knows the population's other ratings"
ATTACKS = ("lira", "lira-offline", "threshold", "lira-lists")
ABOUT = ("rating", "user")
METRICS = tuple(f"{about}_{name}" for about in ABOUT for name in (AREA, *RATES))
TOO_FEW = "too few members are recognised"
ONE_IN = 5  # accounts are the adversary's
LISTED = 10  # items of a list
BLOCK = 512  # users whose lists are made together
ASSUMES = {
    "rating": "knows the population's other ratings and the target's; outputs alone",
    "user": "knows the target's ratings and the population's, and holds one account in 5; outputs alone",
}


@dataclass(frozen=True)
class Membership:
    """The task of a cell: models of one scenario, and whose membership is asked."""

    source: Source
    about: str  # one of ``ABOUT``
    n_models: int
    data: str

    @property
    def columns(self) -> Row:
        """Columns that all rows have in common."""
        rounds = max(self.source.rounds) + 1
        return {**self.source.columns, "data": self.data, "adversary": ADVERSARY, "rounds": rounds,
                "seed": self.source.seed}  # fmt: skip


class Models(NamedTuple):
    """What all models say of each target, and which of them were trained on it."""

    client: Int[np.ndarray, " targets"]  # whose it is
    member: Bool[np.ndarray, "models targets"]
    value: Float[np.ndarray, "models targets"]  # predicted ratings; of users minus log of what is unexplained
    towards: Float[np.ndarray, " targets"]  # where training on the target draws the value
    listed: Bool[np.ndarray, "models targets"] | None = None  # whether its item is on its user's list


def cells_of(
    source: Source, n_models: int, data: str, content: str, directory: Path
) -> list[Cell[Membership]]:
    """List the cells of one scenario."""
    obstacle = obstacle_of(source.victim, source.every_option, source.columns["defense"])
    cells = []
    for about in ABOUT:
        task = Membership(source, about, n_models, data)
        identity = {"content": content, **asdict(source), "about": about, "models": n_models, "data": data,
                    "code": code_used(source.victim, source.defenses)}  # fmt: skip
        path = cell_path(directory, f"outputs-{source.update}-{source.weighting}-{about}", identity)
        kind = f"{source.scenario}: shadows"
        cells.append(Cell(task, path, kind=kind, obstacle=obstacle, procedure=PROCEDURE))
    return cells


def _of_ratings(task: Membership, ratings: Ratings, say: Say) -> Models:
    """Which ratings each model was trained on, what it predicts for all, and whose lists name their items."""
    member, value, listed = [], [], []
    for model, rng in _models(task, say):
        coin = rng.random(ratings.n_ratings) < 0.5
        predictor = _trained(task, without(ratings, ~coin), model)
        member.append(coin)
        value.append(predictor.pairs(ratings.users, ratings.items))
        listed.append(_on_lists(predictor, ratings, coin))
    implicit = task.source.make().capabilities.implicit
    towards = np.full(ratings.n_ratings, np.inf) if implicit else ratings.values
    return Models(ratings.users, np.array(member), np.array(value), towards, np.array(listed))


def _on_lists(
    predictor: Predictor, ratings: Ratings, trained_on: Bool[np.ndarray, " ratings"]
) -> Bool[np.ndarray, " ratings"]:
    """Which ratings are of items on their users' lists, which leave out what a model was trained on."""
    place, listed = min(LISTED, ratings.n_items) - 1, []
    for first in range(0, ratings.n_users, BLOCK):
        users = np.arange(first, min(first + BLOCK, ratings.n_users))
        part = slice(ratings.indptr[first], ratings.indptr[users[-1] + 1])
        user, item, left_out = ratings.users[part] - first, ratings.items[part], trained_on[part]
        scores = np.array(predictor.scores(users))
        scores[user[left_out], item[left_out]] = -np.inf
        last = -np.partition(-scores, place, axis=1)[:, place]
        listed.append(~left_out & (scores[user, item] >= last[user]))
    return np.concatenate(listed)


def _of_users(task: Membership, ratings: Ratings, say: Say) -> Models:
    """Which users each model was trained with, and how well it tells the ratings of all."""
    every, spans = np.arange(ratings.n_users), zip(ratings.indptr, ratings.indptr[1:], strict=False)
    held = every % ONE_IN == 0
    rated = [(ratings.items[low:high], ratings.values[low:high]) for low, high in spans]
    targets = np.flatnonzero(~held & (np.diff(ratings.indptr) > 0))
    member, value = [], []
    for model, rng in _models(task, say):
        taking_part = held | (rng.random(every.size) < 0.5)
        some = np.flatnonzero(taking_part)
        predictor = _trained(task, of_users(ratings, some), model)
        seen = predictor.scores(np.flatnonzero(held[some]))
        member.append(taking_part[targets])
        value.append([-np.log(unexplained(seen, *rated[user])) for user in targets])
    return Models(targets, np.array(member), np.array(value), np.full(targets.size, np.inf))


def _models(task: Membership, say: Say) -> Iterator[tuple[int, np.random.Generator]]:
    """The number of each model, and what draws its coins."""
    for model in range(task.n_models):
        say(f"{task.source.scenario}: model {model + 1} of {task.n_models} ({task.about}s)")
        yield model, generator(task.source.seed, Purpose.SHADOW_MODELS, ABOUT.index(task.about), model)


def _trained(task: Membership, ratings: Ratings, model: int) -> Predictor:
    """What a model predicts after the last round that is watched."""
    source, rounds = task.source, max(task.source.rounds) + 1
    defenses = make_defenses(standing_in("+".join(source.defenses) or "none") or "none")
    seed = int(generator(source.seed, Purpose.SHADOW_MODELS, len(ABOUT), model).integers(1 << 31))
    run = start(source.make(), ratings, defenses, seed)
    for round_ in range(rounds):
        run = run.trained(round_, on_received=source.train_on_received)
        if run.stopped:
            break
    return run.predictor(int(run.state.round))


def limits_of(task: Membership, ratings: Ratings) -> dict[str, float]:
    """What nobody passes on average who tells users by sums, models or outputs, where noise is proved: no
    test of a user is better than that between two normal laws mu apart.

    References
    ----------
    Dong, Roth and Su 2019, arXiv:1905.02383, Theorem 2.7 and Definition 2.6.
    """
    source, rounds = task.source, max(task.source.rounds) + 1
    every, victim = make_defenses("+".join(source.defenses) or "none"), source.make()
    made = [one for one in every if one.name not in AGREEMENTS]
    mu = made[0].most_told(rounds) if len(made) == 1 and isinstance(made[0], CentralNoise) else np.nan
    if task.about != "user" or np.isnan(mu) or getattr(victim, "participation", 1.0) < 1:
        return {}
    stated = accounts_of(source.victim, [victim], made, ratings, n_rounds=rounds, seed=source.seed)
    if not stated[0].accounts[0].lines:
        return {}
    rates = {f"user_{name}": float(ndtr(ndtri(rate) + mu)) for name, rate in RATES.items()}
    return {f"user_{AREA}": float(ndtr(mu / 2**0.5)), **rates}


def rows_of(task: Membership, models: Models, limits: Mapping[str, float]) -> Iterator[Row]:
    """Score each attack on all models together; of the first one also a lower bound of epsilon."""
    client, member, value = models.client, models.member, models.value
    upwards = np.isinf(models.towards)
    near = np.where(upwards, value, -np.abs(value - np.where(upwards, 0.0, models.towards)))
    scores = {
        "lira": likelihood_ratios(value, member),
        "lira-offline": offline_ratios(value, member, models.towards),
        "threshold": near,
    }
    if models.listed is not None:
        scores["lira-lists"] = list_ratios(models.listed, member)
    about = f"{len(member)} models, each with {len(member) - 1} shadows; {ASSUMES[task.about]}"
    for attack, score in scores.items():
        for found in membership_scores(score, member, client, task.about, task.source.seed):
            yield make_row(
                **task.columns,
                attack=attack,
                **{
                    **as_record(found),
                    "reason": joined_reasons(why_verdict(found.summary, TOO_FEW), about),
                    "ceiling": limits.get(found.metric, np.nan),
                },
                status="ran",
            )
    bound = from_one_run(scores["lira"][0], member[0])
    yield make_row(
        **task.columns, attack="lira", metric=f"{task.about}_{EPSILON}", value=bound.epsilon,
        ci_low=bound.epsilon, ci_high=float("inf"), ceiling=bound.most, n_users=np.unique(client).size,
        n_abstained=0, status="ran",
    )  # fmt: skip


def _measure(cell: Cell[Membership], ratings: Ratings, say: Say) -> list[Row]:
    begin, ratings = time.perf_counter(), as_read(cell.task.source.make(), ratings)
    train = _of_ratings if cell.task.about == "rating" else _of_users
    try:
        with threadpool_limits(1, user_api="blas"):  # small matrices: a second thread waits busily
            rows = list(rows_of(cell.task, train(cell.task, ratings, say), limits_of(cell.task, ratings)))
    except InputError as error:  # a model diverged, say
        return _failed(cell.task, error)
    seconds = time.perf_counter() - begin
    return [{**row, "seconds": seconds} for row in rows]


def _failed(task: Membership, error: Exception) -> list[Row]:
    return [failed_row({**task.columns, "attack": ATTACKS[0]}, error, f"{task.about}_{AREA}")]


PROCEDURE = Procedure(only_ratings, _measure, _failed)
