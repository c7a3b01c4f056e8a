"""Interrupt the program at random times and look at how it ends: ``python -m tests.tools.interruptions``.

Each trial starts a command in a process group of its own, as a terminal does, waits until it listens and
for a random time, sends Ctrl-C (to the group) or SIGTERM (to the program alone), sometimes twice, and then
asks: is the exit status 130 or 143, is there one line on stderr, is no process left, did it end soon, can
the command be repeated? A trial that ended by itself before the signal counts as "done". It exits with 1
where one ended otherwise.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

SMALL = "synthetic:users=60,items=80,ratings_per_user=12"
ATTACKED = ["--update", "semi-als", "--weighting", "observed-only"]
COMMANDS = {
    "audit": ["audit", "--out", "{out}/A"],
    "spectral": ["audit", "--attack", "spectral", "--out", "{out}/B"],
    "attack": ["attack", "{recording}", "--attack", "likelihood", "--out", "{out}/r.arrow"],
    "score": ["score", "{answer}", "--truth", "{recording}.truth.arrow"],
    "sweep": ["sweep", "--data", SMALL, "--users", "20", "--sample", "3", "--scales", "0,0.5,1,2", "--rounds",
              "1,2", "--jobs", "2", "--out", "{out}/S"],
    "compare": ["compare", "none", "laplace:b=1", "--data", SMALL, "--trained", "5", "--jobs", "2", "--out",
                "{out}/C"],
    "record": ["record", "{out}/rec", "--data", "synthetic:users=400,items=500", "--rounds", "0-39"],
}  # fmt: skip
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
PROGRESS = re.compile(r", \d+ s(, about .* left)?$|: LEAK ")  # and what was found
PATIENCE = 60.0  # seconds after the signal: on a busy machine imports alone take a dozen


@dataclass(frozen=True)
class Trial:
    """One interruption: what ran, which signal, after how many seconds, and what was wrong with its end."""

    name: str
    sent: signal.Signals
    after: float
    twice: bool
    status: int
    seconds: float
    faults: tuple[str, ...]


def prepared(folder: Path) -> dict[str, str]:
    """A recording and an answer for the commands that need them."""
    recording, answer = folder / "rec", folder / "answer.arrow"
    _run(["record", str(recording), "--data", SMALL, *ATTACKED, "--defense", "laplace:scale=1"])
    _run(["attack", str(recording), "--attack", "likelihood", "--out", str(answer)])
    return {"recording": str(recording), "answer": str(answer)}


def _run(words: list[str]) -> None:
    subprocess.run([sys.executable, "-m", "audit", *words], check=True, capture_output=True)


def members(group: int) -> list[int]:
    """Processes of a group or session that are still there, zombies aside."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if group in (int(fields[2]), int(fields[3])) and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def until_it_listens(process: subprocess.Popen[bytes]) -> None:
    """Wait for the program: before, Python itself may swallow a Ctrl-C, as while it runs a ``.pth`` file."""
    end = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < end:
        status = Path(f"/proc/{process.pid}/status").read_text()
        blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
        if blocked >> (signal.SIGINT - 1) & 1:
            return
        time.sleep(0.005)


def interrupted(name: str, places: dict[str, str], sent: signal.Signals, after: float, twice: bool) -> Trial:
    """Run one command and interrupt it."""
    words = [word.format(**places) for word in COMMANDS[name]]
    process = subprocess.Popen(
        [sys.executable, "-m", "audit", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    until_it_listens(process)
    time.sleep(after)
    ended_before = process.poll() is not None
    begin = time.monotonic()
    for _ in range(2 if twice else 1):
        if process.poll() is None:
            (os.killpg if sent is signal.SIGINT else os.kill)(process.pid, sent)
            time.sleep(0.3 if twice else 0)
    faults = []
    try:
        _, errors = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        faults.append(f"still there after {PATIENCE:g} s")
        os.killpg(process.pid, signal.SIGKILL)
        _, errors = process.communicate()
    seconds = time.monotonic() - begin
    time.sleep(1.0)
    if left := members(process.pid):
        faults.append(f"{len(left)} processes left")
        os.killpg(process.pid, signal.SIGKILL)
    told = [line for line in errors.decode().splitlines() if not PROGRESS.search(line)]
    if not ended_before and process.returncode != 0:
        if process.returncode != STATUS[sent]:
            faults.append(f"status {process.returncode}")
        if len(told) != 1:
            faults.append(f"{len(told)} lines: {told[:1]} ... {told[-1:]}")
    elif process.returncode != 0:
        faults.append(f"status {process.returncode} by itself")
    return Trial(name, sent, after, twice, process.returncode, seconds, tuple(faults))


def main() -> int:
    """Count how interrupted runs end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=float, default=12.0, help="seconds until the signal at most")
    parser.add_argument("--commands", nargs="+", default=list(COMMANDS), choices=COMMANDS)
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let background jobs ignore it
    rng = random.Random(given.seed)
    ends: Counter[tuple[str, int]] = Counter()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        common = prepared(Path(folder))
        for number in range(given.runs):
            places = {**common, "out": f"{folder}/{number}"}
            Path(places["out"]).mkdir()
            trial = interrupted(
                given.commands[number % len(given.commands)],
                places,
                rng.choice([signal.SIGINT, signal.SIGINT, signal.SIGTERM]),
                rng.uniform(0.15, given.longest),
                rng.random() < 0.3,
            )
            ends[trial.name, trial.status] += 1
            bad += bool(trial.faults)
            words = "; ".join(trial.faults) or "as it should"
            print(
                f"{number:4} {trial.name:9} {trial.sent.name:8} at {trial.after:5.2f} s"
                f"{' twice' if trial.twice else '      '} -> {trial.status:4}"
                f" in {trial.seconds:4.1f} s: {words}",
                flush=True,
            )
    for (name, status), count in sorted(ends.items()):
        print(f"{name:9} status {status:4}: {count}")
    print(f"{given.runs - bad} of {given.runs} ended as they should")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
