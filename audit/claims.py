"""A claimed epsilon against what the recommender sees: paper 002's protocols, three readings of the noise.

Behind ``factorleak claims``. A cell is one protocol and reading of the noise: the recommender's transcript is
recorded and attacked (``trajectory``), a second one with planted canaries gives the empirical lower bound of
epsilon view by view (``audit.neighbours``, ``audit.empirical``), and training to the end gives the
recommender's error. A cell of repetitions gives a second bound, of one client's rating (``audit.repeated``).
The claim of a rating is its budget; a bound above the largest claim refutes it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from audit.cells import content_of, digest, metric_rows, run_cells, write_cell
from audit.empirical import Bound, from_one_run, from_repetitions
from audit.neighbours import Worlds, plant, score_exact, score_final, score_noisy, worlds
from audit.prediction import TESTED
from audit.registry import make_attack, make_defenses, make_victim
from audit.repeated import repeat, typical_client
from audit.results import Row, make_row
from audit.score import Ceiling
from audit.truth import read_truth
from defenses.budget_account import accounts
from defenses.budgets import Specification, budgets, draw
from victims.datasets import published_split
from victims.errors import InputError
from victims.quality import predictions
from victims.ratings import Ratings, leave_out
from victims.recording import Run, record, sent_rows, start
from victims.transcript import open_transcript
from victims.view import View
from victims.writing import truth_path

SCHEMA = 2  # of a cell file; part of its name
PROTOCOLS = ("hdpmf", "pdpmf", "dpmf", "mf")
NOISES = ("once", "fresh", "composed")
VIEWS = ("all rounds", "first round", "final V")
BOUND = "empirical_epsilon"


@dataclass(frozen=True)
class Plan:
    """What to audit.

    Attributes
    ----------
    protocols, noises : tuple of str
    epsilons : tuple of float
        Largest budgets.
    data : str
        As given to ``--data``; the published split is looked for beside it.
    rounds : int
        Rounds that the recommender watches, from the first.
    epochs : int
        Of the whole training.
    repetitions : int
        Runs of the protocol in each of two worlds, for one client; 0 for none.
    seed : int
    victim_options : dict
    """

    protocols: tuple[str, ...] = PROTOCOLS
    noises: tuple[str, ...] = NOISES
    epsilons: tuple[float, ...] = (1.0,)
    data: str = "synthetic"
    rounds: int = 12
    epochs: int = 100
    repetitions: int = 0
    seed: int = 0
    victim_options: dict[str, Any] = field(default_factory=dict)

    @property
    def victim(self) -> dict[str, Any]:
        """Options of the victim."""
        return {**self.victim_options, "epochs": str(self.epochs)}


def run(
    plan: Plan,
    ratings: Ratings,
    directory: Path,
    *,
    jobs: int = -1,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """Audit every cell that is not there yet and write the result files.

    Raises
    ------
    InputError
        If a name or number is out of range.
    """
    if not 2 <= plan.rounds <= plan.epochs:
        raise InputError(f"rounds must be between 2 and the {plan.epochs} epochs, got {plan.rounds}")
    if np.diff(ratings.indptr).min() < 1:
        raise InputError("every client must have a rating, for one of each is planted; drop the others")
    content = content_of(ratings)
    cells = [
        _Cell(plan, directory, content, protocol, noise, epsilon, repetitions)
        for epsilon in plan.epsilons
        for protocol in plan.protocols
        for noise in (plan.noises if protocol != "mf" else ("none",))
        for repetitions in ((0, plan.repetitions) if plan.repetitions and noise != "none" else (0,))
    ]
    for cell in cells:
        make_defenses(cell.defense)
    make_victim("mf", plan.victim)
    return run_cells(cells, _work, ratings, directory, jobs, report)


def budget_quantiles(epsilon: float, ratings: Ratings, seed: int) -> dict[str, list[float]]:
    """Quantiles 0, 1/4, 1/2, 3/4, 1 of the budgets of users and items, and of ratings."""
    specification = Specification(epsilon=epsilon)
    weights = draw(specification, ratings, seed)
    parts = {
        "users": epsilon * weights.user,
        "items": epsilon * weights.item,
        "ratings": budgets(specification, ratings, seed),
    }
    return {name: np.quantile(part, [0, 0.25, 0.5, 0.75, 1]).tolist() for name, part in parts.items()}


@dataclass(frozen=True)
class _Cell:
    plan: Plan
    directory: Path
    content: str
    protocol: str
    noise: str
    epsilon: float
    repetitions: int

    @property
    def defense(self) -> str:
        """What protects the protocol."""
        if self.protocol == "mf":
            return "none"
        return f"{self.protocol}:noise={self.noise},epochs={self.plan.epochs},epsilon={self.epsilon:g}"

    @property
    def path(self) -> Path:
        """Where the rows are kept."""
        identity = {
            "schema": SCHEMA,
            "ratings": self.content,
            "defense": self.defense,
            "victim": self.plan.victim,
            "rounds": self.plan.rounds,
            "seed": self.plan.seed,
        }
        if self.repetitions:
            identity["repetitions"] = self.repetitions
        words = f"{self.protocol}-{self.noise}-{self.epsilon:g}{'-repeated' if self.repetitions else ''}"
        return self.directory / "cells" / f"{words}-{digest(identity)}.json"


def _work(cell: _Cell, ratings: Ratings) -> tuple[Path, list[Row]]:
    folder = cell.path.with_suffix(".parts")
    shared: Row = {
        "victim": cell.protocol,
        "update": "sgd",
        "weighting": "observed-only",
        "data": cell.plan.data,
        "defense": cell.defense,
        "seed": cell.plan.seed,
        "n_users": ratings.n_users,
    }
    rows: list[Row] = []
    try:
        for part in (_repeated,) if cell.repetitions else (_error, _leak, _bounds):
            shutil.rmtree(folder, ignore_errors=True)
            rows += part(cell, ratings, folder, shared)
    except InputError as error:  # diverged, say
        rows.append(make_row(**shared, metric=BOUND, status="failed", reason=str(error)[:300]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not any(row["status"] == "failed" for row in rows):
        write_cell(cell.path, rows)
    return cell.path, rows


def _trained(cell: _Cell, ratings: Ratings, rounds: int) -> Run:
    plan = cell.plan
    victim = make_victim("mf", plan.victim)
    now = start(victim, ratings, make_defenses(cell.defense), plan.seed)
    for number in range(rounds):
        now = now.trained(number)
    return now


def _error(cell: _Cell, ratings: Ratings, folder: Path, shared: Row) -> list[Row]:
    """Held-out error of the same system, trained to the end."""
    plan = cell.plan
    begin = time.perf_counter()
    train, test = published_split(plan.data, ratings) or leave_out(ratings, TESTED, plan.seed)
    away = predictions(_trained(cell, train, plan.epochs), test) - test.values
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


def _recorded(cell: _Cell, ratings: Ratings, folder: Path) -> View:
    """The recommender's view."""
    plan = cell.plan
    victim, defenses = make_victim("mf", plan.victim), make_defenses(cell.defense)
    record(victim, ratings, folder, rounds=range(plan.rounds), defenses=defenses, seed=plan.seed)
    return open_transcript(folder).view("server")


def _leak(cell: _Cell, ratings: Ratings, folder: Path, shared: Row) -> list[Row]:
    """What the attacks read of all recorded rounds."""
    plan = cell.plan
    view = _recorded(cell, ratings, folder / "leak")
    truth = read_truth(truth_path(folder / "leak"))
    limits = {"rated_rating_accuracy": _told(cell, ratings)} if cell.noise in ("fresh", "composed") else None
    rows = []
    for name in (
        "trajectory",
        "rated-set",
        *(("spectral", "grid", "likelihood") if cell.protocol == "mf" else ()),
    ):
        begin = time.perf_counter()
        found = make_attack(name).attack(view, plan.seed)
        here = {**shared, "adversary": "server", "attack": name, "rounds": plan.rounds}
        here.pop("n_users")
        seconds = time.perf_counter() - begin
        scored = metric_rows(here, found, view.manifest, truth, ceilings=limits)
        rows += [{**row, "seconds": seconds} for row in scored]
    return rows


def _told(cell: _Cell, ratings: Ratings) -> Ceiling:
    """Rated items that a decoder reads which is told W, the clients' factors and the shares of levels."""
    plan = cell.plan
    now = _trained(cell, ratings, 0)
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
        v = now.victim.broadcast(now.state)[0][held.items]
        rows = np.concatenate([part.gradient for part in sent_rows(now, everybody, number)])
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
    return Ceiling(*(_mean_over_users(part, ratings) for part in right))


def _mean_over_users(values: Float[np.ndarray, " ratings"], ratings: Ratings) -> float:
    counts = np.diff(ratings.indptr)
    return float((np.bincount(ratings.users, values, ratings.n_users) / counts).mean())


def _bounds(cell: _Cell, ratings: Ratings, folder: Path, shared: Row) -> list[Row]:
    """Lower bounds of epsilon, view by view, for all canaries and for the third with the smallest claims."""
    plan = cell.plan
    canaries = plant(ratings, plan.seed)
    defenses = make_defenses(cell.defense)
    both = worlds(canaries, defenses, plan.seed)
    view = _recorded(cell, canaries.ratings, folder / "canaries")
    rows = []
    for name in VIEWS if cell.noise != "none" else ("all rounds", "final V"):
        begin = time.perf_counter()
        score = _scores(cell, name, view, both, canaries.ratings)
        seconds = time.perf_counter() - begin
        found = _bound_rows(cell, name, score, canaries.coin, ratings, canaries.entry, shared)
        rows += [{**row, "seconds": seconds} for row in found]
    return rows


def _scores(
    cell: _Cell, name: str, view: View, both: Worlds, ratings: Ratings
) -> Float[np.ndarray, " users"]:
    noisy = cell.noise in ("fresh", "composed")
    if name == "final V":
        last = _trained(cell, ratings, cell.plan.epochs)
        return score_final(np.asarray(last.state.item_factors), both)
    if name == "first round":
        first = view.during([int(view.rounds[0])])
        return score_noisy(first, both, cell.plan.seed)
    return score_noisy(view, both, cell.plan.seed) if noisy else score_exact(view, both)


def _bound_rows(
    cell: _Cell,
    view: str,
    score: Float[np.ndarray, " users"],
    coin: np.ndarray,
    ratings: Ratings,
    entry: np.ndarray,
    shared: Row,
) -> list[Row]:
    claim = _claims(cell, ratings, cell.plan.seed)[entry]
    groups = {"all": np.ones(claim.size, bool)}
    if claim.min() < claim.max():
        groups["smallest third"] = claim <= np.quantile(claim, 1 / 3)
    return [
        _bound_row(cell, view, words, from_one_run(score[chosen], coin[chosen]), float(claim[chosen].max()),
                   ratings, shared)
        for words, chosen in groups.items()
    ]  # fmt: skip


def _bound_row(
    cell: _Cell, view: str, words: str, bound: Bound, claim: float, ratings: Ratings, shared: Row
) -> Row:
    """A bound beside the largest claim that it speaks of."""
    return make_row(
        **{**shared, "n_users": bound.trials},
        adversary=f"{view}, {words}",
        attack="neighbours",
        rounds=1 if view == "first round" else cell.plan.rounds,
        metric=BOUND,
        value=bound.epsilon,
        ci_low=bound.epsilon,
        ci_high=float("inf"),
        baseline=claim,
        baseline_name="largest claim",
        ceiling=bound.most,
        status="ran",
        verdict=_refuted(bound.epsilon, claim),
        reason=_account(cell, view, claim, ratings),
    )


def _repeated(cell: _Cell, ratings: Ratings, folder: Path, shared: Row) -> list[Row]:
    """Lower bounds for one client's rating, from independent runs."""
    plan = cell.plan
    canaries = plant(ratings, plan.seed)
    begin = time.perf_counter()
    found = repeat(
        make_victim("mf", plan.victim),
        canaries,
        lambda: make_defenses(cell.defense),
        folder / "repeated",
        rounds=plan.rounds,
        noisy=cell.noise != "once",
        runs=cell.repetitions,
        seed=plan.seed,
    )
    who = typical_client(ratings)
    words = f"client {who}, {cell.repetitions} runs a world"
    seeds = range(plan.seed + 1, plan.seed + 1 + 2 * cell.repetitions)
    claim = max(float(_claims(cell, ratings, seed)[canaries.entry[who]]) for seed in seeds)
    seconds = time.perf_counter() - begin
    return [
        {
            **_bound_row(cell, view, words, from_repetitions(found.high[view], found.low[view]), claim,
                         ratings, shared),
            "seconds": seconds,
        }
        for view in found.high
    ]  # fmt: skip


def _claims(cell: _Cell, ratings: Ratings, seed: int) -> Float[np.ndarray, " ratings"]:
    """The budget that each rating was promised; none without a defense."""
    found = [defense for defense in make_defenses(cell.defense) if defense.name == "objective-noise"]
    if not found:
        return np.full(ratings.n_ratings, np.inf)
    noise: Any = found[0]
    if noise.budget == "smallest":
        return np.full(ratings.n_ratings, float(budgets(noise, ratings, seed).min()))
    return budgets(noise, ratings, seed)


def _refuted(bound: float, claim: float) -> str:
    if not np.isfinite(claim):
        return "no claim"
    return "CLAIM REFUTED" if bound > claim else "not refuted"


def _account(cell: _Cell, view: str, claim: float, ratings: Ratings) -> str:
    """What is proved for that view, in words."""
    if cell.noise == "none":
        return "no noise"
    share = claim / cell.plan.epochs if cell.noise == "composed" else claim
    raters = int(np.median(np.bincount(ratings.items, minlength=ratings.n_items)[ratings.items]))
    lines = accounts(share, cell.noise, raters, cell.plan.rounds)
    wanted = {"final V": "final V", "all rounds": "all rounds"}.get(view, "(the recommender)")
    line = next(line for line in lines if wanted in line.view)
    if np.isnan(line.epsilon):
        return f"nothing proved: {line.why}"
    if np.isinf(line.at_delta):
        return f"none: {line.why}"
    return f"delta = 0: none; delta = {line.delta:g}: {line.at_delta:,.0f} ({raters} raters)"
