"""How far Sybils who rate every item move the model: ``python docs/research/sybils.py PATH``.

FedMVMF, semi-als / observed-only, 30 rounds, a fifth of each user's ratings held out. ``drift`` is the
distance of the item factors from those without Sybils, over how far these moved from the start; RMSE is of
the held-out ratings.
"""

from __future__ import annotations

import sys

import numpy as np

from audit.factories import make_victim
from audit.rating_data import ratings_of
from victims.data.subsets import split
from victims.data.synthetic import with_sybils
from victims.training import start

ROUNDS, SHARE, COUNTS = 30, 0.2, (0, 1, 5, 49, 943)
OPTIONS = {"update": "semi-als", "weighting": "observed-only"}


def main() -> None:
    """Train with each number of Sybils, and print a line for each."""
    train, test = split(ratings_of(sys.argv[1]), SHARE, 0)
    first = plain = np.zeros(0)
    for count in COUNTS:
        run = start(make_victim("fedmvmf", OPTIONS), with_sybils(train, count) if count else train, (), 0)
        begin = np.asarray(run.victim.broadcast(run.state)[0])
        for round_ in range(ROUNDS):
            run = run.trained(round_)
        items = np.asarray(run.victim.broadcast(run.state)[0])
        if not count:
            first, plain = begin, items
        predicted = np.clip(run.predictor(ROUNDS).pairs(test.users, test.items), 1, 5)
        drift = np.linalg.norm(items - plain) / np.linalg.norm(plain - first)
        error = np.sqrt(np.mean((predicted - test.values) ** 2))
        print(f"{count} Sybils: RMSE {error:.3f}, drift {drift:.2f}")
    mean = np.sqrt(np.mean((train.values.mean() - test.values) ** 2))
    print(f"training mean: RMSE {mean:.3f}")


if __name__ == "__main__":
    main()
