"""Every stream of random numbers of the program: a seed, a purpose, and the numbers that tell draws apart.

A stream is named by (seed, purpose, numbers), numbers being a round, a client, a batch. The name is written
into words of 32 bits, two for the seed and two for each number, in the order that NumPy's
``SeedSequence(seed, spawn_key=(purpose, ...))`` mixes: the seed fills the pool, everything else is mixed in
after it, zeros too. Fixed widths keep different names apart, also where one is the beginning of another or
goes on with zeros. ``default_rng([seed, 13, n])`` and ``default_rng([seed, 13, n, 0])`` are one stream, for a
list shorter than the pool is filled up with zeros.

Nothing else makes a generator (tested). The module lies on the lowest floor for all packages to use: it knows
numbers only, so that an attack that imports it learns nothing of a victim, and purposes keep an attack's
draws apart from those of the protocol that it is given the same seed as.
"""

from __future__ import annotations

import operator
from enum import IntEnum
from typing import Any, SupportsIndex

import numpy as np
from jaxtyping import UInt32

from victims.common.errors import InputError

LARGEST_SEED = 2**63 - 1  # what a signed column of a result file holds
LARGEST_NUMBER = 2**64 - 1
LOW = 0xFFFFFFFF
POOL = 4  # words of SeedSequence's pool, which the seed fills


class Purpose(IntEnum):
    """What a stream is for, one member per use.

    Values are part of recorded bytes: none is changed or reused.
    """

    SYNTHETIC_RATINGS = 100
    HELD_OUT_SHARE = 101
    HELD_OUT_NUMBER = 102
    NEW_USERS = 103
    NEW_ITEMS = 104
    POPULARITY_TIES = 105
    LEAST_SQUARES_START = 106
    FEDMVMF_START = 107
    FEDMF_START = 108
    MF_START = 109
    RATING_ORDER = 110
    SHUFFLED_VIEW = 111
    CLIENT_ORDER = 112
    TAKING_PART = 113
    LOST_UPLOADS = 114
    FOLDS = 115
    MESSAGES_TO = 116
    PDMFREC_START = 117
    PMF_START = 118
    PARTS = 119
    IMPLICIT_SHARE = 130
    SAMPLED_NEGATIVES = 131
    TRUSTED_RECEIVERS = 132
    RANDOM_WALKS = 133
    DPMF_START = 134
    PERSONAL_START = 135
    SAMPLE_ORDER = 136
    HELD_OUT_RECORDS = 137
    REFERENCE_START = 138
    DENSE_SUBSET = 139
    FEDREC_START = 160
    FEDREC_NEGATIVES = 161
    FEDREC_ORDER = 162
    COLLUDING_CLIENTS = 140

    LAPLACE_NOISE = 200
    UNRATED_SAMPLE = 201
    DECRYPTERS = 202
    USER_WEIGHTS = 203
    ITEM_WEIGHTS = 204
    PERSONALIZED_SAMPLE = 205
    SHARED_NOISE_SCALE = 206
    CLIENT_NOISE_SHARE = 207
    GAUSSIAN_NOISE = 208
    QUANTISATION = 209
    CENTRAL_SAMPLE = 220
    CENTRAL_NOISE = 221
    CENTRAL_TURNS = 222

    GUESSES = 300
    TRAJECTORY_STARTS = 301
    LIKELIHOOD_SAMPLE = 302
    POSTERIOR_DRAWS = 303
    FIXED_FACTORS = 304
    LIST_CHECKSUMS = 305
    SIGN_FLIPS = 306
    PAIRINGS = 307
    CLIENTS_SIGNS = 308
    ROW_HEIGHTS = 309
    LINEAR_FORM_LEARNERS = 310
    LINEAR_FORM_POINTS = 311
    LINEAR_FORM_DEALS = 312
    INFERENCE_FOLDS = 320
    SUPPOSED_LABELS = 330

    RECORDED_CLIENTS = 400
    ATTACKED_CLIENTS = 401
    SHUFFLED_CLIENTS = 402
    COMMUNITY = 403
    BOOTSTRAP = 404
    CANARIES = 405
    HYPOTHESIS_STARTS = 406
    TUNING = 407
    GROWING_SUBSET = 408
    BOOTSTRAP_OF_PREDICTIONS = 409
    DEALINGS = 410
    KNOWN_USERS = 420
    COMMUNITY_PERMUTATIONS = 421
    SHADOW_MODELS = 440


def generator(seed: SupportsIndex, purpose: Purpose, *numbers: SupportsIndex) -> np.random.Generator:
    """The generator of a stream.

    Parameters
    ----------
    seed : int
        In 0..2^63 - 1, as given to ``--seed``.
    purpose : Purpose
    *numbers : int
        In 0..2^64 - 1: what tells draws of one purpose apart, such as a round and a client.

    Returns
    -------
    numpy.random.Generator

    Raises
    ------
    InputError
        If the seed or a number is not a whole number in its range.

    Examples
    --------
    >>> first = generator(0, Purpose.LAPLACE_NOISE, 4).random()
    >>> first == generator(0, Purpose.LAPLACE_NOISE, 4).random()
    True
    >>> first == generator(0, Purpose.LAPLACE_NOISE, 4, 0).random()
    False
    """
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose, numbers)))


def jax_key(seed: SupportsIndex, purpose: Purpose, *numbers: SupportsIndex) -> Any:
    """Make the JAX key of a stream."""
    import jax  # here: what draws with NumPy alone needs no JAX

    words = _sequence(seed, purpose, numbers).generate_state(2, np.uint32)
    return jax.random.wrap_key_data(jax.numpy.asarray(words), impl="threefry2x32")


def checked(seed: object) -> int:
    """Turn a seed into a Python integer."""
    return _whole("seed", seed, LARGEST_SEED)


def _sequence(
    seed: SupportsIndex, purpose: Purpose, numbers: tuple[SupportsIndex, ...]
) -> np.random.SeedSequence:
    return np.random.SeedSequence(_words(seed, purpose, numbers))


def _words(
    seed: SupportsIndex, purpose: Purpose, numbers: tuple[SupportsIndex, ...]
) -> UInt32[np.ndarray, " words"]:
    """The words that SeedSequence makes of a spawn key; as an array they cost it half the time."""
    checked_seed = checked(seed)
    words = [checked_seed & LOW, checked_seed >> 32, *[0] * (POOL - 2), Purpose(purpose).value]
    for coordinate in numbers:
        whole = _whole("number of a random stream", coordinate, LARGEST_NUMBER)
        words += (whole & LOW, whole >> 32)
    return np.array(words, np.uint32)


def _whole(name: str, value: object, largest: int) -> int:
    try:
        whole = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        whole = -1
    if not 0 <= whole <= largest:
        raise InputError(
            f"the {name} must be a whole number between 0 and {largest}, got {value!r}; choose another"
        )
    return whole
