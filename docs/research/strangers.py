"""Programs that others wrote, re-created: ``python docs/research/strangers.py --data PATH --out FOLDER``.

Writes the table ``strangers``. Most of its lines are lines of ``switches``, ``published-orders`` and
``same-order`` under the name of the program that they re-create. Three are measured here: local steps that
send weights; implicit feedback, whose ratings are all 1, so that only the list is private; and clients of
several users.
"""

from __future__ import annotations

import argparse
import csv
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from switches import ROWS, Program, measured, row_of

import factorleak as fl

HEAD = (
    "program", "re-created as", "read by", "ratings right", "best guess", "ceiling", "answered", "rounds",
    "needed beside rows and broadcasts", "s",
)  # fmt: skip
NOTHING = "nothing"
LOCAL = Program(
    "strangers", "fedmf", {"local_steps": 3, "upload": "weights", "client_learning_rate": 3e-4}, rounds=(4,)
)
LISTS = ("undeclared", "grid", "spectral", "rated-set")


class Line(NamedTuple):
    """A line of another table under the name of a program: where it is, and what its attack needs."""

    program: str
    table: str
    victim: str
    text: str
    needs: str


ELSEWHERE = (
    Line("Chai et al.'s published program, first round", "published-orders", "`fedmf`",
         "start=constant init_scale=0.01 order=per-rating shuffle=once row_factor=after",
         "scale and order of the rows"),
    Line("the same, later rounds", "published-orders", "`fedmf`",
         "start=constant init_scale=0.01 order=per-rating shuffle=once row_factor=after",
         "scale and order of the rows"),
    Line("a Flower app, loss averaged over a client's ratings", "switches", "`fedmf`", "reduction=mean",
         NOTHING),
    Line("Hu & Fang's published program, without noise", "published-orders", "`mf`",
         "order=per-rating learning_rate=0.005", NOTHING),
    Line("federated MF with broadcast item biases", "switches", "`fedmf`", "biases=items", NOTHING),
)  # fmt: skip


def elsewhere(line: Line, number: int) -> list[str]:
    """A line of this table from one of another; ``number`` tells equal ones apart."""
    with (ROWS / f"{line.table}.csv").open(newline="") as file:
        found = [row for row in csv.reader(file) if row[:2] == [line.victim, line.text]]
    victim, text, *rest, seconds = found[number]
    return [line.program, f"{victim}, {text}", *rest, line.needs, seconds]


def local_steps(data: str, out: Path) -> list[str]:
    """Three local steps that send weights."""
    victim, text, *rest, seconds = row_of(LOCAL, measured(LOCAL, data, 100, 0, out / "local"))
    return [
        "a Flower app, FedAvg weights after three local steps",
        f"{victim}, {text}",
        *rest,
        NOTHING,
        seconds,
    ]


def implicit(data: str, out: Path) -> list[str]:
    """The lists of clients whose ratings are all 1; rows of all items are sent."""
    ratings = fl.load(data)
    ones = replace(ratings, values=np.ones(ratings.values.size), levels=(1.0,))
    rows = fl.audit(
        ones, victim="fedmvmf", attacks=LISTS, updates="semi-als", weightings="include-unrated", rounds=(4,),
        users=100, seed=0, out=out / "implicit", factors=10,
    )  # fmt: skip
    ran = rows[(rows["metric"] == "rated_set_f1") & (rows["n_abstained"] < rows["n_users"])]
    best = ran.loc[ran["value"].idxmax()]
    return [
        "federated collaborative filtering, implicit feedback",
        "`fedmvmf`, semi-als include-unrated, all ratings 1",
        f"`{best['attack']}`",
        f"list, F1 {best['value']:.3f} [{best['ci_low']:.3f}, {best['ci_high']:.3f}]",
        f"{best['baseline']:.3f}",
        "1.000",
        f"{best['n_users'] - best['n_abstained']:.0f} of {best['n_users']:.0f}",
        "4",
        "the weight of unrated items",
        f"{best['seconds']:.0f}",
    ]


def silos(data: str, out: Path, users: int) -> list[str]:
    """Clients that send the sums of several users' rows, 100 users in all."""
    rng = np.random.default_rng(0)
    ratings = fl.load(data)
    chosen = rng.choice(ratings.n_users, 100 // users * users, replace=False).reshape(-1, users)
    table = ratings.matrix().toarray()[chosen]  # (silos, users, items)
    v, u = rng.normal(0, 0.3, (ratings.n_items, 10)), rng.normal(0, 0.3, (*chosen.shape, 10))
    rows = -2 * np.einsum("sui,suk->sik", np.where(table > 0, table - u @ v.T, 0), u)
    path = out / f"silos-{users}"
    with fl.Recorder(path, rating_levels=ratings.levels) as recorder:
        recorder.broadcast(0, v)
        for number, sent in enumerate(rows):
            (items,) = np.nonzero((table[number] > 0).any(axis=0))
            recorder.upload(0, number, sent[items], items)
    begin = time.perf_counter()
    found = fl.attack(path, "undeclared")
    seconds = time.perf_counter() - begin
    lone = (table > 0).sum(axis=1) == 1
    told = np.full(lone.shape, np.nan)
    for silo, _, item, value, _ in found.rows():
        told[silo, item] = np.round(value)  # stars
    right = (told == table.sum(axis=1)) & lone
    wrong = (np.isfinite(told) & ~right).sum()
    shares = np.bincount(np.searchsorted(ratings.levels, table[table > 0])) / (table > 0).sum()
    read = right.sum() / (table > 0).sum()
    return [
        f"cross-silo: {users} users on one client",
        "rows of `fedmf` at random factors, summed",
        "`undeclared`",
        f"{read:.3f}: {right.sum():,} of {lone.sum():,} items of one user alone, {wrong:,} wrong; the other "
        f"{(table > 0).sum() - lone.sum():,} ratings NOT TESTED",
        f"{shares.max():.3f}",
        "1.000",
        f"{len(rows) - len(found.abstained)} of {len(rows)} silos",
        "0",
        NOTHING,
        f"{seconds:.0f}",
    ]


def main() -> None:
    """Measure what is measured here, and write the table after each line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    lines = [elsewhere(line, number == 1) for number, line in enumerate(ELSEWHERE)]
    for measure in (
        lambda: silos(given.data, given.out, 2),
        lambda: silos(given.data, given.out, 3),
        lambda: local_steps(given.data, given.out),
        lambda: implicit(given.data, given.out),
    ):
        lines.append(measure())
        print(" | ".join(lines[-1]), flush=True)
        with (ROWS / "strangers.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([HEAD, *lines])


if __name__ == "__main__":
    main()
