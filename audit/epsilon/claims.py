"""A claimed epsilon against what the recommender sees: Hu & Fang's protocols, three readings of the noise.

Behind ``factorleak claims``. A cell is one protocol and reading of the noise: the recommender's transcript is
recorded and attacked (``trajectory``), and so is what a fellow client sees, V of every round (``aggregate``);
a second one with planted canaries gives the empirical lower bound of epsilon view by view
(``audit.epsilon.canaries``, ``audit.scoring.lower_bounds``), and training to the end gives the recommender's
error. A cell of repetitions gives a second bound, of one client's rating (``canaries.repeat``). The
claim of a rating is its budget; a bound above the largest claim refutes it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from audit.accounts import accounts_of
from audit.code_identity import FILE, code_used
from audit.epsilon.canaries import (
    Worlds,
    plant,
    repeat,
    score_exact,
    score_final,
    score_noisy,
    typical_client,
    worlds,
)
from audit.experiments.answers import answered
from audit.experiments.cells import Cell, Procedure, Say, cell_path, content_of, only_ratings
from audit.experiments.options import check, each_once, refuse_said_elsewhere, refuse_too_many
from audit.experiments.plan import Claims
from audit.experiments.results import Row, make_row
from audit.experiments.rows import failed_row, metric_rows
from audit.experiments.runner import Experiment
from audit.experiments.scenarios import NOWHERE, TESTED, VICTIM, System, system_of
from audit.factories import make_attack, make_defenses, make_victim
from audit.scoring.ceiling import Ceiling
from audit.scoring.lower_bounds import Bound, from_one_run, from_repetitions
from audit.scoring.truth import Truth, read_truth
from audit.scoring.verdicts import BOUND, refuted
from defenses.heterogeneous import Specification, budgets, draw
from defenses.shared_noise import Promising, epsilon_given_h
from victims.common.errors import InputError
from victims.common.files import remove
from victims.data.published import published_split
from victims.data.ratings import Ratings
from victims.data.subsets import leave_out
from victims.evaluation.rating_error import predictions
from victims.recording import record
from victims.training import Run, sent_rows, start
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript
from victims.transcript.view import View

NO_NOISE = "none"  # of a protocol that nothing protects


@dataclass(frozen=True)
class Claim:
    """The task of a cell."""

    plan: Claims
    protocol: str
    noise: str
    epsilon: float  # largest budget
    repetitions: int  # 0 plants ratings instead
    n_users: int

    @property
    def system(self) -> System:
        """What the protocol is made of."""
        return system_of(self.protocol)

    @property
    def defense(self) -> str:
        """What protects the protocol."""
        return self.system.defense_text(self.noise, self.plan.epochs, epsilon=self.epsilon)

    def columns(self) -> Row:
        """Columns that all rows have in common."""
        return {
            "victim": self.protocol,
            "update": "sgd",
            "weighting": "observed-only",
            "data": self.plan.data,
            "defense": self.defense,
            "seed": self.plan.seed,
            "n_users": self.n_users,
        }

    def failed(self, error: Exception) -> list[Row]:
        """Make the row of a claim that could not be audited."""
        return [failed_row(self.columns(), error, BOUND, verdict="")]


def tasks_of(plan: Claims, n_users: int) -> list[Claim]:
    """List what a plan audits."""
    return [
        Claim(plan, protocol, noise, epsilon, repetitions, n_users)
        for epsilon in plan.epsilons
        for protocol in plan.protocols
        for noise in (plan.noises if system_of(protocol).is_private else (NO_NOISE,))
        for repetitions in ((0, plan.repetitions) if plan.repetitions and noise != NO_NOISE else (0,))
    ]


def cells_of(plan: Claims, ratings: Ratings, directory: Path) -> list[Cell[Claim]]:
    """List the cells of a plan."""
    if np.diff(ratings.indptr).min() < 1:
        raise InputError("every client must have a rating, for one of each is planted; drop the others")
    content = content_of(ratings)
    if published_split(plan.source or plan.data, ratings) is None:
        plan = replace(plan, source=NOWHERE)
    return [_cell(task, content, directory) for task in tasks_of(plan, ratings.n_users)]


def _cell(task: Claim, content: str, directory: Path) -> Cell[Claim]:
    """A cell with a folder for one recording after the other."""
    plan = task.plan
    identity = {
        "code": code_used(VICTIM, [task.defense]),
        "ratings": content,
        "defense": task.defense,
        "victim": plan.victim,
        "rounds": plan.rounds,
        "seed": plan.seed,
        "repetitions": task.repetitions,
    } | ({} if plan.bounds else {"bounds": False})
    repeated = "-repeated" if task.repetitions else ""
    protocol = task.protocol.replace(":", "-")
    path = cell_path(directory, f"{protocol}-{task.noise}-{task.epsilon:g}{repeated}", identity)
    reads_files = plan.source != NOWHERE or f"{FILE}=" in task.defense
    place = "here" if reads_files else "anywhere"
    return Cell(task, path, (path.with_suffix(".parts"),), place=place)  # type: ignore[arg-type]


def trained(claim: Claim, ratings: Ratings, rounds: int) -> Run:
    """Train the system of a claim."""
    plan = claim.plan
    run = start(make_victim(VICTIM, plan.victim), ratings, make_defenses(claim.defense), plan.seed)
    for round_ in range(rounds):
        run = run.trained(round_)
    return run


def recorded(claim: Claim, ratings: Ratings, folder: Path) -> View:
    """Record the system of a claim."""
    plan = claim.plan
    victim, defenses = make_victim(VICTIM, plan.victim), make_defenses(claim.defense)
    record(victim, ratings, folder, rounds=range(plan.rounds), defenses=defenses, seed=plan.seed)
    return open_transcript(folder).view("server")


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
        verdict=refuted(bound.epsilon, claim),
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
    Hu & Fang 2023, arXiv:2212.00306, Table 2.
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
