"""The parts of the attack alone, passes, and what is answered."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares

import factorleak as fl
from attacks.base import Reconstruction
from attacks.client_rules.local_passes import LocalPasses
from attacks.client_rules.local_steps import CONSTANTS, RATE, SCALE, STEPS, LocalSteps
from attacks.closed_form.numbers.integer_relation import Relation
from attacks.closed_form.uploads.readings import Rows
from attacks.inversion.answers import SEVERAL, Found
from attacks.inversion.attack import Inversion
from attacks.inversion.clients import open_clients
from attacks.inversion.compression import aside, spare_of, uncompressed
from attacks.inversion.guess import Guess
from attacks.inversion.least_squares import Problem, Unknowns, fit
from attacks.inversion.momentum_starts import kinds
from attacks.inversion.multiples import unless_multiples
from attacks.inversion.one_step import ASIDE
from attacks.inversion.pass_starts import pass_starts
from attacks.inversion.passes import asked, block_size, in_order, told_in_order
from attacks.inversion.told import SPARE, Told
from tests.attacks.inversion.test_inversion import score
from tests.attacks.test_client_rules import LEVELS, manifest
from tests.oracles.local_training import Client, Program
from tests.oracles.pass_programs import Passer, Passes
from victims.transcript.manifest import Manifest
from victims.transcript.reader import open_transcript

# Answers as they come in, and what is left of them where nothing tells a shift.


CLIENTS, N, K = 4, 12, 3


@pytest.mark.parametrize(("used", "answered"), [([3.0, 7.0], False), ([1.0, 2, 4, 7, 10], True)])
def test_what_a_span_tells_is_open_where_levels_leave_another_shift(tmp_path, used, answered):
    """3 and 7 are 7 and 9 less 5.5, times two; five levels with both ends of the grid are nothing else."""
    rng, levels = np.random.default_rng(0), np.arange(1.0, 11.0)
    q = rng.normal(0, 0.5, (N, K))
    with fl.Recorder(tmp_path / "t", rating_levels=levels) as recorder:
        recorder.broadcast(0, q)
        for user in range(CLIENTS):
            recorder.upload(0, user, rng.normal(0, 1, (N, K)), np.arange(N))
    found = Found(open_transcript(tmp_path / "t").view("server"))
    value, none = np.resize(used, (CLIENTS, N)), np.zeros(CLIENTS)
    index = np.broadcast_to(np.arange(N), value.shape)
    found.add_by_span(found.users, index, Relation(value, none == 0, none, none, none + 1))
    told = found.reconstruction("inversion", "", {})
    assert len(told.abstained) == (0 if answered else CLIENTS)


def test_who_has_other_constants_than_most_is_asked_again(tmp_path):
    """A rate that nobody else has is no reason to believe the ratings that come with it."""
    rng = np.random.default_rng(0)
    with fl.Recorder(tmp_path / "t", rating_levels=np.arange(1.0, 6.0)) as recorder:
        recorder.broadcast(0, rng.normal(0, 0.5, (N, K)))
        for user in range(CLIENTS):
            recorder.upload(0, user, rng.normal(0, 1, (N, K)), np.arange(N))
    found = Found(open_transcript(tmp_path / "t").view("server"))
    family = LocalSteps().families(manifest())[0]
    constants = np.tile(family.start(3.0, 0.1, 1.0), (CLIENTS, 1, 1))
    constants[2, 0, RATE] += 0.1
    at = Unknowns(np.zeros((CLIENTS, 1, K)), np.zeros((CLIENTS, 1, N)), constants)
    none = np.zeros(CLIENTS)
    new = Told(np.full((CLIENTS, N), 5.0), at, none, none, none > 0, none.astype(int) + 9, none > 0)
    found.add_by_fit(found.users, np.broadcast_to(np.arange(N), (CLIENTS, N)), new)
    shared = found.common(family)
    assert shared is None  # all are answered
    taken = found.ask_again(constants[0, 0], family)
    assert found.answered.tolist() == [True, True, False, True]
    assert sorted(found.constants) == [0, 1, 3]
    assert [user for block in found.blocks for user in block.users] == [0, 1, 3]
    found.reasons[2] = SEVERAL
    found.restore(taken)
    assert not found.answered[2]
    found.reasons[2] = "no ratings explain its rows"
    found.restore(taken)
    assert found.answered.all()
    assert len(found.reconstruction("inversion", "", {}).abstained) == 0


# What local steps along the items' factors leave of rows off these.


FACTORS = 12


def rows_about(uploaded: np.ndarray, factors: np.ndarray) -> Rows:
    """Rows of one client."""
    n = len(uploaded)
    item, precision = np.ones((1, n), bool), float(np.finfo(uploaded.dtype).eps)
    return Rows(uploaded[None], factors[None], np.zeros((1, n)), item, np.full(1, np.nan), precision, None)


LEVELS_COMPRESSION = np.arange(1.0, 6.0)


@pytest.mark.parametrize(
    "client",
    [
        Client(steps=20, momentum=0.5, decay=0.1),
        Client(ratio=3.0, moves=False, mean=True),
        Passer(passes=3, batch=1, loss="sigmoid"),
        Passer(passes=2, batch=3, loss="clipped", mean=True, item_decay=0.1, own_bias=True),
    ],
    ids=["steps", "fixed items", "ratings in turn", "minibatches"],
)
def test_steps_of_any_kind_leave_one_direction_and_noise_leaves_more(client):
    rng = np.random.default_rng(0)
    p, q, r = rng.normal(0, 0.5, FACTORS), rng.normal(0, 0.5, (7, FACTORS)), rng.choice(LEVELS_COMPRESSION, 7)
    rows = (
        client.train(p, r, q)[0] - q
        if isinstance(client, Client)
        else client.train(p, q, r, LEVELS_COMPRESSION)[0]
    )
    assert aside(rows_about(rows, q))[0] < 1e-10
    noisy = rows + rng.normal(0, 1e-3 * np.abs(rows).max(), rows.shape)
    assert aside(rows_about(noisy, q))[0] > 1e-4


def test_as_many_rows_as_factors_say_nothing():
    rng = np.random.default_rng(0)
    for n in (1, FACTORS - 1, FACTORS + 5):
        assert np.isnan(aside(rows_about(rng.normal(size=(n, FACTORS)), rng.normal(size=(n, FACTORS))))[0])


def test_noise_on_few_rows_is_refused_before_anything_is_fitted(tmp_path):
    """With 40 factors all hypotheses together took ten minutes."""
    program = Program(factors=40, n_users=20, density=0.2)
    program.record(tmp_path / "t")
    view = open_transcript(tmp_path / "t").view("server").shuffled(0)
    found = Inversion().attack(view, 0)
    assert isinstance(found, Reconstruction)
    assert set(found.abstained) == set(view.users.tolist())
    assert ASIDE in next(iter(found.abstained.values()))


@pytest.mark.thorough
def test_two_rows_are_fewer_equations_than_numbers():
    """Factor, two ratings, a rate and two decays move 24 numbers in 15 directions: nothing is to spare."""
    rng = np.random.default_rng(0)
    constants = np.array([np.log(0.05), 0.0, 0.02, 0.03, 0.0, 0.0, 2.0, 1.0])
    unknown = np.concatenate([rng.normal(0, 0.4, FACTORS), [2.5, 3.0], constants[[0, 2, 3]]])
    q = rng.normal(0, 0.4, (2, FACTORS))

    def rows(at):
        own = jnp.asarray(constants).at[jnp.array([0, 2, 3])].set(at[FACTORS + 2 :])
        return LocalSteps().upload(at[:FACTORS], at[FACTORS : FACTORS + 2], jnp.asarray(q), own)[0].ravel()

    with jax.enable_x64(True):
        size = np.linalg.svd(np.asarray(jax.jacfwd(rows)(jnp.asarray(unknown))), compute_uv=False)
    equations = int((size > 1e-10 * size[0]).sum())
    assert equations <= 2 * 2 + FACTORS - 1
    assert spare_of(np.array([2]), FACTORS, 3)[0] == 2 * 2 + FACTORS - 1 - FACTORS - 3 < SPARE


# The fit against a second method, and against itself.


def constants(client: Client, scale: float = 1.0) -> np.ndarray:
    eta = client.rate
    decay = client.decay * eta
    numbers = (np.log(eta), np.log(client.ratio), decay * client.ratio, decay, np.log(scale))
    return np.array([*numbers, client.momentum, client.steps, client.moves, client.nesterov])


@pytest.mark.parametrize(
    "client",
    [
        Client(),
        Client(steps=7, decay=0.2, ratio=0.5),
        Client(steps=2, moves=False),
        Client(steps=6, decay=0.2, momentum=0.9),
        Client(steps=6, decay=0.2, momentum=0.9, nesterov=True),
    ],
)
def test_the_rule_is_that_of_a_program_that_was_written_apart(client: Client):
    rng = np.random.default_rng(0)
    p, r, q = rng.normal(0, 0.4, 5), rng.choice([1.0, 2, 3, 4, 5], 20), rng.normal(0, 0.4, (20, 5))
    copy, factor = client.train(p, r, q)
    rows, after = LocalSteps().upload(*(jnp.asarray(part) for part in (p, r, q, constants(client, 3.0))))
    np.testing.assert_allclose(rows, 3 * (copy - q), atol=1e-13)
    np.testing.assert_allclose(after, factor, atol=1e-13)


def test_a_second_method_finds_the_same():
    """SciPy reaches the same least sum of squares from the same start, with noise in the rows."""
    rng = np.random.default_rng(1)
    rule, client = LocalSteps(), Client(steps=5, rate=0.05)
    p, r, q = rng.normal(0, 0.4, 3), rng.choice([1.0, 2, 3, 4, 5], 6), rng.normal(0, 0.4, (6, 3))
    rows = client.train(p, r, q)[0] - q + 1e-3 * rng.normal(size=q.shape)
    known, upload = constants(client), jax.jit(rule.upload)
    start = Unknowns(p[None] + 0.05, r[None] + 0.2, known[None])
    free = Unknowns(np.ones((1, 3)), np.ones((1, 6)), np.eye(len(CONSTANTS))[[RATE]])
    ours = fit(rule, Problem(rows[None], q[None]), start, free, 200)

    def left(theta: np.ndarray) -> np.ndarray:
        numbers = known.copy()
        numbers[RATE] = theta[9]
        sent, _ = upload(theta[:3], theta[3:9], q, numbers)
        return (np.asarray(sent) - rows).ravel() / np.sqrt(np.mean(rows**2))

    theirs = least_squares(
        left, np.concatenate([p + 0.05, r + 0.2, [known[RATE]]]), xtol=1e-14, ftol=1e-14, max_nfev=200
    )
    assert ours.left[0] == pytest.approx(np.sqrt(np.mean(theirs.fun**2)), rel=1e-6)
    np.testing.assert_allclose(ours.at.ratings[0], theirs.x[3:9], atol=1e-3)


def test_what_is_held_stays_and_a_start_without_numbers_is_told():
    rng = np.random.default_rng(2)
    q = rng.normal(0, 0.4, (2, 6, 3))
    start = Unknowns(rng.normal(size=(2, 3)), rng.normal(size=(2, 6)), np.stack([constants(Client())] * 2))
    start.constants[1, SCALE] = np.inf
    free = Unknowns(np.ones((2, 3)), np.zeros((2, 6)), np.zeros((2, len(CONSTANTS))))
    found = fit(LocalSteps(), Problem(rng.normal(size=q.shape), q), start, free, 5)
    assert (found.at.ratings == start.ratings).all()
    assert (found.at.constants[:, STEPS] == 3).all()
    assert np.isfinite(found.left[0])
    assert not np.isfinite(found.left[1])


# Other multiples of ratings, fitted where few digits may not tell them apart.


def test_a_multiple_that_explains_as_much_leaves_a_client_open():
    """Three steps of a client whose rate is fitted; what bends the rows is a hundredth of them."""
    rating, allowed, several = [1.0, 5.0, 2.0, 3.0, 3.0], 0.02, False
    rng = np.random.default_rng(0)
    u, v, r = rng.normal(0, 0.4, 3), rng.normal(0, 0.4, (5, 3)), np.broadcast_to(rating, 5).astype(float)
    guess = Guess(LocalSteps().families(manifest())[0], 3.0)
    constants = np.array(guess.constants_of(0.03, 1.0))
    sent = np.asarray(LocalSteps().upload(*(jnp.asarray(one) for one in (u, r, v, constants)))[0])
    rows = Rows(sent[None], v[None], np.zeros((1, 5)), np.ones((1, 5), bool), np.ones(1), 1e-16, None)
    none, at = np.zeros(1), Unknowns(u[None, None], r[None, None], constants[None, None])
    new = Told(r[None], at, none, none + allowed, none > 0, none.astype(int) + 9, none > 0)
    found = unless_multiples(LocalSteps(), guess, new, uncompressed(rows), np.ones(1), rows, LEVELS)
    assert found.several.tolist() == [several]
    assert found.explained.all()


# Several passes that one pass explains as well: half of all ratings, where digits are few.


LEVELS_ONE_PASS = np.arange(0.5, 5.1, 0.5)
PASSES, RATE_ONE_PASS, K_ONE_PASS, RATINGS = 4, 0.002, 10, 18


def manifest_of_one_pass() -> Manifest:
    return Manifest(
        format="factorleak-transcript", version=2, protocol="strange", update=None, weighting="observed-only",
        n_users=1, n_items=1, n_attributes=0, factors=K_ONE_PASS, rounds=[0],
        rating_levels=LEVELS_ONE_PASS.tolist(),
        declared_rule={},
    )  # fmt: skip


def sent(passes: int, digits: type) -> tuple[Rows, np.ndarray]:
    """One client's rows, as many passes having made them; all its ratings are whole."""
    rng = np.random.default_rng(0)
    v = rng.normal(0, K_ONE_PASS**-0.5, (RATINGS, K_ONE_PASS)).astype(np.float16).astype(float)
    u, ratings = rng.normal(0, K_ONE_PASS**-0.5, K_ONE_PASS), rng.choice([2.0, 3.0, 4.0, 5.0], RATINGS)
    change, _ = Passer(rate=RATE_ONE_PASS, passes=passes).train(u, v, ratings, LEVELS_ONE_PASS)
    rows = change.astype(digits).astype(float)
    everyone = np.ones((1, RATINGS), bool)
    return Rows(rows[None], v[None], np.zeros((1, RATINGS)), everyone, np.ones(1), 1.2e-7, None), ratings


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("passes", "digits", "answered"), [(1, np.float16, False), (PASSES, np.float32, True)]
)
def test_half_of_all_ratings_is_no_answer_where_one_pass_explains_the_rows(passes, digits, answered):
    rows, ratings = sent(passes, digits)
    rule = LocalPasses()
    told = told_in_order(
        rule, Guess(rule.families(manifest_of_one_pass())[0], float(PASSES)), rows, LEVELS_ONE_PASS
    )
    assert told.left.item() <= told.allowed.item()  # several passes explain either
    assert told.answered.item() == answered
    assert not answered or (told.ratings[0] == ratings).all()


# Several passes over the ratings, with a step after every rating or minibatch.


@pytest.mark.thorough
def test_passes_with_momentum_that_nobody_declared_are_read(tmp_path: Path):
    """In the order of the rows; nobody was answered before."""
    client = Passer(batch=4, mean=True, rate=0.02, momentum=0.7, nesterov=True, decay=0.1)
    ratings = Passes(client, shuffled=True, n_users=4).record(tmp_path / "t")
    found = Inversion("momentum-passes").attack(open_transcript(tmp_path / "t").view("server"), 0)
    right, wrong = score(found, ratings)
    assert wrong == 0
    assert right >= 0.8 * (ratings > 0).sum()
    assert found.options["hypothesis"].startswith(f"{client.passes} passes with momentum")
    assert "Nesterov" in found.options["hypothesis"]


def test_passes_without_momentum_are_not_fitted_with_any(tmp_path: Path):
    """The drift of the directions says that there is none, before any fit."""
    for name, client in (("plain", Passer()), ("with it", Passer(momentum=0.9, rate=0.003))):
        Passes(client, shuffled=True).record(tmp_path / name)
        view = open_transcript(tmp_path / name).view("server")
        parts = (in_order(*part) for part in open_clients(view, Found(view), 1))
        rows = asked(
            sorted((group for part in parts for group in part), key=lambda one: one.rows.item.shape[1])
        )
        assert bool(kinds(rows, 1, (1.0, 2.0, 3.0, 5.0))) == (name == "with it")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "declared"),
    [
        (Passes(shuffled=True), {}),
        (Passes(Passer(batch=4, decay=0.1)), {"batch_size": 4, "local_steps": 3, "upload": "delta"}),
    ],
    ids=["per rating, order seen", "minibatches by item"],
)
def test_passes_are_read(program: Passes, declared: dict, tmp_path: Path):
    """By the order of the rows, and where that is not seen by that of the items; every answer is right."""
    ratings = program.record(tmp_path / "t", declared)
    found = Inversion().attack(open_transcript(tmp_path / "t").view("server"), 0)
    right, wrong = score(found, ratings)
    assert wrong == 0
    assert right >= 0.8 * (ratings > 0).sum()
    assert found.options["hypothesis"].startswith("3 passes")


def test_another_order_explains_nothing(tmp_path: Path):
    """Rows in the order of the items, ratings gone through in another: abstention, and a reason."""
    program = Passes(shuffled=True)
    program.record(tmp_path / "t", {"local_steps": 3, "order": "per-rating"})
    view = open_transcript(tmp_path / "t").view("server")
    hidden = view.__class__(
        **{
            **view.__dict__,
            "messages": view.messages.__class__(**{**view.messages.__dict__, "sequence": None}),
        }
    )
    found = Inversion("per-rating").attack(hidden, 0)
    assert not found.blocks
    assert all("in the order of the rows" in reason for reason in found.abstained.values())


def test_minibatches_show_in_the_ranks_of_rows():
    """Two passes: rows of one minibatch have two directions, those of two have four."""
    rng = np.random.default_rng(0)
    v, u, r = rng.normal(0, 0.5, (22, 6)), rng.normal(0, 0.5, 6), rng.integers(1, 6, 22) * 1.0
    for batch in (1, 5):
        rows, _ = Passer(0.02, 2, batch).train(u, v, r, np.arange(1.0, 6.0))
        none, every = np.zeros((1, 22)), np.ones((1, 22), bool)
        assert block_size(Rows(rows[None], v[None], none, every, np.ones(1), 2e-16, None)) == batch


def test_no_pass_starts_where_predictions_are_on_the_flat_of_a_sigmoid(tmp_path: Path):
    """Factors so long that the slope is 0 in floating point: it was divided by."""
    Passes().record(tmp_path / "t", {})
    rule = LocalPasses(1, "sigmoid")
    family = rule.families(open_transcript(tmp_path / "t").manifest)[0]
    rng = np.random.default_rng(0)
    v, u = rng.normal(0, 100, (8, 4)), rng.normal(0, 1, 4)
    sent = rng.normal(0, 1, (1, 8, 1)) * u
    rows = Rows(sent, v[None], np.zeros((1, 8)), np.ones((1, 8), bool), np.ones(1), 2e-16, None)
    found = pass_starts(rows, np.ones(1), rule, Guess(family, 2.0))
    assert np.isfinite(found.factor).all()
