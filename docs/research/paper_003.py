"""How far the start alone explains Duriakova et al.'s error: ``python docs/research/paper_003.py DATA``.

A test item of u is no item that u rated in training, so V_j^u moves by line 11 alone. Beside the MAE of
U.V_j^u stands that of U.V_j^0, with the start in place of all that neighbours sent, and how far V_j^u has
moved.
"""

from __future__ import annotations

import csv
import sys

import numpy as np

from victims.data.loaders import load
from victims.data.subsets import rotations
from victims.protocols.pdmfrec import PDMFRec
from victims.training import start

RATE, ROUNDS = 0.01, (5, 20, 60)
VARIANTS = {
    "pdmfrec, W twice": PDMFRec(regularization=0.02, learning_rate=RATE),
    "pdmfrec, W once": PDMFRec(regularization=0.02, learning_rate=RATE, weight="once"),
    "pdmfrec-sim": PDMFRec(regularization=0.02, learning_rate=RATE, variant="-sim"),
    "pdmfrec-sim-all": PDMFRec(regularization=0.02, learning_rate=RATE, variant="-sim,all"),
}


def main(data: str) -> None:
    """Print a table as CSV."""
    train, _, test = next(rotations(load(data), 0))
    out = csv.writer(sys.stdout)
    out.writerow(["", "rounds", "MAE", "MAE with the start of V", "V moved by"])
    for name, victim in VARIANTS.items():
        run = start(victim, train, [], 0)
        at_start = victim.items_of(run.state, train, test.users, test.items)
        for number in range(ROUNDS[-1]):
            run = run.trained(number)
            if number + 1 in ROUNDS:
                now = victim.items_of(run.state, train, test.users, test.items)
                error = [
                    np.clip(
                        (run.state.clients[test.users] * v).sum(axis=1), *test.levels[:: len(test.levels) - 1]
                    )
                    - test.values
                    for v in (now, at_start)
                ]
                mae = [f"{np.abs(e).mean():.3f}" for e in error]
                moved = np.median(np.linalg.norm(now - at_start, axis=1) / np.linalg.norm(at_start, axis=1))
                out.writerow([name, number + 1, *mae, f"{moved:.1%}"])
                sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
