"""Every attack on transcripts with extreme numbers, and how that ended: ``python -m tests.soak.extremes``.

The suite runs a sample (``tests/contract/test_extremes.py``). ``--attack`` names some of them, ``--share``
draws a share of the cases, ``--part 3/10`` takes every tenth from the third on (ten commands are the whole,
which takes hours for the compiled attacks), ``--adversaries`` looks at all of them and not the server alone.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

from audit.registry import entries
from tests.contract.extremes import SCENARIOS, Outcome, extremes, outcome, truth_of, views_of


def one_of(text: str) -> tuple[int, int]:
    """``3/10`` as (3, 10)."""
    which, parts = map(int, text.split("/"))
    if not 1 <= which <= parts:
        raise argparse.ArgumentTypeError(f"{text}: K/N takes 1 <= K <= N")
    return which, parts


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--attack", nargs="*", default=list(entries("attacks")))
    words.add_argument("--share", type=float, default=1.0, help="of the cases, drawn at random")
    words.add_argument("--part", type=one_of, default=(1, 1), help="K/N: every N-th case from the K-th on")
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--only", default="", help="a part of the cases' names")
    words.add_argument("--adversaries", action="store_true")
    words.add_argument("--shown", type=int, default=40, help="kinds of failure")
    chosen = words.parse_args()
    rng, counts = np.random.default_rng(chosen.seed), Counter[str]()
    raised: dict[tuple[str, str], list[str]] = {}
    which, parts = chosen.part
    seconds, slowest = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for scenario in SCENARIOS:
            truth = truth_of(scenario, folder)
            for index, extreme in enumerate(extremes()):
                here = index % parts == which - 1 and chosen.only in extreme.name
                if rng.random() >= chosen.share or not here:
                    continue
                seen = views_of(extreme, scenario, folder)
                label = f"{'/'.join(scenario)}: {extreme.name}"
                if isinstance(seen, Outcome):
                    counts[seen.what] += len(chosen.attack)
                    if seen.what == "raised":
                        raised.setdefault(("reader", seen.words), []).append(label)
                    continue
                parties = list(seen) if chosen.adversaries else ["server"]
                for adversary in parties:
                    if adversary not in seen:
                        continue
                    for name in chosen.attack:
                        start = time.perf_counter()
                        found = outcome(name, seen[adversary], truth, folder)
                        spent = time.perf_counter() - start
                        seconds[name] += spent
                        slowest[f"{label} {name}"] = spent
                        counts[found.what] += 1
                        if found.what == "raised":
                            raised.setdefault((name, found.words), []).append(f"{label} ({adversary})")
    print(f"cases {sum(counts.values()):,}:", ", ".join(f"{what} {n:,}" for what, n in counts.most_common()))
    for (name, failure), cases in sorted(raised.items(), key=lambda pair: -len(pair[1]))[: chosen.shown]:
        print(f"{len(cases):5d} {name}: {failure}\n      {cases[0]} | {cases[-1]}")
    print("seconds:", ", ".join(f"{name} {spent:.0f}" for name, spent in seconds.most_common(8)))
    print("slowest:", "; ".join(f"{name} {spent:.1f}" for name, spent in slowest.most_common(3)))


if __name__ == "__main__":
    main()
