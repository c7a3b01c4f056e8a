"""Processor time of a round of FedMVMF: ``python docs/research/round_speed.py DATA``.

Existing users' training ratings under ``unrated-sampling:rho=1``, semi-als / include-unrated. Prints the
least of ``TIMED`` rounds after the first as CSV, in milliseconds: the column "now" of the table, whose
second and third line are parts of what is called here. "Before" is before commit 784fe3c268.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable
from typing import Any

from audit.factories import make_defenses
from victims.data.loaders import load
from victims.data.subsets import split_by
from victims.protocols.fedmvmf import FedMVMF
from victims.training import start

TIMED = 5
SAMPLING = "unrated-sampling:rho=1"


def least(call: Callable[[int], Any]) -> str:
    """The least processor time of some calls, each told the number of its round; the first does not count."""
    seconds = []
    for number in range(TIMED + 1):
        begin = time.process_time()
        call(number)
        seconds.append(time.process_time() - begin)
    return f"{1000 * min(seconds[1:]):.0f}"


def main(data: str) -> None:
    """Print the table."""
    ratings = split_by("random", load(data), 0.2, 0)[0]
    victim = FedMVMF(update="semi-als", weighting="include-unrated")
    clear, sealed = (
        start(victim, ratings, [*make_defenses(SAMPLING), *make_defenses(more)], 0)
        for more in ("none", "paillier:ideal=true")
    )
    draws = {number: clear.sample(number) for number in range(TIMED + 1)}
    calls: dict[str, Callable[[int], Any]] = {
        "ratings and sample joined, and client factors": lambda number: victim.user_factors(
            clear.state, ratings, draws[number]
        ),
        "ratings and sample joined, and the whole step": lambda number: victim.round(
            clear.state, ratings, None, draws[number]
        ),
        "sample of unrated items drawn": clear.sample,
        "round in the clear, sampling included": clear.trained,
        "round under (ideal) encryption": sealed.trained,
    }
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(("step of a round", "now: ms"))
    for name, call in calls.items():
        out.writerow((name, least(call)))
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
