"""Rules of clients, each against a program that was written apart."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attacks.client_rules import named
from attacks.client_rules.adaptive_rule import ADAPTIVE, AdaptiveSteps
from attacks.client_rules.adaptive_rule import CONSTANTS as OF_RULE
from attacks.client_rules.adaptive_steps import ADAGRAD, ADAM, CONSTANTS, RATE, RMSPROP, WEIGHT_DECAY, upload
from attacks.client_rules.biased_steps import BiasedSteps
from attacks.client_rules.client_update import step_of, unknown_step
from attacks.client_rules.differentiable import MOST_STEPS
from attacks.client_rules.local_passes import LOSSES, NAMES, LocalPasses, passes_to_try
from attacks.client_rules.local_steps import LocalSteps
from attacks.client_rules.momentum_passes import MomentumPasses, momentum_to_try
from attacks.client_rules.named import OURS, broken, rule_named
from attacks.client_rules.own_rule import client_rule
from attacks.client_rules.paired_labels import PairedLabels
from attacks.client_rules.protocols import CLIENT_RULES, SERVER_RULES, not_public
from attacks.client_rules.semi_als import SemiALS, smooth_weight, solved_factor
from audit.experiments.answers import answered
from audit.factories import make_victim
from tests.oracles.adaptive_client import AdaptiveClient
from tests.oracles.paired_client import trained
from tests.oracles.pass_programs import Passer
from tests.oracles.simulator import Reference
from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.data.synthetic import Synthetic, generate
from victims.protocols.fedmvmf import FedMVMF
from victims.transcript.manifest import ClientRule, Manifest
from victims.transcript.reader import open_transcript
from victims.transcript.view import View

# Steps with a bias of the client, held against a program of plain loops.


def trained_of_biased_steps(u, b, v, r, *, rate: float, decay: float, moves: bool):
    """Three steps, one item after the other; what is left of known biases starts from 0."""
    v, u, c = v.copy(), u.copy(), np.zeros(len(r))
    for _ in range(3):
        errors = [r[j] - b - c[j] - sum(v[j] * u) for j in range(len(r))]
        pull = sum(e * item for e, item in zip(errors, v, strict=True))
        v = np.array([item + rate * (e * u - decay * item) for e, item in zip(errors, v, strict=True)])
        u = u + rate * (pull - decay * u)
        b = b + rate * (sum(errors) - decay * b)
        c = c + rate * np.array(errors) * moves
    return v, u, b


@pytest.mark.parametrize("moves", [False, True])
def test_the_rule_is_that_of_a_program_that_was_written_apart(moves: bool):
    rng = np.random.default_rng(0)
    u, v, r, b = rng.normal(0, 0.5, 3), rng.normal(0, 0.5, (7, 3)), rng.choice([1.0, 2, 3, 4, 5], 7), 0.3
    copies, factor, bias = trained_of_biased_steps(u, b, v, r, rate=0.05, decay=0.1, moves=moves)
    numbers = [np.log(0.05), 0.05 * 0.1, b, 3, float(moves)]
    factors = np.concatenate([v, np.ones((7, 1))], axis=1)
    factors, target = np.pad(factors, ((0, 2), (0, 0))), np.pad(r, (0, 2))
    start = np.append(u, 9.0)  # the last is not looked at
    rows, after = BiasedSteps().upload(*(jnp.asarray(part) for part in (start, target, factors, numbers)))
    np.testing.assert_allclose(rows[:7, :3], copies - v, atol=1e-14)
    np.testing.assert_allclose(after, np.append(factor, bias), atol=1e-14)
    assert not np.asarray(rows[7:]).any()
    assert not np.asarray(rows[:, 3]).any()


@pytest.mark.parametrize("moves", [False, True])
def test_shifted_and_mirrored_ratings_make_the_same_rows_without_decay_alone(moves: bool):
    rng = np.random.default_rng(1)
    u, v, r, b = rng.normal(0, 0.5, 3), rng.normal(0, 0.5, (7, 3)), rng.choice([1.0, 2, 3, 4, 5], 7), 0.3
    for decay, same in ((0.0, True), (0.5, False)):
        first, higher, mirrored = (
            trained_of_biased_steps(*start, rate=0.05, decay=decay, moves=moves)[0]
            for start in ((u, b, v, r), (u, b + 1, v, r + 1), (-u, 6 - b, v, 6 - r))
        )
        assert (np.abs(higher - first).max() < 1e-14) == same
        assert (np.abs(mirrored - first).max() < 1e-14) == same


def test_a_bias_of_the_clients_own_leaves_shifts_open():
    manifest = Manifest(
        format="factorleak-transcript", version=2, protocol="strange", update=None, weighting="observed-only",
        n_users=1, n_items=1, n_attributes=0, factors=3, rounds=[0], rating_levels=[1, 2],
        declared_rule={"local_steps": 7},
    )  # fmt: skip
    families = BiasedSteps().families(manifest)
    assert {family.first for family in families} == {7.0}
    assert [family.shifts for family in families] == [bool(family.own) for family in families]
    assert all(len(family.free) == len(family.start(2.0, 1.0, 1.0)) for family in families)


# Passes over ratings, held against a program of plain loops.


LEVELS = np.arange(1.0, 6.0)


def manifest(**rule) -> Manifest:
    return Manifest(
        format="factorleak-transcript", version=2, protocol="strange", update=None, weighting="observed-only",
        n_users=1, n_items=1, n_attributes=0, factors=3, rounds=[0], rating_levels=LEVELS.tolist(),
        declared_rule=rule,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("client", "rule"),
    [
        (Passer(), LocalPasses()),
        (Passer(batch=3, mean=True, decay=0.3, item_decay=0.2), LocalPasses(3, mean=True)),
        (Passer(batch=2, loss="sigmoid", passes=2), LocalPasses(2, "sigmoid")),
        (Passer(batch=0, loss="cross-entropy"), LocalPasses(0, "cross-entropy")),
    ],
    ids=lambda one: one.name if isinstance(one, LocalPasses) else "",
)
def test_the_rule_is_that_of_a_program_that_was_written_apart_of_local_passes(
    client: Passer, rule: LocalPasses
):
    rng = np.random.default_rng(0)
    u, v, r = rng.normal(0, 0.5, 3), rng.normal(0, 0.5, (7, 3)), rng.choice(LEVELS, 7)
    change, factor = client.train(u, v, r, LEVELS)
    decay, item_decay = client.rate * client.decay, client.rate * client.item_decay
    numbers = [np.log(client.rate), 0, decay, item_decay, np.log(2), client.passes, 0, 5.0]
    numbers.append(LOSSES.index(rule.loss))
    padded = np.pad(v, ((0, 2), (0, 0))), np.pad(r, (0, 2))
    rows, after = rule.upload(*(jnp.asarray(part) for part in (u, padded[1], padded[0], numbers)))
    np.testing.assert_allclose(rows[:7], 2 * change, atol=1e-14)
    np.testing.assert_allclose(after, factor, atol=1e-14)
    assert not np.asarray(rows[7:]).any()


def test_a_declaration_says_what_is_tried_first():
    assert [
        rule.name for rule in passes_to_try(manifest(batch_size=8, reduction="mean", loss="squared"))
    ] == ["squared, 8 ratings a step"]
    assert passes_to_try(manifest(link="sigmoid", order="per-rating"))[0].name == "sigmoid, one rating a step"
    assert not passes_to_try(manifest(upload="gradient"))
    assert len(passes_to_try(manifest())) == 3


# Steps of Adam and its relatives, beside a program that has them as PyTorch does.


@pytest.mark.parametrize("optimizer", [ADAM, RMSPROP, ADAGRAD], ids=lambda one: one.name)
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_rows_are_those_of_the_program(optimizer, decay):
    """Epsilon apart; a mean or a sum are the same."""
    rng = np.random.default_rng(0)
    u, v, r = rng.normal(0, 0.3, 4), rng.normal(0, 0.3, (9, 4)), rng.integers(1, 6, 9).astype(float)
    constants = np.zeros(len(CONSTANTS))
    constants[RATE], constants[WEIGHT_DECAY] = np.log(0.02), decay
    made = upload(optimizer, 4, u, r - v @ u, constants, v)
    for mean in (False, True):
        program = AdaptiveClient(optimizer.name, 4, 0.02, mean, decay)
        assert np.allclose(made.rows, program.change(u, r, v), rtol=0, atol=2e-6)
    assert made.path.shape == (4, 4)
    assert (made.path[0] == u).all()


def test_one_step_tells_signs_alone():
    rng = np.random.default_rng(1)
    u, v, r = rng.normal(0, 0.3, 4), rng.normal(0, 0.3, (9, 4)), rng.integers(1, 6, 9).astype(float)
    rows = AdaptiveClient(steps=1).change(u, r, v)
    assert np.allclose(rows, 0.01 * np.outer(np.sign(r - v @ u), np.sign(u)), atol=1e-7)


@pytest.mark.parametrize("rule", ADAPTIVE, ids=lambda one: one.name)
def test_the_rule_is_that_of_the_program(rule: AdaptiveSteps):
    """Epsilon apart; on padded rows; of the factor by a single rating, where it is an item's equal."""
    rng = np.random.default_rng(2)
    u, v, r = rng.normal(0, 0.3, 4), rng.normal(0, 0.3, (7, 4)), rng.integers(1, 6, 7).astype(float)
    program = AdaptiveClient(rule.optimizer.name, 4, 0.02, False, rule.decay)
    constants = np.zeros(len(OF_RULE))
    constants[[RATE, WEIGHT_DECAY, -1]] = np.log(0.02), rule.decay, 4
    constants = jnp.asarray(constants)
    rows, after = rule.upload(jnp.asarray(u), jnp.pad(r, (0, 2)), jnp.pad(v, ((0, 2), (0, 0))), constants)
    np.testing.assert_allclose(rows[:7], program.change(u, r, v), rtol=0, atol=2e-6)
    assert not np.asarray(rows[7:]).any()
    swapped = rule.upload(jnp.asarray(v[0]), jnp.asarray(r[:1]), jnp.asarray(u[None]), constants)
    one = rule.upload(jnp.asarray(u), jnp.asarray(r[:1]), jnp.asarray(v[:1]), constants)
    # of one rating, factor and item change places
    np.testing.assert_allclose(one[1] - u, swapped[0][0], atol=1e-14)
    np.testing.assert_allclose(one[0][0], swapped[1] - v[0], atol=1e-14)
    assert (np.abs(np.asarray(after) - u) > 0.01).all()


def test_slopes_are_those_of_finite_differences():
    """Of all rows of Adagrad by factor, ratings and constants, beside a row of padding."""
    rule = ADAPTIVE[-1]
    rng = np.random.default_rng(3)
    v = np.vstack([rng.normal(0, 0.3, (5, 3)), np.zeros((1, 3))])
    u, r = rng.normal(0, 0.3, 3), rng.integers(1, 6, 5).astype(float)
    constants = np.array([np.log(0.05), 1e-3, 0.01, 0.02, rule.decay, 3.0])

    def rows(at):
        u, r, some = jnp.split(at, (3, 8))
        return rule.upload(u, jnp.append(r, 0.0), jnp.asarray(v), jnp.append(some, 3.0))[0].ravel()

    at, by = np.concatenate([u, r, constants[:-1]]), 1e-6
    plain = jax.jit(rows)
    moved = by * np.eye(at.size)
    slope = np.stack([(plain(at + one) - plain(at - one)) / (2 * by) for one in moved], axis=1)
    np.testing.assert_allclose(jax.jacfwd(rows)(at), slope, rtol=1e-5, atol=1e-7)


def test_a_declaration_says_how_many_steps():
    for rule in ADAPTIVE:
        (family,) = rule.families(manifest(local_steps=6))
        assert family.first == 6.0
        assert len(family.free) == len(family.start(2.0, 1.0, 1.0)) == len(OF_RULE)
    assert [rule.families(manifest())[0].start(2.0, 1.0, 1.0)[WEIGHT_DECAY] for rule in ADAPTIVE] == [
        0,
        0.01,
        0,
        0,
    ]


# Passes with momentum, held against a program of plain loops.


@pytest.mark.parametrize(
    "client",
    [
        Passer(momentum=0.7, nesterov=True, batch=3, mean=True, decay=0.3, item_decay=0.2),
        Passer(momentum=0.8, coasts=False, passes=1),
        Passer(momentum=0.8, coasts=False, nesterov=True, batch=2, decay=0.1),
    ],
    ids=["Nesterov, minibatches", "the factor alone", "Nesterov, the factor alone"],
)
def test_the_rule_is_that_of_a_program_that_was_written_apart_of_momentum_passes(client: Passer):
    rng = np.random.default_rng(0)
    u, v, r = rng.normal(0, 0.5, 3), rng.normal(0, 0.5, (7, 3)), rng.choice(LEVELS, 7)
    change, factor = client.train(u, v, r, LEVELS)
    decay, item_decay = client.rate * client.decay, client.rate * client.item_decay
    numbers = [np.log(client.rate), 0, decay, item_decay, client.momentum, client.passes]
    numbers += [client.nesterov, client.coasts]
    padded = np.pad(v, ((0, 2), (0, 0))), np.pad(r, (0, 2))
    rule = MomentumPasses(client.batch, client.mean)
    rows, after = rule.upload(*(jnp.asarray(part) for part in (u, padded[1], padded[0], numbers)))
    np.testing.assert_allclose(rows[:7], change, atol=1e-14)
    np.testing.assert_allclose(after, factor, atol=1e-14)
    assert not np.asarray(rows[7:]).any()


def test_a_declaration_says_what_is_tried():
    assert momentum_to_try(manifest(batch_size=8, reduction="mean")) == (MomentumPasses(8, mean=True),)
    assert momentum_to_try(manifest(order="per-rating", loss="squared")) == (MomentumPasses(),)
    assert not momentum_to_try(manifest(upload="gradient"))
    assert not momentum_to_try(manifest(link="sigmoid"))
    assert not momentum_to_try(manifest(batch_size="all"))


# Client rules by name, and what an object that is no rule lacks.


@pytest.mark.parametrize("name", [*(rule.name for rule in OURS), *NAMES])
def test_rules_have_names(name: str):
    assert not broken(rule_named(name))


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(InputError, match=r"one of any, local-steps, local-momentum, .*got 'steps'"):
        rule_named("steps")


def test_what_an_object_lacks_is_said():
    class Unhashable(LocalSteps):
        __hash__ = None

    class Half:
        name, mixes_rows = "half", True

    assert broken(Half()).startswith("must have families, upload, got")
    assert broken(Unhashable()).startswith("must be hashable")


class Lacking:
    """A rule without its members."""


def leaves():
    raise SystemExit(0)


HERE = f"{__name__}:"


@pytest.mark.parametrize(
    ("offers", "message"),
    [
        ({"own": "json:no_such_name"}, "rule 'own' of an unnamed package .* cannot be made: AttributeError"),
        ({"own": f"{HERE}leaves"}, "cannot be made: SystemExit"),
        ({"own": f"{HERE}Lacking"}, "must have name, mixes_rows, families, upload"),
        ({"adam": f"{HERE}LocalSteps"}, "'adam' is refused: the name is offered by factorleak and by"),
        ({"minibatch": f"{HERE}LocalSteps"}, "'minibatch' is refused"),
    ],
)
def test_a_broken_offer_is_refused(monkeypatch, offers, message):
    """Before: one that left ended the program without a word, one without members in an AttributeError."""
    points = [EntryPoint(name, value, named.GROUP) for name, value in offers.items()]
    monkeypatch.setattr(named, "entry_points", lambda group: points)
    named.offered_on.cache_clear()
    try:
        with pytest.raises(InputError, match=message):
            rule_named(next(iter(offers)))
    finally:
        named.offered_on.cache_clear()


def test_two_packages_with_one_name_answer_neither(monkeypatch):
    points = [EntryPoint("own", f"{HERE}LocalSteps", named.GROUP) for _ in range(2)]
    monkeypatch.setattr(named, "entry_points", lambda group: points)
    named.offered_on.cache_clear()
    try:
        with pytest.raises(InputError, match="is refused: the name is offered by an unnamed package and by"):
            rule_named("own")
    finally:
        named.offered_on.cache_clear()


@pytest.mark.parametrize(
    "rule", [rule for rule in OURS if rule.name != "semi-als"], ids=lambda rule: rule.name
)
def test_no_fit_follows_more_steps_than_it_can(rule):
    """Before: a million declared steps kept ``undeclared`` and ``inversion`` busy for hours."""
    for declared in (MOST_STEPS, 1_000_000):
        asked = manifest(local_steps=declared)
        assert all(max(family.values) <= MOST_STEPS for family in rule.families(asked))


# Rules that are one function.


def decaying(factor, ratings, factors, rate, decay):
    """One step, with a weight decay of the factor."""
    error = rate * (ratings - factors @ factor)
    return error[:, None] * factor, (1 - decay) * factor + error @ factors


def test_a_function_is_a_rule():
    rng = np.random.default_rng(0)
    u, v, r = rng.normal(size=3), rng.normal(size=(4, 3)), rng.integers(1, 6, 4).astype(float)
    rule = client_rule(others=("decay",))(decaying)
    assert not broken(rule)
    assert rule.name == "decaying"
    rows, after = rule.upload(*(jnp.asarray(one) for one in (u, r, v, np.array([np.log(0.1), 0.2]))))
    error = 0.1 * (r - v @ u)
    np.testing.assert_allclose(rows, np.outer(error, u))
    np.testing.assert_allclose(after, 0.8 * u + error @ v)


def test_the_rate_is_open_and_then_what_is_named():
    families = client_rule(decaying, others=("decay",)).families(manifest())
    assert [family.free for family in families] == [(True, False), (True, True)]
    assert [family.start(0.0, 0.5, 1.0) for family in families] == [(np.log(0.5), 0.0)] * 2
    assert [family.free for family in client_rule(decaying).families(manifest())] == [(True,)]


def test_one_rule_of_a_function_is_equal_to_another():
    """Compiled programs are kept by it."""
    assert len({client_rule(decaying), client_rule(decaying)}) == 1
    with pytest.raises(InputError, match="must be given a function, got 'huber'"):
        client_rule("huber")


def raising(factor, ratings, factors, rate):
    raise KeyError("gone")


def short(factor, ratings, factors, rate):
    return factors[:2], factor


def whirling(factor, ratings, factors, rate):
    return factors + 1j, factor


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (whirling, "rule whirling gives complex numbers; it must"),
        (raising, r"rule raising cannot be computed: it must take JAX arrays factor \(K,\).*KeyError"),
        (short, r"rule short gives shapes \(2, 3\) and \(3,\); it must"),
        (decaying, "rule decaying cannot be computed.*missing 1 required"),
    ],
)
def test_what_is_no_rule_is_said_when_it_is_used(function, message: str):
    v = jnp.ones((4, 3))
    with pytest.raises(InputError, match=message):
        client_rule(function).upload(v[0], v[:, 0], v, jnp.zeros(1))


@pytest.mark.parametrize("others", ["decay", 5, None, [1]])
def test_names_of_constants_are_names(others):
    with pytest.raises(InputError, match="others of client_rule must be names"):
        client_rule(decaying, others=others)


class Unhashable:
    """A function whose hash fails in a way of its own."""

    def __hash__(self):
        raise RuntimeError("gone")

    def __call__(self, factor, ratings, factors, rate):
        return factors, factor


def test_a_rule_whose_hash_fails_is_no_rule():
    assert "must be hashable" in broken(client_rule(Unhashable()))


def test_a_function_that_leaves_the_program_is_an_error():
    """Before: exit code 0 without a word."""

    @client_rule
    def leaves(factor, ratings, factors, rate):
        raise SystemExit(0)

    with pytest.raises(InputError, match=r"rule leaves cannot be computed: .*SystemExit"):
        leaves.upload(jnp.ones(2), jnp.ones(3), jnp.ones((3, 2)), jnp.zeros(1))


# The pairwise loss, held against a program of plain loops and against finite differences.


@pytest.mark.parametrize(
    ("negatives", "labels", "pairs"),
    [
        (0, [1, 0, 0, 1, 0, 1], [(i, j) for i in (0, 3, 5) for j in (1, 2, 4)]),
        (1, [1, 0, 0, 1, 1, 0], [(0, 1), (3, 2), (4, 5)]),
        (2, [1, 0, 0, 0, 1, 0], [(0, 1), (0, 2), (4, 3), (4, 5)]),
    ],
    ids=["each with each", "pairs", "two negatives"],
)
def test_the_rule_is_that_of_a_program_that_was_written_apart_of_paired_labels(negatives, labels, pairs):
    rng = np.random.default_rng(0)
    u, v = rng.normal(0, 0.8, 3), rng.normal(0, 0.8, (6, 3))
    change, factor = trained(u, v, pairs, steps=3, rate=0.1, decay=0.3, item_decay=0.2)
    padded = jnp.pad(jnp.asarray(v), ((0, 3), (0, 0))), jnp.pad(jnp.asarray(labels, float), (0, 3))
    constants = jnp.array([np.log(0.1), 0.03, 0.02, np.log(2.0), 3.0])
    rows, after = PairedLabels(negatives).upload(jnp.asarray(u), padded[1], padded[0], constants)
    np.testing.assert_allclose(rows[:6], 2 * change, atol=1e-14)
    np.testing.assert_allclose(after, factor, atol=1e-14)
    assert not np.asarray(rows[6:]).any()


def test_with_all_labels_exchanged_and_the_factor_negated_the_same_rows_are_sent():
    rng = np.random.default_rng(1)
    u, v, y = (jnp.asarray(one) for one in (rng.normal(size=3), rng.normal(size=(5, 3)), [1.0, 0, 0, 1, 0]))
    constants = jnp.array([np.log(0.1), 0.0, 0.0, 0.0, 2.0])
    rows, after = PairedLabels().upload(u, y, v, constants)
    others, other = PairedLabels().upload(-u, 1 - y, v, constants)
    np.testing.assert_allclose(others, rows, atol=1e-14)
    np.testing.assert_allclose(other, -after, atol=1e-14)


def test_slopes_are_those_of_finite_differences_of_paired_labels():
    """By the factor, labels between 0 and 1, and constants."""
    negatives = 1
    rng = np.random.default_rng(2)
    v = jnp.asarray(np.vstack([rng.normal(0, 0.5, (4, 3)), np.zeros((1, 3))]))

    def both(at):
        labels, constants = jnp.append(at[3:7], 0.0), jnp.append(at[7:], 2.0)
        return jnp.vstack(PairedLabels(negatives).upload(at[:3], labels, v, constants)).ravel()

    at, by = np.concatenate([rng.normal(size=3), [0.9, 0.2, 0.6, 0.1], [-1, 0.01, 0.02, 0.3]]), 1e-6
    plain = jax.jit(both)
    slope = np.stack([(plain(at + one) - plain(at - one)) / (2 * by) for one in by * np.eye(at.size)], axis=1)
    np.testing.assert_allclose(jax.jacfwd(both)(at), slope, rtol=1e-6, atol=1e-8)
    assert (np.abs(slope).max(axis=0) > 1e-3).all()


def test_a_declaration_says_how_many_steps_of_paired_labels():
    assert {family.first for family in PairedLabels().families(manifest(local_steps=7))} == {7.0}
    families = PairedLabels().families(manifest())
    assert [family.values[0] for family in families] == [1.0, 1.0]
    assert all(len(one.free) == len(one.start(2.0, 1.0, 1.0)) for one in families)


# What attacks assume of the clients' rule, against what is declared and what is left out.


FOLLOWERS = ("spectral", "trajectory", "eq24-corrected", "root-hybr")
WITHOUT_JUDGEMENT = ("likelihood", "root-hybr")


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> View:
    """A server's view of gradient steps, everything declared."""
    folder = tmp_path_factory.mktemp("premises") / "t"
    Reference("sgd", groups=(), rounds=(1, 2), scale=1.0).write(folder)
    return open_transcript(folder).view("server")


def declaring(view: View, **changes: object) -> View:
    """The same view with other keys of the rule; None leaves one out."""
    rule = ClientRule.model_validate(view.manifest.rule.model_dump() | changes)
    manifest = view.manifest.model_copy(update={"version": 2, "declared_rule": rule})
    return replace(view, manifest=manifest)


@pytest.mark.parametrize("name", FOLLOWERS)
def test_factors_that_begin_anew_are_not_followed(seen, name):
    found = answered(name, None, declaring(seen, start="fresh"), 0)
    assert found.abstained.keys() == set(seen.users.tolist())
    assert "begins anew in every round (start fresh), which this attack does not model" in found.obstacle


@pytest.mark.parametrize("key", ["link", "clip"])
@pytest.mark.parametrize("name", WITHOUT_JUDGEMENT)
def test_what_does_not_judge_asks_for_the_rule(seen, name, key):
    found = answered(name, None, declaring(seen, **{key: None}), 0)
    assert f"not declared ({key})" in found.obstacle


@pytest.mark.parametrize(
    ("name", "options"),
    [("eq24-corrected", {"answer": "any"}), pytest.param("root-hybr", None, marks=pytest.mark.thorough)],
)
def test_and_for_the_start_where_it_follows_factors(seen, name, options):
    assert "not declared (start)" in answered(name, options, declaring(seen, start=None), 0).obstacle
    assert not answered(name, options, declaring(seen), 0).obstacle


def test_who_judges_its_answer_needs_no_declared_start(seen):
    assert not answered("eq24-corrected", None, declaring(seen, start=None), 0).obstacle


@pytest.mark.parametrize("start", [None, "fresh"])
def test_the_decoder_reads_each_round_by_itself(seen, start):
    """Nothing ties the factors of two rounds, so it answers as if nothing was known of the client's step."""
    found = answered("likelihood", None, declaring(seen, start=start), 0)
    assert not found.obstacle


# The table of client and server rules against the protocols that the project records.


@pytest.fixture(scope="module")
def manifests():
    """Of every protocol in the table whose clients take gradient steps."""
    ratings = generate(Synthetic(users=8, items=40, seed=1))
    options = {"fedmvmf": {"update": "sgd"}}
    return {name: make_victim(name, options.get(name, {})).manifest(ratings, [0, 1]) for name in CLIENT_RULES}


def test_both_tables_name_the_same_protocols():
    assert set(CLIENT_RULES) == set(SERVER_RULES)


def test_every_constant_of_the_table_is_public_in_its_protocol(manifests):
    for name, manifest in manifests.items():
        assert manifest.protocol == name
        assert unknown_step(manifest) == ""
        assert not_public(manifest, SERVER_RULES[name].constants) == ""


def test_a_missing_constant_is_named(manifests):
    for name, manifest in manifests.items():
        for constant in CLIENT_RULES[name].constants:
            names = (constant,) if isinstance(constant, str) else constant
            known = {key: value for key, value in manifest.hyperparameters.items() if key not in names}
            reason = unknown_step(manifest.model_copy(update={"hyperparameters": known}))
            assert reason == f"{' or '.join(names)} are not public"


def test_an_unlisted_protocol_is_not_guessed(manifests):
    other = manifests["fedmf"].model_copy(update={"protocol": "another"})
    assert "the clients' step of another/sgd" in unknown_step(other)


def test_the_rate_of_the_unit_ball_drops_twice(manifests):
    """Hu & Fang 2023, section 5: eta is divided by 5 after one quarter and three of the epochs."""
    manifest = manifests["mf"]
    epochs, rate = (manifest.hyperparameters[name] for name in ("epochs", "learning_rate"))
    rounds = np.array([0, epochs // 4, 3 * epochs // 4, epochs - 1], int)
    pull = step_of(manifest, rounds, np.array([3])).pull
    np.testing.assert_allclose(pull, 2 * rate / np.array([1, 5, 25, 25]))


# Factors that clients solve for, held against the victim's own and against finite differences.


def manifest_of_semi_als(ridge: float | None = None, scale_known: bool = True) -> Manifest:
    return Manifest(
        format="factorleak-transcript", version=2, protocol="strange", update="semi-als",
        weighting="observed-only", n_users=1, n_items=1, n_attributes=0, factors=5, rounds=[0],
        hyperparameters={} if ridge is None else {"lambda_factors": ridge}, rating_levels=[1, 2],
        scale_known=scale_known,
    )  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("first", [0.0, 1.7])
def test_rows_are_those_of_the_victim(ratings: Ratings, first: float):
    """Of items and, times the root of lambda_1, of attributes, in the second round."""
    victim = FedMVMF(update="semi-als", lambda_attributes=first, lambda_factors=3.0, factors=4)
    state = victim.round(victim.init(ratings, 0), ratings)
    q, u = victim.broadcast(state)
    table, users = ratings.matrix().toarray(), np.array([0, 5, 17])
    sent = list(victim.uploads(state, ratings, users))
    gradient, owner, kind = (
        np.concatenate([getattr(one, name) for one in sent]) for name in ("gradient", "sender", "kind")
    )
    for user in users:
        rated = np.flatnonzero(table[user])
        root = np.sqrt(first)
        factors = np.vstack([q[rated], root * u, np.zeros((2, 4))])
        values = np.concatenate([table[user, rated], root * ratings.attributes[user], [0, 0]])
        constants = jnp.array([np.log(3.0), np.log(2.0), 1.0])
        rows, after = SemiALS().upload(jnp.ones(4), jnp.asarray(values), jnp.asarray(factors), constants)
        mine = gradient[owner == user]
        items = kind[owner == user] == 0
        np.testing.assert_allclose(rows[: rated.size], 2 * mine[items], rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(rows[rated.size : -2], 2 * root * mine[~items], rtol=1e-9, atol=1e-13)
        assert not np.asarray(rows[-2:]).any()
        np.testing.assert_allclose(after, victim.user_factors(state, ratings)[user], rtol=1e-9)


def test_unrated_items_have_their_weight(ratings: Ratings):
    """All items, 0 where unrated, with the smoothed weight: p as the victim has it in include-unrated."""
    victim = FedMVMF(update="semi-als", weighting="include-unrated", alpha=0.2, factors=4)
    state = victim.init(ratings, 1)
    q, u = victim.broadcast(state)
    own = ratings.matrix().toarray()[3]
    values = jnp.asarray(np.concatenate([own, ratings.attributes[3]]))
    item = jnp.arange(values.size) < own.size
    p = solved_factor(
        values, jnp.vstack([q, u]), smooth_weight(values, jnp.array(0.2), item), jnp.array(10.0)
    )
    np.testing.assert_allclose(p, victim.user_factors(state, ratings)[3], rtol=1e-9)


def test_slopes_are_those_of_finite_differences_of_semi_als():
    """Of rows and factor by ratings between the levels and by constants; the start has no part."""
    alpha = 0.3
    rng = np.random.default_rng(0)
    q, r = jnp.asarray(rng.normal(0, 0.5, (6, 3))), rng.uniform(0.1, 4, 6)

    def both(at):
        constants = jnp.append(at[9:], alpha)
        return jnp.vstack(SemiALS().upload(at[:3], at[3:9], q, constants)).ravel()

    at, by = np.concatenate([rng.normal(size=3), r, [0.4, -0.2]]), 1e-6
    plain = jax.jit(both)
    slope = np.stack([(plain(at + one) - plain(at - one)) / (2 * by) for one in by * np.eye(at.size)], axis=1)
    np.testing.assert_allclose(jax.jacfwd(both)(at), slope, rtol=1e-6, atol=1e-8)
    assert not slope[:, :3].any()
    assert (np.abs(slope[:, 3:]).max(axis=0) > 1e-3).all()


def test_mixtures_of_ratings_make_mixtures_of_rows():
    """What lets clients of any size be fitted as ones with K + 1 ratings."""
    rng = np.random.default_rng(1)
    q, r = rng.normal(0, 0.5, (6, 3)), rng.uniform(1, 5, 6)
    turn, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    constants = jnp.array([0.5, 0.0, 1.0])
    rows, p = SemiALS().upload(jnp.zeros(3), jnp.asarray(r), jnp.asarray(q), constants)
    mixed, same = SemiALS().upload(jnp.zeros(3), jnp.asarray(turn @ r), jnp.asarray(turn @ q), constants)
    np.testing.assert_allclose(mixed, turn @ rows, atol=1e-13)
    np.testing.assert_allclose(same, p, atol=1e-13)


def test_a_declaration_says_what_is_tried_first_of_semi_als():
    labels = [family.label for family in SemiALS().families(manifest_of_semi_als(3.0))]
    assert labels == ["solved for, as declared", "solved for, any ridge", "solved for, any ridge and scale"]
    assert [family.first for family in SemiALS().families(manifest_of_semi_als(3.0))] == [3.0] * 3
    assert len(SemiALS().families(manifest_of_semi_als())) == 2
    unscaled = SemiALS().families(manifest_of_semi_als(3.0, scale_known=False))
    assert [family.multiples for family in unscaled] == [True]
    assert all(
        len(one.free) == len(one.start(2.0, 1.0, 1.0)) for one in SemiALS().families(manifest_of_semi_als())
    )
