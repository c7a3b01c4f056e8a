"""What ``undeclared`` reads of clients that send rows of all items: ``python -m tests.tools.unrated``.

FedMVMF in include-unrated under switches that move the client's factor between its rows, 60 clients, 200
items, two rounds. Prints for each how many clients are answered, and how many answers, rated or unrated, are
wrong.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import factorleak as fl
from audit.scoring.answers import round_ratings
from victims.data.synthetic import Synthetic, generate
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record

SETTINGS: tuple[dict[str, Any], ...] = (
    {"order": "per-rating"},
    {"batch_size": 10},
    {"order": "per-rating", "shuffle": "rounds"},
    {"order": "per-rating", "upload": "delta"},
    {"order": "per-rating", "local_steps": 3},
    {"order": "per-rating", "row_factor": "after"},
    {"order": "per-rating", "reduction": "mean"},
    {"order": "per-rating", "client_learning_rate": 0.01},
)


def main() -> None:
    """Print the table."""
    ratings = generate(Synthetic(users=60, items=200, ratings_per_user=20.0, single=0.03, seed=2))
    truth = ratings.matrix().toarray()
    for setting in SETTINGS:
        for round_ in (0, 4):
            with TemporaryDirectory() as folder:
                path = Path(folder) / "t"
                victim = FedMVMF("sgd", "include-unrated", factors=6, **setting)
                record(victim, ratings, path, rounds=[round_], seed=1)
                found = fl.attack(path, "undeclared")
            wrong = told = rated = 0
            for user, kind, index, value, _ in found.rows():
                item = kind == 0
                actual = truth[user[item], index[item]]
                near = np.where(value[item] == 0, 0, round_ratings(value[item], ratings.levels))
                wrong, told = wrong + int((near != actual).sum()), told + actual.size
                rated += int(((near == actual) & (actual > 0)).sum())
            words = " ".join(f"{name}={value}" for name, value in setting.items())
            answered = ratings.n_users - len(found.abstained)
            clients = f"{answered} of {ratings.n_users} clients"
            print(
                f"{words:45} round {round_}: {clients}, {wrong} of {told} answers wrong"
                f", {rated} of {ratings.n_ratings} ratings right"
            )


if __name__ == "__main__":
    main()
