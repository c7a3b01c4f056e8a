"""Who reads what in Hu & Fang's published order: ``published_order.py --data PATH --out FOLDER``.

Writes the table ``order-systems``: systems that ``factorleak claims`` takes minutes for on all clients are
attacked on 100 of them, while all train. The error is that of all, after 100 epochs.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np

import factorleak as fl
from audit.epsilon.claims import Claim, held_out_error, told_ceiling
from audit.experiments.plan import Claims
from audit.experiments.rows import metric_rows
from audit.factories import make_defenses, make_victim
from audit.scoring.ceiling import Ceiling
from audit.scoring.truth import read_truth
from victims.recording import record
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript

ROWS = Path(__file__).parent / "rows" / "order-systems.csv"
SYSTEMS = (
    ("HDPMF, fresh", "hdpmf", "fresh"),
    ("HDPMF, fresh, one h for all items", "hdpmf:mixing=draw", "fresh"),
    ("DPMF, fresh", "dpmf", "fresh"),
    ("HDPMF, composed", "hdpmf", "composed"),
    ("HDPMF-R, fresh", "hdpmf-r", "fresh"),
)
METRIC, ORDER = "rated_rating_accuracy", {"order": "per-rating", "learning_rate": "0.005"}


def line(name: str, claim: Claim, ratings: fl.Ratings, out: Path, users: np.ndarray) -> list[str]:
    """What is read of one system, and its error."""
    begin = time.process_time()
    path = out / name.replace(" ", "-")
    record(
        make_victim("decentralised-mf", claim.plan.victim), ratings, path, rounds=range(claim.plan.rounds),
        users=users, defenses=make_defenses(claim.defense), seed=0,
    )  # fmt: skip
    transcript = open_transcript(path)
    limit = told_ceiling(claim, ratings)
    ceilings = {METRIC: Ceiling(users, limit.ml[users], limit.map[users])}
    found = fl.attack(path, "trajectory")
    truth = read_truth(truth_path(path))
    rows = metric_rows({}, found, transcript.manifest, truth, ceilings=ceilings)
    (read,) = (row for row in rows if row["metric"] == METRIC)
    (error,) = held_out_error(claim, ratings, out, {})
    none = f", none for {len(found.abstained)}" if found.abstained else ""
    if np.isfinite(read["value"]):
        said = f"{read['value']:.3f} [{read['ci_low']:.3f}, {read['ci_high']:.3f}]{none}"
    else:
        said = f"{read['verdict'] or read['status']}{none}"
    guess, most = (f"{read[key]:.3f}" for key in ("baseline", "ceiling"))
    away, mean = (f"{error[key]:.3f}" for key in ("value", "baseline"))
    return [name, said, guess, most, f"{away} ({mean})", f"{time.process_time() - begin:.0f}"]


def main() -> None:
    """Measure all systems, and write the table after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--users", type=int, default=100)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    ratings = fl.load(given.data)
    users = np.sort(np.random.default_rng(0).choice(ratings.n_users, given.users, replace=False))
    head = (
        "system, noise", "ratings right (`trajectory`)", "best guess", "ceiling", "MSE (training mean)",
        "processor s",
    )  # fmt: skip
    lines: list[list[str]] = []
    for name, protocol, noise in SYSTEMS:
        claim = Claim(
            Claims(data=given.data, victim_options=dict(ORDER)), protocol, noise, 1.0, 0, ratings.n_users
        )
        lines.append(line(name, claim, ratings, given.out, users))
        print(" | ".join(lines[-1]), flush=True)
        with ROWS.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([head, *lines])


if __name__ == "__main__":
    main()
