"""The checks that other packages call: ours pass, and each broken rule is named."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import factorleak as fl
from audit.factories import make_attack
from factorleak import plugins
from victims.protocols.fedmf import FedMF


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


class Unseeded(FedMF):
    def init(self, ratings, seed):
        return super().init(ratings, 3)


class Drifting(FedMF):
    def init(self, ratings, seed):
        return super().init(ratings, int(np.random.default_rng().integers(1 << 30)))


class Crowded(FedMF):
    def manifest(self, ratings, rounds):
        return super().manifest(ratings, rounds).model_copy(update={"n_users": ratings.n_users + 1})


class Sociable(FedMF):
    """Its clients' rows depend on who else uploads."""

    def uploads(self, state, ratings, users, sample=None):
        for rows in super().uploads(state, ratings, users, sample):
            yield replace(rows, gradient=rows.gradient * len(users))


class Careless(FedMF):
    """It goes on where factors are not finite."""

    def round(self, state, ratings, received=None, sample=None):
        try:
            return super().round(state, ratings, received, sample)
        except fl.InputError:
            return state._replace(round=state.round + 1)


class Talkative(FedMF):
    @property
    def capabilities(self):
        return replace(super().capabilities, attackers=(plugins.Attacker("telepathy", 1),))


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (Drifting(), "the same state for the same seed"),
        (Unseeded(), "another state for another seed"),
        (Crowded(), "must have n_users"),
        (Sociable(), "alike whoever else"),
        (Careless(), "must refuse factors that are not finite"),
    ],
)
def test_a_broken_victim_is_named(broken, rule):
    with pytest.raises(AssertionError, match=rule):
        plugins.check_victim(broken)


def test_attackers_of_a_victim_must_exist():
    with pytest.raises(fl.InputError, match="telepathy"):
        plugins.check_victim(Talkative())
