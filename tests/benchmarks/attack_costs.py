"""What attacks cost: seconds fitted to recordings of several sizes, as in ``audit.registry``.

``python -m tests.benchmarks.attack_costs [ATTACK ...]`` prints a line for each. Seconds of a second run
in one process, so that nothing is compiled, plus half of what the first one took beyond it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.optimize import nnls

import factorleak as fl
from audit.registry import BUILT_IN, is_guess

SIZES = [(20, 10), (60, 10), (60, 40), (240, 20)]  # clients, ratings of each
LONGEST = 60.0  # seconds, after which larger recordings are left out


def main() -> None:
    """Record, attack, fit, print."""
    names = sys.argv[1:] or [name for name in BUILT_IN["attacks"] if not is_guess(name)]
    with TemporaryDirectory() as folder:
        views = [_view(Path(folder) / f"{n}-{each}", n, each) for n, each in SIZES]
        for name in names:
            print(f'"{name}": Cost({", ".join(f"{part:.1g}" for part in _fitted(name, views))})', flush=True)


def _view(path: Path, clients: int, each: int) -> fl.View:
    ratings = fl.load(f"synthetic:users={clients},items=200,ratings_per_user={each}")
    return fl.record(path, ratings, victim="fedmf", factors=10, rounds=[0, 1], progress=False).view("server")


def _fitted(name: str, views: list[fl.View]) -> np.ndarray:
    sizes, seconds = [], []
    for view in views:
        took = []
        for _ in range(2):
            begin = time.perf_counter()
            fl.attack(view, name, progress=False)
            took.append(time.perf_counter() - begin)
        sizes.append((1, view.users.size, view.messages.n_rows))
        seconds.append(took[1] + max(took[0] - took[1], 0) / 2)
        if took[1] > LONGEST:
            break
    scale = 1 / np.maximum(seconds, 0.05)  # relative errors count
    return nnls(np.array(sizes) * scale[:, None], np.array(seconds) * scale)[0]


if __name__ == "__main__":
    main()
