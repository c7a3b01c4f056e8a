"""A client's whole course fitted to several rounds of uploads: its start and its ratings explain all of them.

Beyond paper 002, against protocols whose clients keep their factor from round to round. The unknown start p^0
and the (stretched) ratings s = W o R determine every later factor by the client's own step, so that T
rounds of n K numbers overdetermine K + n unknowns. ``attacks.trajectory.trajectory_fits`` solves that by
least squares:

- noise drawn once (``objective-noise`` with noise=once) cancels in differences; the start is the closed form
  of ``attacks.trajectory.differencing``, else random, and the answer is exact;
- fresh normal noise of known scale (``objective-noise``, ``gaussian``): maximum a posteriori, with a Gaussian
  prior of s fitted to the clients themselves;
- no noise: as fresh, with equal weights.

Where ratings are stretched, ``attacks.trajectory.stretched_ratings`` then takes W o R apart into rank-one
weights and ratings on the grid, all clients together.

What it assumes: uploads in the clear in consecutive rounds, and the constants of the step; noise once needs
them only where a client has fewer than four ratings. It abstains where no start explains the rows, where the
noise leaves next to nothing about a rating, and where the clients' rule is seen not to be the declared one:
rows that are explained without noise by numbers off the rating grid (``attacks.closed_form.goodness_of_fit``;
stretched ratings once their weights are taken off, one rating of each client having told its weight, so that
a single one cannot be judged), or under fresh noise by no numbers at all (a chi-square test of what is left)
or, where nothing is stretched, by numbers off the grid. ``answer="stretched"`` is not judged by the grid
where weights lie between.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import chi2

from attacks.base import Estimates, Outcome, Progress, Reconstruction, all_abstain, silent, unreadable
from attacks.client_rules.client_update import unknown_step
from attacks.closed_form.goodness_of_fit import ACCIDENT, accidental, log_odds_between, misfit
from attacks.likelihood.manifest_model import fresh_normal, known_clip
from attacks.trajectory.factor_trajectories import batches, pack
from attacks.trajectory.stretched_ratings import Stretched, on_grid, unstretch
from attacks.trajectory.trajectory_fits import Fitted, Known, Prior, fit_exact, fit_fresh, flat_prior
from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM, View

PRIOR_PASSES = 2
MOST_LEFT = 0.05  # share of the rows' own size above which an exact answer is none
SAID = 0.01  # nats about a rating, below which no answer is given: it could be better by 0.07 (Pinsker)


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
    max_misfit : float
        As in ``attacks.closed_form.spectral``, > 0, where there is no fresh noise.
    """

    answer: Literal["ratings", "stretched"] = "ratings"
    rounds: int = 12
    starts: int = 5
    steps: int = 100
    max_misfit: float = 0.5
    name: str = "trajectory"

    def __post_init__(self) -> None:
        rules = {
            "answer": (self.answer in ("ratings", "stretched"), "ratings or stretched"),
            "rounds": (self.rounds >= 2, ">= 2"),
            "starts": (self.starts >= 1, ">= 1"),
            "steps": (self.steps >= 1, ">= 1"),
            "max_misfit": (self.max_misfit > 0, "> 0"),
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
            were tried), ``left`` (share of the rows' size that is not explained; with fresh
            noise the root of the mean square of what is left, in units of the noise) and ``misfit`` (0 fits
            the grid, 1 no better than chance; NaN where it is not judged).
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
            priors = _priors(known, found) if number else None
            rng = generator(key, Purpose.TRAJECTORY_STARTS)
            before, found = found, []
            for place, members in enumerate(batches(view, known.rounds.size)):
                packed = pack(view, view.batch(members), known.rounds)
                if known.fresh:
                    prior = priors[place] if priors else flat_prior(known, packed)
                    warm = before[place] if before else None
                    found.append(fit_fresh(known, packed, prior, warm, rng))
                else:
                    found.append(fit_exact(known, packed, rng))
                done = number * view.users.size + sum(part.users.size for part in found)
                progress(done, passes * view.users.size)
        return found


def _known(attack: Trajectory, view: View) -> Known | str:
    """What the manifest and the rounds tell, or why the attack does not apply."""
    if obstacle := unreadable(view) or _unmodelled(view.manifest):
        return obstacle
    defenses = {str(entry.get("name")): entry for entry in view.manifest.defenses}
    numbers = view.rounds
    rounds = max(np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1), key=len)
    if rounds.size < 2:
        return "two consecutive rounds are needed, none were recorded"
    noise = defenses["objective-noise"].get("noise") if "objective-noise" in defenses else "none"
    told, normal = noise not in ("once", "none"), "gaussian" in defenses
    fresh = told or normal
    if told and any(view.broadcasts[int(number)].noise_scale is None for number in rounds):
        return "the recording does not tell the scale of the noise (noise_scale in state.arrow)"
    rounds = rounds if fresh else rounds[: attack.rounds]
    open_step = unknown_step(view.manifest)
    # the closed form needs four rounds of rows with one weight, and no step
    if open_step and (fresh or rounds.size < 4 or view.manifest.weighting != "observed-only"):
        return open_step
    return Known(
        view.manifest,
        rounds,
        fresh,
        noise == "once",
        "stretching" in defenses,
        not open_step,
        attack.starts,
        attack.steps,
    )


def _unmodelled(manifest: Manifest) -> str:
    """Why uploads under these defenses are no course with noise of a law that this attack has, or nothing."""
    names = [str(entry.get("name")) for entry in manifest.defenses]
    once = any(entry.get("noise") == "once" for entry in manifest.defenses)
    strange = set(names) - {"stretching", "personalized-sampling", "objective-noise", "gaussian"}
    if strange:
        return f"this attack has no law of the uploads under {sorted(strange)[0]}"
    if "gaussian" not in names:
        return ""
    if known_clip(manifest) is not None:
        return "rows are clipped, which this attack does not model; likelihood does"
    if names.count("gaussian") > 1 or once:
        return "the uploads hold normal noise above other noise, which this attack does not model"
    return "" if fresh_normal(manifest) else "the manifest does not tell the scale of the normal noise"


def _priors(known: Known, found: list[Fitted]) -> list[Prior]:
    """Mean and spread of s given the weights and the shares of levels that the last pass found."""
    levels = np.array(known.manifest.rating_levels)
    flat = _flat(found)
    apart = _apart(known, flat)
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


def _apart(known: Known, flat: Flat) -> Stretched:
    """Ratings and weights behind the values."""
    levels = np.array(known.manifest.rating_levels)
    return (unstretch if known.stretched else on_grid)(*flat, levels)


def _information(
    flat: Flat, apart: Stretched, levels: Float[np.ndarray, " levels"], users: int
) -> Float[np.ndarray, " users"]:
    """Nats that a client's rows tell about one of its ratings, were all levels as likely and normal."""
    signal = apart.user[flat.user] * apart.item[flat.item] * levels.std()
    nats = 0.5 * np.log1p((signal / flat.deviation) ** 2)
    counts = np.bincount(flat.user, minlength=users)
    return np.where(counts > 0, np.bincount(flat.user, nats, users) / np.maximum(counts, 1), np.inf)


def _judged(
    attack: Trajectory, known: Known, part: Fitted, apart: Stretched | None
) -> tuple[Float[np.ndarray, " users"], dict[int, str]]:
    """Misfit of a batch's clients, and why some are not answered: the declared rule is not theirs."""
    if known.fresh:
        reasons = {} if apart is None or known.stretched else _between_levels(known, part, apart)
        return np.full(part.users.size, np.nan), reasons | _other_noise(known, part)
    if known.stretched and apart is None:
        return np.full(part.users.size, np.nan), {}
    levels = np.array(known.manifest.rating_levels)
    value = part.value / (np.ones(part.valid.shape) if apart is None else _weights(apart, part))
    off, judged = misfit(value, np.zeros_like(value), part.kind == ITEM, part.valid, levels, None)
    # a weight that one rating tells, on any level
    limit = accidental(judged - 1, levels.size) if known.stretched else accidental(judged)
    most = np.minimum(attack.max_misfit, np.where(judged > 0, limit, np.inf))
    reasons = {
        int(user): f"the rows are explained ({left:.2g} of their size is left), but by numbers off the "
        f"rating grid (misfit {away:.2g} of 1, at most {bar:.2g} with so many ratings): the clients' rule is "
        "not the declared one"
        for user, left, away, bar in zip(part.users, part.left, off, most, strict=True)
        if not away <= bar
    }
    lone = part.users[(judged == 1) & known.stretched].tolist()
    return off, reasons | dict.fromkeys(lone, "a single stretched rating cannot be told from its weight")


def _other_noise(known: Known, part: Fitted) -> dict[int, str]:
    """Clients whose rows are further from the fit, or nearer to it, than noise as declared could be."""
    k = known.manifest.factors
    counts = part.valid.sum(axis=1)
    numbers = known.rounds.size * k * np.maximum(counts, 1)
    # with the priors' own terms; without as many numbers as were fitted
    most = np.sqrt(chi2.isf(ACCIDENT, numbers + counts + k) / numbers)
    least = np.sqrt(chi2.ppf(ACCIDENT, np.maximum(numbers - counts - k, 1)) / numbers)
    return {
        int(user): f"what the fit leaves is {left:.2g} times the declared noise (by chance {low:.2g} to "
        f"{high:.2g}): the clients' rule, or the noise, is not the declared one"
        for user, left, low, high in zip(part.users, part.left, least, most, strict=True)
        if not low <= left <= high
    }


def _between_levels(known: Known, part: Fitted, apart: Stretched) -> dict[int, str]:
    """Clients whose numbers are surely not on the rating grid, where no weights lie between."""
    levels, item = np.array(known.manifest.rating_levels), part.valid & (part.kind == ITEM)
    nats = np.zeros(part.valid.shape)
    nats[item] = log_odds_between(part.value[item], part.deviation[item], levels, apart.share)
    return {
        int(user): f"the odds are e^{odds:.2g} that the client's numbers are not on the rating grid: the "
        "clients' rule is not the declared one"
        for user, odds in zip(part.users, nats.sum(axis=1), strict=True)
        if odds > -np.log(ACCIDENT)
    }


def _weights(apart: Stretched, part: Fitted) -> Float[np.ndarray, "users n"]:
    """The weights of a batch's rows; 1 for attributes and for what was not fitted."""

    def of(weights: np.ndarray, number: np.ndarray) -> np.ndarray:
        return np.where(number < weights.size, weights[np.minimum(number, weights.size - 1)], 1.0)

    both = of(apart.user, part.users)[:, None] * of(apart.item, part.index)
    return np.where(part.valid & (part.kind == ITEM), both, 1.0)


def _answered(
    attack: Trajectory, view: View, known: Known, found: list[Fitted], options: dict[str, Any]
) -> Reconstruction:
    """Estimates of all clients, and reasons where there are none."""
    levels = np.array(view.manifest.rating_levels)
    abstained: dict[int, str] = {}
    for part in found:
        for user, alike, left in zip(part.users.tolist(), part.alike, part.left, strict=True):
            if not alike:
                abstained[user] = "the client's list of items changes from round to round"
            elif not known.fresh and not left < MOST_LEFT:
                abstained[user] = (
                    f"no start explains the client's rows (the best leaves {left:.2g} of their size)"
                )
    found = _without_rows_of(found, abstained)
    apart, told = None, np.full(int(view.users.max(initial=0)) + 1, np.inf)
    if attack.answer == "ratings" and any((part.valid & (part.kind == ITEM)).any() for part in found):
        flat = _flat([replace(part, valid=part.valid & (part.kind == ITEM)) for part in found])
        apart = _apart(known, flat)
        if known.fresh:
            told = _information(flat, apart, levels, told.size)
    blocks, start, off = [], 0, []
    for part in found:
        away, reasons = _judged(attack, known, part, apart)
        quiet = {
            user: f"the noise leaves {told[user]:.1g} nats about a rating"
            for user in part.users[told[part.users] < SAID].tolist()
        }
        for user, reason in (reasons | quiet).items():
            abstained.setdefault(user, reason)
        off.append(away)
        value, probability, median = np.where(part.valid, part.value, np.nan), None, None
        if apart is not None:
            rows = part.valid & (part.kind == ITEM)
            stop = start + int(rows.sum())
            posterior = apart.posterior[start:stop]
            probability = np.full(value.shape, np.nan)
            value[rows] = levels[posterior.argmax(axis=1)]
            probability[rows] = posterior.max(axis=1)
            median = np.full(value.shape, np.nan)
            median[rows] = levels[(np.cumsum(posterior, axis=1) >= 0.5 - 1e-12).argmax(axis=1)]
            start = stop
        silenced = np.isin(part.users, list(abstained))
        value[silenced] = np.nan
        if probability is not None:
            probability[silenced] = np.nan
        block = Estimates(part.users, part.kind, part.index, value, probability)
        blocks.append(replace(block, median_if_rated=median))
    users = np.concatenate([part.users for part in found])
    order = np.argsort(users)
    diagnostics = {
        "left": np.concatenate([part.left for part in found])[order],
        "starts": np.concatenate([part.starts for part in found])[order],
        "misfit": np.concatenate(off)[order],
    }
    # with fresh noise it applied, also where the noise leaves nothing
    outcome = Outcome.NOTHING_FOUND if apart is not None and known.fresh else Outcome.ANSWERED
    return Reconstruction(
        attack.name, users[order], tuple(blocks), abstained, options, diagnostics, outcome=outcome
    )


def _without_rows_of(found: list[Fitted], abstained: dict[int, str]) -> list[Fitted]:
    silenced = list(abstained)
    return [replace(part, valid=part.valid & ~np.isin(part.users, silenced)[:, None]) for part in found]
