"""What an older commit and this tree answer: ``python -m tests.tools.golden COMMIT [--only TEXT]``.

Both run the same commands, each tree in one process: audits, sweep, compare, claims, a campaign, a given
recording, all attacks on recordings of all victims, and what is refused. Each tree makes the recordings, and
both attack the older ones. It prints "equal", or what differs, and exits with 1. Seconds, dates, names of
runs and memory are no results; floats may differ by ``--tolerance``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SMALL = ("--data", "synthetic:users=20,items=30,ratings_per_user=10")
SECRET = {"ciphertext", "modulus"}  # no two runs draw the same keys
TIMED = SECRET | {
    "seconds",
    "bytes",
    "transcript_bytes",
    "peak_memory",
    "started",
    "ended",
    "run",
    "code",
    "platform",
}
ADVERSARIES = (
    "server",
    "server+client",
    "decrypter",
    "eavesdropper",
    "neighbour:0",
    "neighbours:0,1,2",
    "helper",
)
RECORDED = {
    "semi-als-observed": ("fedmvmf", "--update", "semi-als", "--weighting", "observed-only"),
    "semi-als-unrated": ("fedmvmf", "--update", "semi-als", "--weighting", "include-unrated"),
    "sgd-observed": ("fedmvmf", "--update", "sgd", "--weighting", "observed-only"),
    "sgd-unrated": ("fedmvmf", "--update", "sgd", "--weighting", "include-unrated"),
    "semi-als-laplace": ("fedmvmf", "--update", "semi-als", "--defense", "laplace:b=0.5"),
    "semi-als-gaussian": ("fedmvmf", "--update", "semi-als", "--defense", "gaussian:sigma=0.5,clip=5"),
    "fedmf": ("fedmf",),
    "fedmf-paillier": ("fedmf", "--defense", "paillier:key_bits=1024"),
    "fedmf-unrated": ("fedmf", "--defense", "unrated-sampling:rho=1"),
    "decentralised": ("decentralised-mf",),
    "decentralised-sampled": ("decentralised-mf", "--defense", "personalized-sampling"),
    "objective-noise": ("decentralised-mf", "--defense", "objective-noise"),
    "pdmfrec": ("pdmfrec",),
    "dpmf-yang": ("dpmf-yang",),
    "dmf": ("dmf",),
    "dmf-sum": ("dmf", "--defense", "secure-sum"),
}
CAMPAIGN = """format = "factorleak-campaign"
version = 1
title = "Two"
[grid]
users = 12
trained = 4
runs = 1
adversaries = ["server", "eavesdropper"]
[[data]]
name = "synthetic:users=20,items=30,ratings_per_user=10"
[[victim]]
name = "fedmf"
rounds = [[0, 1]]
defenses = ["none", "unrated-sampling:rho=1", "laplace:b=0.5"]
[[victim]]
name = "pdmfrec"
adversaries = ["neighbour:0", "helper"]
defenses = ["none"]
"""
REFUSED = (
    ("audit", "--data", "nowhere.csv"),
    ("audit", "--victim", "nobody"),
    ("audit", "--attack", "spektral", *SMALL),
    ("audit", "--rounds", "-1", *SMALL),
    ("audit", "--users", "0", *SMALL),
    ("audit", "--set", "factors=0", *SMALL),
    ("audit", "--fail-on", "colour=red", *SMALL),
    ("audit", "--transcript", "nowhere"),
    ("audit", "--defense", "laplace:scale=-1", *SMALL),
    ("record", "R", "--defense", "rot13", *SMALL),
    ("record", "R", "--adversary", "me"),
    ("attack", "nowhere"),
    ("score", "nowhere.arrow"),
    ("sweep", "--scale", "-1", *SMALL),
    ("sweep", "--rounds", "x", *SMALL),
    ("compare", "rot13", *SMALL),
    ("compare", "nowhere.toml"),
    ("claims", "--epsilon", "0", *SMALL),
    ("claims", "--protocol", "nothing", *SMALL),
    ("report", "nowhere"),
    ("list", "planets"),
    ("data", "fetch", "nothing"),
    ("transcript", "check", "nowhere"),
)


def commands() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Folder or file of what is made, and the command that makes it."""
    yield "audit", ("audit", *SMALL, "--out", "audit", "--exhaustive", "--rounds", "4,5")
    yield "audit-fedmf", ("audit", *SMALL, "--victim", "fedmf", "--out", "audit-fedmf", "--rounds", "0,1")
    yield (
        "audit-ladder",
        ("audit", *SMALL, "--defense", "laplace:b=0.2", "--update", "semi-als", "--out", "audit-ladder"),
    )
    yield (
        "sweep",
        (
            "sweep",
            *SMALL,
            "--out",
            "sweep",
            "--scale",
            "0,1",
            "--rounds",
            "1,2",
            "--users",
            "12",
            "--update",
            "semi-als",
            "--jobs",
            "1",
        ),
    )
    yield (
        "compare",
        (
            "compare",
            "none",
            "laplace:b=0.5",
            "paillier:key_bits=1024",
            "--trained",
            "3",
            "--runs",
            "1",
            *SMALL,
            "--victim",
            "fedmf",
            "--out",
            "compare",
            "--jobs",
            "1",
        ),
    )
    yield "claims", ("claims", *SMALL, "--out", "claims", "--rounds", "3", "--epochs", "6", "--jobs", "1")
    yield "campaign", ("compare", "campaign.toml", "--out", "campaign", "--jobs", "1")
    for name, words in RECORDED.items():
        yield name, ("record", name, *SMALL, "--victim", *words, "--rounds", "0,1", "--seed", "3")
    for name in RECORDED:
        given = f"{{old}}/{name}"
        yield f"{name}.json", ("transcript", "check", given, "--json")
    for name in ("sgd-observed", "semi-als-laplace", "pdmfrec"):
        yield f"{name}-given", ("audit", "--transcript", f"{{old}}/{name}", "--out", f"{name}-given")
    for name in ("sgd-observed", "fedmf", "dpmf-yang"):
        yield (
            f"{name}-identified.json",
            ("attack", f"{{old}}/{name}", "--identify", "--out", f"{name}-identified.arrow", "--json"),
        )


def attacks(recording: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """All attacks on a recording, by all who may see it."""
    from audit.registry import entries

    for attack in entries("attacks"):
        if attack.startswith("root-") and recording != "semi-als-unrated":
            continue
        for adversary in (
            ADVERSARIES if attack in ("aggregate", "peers", "cofactors", "rated-set") else ["server"]
        ):
            file = f"{recording}-{attack}-{adversary}.arrow".replace(":", "-")
            words = (
                "attack",
                f"{{old}}/{recording}",
                "--attack",
                attack,
                "--adversary",
                adversary,
                "--out",
                file,
            )
            yield file, words


def work(old: Path, only: str) -> None:
    """In the directory where we are, with the package that is imported: run all, keep what is said."""
    from audit.cli.main import main

    Path("campaign.toml").write_text(CAMPAIGN)
    made = {name for name, _ in commands()}  # what must succeed
    asked = [*commands(), *(pair for name in RECORDED for pair in attacks(name))]
    asked += [(f"refused: {' '.join(words)}", words) for words in REFUSED]
    said = {}
    for name, words in asked:
        if only not in name and not (name in RECORDED and old == Path.cwd()):
            continue
        sys.argv = ["factorleak", *(word.format(old=old) for word in words)]
        out, error, code, start = io.StringIO(), io.StringIO(), 0, time.monotonic()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            try:
                main()
            except SystemExit as leave:
                code = leave.code if isinstance(leave.code, int) else 1
        if name.endswith(".json"):
            Path(name).write_text(out.getvalue())
        if code and name in made:
            raise SystemExit(f"{' '.join(words)} ended with {code}: {error.getvalue()}")
        said[name] = [code, error.getvalue().replace(str(old), "OLD") if code else ""]
        print(f"{time.monotonic() - start:6.1f} s  {name}", flush=True, file=sys.__stderr__)
    Path("said.json").write_text(json.dumps(said, indent=1))


def plain(value: Any) -> Any:
    """Without what no two runs share."""
    if isinstance(value, dict):
        timed = TIMED | (
            {"value"} if {"seconds", "peak"} & set(str(value.get("metric")).split("_")) else set()
        )
        return {key: plain(one) for key, one in value.items() if key not in timed}
    return [plain(one) for one in value] if isinstance(value, list) else value


def read(path: Path) -> Any:
    if path.suffix == ".json":
        text = path.read_text()
        return plain(json.loads(text)) if text.strip() else text
    from pyarrow import ipc

    with ipc.open_file(path) as file:
        return plain(file.read_all().to_pydict())


def differences(old: Any, new: Any, tolerance: float, where: str = "") -> Iterator[str]:
    """Where two values differ, each with what it is on both sides."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            if key not in old or key not in new:
                yield f"{where}/{key}: only in the {'new' if key in new else 'old'} one"
            else:
                yield from differences(old[key], new[key], tolerance, f"{where}/{key}")
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{where}: {len(old)} and {len(new)} of them"
            return
        for place, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, tolerance, f"{where}[{place}]")
    elif isinstance(old, float) and isinstance(new, float):
        if not math.isclose(old, new, rel_tol=tolerance, abs_tol=tolerance) and not math.isnan(old + new):
            yield f"{where}: {old!r} and {new!r}"
    elif old != new:
        yield f"{where}: {old!r} and {new!r}"


def compare(old: Path, new: Path, only: str, tolerance: float) -> int:
    """Print what differs; the number of files that do."""
    kept = ("results.json", "said.json", "manifest.json")
    files = {
        path.relative_to(root)
        for root in (old, new)
        for path in root.rglob("*")
        if not {"cells", "leakage"} & set(path.parts)
        and (path.name in kept or path.suffix == ".arrow" or path.parent == root)
        if path.suffix in (".json", ".arrow") and not path.name.endswith(".key.json")
        if only in path.relative_to(root).parts[0]
    }
    different = 0
    for file in sorted(files):
        if not ((old / file).exists() and (new / file).exists()):
            found = [f"only in the {'old' if (old / file).exists() else 'new'} tree"]
        else:
            found = list(differences(read(old / file), read(new / file), tolerance))
        different += bool(found)
        for line in found[:5]:
            print(f"{file}: {line[:600]}")
        if len(found) > 5:
            print(f"{file}: and {len(found) - 5} more")
    print(f"{different} of {len(files)} files differ" if different else f"equal ({len(files)} files)")
    return different


def main() -> int:
    """Run both trees, and compare."""
    words = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    words.add_argument("commit", help="of the older tree")
    words.add_argument("--only", default="", help="of what is made, what has this in its name")
    words.add_argument("--tolerance", type=float, default=1e-9)
    words.add_argument(
        "--keep", type=Path, help="where the older tree's answers lie, or will lie, for the next time"
    )
    words.add_argument("--worker", help=argparse.SUPPRESS)
    chosen = words.parse_args()
    if chosen.worker:
        work(Path(chosen.worker), chosen.only)
        return 0
    root = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as scratch:
        old, new, tree = (
            (chosen.keep or Path(scratch, "old")).resolve(),
            Path(scratch, "new"),
            Path(scratch, "tree"),
        )
        runs = [(new, root)]
        if not (old / "said.json").exists():
            subprocess.run(
                ["git", "-C", root, "worktree", "add", "--detach", tree, chosen.commit], check=True
            )
            runs.insert(0, (old, tree))
        try:
            for place, code in runs:
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir(parents=True)
                variables = {**os.environ, "PYTHONPATH": str(code), "FACTORLEAK_CACHE": "", "COLUMNS": "100"}
                command = [
                    sys.executable,
                    "-P",
                    __file__,
                    "HEAD",
                    "--only",
                    chosen.only,
                    "--worker",
                    str(old),
                ]
                subprocess.run(command, check=True, cwd=place, env=variables)
        finally:
            if tree.exists():
                subprocess.run(["git", "-C", root, "worktree", "remove", "--force", tree], check=True)
        return min(compare(old, new, chosen.only, chosen.tolerance), 1)


if __name__ == "__main__":
    sys.exit(main())
