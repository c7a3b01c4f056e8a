"""Client rules by name, and what an object that is no rule lacks."""

from __future__ import annotations

import pytest

from attacks.client_rules.local_passes import NAMES
from attacks.client_rules.local_steps import LocalSteps
from attacks.client_rules.named import OURS, broken, rule_named
from victims.common.errors import InputError


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
