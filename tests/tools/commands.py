"""Random commands on random valid and damaged inputs, for hours: ``python -m tests.tools.commands``.

Every command runs in a process group of its own under a limit of 4 GiB of address space and writes to one
folder, best on a small file system of its own (``--folder``), which it fills and empties now and then. One in
eight is interrupted. Counted as a fault: a status that is none of ``audit.shell.exits`` or does not fit what
was done, a traceback or any line on stderr that is not the program's, processes or half-written files left,
more than five minutes, a finished cell that is gone. ``--long-lived N`` instead runs N commands in one
process and prints how it grows. It exits with 1 where there was a fault.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from audit.shell.exits import Exit
from tests.tools.interruptions import PROGRESS, STATUS, members
from tests.tools.random_commands import SIZES, Commands

LIMIT = 4 << 20  # KiB of address space
LONGEST = 300.0  # seconds of a command
SAID = re.compile(r"^(factorleak: |note: |Usage: |Try |Error: |$)")


@dataclass
class Soak:
    """What was run and what was wrong with it."""

    folder: Path
    rng: random.Random
    statuses: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    cells: set[Path] = field(default_factory=set)

    def run(self, words: list[str]) -> None:
        """Run a command and look at how it ended."""
        after = self.rng.uniform(0.2, 10) if self.rng.random() < 1 / 8 else None
        process = subprocess.Popen(
            ["bash", "-c", f'ulimit -v {LIMIT}; exec "$@"', "-", sys.executable, "-m", "audit", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        interrupted, said = self._ended(process, after)
        status = process.returncode
        wrong = list(self._wrong(status, interrupted, said))
        time.sleep(0.1 if status == 0 else 0.8)
        if members(process.pid):
            wrong.append("processes left")
            os.killpg(process.pid, signal.SIGKILL)
        wrong += self._left()
        self.statuses[f"{words[0]} {status}"] += 1
        if wrong:
            self.faults.append(f"{' '.join(words)}: {'; '.join(wrong)}: {said[-600:]}")
            print(self.faults[-1], flush=True)

    def _ended(self, process: subprocess.Popen[bytes], after: float | None) -> tuple[bool, str]:
        """Whether it was interrupted, and what it said on stderr."""
        interrupted = False
        try:
            _, errors = process.communicate(timeout=after or LONGEST)
        except subprocess.TimeoutExpired:
            interrupted = after is not None
            process.send_signal(self.rng.choice(list(STATUS)) if interrupted else signal.SIGKILL)
            try:
                _, errors = process.communicate(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                _, errors = process.communicate()
        return interrupted, errors.decode(errors="replace")

    @staticmethod
    def _wrong(status: int, interrupted: bool, said: str) -> Iterator[str]:
        stopped = set(map(int, STATUS.values()))
        if status not in {*map(int, Exit)} - {Exit.INTERNAL} - (set() if interrupted else stopped):
            yield f"status {status}"
        lines = said.splitlines()
        odd = [line for line in lines if not PROGRESS.search(line) and not SAID.match(line)]
        if odd and status != Exit.UNUSABLE:  # which may be an explanation of the usage
            yield f"said {odd[:2]}"
        if "Traceback" in said or any(len(line) > 330 for line in lines):
            yield "a traceback or a long line"

    def _left(self) -> Iterator[str]:
        for path in list(self.folder.rglob(".*.partial")):
            yield f"left {path.name}"
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        cells = set(self.folder.glob("*/cells/*.json"))
        if gone := self.cells - cells:
            yield f"{len(gone)} finished cells are gone"
        self.cells = cells

    def fill(self) -> None:
        """Fill the disk but for a little, or make room again."""
        filler = self.folder / "filler"
        if filler.exists() or self.rng.random() < 0.7:
            filler.unlink(missing_ok=True)
            if shutil.disk_usage(self.folder).free < 20 << 20:
                for path in self.folder.iterdir():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                self.cells = set()
            return
        free = shutil.disk_usage(self.folder).free
        if free < 1 << 30:  # a file system of its own
            with contextlib.suppress(OSError):
                filler.write_bytes(bytes(max(free - self.rng.randrange(1 << 18), 0)))


def long_lived(number: int) -> None:
    """Memory of one process that runs many commands."""
    from audit.cli.main import main

    process = psutil.Process()
    with tempfile.TemporaryDirectory() as folder:
        data = SIZES.format(25, 30, 8)
        for place in range(number):
            out = f"{folder}/t"
            for words in (
                ["record", out, "--data", data, "--update", "sgd", "--seed", str(place % 7)],
                [
                    "attack",
                    out,
                    "--attack",
                    ("spectral", "grid", "rated-set")[place % 3],
                    "--out",
                    f"{out}.r",
                ],
                ["score", f"{out}.r", "--truth", f"{out}.truth.arrow"],
                ["attack", "nowhere"],
            ):
                sys.argv = ["factorleak", *words]
                nowhere = io.StringIO()
                with (
                    contextlib.redirect_stdout(nowhere),
                    contextlib.redirect_stderr(nowhere),
                    contextlib.suppress(SystemExit),
                ):
                    main()
            shutil.rmtree(out)
            Path(f"{out}.truth.arrow").unlink()
            if place % max(number // 10, 1) == 0 or place == number - 1:
                used = process.memory_info().rss / 2**20
                print(
                    f"{4 * (place + 1):6} commands: {used:7.1f} MiB, {process.num_fds()} files, "
                    f"{process.num_threads()} threads",
                    flush=True,
                )


def main() -> int:
    """Run until the time is over, and print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="An empty folder, best a small file system of its own.")
    parser.add_argument("--long-lived", type=int, metavar="N")
    given = parser.parse_args()
    if given.long_lived:
        long_lived(given.long_lived)
        return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let background jobs ignore it
    folder = given.folder or Path(tempfile.mkdtemp(prefix="factorleak-soak-"))
    rng = random.Random(given.seed)
    soak, commands = Soak(folder, rng), Commands(folder, rng)
    end = time.monotonic() + 60 * given.minutes
    number = 0
    while time.monotonic() < end:
        number += 1
        if number % 10 == 0:
            soak.fill()
        soak.run(commands.command())
        if number % 50 == 0:
            print(f"{number} commands, {len(soak.faults)} faults", flush=True)
    for name, count in sorted(soak.statuses.items()):
        print(f"{name:12} {count}")
    print(f"{number} commands, {len(soak.faults)} faults")
    return int(bool(soak.faults))


if __name__ == "__main__":
    sys.exit(main())
