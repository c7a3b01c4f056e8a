"""What is read of steps whose rows are in half precision: ``python -m tests.tools.half_precision``.

Sixteen clients of a made-up program step after every rating, or after means of five; every other one rates in
whole stars on a grid of halves. Exits with 1 where more than one answer of a thousand is wrong.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tests.attacks.closed_form.test_uploads import half_precision
from tests.tools.programs import BAR, answers


def main() -> None:
    """Print what is read of each program, and of all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=20, help="programs of each kind")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    given = parser.parse_args()
    total = np.zeros(3, int)
    for name, size, mean in (("per rating", 1, False), ("means of five", 5, True)):
        own = np.zeros(3, int)
        for seed in range(given.first, given.first + given.count):
            with TemporaryDirectory() as folder:
                path = Path(folder) / "t"
                table = half_precision(path, size=size, mean=mean, rng=np.random.default_rng(seed))
                own += np.array([(table > 0).sum(), *answers(path, table)])
        print("{}: {:,} ratings, {:,} answered, {:,} wrong".format(name, *own), flush=True)
        total += own
    raise SystemExit(bool(total[2] > BAR * total[1]))


if __name__ == "__main__":
    main()
