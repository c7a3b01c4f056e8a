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
from functools import cache, partial
from itertools import product
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
NUMBERS = (0.0, 5e-324, 1e-308, 1e-60, 1e-28, 1e-8, 1e8, 1e28, 1e60, 1e150, 1.7e308, -1e-28, -1.0, -1e28)
CONSTANTS = (
    *("lambda_attributes", "lambda_factors", "alpha", "server_learning_rate", "client_learning_rate"),
    *("learning_rate", "regularization", "step_regularization", "epochs", "adam_epsilon"),
)
ROWS: dict[str, Any] = {  # of a table: places, or a kind, or a round
    "everywhere": slice(None), "one row": slice(4, 5), "one client or many items": slice(0, 9),
    "the attributes": "attribute", "the items": "item", "the last round": 1,
}  # fmt: skip
HOW: dict[str, Callable[[np.ndarray, float], Any]] = {
    "times": lambda part, value: np.clip(part * value, -1.7e308, 1.7e308),
    "all": lambda part, value: value,
    "first": lambda part, value: np.concatenate([np.full((len(part), 1), value), part[:, 1:]], axis=1),
}
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
    found = [*_of_tables(), *_of_constants(), *_of_structure(), *_of_encryption()]
    assert len({one.name for one in found}) == len(found)
    return found


def _put(d: Draft, table: str, column: str, value: float, rows: str, how: str) -> None:
    columns, here = getattr(d, table), ROWS[rows]
    if not isinstance(here, slice):
        here = np.flatnonzero(columns["kind" if isinstance(here, str) else "round"] == here)
    with np.errstate(all="ignore"):
        columns[column][here] = HOW[how](columns[column][here], value)


def _narrow(d: Draft, table: str, column: str, value: float) -> None:
    columns = getattr(d, table)
    columns[column] = np.clip(columns[column] * value, -3e38, 3e38).astype(np.float32)


def _noisy(d: Draft, value: float) -> None:
    d.state["noise_scale"] = np.full_like(d.state["factor"], value)
    d.manifest["defenses"] = [{"name": "objective-noise", "noise": "fresh"}]


def _of_tables() -> Iterator[Extreme]:
    for table, column in (("state", "factor"), ("messages", "gradient")):
        for value, rows, how in product(NUMBERS, ROWS, HOW):
            change = partial(_put, table=table, column=column, value=value, rows=rows, how=how)
            yield Extreme(f"{column} {how} {value:g} {rows}", change)
        for value in (0.0, 1e-45, 1e-38, 1e-20, 1.0, 1e20, 3e38):
            yield Extreme(
                f"{column} float32 times {value:g}", partial(_narrow, table=table, column=column, value=value)
            )
    for value in NUMBERS:
        yield Extreme(f"noise_scale = {value:g}", partial(_noisy, value=value))


def _constant(d: Draft, protocol: str, name: str, value: float | None) -> None:
    _as(d, protocol)
    d.manifest["hyperparameters"][name] = value
    if value is None:
        del d.manifest["hyperparameters"][name]


def _nothing(d: Draft, protocol: str) -> None:
    _as(d, protocol)
    d.manifest["hyperparameters"] = {}


def _equal(d: Draft, protocol: str) -> None:
    _as(d, protocol)
    for columns, name in ((d.state, "factor"), (d.messages, "gradient")):
        first = columns["round"] == 0
        columns[name][~first] = columns[name][first]


def _adam(d: Draft, name: str, value: float, features: Any) -> None:
    d.manifest["item_features"] = features
    d.manifest["hyperparameters"] |= {"adam_epsilon": 1e-8, "server_learning_rate": 100.0, name: value}


def _upload(d: Draft, key: str, value: Any) -> None:
    d.manifest["upload"][key] = value


def _of_constants() -> Iterator[Extreme]:
    for protocol in ("fedmvmf", "fedmf", "mf"):
        own = protocol == "fedmvmf"
        for name, value in product(CONSTANTS, (*NUMBERS, None)):
            said = f"{protocol} {name} = {value:g}" if value is not None else f"{protocol} without {name}"
            yield Extreme(said, partial(_constant, protocol=protocol, name=name, value=value), own)
        for said, change in (("without constants", _nothing), ("as it is", _as), ("equal rounds", _equal)):
            yield Extreme(f"{protocol} {said}", partial(change, protocol=protocol), own)
    for features in ([[0]] * N_ITEMS, [[number % 3] for number in range(N_ITEMS)]):
        for name, value in product(("lambda_factors", "adam_epsilon", "server_learning_rate"), NUMBERS):
            change = partial(_adam, name=name, value=value, features=features)
            yield Extreme(f"{len(set(map(tuple, features)))} features, {name} = {value:g}", change)
    for key, value in (*product(("scale", "regularization"), NUMBERS), ("zeros_if_unrated", True)):
        yield Extreme(f"upload {key} = {value:g}", partial(_upload, key=key, value=value))


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


def _chosen(d: Draft, which: Callable[[dict[str, Any]], np.ndarray], zero: bool) -> None:
    d.keep("messages", which(d.messages))
    if zero:
        d.messages["gradient"][:] = 0


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
            yield Extreme(f"{name}{' of zeros' * zero}", partial(_chosen, which=which, zero=zero))

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
    for value, where in product(NUMBERS, ("decrypted", "of the item server")):
        change = partial(_add_sums, value=value, decrypted=where == "decrypted")
        yield Extreme(f"sums times {value:g} {where}", change)


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
