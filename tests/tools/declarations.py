"""What attacks answer where the clients' rule is declared wrongly: ``python -m tests.tools.declarations``.

Programs of known rules, each declared rightly but for one key, under every attack. A client is answered
wrongly where less than nine tenths of the ratings told of it are right. Answers with probabilities are judged
of all clients together, for the ratings of one share the error of its factor: they are wrong where less than
nine tenths of what they claim is right, by more than chance (three standard deviations). Exits with 1 where a
client is, or where a program that can be read is read by nobody.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

import factorleak as fl
from attacks.base import RELATIVE
from tests.oracles.aligned import item_answers
from tests.oracles.client_programs import LEVELS, RULES, Program

ATTACKS = (
    "spectral",
    "grid",
    "undeclared",
    "trajectory",
    "likelihood",
    "inversion",
    *(f"root-{name}" for name in ("hybr", "lm", "krylov", "anderson", "broyden2", "df-sane", "linearmixing")),
    "aggregate",
)
SEALED = ("noise", "logistic")  # programs that no attack on exact rows reads
ENOUGH = 0.9  # of a client's told ratings
WRONG: tuple[tuple[str, Any], ...] = (
    ("rule", "semi-als"), ("rule", "sgd"), ("rule", "projected-sgd"), ("rule", "unheard-of"),
    ("order", "batch"), ("order", "per-rating"), ("local_steps", 3), ("batch_size", 4),
    ("reduction", "mean"), ("reduction", "sum"), ("upload", "delta"), ("upload", "weights"),
    ("loss", "logistic"), ("loss", "bpr"), ("link", "sigmoid"), ("clip", [1.0, 5.0]), ("start", "fresh"),
    ("upload_scale", 2.0), ("upload_scale", -1.0), ("upload_regularization", 0.1),
    ("client_learning_rate", 10.0), ("lambda_factors", 10.0), ("weighting", "include-unrated"),
    ("upload_scale", 0.5), ("client_learning_rate", 0.5), ("client_learning_rate", 1.1),
    ("lambda_factors", 0.0),
)  # fmt: skip


class Told(NamedTuple):
    """One attack under one declaration: clients answered, and of these wrongly."""

    rule: str
    wrong_key: str
    attack: str
    clients: int
    answered: int
    wrong: int


def declaration(program: Program) -> dict[str, Any]:
    """What is so, as ``Recorder`` takes it."""
    rule = {
        "rule": "semi-als" if program.rule == "semi-als" else "sgd",
        "order": "per-rating" if program.rule == "per-rating" else "batch",
        "local_steps": 1,
        "batch_size": 1 if program.rule == "per-rating" else "all",
        "reduction": "mean" if program.rule == "sgd-mean" else "sum",
        "upload": "gradient",
        "loss": "squared",
        "link": "sigmoid" if program.rule == "logistic" else "identity",
        "clip": "none",
        "start": "fresh" if program.rule == "fresh" else "kept",
    }
    constants = {
        "lambda_factors": program.ridge,
        "client_learning_rate": program.rate,
        "upload_scale": program.scale,
        "upload_regularization": program.scale * program.pull,
    }
    return {"rule": rule, "constants": constants}


def wrongly(declared: dict[str, Any], key: str, value: Any) -> dict[str, Any] | None:
    """The declaration with one key changed; None where that changes nothing."""
    rule, constants = dict(declared["rule"]), dict(declared["constants"])
    if key == "weighting":
        return {"rule": rule, "constants": {**constants, "alpha": 0.1}, "weighting": value}
    if key in constants:
        constants[key] = constants[key] + value if key == "upload_regularization" else constants[key] * value
    elif rule[key] == value:
        return None
    else:
        rule[key] = value
    return {"rule": rule, "constants": constants}


def tried(
    program: Program, changes: tuple[tuple[str, Any], ...], attacks: tuple[str, ...], folder: Path
) -> Iterator[Told]:
    """Every attack on a program's recording, under each wrong declaration."""
    for number, (key, value) in enumerate(changes):
        declared = wrongly(declaration(program), key, value)
        if declared is None:
            continue
        path = folder / f"{program.rule}-{program.seed}-{number}"
        ratings = program.record(path, declared)
        for attack in attacks:
            answered, wrong = counted(fl.attack(path, attack), ratings)
            yield Told(program.rule, f"{key}={value}", attack, len(ratings), answered, wrong)


def counted(found: fl.Reconstruction, ratings: np.ndarray) -> tuple[int, int]:
    """Clients answered, and of these wrongly; ratings (users, items)."""
    right, told, claimed, variance = (np.zeros(len(ratings)) for _ in range(4))
    user, index, value = item_answers(found, ratings, LEVELS)
    said = [one["probability"] for one in found.columns()]
    probability = np.concatenate(said) if said and found.scope not in RELATIVE else np.full(user.size, np.nan)
    rated = ratings[user, index] > 0
    user, index, value, probability = (part[rated] for part in (user, index, value, probability))
    near = LEVELS[np.abs(value[:, None] - LEVELS).argmin(axis=1)]
    sure = np.where(np.isnan(probability), 1.0, probability)
    np.add.at(told, user, 1)
    np.add.at(claimed, user, sure)
    np.add.at(variance, user, sure * (1 - sure))
    np.add.at(right, user, near == ratings[user, index])
    unsure = variance > 0
    if right[unsure].sum() < ENOUGH * claimed[unsure].sum() - 3 * np.sqrt(variance[unsure].sum()):
        n_wrong = int(unsure.sum())
    else:
        n_wrong = 0
    return int((told > 0).sum()), n_wrong + int((right < ENOUGH * claimed)[~unsure].sum())


def main() -> None:
    """Print what is wrong, and what nobody reads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--attack", action="append", help="repeatable; all by default")
    parser.add_argument("--rule", action="append", choices=RULES, help="repeatable; all by default")
    parser.add_argument("--seeds", type=int, default=1, help="programs of each rule")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    bad = n_cases = n_answered = n_wrong = 0
    for seed in range(options.first, options.first + options.seeds):
        for rule in options.rule or RULES:
            with TemporaryDirectory() as folder:
                program = Program(rule, pull=0.05 * (seed % 2), seed=seed, rounds=options.rounds)
                told = list(tried(program, WRONG, tuple(options.attack or ATTACKS), Path(folder)))
            for one in told:
                n_cases, n_answered, n_wrong = n_cases + 1, n_answered + one.answered, n_wrong + one.wrong
                if one.wrong:
                    bad += 1
                    print(
                        f"{rule}, {one.wrong_key}: {one.attack}, {one.wrong} of {one.answered} wrong",
                        flush=True,
                    )
            readable = rule not in SEALED and not options.attack
            for key in {one.wrong_key for one in told} if readable else ():
                best = max(one.answered - one.wrong for one in told if one.wrong_key == key)
                if best < told[0].clients / 2:
                    bad += 1
                    print(f"{rule}, {key}: {best} of {told[0].clients} clients are read by the best attack")
    print(f"{n_cases} attacks under a wrong declaration, {n_answered} clients answered, {n_wrong} wrongly")
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
