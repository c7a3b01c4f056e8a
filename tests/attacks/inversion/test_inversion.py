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
from attacks.client_rules.local_steps import LocalSteps
from attacks.closed_form.implicit.implicit_recording import OPEN_LABEL
from attacks.closed_form.numbers.integer_relation import Relation
from attacks.closed_form.uploads.readings import Rows
from attacks.inversion.answers import Found
from attacks.inversion.attack import Inversion
from attacks.inversion.guess import Guess
from attacks.inversion.pairs import NO_PAIRS, RATINGS
from attacks.inversion.rounds_together import told_together
from attacks.inversion.search import told
from attacks.inversion.several_rounds import MOST_ROUNDS, RoundAfterRound, Together, spare_together, together
from attacks.inversion.solved import UNEXPLAINED, WITH_ATTRIBUTES
from attacks.inversion.told import Told
from factorleak import plugins
from tests.oracles.local_training import HALF_STARS, Client, Program
from tests.oracles.paired_client import trained
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


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "least"),
    [
        (Program(Client(dtype=np.float32)), 0.98),
        (Program(Client(mean=True, rate=0.5), "delta"), 0.98),
        (Program(biases=True), 1.0),
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
def test_changes_that_were_rounded_to_so_many_places(tmp_path: Path):
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
            recorder.upload(0, user, np.rint(change * 2**24) / 2**24, rated)
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
    found = Inversion("local-steps").attack(open_transcript(tmp_path / "t").view("server"), 0)
    right, wrong = score(found, ratings)
    n_rated = (ratings > 0).sum(axis=1)
    assert wrong == 0
    assert right >= 0.8 * n_rated[n_rated >= 3].sum()
    single = [user for user, reason in found.abstained.items() if "are needed" in reason]
    assert all(n_rated[user] < 3 for user in single)
    assert found.options["hypothesis"].startswith("3 steps")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("client", "told"),
    [
        (Client(momentum=0.6), "one rate and momentum"),
        (Client(momentum=0.9, nesterov=True), "one rate, momentum 0.9, Nesterov's"),
    ],
    ids=["0.6", "Nesterov's"],
)
def test_momentum_between_the_steps_of_clients_with_few_ratings(tmp_path: Path, client: Client, told: str):
    """From none on in every round; no client has more ratings than factors. Before: nobody was answered."""
    ratings = Program(client, "delta", density=0.08, n_users=6).record(tmp_path / "t", {"local_steps": 3})
    found = Inversion("local-momentum", 1).attack(open_transcript(tmp_path / "t").view("server"), 0)
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
    found = Inversion("local-steps").attack(open_transcript(tmp_path / "t").view("server"), 0)
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


# Several steps with a bias of the client, and uploads that a client clips as a whole, by plain NumPy.


STARS = np.arange(1.0, 6.0)


def recorded(
    path: Path,
    *,
    bias: float | None = None,
    of_items: float = 0.0,
    clip: float = np.inf,
    highest: int = 5,
    number: type = np.float64,
    declared: bool = True,
) -> np.ndarray:
    """Six clients of 4 to 9 ratings, four factors, three steps; returns the ratings, 0 where unrated."""
    rng = np.random.default_rng(3)
    q, ratings = rng.normal(0, 0.4, (20, 4)).astype(number), np.zeros((6, 20))
    biases = rng.normal(0, of_items, 20).astype(number)
    with Recorder(path, rating_levels=STARS, rule={"local_steps": 3} if declared else {}) as recorder:
        recorder.broadcast(0, q, **({"biases": biases} if of_items else {}))
        for user in range(6):
            items = np.sort(rng.choice(20, 4 + user, replace=False))
            ratings[user, items] = rng.integers(1, highest + 1, items.size)
            ratings[user, items[:2]] = 1, highest
            copy, p = q[items], rng.normal(0, 0.4, 4).astype(number)
            b = number(0 if bias is None else rng.normal(0, bias))
            for _ in range(3):
                error = (ratings[user, items] - biases[items] - copy @ p - b).astype(number)
                copy, p = copy + number(0.02) * error[:, None] * p, p + number(0.02) * error @ copy
                b = b if bias is None else b + number(0.02) * error.sum()
            change = copy - q[items]
            recorder.upload(0, user, change * number(min(1, clip / np.linalg.norm(change))), items)
    return ratings


def answer(path: Path, rule: str) -> Reconstruction:
    return Inversion(rule, rounds=1).attack(open_transcript(path).view("server"), 0)


def score_of_own_bias(found: Reconstruction, ratings: np.ndarray) -> tuple[int, int]:
    """Ratings that are right, and wrong."""
    right = wrong = 0
    for user, _, index, value, _ in found.rows():
        right += int((ratings[user, index] == value).sum())
        wrong += int((ratings[user, index] != value).sum())
    return right, wrong


@pytest.mark.thorough
@pytest.mark.parametrize(
    "program",
    [
        {"bias": 0.0, "number": np.float32, "declared": False},
        {"bias": 0.4, "of_items": 0.4},  # all use both ends of the grid
    ],
    ids=["single precision, undeclared", "of its own beside items'"],
)
def test_a_bias_that_moves_is_read(tmp_path: Path, program: dict):
    ratings = recorded(tmp_path / "t", **program)
    right, wrong = score_of_own_bias(answer(tmp_path / "t", "any"), ratings)
    assert wrong == 0
    assert right >= 0.8 * (ratings > 0).sum()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "program",
    [
        {"bias": 0.4},  # mirrored
        {"bias": 0.4, "of_items": 0.4, "highest": 4},  # all a level higher
    ],
    ids=["no biases of items", "room for a level"],
)
def test_what_a_bias_leaves_open_is_not_answered(tmp_path: Path, program: dict):
    recorded(tmp_path / "t", **program)
    found = answer(tmp_path / "t", "local-biases")
    assert not found.blocks
    assert len(found.abstained) == 6


@pytest.mark.thorough
def test_uploads_that_are_clipped_as_a_whole_are_read(tmp_path: Path):
    ratings = recorded(tmp_path / "t", clip=0.05, declared=False)
    right, wrong = score_of_own_bias(answer(tmp_path / "t", "local-steps"), ratings)
    assert wrong == 0
    assert right >= 0.8 * (ratings > 0).sum()


# Several steps on the pairwise loss of implicit feedback, read back.


N_ITEMS = 60


def recorded_of_pairs(
    path: Path, *, each: bool, fresh: bool = True, steps: int = 3, noise: float = 0.0, rule: dict
):
    """Six clients in two rounds, who draw one negative for each of four to eight positives."""
    rng = np.random.default_rng(0)
    v, used = rng.normal(0, 0.5, (N_ITEMS, 4)), np.zeros((6, N_ITEMS))
    with fl.Recorder(path, rating_levels=[1.0], rule=rule) as recorder:
        factors, drawn = rng.normal(0, 0.5, (6, 4)), {}
        for user, own in enumerate(used):
            own[rng.choice(N_ITEMS, 4 + user % 5, replace=False)] = 1
        for number in range(2):
            recorder.broadcast(number, v)
            for user, own in enumerate(used):
                a = np.flatnonzero(own)
                if fresh or not number:
                    drawn[user] = rng.permutation(np.flatnonzero(own == 0))[: a.size]
                items = np.concatenate([a, b := drawn[user]])
                place = {int(item): k for k, item in enumerate(items)}
                pairs = [(i, j) for i in a for j in b] if each else zip(a, b, strict=True)
                pairs = [(place[int(i)], place[int(j)]) for i, j in pairs]
                rows, factors[user] = trained(
                    factors[user], v[items], pairs, steps=steps, rate=0.1, decay=0.0, item_decay=0.0
                )
                recorder.upload(number, user, rows + noise * rng.normal(size=rows.shape), items)
    return used


@pytest.mark.thorough
def test_positives_are_named(tmp_path: Path):
    """Also by ``any``, where the loss is declared; undeclared reads one step alone."""
    used = recorded_of_pairs(tmp_path / "t", each=False, rule={"loss": "bpr"})
    found = fl.attack(tmp_path / "t", plugins.Inversion())
    assert not found.abstained
    answers = 0
    for column in found.columns():
        told = np.isfinite(column["value"])
        assert (column["value"] == used[column["user"], column["index"]])[told].all()
        answers += int((column["value"][told] > 0).sum())
    assert answers == used.sum()
    assert found.options["hypothesis"].startswith("3 steps on pairs")


@pytest.mark.thorough
def test_a_number_of_steps_that_is_declared_wrongly_is_not_believed(tmp_path: Path):
    used = recorded_of_pairs(tmp_path / "t", each=True, rule={"loss": "bpr", "local_steps": 2})
    found = fl.attack(tmp_path / "t", plugins.Inversion("bpr"))
    assert not found.abstained
    assert found.options["hypothesis"].startswith("3 steps on each negative")
    rated = sum(int((column["value"] > 0).sum()) for column in found.columns())
    assert rated == used.sum()


@pytest.mark.thorough
def test_negatives_that_are_kept_leave_open_which_they_are(tmp_path: Path):
    """With the factor negated and all labels exchanged the same rows are sent."""
    recorded_of_pairs(tmp_path / "t", each=False, fresh=False, rule={"loss": "bpr", "local_steps": 3})
    found = fl.attack(tmp_path / "t", plugins.Inversion("bpr"))
    assert set(found.abstained.values()) == {OPEN_LABEL}


@pytest.mark.thorough
def test_other_rows_and_other_grids_are_not_answered(tmp_path: Path):
    recorded_of_pairs(tmp_path / "t", each=True, noise=1e-3, rule={"loss": "bpr", "local_steps": 3})
    found = fl.attack(tmp_path / "t", plugins.Inversion("bpr"))
    assert set(found.abstained.values()) == {NO_PAIRS}
    with fl.Recorder(tmp_path / "stars", rating_levels=[1.0, 2.0]) as recorder:
        recorder.broadcast(0, np.eye(4))
        recorder.upload(0, 0, np.ones((4, 4)), np.arange(4))
    assert set(fl.attack(tmp_path / "stars", plugins.Inversion("bpr")).abstained.values()) == {RATINGS}


# Several rounds of clients with few ratings, read as one.


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
@pytest.mark.parametrize(("change", "dtype"), [("anew", np.float64), ("rerated", np.float32)])
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
    rule = LocalSteps()
    family = next(one for one in rule.families(PLAIN) if one.multiples)
    new = told(rule, Guess(family, 3.0), rows, HALF_STARS)
    assert new.explained.tolist() == [True, True]
    assert new.answered.tolist() == [False, True]
    np.testing.assert_array_equal(new.ratings[1], ratings[1])


# Clients that solve for their factor, read back under the rule that says so.


LEVELS_SOLVED = [1.0, 2.0, 3.0, 4.0, 5.0]
RULE = {"rule": "semi-als", "order": "batch", "loss": "squared"}


def recorded_of_solved(
    path: Path, *, ridge: float = 2.0, scale: float = 1.0, told: dict, tied: bool = True
) -> np.ndarray:
    """Six clients of ridge regression; ratings (users, items), 0 unrated."""
    rng = np.random.default_rng(0)
    q, truth = rng.normal(0, 0.5, (40, 5)), np.zeros((6, 40))
    with fl.Recorder(path, rating_levels=LEVELS_SOLVED, rule=RULE, constants=told) as recorder:
        recorder.broadcast(0, q)
        for user, own in enumerate(truth):
            items = rng.choice(40, 4 + 3 * user, replace=False)
            own[items] = rng.choice(LEVELS_SOLVED, items.size)
            v, r = q[items], own[items]
            p = np.linalg.solve(v.T @ v + ridge * np.eye(5), v.T @ r) if tied else rng.normal(0, 0.5, 5)
            recorder.upload(0, user, scale * np.outer(r - v @ p, p), items)
    return truth


def score_of_solved(found: fl.Reconstruction, truth: np.ndarray) -> tuple[int, int]:
    """Answers, and wrong ones."""
    pairs = [(value, truth[user, index]) for user, _, index, value, _ in found.rows()]
    wrong = sum(int((value != own).sum()) for value, own in pairs)
    return sum(value.size for value, _ in pairs), wrong


def test_ratings_are_read_from_one_round(tmp_path: Path):
    """Also by ``any``, where the rule is declared. Without a scale multiples have to leave the grid."""
    made, told, label = {"scale": -0.02}, {}, "any ridge and scale"
    truth = recorded_of_solved(tmp_path / "t", **made, told=told)
    found = fl.attack(tmp_path / "t", plugins.Inversion())
    answers, wrong = score_of_solved(found, truth)
    assert wrong == 0
    assert answers >= (0.8 if told else 0.6) * (truth > 0).sum()
    assert found.options["hypothesis"] == f"solved for, {label}"


def test_factors_that_nobody_solved_for_are_not_answered(tmp_path: Path):
    """Declared wrongly: rows of one gradient step at any factor."""
    recorded_of_solved(tmp_path / "t", told={"upload_scale": 1.0, "upload_regularization": 0.0}, tied=False)
    found = fl.attack(tmp_path / "t", plugins.Inversion("semi-als"))
    assert set(found.abstained.values()) == {UNEXPLAINED}
    assert len(found.abstained) == 6


def test_attributes_are_said_to_be_in_the_way(transcripts: dict):
    view = transcripts["semi-als", "observed-only"].view("server")
    found = plugins.Inversion("semi-als").attack(view, 0)
    assert set(found.abstained.values()) == {WITH_ATTRIBUTES}
