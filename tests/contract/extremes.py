"""Transcripts with extreme numbers, and what must come of them: a refusal by rule, or a legal answer.

Each ``Extreme`` changes one number, column or structure of a small recording of ``tests.oracles.simulator``.
Whatever it is, opening it ends in ``InputError``, or every attack answers, finitely, or abstains with a
reason.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from attacks.base import OPTIONAL, Foreseeing, Reconstruction
from audit.experiments.answers import answered
from audit.factories import make_attack
from audit.scoring.files import read_reconstruction, write_reconstruction
from audit.scoring.score import score
from audit.scoring.truth import Truth, read_truth
from tests.oracles.simulator import Reference
from victims.common.errors import InputError
from victims.transcript.adversaries import ADVERSARIES
from victims.transcript.reader import open_transcript
from victims.transcript.view import View

FACTORS, N_USERS, N_ITEMS, GROUPS = 3, 6, 12, ((0, 1, 2), (3, 4))
NUMBERS = (
    0.0,
    *(5e-324, 1e-320, 1e-308, 1e-160, 1e-110, 1e-60, 1e-38, 1e-28, 1e-16, 1e-8),
    *(1e8, 1e16, 1e28, 1e38, 1e60, 1e110, 1e150, 1e300, 1.7e308),
    *(-1e-300, -1e-28, -1.0, -1e28, -1e150),
)
WHOLE = (-(2**31), -1, 0, 1, 2, 3, 1000, 2**31 - 1, 2**31, 10**12, 10**30)
CONSTANTS = (
    "lambda_attributes",
    "lambda_factors",
    "alpha",
    "server_learning_rate",
    "client_learning_rate",
    "learning_rate",
    "regularization",
    "step_regularization",
    "epochs",
    "adam_epsilon",
)
CLEAR = ("spectral", "grid", "eq24-printed", "eq24-corrected", "aggregate", "rated-set")
LOOKS_FIRST = ("likelihood", "aggregate")  # what they lack may show only in the rows
SCENARIOS = tuple((u, w) for u in ("semi-als", "sgd") for w in ("observed-only", "include-unrated"))
SEEN = ("server", "eavesdropper", "server+client", "client:1", "decrypter", "item-server")


@dataclass
class Draft:
    """A recording that is not written yet: the manifest and the columns of both tables."""

    manifest: dict[str, Any]
    state: dict[str, Any]
    messages: dict[str, Any]

    def keep(self, table: str, rows: np.ndarray) -> None:
        """Drop all other rows of one table."""
        columns = getattr(self, table)
        for name, column in columns.items():
            columns[name] = column[rows]

    def write(self, path: Path) -> None:
        path.mkdir()
        (path / "manifest.json").write_text(json.dumps(self.manifest))
        for name in ("state", "messages"):
            batch = pa.RecordBatch.from_pydict(
                {key: _array(key, column) for key, column in getattr(self, name).items()}
            )
            with pa.ipc.new_file(path / f"{name}.arrow", batch.schema) as file:
                file.write_batch(batch)


def _array(name: str, column: Any) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    column = np.asarray(column)
    if name == "kind":
        return pa.array(column.tolist(), pa.string()).dictionary_encode()
    if column.ndim == 1:
        return pa.array(column)
    flat = pa.array(np.ascontiguousarray(column).reshape(-1))
    hidden = np.isnan(column).all(axis=1)
    return pa.FixedSizeListArray.from_arrays(flat, column.shape[1], mask=pa.array(hidden))


@cache
def _plain(scenario: tuple[str, str], attributes: bool) -> tuple[str, pa.Table, pa.Table]:
    groups = GROUPS if attributes else ()
    reference = Reference(*scenario, N_USERS, N_ITEMS, FACTORS, groups, rounds=(0, 1), density=0.5)
    return json.dumps(reference.manifest() | {"adversary": "all"}), *reference.tables()


def draft(scenario: tuple[str, str], attributes: bool = True) -> Draft:
    """A recording of a scenario of FedMVMF, rounds 0 and 1."""
    manifest, *tables = _plain(scenario, attributes)
    columns = [
        {
            name: np.array(table[name].to_pylist()) if name in ("kind", "factor", "gradient")
            else table[name].to_numpy().copy()
            for name in table.column_names
        }
        for table in tables
    ]  # fmt: skip
    return Draft(json.loads(manifest), *columns)


def truth_of(scenario: tuple[str, str], folder: Path) -> Truth:
    """What its clients kept private."""
    Reference(*scenario, N_USERS, N_ITEMS, FACTORS, GROUPS, rounds=(0, 1), density=0.5).write_truth(
        folder / "t"
    )
    return read_truth(folder / "t.truth.arrow")


@dataclass(frozen=True)
class Extreme:
    """A name, what it does to a draft, and whether the recording has attributes before."""

    name: str
    change: Callable[[Draft], None]
    attributes: bool = True


def extremes() -> list[Extreme]:
    """All of them, in an order that does not change."""
    found = [
        *_of_tables(),
        *_of_constants(),
        *_of_levels(),
        *_of_sizes(),
        *_of_defenses(),
        *_of_structure(),
        *_of_encryption(),
    ]
    assert len({one.name for one in found}) == len(found)
    return found


def _of_tables() -> Iterator[Extreme]:
    for table, column in (("state", "factor"), ("messages", "gradient")):
        for value in NUMBERS:
            for where, rows in (
                ("everywhere", slice(None)),
                ("one row", slice(4, 5)),
                ("one client or many items", slice(0, 9)),
                ("the attributes", "attribute"),
                ("the items", "item"),
                ("the last round", 1),
            ):
                for how in ("times", "all", "first"):

                    def change(
                        d: Draft, table: str = table, column: str = column, value: float = value,
                        rows: Any = rows, how: str = how,
                    ) -> None:  # fmt: skip
                        columns = getattr(d, table)
                        numbers = columns[column]
                        here = rows
                        if not isinstance(rows, slice):
                            here = np.flatnonzero(
                                columns["kind" if isinstance(rows, str) else "round"] == rows
                            )
                        with np.errstate(all="ignore"):
                            if how == "times":
                                scaled = numbers[here] * value
                                numbers[here] = np.clip(scaled, -1.7e308, 1.7e308)
                            elif how == "all":
                                numbers[here] = value
                            else:
                                part = numbers[here]
                                part[:, 0] = value
                                numbers[here] = part

                    yield Extreme(f"{column} {how} {value:g} {where}", change)
        for value in (0.0, 1e-45, 1e-38, 1e-20, 1.0, 1e20, 3e38):

            def narrow(d: Draft, table: str = table, column: str = column, value: float = value) -> None:
                columns = getattr(d, table)
                with np.errstate(all="ignore"):
                    small = np.clip(columns[column] * value, -3e38, 3e38)
                    columns[column] = small.astype(np.float32)

            yield Extreme(f"{column} float32 times {value:g}", narrow)
        for name in ("round", "index", "sender", "receiver"):
            for number in WHOLE[:9]:

                def put(d: Draft, table: str = table, name: str = name, number: int = number) -> None:
                    if name in getattr(d, table):
                        column = getattr(d, table)[name].astype(np.int64)
                        column[3] = number
                        getattr(d, table)[name] = column

                yield Extreme(f"{table} {name} = {number}", put)
    for value in NUMBERS:

        def noisy(d: Draft, value: float = value) -> None:
            d.state["noise_scale"] = np.full_like(d.state["factor"], value)
            d.manifest["defenses"] = [{"name": "objective-noise", "noise": "fresh"}]

        yield Extreme(f"noise_scale = {value:g}", noisy)


def _of_constants() -> Iterator[Extreme]:
    for protocol in ("fedmvmf", "fedmf", "mf"):
        for name in CONSTANTS:
            for value in NUMBERS:

                def change(
                    d: Draft, protocol: str = protocol, name: str = name, value: float = value
                ) -> None:
                    _as(d, protocol)
                    d.manifest["hyperparameters"][name] = value

                yield Extreme(f"{protocol} {name} = {value:g}", change, protocol == "fedmvmf")

            def without(d: Draft, protocol: str = protocol, name: str = name) -> None:
                _as(d, protocol)
                d.manifest["hyperparameters"].pop(name, None)

            yield Extreme(f"{protocol} without {name}", without, protocol == "fedmvmf")

        def nothing(d: Draft, protocol: str = protocol) -> None:
            _as(d, protocol)
            d.manifest["hyperparameters"] = {}

        yield Extreme(f"{protocol} without constants", nothing, protocol == "fedmvmf")

        def plain(d: Draft, protocol: str = protocol) -> None:
            _as(d, protocol)

        yield Extreme(f"{protocol} as it is", plain, protocol == "fedmvmf")

        def equal(d: Draft, protocol: str = protocol) -> None:
            _as(d, protocol)
            for columns, name in ((d.state, "factor"), (d.messages, "gradient")):
                first = columns["round"] == 0
                columns[name][~first] = columns[name][first]

        yield Extreme(f"{protocol} equal rounds", equal, protocol == "fedmvmf")
    for features in ([[0]] * N_ITEMS, [[number % 3] for number in range(N_ITEMS)]):
        for name in ("lambda_factors", "lambda_attributes", "adam_epsilon", "server_learning_rate"):
            for value in NUMBERS:

                def adam(d: Draft, name: str = name, value: float = value, features: Any = features) -> None:
                    d.manifest["item_features"] = features
                    d.manifest["hyperparameters"] |= {"adam_epsilon": 1e-8, "server_learning_rate": 100.0}
                    d.manifest["hyperparameters"][name] = value

                yield Extreme(f"{len(set(map(tuple, features)))} features, {name} = {value:g}", adam)
    for key in ("scale", "regularization"):
        for value in NUMBERS:

            def upload(d: Draft, key: str = key, value: float = value) -> None:
                d.manifest["upload"][key] = value

            yield Extreme(f"upload {key} = {value:g}", upload)

    def zeros(d: Draft) -> None:
        d.manifest["upload"]["zeros_if_unrated"] = True

    yield Extreme("zeros if unrated", zeros)


def _as(d: Draft, protocol: str) -> None:
    """The manifest of another protocol above the same rows."""
    d.manifest["protocol"] = protocol
    if protocol == "fedmf":
        rate = d.manifest["hyperparameters"].get("client_learning_rate", 0.01)
        d.manifest["upload"] = {"scale": -2 * rate, "regularization": 2 * rate * 0.1}
        d.manifest["hyperparameters"] |= {"lambda_factors": 0.1, "client_learning_rate": rate}
    elif protocol == "mf":
        d.manifest["hyperparameters"] |= {
            "learning_rate": 0.01, "regularization": 0.1, "epochs": 5, "client_learning_rate": 0.01,
        }  # fmt: skip


def _of_levels() -> Iterator[Extreme]:
    spans: dict[str, list[float]] = {
        f"1..5 times {v:g}": [v * k for k in range(1, 6)] for v in NUMBERS if v > 0
    }
    spans = {name: [min(level, 1.7e308) for level in levels] for name, levels in spans.items()}
    spans |= {f"one level {v:g}": [v] for v in NUMBERS}
    spans |= {
        "half stars": [k / 2 for k in range(1, 11)],
        "1000 levels": [float(k) for k in range(1, 1001)],
        "1001 levels": [float(k) for k in range(1, 1002)],
        "1000 close levels": [1 + k * 1e-12 for k in range(1000)],
        "two levels side by side": [1.0, np.nextafter(1.0, 2)],
        "two levels": [1.0, 2.0],
        "from 1e-300 to 1e300": [1e-300, 1e300],
        "from 1 to 1e300": [1.0, 1e300],
        "uneven": [1e-6, 1.0, 1e6],
        "percent": [float(k) for k in range(1, 101)],
    }
    for name, levels in spans.items():

        def change(d: Draft, levels: list[float] = levels) -> None:
            d.manifest["rating_levels"] = levels

        yield Extreme(f"levels {name}", change)


def _of_sizes() -> Iterator[Extreme]:
    for name in ("n_users", "n_items", "n_attributes", "factors", "version"):
        for number in WHOLE:

            def change(d: Draft, name: str = name, number: int = number) -> None:
                d.manifest[name] = number

            yield Extreme(f"{name} = {number}", change)
    lists: dict[str, tuple[str, Any]] = {
        "rounds 0": ("rounds", [0]),
        "rounds huge": ("rounds", [10**30]),
        "groups none": ("attribute_groups", []),
        "groups empty": ("attribute_groups", [[], []]),
        "groups one each": ("attribute_groups", [[0], [1], [2], [3], [4]]),
        "groups all in one": ("attribute_groups", [[4, 3, 2, 1, 0]]),
        "groups beyond": ("attribute_groups", [[2**31 - 1]]),
        "groups of 10^30": ("attribute_groups", [[10**30]]),
        "groups many empty": ("attribute_groups", [[] for _ in range(300)]),
        "features none each": ("item_features", [[] for _ in range(N_ITEMS)]),
        "features one": ("item_features", [[0] for _ in range(N_ITEMS)]),
        "features huge": ("item_features", [[2**31 - 1] for _ in range(N_ITEMS)]),
        "parties more": ("parties", {"server": -1, "item_server": -2, "helper": -(2**31 - 1)}),
        "parties empty": ("parties", {}),
        "parties beyond": ("parties", {"server": -(10**30)}),
        "party of many names": ("parties", {"server": -1, "item_server": -1}),
    }
    for name, (key, value) in lists.items():

        def put(d: Draft, key: str = key, value: Any = value) -> None:
            d.manifest[key] = value

        yield Extreme(name, put)
    for start in (1, 2**31 - 2):

        def shift(d: Draft, start: int = start) -> None:
            for columns in (d.state, d.messages):
                columns["round"] = (columns["round"].astype(np.int64) + start).astype(np.int32)
            d.manifest["rounds"] = [start, start + 1]

        yield Extreme(f"rounds from {start}", shift)

    def apart(d: Draft) -> None:
        for columns in (d.state, d.messages):
            columns["round"] = np.where(columns["round"] == 0, 0, 2**31 - 1).astype(np.int32)
        d.manifest["rounds"] = [2**31 - 1, 0]

    yield Extreme("rounds far apart", apart)


def _nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


def _of_defenses() -> Iterator[Extreme]:
    keys = {
        "laplace": ("scale", "clip"),
        "gaussian": ("scale", "clip"),
        "unrated-sampling": ("rho",),
        "stretching": ("threshold",),
        "personalized-sampling": ("threshold",),
        "objective-noise": ("scale", "noise"),
        "paillier": ("key_bits",),
    }
    strange: tuple[Any, ...] = (None, "x", True, [], {}, [1.0], float("nan"), float("inf"), 10**30, 10**400)
    for name, options in keys.items():
        for option in options:
            for value in (*NUMBERS, *strange):

                def change(d: Draft, name: str = name, option: str = option, value: Any = value) -> None:
                    d.manifest["defenses"] = [{"name": name, option: value}]

                shown = f"{value:g}" if isinstance(value, float) else str(value)[:20] + type(value).__name__
                yield Extreme(f"{name} {option} = {shown}{len(str(value))}", change)

        def twice(d: Draft, name: str = name) -> None:
            d.manifest["defenses"] = [{"name": name, "scale": 0.1}, {"name": name, "scale": 0.1}]

        yield Extreme(f"{name} twice", twice)
    others: dict[str, Any] = {
        f"nested {depth} deep": [{"name": "x", "y": _nested(depth)}] for depth in (3, 30, 200, 900)
    }
    for name in (None, 1, [], {}, ["laplace"], True, "", "x" * 100_000):
        others[f"name {str(name)[:20]}{type(name).__name__}"] = [{"name": name, "scale": 1.0}]
    others |= {"no name": [{}], "thousands": [{"name": "x"}] * 5000, "text": "laplace", "a list": [[]]}
    for label, value in others.items():

        def put(d: Draft, value: Any = value) -> None:
            d.manifest["defenses"] = value

        yield Extreme(f"defenses {label}", put)


def _of_structure() -> Iterator[Extreme]:
    chosen: dict[str, Callable[[dict[str, Any]], np.ndarray]] = {
        "one client": lambda m: m["sender"] == 2,
        "one row": lambda m: np.unique(m["round"], return_index=True)[1],
        "one row a client": lambda m: np.unique([m["round"], m["sender"]], axis=1, return_index=True)[1],
        "only attributes": lambda m: m["kind"] == "attribute",
        "only one attribute": lambda m: (m["kind"] == "attribute") & (m["index"] == 0),
        "only items": lambda m: m["kind"] == "item",
        "only one item": lambda m: (m["kind"] == "item") & (m["index"] == m["index"][0]),
        "attributes of one client": lambda m: (m["kind"] == "item") | (m["sender"] != 3),
        "only attributes of one client": lambda m: (m["kind"] == "attribute") | (m["sender"] != 3),
        "other clients in each round": lambda m: m["sender"] % 2 == m["round"] % 2,
        "other rows in each round": lambda m: (m["index"] % 2 == m["round"] % 2) | (m["kind"] == "attribute"),
    }
    for name, which in chosen.items():
        for zero in (False, True):

            def change(d: Draft, which: Any = which, zero: bool = zero) -> None:
                d.keep("messages", which(d.messages))
                if zero:
                    d.messages["gradient"][:] = 0

            yield Extreme(f"{name}{' of zeros' * zero}", change)

    def lone(d: Draft) -> None:
        d.keep("messages", d.messages["round"] == 1)
        d.keep("state", d.state["round"] == 1)
        d.manifest["rounds"] = [1]

    yield Extreme("one round", lone)

    def single(d: Draft) -> None:
        for columns, name in ((d.state, "factor"), (d.messages, "gradient")):
            columns[name] = columns[name][:, :1]
        d.manifest["factors"] = 1

    yield Extreme("one factor", single)

    def tiny(d: Draft) -> None:
        lone(d)
        single(d)
        d.keep("messages", np.array([0]))
        d.keep("state", np.isin(d.state["index"], d.messages["index"][0]) & (d.state["kind"] == "item"))
        d.manifest |= {"n_attributes": 0, "attribute_groups": []}

    yield Extreme("one number", tiny)

    def equal_factors(d: Draft) -> None:
        d.state["factor"][:] = d.state["factor"][0]

    yield Extreme("equal factors", equal_factors)

    def equal_rows(d: Draft) -> None:
        d.messages["gradient"][:] = d.messages["gradient"][0]

    yield Extreme("equal gradients", equal_rows)

    def to_peers(d: Draft) -> None:
        d.messages["receiver"] = (d.messages["sender"] + 1) % N_USERS

    yield Extreme("rows go to peers", to_peers)
    for value in NUMBERS:
        for where in ("decrypted", "of the item server"):

            def sums(d: Draft, value: float = value, where: str = where) -> None:
                _add_sums(d, value, where == "decrypted")

            yield Extreme(f"sums times {value:g} {where}", sums)


def _add_sums(d: Draft, value: float, decrypted: bool) -> None:
    """Sums over clients, which the first client decrypts or the item server sends."""
    m = d.messages
    pairs, place = np.unique(
        [m["round"], m["index"] + 100 * (m["kind"] == "attribute")], axis=1, return_inverse=True
    )
    total = np.zeros((pairs.shape[1], FACTORS))
    np.add.at(total, place.ravel(), m["gradient"])
    attribute = pairs[1] >= 100
    if not decrypted:
        pairs, total, attribute = pairs[:, ~attribute], total[~attribute], attribute[~attribute]
        d.manifest["parties"]["item_server"] = -2
    with np.errstate(all="ignore"):
        total = np.clip(total * value, -1.7e308, 1.7e308)
    kinds = np.where(attribute, "attribute-sum", "item-sum") if decrypted else np.full(len(total), "item")
    more = {
        "round": pairs[0],
        "sender": np.full(len(total), 0 if decrypted else -2),
        "receiver": np.full(len(total), -1),
        "kind": kinds,
        "index": pairs[1] % 100,
        "gradient": total,
    }
    for name, column in more.items():
        m[name] = np.concatenate([m[name], column.astype(m[name].dtype) if name != "kind" else column])


def _of_encryption() -> Iterator[Extreme]:
    def sealed(columns: dict[str, Any], name: str, rows: np.ndarray) -> None:
        columns[name] = columns[name].copy()
        columns[name][rows] = np.nan
        columns["ciphertext"] = pa.array([b"x" if hidden else None for hidden in rows], pa.large_binary())

    for state, uploads in ((True, False), (False, True), (True, True)):
        for sums in (False, True):

            def change(d: Draft, state: bool = state, uploads: bool = uploads, sums: bool = sums) -> None:
                if sums:
                    _add_sums(d, 1.0, True)
                if state:
                    sealed(d.state, "factor", np.ones(len(d.state["factor"]), bool))
                if uploads:
                    clear = np.char.endswith(d.messages["kind"], "sum")
                    sealed(d.messages, "gradient", ~clear)
                    d.messages["exponent"] = np.where(clear, 0, -(2**31) + 1).astype(np.int32)

            yield Extreme(f"sealed state {state} uploads {uploads} sums {sums}", change)

    def half(d: Draft) -> None:
        sealed(d.state, "factor", np.arange(len(d.state["factor"])) % 2 == 0)

    yield Extreme("half of the state sealed", half)


@dataclass(frozen=True)
class Outcome:
    """``refused``, ``abstained``, ``answered`` or ``raised``, and the words of the last."""

    what: str
    words: str = ""


def views_of(extreme: Extreme, scenario: tuple[str, str], folder: Path) -> dict[str, View] | Outcome:
    """What each adversary sees, or the refusal; a party that was not recorded is left out."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "t"
        drafted = draft(scenario, extreme.attributes)
        extreme.change(drafted)
        drafted.write(path)
        return seen_in(path)


def seen_in(path: Path) -> dict[str, View] | Outcome:
    """What each adversary sees of a recording that may be anything, or the refusal."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            transcript = open_transcript(path)
    except InputError as error:
        return Outcome("refused", str(error))
    except Exception as error:
        return Outcome("raised", f"open: {type(error).__name__}: {str(error)[:150]}")
    found: dict[str, View] = {}
    for adversary in SEEN:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                found[adversary] = transcript.view(adversary)
        except InputError:
            continue
        except Exception as error:
            return Outcome("raised", f"view of {adversary}: {type(error).__name__}: {str(error)[:150]}")
    return found


def outcome(name: str, view: View, truth: Truth | None, folder: Path) -> Outcome:
    """Run an attack, write its answer, read that and score it; warnings count as raised."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = answered(name, None, view, 0)
            _refuse_infinite(found)
            _refuse_unforeseen(name, view, found)
            path = folder / "found.arrow"
            write_reconstruction(path, found, view.manifest, adversary=view.adversary, seconds=0.0)
            if found.users.size:
                back = read_reconstruction(path)
                if truth is not None and np.isin(found.users, truth.users).all():
                    score(back.reconstruction, view.manifest, truth)
    except InputError as error:
        return Outcome("refused", str(error))
    except Exception as error:
        return Outcome("raised", f"{type(error).__name__}: {str(error)[:150]}")
    return Outcome("answered" if len(found.abstained) < found.users.size else "abstained")


def _refuse_unforeseen(name: str, view: View, found: Reconstruction) -> None:
    """What is said before an attack runs is what it says when it does."""
    attack = make_attack(name)
    assert isinstance(attack, Foreseeing), "does not say beforehand why it does not apply"
    if foretold := attack.obstacle(view):
        assert set(found.abstained.values()) <= {foretold}, "gives another reason than was foretold"
        assert set(found.abstained) == set(found.users.tolist()), "was said not to apply, and answers"
    elif found.obstacle and name not in LOOKS_FIRST:
        raise AssertionError("does not apply, and does not say so beforehand")


def _refuse_infinite(found: Reconstruction) -> None:
    spoken = set(found.abstained)
    for block in found.blocks:
        spoken |= set(block.users[~np.isnan(block.value).all(axis=1)].tolist())
        for name in ("value", *OPTIONAL):
            values = getattr(block, name)
            assert values is None or not np.isinf(values).any(), f"{name} is infinite"
    assert spoken == set(found.users.tolist()), "a client has neither an answer nor a reason"


assert all(name.startswith("client:") or name in ADVERSARIES for name in SEEN)
