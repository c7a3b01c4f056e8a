"""Hu & Fang's DPMF by a second program: ``python docs/research/paper_002.py DATA SEEDS [K:RATE ...]``.

The paper's text leaves open over which pairs DPMF takes the smallest budget, and whether items share h. The
program of its authors (github.com/wentao-hu/decentrailized_mf_with_hdp, ``utils.py`` and
``mf_sampling_decentralized.py --strategy min``) takes the smallest of the *training* ratings, draws one h for
all items of an epoch, and lowers the rate one epoch later than "the first 25 %". ``paper_002.c`` is written
from the paper and from that, shares no code and no random stream with the package, and needs a C compiler. A
training of ML-100K takes about 1.5 s of one processor, a sixth of the package's.
"""

from __future__ import annotations

import csv
import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from victims.data.loaders import load
from victims.data.published import published_split
from victims.data.ratings import Ratings
from victims.data.subsets import leave_out

EPOCHS, TESTED, RIDGE = 100, 10, 0.01
SHARES, LOWS, HIGHS = (0.54, 0.37), (0.1, 0.5), (0.5, 1.0)
ITEM_SHARES = (1 / 3, 1 / 3)
USUAL = ("5:0.0005", "10:0.0002", "10:0.0005", "5:0.0002", "10:0.0001", "5:0.0001")
READINGS = {
    "all pairs, h of each item": (False, False),
    "training ratings, h of each item": (True, False),
    "training ratings, one h (the program)": (True, True),
}


def weights(rng: np.random.Generator, size: int, shares: tuple[float, float]) -> np.ndarray:
    """Weights of users or items, groups drawn one by one."""
    group = rng.choice(3, size, p=[*shares, 1 - sum(shares)])
    drawn = rng.uniform(np.array([*LOWS, 1.0])[group], np.array([*HIGHS, 1.0])[group])
    return np.where(group == 2, 1.0, drawn)


def compiled(folder: str) -> Callable[..., None]:
    """The training of ``paper_002.c``."""
    library = Path(folder) / "paper_002.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-O3", "-shared", "-fPIC", "-o", library, source, "-lm"], check=True)
    train: Callable[..., None] = ctypes.CDLL(str(library)).train
    return train


def errors(
    train_c: Callable[..., None], parts: tuple[Ratings, Ratings], k: int, rate: float, reading: str, seed: int
) -> tuple[float, float, float]:
    """MSE, MAE, and the budget that the noise was made for."""
    train, test = parts
    over_rated, together = READINGS[reading]
    rng = np.random.default_rng([seed, 2])
    users, items = weights(rng, train.n_users, SHARES), weights(rng, train.n_items, ITEM_SHARES)
    rated = (users[train.users] * items[train.items]).min()
    budget = float(rated if over_rated else users.min() * items.min())
    width = train.levels[-1] - train.levels[0]
    share = 1 / np.sqrt(np.bincount(train.items, minlength=train.n_items)[train.items])
    client, item = np.empty((train.n_users, k)), np.empty((train.n_items, k))

    def pointer(table: np.ndarray, kind: type = np.float64) -> np.ndarray:
        return np.ascontiguousarray(table, kind)

    given = (
        pointer(train.users, np.int32),
        pointer(train.items, np.int32),
        pointer(train.values),
        pointer(share),
    )
    train_c(
        train.n_ratings,
        *(table.ctypes.data_as(ctypes.c_void_p) for table in given),
        *(train.n_users, train.n_items, k),
        ctypes.c_double(2 * width * np.sqrt(k) / budget),
        int(together),
        ctypes.c_double(rate),
        ctypes.c_double(RIDGE),
        EPOCHS,
        ctypes.c_uint64(seed + 1),
        *(table.ctypes.data_as(ctypes.c_void_p) for table in (client, item)),
    )
    predicted = np.einsum("rk,rk->r", client[test.users], item[test.items])
    off = np.clip(predicted, test.levels[0], test.levels[-1]) - test.values
    return float(np.mean(off**2)), float(np.mean(np.abs(off))), budget


def main(data: str, n_seeds: int, tried: list[str]) -> None:
    """Print a table as CSV, a line as soon as its seeds are done."""
    ratings = load(data)
    out = csv.writer(sys.stdout)
    out.writerow(["data, K", "rate", "smallest budget over", "it is", "MSE (sd)", "MAE (sd)", "seeds"])
    with tempfile.TemporaryDirectory() as folder:
        train_c = compiled(folder)
        for candidate in tried:
            k, rate = candidate.split(":")
            for reading in READINGS:
                found = []
                for seed in range(n_seeds):
                    parts = published_split(data, ratings) or leave_out(ratings, TESTED, seed)
                    found.append(errors(train_c, parts, int(k), float(rate), reading, seed))
                mean, spread = np.mean(found, axis=0), np.std(found, axis=0, ddof=min(n_seeds - 1, 1))
                shown = [f"{mean[at]:.3f} ({spread[at]:.3f})" for at in (0, 1)]
                out.writerow([f"{ratings.name}, {k}", rate, reading, f"{mean[2]:.4f}", *shown, n_seeds])
                sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:] or list(USUAL))
