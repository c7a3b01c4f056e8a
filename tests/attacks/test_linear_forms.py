"""Rows that are linear in ratings but for noise: what is read, how surely, and when nothing is."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import approx_fprime
from scipy.special import log_softmax, logsumexp

import factorleak as fl
from attacks.linear_forms import posterior
from attacks.linear_forms.forms import some_of
from attacks.linear_forms.integral import climbed, gridded, sampled, starts_of
from attacks.linear_forms.posterior import Data, Prior, Program
from attacks.linear_forms.reading import NEVER, UP_TO_TWICE, learn, read
from tests.oracles.aligned import item_answers
from tests.oracles.minibatches import Minibatches, forms, oracle, stacked

ROOM = 24  # rows; one shape is compiled for all
STARS = np.arange(1.0, 6.0)
CLIENT = Minibatches(users=16, fewest=16, most=ROOM, items=60)
# the sum of gradients of means over four ratings, of one, two or three at the end, in the third round
GRADIENTS = replace(CLIENT, upload="gradient", mean=True, rounds=3)
CENTRED = replace(CLIENT, centred=3.7)


@pytest.fixture(scope="module")
def read_changes():
    """Forms of clients who send changes, what they share, and what is read of them."""
    lists, _, rounds = CLIENT.trained()
    them = forms(lists, rounds[-1], ROOM)
    together = learn(them, STARS, 0)
    return them, together, read(them, together, 0)


def claims(program, found):
    """Whether each rating's likeliest level is right, and how probable it is said to be."""
    _, ratings, _ = program.trained()
    truth = stacked(ratings, ROOM)
    right, there = STARS[found.probability.argmax(axis=-1)] == truth, truth > 0
    return right[there], np.minimum(found.probability.max(axis=-1)[there], 1.0)  # of single precision


def check(program, together, found):
    """Near the oracle, and as sure as right: by 0.03, and three deviations of a mean of so many claims."""
    lists, ratings, rounds = program.trained()
    known = oracle(lists, ratings, rounds[-1], STARS, offset=program.centred != 0)
    told = np.concatenate(known).mean()
    right, claimed = claims(program, found)
    error = 3 * np.sqrt((claimed * (1 - claimed)).sum()) / claimed.size
    assert together is not None
    assert (found.follows > 0.5).all()
    assert right.mean() >= told - 0.03
    assert abs(right.mean() - claimed.mean()) <= 0.03 + error
    assert not right.size or (~right[claimed >= 0.95]).mean() <= 0.05


def test_changes_by_shuffled_minibatches_are_read(read_changes):
    check(CLIENT, *read_changes[1:])


def test_ratings_less_a_number_that_nobody_told_are_read():
    lists, _, rounds = CENTRED.trained()
    them = forms(lists, rounds[-1], ROOM)
    together = learn(them, STARS, 0)
    assert together is not None
    assert together.ratings.program.offset
    assert together.ratings.shared.added[0] == pytest.approx(CENTRED.centred, abs=0.02)
    check(CENTRED, together, read(them, together, 0))


def test_where_clients_have_biases_of_their_own_nothing_is_claimed_of_how_high_they_rate():
    """Ratings less each client's mean: up to their mirror image, and shifts that stay on the grid."""
    own = replace(CLIENT, centred_by_client=True)
    lists, _, rounds = own.trained()
    them = forms(lists, rounds[-1], ROOM)
    together = learn(them, STARS, 0)
    assert together is not None
    right, claimed = claims(own, read(them, together, 0))
    assert abs(right.mean() - claimed.mean()) <= 0.2
    assert (~right[claimed >= 0.95]).sum() <= 0.05 * (claimed >= 0.95).sum()


@pytest.mark.thorough
def test_gradients_and_ragged_means_are_read_in_a_late_round():
    lists, _, rounds = GRADIENTS.trained()
    them = forms(lists, rounds[-1], ROOM)
    together = learn(them, STARS, 0)
    assert together is not None
    assert together.ratings.program.sign == -1
    check(GRADIENTS, together, read(them, together, 0))


def test_the_order_of_clients_is_only_an_order(read_changes):
    """Points are drawn in order of clients; their number leaves probabilities open to some hundredths."""
    them, together, found = read_changes
    order = np.random.default_rng(0).permutation(len(them.there))
    other = read(some_of(them, order), together, 0)
    apart = np.abs(other.probability - found.probability[order]).max(axis=(1, 2))
    assert np.median(apart) < 0.05
    assert (other.probability.argmax(-1) == found.probability[order].argmax(-1)).mean() > 0.99


def wrong_of_sure(program, rows=None):
    """Claims of 0.95 and more, and how many of them are wrong; of rows instead of what the program sends."""
    lists, _, rounds = program.trained()
    sent = rounds[-1] if rows is None else rounds[-1]._replace(rows=rows(rounds[-1].rows))
    them = forms(lists, sent, ROOM)
    together = learn(them, STARS, program.seed)
    if together is None:
        return 0, 0
    found = read(them, together, program.seed)
    right, claimed = claims(program, found)
    n_rows = [items.size for items in lists]
    sure = (claimed >= 0.95) & np.repeat(found.follows >= 0.5, n_rows)
    return int(sure.sum()), int((sure & ~right).sum())


def noise_alone(rows):
    """Normal noise in the place of rows."""
    rng = np.random.default_rng(len(rows[0]))
    return [rng.normal(size=row.shape) for row in rows]


def test_noise_is_not_answered():
    assert wrong_of_sure(CLIENT, noise_alone) == (0, 0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "program",
    [replace(CLIENT, numbers="uniform", epochs=1, batch=ROOM), replace(CLIENT, adam=True, rate=0.01)],
    ids=["uniform numbers", "Adam"],
)
def test_what_is_no_form_of_ratings_is_not_answered_surely(program):
    """Three recordings of each, of about a thousand ratings; some wrong ones are chance."""
    counts = [wrong_of_sure(replace(program, seed=seed)) for seed in range(3)]
    sure, wrong = np.sum(counts, axis=0)
    assert wrong <= max(0.05 * sure, 3)


@pytest.mark.thorough
def test_rounds_are_read_together(tmp_path):
    program = replace(CLIENT, rounds=2)
    lists, ratings, rounds = program.trained()
    table = np.zeros((program.users, program.items))
    for user, (items, stars) in enumerate(zip(lists, ratings, strict=True)):
        table[user, items] = stars
    with fl.Recorder(tmp_path / "t", rating_levels=STARS) as recorder:
        for turn, sent in enumerate(rounds):
            recorder.broadcast(turn, sent.factors)
            for user, items in enumerate(lists):
                recorder.upload(turn, user, sent.rows[user], items)
    found = fl.attack(tmp_path / "t", "undeclared")
    user, item, value = item_answers(found, table, tuple(STARS))
    right = int((np.abs(value - table[user, item]) < 0.25).sum())
    assert right >= 0.95 * user.size
    assert right >= 0.9 * (table > 0).sum()


# The posterior against one that is written for reading


def example(n_rows, n_clients=1, *, offset=False):
    """Clients with so many rows, of numbers that are drawn from their prior."""
    rng = np.random.default_rng(3)
    mean = np.array([0.7, -0.5, 0.0, *[3.4] * offset, np.log(1.8), np.log(0.25)])
    deviation = np.array([0.3, 0.5, 0.3, *[0.5] * offset, 0.3, 0.3])
    one = np.ones((n_clients, 1))
    prior = Prior(one * mean, one * deviation, one * [0.2, 0.5], one * [0.1, 0.7])
    there = np.arange(ROOM) < np.full((n_clients, 1), n_rows)
    along = rng.normal(size=(n_clients, ROOM))
    usual = np.array([0.1, 0.1, 0.2, 0.35, 0.25])
    stars = rng.choice(STARS, (n_clients, ROOM), p=usual)
    scale, length = np.exp(mean[:2])
    first = (stars - length * along + rng.normal(0, 0.25, along.shape)) / scale
    both = np.stack([first, rng.normal(0, 0.5, along.shape)], axis=-1)
    log_prior = np.broadcast_to(np.log(usual), (n_clients, ROOM, 5))
    given = rng.normal(0, 0.3, along.shape) * offset * there
    middle = usual @ STARS
    spread = one * [middle, usual @ (STARS - middle) ** 2]
    return Data(both * there[..., None], along * there, there.astype(float), log_prior, given, spread), prior


def beside(x, own_sign, program, data):
    """C: what is between the client's mean rating and that of errors and predictions without it."""
    scale, length = np.exp(x[0]) * own_sign * program.sign, np.exp(x[1]) * own_sign
    here = data.there > 0
    error = scale * (data.coordinates[:, 0] + x[2] * data.coordinates[:, 1])
    return x[3] - (error + length * data.along + data.given)[here].mean() if x.size == 6 else 0.0


def slow(x, own_sign, program, data, frozen=None):
    """Log-likelihood of one client's rows: a mixture of Student's laws over levels and minibatches."""
    frozen = x if frozen is None else frozen
    scale, length = np.exp(x[0]) * own_sign * program.sign, np.exp(x[1]) * own_sign
    total, chances = 0.0, np.exp(data.log_prior)
    if x.size == 6:
        tilt = (frozen[3] - data.usual[0]) / data.usual[1]
        chances = np.exp(log_softmax(data.log_prior + tilt * STARS, axis=-1))
    for row in np.flatnonzero(data.there):
        known, density = length * data.along[row] + data.given[row] + beside(x, own_sign, program, data), 0.0
        held = np.exp(frozen[1]) * own_sign * data.along[row] + data.given[row]
        held += beside(frozen, own_sign, program, data)
        for times in program.times:
            weight = posterior.IN_LAST[times] if len(program.times) > 1 else 1.0
            longer = 1 + times * (np.exp(x[-2]) - 1)
            error = scale * (data.coordinates[row, 0] + x[2] * data.coordinates[row, 1]) / longer
            told = (STARS - held) / np.exp(frozen[0])
            share = program.relative
            noise = np.exp(x[-1]) * np.sqrt(1 - share + share * told**2 + posterior.LEAST_NOISE)
            law = stats.t.pdf(error + known, posterior.FREEDOM, loc=STARS, scale=noise)
            density += (weight * np.exp(x[0]) / longer * chances[row] * law).sum()
        total += np.log(density)
    return total


def log_prior(x, prior, added=None):
    """Normal laws of all unknowns, of log A + log B, and of C."""
    of_sum = stats.norm.logpdf(x[..., 0] + x[..., 1], *prior.product)
    of_added = 0.0 if added is None else stats.norm.logpdf(added, *prior.added)
    return stats.norm.logpdf(x, prior.mean, prior.deviation).sum(-1) + of_sum + of_added


@pytest.mark.parametrize(
    ("relative", "times", "offset", "own"),
    [
        (0.0, NEVER, False, 0.0),
        (0.9, UP_TO_TWICE, False, 0.0),
        (0.0, NEVER, True, 0.0),
        (0.0, NEVER, True, 1.0),
    ],
    ids=["whole", "ragged", "beside a number", "beside a client's own"],
)
def test_density_and_gradient_are_those_of_a_slow_one(relative, times, offset, own):
    data, prior = example(8, offset=offset)
    data, prior = Data(*(part[0] for part in data)), Prior(*(part[0] for part in prior))
    program = Program(-1.0, relative, times, own, offset)
    x = np.array([0.6, -0.3, 0.2, *[3.1] * offset, 0.5, -1.0])

    def whole(at):
        added = beside(at, -1.0, program, data) - own * at[3] if offset else None
        return slow(at, -1.0, program, data, frozen=x) + log_prior(at, prior, added)

    given = jax.tree.map(jnp.asarray, (x, -1.0, program, data, STARS))
    terms = jax.jit(posterior._terms)(*given)
    value, gradient, _ = jax.jit(posterior._step)(*given, prior)
    assert float(terms.likelihood) == pytest.approx(slow(x, -1.0, program, data), rel=1e-5)
    assert float(value) == pytest.approx(whole(x), rel=1e-5)
    np.testing.assert_allclose(gradient, approx_fprime(x, whole, 1e-6), rtol=1e-3, atol=1e-3)


def test_evidence_is_the_integral():
    """Eight rows; against 2^16 points that are drawn from the prior without regard to the rows."""
    data, prior = example(8, 16)
    program = Program(1.0, 0.0, NEVER)
    grid = gridded(program, data, STARS)
    modes = climbed(starts_of(grid, program, data, STARS, prior), program, data, STARS, prior, 18)
    points = sampled(modes, grid.table, program, data, STARS, prior, np.random.default_rng(0))
    z = stats.norm.ppf(stats.qmc.Sobol(5, seed=0).random_base2(16))
    off, peak = [], stats.t.pdf(0, 8)
    for client in range(4):
        own = Data(*(np.asarray(part)[client][:8] for part in data))
        x = prior.mean[client] + prior.deviation[client] * z
        weight = stats.norm.logpdf(x[:, 0] + x[:, 1], *prior.product[client])
        noise = np.exp(x[:, 4, None, None]) * np.sqrt(1 + posterior.LEAST_NOISE)
        both = []
        for sign in (1.0, -1.0):
            error = np.exp(x[:, :1]) * (own.coordinates[:, 0] + x[:, 2:3] * own.coordinates[:, 1])
            said = sign * (error + np.exp(x[:, 1:2]) * own.along)
            law = peak * (1 + ((said[..., None] - STARS) / noise) ** 2 / 8) ** -4.5 / noise
            each = np.log((law * np.exp(own.log_prior)).sum(-1)) + x[:, :1]
            both.append(each.sum(-1) + weight)
        off.append(points.evidence[client] - logsumexp(both) + np.log(len(z)))
    assert np.abs(off).max() < 0.3
    assert abs(np.mean(off)) < 0.1
