"""What ``undeclared`` reads of several passes in orders that nobody sees, on real ratings; none may be wrong.

    python -m tests.tools.orders DATA [--users 100] [--first 0] [--seed 1]

``DATA`` is a path in a published format. The ten factors are those of a model after four passes over all
ratings, without biases and with broadcast biases of items.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from pathlib import Path

import numpy as np

import factorleak as fl
from tests.oracles.aligned import item_answers
from tests.oracles.shuffled_passes import ShuffledPasses, recorded, trained
from victims.data.loaders import load

CLIENTS = (
    *(ShuffledPasses(rate, passes) for rate, passes in itertools.product((0.005, 0.01, 0.05), (2, 5))),
    *(ShuffledPasses(rate, 5, batch) for rate, batch in ((0.01, 8), (0.01, 32), (0.05, 8))),
    *(ShuffledPasses(0.05, 5, batch, mean=True) for batch in (8, 32)),
)


def main() -> None:
    """Print ratings, answers and wrong ones for each kind of client."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    ratings = load(options.data)
    users = np.repeat(np.arange(ratings.n_users), np.diff(ratings.indptr))
    some = range(options.first, options.first + options.users)
    for biases in (False, True):
        model = trained(users, ratings.items, ratings.values, factors=10, biases=biases, seed=options.seed)
        data = (users, ratings.items, ratings.values, *model)
        for client in CLIENTS:
            with tempfile.TemporaryDirectory() as folder:
                table = recorded(Path(folder) / "t", client, data, some, options.seed)
                begin = time.process_time()
                found = fl.attack(Path(folder) / "t", "undeclared")
            user, item, value = item_answers(found, table, np.array(ratings.levels))
            answers, wrong = user.size, int((np.abs(value - table[user, item]) > 0.5).sum())
            print(
                f"{client}, {'biases' if biases else 'no biases'}: {int((table > 0).sum())} ratings, ", end=""
            )
            print(f"{answers} answered, {wrong} wrong, {time.process_time() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
