"""What user-level noise on sums costs, and what is proved of it.

    python -m tests.benchmarks.user_level DATA RUNS [DEFENSE ...]

A line for each defense of FedMF: epsilon as proved, the empirical lower bound at 95 % and the largest that
RUNS in each world could give (0 leaves it out), and RMSE on ten held-out ratings of each client (mean and
standard deviation of five seeds, each with a split, a start and noise of its own). Options of the victim were
chosen on the split of seed 0, which is none of the five.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from audit.accounts import accounts_of
from audit.experiments.user_level import Trial, bound_of, craft
from audit.factories import make_defenses, make_victim
from victims.common.errors import InputError
from victims.data.loaders import load
from victims.data.ratings import Ratings
from victims.data.subsets import leave_out, of_users
from victims.evaluation.rating_error import errors
from victims.training import start

ROUNDS, SEEDS, HELD_OUT, CLIENT = 20, range(1, 6), 10, 0
BESIDE = 60  # clients of the bound: the score does not depend on others, whose sums the adversary takes away
VICTIM = make_victim(
    "fedmf",
    {"factors": "2", "start": "constant", "init_scale": "1.32", "client_learning_rate": "3e-4"},
)
NORM = 0.003  # ten times the rate, a third of the median client's norm
DEFENSES = (
    "none",
    "dp-fedavg:norm=1e-9,noise=0",  # nothing is learned together: clients fit their own factors alone
    f"dp-fedavg:norm={NORM},noise=0",
    *(f"dp-fedavg:norm={NORM},noise={noise}" for noise in (1, 2, 4, 8, 16, 32)),
    f"dp-fedavg:norm={NORM},noise=4,sampling=0.3",
    *(f"dp-ftrl:norm={NORM},noise={noise},epoch=4" for noise in (4, 8)),
)


def held_out(ratings: Ratings, text: str) -> np.ndarray:
    """RMSE of the victim and of the training mean, seed by seed."""
    found = []
    for seed in SEEDS:
        train, test = leave_out(ratings, HELD_OUT, seed)
        run = start(VICTIM, train, make_defenses(text), seed)
        for round_ in range(ROUNDS):
            run = run.trained(round_)
        found.append(errors(run, train, test)[:2])
    return np.array(found)


def main() -> None:
    """Measure and print."""
    ratings, runs = load(sys.argv[1]), int(sys.argv[2])
    for text in sys.argv[3:] or DEFENSES:
        begin = time.perf_counter()
        try:
            rmse = held_out(ratings, text)
            victim, mean = rmse.T
            said = f"RMSE {victim.mean():.4f} (sd {victim.std(ddof=1):.4f}), of the mean {mean.mean():.4f}"
        except InputError as error:
            said = str(error)[:60]
        for defense in make_defenses(text):
            told = accounts_of("fedmf", [VICTIM], [defense], ratings, n_rounds=ROUNDS, seed=0)
            for line in told[0].accounts[0].lines[:-1]:
                said += f"; epsilon {line.at_delta:.3g} at {line.delta:.2g} ({line.what[-35:]})"
            if runs and told[0].accounts[0].lines:
                few = craft(of_users(ratings, np.arange(BESIDE)), CLIENT)
                trial = Trial(VICTIM, few, CLIENT, defense, defense, ROUNDS)
                delta = told[0].accounts[0].lines[0].delta
                bound = bound_of(trial, runs=runs, delta=delta)
                said += f"; at least {bound.epsilon:.3f} (could be {bound.most:.2f})"
        print(f"{text:45} {said}; {time.perf_counter() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
