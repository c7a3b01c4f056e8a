"""Ratings of several local steps, by a search over the client's factor and constants."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import factorleak as fl
from attacks.base import Reconstruction
from attacks.client_rules.differentiable import Family
from attacks.client_rules.local_updates import LocalUpdates
from attacks.closed_form.numbers.integer_relation import Relation
from attacks.closed_form.uploads.readings import Rows
from attacks.inversion.answers import Found
from attacks.inversion.attack import Inversion
from attacks.inversion.least_squares import Guess
from attacks.inversion.search import told
from tests.oracles.local_training import HALF_STARS, Client, Program
from tests.tools.identify import counted
from victims.common.errors import InputError
from victims.transcript.manifest import Manifest
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder

# Local steps read back, by span and by fit; rules of one's own.


pytestmark = pytest.mark.usefixtures("optimised")


def score(found: Reconstruction, ratings: np.ndarray) -> tuple[int, int]:
    """Ratings that are right, and wrong."""
    user, _, index, value, _ = (np.concatenate(part) for part in zip(*found.rows(), strict=True))
    right = ratings[user, index] == value
    return int(right.sum()), int((~right).sum())


@pytest.mark.parametrize(
    ("program", "least"),
    [
        pytest.param(Program(), 1.0, marks=pytest.mark.thorough),
        pytest.param(Program(Client(dtype=np.float32)), 0.98, marks=pytest.mark.thorough),
        pytest.param(Program(Client(mean=True, rate=0.5), "delta"), 0.98, marks=pytest.mark.thorough),
        pytest.param(Program(Client(steps=20, rate=0.01)), 0.9, marks=pytest.mark.thorough),
        pytest.param(Program(biases=True), 1.0, marks=pytest.mark.thorough),
    ],
    ids=lambda one: str(one) if isinstance(one, float) else f"{one.client} {one.upload} {one.biases}",
)
def test_local_steps_are_read(program: Program, least: float, tmp_path: Path):
    ratings = program.record(tmp_path / "t", {"upload": program.upload})
    found = Inversion().attack(open_transcript(tmp_path / "t").view("server"), 0)
    right, wrong = score(found, ratings)
    assert wrong == 0
    assert right >= least * (ratings > 0).sum()


@pytest.mark.thorough
@pytest.mark.parametrize("rounded", [8, 2.0**-24], ids=["eight decimals", "24 bits"])
def test_changes_that_were_rounded_to_so_many_places(tmp_path: Path, rounded: float):
    """As for encryption or masks. Before: nobody was answered."""
    rng = np.random.default_rng(0)
    q, ratings = rng.normal(0, 0.3, (60, 5)), np.zeros((12, 60))
    with Recorder(tmp_path / "t", rating_levels=[1, 2, 3, 4, 5], rule={"upload": "delta"}) as recorder:
        recorder.broadcast(0, q)
        for user, own in enumerate(ratings):
            rated, p = np.sort(rng.choice(60, rng.integers(3, 20), replace=False)), rng.normal(0, 0.3, 5)
            own[rated] = rng.integers(1, 6, rated.size)
            copy = q[rated]
            for _ in range(3):
                error = 0.01 * (own[rated] - copy @ p)
                copy, p = copy + error[:, None] * p, p + error @ copy
            change = copy - q[rated]
            places = change.round(8) if rounded == 8 else np.rint(change / rounded) * rounded
            recorder.upload(0, user, places, rated)
    right, wrong = score(
        Inversion(rounds=1).attack(open_transcript(tmp_path / "t").view("server"), 0), ratings
    )
    assert wrong == 0
    assert right >= 0.9 * (ratings > 0).sum()


@pytest.mark.thorough
def test_few_ratings_need_the_rule_and_more_equations_than_unknowns(tmp_path: Path):
    """Five ratings and five factors: 25 equations about 10 unknowns and a rate; by the span alone, nobody."""
    ratings = Program(density=0.08, n_users=12).record(
        tmp_path / "t", {"upload": "weights", "local_steps": 3}
    )
    found = Inversion().attack(open_transcript(tmp_path / "t").view("server"), 0)
    right, wrong = score(found, ratings)
    n_rated = (ratings > 0).sum(axis=1)
    assert wrong == 0
    assert right >= 0.8 * n_rated[n_rated >= 3].sum()
    single = [user for user, reason in found.abstained.items() if "are needed" in reason]
    assert all(n_rated[user] < 3 for user in single)
    assert found.options["hypothesis"].startswith("3 steps")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("client", "rule", "told"),
    [
        (Client(momentum=0.9), "local-momentum", "one rate, momentum 0.9"),
        (Client(momentum=0.6), "local-momentum", "one rate and momentum"),
        (Client(momentum=0.9, dtype=np.float32), "any", "one rate, momentum 0.9"),
        (Client(momentum=0.9, nesterov=True), "local-momentum", "one rate, momentum 0.9, Nesterov's"),
    ],
    ids=["0.9", "0.6", "single precision, nothing named", "Nesterov's"],
)
def test_momentum_between_the_steps_of_clients_with_few_ratings(
    tmp_path: Path, client: Client, rule: str, told: str
):
    """From none on in every round; no client has more ratings than factors. Before: nobody was answered."""
    ratings = Program(client, "delta", density=0.08, n_users=6).record(tmp_path / "t", {"local_steps": 3})
    found = Inversion(rule, rounds=1).attack(open_transcript(tmp_path / "t").view("server"), 0)
    right, wrong = score(found, ratings)
    n_rated = (ratings > 0).sum(axis=1)
    assert wrong == 0
    assert right >= 0.8 * n_rated[n_rated >= 3].sum()
    assert told in found.options["hypothesis"]


@pytest.mark.thorough
def test_noise_is_no_answer(tmp_path: Path):
    rng = np.random.default_rng(0)
    q = rng.normal(size=(30, 4))
    with Recorder(tmp_path / "t", rating_levels=[1, 2, 3, 4, 5], rule={"local_steps": 2}) as recorder:
        recorder.broadcast(0, q)
        recorder.upload(0, 0, rng.normal(size=(3, 4)), rng.choice(30, 3, replace=False))
    found = Inversion().attack(open_transcript(tmp_path / "t").view("server"), 0)
    assert not found.blocks
    assert len(found.abstained) == 1


def bounded(error):
    """The derivative of the pseudo-Huber loss."""
    return error / (1 + error**2 / 4) ** 0.5


@dataclass(frozen=True)
class HuberSteps:
    """Three steps on errors that are bounded smoothly: a rule that nobody here has written."""

    name: str = "huber"
    mixes_rows: bool = False

    def families(self, manifest):
        """The rate is open."""
        return (
            Family(
                "", (True,), (0.0,), None, lambda _, sigma, __: (float(np.log(sigma / 3)),), lambda c, _: c
            ),
        )

    def upload(self, factor, ratings, factors, constants):
        """The change of the client's copy."""
        rate, copy = jnp.exp(constants[0]), factors
        for _ in range(3):
            error = rate * bounded(ratings - copy @ factor)
            copy, factor = copy + error[:, None] * factor, factor + error @ copy
        return copy - factors, factor


@pytest.mark.thorough
def test_a_rule_of_ones_own(tmp_path: Path):
    rng = np.random.default_rng(1)
    q = rng.normal(0, 0.5, (12, 4))
    ratings = np.zeros((4, 12))
    with Recorder(tmp_path / "t", rating_levels=[1, 2, 3, 4, 5]) as recorder:
        recorder.broadcast(0, q)
        for user in range(4):
            items, p, copy = rng.choice(12, 6, replace=False), rng.normal(0, 0.5, 4), q.copy()
            ratings[user, items] = rng.integers(1, 6, 6)
            for _ in range(3):
                error = 0.05 * bounded(ratings[user] - copy @ p) * (ratings[user] > 0)
                copy, p = copy + error[:, None] * p, p + error @ copy
            recorder.upload(0, user, (copy - q)[items], items)
    found = Inversion(HuberSteps()).attack(open_transcript(tmp_path / "t").view("server"), 0)
    assert found.options["rule"] == "huber"
    right, wrong = score(found, ratings)
    assert wrong == 0
    assert right >= 18


@pytest.mark.parametrize("rule", ["no-such-rule", object()])
def test_what_is_no_rule_is_refused(rule: object):
    with pytest.raises(InputError, match="rule of inversion must"):
        Inversion(rule)


def test_an_item_that_padding_names_keeps_its_rating(tmp_path: Path):
    """The first item's rating is known of a client with fewer rows than another."""
    rng = np.random.default_rng(0)
    with Recorder(tmp_path / "t", rating_levels=[1, 2, 3, 4, 5]) as recorder:
        recorder.broadcast(0, rng.normal(0, 1, (3, 2)))
        recorder.upload(0, 0, rng.normal(0, 1, (2, 2)), [0, 2])
        recorder.upload(0, 1, rng.normal(0, 1, (3, 2)), [0, 1, 2])
    view = open_transcript(tmp_path / "t").view("server")
    found, told, none = Found(view), np.array([True, True]), np.zeros(2)
    value = np.array([[5.0, 3.0, np.nan], [1.0, 2.0, 4.0]])
    found.add_by_span(view.users, np.array([[0, 2, 0], [0, 1, 2]]), Relation(value, told, none, none, none))
    assert found.ratings[0] == {0: 5.0, 2: 3.0}


def test_clients_who_send_in_some_rounds_only(tmp_path: Path):
    """A neighbour whose link is new has no rows of the round before. Before: ValueError."""
    rng = np.random.default_rng(3)
    q = rng.normal(0, 0.4, (20, 4))
    with Recorder(tmp_path / "silent", rating_levels=range(1, 6)) as recorder:
        for round_ in range(2):
            recorder.broadcast(round_, q)
            recorder.upload(round_, round_, rng.normal(0, 1, (8, 4)), rng.permutation(20)[:8])
    found = fl.attack(tmp_path / "silent", "inversion")
    assert sorted(found.abstained) == [0, 1]


def test_one_step_with_a_pull_of_the_items_is_none_of_several(tmp_path: Path):
    """Through the public face. Before: all families of steps were fitted to it, in vain."""
    ratings = fl.synthetic(users=8, items=20, ratings_per_user=6)
    fl.record(tmp_path / "t", ratings, victim="fedmf", factors=5, rounds=[0])
    found = fl.attack(tmp_path / "t", "inversion", rounds=1)
    assert found.attack == "inversion"
    assert all("one step, of which undeclared reads" in reason for reason in found.abstained.values())
    assert found.abstained
    assert not set(fl.attack(tmp_path / "t", "undeclared").abstained) >= set(found.abstained)


# Uploads that a client clips as a whole, by plain NumPy.


STARS = np.arange(1.0, 6.0)


def recorded(path: Path, clip: float, *, number: type = np.float64, declared: bool = True) -> np.ndarray:
    """Six clients of 4 to 9 ratings, four factors, three steps; returns the ratings, 0 where unrated."""
    rng = np.random.default_rng(3)
    q, ratings = rng.normal(0, 0.4, (20, 4)).astype(number), np.zeros((6, 20))
    with Recorder(path, rating_levels=STARS, rule={"local_steps": 3} if declared else {}) as recorder:
        recorder.broadcast(0, q)
        for user in range(6):
            items = np.sort(rng.choice(20, 4 + user, replace=False))
            ratings[user, items] = rng.integers(1, 6, items.size)
            ratings[user, items[:2]] = 1, 5
            copy, p = q[items], rng.normal(0, 0.4, 4).astype(number)
            for _ in range(3):
                error = (ratings[user, items] - copy @ p).astype(number)
                copy, p = copy + number(0.02) * error[:, None] * p, p + number(0.02) * error @ copy
            change = copy - q[items]
            recorder.upload(0, user, change * number(min(1, clip / np.linalg.norm(change))), items)
    return ratings


@pytest.mark.thorough
@pytest.mark.parametrize(
    "program",
    [{"clip": 0.15}, {"clip": 0.05, "declared": False}, {"clip": 0.15, "number": np.float32}],
    ids=["some", "all", "some, single precision"],
)
def test_uploads_that_are_clipped_as_a_whole_are_read(tmp_path: Path, program: dict):
    """By undeclared, whatever the clipping; nobody is answered wrongly under one rate for all."""
    ratings = recorded(tmp_path / "t", **program)
    answered, wrong = counted(fl.attack(tmp_path / "t", "undeclared"), ratings, tuple(STARS))
    assert wrong == 0
    assert answered >= 0.8 * (ratings > 0).sum()
    found = Inversion("local-steps", rounds=1).attack(open_transcript(tmp_path / "t").view("server"), 0)
    assert all((ratings[user, item] == value).all() for user, _, item, value, _ in found.rows())


# Whose ratings a fit tells: where the length of factors is open, those with one multiple on the grid.


PLAIN = Manifest(
    format="factorleak-transcript", version=2, protocol="strange", update=None, weighting="observed-only",
    n_users=2, n_items=8, n_attributes=0, factors=4, rounds=[0], rating_levels=HALF_STARS.tolist(),
    declared_rule={},
)  # fmt: skip


@pytest.mark.thorough
def test_two_rates_leave_whole_stars_open_to_their_halves():
    """The first rows are those of 1.5 and 2, a factor twice as long and other rates, too: answered before."""
    rng = np.random.default_rng(5)
    factors = rng.normal(0, 0.4, (2, 8, 4))
    ratings = np.array([[3, 4, 4, 3, 4, 4, 3, 4], [3.5, 4, 4, 3, 4, 4, 3, 4]])
    client = Client(steps=3, rate=0.02)
    copies = [client.train(rng.normal(0, 0.4, 4), r, q)[0] for r, q in zip(ratings, factors, strict=True)]
    item = np.ones((2, 8), bool)
    rows = Rows(np.stack(copies) - factors, factors, np.zeros((2, 8)), item, np.ones(2), 2.2e-16, None)
    rule = LocalUpdates()
    family = next(one for one in rule.families(PLAIN) if one.multiples)
    new = told(rule, Guess(family, 3.0), rows, HALF_STARS)
    assert new.explained.tolist() == [True, True]
    assert new.answered.tolist() == [False, True]
    np.testing.assert_array_equal(new.ratings[1], ratings[1])
