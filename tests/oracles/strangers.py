"""Recordings of programs that a stranger would write, without any code of the project but the format's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa


def item_biases(path: Path, *, noise: float = 0.0, declared: bool = False, seed: int = 0) -> None:
    """Plain federated matrix factorisation with item biases that the server broadcasts: r = b_j + p.q_j.

    Version 1 of the format cannot declare the biases. ``noise`` is the scale of Laplace noise in the uploads,
    which the manifest declares or not.
    """
    n_users, n_items = 30, 40
    rng = np.random.default_rng(seed)
    factors, rate, ridge, rounds = 4, 0.01, 0.1, (3, 4)
    ratings = np.where(rng.random((n_users, n_items)) < 0.35, rng.integers(1, 6, (n_users, n_items)), 0)
    q, p = rng.normal(0, 0.3, (n_items, factors)), rng.normal(0, 0.3, (n_users, factors))
    bias = rng.normal(3, 0.5, n_items)
    state: list[tuple[int, int, np.ndarray]] = []
    sent: list[tuple[int, int, int, np.ndarray]] = []
    for t in range(max(rounds) + 1):
        total, total_bias = np.zeros_like(q), np.zeros_like(bias)
        if t in rounds:
            state += [(t, j, row.copy()) for j, row in enumerate(q)]
        for i in range(n_users):
            (items,) = np.nonzero(ratings[i])
            error = ratings[i, items] - bias[items] - q[items] @ p[i]
            rows = error[:, None] * p[i]
            total[items] += rows
            total_bias[items] += error
            if t in rounds:
                noisy = rows + rng.laplace(0, noise, rows.shape) if noise else rows
                sent += [(t, i, j, row) for j, row in zip(items, noisy, strict=True)]
            p[i] += rate * 2 * (error @ q[items] - ridge * p[i])
        q += 2 * rate * (total - ridge * q)
        bias += rate * total_bias
    path.mkdir()
    manifest = {
        "format": "factorleak-transcript",
        "version": 1,
        "protocol": "federated MF with item biases",
        "update": "sgd",
        "weighting": "observed-only",
        "n_users": n_users,
        "n_items": n_items,
        "n_attributes": 0,
        "factors": factors,
        "rounds": list(rounds),
        "hyperparameters": {"client_learning_rate": rate, "lambda_factors": ridge},
        "rating_levels": [1, 2, 3, 4, 5],
        "recorded_by": "another program",
    }
    if declared:
        manifest["defenses"] = [{"name": "laplace", "scale": noise}]
    (path / "manifest.json").write_text(json.dumps(manifest))
    _write(path / "state.arrow", ("round", "index"), [row[:2] for row in state], factor=[r[2] for r in state])
    people = [(t, i, -1, j) for t, i, j, _ in sent]
    gradients = [row[3] for row in sent]
    _write(path / "messages.arrow", ("round", "sender", "receiver", "index"), people, gradient=gradients)
    truth = list(zip(*np.nonzero(ratings), strict=True))
    values = ratings[ratings > 0].astype(float)
    _write(path.with_name(f"{path.name}.truth.arrow"), ("user", "index"), truth, value=values)


def _write(path: Path, names: tuple[str, ...], rows: list, **values: object) -> None:
    """Integer columns, the kind "item", and one column of numbers or vectors."""
    columns = {name: pa.array([row[n] for row in rows], pa.int32()) for n, name in enumerate(names)} | {
        "kind": pa.array(["item"] * len(rows)).dictionary_encode()
    }
    for name, numbers in values.items():
        table = np.asarray(numbers, float)
        flat = pa.array(table.ravel())
        columns[name] = flat if table.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, table.shape[1])
    batch = pa.RecordBatch.from_pydict(columns)
    with pa.ipc.new_file(str(path), batch.schema) as file:
        file.write_batch(batch)
