"""A root solver on all clients, part by part: ``chosen_solver.py --data PATH --out FOLDER --attack NAME``.

Prints a line of the table ``chosen-solver``. ``factorleak audit --sample 10000`` attacks the same clients in
one cell, and loses minutes of it when it is stopped. Here clients are attacked ``PART`` at a time in a random
order, and finished parts in FOLDER are found again. The rounds that the systems need are recorded: one in
semi-als, two in sgd. ``--seconds`` ends early, and then the clients so far, a random sample, are scored.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import joblib
import numpy as np

import factorleak as fl
from attacks.base import Reconstruction, joined

PART = 250


def whole(parts: list[Reconstruction]) -> Reconstruction:
    """One reconstruction of several of different clients."""
    users = np.concatenate([part.users for part in parts])
    order = np.argsort(users)
    factors = (part.factors for part in parts)
    return Reconstruction(
        parts[0].attack,
        users[order],
        tuple(block for part in parts for block in part.blocks),
        {user: why for part in parts for user, why in part.abstained.items()},
        parts[0].options,
        {
            name: np.concatenate([part.diagnostics[name] for part in parts])[order]
            for name in parts[0].diagnostics
        },
        factors=joined((one.users, one.round, one.value) for one in factors if one is not None),
    )


def cells(found: Reconstruction, transcript: Path) -> list[str]:
    """Of how many clients, then the table's cells from the ratings on."""
    scores = fl.score(found, transcript=transcript).set_index("metric")

    def of(metric: str, column: str = "value") -> str:
        return f"{float(scores[column][metric]):.3f}"

    low, high = (of("rating_accuracy", end) for end in ("ci_low", "ci_high"))
    return [
        f"{found.users.size:,}",
        f"{of('rating_accuracy')} [{low}, {high}]",
        of("rating_accuracy", "baseline"),
        of("rated_rating_accuracy"),
        of("attribute_accuracy"),
        of("attribute_accuracy", "baseline"),
        f"{np.mean(found.diagnostics['converged']):.0%}",
    ]


def main() -> None:
    """Attack every part that is not there yet, and print the line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--update", default="semi-als")
    parser.add_argument("--weighting", default="observed-only")
    parser.add_argument("--attack", default="root-hybr")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    place = given.out / f"{Path(given.data).name}-{given.update}-{given.weighting}"
    place.mkdir(parents=True, exist_ok=True)
    path, begin = place / "recording", time.monotonic()
    if not path.exists():
        rounds = (5,) if given.update == "semi-als" else (4, 5)
        fl.record(path, given.data, rounds=rounds, update=given.update, weighting=given.weighting)
    view = fl.open_transcript(path).view("server")
    order = np.random.default_rng(0).permutation(view.users)
    parts: list[Reconstruction] = []
    for start in range(0, order.size, PART):
        kept = place / f"{given.attack}-{start}.pickle"
        if not kept.exists():
            if parts and time.monotonic() - begin > given.seconds:
                break
            some = view.select(np.sort(order[start : start + PART]))
            partial = kept.with_suffix(".partial")
            joblib.dump(fl.attack(some, given.attack, answer="any", jobs=1), partial)
            partial.rename(kept)
        parts.append(joblib.load(kept))
        done = sum(part.users.size for part in parts)
        print(f"{done:,} of {order.size:,} clients, {time.monotonic() - begin:.0f} s", flush=True)
    print(" | ".join(cells(whole(parts), path)))


if __name__ == "__main__":
    main()
