"""Every attack on recordings with extreme numbers: ``python -m tests.soak.extremes``.

A case changes one thing of a small recording of the tests' own reference protocol: a number of the manifest,
or numbers of a table. Then the reader refuses it with an ``InputError``, or every attack returns an answer
that its interface allows, without an infinite value. Anything else is a fault.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from attacks.interface import Reconstruction
from audit.answers import answered
from audit.reconstructions import write_reconstruction
from audit.registry import entries
from tests.reference import Reference, table, write_table
from victims.errors import InputError
from victims.transcript import open_transcript
from victims.view import View

HUGE = (1e6, 1e14, 1e30, 1e100, 1e150, 1e300, 1.7e308)
TINY = (1e-6, 1e-14, 1e-30, 1e-100, 1e-150, 5e-324, 0.0)
CONSTANTS = (
    "lambda_attributes", "lambda_factors", "alpha", "server_learning_rate", "client_learning_rate",
)  # fmt: skip
SCENARIOS = tuple((u, w) for u in ("semi-als", "sgd") for w in ("observed-only", "include-unrated"))
FEW = {"root": {"jobs": "1", "solutions": "2"}, "likelihood": {}}  # options that make attacks cheap


@dataclass
class Recording:
    """A recording that is about to be changed: manifest, and columns of the two tables."""

    manifest: dict[str, Any]
    state: dict[str, Any]
    messages: dict[str, Any]
    sealed_state: bool = False

    def write(self, path: Path) -> None:
        """As a transcript directory."""

        path.mkdir()
        (path / "manifest.json").write_text(json.dumps(self.manifest))
        state = table(**self.state)
        if self.sealed_state:
            rows = state.num_rows
            nulls = pa.FixedSizeListArray.from_arrays(
                pa.array(np.zeros(rows * self.manifest["factors"])),
                self.manifest["factors"],
                mask=pa.array(np.ones(rows, bool)),
            )
            place = state.schema.get_field_index("factor")
            state = state.set_column(place, "factor", nulls)
            state = state.append_column("ciphertext", pa.array([b"x" * 8] * rows, pa.large_binary()))
        write_table(path / "state", state, "arrow")
        write_table(path / "messages", table(**self.messages), "arrow")


Change = Callable[[Recording], None]


@dataclass(frozen=True)
class Case:
    """A change of a recording with a name."""

    name: str
    change: Change
    reference: dict[str, Any] = field(default_factory=dict)


def recorded(update: str, weighting: str, **more: Any) -> Recording:
    """A small recording of the reference protocol."""
    sizes = {"n_users": 6, "n_items": 9, "rounds": (1, 2, 3), **more}
    reference = Reference(update=update, weighting=weighting, **sizes)
    tables = []
    for content in reference.tables():
        columns: dict[str, Any] = {name: content[name].to_pylist() for name in content.column_names}
        for name in ("factor", "gradient"):
            if name in columns:
                columns[name] = np.array(columns[name], reference.dtype)
        tables.append(columns)
    return Recording(reference.manifest(), *tables)


def cases() -> Iterator[Case]:
    """All changes."""
    yield Case("nothing", lambda r: None)
    for x in (*HUGE, *TINY, *(-x for x in (1e-30, 1.0, 1e30))):
        yield Case(f"all factors times {x:g}", _scaled("state", "factor", x))
        yield Case(f"all gradients times {x:g}", _scaled("messages", "gradient", x))
        yield Case(f"factors and gradients times {x:g}", _both(x))
        yield Case(f"one factor {x:g}", _one("state", "factor", x))
        yield Case(f"one gradient {x:g}", _one("messages", "gradient", x))
        for name in CONSTANTS:
            yield Case(f"{name} {x:g}", _constant(name, x))
        yield Case(f"upload scale {x:g}", _upload("scale", x))
        yield Case(f"upload regularization {x:g}", _upload("regularization", x))
        yield Case(f"largest level {x:g}", _levels([1.0, 2.0, 3.0, 4.0, x]))
        yield Case(f"smallest level {x:g}", _levels([x, 2.0, 3.0, 4.0, 5.0]))
        yield Case(f"all levels times {x:g}", _levels([level * x for level in range(1, 6)]))
        yield Case(f"laplace scale {x:g}", _defense({"name": "laplace", "scale": x}))
        yield Case(f"gaussian sigma {x:g}", _defense({"name": "gaussian", "scale": x, "sigma": x}))
    for name in CONSTANTS:
        yield Case(f"no {name}", _constant(name, None))
    yield Case("no constants", lambda r: r.manifest.update(hyperparameters={}))
    yield Case("one level", _levels([3.0]))
    yield Case("half stars", _levels([x / 2 for x in range(1, 11)]))
    yield Case("a thousand levels", _levels([x / 100 for x in range(1, 1001)]))
    yield Case("a sealed state", lambda r: setattr(r, "sealed_state", True))
    for depth in (10, 90, 400):
        yield Case(f"defenses {depth} deep", _defense(_nested(depth)))
    yield Case("a defense of other software", _defense({"name": "blur", "width": [1, {"a": None}]}))
    yield Case("laplace without a scale", _defense({"name": "laplace"}))
    yield Case("laplace with a word", _defense({"name": "laplace", "scale": "much"}))
    yield Case("attributes alone", _only("attribute"))
    yield Case("items alone", _only("item"))
    yield Case("one row", _first_rows(1))
    yield Case("two rows", _first_rows(2))
    yield Case("no groups", lambda r: r.manifest.update(attribute_groups=[]))
    yield Case("a million users", lambda r: r.manifest.update(n_users=1_000_000))
    yield Case("a million items", lambda r: r.manifest.update(n_items=1_000_000))
    yield Case("a million attributes", lambda r: r.manifest.update(n_attributes=1_000_000))
    yield Case("the largest round", _last_round(2**31 - 1))
    yield Case("one client", lambda r: None, {"n_users": 1, "single_raters": 0})
    yield Case("one client, one rating", lambda r: None, {"n_users": 1, "single_raters": 1})
    yield Case("one item", lambda r: None, {"n_items": 1})
    yield Case("one factor", lambda r: None, {"factors": 1})
    yield Case("more factors than rows", lambda r: None, {"factors": 20})
    yield Case("one round", lambda r: None, {"rounds": (2,)})
    yield Case("no attributes", lambda r: None, {"groups": ()})
    yield Case("single precision", lambda r: None, {"dtype": np.float32})
    yield Case("equal rounds", _equal_rounds)
    yield Case("equal clients", _equal_clients)


def _scaled(where: str, column: str, x: float) -> Change:
    def change(recording: Recording) -> None:
        with np.errstate(all="ignore"):
            columns = getattr(recording, where)
            columns[column] = np.nan_to_num(columns[column] * x, posinf=1.7e308, neginf=-1.7e308)

    return change


def _both(x: float) -> Change:
    def change(recording: Recording) -> None:
        _scaled("state", "factor", x)(recording)
        _scaled("messages", "gradient", x)(recording)

    return change


def _one(where: str, column: str, x: float) -> Change:
    def change(recording: Recording) -> None:
        getattr(recording, where)[column][0, 0] = x

    return change


def _constant(name: str, x: float | None) -> Change:
    return lambda recording: recording.manifest["hyperparameters"].update({name: x})


def _upload(name: str, x: float) -> Change:
    return lambda recording: recording.manifest["upload"].update({name: x})


def _levels(levels: Sequence[float]) -> Change:
    return lambda recording: recording.manifest.update(rating_levels=list(levels))


def _defense(entry: dict[str, Any]) -> Change:
    return lambda recording: recording.manifest.update(defenses=[entry])


def _nested(depth: int) -> dict[str, Any]:
    inner: Any = 1
    for _ in range(depth):
        inner = {"in": inner}
    return {"name": "laplace", "scale": 1.0, "why": inner}


def _kept(recording: Recording, keep: Sequence[int]) -> None:
    for name, column in recording.messages.items():
        if isinstance(column, np.ndarray):
            recording.messages[name] = column[list(keep)]
        else:
            recording.messages[name] = [column[row] for row in keep]
    seen = sorted(set(recording.messages["round"]))
    rows = [row for row, number in enumerate(recording.state["round"]) if number in seen]
    recording.state = {
        name: column[rows] if isinstance(column, np.ndarray) else [column[row] for row in rows]
        for name, column in recording.state.items()
    }
    recording.manifest["rounds"] = seen


def _only(kind: str) -> Change:
    return lambda r: _kept(r, [row for row, found in enumerate(r.messages["kind"]) if found == kind])


def _first_rows(number: int) -> Change:
    return lambda recording: _kept(recording, range(number))


def _last_round(number: int) -> Change:
    def change(recording: Recording) -> None:
        last = recording.manifest["rounds"][-1]
        recording.manifest["rounds"][-1] = number
        for columns in (recording.state, recording.messages):
            columns["round"] = [number if found == last else found for found in columns["round"]]

    return change


def _equal_rounds(recording: Recording) -> None:
    for columns, name, keys in (
        (recording.state, "factor", ("kind", "index")),
        (recording.messages, "gradient", ("sender", "kind", "index")),
    ):
        first: dict[tuple[Any, ...], np.ndarray] = {}
        for row, key in enumerate(zip(*(columns[part] for part in keys), strict=True)):
            columns[name][row] = first.setdefault(key, columns[name][row].copy())


def _equal_clients(recording: Recording) -> None:
    first: dict[tuple[Any, ...], np.ndarray] = {}
    columns = recording.messages
    for row, key in enumerate(zip(*(columns[part] for part in ("round", "kind", "index")), strict=True)):
        columns["gradient"][row] = first.setdefault(key, columns["gradient"][row].copy())


def outcome(case: Case, base: Recording, attacks: Sequence[str], folder: Path) -> dict[str, str]:
    """What came of a case: "refused", or for each attack "answered", "abstained" or what it raised."""
    recording = copy.deepcopy(base)
    case.change(recording)
    path = folder / "t"
    recording.write(path)
    try:
        view = open_transcript(path).view("server")
    except InputError:
        return {"reader": "refused"}
    return {name: _of_attack(name, view, folder / "answer.arrow") for name in attacks}


def _of_attack(name: str, view: View, path: Path) -> str:
    options = next((given for prefix, given in FEW.items() if name.startswith(prefix)), {})
    try:
        found = answered(name, dict(options), view, 0)
        write_reconstruction(path, found, view.manifest, adversary="server", seconds=0.0)
        return "abstained" if _is_silent(found) else "answered"
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:80]} ({Path(frame.filename).name}:{frame.lineno})"


def _is_silent(found: Reconstruction) -> bool:
    return len(found.abstained) == found.users.size


def main() -> None:
    """Count what came of all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attacks", nargs="+", default=list(entries("attacks")))
    parser.add_argument("--cases", default="", help="Only those whose name holds this.")
    parser.add_argument("--every", type=int, default=1, help="Only each so-many-th of the others.")
    parser.add_argument("--warnings", choices=["error", "ignore"], default="error")
    given = parser.parse_args()
    warnings.simplefilter(given.warnings)
    counts: Counter[str] = Counter()
    begin = time.monotonic()
    for update, weighting in SCENARIOS:
        for number, case in enumerate(cases()):
            if given.cases not in case.name or (number % given.every and not case.reference):
                continue
            base = recorded(update, weighting, **case.reference)
            with tempfile.TemporaryDirectory() as folder:
                for name, came in outcome(case, base, given.attacks, Path(folder)).items():
                    fine = came in ("refused", "answered", "abstained")
                    counts[came if fine else "raised"] += 1
                    if not fine:
                        print(f"{update}/{weighting}, {case.name}, {name}: {came}", flush=True)
    print(f"{dict(counts)} in {time.monotonic() - begin:.0f} s")
    sys.exit(bool(counts["raised"]))


if __name__ == "__main__":
    main()
