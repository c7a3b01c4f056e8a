"""Recordings of every rule that ``identify`` is asked about, in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.oracles.adaptive_client import AdaptiveClient
from tests.oracles.client_programs import Program
from tests.oracles.paired_client import trained
from tests.oracles.pass_programs import Passer
from victims.transcript.recorder import Recorder

SQUARED = {"loss": "squared", "link": "identity"}
ONE_STEP = {"order": "batch", "batch_size": "all", "local_steps": 1}
SINGLY = {"order": "per-rating", "batch_size": 1, "local_steps": 1}
FOUR = {"order": "batch", "batch_size": 4, "local_steps": 1}
THREE = {"local_steps": 3, "moves_items": True}
SGD, MEAN, SUM = {"rule": "sgd"}, {"reduction": "mean"}, {"reduction": "sum"}
CLIP = {"clip": [-4.0, 4.0]}
KEPT, BIASED = {"start": "kept"}, {"client_biases": True}
WITH_MOMENTUM = {"momentum": 0.9}
BPR = {"loss": "bpr"}
LOGISTIC, SIGMOID = ({"loss": loss, "link": "sigmoid"} for loss in ("logistic", "squared"))

# what is so; what is not among it must not be told
TRUTH: dict[str, dict[str, Any]] = {
    "semi-als": SQUARED | ONE_STEP | SUM | {"rule": "semi-als"},
    "sgd": SQUARED | ONE_STEP | SUM | SGD | KEPT,
    "sgd-mean": SQUARED | ONE_STEP | MEAN | SGD | KEPT,
    "per-rating": SQUARED | SINGLY | SGD,
    "fresh": SQUARED | ONE_STEP | SUM,
    "noise": {},
    "unit-ball": SQUARED | ONE_STEP | SUM | KEPT | {"rule": "projected-sgd"},
    "minibatch": SQUARED | FOUR | SUM | SGD,
    "minibatch-mean": SQUARED | FOUR | MEAN | SGD,
    "own-bias": SQUARED | ONE_STEP | SUM | SGD | KEPT | BIASED,
    "own-bias-per-rating": SQUARED | SINGLY | SGD | BIASED,
    "cross-entropy": LOGISTIC | ONE_STEP | SUM | SGD,
    "cross-entropy-per-rating": LOGISTIC | SINGLY | SGD,
    "sigmoid": SIGMOID | ONE_STEP | SUM | SGD,
    "sigmoid-per-rating": SIGMOID | SINGLY | SGD,
    "clipped-prediction": {"loss": "squared"} | ONE_STEP | SUM | SGD,
    "clipped-error": SQUARED | ONE_STEP | SUM | SGD | KEPT | CLIP,
    "clipped-error-per-rating": SQUARED | SINGLY | SGD | CLIP,
    "three-steps": SQUARED | ONE_STEP | THREE | SUM | SGD,
    "three-steps-mean": SQUARED | ONE_STEP | THREE | MEAN | SGD,
    "three-passes": SQUARED | SINGLY | THREE | SGD,
    "three-passes-by-minibatch": SQUARED | FOUR | THREE | SUM | SGD,
    "three-steps-momentum": SQUARED | ONE_STEP | THREE | SUM | SGD | WITH_MOMENTUM,
    "three-passes-momentum": SQUARED | SINGLY | THREE | SGD | WITH_MOMENTUM,
    "adam": SQUARED | ONE_STEP | THREE | {"rule": "adam"},
    "adamw": SQUARED | ONE_STEP | THREE | {"rule": "adamw"},
    "rmsprop": SQUARED | ONE_STEP | THREE | {"rule": "rmsprop"},
    "adagrad": SQUARED | ONE_STEP | THREE | {"rule": "adagrad"},
    "adam-once": {},  # signs: of whatever divides a gradient by its own size
    "bpr": BPR | ONE_STEP | THREE | SUM | SGD | {"negatives": "all"},
    "bpr-pairs": BPR | ONE_STEP | SUM | SGD | {"negatives": 1},
}
LOCAL = tuple(rule for rule in TRUTH if rule.startswith("three"))
ADAPTIVE = {  # optimizer, steps and weight decay
    "adam": ("adam", 3, 0.0),
    "adamw": ("adam", 3, 0.01),
    "rmsprop": ("rmsprop", 3, 0.0),
    "adagrad": ("adagrad", 3, 0.0),
    "adam-once": ("adam", 1, 0.0),
}
IN_PAIRS = {"bpr": (3, True), "bpr-pairs": (1, False)}  # steps, and whether each negative is each positive's


def passer(rule: str, rate: float) -> Passer:
    """The client of a rule that goes through its ratings."""
    loss = next((name for name in ("cross-entropy", "sigmoid") if name in rule), "squared")
    return Passer(
        rate=rate,
        passes=3 if rule in LOCAL else 1,
        batch=4 if "minibatch" in rule else 1 if "per-rating" in rule or "passes" in rule else 0,
        loss="clipped" if rule == "clipped-prediction" else loss,
        mean=rule.endswith("-mean"),
        decay=0.1,
        error_clip=4.0 if rule.startswith("clipped-error") else 0.0,
        own_bias=rule.startswith("own-bias"),
        moves=rule in LOCAL,
        momentum=0.9 if rule.endswith("-momentum") else 0.0,
    )


@dataclass(frozen=True)
class Recording:
    """A rule, its size and constants, and how it was written down."""

    rule: str  # of ``TRUTH``
    factors: int = 4
    n_users: int = 24
    n_items: int = 60
    rate: float = 0.01
    levels: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0, 5.0)  # of pairs: 1 alone, a mark
    dropped: float = 0.0  # share of the uploads that are lost
    permuted: bool = False  # whether clients and items have other numbers, and send in another order
    scale: float = 1.0  # what all rows are multiplied by
    dtype: type = np.float64
    seed: int = 0

    def record(self, path: Path, **declared: Any) -> np.ndarray:
        """Two rounds; returns the ratings (users, items) by the numbers in the file, 0 where unrated."""
        rng = np.random.default_rng(self.seed)
        levels = np.array((1.0,) if self.rule in IN_PAIRS else self.levels)
        shape = self.n_users, self.n_items
        ratings = np.where(rng.random(shape) < 0.25, rng.choice(levels, shape), 0.0)
        ratings[:, 0] = rng.choice(levels, self.n_users)  # everybody has one
        q = rng.normal(0, 0.4, (self.n_items, self.factors)).astype(self.dtype)
        p = rng.normal(0, 0.4, (self.n_users, self.factors))
        step = self._step(rng, levels)
        names = rng.permutation(self.n_users) if self.permuted else np.arange(self.n_users)
        places = rng.permutation(self.n_items) if self.permuted else np.arange(self.n_items)
        number: dict[int, int] = {}  # in the order in which clients first send
        with Recorder(path, rating_levels=levels, **declared) as recorder:
            for round_ in (0, 1):
                later = (q + rng.normal(0, 0.02, q.shape)).astype(self.dtype)
                recorder.broadcast(round_, q[np.argsort(places)])
                for user in rng.permutation(self.n_users) if self.permuted else range(self.n_users):
                    (items,) = np.nonzero(ratings[user])
                    if self.rule in IN_PAIRS:  # as many that it did not use, drawn anew
                        others = np.flatnonzero(ratings[user] == 0)
                        drawn = rng.choice(others, min(items.size, others.size), replace=False)
                        items = np.concatenate([items, drawn])
                    items = items[np.argsort(places[items])]  # programs go through them by their names
                    v, after = (table[items].astype(float) for table in (q, later))
                    rows, p[user] = step(p[user], ratings[user, items], v, after)
                    if rng.random() >= self.dropped:
                        number.setdefault(user, len(number))
                        sent = (self.scale * rows).astype(self.dtype)
                        recorder.upload(round_, int(names[user]), sent, places[items])
                q = later
        named = np.zeros(shape)
        for user, at in number.items():
            named[at] = ratings[user, np.argsort(places)]
        return named

    def _step(self, rng: np.random.Generator, levels: np.ndarray) -> Callable[..., Any]:
        """From factor, ratings, items and the next round's items to rows and the next factor."""
        if self.rule in ("semi-als", "sgd", "sgd-mean", "per-rating", "fresh", "noise"):
            program = Program(self.rule, rate=self.rate, scale=1.0, ridge=0.1)
            return lambda p, r, v, after: program.step(rng, p, r, v)
        if self.rule == "unit-ball":
            return self._on_the_ball
        if self.rule in ADAPTIVE:
            name, steps, decay = ADAPTIVE[self.rule]
            adaptive = AdaptiveClient(name, steps, self.rate, decay=decay)
            return lambda p, r, v, after: adaptive.train(p, r, v)
        if self.rule in IN_PAIRS:
            return self._in_pairs
        client = passer(self.rule, self.rate)

        def through(p: np.ndarray, r: np.ndarray, v: np.ndarray, after: np.ndarray) -> Any:
            rows, moved = client.train(p, v, r, levels)
            return rows if self.rule in LOCAL else rows / self.rate, moved  # a change, or a gradient

        return through

    def _on_the_ball(self, p: np.ndarray, r: np.ndarray, v: np.ndarray, after: np.ndarray) -> Any:
        rows = (r - v @ p)[:, None] * p
        moved = p + 2 * self.rate * ((r - after @ p) @ after - 0.01 * r.size * p)
        return rows, moved / max(1.0, float(np.linalg.norm(moved)))

    def _in_pairs(self, p: np.ndarray, r: np.ndarray, v: np.ndarray, after: np.ndarray) -> Any:
        steps, each = IN_PAIRS[self.rule]
        used, drawn = np.flatnonzero(r > 0).tolist(), np.flatnonzero(r == 0).tolist()
        pairs = [(i, j) for i in used for j in drawn] if each else list(zip(used, drawn, strict=False))
        return trained(p, v, pairs, steps=steps, rate=self.rate, decay=0.0, item_decay=0.0)
