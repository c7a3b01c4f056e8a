"""Rules that are one function."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from attacks.client_rules.named import broken
from attacks.client_rules.own_rule import client_rule
from tests.attacks.client_rules.test_local_passes import manifest
from victims.common.errors import InputError


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
