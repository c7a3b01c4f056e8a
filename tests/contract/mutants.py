"""Recordings of version 2, damaged: bytes, rows, columns, whole tables, manifests.

Whatever a mutant is, opening it ends in ``InputError``, or every attack answers, finitely, or abstains with
a reason; nothing raises, and nothing goes on without end. A mutant is named by its recording, what is done
and a number, from which it is made again.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from victims.transcript.recorder import Recorder

N_ITEMS, FACTORS, LEVELS = 6, 2, [1, 2, 3]
CLIENTS = ("a", "b", "c", "d")
SECONDS = 120  # for one call; the slowest compile for a few
RULE = {
    "rule": "sgd",
    "order": "batch",
    "local_steps": 1,
    "batch_size": "all",
    "reduction": "sum",
    "upload": "gradient",
    "loss": "squared",
    "link": "identity",
    "clip": "none",
    "moves_items": False,
    "start": "kept",
}
CONSTANTS = {"lambda_factors": 0.1, "client_learning_rate": 0.05, "upload_scale": -2.0}
TABLES = ("state", "messages", "deliveries")
FILES = ("manifest.json", *(f"{name}.arrow" for name in TABLES))

WHOLE = (-(2**63), -(2**31), -(2**31) + 1, -3, -2, -1, 0, 1, 3, 4, 5, 6, 100, 2**31 - 1, 2**31, 2**62)
NUMBERS = (
    *(float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 5e-324, 1e-31, 1e-8, 1.0),
    *(1e8, 1e30, 1.1e30, 1e150, 1.7e308, -1e30),
)
JSON = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 10**6, 2**31 - 1, 2**31, 10**30, -(10**30), 0.5, 1e300, -1e-300),
    *(float("nan"), float("inf"), "", "x", "sgd", "weights", "all", "none", "kept", "x" * 5000, "\x00\ud800"),
    *(
        [],
        {},
        [[]],
        [0],
        [1, 2],
        [2, 1],
        [1, 1],
        [-1],
        [None],
        ["x"],
        [1e-7, 1],
        [1e30],
        list(range(1, 1002)),
    ),
    *(
        {"x": 1},
        {"server": -1},
        {"server": 0},
        {"item": {"of": "item"}},
        {"item": {"of": "item", "role": "sum"}},
    ),
    *([{}], [{"name": "laplace", "scale": 1e30}], [{"name": "x"}] * 2000, [[0, 1], [1, 2]]),
)


def recordings() -> dict[str, Callable[[Path], None]]:
    """What is damaged, by name: each shows something that version 2 alone can tell."""
    return {
        "declared": lambda path: _record(path, rule=RULE, constants=CONSTANTS),
        "undeclared": _record,
        "anonymous": lambda path: _record(path, anonymous=True),
        "references": lambda path: _record(path, rule=RULE, constants=CONSTANTS, references=True),
        "held": lambda path: _record(path, held=True),
        "graph": lambda path: _record(path, rule=RULE, constants=CONSTANTS, graph=True),
        "weights": lambda path: _record(path, rule=RULE | {"upload": "weights"}, constants=CONSTANTS, weights=True),
        "attributes": lambda path: _record(path, attributes=True, dtype=np.float32),
        "kinds": _with_other_kinds,
    }  # fmt: skip


def _record(
    path: Path,
    *,
    rule: dict[str, Any] | None = None,
    constants: dict[str, Any] | None = None,
    anonymous: bool = False,
    references: bool = False,
    held: bool = False,
    graph: bool = False,
    weights: bool = False,
    attributes: bool = False,
    dtype: type = np.float64,
) -> None:
    """Gradient steps of a few clients, two rounds."""
    rng = np.random.default_rng(0)
    factors, own = rng.normal(size=(N_ITEMS, FACTORS)), rng.normal(size=(len(CLIENTS), FACTORS))
    groups = [[0, 1], [2]] if attributes else []
    with Recorder(
        path, rating_levels=LEVELS, rule=rule, constants=constants, attribute_groups=groups
    ) as recorder:
        if graph:
            for sender, receiver in ((0, 1), (1, 0), (2, 1), (2, 3), (3, 2)):
                recorder.edge(CLIENTS[sender], CLIENTS[receiver], 0.5, 0, 1)
        for round_ in (0, 1):
            recorder.broadcast(round_, factors.astype(dtype))
            if attributes:
                recorder.broadcast(round_, rng.normal(size=(3, FACTORS)).astype(dtype), kind="attribute")
            for number, client in enumerate(CLIENTS):
                items = rng.permutation(N_ITEMS)[: number + 2]
                error = rng.choice(LEVELS, items.size) - factors[items] @ own[number]
                rows = (-2 * error[:, None] * own[number]).astype(dtype)
                if held:
                    recorder.broadcast(round_, factors + 0.1 * number, to=client)
                to = recorder.NEIGHBOURS if graph else recorder.SERVER
                if weights:
                    copy = factors.copy()
                    copy[items] -= 0.05 * rows
                    recorder.upload(round_, client, copy)
                elif references:
                    recorder.upload(round_, client, rows, items, references=factors[items] + 0.01)
                else:
                    sender = None if anonymous and number else client
                    recorder.upload(round_, sender, rows, items, to="b" if sender is None else to)
                if attributes:
                    recorder.upload(round_, client, rows[:1], [number % 3], kind="attribute")
            factors += 0.02 * rng.normal(size=factors.shape)


def _with_other_kinds(path: Path) -> None:
    """Rows of a declared kind that no attack reads, sums, an item server."""
    _record(path)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["kinds"] |= {"counts": {"of": "item", "role": "other", "width": 1}}
    manifest["parties"] |= {"item_server": {"id": -2, "role": "item_server"}, "helper": -3}
    (path / "manifest.json").write_text(json.dumps(manifest))
    table = _read(path / "messages.arrow")
    more = table.slice(0, 6)
    for name, values in (
        ("kind", ["counts", "counts", "item-sum", "item-sum", "item", "item"]),
        ("sender", [0, 1, 0, 0, -2, -2]),
        ("receiver", [-1] * 6),
        ("index", [0, 1, 0, 1, 0, 1]),
        ("sequence", [90, 91, 92, 93, 94, 95]),
    ):
        more = _with(more, name, pa.array(values, pa.string() if name == "kind" else pa.int32()))
    table = _with(table, "kind", table["kind"].cast(pa.string()))
    _write(path / "messages.arrow", pa.concat_tables([table, more]))


def mutants(number: int) -> Iterator[tuple[str, Callable[[Path, np.random.Generator], None]]]:
    """Each recording with each kind of damage, ``number`` times; names do not change with ``number``."""
    for recording in recordings():
        for what in DAMAGES:
            for count in range(number):
                yield f"{recording}: {what} {count}", DAMAGES[what]


def make(name: str, folder: Path) -> Path:
    """The mutant of a name, as a directory below ``folder``; intact recordings are made there once."""
    recording, _, rest = name.partition(": ")
    what, _, count = rest.rpartition(" ")
    intact = folder / f"intact-{recording}"
    if not intact.exists():
        recordings()[recording](intact)
    path = folder / "mutant"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(intact, path)
    DAMAGES[what](path, np.random.default_rng([int(count), *name.encode()]))
    return path


@contextmanager
def limited(seconds: int = SECONDS) -> Iterator[None]:
    """What takes longer raises ``TimeoutError``."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _read(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def _write(path: Path, table: pa.Table, rows: int = 1 << 20, compression: str | None = None) -> None:
    target = path.with_suffix(".new")
    with pa.ipc.new_file(
        target, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)
    ) as file:
        file.write_table(table, max_chunksize=rows)
    target.replace(path)  # the old one may be mapped


def _with(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


def _some(rng: np.random.Generator, values: Any) -> Any:
    return list(values)[rng.integers(len(values))]


def _file(path: Path, rng: np.random.Generator) -> Path:
    return _some(rng, [path / name for name in FILES if (path / name).exists()])


def _table(path: Path, rng: np.random.Generator) -> Path:
    return _some(rng, [path / f"{name}.arrow" for name in TABLES if (path / f"{name}.arrow").exists()])


def _bits(path: Path, rng: np.random.Generator) -> None:
    """Some bits flipped, anywhere in a file."""
    file = _file(path, rng)
    content = bytearray(file.read_bytes())
    for _ in range(int(_some(rng, [1, 1, 1, 3, 30]))):
        content[rng.integers(len(content))] ^= 1 << rng.integers(8)
    file.write_bytes(content)


def _cut(path: Path, rng: np.random.Generator) -> None:
    """A file that ends early, or late, or has a hole."""
    file = _file(path, rng)
    content = file.read_bytes()
    low, high = sorted(rng.integers(len(content) + 1, size=2).tolist())
    file.write_bytes(
        _some(
            rng,
            [
                content[:low],
                content[:low] + content[high:],
                content[:low] + rng.bytes(50) + content[low:],
                content + rng.bytes(50),
                content[:low] + bytes(high - low) + content[high:],
                b"",
            ],
        )
    )


def _swapped(path: Path, rng: np.random.Generator) -> None:
    """A file that is missing, is another one, or is a directory."""
    file, other = _file(path, rng), _file(path, rng)
    content = other.read_bytes()
    file.unlink()
    how = rng.integers(3)
    if how == 0:
        file.mkdir()
    elif how == 1:
        file.write_bytes(content)


def _cell(path: Path, rng: np.random.Generator) -> None:
    """Some numbers of a column changed."""
    file = _table(path, rng)
    table = _read(file)
    name = _some(rng, [name for name in table.column_names if name != "kind"])
    rows = rng.permutation(len(table))[: int(_some(rng, [1, 1, 2, len(table)]))]
    values = table[name].to_pylist()
    vector = pa.types.is_fixed_size_list(table.schema.field(name).type)
    value = _some(rng, [None, *(NUMBERS if vector or name == "weight" else WHOLE)])
    for row in rows:
        values[row] = value if not vector or value is None else _some(rng, [[value] * FACTORS, [1.0, value]])
    kind = pa.list_(pa.float64(), FACTORS) if vector else pa.float64() if name == "weight" else pa.int64()
    _write(file, _with(table, name, pa.array(values, kind)))


def _kind(path: Path, rng: np.random.Generator) -> None:
    """Rows of another kind, or of none."""
    file = _some(rng, [path / "state.arrow", path / "messages.arrow"])
    table = _read(file)
    words = table["kind"].cast(pa.string()).to_pylist()
    new = _some(rng, ["item", "attribute", "item-sum", "attribute-sum", "counts", "x", "", None])
    for row in rng.permutation(len(table))[: int(_some(rng, [1, 3, len(table)]))]:
        words[row] = new
    column = pa.array(words, pa.string())
    _write(file, _with(table, "kind", column if rng.random() < 0.3 else column.dictionary_encode()))


def _rows(path: Path, rng: np.random.Generator) -> None:
    """Rows that are missing, repeated, in another order, in many batches or none."""
    file = _table(path, rng)
    table = _read(file)
    order = rng.permutation(len(table))
    kept = _some(
        rng,
        [
            order,
            order[:1],
            order[:0],
            order[: len(table) // 2],
            np.append(order, order[:2]),
            np.tile(order, 2),
        ],
    )
    _write(file, table.take(kept), int(_some(rng, [1, 3, 1 << 20])), _some(rng, [None, "zstd", "lz4"]))
    if rng.random() < 0.1:
        with pa.ipc.new_file(file, table.schema):
            pass


def _column(path: Path, rng: np.random.Generator) -> None:
    """A column that is missing, twice there, or of another type."""
    file = _table(path, rng)
    table = _read(file)
    name = _some(rng, table.column_names)
    column = table[name]
    vector = pa.types.is_fixed_size_list(column.type)
    n = len(table)
    types: list[Any] = [pa.int64(), pa.int8(), pa.uint64(), pa.float64(), pa.string(), pa.bool_()]
    changed: list[Any] = [pa.nulls(n, kind) for kind in types]
    if vector:
        content = column.to_pylist()
        for kind in (pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float32(), FACTORS)):
            changed.append(pa.array(content, kind))
        changed.append(pa.array([row[:1] for row in content], pa.list_(pa.float64(), 1)))
        changed.append(pa.array([[*row, 1.0] for row in content], pa.list_(pa.float64())))
        changed.append(pa.array([[1.0, None]] * n, pa.list_(pa.float64(), FACTORS)))
        changed.append(pa.nulls(n, column.type))
    elif name != "kind":
        for kind in types:
            try:
                changed.append(column.cast(kind))
            except pa.ArrowException:
                continue
    new = [_with(table, name, one) for one in changed]
    new += [table.drop_columns(name), table.append_column(name, column), table.append_column("x", column)]
    _write(file, _some(rng, new))


def _extra(path: Path, rng: np.random.Generator) -> None:
    """Optional columns that are there unasked: sequence, references, holders, noise, ciphertexts."""
    name, where, make_column = _some(rng, EXTRA)
    table = _read(path / f"{where}.arrow")
    if name in table.column_names:
        table = table.drop_columns(name)
    column = make_column(table, rng)
    if name == "ciphertext" and rng.random() < 0.7:  # in place of the numbers
        vectors = "factor" if where == "state" else "gradient"
        table = _with(table, vectors, pa.nulls(len(table), table.schema.field(vectors).type))
    _write(path / f"{where}.arrow", table.append_column(name, column))


def _numbers(kind: pa.DataType, values: Any) -> Callable[[pa.Table, np.random.Generator], pa.Array]:
    return lambda table, rng: pa.array([_some(rng, values) for _ in range(len(table))], kind)


def _sequence(table: pa.Table, rng: np.random.Generator) -> pa.Array:
    order = rng.permutation(len(table))
    return pa.array(_some(rng, [order, order // 2, order * 0, order * 10**6, order - 1]), pa.int64())


def _vectors(table: pa.Table, rng: np.random.Generator) -> pa.Array:
    rows = np.where(rng.random((len(table), FACTORS)) < 0.05, _some(rng, NUMBERS), rng.normal())
    flat = pa.array(rows.reshape(-1))
    hidden = rng.random(len(table)) < _some(rng, [0, 0, 0.1, 1])
    return pa.FixedSizeListArray.from_arrays(flat, FACTORS, mask=pa.array(hidden))


EXTRA = (
    ("sequence", "messages", _sequence),
    ("reference", "messages", _vectors),
    ("holder", "state", _numbers(pa.int64(), [None, None, 0, 1, 3])),
    ("holder", "state", _numbers(pa.int32(), [0])),
    ("holder", "state", _numbers(pa.int32(), [None, -1, -2, 4])),
    ("noise_scale", "state", _vectors),
    ("ciphertext", "state", _numbers(pa.large_binary(), [b"x", b""])),
    ("ciphertext", "messages", _numbers(pa.large_binary(), [b"x"])),
    ("ciphertext", "messages", _numbers(pa.binary(), [b"x", None])),
    ("exponent", "messages", _numbers(pa.int64(), [0, -(2**31) + 1, 5])),
)  # fmt: skip


def _graph(path: Path, rng: np.random.Generator) -> None:
    """Edges at random: unknown parties, rounds that end before they begin, several edges of a pair, none."""
    n = int(_some(rng, [0, 1, 4, 12]))
    clients = _some(rng, [range(4), range(-1, 5), range(-3, 4), [2**31 - 1, 0], [-(2**31) + 1, 0]])
    first = rng.choice(_some(rng, [[0], [0, 1], [0, 2**31 - 1], [-1, 0]]), n)
    last = rng.choice(_some(rng, [[1], [0, 1], [2**31 - 1], [0, 2**40]]), n)
    columns = {
        "sender": pa.array(rng.choice(clients, n), pa.int64()),
        "receiver": pa.array(rng.choice(clients, n), pa.int64()),
        "weight": pa.array(rng.choice(_some(rng, [[1.0], [0.5, 0], [-1e30, 1], NUMBERS]), n), pa.float64()),
        "first_round": pa.array(first, pa.int64()),
        "last_round": pa.array(last, pa.int64()),
    }
    if rng.random() < 0.5:  # rows go along it
        table = _read(path / "messages.arrow")
        hidden = [None if rng.random() < 0.8 else -1 for _ in range(len(table))]
        _write(path / "messages.arrow", _with(table, "receiver", pa.array(hidden, pa.int32())))
    _write(path / "deliveries.arrow", pa.table(columns))


def _manifest(path: Path, rng: np.random.Generator) -> None:
    """A value of the manifest, at any depth, is another one, is missing, or has another name."""
    file = path / "manifest.json"
    content = json.loads(file.read_text())
    where, key = _some(rng, list(_places(content)))
    how = rng.integers(6)
    if how == 0 and isinstance(where, dict):
        where[_some(rng, [f"{key}s", str(key).upper(), str(key)[:-1], "x", ""])] = where.pop(key)
    elif how == 1 and isinstance(where, dict):
        del where[key]
    else:
        where[key] = _some(rng, JSON)
    file.write_text(json.dumps(content))


def _of_manifest(path: Path, rng: np.random.Generator) -> None:
    """A key of the manifest that the recording has not, or whose value contradicts the rows."""
    file = path / "manifest.json"
    content = json.loads(file.read_text())
    key, value = _some(rng, CONTRADICTIONS)
    content[key] = (content.get(key) or {}) | value if isinstance(value, dict) else value
    file.write_text(json.dumps(content))


CONTRADICTIONS: tuple[tuple[str, Any], ...] = (
    *(("rule", {key: value}) for key in RULE for value in ("x", None, 2, 10**30, [1, 2], True)),
    *(("rule", {"clip": value}) for value in ([2, 1], [1, 2, 3], ["x", 1], [0, 1e300], "all")),
    *(("rule", {key: value}) for key, value in (("rows", "all"), ("rows", "rated"), ("momentum", 0.9))),
    *(("rule", {"upload": value}) for value in ("weights", "delta")),
    *(("rule", {"reduction": "mean", "upload": value}) for value in ("weights", "gradient")),
    *(("rule", {"rule": value}) for value in ("semi-als", "x", "")),
    *(("constants", {name: value}) for name in (*CONSTANTS, "alpha", "upload_regularization") for value in JSON[:17]),
    *(("parties", {name: value}) for name in ("server", "peer") for value in (-1, -2, 0, -(2**31), {"id": -9})),
    *(("parties", {"p": value}) for value in ({"id": -4, "role": "decrypter"}, {"id": -4, "role": "x"}, {"id": 1})),
    *(("parties", {f"p{number}": -number - 2 for number in range(n)}) for n in (1, 3000)),
    *(("kinds", {"item": {"of": "attribute"}}), ("kinds", {"item": {"of": "item", "role": "other"}})),
    *(("kinds", {"x": {"of": "item"}}), ("kinds", {"item": {"of": "item", "width": 3}}), ("kinds", {"x": {}})),
    *(("kinds", {f"k{number}": {"of": "item"} for number in range(101)}),),
    *(("anonymous", value) for value in (True, 1)),
    *(("weighting", value) for value in ("include-unrated", "x")),
    *(("n_users", value) for value in (1, 3, 5, 2**24, 2**24 + 10**6, 2**31 - 1, 10**30)),
    *(("n_items", value) for value in (1, 5, 7, 2**24, 2**24 + 10**6, 2**31 - 1)),
    *(("n_attributes", value) for value in (0, 2, 3, 100, 2**16, 2**16 + 10**5, 2**31 - 1)),
    *(("factors", value) for value in (1, 3, 65_536, 65_537)),
    *(("rounds", value) for value in ([0], [1, 0], [0, 0, 1], [0, 1, 2**31 - 1], list(range(300_000)), [0, 2])),
    *(("rating_levels", value) for value in ([1], [0.5, 5], [3, 2], [1, 1 + 1e-9], [-1, 1], list(range(1, 900)))),
    *(("attribute_groups", value) for value in ([[0]], [[], []], [[0, 0]], [[2, 1, 0]])),
    *(("item_features", value) for value in ([[]] * N_ITEMS, [[0]] * N_ITEMS, [[2**31 - 1]] * N_ITEMS, [[0]])),
    *(("adversary", value) for value in ("server", "client:1", "client:99", "nobody")),
    *(("defenses", [{"name": name, "scale": 0.1, "noise": "fresh"}]) for name in ("laplace", "gaussian", "stretching")),
    *(("version", value) for value in (1, 3, 2.0, "2")),
)  # fmt: skip


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Every key and position of nested mappings and lists."""
    entries = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in list(entries):
        yield content, key
        if isinstance(value, dict | list):
            yield from _places(value)


DAMAGES: dict[str, Callable[[Path, np.random.Generator], None]] = {
    "bits": _bits,
    "cut": _cut,
    "swapped": _swapped,
    "cell": _cell,
    "kind": _kind,
    "rows": _rows,
    "column": _column,
    "extra": _extra,
    "graph": _graph,
    "manifest": _manifest,
    "contradiction": _of_manifest,
}
