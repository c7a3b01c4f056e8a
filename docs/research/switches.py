"""What is read of each switch of the victims: ``python docs/research/switches.py --data PATH --out FOLDER``.

Runs ``factorleak.audit`` for each line of ``PROGRAMS``, with the attacks of ``ATTACKS``, and writes the
rows of the tables ``switches`` and ``published-orders``: the attack that reads most, and where none answers,
why. Finished lines in FOLDER are found again.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

import factorleak as fl

ROWS = Path(__file__).parent / "rows"
ATTACKS, LAST = (
    ("undeclared", "grid", "spectral"),
    ("trajectory", "inversion"),
)  # where the first leave something
ALL = 0.99
METRIC, FACTORS = "rated_rating_accuracy", 10
HEAD = ("victim", "switches", "read by", "ratings right", "best guess", "ceiling", "answered", "rounds", "s")


class Program(NamedTuple):
    """A victim with switches, and how it is watched."""

    table: str
    victim: str
    switches: dict[str, Any]
    defense: str = "none"
    rounds: tuple[int, ...] = (4, 5)
    update: str = "sgd"
    weighting: str = "observed-only"

    @property
    def text(self) -> str:
        """The switches as on a command line."""
        words = [f"{name}={value}" for name, value in self.switches.items()]
        words = [self.update, *words] if self.update != "sgd" else words
        words = [*words, self.weighting] if self.weighting != "observed-only" else words
        return " ".join([*words, self.defense] if self.defense != "none" else words) or "as published"


def _switches(victim: str, *switches: dict[str, Any], **more: Any) -> list[Program]:
    return [Program("switches", victim, one, **more) for one in switches]


ONE = {"start": "constant", "init_scale": 0.01, "order": "per-rating", "shuffle": "once"}
PROGRAMS = [
    *_switches(
        "fedmf",
        {},
        {"order": "per-rating"},
        {"batch_size": 10, "shuffle": "rounds"},
        {"reduction": "mean"},
        {"reduction": "mean", "batch_size": 10},
        {"upload": "delta"},
        {"upload": "weights"},
        {"local_steps": 3},
        {"local_steps": 3, "upload": "delta", "client_learning_rate": 3e-4},
        {"local_steps": 10, "upload": "weights", "client_learning_rate": 1e-4},
        {"local_steps": 3, "batch_size": 10, "upload": "weights"},
        {"local_steps": 3, "order": "per-rating", "upload": "delta"},
        {"participation": 0.2},
        {"participation": 0.5, "dropout": 0.3, "order": "per-rating"},
        {"biases": "items"},
        {"biases": "both"},
        {"biases": "both", "order": "per-rating"},
    ),
    *_switches(
        "mf",
        {},
        {"batch_size": 1},
        {"batch_size": 10},
        {"reduction": "mean"},
        {"local_steps": 3, "upload": "delta"},
        {"local_steps": 3, "reduction": "mean", "upload": "weights"},
        {"participation": 0.2},
        {"biases": "items"},
    ),
    *_switches(
        "fedmvmf",
        {},
        {"order": "per-rating"},
        {"batch_size": 10},
        {"reduction": "mean"},
        {"local_steps": 3, "upload": "delta"},
        {"upload": "weights"},
        {"participation": 0.2},
        {"biases": "items"},
    ),
    *_switches("fedmvmf", {"reduction": "mean"}, {"upload": "weights"}, update="semi-als"),
    *_switches("fedmvmf", {"order": "per-rating"}, weighting="include-unrated"),
    Program("published-orders", "fedmf", ONE, rounds=(0,)),
    Program("published-orders", "fedmf", ONE),
    Program("published-orders", "fedmf", ONE | {"row_factor": "after"}, rounds=(0,)),
    Program("published-orders", "fedmf", ONE | {"row_factor": "after"}),
    Program("published-orders", "fedmf", {"order": "per-rating", "row_factor": "after"}),
    Program("published-orders", "mf", {"order": "per-rating", "learning_rate": 0.005}),
]


def measured(program: Program, data: str, users: int, seed: int, out: Path) -> pd.DataFrame:
    """The rows of all attacks on one program."""

    def audited(*attacks: str) -> pd.DataFrame:
        return fl.audit(
            data,
            victim=program.victim,
            attacks=attacks,
            defenses=[] if program.defense == "none" else [program.defense],
            updates=program.update,
            weightings=program.weighting,
            rounds=program.rounds,
            users=users,
            seed=seed,
            out=out,
            **({"factors": FACTORS} | program.switches),
        )

    rows = audited(*ATTACKS)
    best = rows.loc[rows["metric"] == METRIC, "value"].max()
    return rows if best > ALL else audited(*ATTACKS, *LAST)


def row_of(program: Program, rows: pd.DataFrame) -> list[str]:
    """The line of the table."""
    ran = rows[rows["metric"] == METRIC]
    ran = ran[ran["n_abstained"] < ran["n_users"]]
    rounds = (
        f"{program.rounds[0]}-{program.rounds[-1]}"
        if len(program.rounds) > 2
        else ",".join(map(str, program.rounds))
    )
    start = [f"`{program.victim}`", program.text]
    if ran.empty:
        failed = rows[rows["status"] == "failed"]["reason"]
        return [*start, "none", failed.iloc[0] if len(failed) else "all abstain", "", "", "0", rounds, ""]
    best = ran.loc[ran["value"].idxmax()]
    same = " = ".join(f"`{name}`" for name in ran[ran["value"] > best["value"] - 5e-4]["attack"])
    ceiling = "" if pd.isna(best["ceiling"]) else f"{best['ceiling']:.3f}"
    answered = f"{best['n_users'] - best['n_abstained']:.0f} of {best['n_users']:.0f}"
    value = f"{best['value']:.3f} [{best['ci_low']:.3f}, {best['ci_high']:.3f}]"
    return [
        *start,
        same,
        value,
        f"{best['baseline']:.3f}",
        ceiling,
        answered,
        rounds,
        f"{best['seconds']:.0f}",
    ]


def _lines(name: str) -> list[list[str]]:
    """The lines of a table as it is."""
    with (ROWS / f"{name}.csv").open(newline="") as file:
        return list(csv.reader(file))[1:]


def renewed(lines: list[list[str]], anew: list[list[str]]) -> list[list[str]]:
    """The lines of a table, those that were measured anew in place of the old ones."""
    new = {_program(line): line for line in anew}
    return [new.get(_program(line), line) for line in lines]


def _program(line: list[str]) -> tuple[str, ...]:
    """What a line is about: its victim, switches and rounds."""
    cells = dict(zip(HEAD, line, strict=True))
    return cells["victim"], cells["switches"], cells["rounds"]


def main() -> None:
    """Measure all programs, and write the tables after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--part", default="", help="a part of the switches' text; other lines stay as they are"
    )
    given = parser.parse_args()
    tables: dict[str, list[list[str]]] = {}
    for number, program in enumerate(PROGRAMS):
        if given.part not in f"{program.table} {program.victim} {program.text}":
            continue
        folder = given.out / f"{number}"
        found = row_of(program, measured(program, given.data, given.users, given.seed, folder))
        print(" | ".join(found), flush=True)
        tables.setdefault(program.table, []).append(found)
        for name, rows in tables.items():
            kept = renewed(_lines(name), rows) if given.part else rows
            with (ROWS / f"{name}.csv").open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([HEAD, *kept])


if __name__ == "__main__":
    main()
