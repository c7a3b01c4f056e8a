"""Several rounds of clients with few ratings, read as one."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from attacks.client_rules.local_steps import LocalSteps
from attacks.inversion.answers import Found
from attacks.inversion.attack import Inversion
from attacks.inversion.guess import Guess
from attacks.inversion.rounds_together import told_together
from attacks.inversion.several_rounds import (
    MOST_ROUNDS,
    RoundAfterRound,
    Together,
    spare_together,
    together,
)
from attacks.inversion.told import Told
from tests.attacks.inversion.test_inversion import score
from tests.oracles.local_training import Client
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder

pytestmark = pytest.mark.usefixtures("optimised")
LEVELS = np.arange(1.0, 6.0)
SIZES = (1, 1, 2, 2, 3, 4)  # ratings of each client; the first drops out of the second round
ITEMS = 20


def record(
    path: Path, n_rounds: int, *, anew: bool = False, rerated: bool = False, dtype: type = np.float64
) -> np.ndarray:
    """Three local steps in each round, two factors; the ratings of the last one.

    Clients keep their factor and their ratings, or draw factors anew, or rate anew, in each round.
    """
    rng = np.random.default_rng(4)
    q, u = rng.normal(0, 0.4, (ITEMS, 2)).astype(dtype), rng.normal(0, 0.4, (len(SIZES), 2))
    own = [np.sort(rng.choice(ITEMS, n, replace=False)) for n in SIZES]
    ratings = np.zeros((len(SIZES), ITEMS))
    with Recorder(path, rating_levels=LEVELS, rule={"upload": "weights", "local_steps": 3}) as recorder:
        for round_ in range(n_rounds):
            recorder.broadcast(round_, q)
            after = q.copy()
            for user, items in enumerate(own):
                if round_ == 0 or rerated:
                    ratings[user, items] = rng.choice(LEVELS, items.size)
                if anew:
                    u[user] = rng.normal(0, 0.4, 2)
                if (user, round_) != (0, 1):
                    copy, u[user] = Client(dtype=dtype).train(u[user], ratings[user, items], q[items])
                    recorder.upload(round_, user, copy, items)
                    after[items] += (copy - q[items]) / len(SIZES)
            q = after
    return ratings


def read(path: Path) -> tuple[Together, Told]:
    """Whose rounds are together, and what they tell under three steps at one rate."""
    view = open_transcript(path).view("server")
    (batch,) = view.batches()
    (group,) = together(view, batch, Found(view))
    rule = LocalSteps()
    return group, told_together(rule, Guess(rule.families(view.manifest)[0], 3.0), group, LEVELS)


@pytest.mark.thorough
def test_the_limit_of_two_factors(tmp_path: Path):
    """One rating takes three rounds, more of them take two; a single one would tell nobody's."""
    ratings = record(tmp_path / "t", 3)
    group, new = read(tmp_path / "t")
    assert group.n_rounds.tolist() == [2, 3, 3, 3, 3, 3]
    assert new.answered.tolist() == [False, True, True, True, True, True]
    truth = np.take_along_axis(ratings[group.users], group.items, axis=1)
    there = new.answered[:, None] & group.first.item
    np.testing.assert_array_equal(new.ratings[there], truth[there])


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("change", ["anew", "rerated"])
def test_rounds_that_do_not_belong_together_are_no_answer(tmp_path: Path, change: str, dtype: type):
    record(tmp_path / "t", 3, **{change: True}, dtype=dtype)
    _, new = read(tmp_path / "t")
    assert (new.spare >= 2).sum() == 5
    assert not new.answered.any()


@pytest.mark.thorough
def test_several_rounds_tell_the_rule_where_no_client_tells_it_by_one(tmp_path: Path):
    """Who never gave the highest level may have rated a level higher: there is nobody who settles that."""
    record(tmp_path / "one", 1)
    ratings = record(tmp_path / "four", 4)
    attack = Inversion("local-steps", 1)
    assert not attack.attack(open_transcript(tmp_path / "one").view("server"), 0).blocks
    found = attack.attack(open_transcript(tmp_path / "four").view("server"), 0)
    settled = ratings.max(axis=1) == LEVELS[-1]
    assert settled.sum() == 3
    assert score(found, ratings) == (int((ratings[settled] > 0).sum()), 0)
    assert sorted(found.abstained) == np.flatnonzero(~settled).tolist()


def test_rounds_after_one_another_are_those_of_the_rule():
    """A round in which the client took no part leaves its factor as it is."""
    rng = np.random.default_rng(0)
    u, r, q = (jnp.array(rng.normal(size=shape)) for shape in (3, 4, (2, 4, 3)))
    rule, constants = LocalSteps(), jnp.array([np.log(0.1), 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 1.0, 0.0])
    first, between = rule.upload(u, r, q[0], constants)
    second, after = rule.upload(between, r, q[1], constants)
    none = jnp.zeros((4, 3))
    broadcast = jnp.concatenate([q[0], none, q[1], none])
    rows, last = RoundAfterRound(rule).upload(u, r, broadcast, constants)
    assert MOST_ROUNDS == 4
    np.testing.assert_allclose(rows, np.concatenate([first, none, second, none]), rtol=1e-12)
    np.testing.assert_allclose(last, after, rtol=1e-12)


def test_a_further_round_is_no_more_equations_than_numbers():
    n = np.arange(1, 7)
    for k in (2, 3, 10):
        two, three = (spare_together(n, k, 1, np.full(6, rounds)) for rounds in (2, 3))
        assert (three > two).all()
        assert (three - two <= n * k).all()
