"""A second FedMVMF, written for clarity: one client at a time, straight from the corrected equations.

It shares no code with ``victims`` and writes its transcripts with plain pyarrow, so that the victim, the
reader and the attacks are tested against something that none of them wrote.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCENARIOS = [
    (update, weighting)
    for update in ("semi-als", "sgd")
    for weighting in ("observed-only", "include-unrated")
]


@dataclass
class Reference:
    """An outside recording: ratings (0 = unrated), one-hot attributes and the protocol's constants."""

    update: str = "semi-als"
    weighting: str = "observed-only"
    n_users: int = 12
    n_items: int = 30
    factors: int = 3
    groups: tuple[tuple[int, ...], ...] = ((0, 1, 2), (3, 4))
    levels: tuple[float, ...] = (1, 2, 3, 4, 5)
    rounds: tuple[int, ...] = (1, 2)
    lambda_attributes: float = 1.3
    lambda_factors: float = 4.0
    alpha: float = 0.15
    server_learning_rate: float = 0.02
    client_learning_rate: float = 0.004
    dtype: type = np.float64
    scale: float = 1.0
    regularization: float = 0.0
    seed: int = 5
    single_raters: int = 2
    density: float = 0.3
    ratings: np.ndarray = field(init=False)
    attributes: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        shape = self.n_users, self.n_items
        rated = rng.random(shape) < self.density
        rated[:, 0] |= ~rated.any(axis=1)
        for user in range(self.single_raters):
            rated[user] = False
            rated[user, rng.integers(self.n_items)] = True
        self.ratings = np.where(rated, rng.choice(self.levels, shape), 0.0)
        n_attributes = sum(len(group) for group in self.groups)
        self.attributes = np.zeros((self.n_users, n_attributes))
        for group in self.groups:
            for user in range(self.n_users):
                self.attributes[user, rng.choice(group)] = 1

    def run(self) -> tuple[dict, dict]:  # noqa: PLR0912 - the paper's loops, one below the other
        """State (round, kind, index) -> factor and messages (round, client, kind, index) -> row."""
        rng = np.random.default_rng(self.seed + 1)
        k = self.factors
        n_attributes = self.attributes.shape[1]
        q = rng.normal(0, 0.3, (self.n_items, k))
        u = rng.normal(0, 0.3, (n_attributes, k))
        p = rng.normal(0, 0.3, (self.n_users, k))
        state, messages = {}, {}
        for t in range(max(self.rounds) + 1):
            if self.dtype == np.float32:  # what is broadcast is what clients compute with
                q, u = q.astype(np.float32).astype(float), u.astype(np.float32).astype(float)
            sum_q, sum_u = np.zeros_like(q), np.zeros_like(u)
            for i in range(self.n_users):
                r, x = self.ratings[i], self.attributes[i]
                unrated = self.alpha if self.weighting == "include-unrated" else 0.0
                c = np.where(r > 0, 1.0, unrated)
                if self.update == "semi-als":
                    left = r * c @ q + self.lambda_attributes * x @ u
                    square = q.T @ np.diag(c) @ q + self.lambda_attributes * u.T @ u
                    p[i] = left @ np.linalg.inv(square + self.lambda_factors * np.eye(k))
                step = -2 * self.lambda_factors * p[i]
                for j in range(self.n_items):
                    if c[j] > 0:
                        f = c[j] * (r[j] - p[i] @ q[j]) * p[i]
                        sum_q[j] += f
                        step = step + 2 * c[j] * (r[j] - p[i] @ q[j]) * q[j]
                        if t in self.rounds:
                            messages[t, i, "item", j] = self.scale * f + self.regularization * q[j]
                for a in range(n_attributes):
                    f = (x[a] - p[i] @ u[a]) * p[i]
                    sum_u[a] += f
                    step = step + 2 * self.lambda_attributes * (x[a] - p[i] @ u[a]) * u[a]
                    if t in self.rounds:
                        messages[t, i, "attribute", a] = self.scale * f + self.regularization * u[a]
                if self.update == "sgd":
                    p[i] = p[i] + self.client_learning_rate * step
            if t in self.rounds:
                for j in range(self.n_items):
                    state[t, "item", j] = q[j].copy()
                for a in range(n_attributes):
                    state[t, "attribute", a] = u[a].copy()
            rate = self.server_learning_rate
            q = q + rate * (2 * sum_q - 2 * self.lambda_factors * q)
            u = u + rate * (2 * self.lambda_attributes * sum_u - 2 * self.lambda_factors * u)
        return state, messages

    def manifest(self) -> dict:
        constants = {
            "lambda_attributes": self.lambda_attributes,
            "lambda_factors": self.lambda_factors,
            "alpha": self.alpha,
            "server_learning_rate": self.server_learning_rate,
        }
        if self.update == "sgd":
            constants["client_learning_rate"] = self.client_learning_rate
        return {
            "format": "factorleak-transcript",
            "version": 1,
            "protocol": "fedmvmf",
            "update": self.update,
            "weighting": self.weighting,
            "n_users": self.n_users,
            "n_items": self.n_items,
            "n_attributes": self.attributes.shape[1],
            "factors": self.factors,
            "rounds": list(self.rounds),
            "hyperparameters": constants,
            "upload": {"scale": self.scale, "regularization": self.regularization},
            "rating_levels": list(self.levels),
            "attribute_groups": [list(group) for group in self.groups],
            "parties": {"server": -1},
            "adversary": "server",
            "defenses": [],
            "recorded_by": "the tests' reference",
        }

    def tables(self, order: np.random.Generator | None = None) -> tuple[pa.Table, pa.Table]:
        """state and messages as tables, rows shuffled if a generator is given."""
        state, messages = self.run()
        state_keys, message_keys = list(state), list(messages)
        if order is not None:
            state_keys = [state_keys[k] for k in order.permutation(len(state_keys))]
            message_keys = [message_keys[k] for k in order.permutation(len(message_keys))]
        return (
            table(
                round=[key[0] for key in state_keys],
                kind=[key[1] for key in state_keys],
                index=[key[2] for key in state_keys],
                factor=np.array([state[key] for key in state_keys], self.dtype),
            ),
            table(
                round=[key[0] for key in message_keys],
                sender=[key[1] for key in message_keys],
                receiver=[-1] * len(message_keys),
                kind=[key[2] for key in message_keys],
                index=[key[3] for key in message_keys],
                gradient=np.array([messages[key] for key in message_keys], self.dtype),
            ),
        )

    def write(self, path: Path, *, order: int | None = None, form: str = "arrow") -> Path:
        """Write transcript and truth; ``form`` is arrow, lz4, parquet or chunked."""
        generator = None if order is None else np.random.default_rng(order)
        path.mkdir(parents=True)
        (path / "manifest.json").write_text(json.dumps(self.manifest()))
        for name, content in zip(("state", "messages"), self.tables(generator), strict=True):
            write_table(path / name, content, form)
        self.write_truth(path)
        return path

    def write_truth(self, path: Path) -> None:
        user, item = np.nonzero(self.ratings)
        n_attributes = self.attributes.shape[1]
        people = np.repeat(np.arange(self.n_users), n_attributes)
        columns = np.tile(np.arange(n_attributes), self.n_users)
        truth = pa.table(
            {
                "user": pa.array(np.concatenate([user, people]), pa.int32()),
                "kind": pa.array(["item"] * user.size + ["attribute"] * people.size).dictionary_encode(),
                "index": pa.array(np.concatenate([item, columns]), pa.int32()),
                "value": np.concatenate([self.ratings[user, item], self.attributes.ravel()]),
            }
        )
        write_table(path.with_name(f"{path.name}.truth"), truth, "arrow")


def table(**columns: object) -> pa.Table:
    """Columns in the types of the format; arrays of vectors become fixed-size lists."""
    out = {}
    for name, values in columns.items():
        if name == "kind":
            out[name] = pa.array(values, pa.string()).dictionary_encode()
        elif isinstance(values, np.ndarray):
            flat = pa.array(values.reshape(-1))
            out[name] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
        else:
            out[name] = pa.array(values, pa.int32())
    return pa.table(out)


def write_table(stem: Path, content: pa.Table, form: str) -> Path:
    """Write one table in one of the accepted forms."""
    if form == "parquet":
        path = stem.with_name(stem.name + ".parquet")
        pq.write_table(content, path)
        return path
    path = stem.with_name(stem.name + ".arrow")
    options = pa.ipc.IpcWriteOptions(compression="lz4" if form == "lz4" else None)
    with pa.ipc.new_file(path, content.schema, options=options) as writer:
        writer.write_table(content, max_chunksize=7 if form == "chunked" else None)
    return path
