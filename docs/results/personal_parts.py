"""How far DPMF-Yang's "personal part" follows from rows: ``python docs/results/personal_parts.py DATA``.

A receiver adds up -theta times the rows that a user sends it about an item. Prints, as CSV, how far that is
from the user's personal parts v_q and z_q: |summed - true| / |true| over all users and items about which
anything was sent.
"""

from __future__ import annotations

import csv
import sys

import numpy as np

from victims.data.loaders import load
from victims.protocols.dpmf_yang import DPMFYang
from victims.protocols.own_copies import Copies, at, key_of
from victims.training import start
from victims.transcript.view import ITEM

ROUNDS = (1, 3, 10)
HEAD = ("personal parts start", "watched from round", "to round", "error of v_q", "error of z_q")


def main(data: str) -> None:
    """Print the table."""
    ratings = load(data)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(HEAD)
    for law in ("zero", "private"):
        victim = DPMFYang(personal_start=law)
        run = start(victim, ratings, (), 0)
        shape = (2, ratings.n_users, ratings.n_items, victim.factors)
        total, late = np.zeros(shape, np.float64), np.zeros(shape, np.float64)
        for number in range(max(ROUNDS)):
            for rows in victim.uploads(run.state, ratings, np.arange(ratings.n_users)):
                which = np.where(rows.kind == ITEM, 0, 1)
                total[which, rows.sender, rows.index] += rows.gradient
                if number:
                    late[which, rows.sender, rows.index] += rows.gradient
            run = run.trained(number)
            if number + 1 in ROUNDS:
                for first, summed in ((0, total), (1, late))[: number + 1]:
                    cells = [
                        f"{_error(-victim.learning_rate * summed[part], table.personal, ratings.n_items):.1e}"
                        for part, table in enumerate((run.state.items, run.state.implicit))
                    ]
                    out.writerow([law, first, number, *cells])
                    sys.stdout.flush()


def _error(summed: np.ndarray, personal: Copies, n_items: int) -> float:
    """Relative distance over the pairs that somebody sent rows about."""
    user, item = np.nonzero(np.abs(summed).sum(axis=2))
    if not user.size:
        return float("nan")
    true = at(personal, key_of(user, item, n_items))
    return float(np.linalg.norm(summed[user, item] - true) / np.linalg.norm(true))


if __name__ == "__main__":
    main(sys.argv[1])
