"""What is done to a recording of version 2 to damage it, each at random."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.contract.hostile_values import CONTRADICTIONS, JSON, NUMBERS, WHOLE
from tests.contract.version_2 import FACTORS, read_table, with_column, write_table

TABLES = ("state", "messages", "deliveries")
FILES = ("manifest.json", *(f"{name}.arrow" for name in TABLES))


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
    table = read_table(file)
    name = _some(rng, [name for name in table.column_names if name != "kind"])
    rows = rng.permutation(len(table))[: int(_some(rng, [1, 1, 2, len(table)]))]
    values = table[name].to_pylist()
    vector = pa.types.is_fixed_size_list(table.schema.field(name).type)
    value = _some(rng, [None, *(NUMBERS if vector or name == "weight" else WHOLE)])
    for row in rows:
        values[row] = value if not vector or value is None else _some(rng, [[value] * FACTORS, [1.0, value]])
    kind = pa.list_(pa.float64(), FACTORS) if vector else pa.float64() if name == "weight" else pa.int64()
    write_table(file, with_column(table, name, pa.array(values, kind)))


def _kind(path: Path, rng: np.random.Generator) -> None:
    """Rows of another kind, or of none."""
    file = _some(rng, [path / "state.arrow", path / "messages.arrow"])
    table = read_table(file)
    words = table["kind"].cast(pa.string()).to_pylist()
    new = _some(rng, ["item", "attribute", "item-sum", "attribute-sum", "counts", "x", "", None])
    for row in rng.permutation(len(table))[: int(_some(rng, [1, 3, len(table)]))]:
        words[row] = new
    column = pa.array(words, pa.string())
    write_table(
        file, with_column(table, "kind", column if rng.random() < 0.3 else column.dictionary_encode())
    )


def _rows(path: Path, rng: np.random.Generator) -> None:
    """Rows that are missing, repeated, in another order, in many batches or none."""
    file = _table(path, rng)
    table = read_table(file)
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
    write_table(file, table.take(kept), int(_some(rng, [1, 3, 1 << 20])), _some(rng, [None, "zstd", "lz4"]))
    if rng.random() < 0.1:
        with pa.ipc.new_file(file, table.schema):
            pass


def _column(path: Path, rng: np.random.Generator) -> None:
    """A column that is missing, twice there, or of another type."""
    file = _table(path, rng)
    table = read_table(file)
    name = _some(rng, table.column_names)
    column = table[name]
    vector = pa.types.is_fixed_size_list(column.type)
    n = len(table)
    types: list[Any] = [pa.int64(), pa.int8(), pa.uint64(), pa.float64(), pa.string(), pa.bool_()]
    changed: list[Any] = [pa.nulls(n, kind) for kind in types]
    if vector:
        content = column.to_pylist()
        lists = pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float32(), FACTORS)
        changed += [pa.array(content, kind) for kind in lists]
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
    new = [with_column(table, name, one) for one in changed]
    new += [table.drop_columns(name), table.append_column(name, column), table.append_column("x", column)]
    write_table(file, _some(rng, new))


def _extra(path: Path, rng: np.random.Generator) -> None:
    """Optional columns that are there unasked: sequence, references, holders, noise, ciphertexts."""
    name, where, make_column = _some(rng, EXTRA)
    table = read_table(path / f"{where}.arrow")
    if name in table.column_names:
        table = table.drop_columns(name)
    column = make_column(table, rng)
    if name == "ciphertext" and rng.random() < 0.7:  # in place of the numbers
        vectors = "factor" if where == "state" else "gradient"
        table = with_column(table, vectors, pa.nulls(len(table), table.schema.field(vectors).type))
    write_table(path / f"{where}.arrow", table.append_column(name, column))


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
        table = read_table(path / "messages.arrow")
        hidden = [None if rng.random() < 0.8 else -1 for _ in range(len(table))]
        write_table(path / "messages.arrow", with_column(table, "receiver", pa.array(hidden, pa.int32())))
    write_table(path / "deliveries.arrow", pa.table(columns))


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
