"""Every attack on transcripts with extreme numbers, and how that ended: ``python -m tests.tools.extremes``.

The suite runs a sample (``tests/contract/test_extremes.py``). ``--attack`` names some of them, ``--share``
draws a share of the cases, ``--part 3/10`` takes every tenth from the third on (ten commands are the whole,
which takes hours for the compiled attacks), ``--adversaries`` looks at all of them and not the server alone.
It exits with 1 where something was raised.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

from audit.registry import entries
from tests.contract.extremes import SCENARIOS, Extreme, Outcome, extremes, outcome, truth_of, views_of


def one_of(text: str) -> tuple[int, int]:
    """``3/10`` as (3, 10)."""
    which, parts = map(int, text.split("/"))
    if not 1 <= which <= parts:
        raise argparse.ArgumentTypeError(f"{text}: K/N takes 1 <= K <= N")
    return which, parts


@dataclass
class Tally:
    """How the cases ended, which of them raised what, and how long they took."""

    ends: Counter[str] = field(default_factory=Counter)
    raised: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    seconds: Counter[str] = field(default_factory=Counter)
    slowest: Counter[str] = field(default_factory=Counter)

    def add(self, who: str, found: Outcome, case: str, cases: int = 1) -> None:
        """Count what an attack, or the reader for ``cases`` attacks, made of a case."""
        self.ends[found.what] += cases
        if found.what == "raised":
            self.raised.setdefault((who, found.words), []).append(case)

    def show(self, kinds: int) -> None:
        """Print it, with at most so many kinds of failure."""
        ends = ", ".join(f"{what} {n:,}" for what, n in self.ends.most_common())
        print(f"cases {self.ends.total():,}: {ends}")
        for (name, failure), cases in sorted(self.raised.items(), key=lambda pair: -len(pair[1]))[:kinds]:
            print(f"{len(cases):5d} {name}: {failure}\n      {cases[0]} | {cases[-1]}")
        print("seconds:", ", ".join(f"{name} {spent:.0f}" for name, spent in self.seconds.most_common(8)))
        print("slowest:", "; ".join(f"{name} {spent:.1f}" for name, spent in self.slowest.most_common(3)))


def drawn(chosen: argparse.Namespace) -> Iterator[tuple[tuple[str, str], Extreme]]:
    """Scenario and extreme of each case that was asked for."""
    rng = np.random.default_rng(chosen.seed)
    which, parts = chosen.part
    for scenario in SCENARIOS:
        for index, extreme in enumerate(extremes()):
            here = index % parts == which - 1 and chosen.only in extreme.name
            if rng.random() < chosen.share and here:
                yield scenario, extreme


def counted(chosen: argparse.Namespace, folder: Path) -> Tally:
    """Run every attack on every case that was asked for."""
    tally = Tally()
    truths = {scenario: truth_of(scenario, folder) for scenario in SCENARIOS}
    for scenario, extreme in drawn(chosen):
        seen = views_of(extreme, scenario, folder)
        label = f"{'/'.join(scenario)}: {extreme.name}"
        if isinstance(seen, Outcome):
            tally.add("reader", seen, label, len(chosen.attack))
            continue
        for adversary in list(seen) if chosen.adversaries else ["server"]:
            for name in chosen.attack if adversary in seen else ():
                start = time.perf_counter()
                found = outcome(name, seen[adversary], truths[scenario], folder)
                spent = time.perf_counter() - start
                tally.seconds[name] += spent
                tally.slowest[f"{label} {name}"] = spent
                tally.add(name, found, f"{label} ({adversary})")
    return tally


def main() -> int:
    """Print the counts."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--attack", nargs="*", default=list(entries("attacks")))
    words.add_argument("--share", type=float, default=1.0, help="of the cases, drawn at random")
    words.add_argument("--part", type=one_of, default=(1, 1), help="K/N: every N-th case from the K-th on")
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--only", default="", help="a part of the cases' names")
    words.add_argument("--adversaries", action="store_true")
    words.add_argument("--shown", type=int, default=40, help="kinds of failure")
    chosen = words.parse_args()
    with tempfile.TemporaryDirectory() as place:
        tally = counted(chosen, Path(place))
    tally.show(chosen.shown)
    return int(bool(tally.raised))


if __name__ == "__main__":
    sys.exit(main())
