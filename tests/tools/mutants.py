"""Every attack on damaged recordings of version 2 that open: ``python -m tests.tools.mutants``.

The suite runs a few (``tests/contract/test_mutants.py``). ``--number`` is how many of each damage of each
recording are made, ``--attack`` names some attacks, ``--adversaries`` looks at all of them and not the server
alone, ``--only`` takes the mutants whose names hold a text. It exits with 1 where something failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from audit.registry import entries
from tests.contract.extremes import Outcome, outcome, seen_in
from tests.contract.mutants import SECONDS, limited, make, mutants
from victims.common.limits import peak_memory


def main() -> int:
    """Print the counts."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--number", type=int, default=25)
    words.add_argument("--attack", nargs="*", default=list(entries("attacks")))
    words.add_argument("--adversaries", action="store_true")
    words.add_argument("--only", default="")
    chosen = words.parse_args()
    opened, ran = Counter[str](), Counter[str]()
    failures: list[str] = []
    slowest = (0.0, "")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name in mutants(chosen.number):
            if chosen.only not in name:
                continue
            start = time.perf_counter()
            try:
                with limited():
                    seen = seen_in(make(name, folder))
            except TimeoutError as error:
                seen = Outcome("raised", str(error))
            slowest = max(slowest, (time.perf_counter() - start, name))
            if isinstance(seen, Outcome):
                opened[seen.what] += 1
                if seen.what == "raised":
                    failures.append(f"{name}: {seen.words}")
                continue
            opened["opened"] += 1
            for adversary in list(seen) if chosen.adversaries else ["server"]:
                for attack in chosen.attack if adversary in seen else ():
                    start = time.perf_counter()
                    with limited(2 * SECONDS):
                        found = outcome(attack, seen[adversary], None, folder)
                    slowest = max(slowest, (time.perf_counter() - start, f"{name}, {attack}"))
                    ran[found.what] += 1
                    if found.what not in ("answered", "abstained"):
                        failures.append(f"{name}, {attack} of {adversary}: {found.what} {found.words}")
    print(f"mutants {opened.total():,}:", ", ".join(f"{what} {n:,}" for what, n in opened.most_common()))
    print(f"attacks {ran.total():,}:", ", ".join(f"{what} {n:,}" for what, n in ran.most_common()))
    print(f"failures {len(failures):,}")
    for failure in failures[:60]:
        print(f"  {failure}")
    print(f"slowest {slowest[0]:.1f} s: {slowest[1]}; peak memory {peak_memory() >> 20:,} MiB")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
