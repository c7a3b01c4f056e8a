"""What a round costs on growing data (Yang et al., Table 3). ``python docs/research/round_growth.py DATA``.

Prints a table as CSV: rows, messages and bytes of a round, counted, and its processor time, the median of
``TIMED`` rounds after the first one, which finds who hears of what. One of users, d and K varies at a time.
Under ``growth`` stands the slope of each logarithm against that of what varies: 1 is linear.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from audit.papers.feedback import Traffic, traffic
from victims.data.loaders import load
from victims.data.ratings import Ratings
from victims.data.subsets import of_users
from victims.protocols.dmf import DMF
from victims.protocols.dpmf_yang import DPMFYang
from victims.training import start

TIMED = 3
SYSTEMS: dict[str, Callable[..., Any]] = {"dpmf-yang": DPMFYang, "dmf": DMF}
USUAL = {"users": 1.0, "degree": 3, "factors": 10}
VARIED = {"users": (0.125, 0.25, 0.5, 1.0), "degree": (1, 3, 10, 30), "factors": (5, 10, 20, 40, 80)}
HEAD = ("system", "varied", "at", "ratings", "rows", "messages", "bytes", "s a round", "messages / claimed")


def measured(system: str, ratings: Ratings, degree: int, factors: int) -> tuple[Traffic, float]:
    """What the second round sends, and its processor time in seconds."""
    victim = SYSTEMS[system](degree=degree, factors=factors)
    run = start(victim, ratings, (), 0).trained(0)
    sent, seconds = traffic(victim, run.state, ratings), []
    for number in range(1, TIMED + 1):
        begin = time.process_time()
        run = run.trained(number)
        seconds.append(time.process_time() - begin)
    return sent, float(np.median(seconds))


def main(data: str) -> None:
    """Print the table."""
    whole = load(data)
    order = np.random.default_rng(0).permutation(whole.n_users)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(HEAD)
    for system in SYSTEMS:
        for name, values in VARIED.items():
            found = []
            for value in values:
                at = {**USUAL, name: value}
                some = np.sort(order[: round(at["users"] * whole.n_users)])
                ratings = whole if at["users"] == 1 else of_users(whole, some)
                sent, seconds = measured(system, ratings, int(at["degree"]), int(at["factors"]))
                x = ratings.n_ratings if name == "users" else value
                found.append((x, sent.messages, sent.bytes, seconds))
                claimed = ratings.n_ratings * at["degree"]  # (|R| + |M|) d, of DMF |R| d, rows of K numbers
                shown = f"{ratings.n_users:,}" if name == "users" else f"{value:g}"
                cells = [f"{n:,}" for n in (ratings.n_ratings, *sent)]
                out.writerow(
                    [system, name, shown, *cells, f"{seconds:.3f}", f"{sent.messages / claimed:.3f}"]
                )
                sys.stdout.flush()
            x, *columns = np.log(np.array(found)).T
            slopes = [f"{np.polyfit(x, column, 1)[0]:.2f}" for column in columns]
            out.writerow([system, name, "growth", "", "", *slopes, ""])
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
