"""DPMF and DMF of paper 004 user by user and sample by sample, with dictionaries of what everybody holds.

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
    batch: bool
    share: float


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
    """One user's pass, which changes what it holds; the rows that it sends."""
    begin_u, begin_q = user.u.copy(), {k: q.copy() for k, q in user.q.items()}
    step_u, step_q, rows = 0.0, 0.0, []
    for kind, item, rating in samples:
        now = User(begin_u, begin_q, user.parts) if c.batch else user
        of_u, of_q, row = sample_gradients(c, now, kind, item, rating)
        step_u, step_q = step_u + of_u, step_q + of_q
        if not c.batch:
            pull = c.ridge_u if c.per_sample else 0.0
            user.u = user.u - c.theta * (of_u + pull * user.u)
            if kind == "explicit":
                pull = c.ridge_q if c.per_sample else 0.0
                user.q = {k: q - c.theta * (of_q + pull * q) for k, q in user.q.items()}
        rows.append(row)
    explicit = sum(kind == "explicit" for kind, _, _ in samples)
    if c.batch:
        times_u, times_q = (len(samples), explicit) if c.per_sample else (1, 1)
        user.u = begin_u - c.theta * (step_u + times_u * c.ridge_u * begin_u)
        user.q = {k: q - c.theta * (step_q + times_q * c.ridge_q * q) for k, q in begin_q.items()}
    if not c.per_sample and not c.batch:
        user.u = user.u * (1 - c.theta * c.ridge_u)
        user.q = {k: q * (1 - c.theta * c.ridge_q) for k, q in user.q.items()}
    for (kind, item, _), row in zip(samples, rows, strict=True):
        for part in ("vp", "vq") if kind == "explicit" else ("zp", "zq"):
            user.parts[part][item] = user.parts[part][item] - c.theta * row
    return rows


def one_round(
    c: Constants,
    users: list[User],
    samples: list[list[tuple[str, int, float]]],
    receivers: list[list[tuple[int, float]]],
) -> list[list[np.ndarray]]:
    """All users pass, then everybody steps with what arrived; the rows that were sent."""
    sent = [pass_of(c, user, mine) for user, mine in zip(users, samples, strict=True)]
    for sender, rows in enumerate(sent):
        for (kind, item, _), row in zip(samples[sender], rows, strict=True):
            for receiver, times in receivers[sender]:
                held = users[receiver].parts["vp" if kind == "explicit" else "zp"]
                held[item] = held[item] - c.theta * c.share * times * row
    return sent
