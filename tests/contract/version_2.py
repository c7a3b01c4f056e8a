"""Small recordings that show what version 2 alone can tell, and their tables as Arrow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from victims.transcript.recorder import Recorder

N_ITEMS, FACTORS, LEVELS = 6, 2, [1, 2, 3]
CLIENTS = ("a", "b", "c", "d")
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
DECLARED: dict[str, Any] = {"rule": RULE, "constants": CONSTANTS}


def recordings() -> dict[str, Callable[[Path], None]]:
    """What is damaged, by name: each shows something that version 2 alone can tell."""
    return {
        "declared": lambda path: _record(path, **DECLARED),
        "undeclared": _record,
        "anonymous": lambda path: _record(path, anonymous=True),
        "references": lambda path: _record(path, **DECLARED, references=True),
        "biases": lambda path: _record(path, biases=True),
        "held": lambda path: _record(path, held=True),
        "graph": lambda path: _record(path, **DECLARED, graph=True),
        "weights": lambda path: _record(path, **DECLARED, weights=True),
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
    biases: bool = False,
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
    rule = {**rule, "upload": "weights"} if rule and weights else rule
    with Recorder(
        path, rating_levels=LEVELS, rule=rule, constants=constants, attribute_groups=groups
    ) as recorder:
        if graph:
            for sender, receiver in ((0, 1), (1, 0), (2, 1), (2, 3), (3, 2)):
                recorder.edge(CLIENTS[sender], CLIENTS[receiver], 0.5, 0, 1)
        for round_ in (0, 1):
            bias = 2.0 + factors[:, 0] if biases else np.zeros(N_ITEMS)
            recorder.broadcast(round_, factors.astype(dtype), biases=bias if biases else None)
            if attributes:
                recorder.broadcast(round_, rng.normal(size=(3, FACTORS)).astype(dtype), kind="attribute")
            for number, client in enumerate(CLIENTS):
                items = rng.permutation(N_ITEMS)[: number + 2]
                error = rng.choice(LEVELS, items.size) - factors[items] @ own[number] - bias[items]
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
    table = read_table(path / "messages.arrow")
    more = table.slice(0, 6)
    for name, values in (
        ("kind", ["counts", "counts", "item-sum", "item-sum", "item", "item"]),
        ("sender", [0, 1, 0, 0, -2, -2]),
        ("receiver", [-1] * 6),
        ("index", [0, 1, 0, 1, 0, 1]),
        ("sequence", [90, 91, 92, 93, 94, 95]),
    ):
        more = with_column(more, name, pa.array(values, pa.string() if name == "kind" else pa.int32()))
    table = with_column(table, "kind", table["kind"].cast(pa.string()))
    write_table(path / "messages.arrow", pa.concat_tables([table, more]))


def read_table(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def write_table(path: Path, table: pa.Table, rows: int = 1 << 20, compression: str | None = None) -> None:
    target = path.with_suffix(".new")
    with pa.ipc.new_file(
        target, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)
    ) as file:
        file.write_table(table, max_chunksize=rows)
    target.replace(path)  # the old one may be mapped


def with_column(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)
