"""Client rules by name, and what an object that is no rule lacks."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from attacks.client_rules import named
from attacks.client_rules.differentiable import MOST_STEPS
from attacks.client_rules.local_passes import NAMES
from attacks.client_rules.local_steps import LocalSteps
from attacks.client_rules.named import OURS, broken, rule_named
from tests.attacks.client_rules.test_local_passes import manifest
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
