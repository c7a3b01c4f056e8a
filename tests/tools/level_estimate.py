"""Whether ``likelihood`` under sgd is too sure because of the frequencies of levels that it estimates.

``python -m tests.tools.level_estimate DATA [--noise 0.3] [--made-up]``: one round of 60 clients of FedMVMF
(sgd / observed-only). Prints what is claimed and right as learned, and with the true frequencies of levels in
place of the estimate, everything else as learned. ``--made-up`` draws every rating anew and on its own from
the frequencies of the data, so that ratings are as the prior takes them to be.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import factorleak as fl
from attacks.likelihood.learning import State, state_at
from attacks.likelihood.modes import read
from attacks.likelihood.preparation import Preparation, learned
from attacks.likelihood.problem import BatchCache
from attacks.likelihood.upload_statistics import size_up
from audit.keys import view_of
from victims.transcript.reader import open_transcript

CLIENTS, ROUND, DRAWS = 60, 4, 32


def main() -> None:
    """Print one line for each prior."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--noise", default="0.3")
    parser.add_argument("--made-up", action="store_true")
    given = parser.parse_args()
    ratings = fl.load(given.data)
    if given.made_up:
        drawn = np.random.default_rng(5).choice(ratings.values, ratings.values.size)
        ratings = replace(ratings, values=drawn)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        fl.record(
            path, ratings, victim="fedmvmf", users=CLIENTS, update="sgd", weighting="observed-only",
            rounds=[ROUND], seed=0, defenses=[f"laplace:b={given.noise}"],
        )  # fmt: skip
        view = view_of(open_transcript(path), "server")
        how = Preparation(True, None, 30, 4, 256, 0, size_up(view))
        batches, state = learned(how, view)
    table = ratings.matrix().toarray()
    print("| frequencies | " + " | ".join(f"{x:g}" for x in ratings.levels) + " | right | claimed |")
    print((len(ratings.levels) + 3) * "|---" + "|")
    print(line("estimated", batches, state, table), flush=True)
    rated = table[view.users]
    count = np.array([(rated == level).sum() for level in ratings.levels])
    prior = state.parameters.prior._replace(level=np.log(count + 1) - np.log(count.max() + 1))
    true = state_at(batches, state.parameters._replace(prior=prior), state.points)
    print(line("true", batches, true, table), flush=True)


def line(name: str, batches: BatchCache, state: State, table: np.ndarray) -> str:
    """Frequencies of levels, and the shares of ratings that are right and are claimed to be."""
    problem = batches.problem
    levels, right, claimed = np.array(problem.model.levels), [], []
    for batch, start in enumerate(state.points):
        size = problem.packing.sizes[batch]
        users = problem.view.users[problem.packing.members[batch][:size]]
        items = np.asarray(read(batches, state.parameters, batch, start, DRAWS).answers.items)[:, :size]
        rows = batches.rows(batch)
        there = np.asarray(rows.valid)[:size]
        truth = table[users[:, None], problem.packing.item_ids[np.asarray(rows.item)[:size]]]
        right.append((levels[items.argmax(axis=0)] == truth)[there])
        claimed.append(items.max(axis=0)[there])
    share = np.exp(np.asarray(state.parameters.prior.level))
    numbers = [*(share / share.sum()), np.concatenate(right).mean(), np.concatenate(claimed).mean()]
    return f"| {name} | " + " | ".join(f"{x:.3f}" for x in numbers) + " |"


if __name__ == "__main__":
    main()
