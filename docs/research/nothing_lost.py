"""What attacks read before and now: ``nothing_lost.py --before CHECKOUT --data PATH --out FOLDER``.

Writes the table ``nothing-lost``. CHECKOUT is an earlier commit of this project. For each line both commits
record the same victim, ratings and seed, each in processes of its own, and attack their recording twice, in
turn: the seconds are the processor's, of a second call in the same process (nothing is imported or compiled,
and nothing kept of the first), the lower of the two. What the earlier commit answered is scored by today's
code. Finished lines in FOLDER are found again. With ``--attack NAME`` only lines of that attack are measured,
and the table keeps its others.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import factorleak as fl
from factorleak import plugins

HERE = Path(__file__).parent
TABLE = HERE / "rows" / "nothing-lost.csv"
METRIC = "rated_rating_accuracy"
HEAD = (
    "victim", "attack", "best guess", "ratings right before", "now", "abstained before", "now",
    "processor s before", "now",
)  # fmt: skip

#: Run under either commit: records if nothing is there, then attacks; what it prints is JSON.
WORKER = """
import json, sys, time
from pathlib import Path
import factorleak as fl
from audit.scoring.files import write_reconstruction
told = json.loads(sys.argv[1])
path = Path(told["path"])
if not path.exists():
    fl.record(path, told["data"], users=told["users"], rounds=told["rounds"], defenses=told["defenses"],
              victim=told["victim"], **told["switches"])
view = fl.open_transcript(path).view("server")
fl.attack(path, told["attack"])
try:
    from attacks.closed_form.uploads.kept import forget
    forget()
except ImportError:  # an earlier commit
    pass
begin = time.process_time()
found = fl.attack(path, told["attack"])
seconds = time.process_time() - begin
Path(told["found"]).unlink(missing_ok=True)
write_reconstruction(Path(told["found"]), found, view.manifest, adversary="server", seconds=seconds)
print(json.dumps({"abstained": len(found.abstained), "clients": int(found.users.size),
                  "seconds": seconds, "outcome": str(found.outcome)}))
"""


class Line(NamedTuple):
    """A victim, and an attack on it."""

    victim: str
    attack: str
    switches: dict[str, Any]
    rounds: tuple[int, ...] = (4, 5)
    defenses: tuple[str, ...] = ()
    users: int = 100

    @property
    def text(self) -> str:
        """The victim as on a command line."""
        return " ".join([self.victim, *(str(value) for value in self.switches.values()), *self.defenses])


def _lines() -> list[Line]:
    scenarios = [
        {"update": update, "weighting": weighting}
        for update in ("semi-als", "sgd")
        for weighting in ("observed-only", "include-unrated")
    ]
    exact = [
        Line("fedmvmf", attack, one) for one in scenarios for attack in ("spectral", "grid", "undeclared")
    ]
    noisy = [Line("fedmvmf", "likelihood", one, defenses=("laplace:b=1",), users=60) for one in scenarios]
    fedmf = [
        Line("fedmf", attack, {"upload": upload})
        for upload in ("part-text", "full-text")
        for attack in ("spectral", "grid", "eq24-corrected", "undeclared")
    ]
    twelve = tuple(range(12))
    mf = [
        *(Line("mf", attack, {}) for attack in ("spectral", "grid", "undeclared")),
        Line("mf", "trajectory", {}, rounds=twelve),
        Line("mf", "trajectory", {}, rounds=twelve, defenses=("stretching", "objective-noise:noise=once")),
        Line("mf", "trajectory", {}, rounds=twelve, defenses=("stretching", "objective-noise:noise=fresh")),
    ]
    return [*exact, *fedmf, *mf, *noisy]


def _worker(line: Line, checkout: Path, given: argparse.Namespace, name: str) -> dict[str, Any]:
    path = given.out / f"{name}-{line.text.replace(' ', '_').replace(':', '_')}-{len(line.rounds)}"
    told = {**line._asdict(), "path": str(path), "data": given.data, "found": f"{path}.{line.attack}.arrow"}
    ran = subprocess.run(
        [sys.executable, "-c", WORKER, json.dumps(told)],
        env={**os.environ, "PYTHONPATH": str(checkout)}, cwd=given.out, check=False, text=True,
        capture_output=True,
    )  # fmt: skip
    if ran.returncode:
        return {"failed": ran.stderr.strip().splitlines()[-1], "path": str(path)}
    scores = fl.score(told["found"], transcript=path).set_index("metric").loc[METRIC]
    return {
        **json.loads(ran.stdout.splitlines()[-1]), "path": str(path),
        **{key: float(scores[key]) for key in ("value", "ci_low", "ci_high", "baseline")},
    }  # fmt: skip


def measured(line: Line, given: argparse.Namespace) -> dict[str, Any]:
    """What both commits read of one line."""
    runs: dict[str, list[dict[str, Any]]] = {"before": [], "now": []}
    for _ in range(2):
        for name, checkout in (("before", given.before.resolve()), ("now", given.now.resolve())):
            runs[name].append(_worker(line, checkout, given, name))
    return {
        name: {**twice[0], "seconds": min(one.get("seconds", float("nan")) for one in twice)}
        for name, twice in runs.items()
    }


def row(line: Line, both: dict[str, Any]) -> list[str]:
    """One line of the table."""
    before, now = both["before"], both["now"]

    def said(one: dict[str, Any]) -> str:
        if "failed" in one:
            return str(one["failed"])
        right = f"{one['value']:.3f} [{one['ci_low']:.3f}, {one['ci_high']:.3f}]"
        if one["value"] == one["value"]:
            return right
        return "NOT TESTED" if one["outcome"] == plugins.Outcome.ANSWERED else str(one["outcome"])

    return [
        f"`{line.text}`", f"`{line.attack}`",
        f"{now.get('baseline', float('nan')):.3f}", said(before), said(now),
        *(f"{one.get('abstained', '-')} of {one.get('clients', '-')}" for one in (before, now)),
        *(f"{one['seconds']:.1f}" for one in (before, now)),
    ]  # fmt: skip


def kept_rows() -> dict[tuple[str, str], list[str]]:
    """The lines of the table by victim and attack."""
    with TABLE.open(newline="") as file:
        return {(cells[0], cells[1]): cells for cells in list(csv.reader(file))[1:]}


def written(rows: dict[tuple[str, str], list[str]]) -> None:
    """Write the table in the order of the lines."""
    order = [(f"`{line.text}`", f"`{line.attack}`") for line in _lines()]
    with TABLE.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEAD, *(rows[key] for key in order if key in rows)])


def main() -> None:
    """Measure every line that is not there yet, and write the table after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the earlier commit")
    parser.add_argument("--now", type=Path, default=HERE.parent.parent, help="as --before, of today")
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--attack", help="measure the lines of this attack alone")
    given = parser.parse_args()
    for checkout in (given.before, given.now):
        if not (checkout / "factorleak.py").is_file():  # or an installed one would be measured in its place
            parser.error(f"{checkout} must be a checkout of this project; git worktree add {checkout} COMMIT")
    given.out.mkdir(parents=True, exist_ok=True)
    given.out, given.data = given.out.resolve(), str(Path(given.data).resolve())
    rows = kept_rows() if given.attack else {}
    for line in _lines():
        if given.attack not in (None, line.attack):
            continue
        kept = given.out / f"{line.text}-{line.attack}-{len(line.rounds)}.json".replace(" ", "_")
        if not kept.is_file():
            kept.write_text(json.dumps(measured(line, given)))
        cells = row(line, json.loads(kept.read_text()))
        rows[cells[0], cells[1]] = cells
        print(*cells, sep=" | ", flush=True)
        written(rows)


if __name__ == "__main__":
    main()
