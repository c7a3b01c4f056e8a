"""Streams of random numbers: different names, different streams; and nothing else makes a generator."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from audit.factories import make_defenses, make_victim
from defenses.heterogeneous import ObjectiveNoise
from victims.common.errors import InputError
from victims.common.seeds import LARGEST_NUMBER, LARGEST_SEED, Purpose, checked, generator, jax_key
from victims.protocols.base import Rows
from victims.recording import record
from victims.transcript.reader import open_transcript

PACKAGES = ("audit", "victims", "attacks", "defenses", "reports")
ROOT = Path(__file__).resolve().parents[3]
SMALL = st.integers(0, 3) | st.sampled_from([2**32 - 1, 2**32, 2**32 + 1, 2**63, LARGEST_NUMBER])
NAMES = st.tuples(
    st.integers(0, 3) | st.sampled_from([2**32, 2**32 + 1, LARGEST_SEED]),
    st.sampled_from(Purpose),
    st.lists(SMALL, max_size=5),
)


def drawn(name):
    seed, purpose, numbers = name
    return generator(seed, purpose, *numbers).integers(0, 2**63, 2).tolist()


@settings(max_examples=200, deadline=None)
@given(NAMES, NAMES)
def test_different_names_give_different_streams(one, other):
    assume(one != other)
    assert drawn(one) != drawn(other)


@settings(max_examples=50, deadline=None)
@given(NAMES, st.lists(SMALL, min_size=1, max_size=3))
def test_a_name_that_goes_on_is_another_stream(name, more):
    """Also with zeros, which NumPy fills short lists up with."""
    seed, purpose, numbers = name
    zeros = [0] * len(more)
    streams = [drawn((seed, purpose, tail)) for tail in ([*numbers], [*numbers, *more], [*numbers, *zeros])]
    assert streams[0] != streams[1]
    assert streams[0] != streams[2]


def test_wide_numbers_and_seeds_do_not_run_into_their_neighbours():
    """As lists of words of 32 bits, all of a line would be one."""
    purpose = Purpose.LAPLACE_NOISE
    for names in (
        [(0, purpose, (2**32,)), (0, purpose, (0, 1)), (0, purpose, (0, 1, 0))],
        [(5 + (purpose << 32), purpose, ()), (5, purpose, (purpose,)), (5, purpose, ())],
        [(2**32, purpose, (7,)), (0, purpose, (1, 7)), (0, purpose, (7, 1)), (1, purpose, (0, 7))],
    ):
        streams = [tuple(drawn(name)) for name in names]
        assert len(set(streams)) == len(streams)


def test_the_words_are_those_of_a_spawn_key():
    """NumPy's own derivation, two words for each number."""
    key = (int(Purpose.UNRATED_SAMPLE), 4, 0, 3, 1)
    expected = np.random.default_rng(np.random.SeedSequence(11, spawn_key=key))
    found = generator(11, Purpose.UNRATED_SAMPLE, 4, 2**32 + 3)
    np.testing.assert_array_equal(found.integers(0, 2**63, 5), expected.integers(0, 2**63, 5))


@settings(max_examples=25, deadline=None)
@given(NAMES, NAMES)
def test_jax_keys_differ_as_streams_do(one, other):
    assume(one != other)
    first, second = (jax.random.key_data(jax_key(seed, what, *rest)) for seed, what, rest in (one, other))
    assert (first != second).any()


@pytest.mark.parametrize("seed", [-1, 2**63, 10**30])
def test_impossible_seeds_are_refused(seed):
    for make in (generator, jax_key):
        with pytest.raises(InputError, match=f"the seed must be a whole number between 0 and {LARGEST_SEED}"):
            make(seed, Purpose.BOOTSTRAP)


@pytest.mark.parametrize("seed", [1.5, float("nan"), "1", None])
def test_seeds_are_whole_numbers(seed):
    with pytest.raises(InputError, match="the seed must be a whole number"):
        checked(seed)


@pytest.mark.parametrize("number", [-1, 2**64])
def test_impossible_numbers_are_refused(number):
    with pytest.raises(InputError, match="the number of a random stream must be a whole number between 0"):
        generator(0, Purpose.BOOTSTRAP, 3, number)


def test_numpy_integers_are_numbers():
    assert drawn((np.int64(3), Purpose.BOOTSTRAP, [np.uint32(7)])) == drawn((3, Purpose.BOOTSTRAP, [7]))


def test_a_seed_that_is_too_large_is_wrong_usage(run, tmp_path):
    code, _, error = run("record", tmp_path / "nowhere", "--seed", 2**63)
    assert code == 2
    assert f"seed of a recording must be a whole number from 0 to {LARGEST_SEED:,}, got" in error


def test_the_shared_noise_says_nothing_of_a_client(ratings):
    """Client 0's own noise about item 0 against h, which the recommender knows, over 1000 rounds.

    Of one stream (as lists that end in zeros were) their rank correlation is 13 standard deviations here,
    and that of the sizes 11; independent ones have more than 4 once in 16,000 seeds.
    """
    defense, zero = ObjectiveNoise(noise="fresh"), np.zeros(1, np.int32)
    shares, shared = [], []
    for number in range(1000):
        scale = defense.noise_scale(ratings, 20, number, 2)[:1]
        noise = defense.uploaded(Rows(zero, zero, zero, np.zeros((1, 20))), ratings, number, 2).gradient
        shares.append(noise / scale)
        shared.append(scale**2)
    share, h = np.array(shares).ravel(), np.array(shared).ravel()
    for part in (share, np.abs(share)):
        assert abs(stats.spearmanr(part, h).statistic) * np.sqrt(h.size) < 4


@pytest.mark.parametrize(
    ("victim", "defense"),
    [("fedmvmf", "unrated-sampling+laplace:b=2"), ("mf", "objective-noise:noise=fresh")],
)
def test_who_else_is_recorded_changes_no_byte_of_a_client(ratings, tmp_path, victim, defense):
    options = {"weighting": "include-unrated"} if victim == "fedmvmf" else {}
    for name, users in (("all", None), ("two", [17, 5])):
        record(
            make_victim(victim, options),
            ratings,
            tmp_path / name,
            rounds=[0, 1],
            users=users,
            defenses=make_defenses(defense),
            seed=4,
        )
    whole, part = (open_transcript(tmp_path / name).view("server") for name in ("all", "two"))
    chosen = whole.select(np.array([5, 17]))
    np.testing.assert_array_equal(
        np.concatenate(part.messages.gradient), np.concatenate(chosen.messages.gradient)
    )


def test_the_module_needs_no_jax():
    code = (
        "import sys, victims.common.seeds as s; s.generator(0, s.Purpose.MF_START); "
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_every_purpose_has_a_use_and_those_of_attacks_no_other():
    """So that an attack shares no stream with the protocol that it attacks."""
    used = {purpose.name: set() for purpose in Purpose}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for name in re.findall(r"\bPurpose\.([A-Z_0-9]+)", path.read_text()):
                if path.name != "seeds.py":
                    used[name].add(package)
    assert not [name for name, where in used.items() if not where or ("attacks" in where and len(where) > 1)]
