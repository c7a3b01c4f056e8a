"""What is answered of neighbours whose rule is declared wrongly: ``python -m tests.tools.peer_declarations``.

Victims without a server are recorded under every switch, made-up ratings; in each copy of the recording one
key of the manifest is another. A neighbour, and who reads all that is sent, attack it. A client is answered
wrongly where less than nine tenths of the ratings told of it are right
(``tests.tools.declarations.counted``); ``identify`` is wrong where a value that it names is not the recorded
one. Senders without a name are answered under pseudonyms, which nobody can check here: of those ``peers`` is
left out. Exits with 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

import factorleak as fl
from audit.factories import make_victim
from tests.tools.declarations import counted
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.recording import record

WATCHING = 1
NEIGHBOUR, WIRE = f"neighbour:{WATCHING}", "eavesdropper"
IDENTIFY = "identify"
ATTACKS = (IDENTIFY, "undeclared", "inversion", "likelihood", "peers", "peers-named", "cofactors")
AT_THE_WIRE = (IDENTIFY, "undeclared", "inversion", "likelihood")  # others need what a neighbour knows
SAID = ("order", "local_steps", "reduction", "upload", "link")
VICTIMS: dict[str, tuple[str, dict[str, str]]] = {  # name in the table: victim, options
    "pdmfrec": ("pdmfrec", {"factors": "5", "init_scale": "1", "anonymous": "false"}),
    "pdmfrec, no senders": ("pdmfrec", {"factors": "5", "init_scale": "1"}),
    "dmf": ("dmf", {"factors": "4", "degree": "12"}),
    "dpmf-yang": ("dpmf-yang", {"factors": "4", "degree": "12"}),
}
BATCH = {"order": "batch"}
SWITCHES: tuple[dict[str, str], ...] = (
    {},
    BATCH,
    BATCH | {"batch_size": "4", "shuffle": "rounds"},
    BATCH | {"reduction": "mean"},
    BATCH | {"batch_size": "5", "reduction": "mean"},
    {"local_steps": "3"},
    BATCH | {"local_steps": "3"},
    {"upload": "delta"},
    BATCH | {"upload": "delta", "reduction": "mean"},
    {"upload": "weights", "shuffle": "once"},
    BATCH | {"upload": "weights", "local_steps": "2"},
    {"participation": "0.6", "dropout": "0.3"},
)
WRONG: tuple[tuple[str, Any], ...] = (
    ("order", "batch"), ("order", "per-rating"), ("local_steps", 1), ("local_steps", 3),
    ("batch_size", "all"), ("batch_size", 1), ("batch_size", 4), ("reduction", "mean"), ("reduction", "sum"),
    ("upload", "gradient"), ("upload", "delta"), ("upload", "weights"), ("link", "sigmoid"),
    ("link", "identity"), ("rating_map", "none"), ("rule", "sgd"), ("rule", None), ("upload_scale", 2.0),
    ("upload_scale", -1.0), ("upload_regularization", 0.1), ("learning_rate", 3.0), ("constants", None),
)  # fmt: skip


class Told(NamedTuple):
    """One attack under one declaration: clients answered (``identify``: recordings), and of these wrongly."""

    victim: str
    switches: str
    declared: str
    attack: str
    adversary: str
    answered: int
    wrong: int


def wrongly(manifest: dict[str, Any], key: str, value: Any) -> dict[str, Any] | None:
    """The manifest with one key changed, or all constants or keys of the rule left out; None where that
    changes nothing.
    """
    rule, constants = dict(manifest["rule"]), dict(manifest["constants"])
    if value is None:
        return manifest | {key: {}}
    if key in constants:
        constants[key] = constants[key] + value if key == "upload_regularization" else constants[key] * value
    elif rule.get(key, value) == value:
        return None
    else:
        rule[key] = value
    return manifest | {"rule": rule, "constants": constants}


def counts_of(
    path: Path, attack: str, adversary: str, ratings: np.ndarray, truth: dict[str, Any]
) -> tuple[int, int]:
    """How much is answered, and how much of it wrongly; ratings (users, items), the rule as recorded."""
    if attack != IDENTIFY:
        try:
            return counted(fl.attack(path, attack, adversary=adversary), ratings)
        except InputError:  # it does not apply
            return 0, 0
    found = fl.identify(path, adversary=adversary).rule
    named = [key for key in SAID if key in found]
    return int(len(named) > 0), int(any(found[key] != truth[key] for key in named))


def tried(
    victim: str,
    switches: dict[str, str],
    changes: tuple[tuple[str, Any], ...],
    attacks: tuple[str, ...],
    folder: Path,
    seed: int = 0,
) -> Iterator[Told]:
    """Every attack on a recording of a victim under some switches, under each wrong declaration."""
    ratings = generate(Synthetic(users=40, items=60, ratings_per_user=12.0, seed=seed))
    name, options = VICTIMS[victim]
    path, other = folder / "recorded", folder / "declared"
    record(
        make_victim(name, options | switches), ratings, path, rounds=range(2), watched=(WATCHING,), seed=seed
    )
    manifest, table = json.loads((path / "manifest.json").read_text()), ratings.matrix().toarray()
    shutil.copytree(path, other)
    text = " ".join(f"{key}={value}" for key, value in switches.items()) or "as published"
    hidden = manifest.get("senders_hidden", False)
    for key, value in changes:
        declared = wrongly(manifest, key, value)
        if declared is None:
            continue
        (other / "manifest.json").write_text(json.dumps(declared))
        for adversary, attack in [(NEIGHBOUR, one) for one in attacks] + [(WIRE, one) for one in AT_THE_WIRE]:
            if attack in attacks and not (hidden and attack == "peers"):
                counts = counts_of(other, attack, adversary, table, manifest["rule"])
                yield Told(victim, text, f"{key}={value}", attack, adversary, *counts)


def main() -> None:
    """Print what is wrong, and the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--attack", action="append", choices=ATTACKS, help="repeatable; all by default")
    parser.add_argument("--victim", action="append", choices=VICTIMS, help="repeatable; all by default")
    parser.add_argument("--every", type=int, default=1, help="that many keys apart, others for each switch")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sums: Counter[tuple[str, str, str, str]] = Counter()
    for victim in options.victim or VICTIMS:
        for place, switches in enumerate(SWITCHES):
            changes = WRONG[place % options.every :: options.every]
            with TemporaryDirectory() as folder:
                attacks = tuple(options.attack or ATTACKS)
                for one in tried(victim, switches, changes, attacks, Path(folder), options.seed):
                    row = (victim, one.attack, one.adversary)
                    sums[*row, "declarations"] += 1
                    sums[*row, "answered"] += one.answered
                    sums[*row, "wrong"] += one.wrong
                    if one.wrong:
                        print(*one, sep="; ", flush=True)
            print("#", victim, place, flush=True)
    for row in dict.fromkeys(key[:3] for key in sums):
        said = ", ".join(f"{sums[*row, name]} {name}" for name in ("declarations", "answered", "wrong"))
        print(f"{' · '.join(row)}: {said}")
    raise SystemExit(any(sums[key] for key in sums if key[3] == "wrong"))


if __name__ == "__main__":
    main()
