"""Ratings from rows that are linear in them, with noise: what clients share is learned, then each is read.

The arbiter asks two things of all clients together. Do levels show at all? The same model with levels that
lie twice as close, and are given as often as it turns out, stands for rows that are linear in other numbers.
What all clients say of the two together has to favour ratings, and a client's own rows may not contradict it.
And are the rows those of the items that they are said to be about? Items' factors that change places within
each client have to explain them worse.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit, logsumexp

from attacks.linear_forms.forms import Forms, some_of
from attacks.linear_forms.integral import (
    Grid,
    Modes,
    Points,
    answers,
    climbed,
    gridded,
    sampled,
    starts_of,
    with_images,
)
from attacks.linear_forms.posterior import Data, Program
from attacks.linear_forms.shared import Shared, learned, unknown
from victims.common.seeds import Purpose, generator

PASSES, FIRST_PASSES = 3, 2  # of what clients share, and each of them; to choose a program
FIRST_STEPS, STEPS = 10, 8
LEARNERS, CHOOSERS = 48, 16  # clients of whom the shared numbers are learned, and the program
AT_ONCE = 64  # clients that are read
NEVER, UP_TO_TWICE = np.arange(1), np.arange(3)  # times that a row may be in a ragged last minibatch
ROOM = (64, 256, 1024, 4096)  # rows that are compiled for; of the first so many is learned
FAVOURED = 5.0  # nats, of ratings over what is none, by all learners together
PAIRED, DEALS = 15.0, 3  # nats, of rows beside their own items over the best of so many deals of other ones
CLEARLY = 4 * PAIRED  # from where on no other deal is asked
LARGEST_NOISE, HOPELESS = 0.75, 1.0  # of a level, beyond which nothing is answered, or looked for
BESIDE = 60.0  # nats of the choosers, from where predictions have an unknown number beside
COMMON, NOTHING = 0.05, 0.1  # stars, that C of clients may be apart to be one number, or from 0 to be none
BEYOND = 2.5  # stars, that C may be beyond the levels: biases lie about 0, and have a mirror image
CLOSER = 2  # levels of what is none for each of ratings
SMOOTH = (np.log(0.8), 0.05)  # the noise of what is none, of one of its levels


class Read(NamedTuple):
    """What is read of some clients."""

    probability: Float[np.ndarray, "clients rows levels"]
    follows: Float[np.ndarray, " clients"]  # probability that its rows are linear in ratings at all
    noise: Float[np.ndarray, " clients"]  # of a level


class Model(NamedTuple):
    """What was learned of all clients."""

    program: Program
    levels: Float[np.ndarray, " levels"]  # in units of the model
    shared: Shared
    evidence: float  # nats, of the clients who were asked

    @property
    def noise(self) -> float:
        """Usual size of the noise, of a level."""
        return float(np.exp(self.shared.noise[0]))

    @property
    def own_heights(self) -> bool:
        """Whether how high a client rates is not told by what all share."""
        return bool(self.program.offset and (self.program.own or self.shared.added[1] > COMMON))


class Together(NamedTuple):
    """Ratings, and what is none, as all clients together say it."""

    ratings: Model
    none: Model
    unpaired: float  # the most evidence of ratings where items' factors change places

    @property
    def paired(self) -> bool:
        """Whether the rows know the factors of the items that they are said to be about."""
        return self.ratings.evidence - self.unpaired >= PAIRED


def unit_of(levels: Float[np.ndarray, " levels"]) -> float:
    """Of the model: a star on five-star scales."""
    return float(levels[-1] - levels[0]) / 4


def learn(forms: Forms, levels: Float[np.ndarray, " levels"], seed: int) -> Together | None:
    """Learn from some clients which program they run, and what they share; None where no ratings show."""
    scaled = levels / unit_of(levels)
    few = some_of(forms, np.arange(min(CHOOSERS, len(forms.there))))
    program = _chosen(few, scaled, seed)
    if program is None:
        return None
    ratings = _learned(forms, program, scaled, seed, PASSES)
    if ratings.noise > LARGEST_NOISE:
        return None
    gap = np.diff(scaled).min()
    # and one more on each side
    close = np.linspace(scaled[0] - gap / CLOSER, scaled[-1] + gap / CLOSER, CLOSER * (scaled.size - 1) + 3)
    none = _learned(forms, program._replace(times=NEVER), close, seed, PASSES, SMOOTH)
    if ratings.evidence - none.evidence < FAVOURED:
        return None
    rng = generator(seed, Purpose.LINEAR_FORM_DEALS)
    unpaired = -np.inf
    for _ in range(DEALS):
        unpaired = max(unpaired, _learned(_dealt(forms, rng), program, scaled, seed, PASSES).evidence)
        if not PAIRED <= ratings.evidence - unpaired < CLEARLY:
            break
    return Together(ratings, none, unpaired)


def _dealt(forms: Forms, rng: np.random.Generator) -> Forms:
    """The same rows, each beside the factor of another item of its client."""
    along = forms.along.copy()
    for client, there in enumerate(forms.there):
        here = np.flatnonzero(there)
        along[client, here] = along[client, rng.permutation(here)]
    return forms._replace(along=along)


def _chosen(forms: Forms, scaled: np.ndarray, seed: int) -> Program | None:
    """The program of most evidence: of rows, predictions and noise, and whether minibatches are ragged."""

    def better(best: Model, **options: Any) -> Model:
        program = best.program._replace(**options)
        found = _learned(forms, program, scaled, seed, PASSES if program.offset else FIRST_PASSES)
        return max(best, found, key=lambda one: one.evidence)

    best = _learned(forms, Program(1.0, 0.9, NEVER), scaled, seed, FIRST_PASSES)
    best = better(best, sign=-1.0)
    best = better(best, times=UP_TO_TWICE)
    # a scale of some rows' own is the simpler reason that rows are off the levels
    beside = better(best, offset=True)
    if beside.evidence - best.evidence >= BESIDE and _is_a_mean_or_bias(beside):
        best = beside
        best = better(best, sign=-best.program.sign)
        best = better(best, own=1.0)
    best = better(best, relative=0.0)
    return None if best.noise > HOPELESS else best.program


def _is_a_mean_or_bias(beside: Model) -> bool:
    """Whether what predictions have beside may be one: not 0, its mirror image, or far from all levels."""
    at, apart = beside.shared.added
    first, last = float(beside.levels[0]), float(beside.levels[-1])
    nearest = min(abs(at), abs(at - first - last))
    return not (apart <= NOTHING and nearest <= NOTHING) and first - BEYOND <= at <= last + BEYOND


def _learned(
    forms: Forms,
    program: Program,
    levels: np.ndarray,
    seed: int,
    n_passes: int,
    noise: tuple[float, float] | None = None,
) -> Model:
    """Learn what clients share under one program, and the noise, if it is not given."""
    rng = generator(seed, Purpose.LINEAR_FORM_POINTS)
    shared = unknown(levels, offset=bool(program.offset))
    shared = shared._replace(noise=noise or shared.noise)
    modes = None
    evidence = -np.inf
    for turn in range(n_passes):
        modes, points, data = _integrated(forms, program, levels, shared, rng, modes)
        evidence = float(points.evidence.sum())
        if turn < n_passes - 1:
            counts = answers(points, program, data, levels).sum(axis=(0, 1))
            shared = learned(shared, points, forms, program, levels, counts)
            shared = shared._replace(noise=noise or shared.noise)
    return Model(program, levels, shared, evidence)


def read(
    forms: Forms,
    together: Together,
    seed: int,
    log_prior: Float[np.ndarray, "clients rows levels"] | None = None,
) -> Read:
    """Read some clients, with what is known of their ratings already, if anything."""
    rng = generator(seed, Purpose.LINEAR_FORM_POINTS)
    model = together.ratings
    _, points, data = _integrated(
        forms, model.program, model.levels, model.shared, rng, None, log_prior, loose=model.own_heights
    )
    none = together.none
    _, others, _ = _integrated(forms, none.program, none.levels, none.shared, rng, None)
    follows = expit(points.evidence - others.evidence + np.log(9.0))
    weight = np.exp(points.log_weights() - logsumexp(points.log_weights(), axis=1, keepdims=True))
    noise = np.exp((weight * points.x[..., -1]).sum(axis=1)) / np.diff(model.levels).min()
    return Read(answers(points, model.program, data, model.levels), follows, noise)


def _integrated(
    forms: Forms,
    program: Program,
    levels: np.ndarray,
    shared: Shared,
    rng: np.random.Generator,
    before: tuple[Modes, Grid] | None,
    log_prior: np.ndarray | None = None,
    *,
    loose: bool = False,
) -> tuple[tuple[Modes, Grid], Points, Data]:
    """Modes, grid and weighted points of some clients."""
    if loose:
        shared = shared.loose(levels)
    prior = shared.prior(forms, float(np.diff(levels).min()), offset=bool(program.offset))
    shape = (*forms.there.shape, levels.size)
    each = np.broadcast_to(shared.levels if log_prior is None else log_prior, shape)
    usual = np.tile((0.0, np.inf) if loose else shared.usual(levels), (len(forms.there), 1))
    data = Data(forms.coordinates, forms.along, forms.there, each, forms.given, usual)
    found, grid = before or (None, gridded(program, data, levels))
    # which C is likely is learned: the grid's own are weighed anew
    if found is None or program.offset:
        starts = starts_of(grid, program, data, levels, prior)
        found = climbed(starts, program, data, levels, prior, FIRST_STEPS)
    if program.offset:
        found = with_images(found, program, data, levels, prior)
    found = climbed(found, program, data, levels, prior, STEPS)
    points = sampled(found, grid.table, program, data, levels, prior, rng)
    return (found, grid), points, data


def room_for(n_rows: int) -> int:
    """Rows that are compiled for, of a client with so many."""
    return next(room for room in ROOM if n_rows <= room)


def in_batches(n_rows: Int[np.ndarray, " clients"]) -> list[Int[np.ndarray, " some"]]:
    """Clients of like length together, so many at a time."""
    order = np.argsort(n_rows, kind="stable")
    rooms = np.array([room_for(int(n)) for n in n_rows[order]])
    return [
        group[start : start + AT_ONCE]
        for room in ROOM
        for group in [order[rooms == room]]
        for start in range(0, group.size, AT_ONCE)
    ]
