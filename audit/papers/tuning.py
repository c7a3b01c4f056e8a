"""Hyper-parameters by k-fold search: Mai & Pang 2022, section 6.1, around the values of its Table 2.

Bayesian optimisation by Optuna's tree-structured Parzen estimator (J. Bergstra et al., NeurIPS 2011). The
paper cites J. Snoek et al. (NeurIPS 2012), gives no ranges, and does not say what it optimised: here it is
the error on held-out ratings, or, where unrated items take part and pull predictions down on purpose, the
ranking. Every trial is in a journal in the results folder, so that a stopped search goes on; what a trial
tries follows from the seed and the trials before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from audit.code_identity import code_used
from audit.experiments.cells import Report, content_of, digest, silent
from audit.experiments.options import check
from audit.factories import make_defenses, make_victim, scenarios_of
from audit.papers.plans import Search
from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.data.subsets import folds
from victims.evaluation.ranking import Case, rank
from victims.evaluation.rating_error import predictions
from victims.protocols.base import Victim
from victims.training import start

VICTIM, UNRATED = "fedmvmf", "include-unrated"


class Range(NamedTuple):
    """Where an option is looked for; by its logarithm where ``log``."""

    low: float
    high: float
    log: bool = True
    whole: bool = False


RANGES = {
    "factors": Range(2, 20, log=False, whole=True),
    "lambda_attributes": Range(0.1, 10),
    "lambda_factors": Range(1, 100),
    "server_learning_rate": Range(0.005, 0.5),
    "beta_1": Range(0.0, 0.95, log=False),
    "beta_2": Range(0.9, 0.9999, log=False),
}
ALPHA, CLIENT_STEP = Range(0.01, 0.5), Range(1e-5, 5e-3)


def ranges_of(plan: Search) -> dict[str, Range]:
    """Of the options that the scenario has and nobody gave."""
    found = dict(RANGES)
    if plan.weighting == UNRATED:
        found["alpha"] = ALPHA
    if plan.update == "sgd":
        found["client_learning_rate"] = CLIENT_STEP
    return {name: range_ for name, range_ in found.items() if name not in plan.victim_options}


def measure_of(plan: Search) -> str:
    """What is made small."""
    return "1 - NDCG@10 among rated" if plan.weighting == UNRATED else "RMSE, stars"


def _victim(plan: Search, chosen: dict[str, Any]) -> Victim:
    """The victim of a trial."""
    scenario = {"update": plan.update, "weighting": plan.weighting}
    return make_victim(VICTIM, {**plan.victim_options, **chosen, **scenario})


def settled(plan: Search) -> Search:
    """Choose the scenario, and check every value."""
    check(plan, "a search")
    updates, weightings = scenarios_of(VICTIM)
    plan = replace(plan, update=plan.update or updates[0], weighting=plan.weighting or weightings[0])
    _victim(plan, {})
    make_defenses(_defense(plan))
    return plan


def _defense(plan: Search) -> str:
    return "+".join(plan.defenses) or "none"


class Trial(NamedTuple):
    """One set of options; ``value`` is the mean over folds, NaN where training diverged."""

    number: int
    options: dict[str, Any]
    value: float
    reason: str = ""


def search(plan: Search, ratings: Ratings, directory: Path, *, report: Report = silent) -> list[Trial]:
    """Try options until there are as many trials as planned."""
    optuna = _optuna()
    plan = settled(plan)
    study = _study(optuna, plan, ratings, directory)
    while (done := len(_finished(optuna, study))) < plan.trials:
        report(done, plan.trials, _best_so_far(_finished(optuna, study)))
        # drawn from the trials before it and their number alone, whether or not the search was stopped
        seed = int(generator(plan.seed, Purpose.TUNING, done).integers(2**31))
        study.sampler = optuna.samplers.TPESampler(seed=seed)
        trial = study.ask()
        chosen = {name: _suggested(trial, name, range_) for name, range_ in ranges_of(plan).items()}
        try:
            value = float(np.mean([*_errors(plan, _victim(plan, chosen), ratings)]))
        except InputError as error:
            trial.set_user_attr("reason", str(error))
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, value)
    found = [
        Trial(trial.number, dict(trial.params), float("nan") if trial.value is None else trial.value,
              trial.user_attrs.get("reason", ""))
        for trial in _finished(optuna, study)
    ]  # fmt: skip
    report(plan.trials, plan.trials, "")
    if all(np.isnan(trial.value) for trial in found):
        raise InputError(f"all {len(found)} trials failed, the last because: {found[-1].reason}")
    return sorted(found, key=lambda trial: (np.isnan(trial.value), trial.value, trial.number))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise InputError("a search needs Optuna: pip install 'factorleak[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _study(optuna: Any, plan: Search, ratings: Ratings, directory: Path) -> Any:
    """The study of this plan on these ratings; more trials of it are the same study."""
    directory.mkdir(parents=True, exist_ok=True)
    plan_alone = {name: value for name, value in vars(plan).items() if name != "trials"}
    code = code_used(VICTIM, [_defense(plan)])
    name = digest({"plan": plan_alone, "ratings": content_of(ratings), "code": code})
    journal = optuna.storages.journal.JournalFileBackend(str(directory / f"tune-{name}.journal"))
    return optuna.create_study(
        storage=optuna.storages.JournalStorage(journal), study_name=name, load_if_exists=True
    )


def _finished(optuna: Any, study: Any) -> list[Any]:
    """A trial that was going on when the program was stopped is none."""
    states = optuna.trial.TrialState
    return list(study.get_trials(deepcopy=False, states=(states.COMPLETE, states.FAIL)))


def _best_so_far(trials: list[Any]) -> str:
    values = [trial.value for trial in trials if trial.value is not None]
    return f"best {min(values):.4f}" if values else ""


def _suggested(trial: Any, name: str, range_: Range) -> float | int:
    if range_.whole:
        return int(trial.suggest_int(name, int(range_.low), int(range_.high)))
    return float(trial.suggest_float(name, range_.low, range_.high, log=range_.log))


def _errors(plan: Search, victim: Victim[Any], ratings: Ratings) -> Iterator[float]:
    """What is made small, of every fold."""
    for train, test in folds(ratings, plan.folds, plan.seed):
        run = start(victim, train, make_defenses(_defense(plan)), plan.seed)
        for round_ in range(plan.rounds):
            run = run.trained(round_)
        if plan.weighting == UNRATED:
            clients, items = run.user_factors(plan.rounds), victim.broadcast(run.state)[0]
            case = Case("existing", train, test, np.ones(ratings.n_items, bool))
            yield 1 - rank(case, _scorer(clients, items))["rated"].ndcg
        else:
            yield float(np.sqrt(np.mean((predictions(run, test) - test.values) ** 2)))


def _scorer(clients: np.ndarray, items: np.ndarray) -> Any:
    return lambda users: clients[users] @ items.T
