"""Which rule ``identify`` finds in random recordings of known rules: ``python -m tests.tools.identify``.

Rules in turn; sizes, rates, grids, scales, names, lost uploads and number types at random, nothing declared.
Attacks are run under what was found. One row of ``--rows`` for each recording: what is there is not run
again, so that a stopped run goes on. Exits with 1 where something is told that is not so, or a rating is
answered wrongly.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import factorleak as fl
from tests.oracles.aligned import item_answers
from tests.oracles.rule_programs import ADAPTIVE, IN_PAIRS, TRUTH, Recording

GRIDS = ((1.0, 2.0, 3.0, 4.0, 5.0), tuple(np.arange(0.5, 5.1, 0.5).tolist()))
ATTACKS = ("spectral", "grid", "undeclared")
FITTED = (*(rule for rule in ADAPTIVE if rule != "adam-once"),)  # that inversion is asked about, too
KEYS = (
    *("rule", "order", "batch_size", "local_steps", "reduction", "loss", "link"),
    *("start", "moves_items", "client_biases", "clip", "momentum", "nesterov", "negatives"),
)
COLUMNS = (
    *("seed", "rule", "dtype", "levels", "factors", "rate", "dropped", "permuted", "scale"),
    *("outcome", "found", "not_so", "undecided", "read", "looked_at", "answered", "wrong", "wrong_by"),
    "seconds",
)


def random_recording(seed: int) -> Recording:
    """Rules in turn; everything else at random."""
    rng = np.random.default_rng(seed)
    rule = tuple(TRUTH)[seed % len(TRUTH)]
    recording = Recording(
        rule,
        factors=int(rng.integers(3, 7)),
        rate=float(10 ** rng.uniform(-2.5, -1.7)),
        levels=GRIDS[int(rng.random() < 0.5)],
        dropped=float(rng.choice([0.0, 0.2])),
        permuted=bool(rng.random() < 0.5),
        scale=float(rng.choice([1.0, -2.0, 0.01])),
        dtype=np.float32 if rng.random() < 0.4 else np.float64,
        seed=seed,
    )
    # their copies move by what they send, or its opposite, and no multiple of it is read
    return replace(recording, scale=float(np.sign(recording.scale))) if rule in FITTED else recording


def row_of(recording: Recording, folder: Path, *, attacks: bool = True) -> dict[str, Any]:
    """What is found in one recording, and what attacks answer under it, unless none is run."""
    path, begin = folder / f"recording-{recording.seed}", time.process_time()
    ratings = recording.record(path)
    view = fl.open_transcript(path).view("server")
    found = fl.identify(view)
    truth = TRUTH[recording.rule]
    told = {key: found.rule[key] for key in KEYS if key in found.rule}
    not_so = [key for key, value in told.items() if truth.get(key) != value]
    # parallel rows may be several steps that are too short to be seen
    missing = [key for key in truth if key not in told and (key, truth[key]) != ("local_steps", 1)]
    under = found.applied(view)
    answered, wrong = {}, {}
    tried = (*ATTACKS, *(("inversion",) if recording.rule in FITTED else ())) if attacks else ()
    for attack in tried:
        # of pairs, that an item was not used is an answer, too
        levels = (0.0, 1.0) if recording.rule in IN_PAIRS else recording.levels
        answered[attack], wrong[attack] = counted(fl.attack(under, attack), ratings, levels)
    outcome = "wrong" if not_so else "nothing" if not told else "part" if missing else "whole"
    return {
        "seed": recording.seed,
        "rule": recording.rule,
        "dtype": np.dtype(recording.dtype).name,
        "levels": len(recording.levels),
        "factors": recording.factors,
        "rate": f"{recording.rate:.3g}",
        "dropped": recording.dropped,
        "permuted": recording.permuted,
        "scale": recording.scale,
        "outcome": outcome,
        "found": " ".join(f"{key}={value}" for key, value in told.items()),
        "not_so": " ".join(not_so),
        "undecided": "; ".join(found.undecided),
        "read": found.n_read,
        "looked_at": found.n_clients,
        "answered": max(answered.values(), default=0),
        "wrong": sum(wrong.values()),
        "wrong_by": " ".join(f"{name}:{count}" for name, count in wrong.items() if count),
        "seconds": f"{time.process_time() - begin:.1f}",
    }


def counted(found: fl.Reconstruction, ratings: np.ndarray, levels: tuple[float, ...]) -> tuple[int, int]:
    """Answers about ratings, and how many of them are another level."""
    grid = np.array(levels)
    user, item, value = item_answers(found, ratings, grid)
    near = grid[np.abs(value[:, None] - grid).argmin(axis=1)]
    return near.size, int((near != ratings[user, item]).sum())


def main() -> None:
    """Write the rows, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="recordings")
    parser.add_argument("--rows", type=Path, default=Path("identify.csv"), help="where rows go")
    parser.add_argument("--rule", action="append", default=[], help="repeatable; all by default")
    parser.add_argument("--no-attacks", action="store_true", help="identify alone")
    given = parser.parse_args()
    there = given.rows.is_file()
    rows = list(csv.DictReader(given.rows.open())) if there else []
    done = {int(row["seed"]) for row in rows}
    with given.rows.open("a", newline="") as file, TemporaryDirectory() as folder:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not there:
            table.writeheader()
        for recording in map(random_recording, range(given.count)):
            if recording.seed not in done and recording.rule in (given.rule or TRUTH):
                rows.append(
                    {
                        key: str(value)
                        for key, value in row_of(
                            recording, Path(folder), attacks=not given.no_attacks
                        ).items()
                    }
                )
                table.writerow(rows[-1])
                file.flush()
    shown(rows)
    raise SystemExit(any(row["outcome"] == "wrong" or int(row["wrong"]) for row in rows))


def shown(rows: list[dict[str, str]]) -> None:
    """The table."""
    outcomes = ("whole", "part", "nothing", "wrong")
    print("| true rule | recordings | " + " | ".join(outcomes) + " | answers | wrong answers |")
    print("|---" * 8 + "|")
    for rule in TRUTH:
        own = [row for row in rows if row["rule"] == rule]
        count = Counter(row["outcome"] for row in own)
        answers = (sum(int(row[name]) for row in own) for name in ("answered", "wrong"))
        cells = (rule, len(own), *(count[outcome] for outcome in outcomes), *answers)
        print("| " + " | ".join(map(str, cells)) + " |")


if __name__ == "__main__":
    main()
