"""Which rule ``identify`` finds in random recordings of known rules: ``python -m tests.soak.identify``.

Rules in turn; sizes, constants, scales, regularisation and types at random, nothing declared. Exits with 1
where something is told that is not so.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import factorleak as fl
from tests.oracles.client_programs import RULES, Program

EXPECTED: dict[str, dict[str, Any]] = {
    "semi-als": {"rule": "semi-als", "order": "batch", "reduction": "sum"},
    "sgd": {"rule": "sgd", "order": "batch", "reduction": "sum", "start": "kept"},
    "sgd-mean": {"rule": "sgd", "order": "batch", "reduction": "mean", "start": "kept"},
    "per-rating": {"rule": "sgd", "order": "per-rating"},
    "fresh": {"order": "batch", "reduction": "sum"},
    "logistic": {"rule": "sgd", "order": "batch"},
    "noise": {},
}


def confusion(count: int, folder: Path) -> Iterator[tuple[Program, dict[str, Any]]]:
    """Random programs, and what is found in their recordings of the keys in ``EXPECTED``."""
    for seed in range(count):
        program, path = random_program(seed), folder / f"recording-{seed}"
        program.record(path)
        rule = fl.identify(path).rule
        yield program, {key: rule[key] for key in ("rule", "order", "reduction", "start") if key in rule}


def random_program(seed: int) -> Program:
    """Rules in turn; everything else at random."""
    rng = np.random.default_rng(seed)
    rule = RULES[seed % len(RULES)]
    return Program(
        rule,
        factors=int(rng.integers(3, 9)),
        n_users=int(rng.integers(8, 25)),
        rate=float(10 ** rng.uniform(-3, -1.7)),
        ridge=float(10 ** rng.uniform(-2, 0)),
        scale=float(rng.choice([1.0, -1.0, -2.0, 0.01])),
        pull=float(rng.choice([0.0, 0.05])) if rule in ("semi-als", "sgd", "sgd-mean") else 0.0,
        dtype=rng.choice([np.float64, np.float32]),
        seed=seed,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="recordings")
    count = parser.parse_args().count
    table: Counter[tuple[str, str]] = Counter()
    wrong = 0
    with TemporaryDirectory() as folder:
        for program, found in confusion(count, Path(folder)):
            table[program.rule, " ".join(f"{key}={value}" for key, value in found.items()) or "-"] += 1
            wrong += any(EXPECTED[program.rule].get(key) != value for key, value in found.items())
    for (rule, found), times in sorted(table.items()):
        print(f"{rule:12} {times:4}  {found}")
    print(f"{wrong} of {count} recordings were told something that is not so")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
