"""The sums of the uploads, from the factors that two consecutive rounds broadcast.

Whoever receives the factors sees the server's step, and the step is a function of the sums:

- FedMF (Chai et al. 2021, Algorithm 1): V^t - V^(t+1) is the sum of the uploads;
- MF on the unit ball (Hu & Fang 2023, Algorithm 1): V^t - V^(t+1) = eta_t (sum + 2 lambda v_j); where lambda
  counts with every rating, every row comes with a pull of 2 lambda v_j beside it;
- FedMVMF (Mai & Pang 2022): Adam on Q and U. Its first step is -rate g / (|g| + epsilon), from which

      |g| = epsilon |step| / (rate - |step|)

  in every coordinate, one root. The step is rate to all but the last eight digits or so, so that it takes the
  digits of float64 to tell g; with a gradient near 1 a relative error of 1e-7 is left. Then

      sum over clients of f(i,j) = lambda_2 q_j - g_j / 2 - lambda_1 sum_y (y_jy - v_y . q_j) v_y
      sum over clients of f(i,a) = (2 lambda_2 u_a - g_a) / (2 lambda_1).

  The last term for items is the item server's. It knows it; so does everybody in semi-als, where V follows
  from Q and the item features, Eq. (11), if those are public. In sgd V starts from a secret of the item
  server, and nobody else can take its term away.

Where it ends: later steps of Adam have up to two roots in each coordinate and are not taken apart; float32
hardly holds a digit of g; and a sum is only a sum: whoever is not alone in it is not read.

References
----------
P. Mai, Y. Pang, arXiv:2210.07775; D. Chai et al., arXiv:1906.05108; W. Hu, H. Fang,
arXiv:2212.00306. Adam: D. P. Kingma, J. Ba 2015, arXiv:1412.6980.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float

from attacks.client_rules.protocols import SERVER_RULES, ServerRule, not_public
from victims.transcript.view import ATTRIBUTE, ITEM, Broadcast, Sums, View

LOOSE = 1e-4  # relative error of a sum, above which its direction says nothing
ROUNDINGS = 8  # of the server's arithmetic, in units of its last digit
NO_PAIR = "no two consecutive rounds of the same broadcast factors are in the view"
NO_START = (
    "Adam's step tells the sums in its first step alone, and the view does not hold the broadcasts of both "
    "rounds 0 and 1"
)
NOT_ADAM = "the factors did not move from round 0 to round 1 as a first step of Adam moves them"
ITEM_SERVER = "the step does not tell the sums to an adversary who lacks the item server's part of it"
TOO_COARSE = "the broadcast factors have too few digits to tell the sums from the server's step"


class Implied(NamedTuple):
    """Sums by round, and ``pull``: for each contributor the server adds ``pull`` times the factor to its row.

    Where there is none, ``obstacle`` says why.
    """

    sums: Mapping[int, Sums]
    pull: float = 0.0
    obstacle: str = ""


def implied_sums(view: View) -> Implied:
    """Derive the sums over all clients of the rows of each round from two consecutive broadcasts."""
    manifest = view.manifest
    if not view.broadcasts:
        return Implied({}, obstacle="the adversary sees no broadcast factors")
    rule = SERVER_RULES.get(manifest.protocol)
    if rule is None:
        return Implied({}, obstacle=_unknown_step(manifest.protocol))
    missing = not_public(manifest, rule.constants)
    if missing:
        return Implied({}, obstacle=missing)
    return _of_adam(view) if rule.adam else _of_plain_steps(view, rule)


def _unknown_step(protocol: str) -> str:
    """Why a protocol's broadcasts tell no sums."""
    if protocol == "unknown":
        known = ", ".join(SERVER_RULES)
        return (
            "no sums were decrypted, and broadcasts tell sums only where the server's step is known: the "
            f"recording declares no protocol (this attack knows {known})"
        )
    return f"the server's step of {protocol} is not one that this attack knows"


def _of_plain_steps(view: View, rule: ServerRule) -> Implied:
    """V^t - V^(t+1) over the server's rate."""
    manifest, found = view.manifest, {}
    for round_, before in view.broadcasts.items():
        after = view.broadcasts.get(round_ + 1)
        if after is None or not _same_rows(before, after):
            continue
        items = before.item_ids.size
        start, end = before.factors[:items], after.factors[:items]
        rate = float(rule.learning_rate(manifest, np.array([round_]))[0])
        values = (start - end) / rate - rule.once(manifest) * start
        last, unit = _last_digits(start, end)
        error = np.linalg.norm(last / rate + ROUNDINGS * unit * np.abs(values), axis=1)
        found[round_] = Sums(np.full(items, ITEM, np.int8), before.item_ids, values, error)
    return _settled(Implied(found, rule.pull(manifest), "" if found else NO_PAIR))


def _of_adam(view: View) -> Implied:
    """Round 0 of FedMVMF."""
    before, after = view.broadcasts.get(0), view.broadcasts.get(1)
    if before is None or after is None or not _same_rows(before, after):
        return Implied({}, obstacle=NO_START)
    known = view.manifest.hyperparameters
    rate = known["server_learning_rate"]
    last, unit = _last_digits(before.factors, after.factors)
    away = last + ROUNDINGS * unit * rate
    step = after.factors - before.factors
    if (np.abs(step) > rate + away).any():
        return Implied({}, obstacle=NOT_ADAM)
    gradient, error = first_step_gradient(step, rate, known["adam_epsilon"], away)
    terms = _item_server_terms(view, before)
    if terms is None:
        return Implied({}, obstacle=ITEM_SERVER)
    items, weight = before.item_ids.size, known["lambda_attributes"]
    pulled = known["lambda_factors"] * before.factors - gradient / 2
    values, size = pulled[:items] - weight * terms, items
    if weight > 0:  # else nothing of the attributes reaches the server's step
        values, size = np.concatenate([values, pulled[items:] / weight]), before.factors.shape[0]
        error[items:] /= weight
    error = np.linalg.norm(error[:size] / 2 + ROUNDINGS * unit * np.abs(before.factors[:size]), axis=1)
    kind = np.repeat([ITEM, ATTRIBUTE], [items, before.attribute_ids.size]).astype(np.int8)[:size]
    index = np.concatenate([before.item_ids, before.attribute_ids])[:size]
    return _settled(Implied({0: Sums(kind, index, values, error)}))


def _settled(found: Implied) -> Implied:
    """Nothing, where no sum is known to better than ``LOOSE``."""
    clear = [
        (each.error <= LOOSE * np.linalg.norm(each.values, axis=1)).any() for each in found.sums.values()
    ]
    return found if any(clear) or found.obstacle else Implied({}, obstacle=TOO_COARSE)


def first_step_gradient(
    step: Float[np.ndarray, "*rows K"],
    rate: float,
    epsilon: float,
    away: Float[np.ndarray, "*rows K"],
) -> tuple[Float[np.ndarray, "*rows K"], Float[np.ndarray, "*rows K"]]:
    """The gradient behind Adam's first step, and how far it may be off.

    Examples
    --------
    >>> step = np.array([-0.05 * 2.0 / (2.0 + 1e-8)])
    >>> gradient, _ = first_step_gradient(step, 0.05, 1e-8, np.array([1e-17]))
    >>> bool(abs(gradient[0] - 2.0) < 1e-6)
    True
    """
    size = np.abs(step)
    room = rate - size
    told = room > away
    safe = np.where(told, room, 1.0)
    gradient = -np.sign(step) * np.where(told, epsilon * size / safe, 0.0)
    nearest = np.where(told, room - away, 1.0)
    return gradient, np.where(told, epsilon * rate * away / (safe * nearest), np.inf)


def _item_server_terms(view: View, broadcast: Broadcast) -> Float[np.ndarray, "items K"] | None:
    """sum over y of (y_jy - v_y . q_j) v_y of every item in round 0; None where the adversary lacks it."""
    manifest, n_items = view.manifest, broadcast.item_ids.size
    sent = view.item_server.get(0)
    if sent is not None:
        terms = np.zeros((n_items, manifest.factors))
        terms[broadcast.positions(sent.kind, sent.index)] = sent.values
        return terms
    if manifest.item_features is None:
        return None if "item_server" in manifest.parties else np.zeros((n_items, manifest.factors))
    owner = np.repeat(np.arange(manifest.n_items), [len(own) for own in manifest.item_features])
    if owner.size == 0:
        return np.zeros((n_items, manifest.factors))
    if manifest.update != "semi-als" or n_items < manifest.n_items:
        return None
    named, feature = np.unique(np.concatenate(manifest.item_features), return_inverse=True)
    has = sp.csr_array((np.ones(owner.size), (owner, feature)), shape=(n_items, named.size))
    q, known = broadcast.factors[:n_items], manifest.hyperparameters
    ridge = known["lambda_factors"] / max(known["lambda_attributes"], 1e-12)
    v = np.linalg.solve(q.T @ q + ridge * np.eye(manifest.factors), (has.T @ q).T).T  # Eq. (11)
    return has @ v - q @ (v.T @ v)


def _same_rows(before: Broadcast, after: Broadcast) -> bool:
    return np.array_equal(before.item_ids, after.item_ids) and np.array_equal(
        before.attribute_ids, after.attribute_ids
    )


def _last_digits(
    before: Float[np.ndarray, "rows K"], after: Float[np.ndarray, "rows K"]
) -> tuple[Float[np.ndarray, "rows K"], float]:
    """Spacing of the numbers that the factors were broadcast in, and their relative precision."""
    kinds = (np.float16, np.float32, np.float64)
    kind = next(each for each in kinds if all(_fits(state, each) for state in (before, after)))
    larger = np.maximum(np.abs(before), np.abs(after)).astype(kind)
    return np.spacing(larger).astype(np.float64), float(np.finfo(kind).eps)


def _fits(values: Float[np.ndarray, "rows K"], kind: type[np.floating]) -> bool:
    with np.errstate(over="ignore"):
        return bool((values.astype(kind) == values).all())
