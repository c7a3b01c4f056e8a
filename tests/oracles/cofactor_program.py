"""DPMF and DMF of Yang et al. 2022 sample by sample, with dictionaries of what everybody holds.

Written from the corrected equations; all of Q is kept, and all copies. It shares no code with ``victims``:
the caller says where everything starts, in which order a user goes, and who receives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np


@dataclass
class User:
    """What one user holds: U, Q of its rated items, and the four parts of V and Z by item."""

    u: np.ndarray
    q: dict[int, np.ndarray]
    parts: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)


@dataclass
class Constants:
    theta: float
    lam: float
    w: float
    ridge_u: float
    ridge_v: float
    ridge_z: float
    ridge_q: float
    per_sample: bool
    logistic: bool
    size: int | None  # samples of a step; None is all of them
    share: float
    passes: int = 1
    mean: bool = False
    upload: str = "gradient"


def g(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def sample_gradients(c: Constants, user: User, kind: str, item: int, rating: float):
    """dU, dQ_k (the same for all k, ridge left out), and the row of one sample at what the user now holds."""
    if kind == "explicit":
        other = user.parts["vp"][item] + user.parts["vq"][item]
        whole = user.u + (sum(user.q.values()) / len(user.q) if user.q else 0.0)
        x = float(whole @ other)
        error = g(x) * (1 - g(x)) * (g(x) - rating) if c.logistic else x - rating
        return error * other, error * other / max(len(user.q), 1), error * whole + c.ridge_v * other
    other = user.parts["zp"][item] + user.parts["zq"][item]
    p = g(float(user.u @ other))
    error = -c.lam * (1 - p) if kind == "positive" else c.lam * c.w * p * (1 - p) / (1 - c.w * p)
    return error * other, 0.0, error * user.u + c.ridge_z * other


def pass_of(c: Constants, user: User, samples: list[tuple[str, int, float]]) -> list[np.ndarray]:
    """One user's pass, which changes what it holds; the gradients of its samples."""
    rows: list[np.ndarray] = []
    size = c.size or max(len(samples), 1)
    for first in range(0, len(samples), size):
        rows += step_of(c, user, samples[first : first + size])
    if not c.per_sample and (c.size is not None or not samples):
        user.u = user.u * (1 - c.theta * c.ridge_u)
        user.q = {k: q * (1 - c.theta * c.ridge_q) for k, q in user.q.items()}
    for (kind, item, _), row in zip(samples, rows, strict=True):
        for part in ("vp", "vq") if kind == "explicit" else ("zp", "zq"):
            user.parts[part][item] = user.parts[part][item] - c.theta * row
    return rows


def step_of(c: Constants, user: User, samples: list[tuple[str, int, float]]) -> list[np.ndarray]:
    """One step over some samples, from where the user is; U and Q move."""
    step_u, step_q, rows, explicit = 0.0, 0.0, [], 0
    parts = len(samples) if c.mean else 1
    for kind, item, rating in samples:
        of_u, of_q, row = sample_gradients(c, user, kind, item, rating)
        ridge, table = (c.ridge_v, "v") if kind == "explicit" else (c.ridge_z, "z")
        pull = ridge * (user.parts[table + "p"][item] + user.parts[table + "q"][item])
        rows.append((row - pull) / parts + pull)
        step_u, step_q, explicit = (
            step_u + of_u / parts,
            step_q + of_q / parts,
            explicit + (kind == "explicit"),
        )
    once = 1 if c.size is None else 0  # with the step where there is one, after the pass where there are more
    times_u, times_q = (len(samples) / parts, explicit / parts) if c.per_sample else (once, once)
    user.u = user.u - c.theta * (step_u + times_u * c.ridge_u * user.u)
    user.q = {k: q - c.theta * (step_q + times_q * c.ridge_q * q) for k, q in user.q.items()}
    return rows


def one_round(
    c: Constants,
    users: list[User],
    samples: list[list[tuple[str, int, float]]],
    receivers: list[list[tuple[int, float]]],
    stepping: set[int] | None = None,
    heard: set[int] | None = None,
) -> dict[int, list[np.ndarray]]:
    """All users pass, then everybody steps with what arrived; the rows of those who are heard."""
    stepping = set(range(len(users))) if stepping is None else stepping
    heard = stepping if heard is None else heard
    sent = {}
    for number in sorted(stepping):
        user, mine = users[number], samples[number]
        where = ["vp" if kind == "explicit" else "zp" for kind, _, _ in mine]
        before = [user.parts[part][item] for part, (_, item, _) in zip(where, mine, strict=True)]
        for _ in range(c.passes):
            rows = pass_of(c, user, mine)
        after = [user.parts[part][item] for part, (_, item, _) in zip(where, mine, strict=True)]
        if c.upload == "delta":
            rows = [b - a for a, b in zip(before, after, strict=True)]
        if number in heard:
            sent[number] = after if c.upload == "weights" else rows
    arrived: dict[tuple[int, str, int], list[tuple[float, np.ndarray]]] = {}
    for sender, rows in sent.items():
        for (kind, item, _), row in zip(samples[sender], rows, strict=True):
            for receiver, times in receivers[sender]:
                if receiver in stepping:
                    place = receiver, "vp" if kind == "explicit" else "zp", item
                    arrived.setdefault(place, []).append((c.share * times, row))
    for (receiver, part, item), rows in arrived.items():
        held, total = users[receiver].parts[part], sum(times * row for times, row in rows)
        if c.upload == "gradient":
            held[item] = held[item] - c.theta * total
        elif c.upload == "delta":
            held[item] = held[item] + total
        else:
            held[item] = (held[item] + total) / (1 + sum(times for times, _ in rows))
    return sent
