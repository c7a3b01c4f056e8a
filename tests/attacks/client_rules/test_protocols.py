"""The table of client and server rules against the protocols that the project records."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.client_rules.client_update import step_of, unknown_step
from attacks.client_rules.protocols import CLIENT_RULES, SERVER_RULES, not_public
from audit.factories import make_victim
from victims.data.synthetic import Synthetic, generate


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
    """Paper 002, section 5: eta is divided by 5 after a quarter and after three quarters of the epochs."""
    manifest = manifests["mf"]
    epochs, rate = (manifest.hyperparameters[name] for name in ("epochs", "learning_rate"))
    rounds = np.array([0, epochs // 4, 3 * epochs // 4, epochs - 1], int)
    pull = step_of(manifest, rounds, np.array([3])).pull
    np.testing.assert_allclose(pull, 2 * rate / np.array([1, 5, 25, 25]))
