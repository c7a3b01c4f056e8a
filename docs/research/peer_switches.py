"""What neighbours read of each other under each switch: ``python docs/research/peer_switches.py``.

Made-up ratings (24 clients, 60 items), so that it takes minutes. Each line of the table ``peer-switches`` is
a victim without a server, recorded with one value of a switch; the clients of ``WATCHING`` attack one by one.
Of the ratings whose rows reach them it counts those that the attack claims (with a probability above 0.9,
where it gives one), and of these the right ones.
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from audit.factories import make_attack, make_victim
from victims.data.ratings import Ratings
from victims.data.synthetic import Synthetic, generate
from victims.recording import record
from victims.transcript.kinds import ITEM
from victims.transcript.reader import open_transcript

ROWS = Path(__file__).parent / "rows" / "peer-switches.csv"
RATINGS = Synthetic(users=24, items=60, seed=4)
WATCHING = (1, 7, 13)
SURE = 0.9
HEAD = ("victim", "switches", "rounds", "read by", "ratings sent", "claimed", "right")
VICTIMS = {  # name in the table: victim, options, attack
    "pdmfrec": ("pdmfrec", {"factors": "6", "init_scale": "1", "anonymous": "false"}, "peers-named"),
    "pdmfrec, no senders": ("pdmfrec", {"factors": "6", "init_scale": "1"}, "peers-named"),
    "dmf": ("dmf", {"factors": "4"}, "peers"),
    "dpmf-yang": ("dpmf-yang", {"factors": "4"}, "cofactors"),
}
BATCH = {"order": "batch"}
SWITCHES: tuple[dict[str, str], ...] = (
    {},
    BATCH,
    BATCH | {"batch_size": "5"},
    BATCH | {"reduction": "mean"},
    BATCH | {"batch_size": "5", "reduction": "mean"},
    {"local_steps": "3"},
    BATCH | {"local_steps": "3"},
    {"upload": "delta"},
    {"upload": "delta", "local_steps": "3"},
    {"upload": "weights"},
    {"upload": "weights", "local_steps": "3"},
    {"participation": "0.5"},
    {"dropout": "0.4"},
)


class Counts(NamedTuple):
    """Ratings whose rows reached somebody, those that were claimed, and of these the right ones."""

    sent: int
    claimed: int
    right: int


def counted(path: Path, ratings: Ratings, attack: str) -> Counts:
    """Attack as each watching client."""
    transcript, table = open_transcript(path), ratings.matrix().toarray()
    sent = claimed = right = 0
    for client in WATCHING:
        view = transcript.view(f"neighbour:{client}")
        found = make_attack(attack).attack(view, 0)
        if view.copies is not None:
            about = np.stack([view.copies.round, view.copies.sender, view.copies.index])[
                :, view.copies.kind == ITEM
            ]
            first = np.unique(about[0]).min(initial=0)
            hidden = (about[1] < 0).any()
            sent += (about[0] == first).sum() if hidden else np.unique(about[1:], axis=1).shape[1]
        for part in found.columns():
            told = np.isfinite(part["value"]) & ~(np.asarray(part["probability"]) <= SURE)
            user, item, value = (np.asarray(part[name])[told] for name in ("user", "index", "value"))
            claimed += user.size
            levels = np.array(ratings.levels)
            named = levels[np.abs(value[:, None] - levels).argmin(axis=1)]
            right += int((named == table[user.astype(int), item.astype(int)]).sum())
    return Counts(int(sent), claimed, right)


def main() -> None:
    """Measure all lines."""
    ratings, lines = generate(RATINGS), []
    for name, (victim, options, attack) in VICTIMS.items():
        for switches in SWITCHES:
            some = switches.keys() & {"participation", "dropout"}  # others come in later rounds
            for rounds in ([0], [0, 1, 2]) if some else ([0],):
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / "t"
                    made = make_victim(victim, options | switches)
                    record(made, ratings, path, rounds=rounds, watched=WATCHING, seed=0)
                    counts = counted(path, ratings, attack)
                text = " ".join(f"{key}={value}" for key, value in switches.items()) or "as published"
                words = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]}-{rounds[-1]}"
                lines.append([name, text, words, f"`{attack}`", *counts])
                print(*lines[-1], flush=True)
    with ROWS.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEAD, *lines])


if __name__ == "__main__":
    main()
