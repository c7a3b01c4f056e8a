"""A client's whole course fitted to several rounds of uploads: its start and its ratings explain all of them.

Beyond paper 002, against protocols whose clients keep their factor from round to round. The unknown start p^0
and the (stretched) ratings s = W o R determine every later factor by the client's own step, so that T
rounds of n K numbers overdetermine K + n unknowns. ``attacks.fitting`` solves that by least squares:

- noise drawn once (``objective-noise`` with noise=once) cancels in differences; the start is the closed form
  of ``attacks.differences``, else random, and the answer is exact;
- fresh noise of known scale: maximum a posteriori, with a Gaussian prior of s fitted to the clients
  themselves;
- no noise: as fresh, with equal weights.

Where ratings are stretched, ``attacks.stretched`` then takes W o R apart into rank-one weights and ratings on
the grid, all clients together.

What it assumes: uploads in the clear in consecutive rounds, and the constants of the step; noise once needs
them only where a client has fewer than four ratings. It abstains where no start explains the rows,
and where the noise leaves next to nothing about a rating.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.courses import Packed, batches, pack
from attacks.differences import from_differences
from attacks.fitting import Fit, Problem, fit
from attacks.interface import Estimates, Progress, Reconstruction, all_abstain, silent, unreadable
from attacks.steps import step_of, unknown_step
from attacks.stretched import Stretched, on_grid, unstretch
from victims.errors import InputError
from victims.manifest import Manifest
from victims.view import ITEM, View

EXACT = 1e-6  # share of the rows' own size that an exact answer may leave
PRIOR_PASSES = 2
SHORT_STEPS = 12  # of a fit that looks at the first rounds only
HORIZONS = (2, 5)  # rounds that the first fits of a start look at
ENOUGH = 0.1  # nats by which a step must still improve a posterior
MOST_LEFT = 0.05  # share of the rows' own size above which an exact answer is none
SAID = 0.01  # nats about a rating, below which no answer is given: it could be better by 0.07 (Pinsker)
STAGE = 15  # of the seeds, so that no other draw shares them


@dataclass(frozen=True)
class Trajectory:
    """Hyper-parameters.

    Attributes
    ----------
    answer : "ratings" or "stretched"
        Ratings on the grid with their probabilities, or W o R as fitted.
    rounds : int
        Longest run of consecutive rounds that is used where noise repeats, >= 2; otherwise all are.
    starts : int
        Starts per client, >= 1; with fresh noise one, whose horizon grows.
    steps : int
        Steps of one start, >= 1.
    """

    answer: Literal["ratings", "stretched"] = "ratings"
    rounds: int = 12
    starts: int = 5
    steps: int = 100
    name: str = "trajectory"

    def __post_init__(self) -> None:
        rules = {
            "answer": (self.answer in ("ratings", "stretched"), "ratings or stretched"),
            "rounds": (self.rounds >= 2, ">= 2"),
            "starts": (self.starts >= 1, ">= 1"),
            "steps": (self.steps >= 1, ">= 1"),
        }
        for name, (holds, rule) in rules.items():
            if not holds:
                raise InputError(f"trajectory {name} must be {rule}, got {getattr(self, name)!r}")

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Fit all clients of a view.

        Parameters
        ----------
        view : View
        key : int
            Seeds the random starts.
        progress : callable

        Returns
        -------
        Reconstruction
            Ratings with probabilities, or W o R with ``answer="stretched"``; diagnostics ``starts`` (how many
            were tried) and ``left`` (share of the rows' size that is not explained; with fresh
            noise the mean square of what is left, in units of the noise).
        """
        options = {**asdict(self), "seed": key}
        known = _known(self, view)
        if isinstance(known, str):
            return all_abstain(self.name, view.users, known, options)
        return _answered(self, view, known, self._fitted(view, known, key, progress), options)

    def _fitted(self, view: View, known: Known, key: int, progress: Progress) -> list[Fitted]:
        """All batches; with fresh noise again and again, each time with a better prior."""
        passes = PRIOR_PASSES if known.fresh else 1
        found: list[Fitted] = []
        for number in range(passes):
            priors = _priors(view.manifest, known, found) if number else None
            rng = np.random.default_rng([key, STAGE])
            before, found = found, []
            for place, members in enumerate(batches(view, known.rounds.size)):
                packed = pack(view, view.batch(members), known.rounds)
                if known.fresh:
                    prior = priors[place] if priors else _flat_prior(view.manifest, known, packed)
                    warm = before[place] if before else None
                    found.append(_fit_fresh(self, view.manifest, known, packed, prior, warm, rng))
                else:
                    found.append(_fit_exact(self, view.manifest, known, packed, rng))
                done = number * view.users.size + sum(part.users.size for part in found)
                progress(done, passes * view.users.size)
        return found


class Known(NamedTuple):
    """rounds: those that are used; noise is fresh in each, or repeated; stepped: the step is known."""

    rounds: Int[np.ndarray, " T"]
    fresh: bool
    repeated: bool
    stretched: bool
    stepped: bool


def _known(attack: Trajectory, view: View) -> Known | str:
    """What the manifest and the rounds tell, or why the attack does not apply."""
    if obstacle := unreadable(view):
        return obstacle
    defenses = {str(entry.get("name")): entry for entry in view.manifest.defenses}
    strange = set(defenses) - {"stretching", "personalized-sampling", "objective-noise"}
    if strange:
        return f"this attack has no law of the uploads under {sorted(strange)[0]}"
    numbers = view.rounds
    rounds = max(np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1), key=len)
    if rounds.size < 2:
        return "two consecutive rounds are needed, none were recorded"
    noise = defenses["objective-noise"].get("noise") if "objective-noise" in defenses else "none"
    fresh = noise not in ("once", "none")
    if fresh and any(view.broadcasts[int(number)].noise_scale is None for number in rounds):
        return "the recording does not tell the scale of the noise (noise_scale in state.arrow)"
    rounds = rounds if fresh else rounds[: attack.rounds]
    open_step = unknown_step(view.manifest)
    # the closed form needs four rounds of rows with one weight, and no step
    if open_step and (fresh or rounds.size < 4 or view.manifest.weighting != "observed-only"):
        return open_step
    return Known(rounds, fresh, noise == "once", "stretching" in defenses, not open_step)


@dataclass(frozen=True)
class Fitted:
    """A batch's answers: fields of ``Packed``; s and its deviation by the rows alone; p^0; s for the next
    pass, the prior counted in; what is left, and starts used.
    """

    users: Int[np.ndarray, " users"]
    kind: Int[np.ndarray, "users n"]
    index: Int[np.ndarray, "users n"]
    valid: Bool[np.ndarray, "users n"]
    alike: Bool[np.ndarray, " users"]
    value: Float[np.ndarray, "users n"]
    deviation: Float[np.ndarray, "users n"]
    start: Float[np.ndarray, "users K"]
    next: Float[np.ndarray, "users n"]
    left: Float[np.ndarray, " users"]
    starts: Int[np.ndarray, " users"]


class Prior(NamedTuple):
    """Mean and standard deviation of s, Gaussian, for each client and row (users, n)."""

    mean: Float[np.ndarray, "users n"]
    deviation: Float[np.ndarray, "users n"]


def _fit_exact(
    attack: Trajectory, manifest: Manifest, known: Known, packed: Packed, rng: np.random.Generator
) -> Fitted:
    """The closed form where it is clear, else fits from random starts until the rows are explained."""
    there = packed.valid[:, None, :, None]
    moving = packed.rows - packed.rows.mean(axis=1, keepdims=True) if known.repeated else packed.rows
    counted = packed.valid.sum(axis=1) * packed.rows.shape[1] * packed.rows.shape[3]
    size = np.sqrt((moving**2).sum(axis=(1, 2, 3)) / np.maximum(counted, 1))
    weight = np.broadcast_to(there / np.where(size > 0, size, 1.0)[:, None, None, None], packed.rows.shape)
    nothing = np.zeros(packed.valid.shape)
    guess = from_differences(packed.rows, packed.factors, packed.row_weight, packed.valid)
    out = _blank(packed)
    clear = np.flatnonzero((guess.misfit < EXACT) & packed.alike)
    out.value[clear], out.start[clear] = guess.value[clear], guess.start[clear]
    out.left[clear], out.starts[clear] = guess.misfit[clear], 1
    for number in range(attack.starts if known.stepped else 0):
        open_ = np.flatnonzero((out.left > EXACT) & packed.alike)
        if open_.size == 0:
            break
        start, value = _random_start(known, manifest, packed, rng)
        if number == 0:
            usable = np.isfinite(guess.misfit)[:, None]
            start, value = np.where(usable, guess.start, start), np.where(usable, guess.value, value)
        # as many clients as a power of two, so that few shapes are compiled
        chosen = np.resize(open_, 1 << int(open_.size - 1).bit_length())
        problem = _problem(manifest, known, packed, weight, Prior(nothing, nothing), 0.0, chosen)
        found = fit(
            problem,
            jnp.asarray(start[chosen]),
            jnp.asarray(value[chosen]),
            repeated=known.repeated,
            steps=attack.steps,
        )
        left = np.sqrt(2 * np.asarray(found.cost)[: open_.size] / np.maximum(counted[open_], 1))
        better = left < out.left[open_]
        here = open_[better]
        out.value[here] = np.asarray(found.value)[: open_.size][better]
        out.start[here] = np.asarray(found.factor)[: open_.size, 0][better]
        out.left[here] = left[better]
        out.starts[open_] += 1
    return out


def _fit_fresh(
    attack: Trajectory,
    manifest: Manifest,
    known: Known,
    packed: Packed,
    prior: Prior,
    warm: Fitted | None,
    rng: np.random.Generator,
) -> Fitted:
    """Maximum a posteriori under noise of known scale, from a random start or from an earlier answer."""
    assert packed.deviation is not None
    users = packed.users.size
    weight = packed.valid[:, None, :, None] / packed.deviation
    chosen = np.resize(np.arange(users), 1 << int(users - 1).bit_length())
    rounds = packed.rows.shape[1]

    def improved(start: np.ndarray, value: np.ndarray, horizon: int) -> Fit:
        seen = weight * (np.arange(rounds) < horizon)[:, None, None]
        problem = _problem(manifest, known, packed, seen, prior, 1.0, chosen)
        steps = attack.steps if horizon == rounds else min(attack.steps, SHORT_STEPS)
        return fit(
            problem, jnp.asarray(start), jnp.asarray(value), repeated=False, steps=steps, enough=ENOUGH
        )

    if warm is not None:
        found = improved(warm.start[chosen], warm.next[chosen], rounds)
    else:
        start, value = _random_start(known, manifest, packed, rng)[0][chosen], prior.mean[chosen]
        # a client's course is smooth in its start over few rounds, so that the horizon grows
        for horizon in sorted({min(first, rounds) for first in (*HORIZONS, rounds)}):
            found = improved(start, value, horizon)
            start, value = np.asarray(found.factor[:, 0]), np.asarray(found.value)
    counted = packed.valid.sum(axis=1) * packed.rows.shape[1] * packed.rows.shape[3]
    value, deviation, begin = (
        np.asarray(part)[:users] for part in (found.value, found.deviation, found.factor[:, 0])
    )
    left = np.sqrt(2 * np.asarray(found.cost)[:users] / np.maximum(counted, 1))
    alone, spread = _without(prior, value, deviation)
    return _fitted(packed, alone, spread, begin, value, left, np.ones(users, int))


def _without(prior: Prior, value: np.ndarray, deviation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the rows alone say: a Gaussian posterior divided by its prior."""
    with np.errstate(divide="ignore", invalid="ignore"):
        whole, before = 1 / deviation**2, np.where(prior.deviation > 0, 1 / prior.deviation**2, 0)
        precision = np.where(np.isfinite(whole), np.maximum(whole - before, 1e-6 * whole), 0)
        alone = (value * whole - prior.mean * before) / precision
        spread = 1 / np.sqrt(precision)
    usable = np.isfinite(alone) & np.isfinite(spread)
    return np.where(usable, alone, prior.mean), np.where(usable, spread, 1e6)


def _blank(packed: Packed) -> Fitted:
    """Nothing found yet."""
    users, n = packed.valid.shape
    value, deviation, following = (np.zeros((users, n)) for _ in range(3))
    start = np.zeros((users, packed.rows.shape[3]))
    return _fitted(packed, value, deviation, start, following, np.full(users, np.inf), np.zeros(users, int))


def _fitted(packed: Packed, *answers: Any) -> Fitted:
    """Answers beside what they are about."""
    return Fitted(packed.users, packed.kind, packed.index, packed.valid, packed.alike, *answers)


def _problem(
    manifest: Manifest,
    known: Known,
    packed: Packed,
    weight: np.ndarray,
    prior: Prior,
    start_precision: float,
    chosen: np.ndarray,
) -> Problem:
    """What is fitted, for some clients of a batch; a prior without a deviation is none."""
    spread = np.where(prior.deviation > 0, prior.deviation, np.inf)
    precision = np.where(packed.valid, 1 / spread**2, 1.0)
    return Problem(
        rows=jnp.asarray(packed.rows[chosen]),
        factors=jnp.asarray(packed.factors[chosen]),
        weight=jnp.asarray(weight[chosen]),
        row_weight=jnp.asarray(packed.row_weight[chosen]),
        mean=jnp.asarray(prior.mean[chosen]),
        precision=jnp.asarray(precision[chosen]),
        start_precision=jnp.asarray(start_precision),
        step=step_of(manifest, known.rounds, packed.valid.sum(axis=1)[chosen]),
    )


def _middle(manifest: Manifest, known: Known) -> float:
    """A first guess of s."""
    return float(np.mean(manifest.rating_levels)) * (0.3 if known.stretched else 1.0)


def _random_start(
    known: Known, manifest: Manifest, packed: Packed, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "users K"], Float[np.ndarray, "users n"]]:
    """p^0 in the unit ball, and one value for all of a client's ratings."""
    users, k = packed.users.size, packed.rows.shape[3]
    direction = rng.standard_normal((users, k))
    direction *= rng.uniform(0.05, 1, (users, 1)) / np.linalg.norm(direction, axis=1, keepdims=True)
    return direction, _middle(manifest, known) * rng.uniform(0.5, 2, (users, 1)) * packed.valid


def _flat_prior(manifest: Manifest, known: Known, packed: Packed) -> Prior:
    """Before anything is known of the clients."""
    middle = _middle(manifest, known)
    return Prior(np.full(packed.valid.shape, middle) * packed.valid, np.full(packed.valid.shape, middle))


def _priors(manifest: Manifest, known: Known, found: list[Fitted]) -> list[Prior]:
    """Mean and spread of s given the weights and the shares of levels that the last pass found."""
    levels = np.array(manifest.rating_levels)
    flat = _flat(found)
    apart = _apart(manifest, known, flat)
    scale = apart.user[flat.user] * apart.item[flat.item]
    mean, square = apart.share @ levels, apart.share @ levels**2
    spread = np.sqrt(np.maximum(square - mean**2, 0.01 * mean**2))
    out, start = [], 0
    for part in found:
        stop = start + int(part.valid.sum())
        both = [np.zeros(part.valid.shape) for _ in range(2)]
        both[0][part.valid], both[1][part.valid] = scale[start:stop] * mean, scale[start:stop] * spread
        out.append(Prior(*both))
        start = stop
    return out


class Flat(NamedTuple):
    """One entry per row of all clients: number of the client, item, s and its deviation."""

    user: Int[np.ndarray, " entries"]
    item: Int[np.ndarray, " entries"]
    value: Float[np.ndarray, " entries"]
    deviation: Float[np.ndarray, " entries"]


def _flat(found: list[Fitted]) -> Flat:
    user = np.concatenate([np.broadcast_to(p.users[:, None], p.valid.shape)[p.valid] for p in found])
    columns = (
        np.concatenate([getattr(part, name)[part.valid] for part in found])
        for name in ("index", "value", "deviation")
    )
    return Flat(user, *columns)


def _apart(manifest: Manifest, known: Known, flat: Flat) -> Stretched:
    """Ratings and weights behind the values."""
    levels = np.array(manifest.rating_levels)
    return (unstretch if known.stretched else on_grid)(*flat, levels)


def _information(
    flat: Flat, apart: Stretched, levels: Float[np.ndarray, " levels"], users: int
) -> Float[np.ndarray, " users"]:
    """Nats that a client's rows tell about one of its ratings, were all levels as likely and normal."""
    signal = apart.user[flat.user] * apart.item[flat.item] * levels.std()
    nats = 0.5 * np.log1p((signal / flat.deviation) ** 2)
    counts = np.bincount(flat.user, minlength=users)
    return np.where(counts > 0, np.bincount(flat.user, nats, users) / np.maximum(counts, 1), np.inf)


def _answered(
    attack: Trajectory, view: View, known: Known, found: list[Fitted], options: dict[str, Any]
) -> Reconstruction:
    """Estimates of all clients, and reasons where there are none."""
    levels = np.array(view.manifest.rating_levels)
    answered = [part.alike & ((part.left < MOST_LEFT) | known.fresh) for part in found]
    found = [
        replace(part, valid=part.valid & here[:, None]) for part, here in zip(found, answered, strict=True)
    ]
    apart, told = None, np.full(int(view.users.max(initial=0)) + 1, np.inf)
    if attack.answer == "ratings" and sum(part.valid.sum() for part in found):
        flat = _flat([replace(part, valid=part.valid & (part.kind == ITEM)) for part in found])
        apart = _apart(view.manifest, known, flat)
        if known.fresh:
            told = _information(flat, apart, levels, told.size)
    blocks, start = [], 0
    abstained: dict[int, str] = {}
    for part in found:
        value, probability = np.where(part.valid, part.value, np.nan), None
        if apart is not None:
            rows = part.valid & (part.kind == ITEM)
            stop = start + int(rows.sum())
            posterior = apart.posterior[start:stop]
            probability = np.full(value.shape, np.nan)
            value[rows] = levels[posterior.argmax(axis=1)]
            probability[rows] = posterior.max(axis=1)
            start = stop
        blocks.append(Estimates(part.users, part.kind, part.index, value, probability))
        for user, alike, left in zip(part.users.tolist(), part.alike, part.left, strict=True):
            if not alike:
                abstained[user] = "the client's list of items changes from round to round"
            elif not known.fresh and not left < MOST_LEFT:
                abstained[user] = (
                    f"no start explains the client's rows (the best leaves {left:.2g} of their size)"
                )
            elif told[user] < SAID:
                abstained[user] = f"the noise leaves {told[user]:.1g} nats about a rating"
    users = np.concatenate([part.users for part in found])
    order = np.argsort(users)
    diagnostics = {
        "left": np.concatenate([part.left for part in found])[order],
        "starts": np.concatenate([part.starts for part in found])[order],
    }
    return Reconstruction(attack.name, users[order], tuple(blocks), abstained, options, diagnostics)
