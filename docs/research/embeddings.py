"""F-NCF and F-LightGCN on ML-100K: IMIA and this program's attacks, and the defenses, as lines of Markdown.

    python docs/research/embeddings.py ML-100K
    python docs/research/embeddings.py ML-1M 0.02

One rating of each user is held out. A tenth of the clients, or the share that is named, take part in round 0
and are attacked. Usefulness is after 200 rounds of 1 % of the clients, as in the authors' program, and left
out where a share is named. HR@10 and
NDCG@10 rank the held out item among 99 that the user never rated. `list, popular` calls positive the fifth of
an uploaded list that most clients list; `list, random` calls so any fifth, in expectation.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import factorleak as fl
from audit.factories import make_defenses, make_victim
from audit.scoring.statistics import interval
from victims.data.loaders import load
from victims.data.ratings import Ratings
from victims.data.subsets import leave_out
from victims.recording import record
from victims.training import start
from victims.transcript.reader import open_transcript

SCORERS, ROUNDS = ("ncf", "lightgcn"), 200
WATCHED, TRAINED, FACTORS = 0.1, 0.01, 16
DEFENSES = {"none": ({}, "none"), "proximal": ({"proximal": 0.1}, "none")}
DEFENSES |= {"noise": ({}, "gaussian:scale=0.0316,clip=1")}  # clipped rows, variance 0.001, as in the program
ATTACKS = (
    ("imia", {}),
    ("imia", {"confirmed_share": 0.9}),
    ("imia", {"compare": "direction"}),
    ("undeclared", {}),
    ("rated-set", {}),
)


Pairs = Callable[[np.ndarray, np.ndarray], np.ndarray]  # users and items -> scores


def ranking(pairs: Pairs, rated: Ratings, test: Ratings) -> dict[str, np.ndarray]:
    """Hits and gains at 10 of each held out item among 99 others."""
    rng, seen = np.random.default_rng(1), rated.matrix().toarray() > 0
    hit, gain = [], []
    for user, item in zip(test.users, test.items, strict=True):
        others = rng.choice(np.flatnonzero(~seen[user]), 99, replace=False)
        scores = pairs(np.full(100, user), np.append(others, item))
        place = (scores[:-1] >= scores[-1]).sum()
        hit.append(place < 10)
        gain.append(hit[-1] / np.log2(place + 2))
    return {"HR@10": np.array(hit, float), "NDCG@10": np.array(gain)}


def from_lists(path: Path, truth: np.ndarray) -> dict[str, np.ndarray]:
    """F1 of those who look at uploaded lists alone, by client."""
    messages = open_transcript(path).view("server").messages
    sender, item = np.concatenate(messages.sender), np.concatenate(messages.index)
    often = np.bincount(item, minlength=truth.shape[1])
    out = {"list, popular": [], "list, random": []}
    for user in np.unique(sender):
        mine, positives = item[sender == user], truth[user].sum()
        claimed = round(mine.size / 5)
        popular = mine[np.argsort(-often[mine], kind="stable")[:claimed]]
        hits = {
            "list, popular": truth[user, popular].sum(),
            "list, random": truth[user, mine].mean() * claimed,
        }
        for name, one in hits.items():
            out[name].append(2 * one / (claimed + positives))
    return {name: np.array(each) for name, each in out.items()}


def said(values: np.ndarray) -> str:
    """A mean and its 95 % interval over clients."""
    low, high = interval(values, 0)
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    """Print one line for each number."""
    rated, share = load(sys.argv[1]).interactions(), float([*sys.argv[2:], WATCHED][0])
    train, test = leave_out(rated, 1, 0)
    truth = train.matrix().toarray() > 0
    for scorer in SCORERS:
        for name, (options, text) in DEFENSES.items():
            shared = {"scorer": scorer, "factors": FACTORS, **options}
            victim = make_victim("fedrec", {**shared, "participation": share})

            def line(what: str, value: str, began: float, case: str = f"{scorer} | {name}") -> None:
                print(f"| {case} | {what} | {value} | {time.monotonic() - began:.0f} s |", flush=True)

            with TemporaryDirectory() as folder:
                path, began = Path(folder) / "r", time.monotonic()
                record(victim, train, path, rounds=[0], defenses=make_defenses(text))
                line("recorded", "", began)
                for attack, chosen in ATTACKS:
                    began = time.monotonic()
                    found = fl.attack(path, attack, progress=False, **chosen)
                    rows = fl.score(found, transcript=path).set_index("metric")
                    if "rated_set_f1" in rows.index:
                        row = rows.loc["rated_set_f1"]
                        low, high, base = (row[one] for one in ("ci_low", "ci_high", "baseline"))
                        value = (
                            f"{row['value']:.3f} [{low:.3f}, {high:.3f}] ({row['baseline_name']} {base:.3f})"
                        )
                    else:
                        value = "not applicable"
                    line(f"{attack} {chosen or ''}", f"{value}, {len(found.abstained)} abstained", began)
                for what, values in from_lists(path, truth).items():
                    line(what, said(values), began)
            if len(sys.argv) > 2:
                continue
            victim = make_victim("fedrec", {**shared, "participation": TRAINED})
            began, run = time.monotonic(), start(victim, train, make_defenses(text), 0)
            for round_ in range(ROUNDS):
                run = run.trained(round_)
            for what, values in ranking(run.predictor(0).pairs, rated, test).items():
                line(what, said(values), began)
    count = np.bincount(train.items, minlength=train.n_items)
    for what, values in ranking(lambda users, items: count[items], rated, test).items():
        print(f"| popularity | {what} | {said(values)} |")


if __name__ == "__main__":
    main()
