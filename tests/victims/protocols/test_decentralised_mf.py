"""Matrix factorisation on the unit ball: both orders against plain loops, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from attacks.client_rules.client_update import gram_of, move, step_of, target_of
from audit.factories import make_defenses
from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.protocols.sequential import chains
from victims.recording import record
from victims.training import received, start
from victims.transcript.reader import open_transcript
from victims.transcript.view import ATTRIBUTE


def one_epoch_by_hand(victim, ratings, items, clients):
    """Algorithm 1 of Hu & Fang 2023, rating by rating; lambda once in a gradient, Eq. (4), or with each."""
    items, clients = items.copy(), clients.copy()
    rate, ridge = victim.learning_rate, victim.regularization
    once, each = (ridge, 0.0) if victim.regularize == "step" else (0.0, ridge)
    step = 2 * once * items
    for user, item, value in zip(ratings.users, ratings.items, ratings.values, strict=True):
        u, v = clients[user], items[item]
        step[item] += 2 * (u @ v - value) * u + 2 * each * v
    items -= rate * step
    step = 2 * once * clients
    for user, item, value in zip(ratings.users, ratings.items, ratings.values, strict=True):
        u, v = clients[user], items[item]
        step[user] += 2 * (u @ v - value) * v + 2 * each * u
    clients -= rate * step
    return items, clients / np.maximum(np.linalg.norm(clients, axis=1, keepdims=True), 1)


@pytest.mark.parametrize("options", [{}, {"regularize": "sample"}], ids=["step", "sample"])
def test_batch_is_algorithm_1(ratings, options):
    victim = DecentralisedMF(factors=4, learning_rate=0.02, regularization=0.3, **options)
    run = start(victim, ratings, (), 0)
    for number in range(3):
        expected = one_epoch_by_hand(
            victim, ratings, np.asarray(run.state.item_factors), np.asarray(run.state.client_factors)
        )
        run = run.trained(number)
        np.testing.assert_allclose(run.state.item_factors, expected[0], atol=1e-12)
        np.testing.assert_allclose(run.state.client_factors, expected[1], atol=1e-12)
    assert np.linalg.norm(run.state.client_factors, axis=1).max() == pytest.approx(1)


@pytest.mark.thorough
def test_per_rating_is_a_loop_over_ratings(ratings):
    """All item updates in an order that keeps each item's raters as drawn, then all client updates."""
    victim = DecentralisedMF(factors=3, order="per-rating", learning_rate=0.02)
    run = start(victim, ratings, make_defenses("dpmf:noise=fresh"), 5)
    items, clients = np.array(run.state.item_factors), np.array(run.state.client_factors)
    added = received(run, 0).added
    rng = generator(5, Purpose.RATING_ORDER, 0)
    for entry in order_of(chains(ratings.items, ratings.n_items, rng)):
        u, v = clients[ratings.users[entry]], items[ratings.items[entry]]
        gradient = 2 * (u @ v - ratings.values[entry]) * u + added[entry] + 2 * 0.01 * v
        items[ratings.items[entry]] = v - 0.02 * gradient
    for entry in order_of(chains(ratings.users, ratings.n_users, rng)):
        u, v = clients[ratings.users[entry]], items[ratings.items[entry]]
        u = u - 0.02 * (2 * (u @ v - ratings.values[entry]) * v + 2 * 0.01 * u)
        clients[ratings.users[entry]] = u / max(1, np.linalg.norm(u))
    run = run.trained(0)
    np.testing.assert_allclose(run.state.item_factors, items, atol=1e-10)
    np.testing.assert_allclose(run.state.client_factors, clients, atol=1e-10)


def order_of(found):
    for table in found.tables:
        for row in table:
            yield from row[row >= 0]


def test_chains_handle_every_entry_once(ratings):
    found = chains(ratings.items, ratings.n_items, np.random.default_rng(0))
    handled = np.fromiter(order_of(found), int)
    np.testing.assert_array_equal(np.sort(handled), np.arange(ratings.n_ratings))
    for table in found.tables:
        group = np.where(table >= 0, ratings.items[table], found.groups[: table.shape[1]])
        assert (group == found.groups[: table.shape[1]]).all()


def test_uploads_and_manifest(ratings, tmp_path):
    record(DecentralisedMF(factors=4), ratings, tmp_path / "x", rounds=[0, 1], users=[3, 7])
    view = open_transcript(tmp_path / "x").view("server")
    run = start(DecentralisedMF(factors=4), ratings, (), 0)
    u, v = np.asarray(run.state.client_factors)[3], np.asarray(run.state.item_factors)
    for item, row in zip(view.messages.index[0], view.messages.gradient[0], strict=True):
        if item in ratings.items[ratings.indptr[3] : ratings.indptr[4]]:
            value = ratings.matrix()[[3]].toarray()[0, item]
            np.testing.assert_allclose(row, 2 * (u @ v[item] - value) * u, atol=1e-12)
            break
    assert view.manifest.upload.scale == -2
    assert view.manifest.hyperparameters == {
        "learning_rate": 0.001,
        "epochs": 100,
        "step_regularization": 0.01,
    }
    assert view.broadcasts[0].noise_scale is None


@pytest.mark.parametrize("victim", [FedMF(factors=3), FedMVMF(update="sgd")])
def test_the_attack_restates_the_clients_step(ratings, victim):
    """``attacks.client_rules.client_update`` was written from the papers; the victim moves as it says."""
    run = start(victim, ratings, (), 0)
    for number in range(3):
        after = run.trained(number)
        manifest = victim.manifest(ratings, [number])
        known = manifest.hyperparameters
        for user in (0, 5, 17):
            own = slice(*ratings.indptr[user : user + 2])
            used = after if victim.manifest(ratings, [0]).protocol == "mf" else run
            items, attributes = victim.broadcast(used.state)
            factors = np.concatenate([items[ratings.items[own]], attributes])
            value = np.concatenate([ratings.values[own], ratings.attributes[user][: len(attributes)]])
            weight = np.repeat(
                [1.0, known.get("lambda_attributes", 1.0)], [own.stop - own.start, len(attributes)]
            )
            step = step_of(manifest, np.array([number]), np.array([own.stop - own.start]))
            t = jnp.asarray(factors)
            weighted = jnp.asarray(weight)[:, None] * t
            sums = gram_of(weighted, t), target_of(weighted, jnp.asarray(value))
            own_factor = jnp.asarray(run.user_factors(number)[user])
            moved = move(step, own_factor, *sums, step.shrink[0, 0], step.pull[0])
            np.testing.assert_allclose(moved, after.user_factors(number + 1)[user], atol=1e-12)
        run = after
    assert ATTRIBUTE == 1


def test_schedule():
    victim = DecentralisedMF(learning_rate=1.0, epochs=8)
    assert [victim.rate(number) for number in range(8)] == [1, 1, 0.2, 0.2, 0.2, 0.2, 0.04, 0.04]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"factors": 0}, "factors of decentralised_mf must be between 1 and 4096, got 0"),
        ({"order": "random"}, "order of decentralised_mf must be batch or per-rating"),
        ({"learning_rate": 0.0}, "learning_rate of decentralised_mf must be > 0"),
        ({"epochs": 0}, "epochs of decentralised_mf"),
        ({"regularization": -1.0}, "regularization of decentralised_mf must be >= 0"),
        ({"init_scale": 0.0}, "init_scale of decentralised_mf"),
    ],
)
def test_bad_options(options, message):
    from audit.factories import make_victim

    with pytest.raises(InputError, match=message if "order" not in options else "order"):
        make_victim("mf", options)


def test_refusals(ratings):
    with pytest.raises(InputError, match="must not depend on the row"):
        start(DecentralisedMF(order="per-rating"), ratings, make_defenses("laplace:clip=1"), 0)
    with pytest.raises(InputError, match="must not be sampled"):
        start(DecentralisedMF(), ratings, make_defenses("unrated-sampling"), 0).trained(0)
    run = start(replace(DecentralisedMF(), learning_rate=1e200), ratings, (), 0)
    with pytest.raises(InputError, match="lower learning_rate"):
        run.trained(0)
