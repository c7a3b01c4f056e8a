"""The checks that other packages call: ours pass, and each broken rule is named."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import factorleak as fl
from audit.factories import make_attack, make_defenses
from factorleak import plugins


@dataclass(frozen=True)
class Guess:
    """Four stars for every item; what a subclass of the tests breaks."""

    name: str = "guess"

    def attack(self, view, key, progress=lambda done, total: None):
        items = np.arange(view.manifest.n_items, dtype=np.int32)[None]
        value = self.stars(view, np.full((view.users.size, items.size), 4.0), key)
        block = fl.Estimates(view.users, np.full_like(items, plugins.ITEM, np.int8), items, value)
        return fl.Reconstruction(self.name, view.users, (block,), {}, {"seed": key})

    def stars(self, view, value, key):
        return value


class Restless(Guess):
    def stars(self, view, value, key):
        return value + np.random.default_rng().random(value.shape)


class Infinite(Guess):
    def stars(self, view, value, key):
        return value + np.inf


class Cheat(Guess):
    """It knows the ratings that the check draws, and needs no uploads."""

    def stars(self, view, value, key):
        told = fl.synthetic(users=24, items=30, ratings_per_user=8.0, seed=7).matrix().toarray()
        return told[view.users][:, : value.shape[1]].astype(float)


class Blank(Guess):
    """It abstains on nobody, and answers nobody."""

    def stars(self, view, value, key):
        return np.full_like(value, np.nan)


class Shy(Guess):
    def attack(self, view, key, progress=lambda done, total: None):
        return fl.Reconstruction(self.name, view.users, (), dict.fromkeys(view.users.tolist(), "too hard"))


class Elsewhere(Guess):
    def attack(self, view, key, progress=lambda done, total: None):
        return fl.plugins.all_abstain(self.name, view.users, "there are no sums", {})


@dataclass(frozen=True)
class Changed(plugins.Defense):
    """Uploads that a subclass of the tests breaks."""

    name: str = "changed"

    def public(self):
        return {"name": self.name}


class Shared(Changed):
    def uploaded(self, rows, ratings, number, seed):
        return replace(rows, gradient=rows.gradient + rows.gradient.mean())


class InPlace(Changed):
    def uploaded(self, rows, ratings, number, seed):
        rows.gradient[:] *= 2
        return rows


class Boundless(Changed):
    def uploaded(self, rows, ratings, number, seed):
        return replace(rows, gradient=rows.gradient * np.nan)


class Fresh(Changed):
    def uploaded(self, rows, ratings, number, seed):
        return replace(
            rows, gradient=rows.gradient + np.random.default_rng().normal(size=rows.gradient.shape)
        )


class Nameless(Changed):
    def public(self):
        return {}


class Idle(Changed):
    @property
    def attackers(self):
        return (plugins.Attacker("spectrum", 1),)


def test_an_attack_of_ours_passes():
    plugins.check_attack(make_attack("grid"))


@pytest.mark.parametrize("text", ["laplace:b=2", "unrated-sampling", "personalized-sampling", "stretching"])
def test_defenses_of_ours_pass(text):
    for defense in make_defenses(text):
        plugins.check_defense(defense)


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (Restless(), "the same answer for the same view and key"),
        (Infinite(), "values must be finite"),
        (Cheat(), "read nothing where gradients are dealt out anew"),
        (Blank(), r"must answer some client .* got no answer \(and no reason\)"),
        (Shy(), r"24 of 24 clients got no answer: too hard \(24\).*return fl.plugins.all_abstain"),
    ],
)
def test_a_broken_attack_is_named(broken, rule):
    with pytest.raises(AssertionError, match=rule):
        plugins.check_attack(broken)


@pytest.mark.parametrize("attack", [Elsewhere(), make_attack("eq24-corrected"), make_attack("aggregate")])
def test_an_attack_may_say_that_it_does_not_apply(attack):
    plugins.check_attack(attack)


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (Shared(), "treat a client alike whoever else takes part"),
        (InPlace(), "leave the rows that it is given"),
        (Boundless(), "finite numbers"),
        (Fresh(), "the same rows for the same seed"),
        (Nameless(), "must have its name"),
    ],
)
def test_a_broken_defense_is_named(broken, rule):
    with pytest.raises(AssertionError, match=rule):
        plugins.check_defense(broken)


def test_attackers_must_exist():
    with pytest.raises(fl.InputError, match="spectral"):
        plugins.check_defense(Idle())
