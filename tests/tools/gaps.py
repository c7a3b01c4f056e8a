"""What ``undeclared`` reads of rows of which some entries are not sent, over many programs: none wrongly.

python -m tests.tools.gaps [--count 3]
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path

import numpy as np

import factorleak as fl
from tests.oracles.aligned import item_answers
from tests.oracles.gap_programs import (
    GapProgram,
    at_random,
    largest_of_all,
    largest_of_each_row,
    one_step,
    three_steps,
)

STARS, HALF_STARS = tuple(np.arange(1.0, 6.0)), tuple(np.arange(1, 11) / 2)


def main() -> None:
    """Print ratings, answers and wrong ones for each kind of program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3, help="programs of each kind")
    count = parser.parse_args().count
    steps, sent = (one_step, three_steps), (largest_of_each_row, largest_of_all, at_random)
    for dtype, step, part, share in itertools.product((np.float64, np.float32), steps, sent, (0.5, 0.2)):
        ratings = answers = wrong = 0
        for seed in range(count):
            levels = HALF_STARS if seed % 2 else STARS
            program = GapProgram(
                step, part, share, (10, 6, 16)[seed % 3], dtype=dtype, levels=levels, seed=seed
            )
            with tempfile.TemporaryDirectory() as folder:
                table = program.record(Path(folder) / "t")
                found = fl.attack(Path(folder) / "t", "undeclared")
            ratings += int((table > 0).sum())
            user, item, value = item_answers(found, table, levels)
            answers += user.size
            wrong += int((np.abs(value - table[user, item]) > 0.25).sum())
        print(f"{dtype.__name__} {step.__name__} {part.__name__} {share:g}: {ratings} ratings, ", end="")
        print(f"{answers} answered, {wrong} wrong", flush=True)


if __name__ == "__main__":
    main()
