"""Random commands on random valid and damaged inputs, for hours: ``python -m tests.soak.commands``.

Every command runs in a process group of its own under a limit of 4 GiB of address space and writes to one
folder, best on a small file system of its own (``--folder``), which it fills and empties now and then. One in
eight is interrupted. Counted as a fault: a status that is none of ``audit.shell.exits`` or does not fit what
was done, a traceback or any line on stderr that is not the program's, processes or half-written files left,
more than five minutes, a finished cell that is gone. ``--long-lived N`` instead runs N commands in one
process and prints how it grows.
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
from tests.soak.interruptions import PROGRESS, STATUS, members

LIMIT = 4 << 20  # KiB of address space
LONGEST = 300.0  # seconds of a command
SAID = re.compile(r"^(factorleak: |note: |Usage: |Try |Error: |$)")
SIZES = "synthetic:users={},items={},ratings_per_user={}"
UPDATES, WEIGHTINGS = ("semi-als", "sgd"), ("observed-only", "include-unrated")
DEFENSES = (
    "laplace:scale=1", "laplace:scale=0.3,clip=1", "gaussian:scale=1,clip=1", "unrated-sampling:rho=1",
    "privmvmf", "paillier:key_bits=2048",
)  # fmt: skip
WRONG = ("laplace:scale=-1", "nothing", "laplace:b=nan", "paillier+laplace:scale=1", "laplace:scale=1e308")
ATTACKS = (
    "spectral",
    "grid",
    "rated-set",
    "guess-majority",
    "aggregate",
    "trajectory",
    "eq24-corrected",
    "x",
)
ADVERSARIES = ("server", "eavesdropper", "client:0", "item-server", "decrypter")
BARS = ("leak", "rating_accuracy=0.5", "rated_set_auc.value>0.9@adversary=server", "speed=1")


@dataclass
class Soak:
    """What was run and what was wrong with it."""

    folder: Path
    rng: random.Random
    statuses: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    cells: set[Path] = field(default_factory=set)

    def some(self, *choices: str) -> str:
        """One of them."""
        return self.rng.choice(choices)

    def defense(self) -> str:
        """A defense, now and then a wrong one."""
        return self.some(*(WRONG if self.rng.random() < 0.1 else DEFENSES))

    def data(self) -> str:
        """Synthetic ratings, or a file that is often damaged."""
        if self.rng.random() < 0.7:
            return SIZES.format(self.rng.choice((1, 2, 25, 60)), self.rng.choice((1, 30, 80)), 5)
        path = self.folder / f"ratings.{self.some('csv', 'tsv', 'parquet', 'txt', 'csv.gz')}"
        rows = [
            (self.rng.randrange(20), self.rng.randrange(30), self.rng.randrange(1, 6)) for _ in range(150)
        ]
        blank = "\t" if ".tsv" in path.name else " " if ".txt" in path.name else ","
        lines = ([] if blank == " " else [("user", "item", "rating")]) + rows  # type: ignore[operator]
        with contextlib.suppress(OSError):
            path.write_text("\n".join(blank.join(map(str, row)) for row in lines) + "\n")
            if self.rng.random() < 0.4:
                self.damage(path)
        return str(path)

    def damage(self, path: Path) -> None:
        """Flip, cut, repeat or replace bytes of a file."""
        content = bytearray(path.read_bytes())
        where = self.rng.randrange(len(content) + 1)
        kind = self.rng.randrange(5)
        if kind == 0 and content:
            for _ in range(8):
                content[self.rng.randrange(len(content))] = self.rng.randrange(256)
        elif kind == 1:
            del content[where:]
        elif kind == 2:
            content[where:where] = content[: self.rng.randrange(1, 400)]
        elif kind == 3:
            content = bytearray(re.sub(rb"\d+", lambda _: b"2147483647", bytes(content), count=1))
        else:
            content[where:where] = self.rng.choice((b"\0", b"NaN", b"1e308", b"[" * 5000, b'"', b"\x1b[2J\n"))
        path.write_bytes(content)

    def command(self) -> list[str]:
        """Words of a random command."""
        makers = (
            self._audit, self._record, self._record, self._attack, self._attack, self._score, self._score,
            self._sweep, self._compare, self._train, self._list, self._cost, self._quality, self._predict,
        )  # fmt: skip
        return self.rng.choice(makers)()

    @property
    def _run(self) -> list[str]:
        """Data and scenario."""
        return [
            "--data", self.data(), "--update", self.some(*UPDATES), "--weighting", self.some(*WEIGHTINGS)
        ]  # fmt: skip

    @property
    def _defended(self) -> list[str]:
        """Defense, rounds and seed."""
        defense = ["--defense", self.defense()] if self.rng.random() < 0.5 else []
        rounds = self.some("0", "4,5", "4,5", "0-3", "0-3", "2-3,7", "0-5", "9-1")
        return [*defense, "--rounds", rounds, "--seed", self.some("0", "1", "2")]

    @property
    def _attacker(self) -> list[str]:
        return ["--attack", self.some(*ATTACKS), "--adversary", self.some(*ADVERSARIES)]

    @property
    def _bar(self) -> list[str]:
        return ["--fail-on", self.some(*BARS)] if self.rng.random() < 0.3 else []

    @property
    def _out(self) -> list[str]:
        return ["--out", str(self.folder / self.some("A", "B", "y[/red]z"))]

    @property
    def _recording(self) -> Path:
        return self.folder / self.some("rec0", "rec1", "rec2")

    @property
    def _answer(self) -> Path:
        return self.folder / self.some("answer0.arrow", "answer1.arrow")

    def _audit(self) -> list[str]:
        return ["audit", *self._run, *self._defended, *self._attacker, *self._bar, *self._out]

    def _record(self) -> list[str]:
        path = self._recording
        if self.rng.random() < 0.5:
            shutil.rmtree(path, ignore_errors=True)
            for beside in self.folder.glob(f"{path.name}.*"):
                beside.unlink()
        return ["record", str(path), *self._run, *self._defended]

    def _attack(self) -> list[str]:
        path = self._recording
        self._damage_one(path, self._answer)
        return ["attack", str(path), *self._attacker, "--out", str(self._answer)]

    def _score(self) -> list[str]:
        path, answer = self._recording, self._answer
        self._damage_one(path, answer)
        beside = ["--transcript", str(path)] if self.rng.random() < 0.5 else []
        return ["score", str(answer), "--truth", f"{path}.truth.arrow", *beside, *self._bar]

    def _sweep(self) -> list[str]:
        few = ["--scales", "0,1", "--rounds", "1,2", "--attacks", "spectral", "--users", "20"]
        return ["sweep", *self._run, *few, *self._out, "--jobs", self.some("1", "2")]

    def _compare(self) -> list[str]:
        few = ["--attack", self.some("spectral", "rated-set"), "--trained", "2", "--runs", "1"]
        return ["compare", "none", self.defense(), *self._run, *few, *self._bar, *self._out]

    def _train(self) -> list[str]:
        return ["train", *self._run, "--rounds", "1,3", "--victim", self.some("fedmvmf", "mf", "fedmf")]

    def _cost(self) -> list[str]:
        return ["cost", *self._run]

    def _quality(self) -> list[str]:
        return ["quality", *self._run, "--rounds", "2", "--runs", "1"]

    def _predict(self) -> list[str]:
        return ["predict", "--data", self.data(), "--epochs", "3", "--runs", "1", *self._out]

    def _list(self) -> list[str]:
        return ["list", self.some("victims", "defenses", "attacks", "adversaries", "nothing")]

    def _damage_one(self, recording: Path, answer: Path) -> None:
        if self.rng.random() < 0.25:
            files = [*recording.glob("*"), *self.folder.glob(f"{recording.name}.*"), answer]
            path = self.rng.choice(files)
            if path.is_file():
                with contextlib.suppress(OSError):
                    self.damage(path)

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


def main() -> None:
    """Run until the time is over, and print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="An empty folder, best a small file system of its own.")
    parser.add_argument("--long-lived", type=int, metavar="N")
    given = parser.parse_args()
    if given.long_lived:
        long_lived(given.long_lived)
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let background jobs ignore it
    folder = given.folder or Path(tempfile.mkdtemp(prefix="factorleak-soak-"))
    soak = Soak(folder, random.Random(given.seed))
    end = time.monotonic() + 60 * given.minutes
    number = 0
    while time.monotonic() < end:
        number += 1
        if number % 10 == 0:
            soak.fill()
        soak.run(soak.command())
        if number % 50 == 0:
            print(f"{number} commands, {len(soak.faults)} faults", flush=True)
    for name, count in sorted(soak.statuses.items()):
        print(f"{name:12} {count}")
    print(f"{number} commands, {len(soak.faults)} faults")


if __name__ == "__main__":
    main()
