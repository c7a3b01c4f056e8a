"""Random words of a command line, on random valid and damaged inputs in one folder."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class Commands:
    """Draws them; recordings, answers and rating files lie in the folder, and are damaged now and then."""

    folder: Path
    rng: random.Random

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
        return [
            "papers",
            "train",
            *self._run,
            "--rounds",
            "1,3",
            "--victim",
            self.some("fedmvmf", "mf", "fedmf"),
        ]

    def _cost(self) -> list[str]:
        return ["papers", "cost", *self._run, *self._out]

    def _quality(self) -> list[str]:
        return ["papers", "quality", *self._run, "--rounds", "2", "--runs", "1", *self._out]

    def _predict(self) -> list[str]:
        return ["papers", "predict", "--data", self.data(), "--epochs", "3", "--runs", "1", *self._out]

    def _list(self) -> list[str]:
        return ["list", self.some("victims", "defenses", "attacks", "adversaries", "nothing")]

    def _damage_one(self, recording: Path, answer: Path) -> None:
        if self.rng.random() < 0.25:
            files = [*recording.glob("*"), *self.folder.glob(f"{recording.name}.*"), answer]
            path = self.rng.choice(files)
            if path.is_file():
                with contextlib.suppress(OSError):
                    self.damage(path)
