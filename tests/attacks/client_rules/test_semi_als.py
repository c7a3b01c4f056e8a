"""Factors that clients solve for, held against the victim's own and against finite differences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attacks.client_rules.semi_als import SemiALS, smooth_weight, solved_factor
from victims.data.ratings import Ratings
from victims.protocols.fedmvmf import FedMVMF
from victims.transcript.manifest import Manifest


def manifest(ridge: float | None = None, scale_known: bool = True) -> Manifest:
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


@pytest.mark.parametrize("alpha", [0.3])
def test_slopes_are_those_of_finite_differences(alpha: float):
    """Of rows and factor by ratings between the levels and by constants; the start has no part."""
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


def test_a_declaration_says_what_is_tried_first():
    labels = [family.label for family in SemiALS().families(manifest(3.0))]
    assert labels == ["solved for, as declared", "solved for, any ridge", "solved for, any ridge and scale"]
    assert [family.first for family in SemiALS().families(manifest(3.0))] == [3.0] * 3
    assert len(SemiALS().families(manifest())) == 2
    unscaled = SemiALS().families(manifest(3.0, scale_known=False))
    assert [family.multiples for family in unscaled] == [True]
    assert all(len(one.free) == len(one.start(2.0, 1.0, 1.0)) for one in SemiALS().families(manifest()))
