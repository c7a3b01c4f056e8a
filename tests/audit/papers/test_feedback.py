"""Yang et al.'s measures: split, two universes, popularity, implicit model, references, traffic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audit.papers import feedback as references
from audit.papers.feedback import (
    feedback_split,
    hits,
    implicit_pmf,
    popularity,
    traffic,
    unit_rmse,
    unit_values,
)
from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.data.subsets import Community, community, parse_community
from victims.protocols.cofactor_draws import EXPLICIT, NEGATIVE, POSITIVE, Samples, with_negatives
from victims.protocols.dmf import DMF
from victims.protocols.dpmf_yang import DPMFYang


def pairs(ratings: Ratings) -> set[tuple[int, int]]:
    return set(zip(ratings.users.tolist(), ratings.items.tolist(), strict=True))


@pytest.fixture(scope="module")
def split(ratings):
    return feedback_split(ratings, 0.3, 0.5, 6)


def test_the_split_is_that_of_the_paper_and_of_the_victim(ratings, split):
    train, test = split
    assert test.both.n_ratings == round(0.3 * ratings.n_ratings)
    assert pairs(train.both) | pairs(test.both) == pairs(ratings)
    for part in split:
        assert not pairs(part.explicit) & pairs(part.implicit)
        assert pairs(part.explicit) | pairs(part.implicit) == pairs(part.both)
        assert part.implicit.n_ratings == round(0.5 * part.both.n_ratings)
    samples = DPMFYang().init(train.both, 6).samples
    for kind, part in ((EXPLICIT, train.explicit), (POSITIVE, train.implicit)):
        mine = samples.kind == kind
        assert set(zip(samples.user[mine].tolist(), samples.item[mine].tolist(), strict=True)) == pairs(part)
    with pytest.raises(InputError, match="test_fraction of a split must be between 0 and 1"):
        feedback_split(ratings, 1.0, 0.5, 0)
    few = replace(
        ratings, indptr=np.r_[0, np.full(40, 1)], items=ratings.items[:1], values=ratings.values[:1]
    )
    with pytest.raises(InputError, match="too few ratings"):
        feedback_split(few, 0.3, 0.5, 0)


def by_hand(scores, hidden, relevant, n_users, n_items):
    """P@5 and R@5, user by user, with sets."""
    found = []
    for user in range(n_users):
        wanted = {item for one, item in relevant if one == user}
        if wanted:
            free = [item for item in range(n_items) if (user, item) not in hidden]
            listed = sorted(free, key=lambda item: -scores[user, item])[:5]
            right = len(wanted & set(listed))
            found.append((right / 5, right / len(wanted)))
    return np.mean(found, axis=0)


def test_both_universes_by_hand(ratings, split):
    scores = np.random.default_rng(0).random((ratings.n_users, ratings.n_items))
    values = hits(split, lambda users: scores[users])
    shape = ratings.n_users, ratings.n_items
    for universe, hidden, relevant in (
        ("implicit", split.train.implicit, split.test.implicit),
        ("all", split.train.both, split.test.both),
    ):
        expected = by_hand(scores, pairs(hidden), pairs(relevant), *shape)
        got = values[f"precision_at_5_{universe}"], values[f"recall_at_5_{universe}"]
        assert got == pytest.approx(expected)
    best = popularity(split, 0)
    assert set(best) == set(values)
    assert best["precision_at_5_all"] > values["precision_at_5_all"]


def test_errors_are_in_units_of_the_rating_map(split):
    test = split.test.explicit
    assert unit_rmse(unit_values(test, "min-max"), test, "min-max") == 0
    off = unit_rmse(np.full(test.n_ratings, 9.0), test, "max")  # clipped to the largest level
    assert off == pytest.approx(np.sqrt(np.mean((1 - test.values / 5) ** 2)))


def test_the_implicit_model_is_at_a_minimum_of_its_loss(ratings):
    """Of (9) to (12), written out again; no step from there goes down."""
    fitted = implicit_pmf(ratings, ratings, 2, negative_weight=0.7, ridge=2.0, seed=3)
    kind = np.full(ratings.n_ratings, POSITIVE, np.int8)
    samples = Samples(ratings.users, ratings.items, kind, np.zeros(kind.size))
    samples = with_negatives(samples, ratings, 3, 0)
    wanted = samples.kind == POSITIVE
    assert (samples.kind == NEGATIVE).sum() > 0

    def loss(u, z):
        g = 1 / (1 + np.exp(-np.sum(u[samples.user] * z[samples.item], axis=1)))
        fit = -np.log(g[wanted]).sum() - np.log(1 - 0.7 * g[~wanted]).sum()
        return fit + np.sum(u**2) + np.sum(z**2)

    u, z = fitted.clients, fitted.items
    here, rng = loss(u, z), np.random.default_rng(0)
    for size in (0.1, 0.01):
        for _ in range(20):
            moved = loss(u + size * rng.normal(size=u.shape), z + size * rng.normal(size=z.shape))
            assert moved > here
    assert here < loss(np.zeros_like(u), np.zeros_like(z))


def test_traffic_is_what_is_uploaded_along_the_edges(ratings):
    """And (|R| + 2 |M|) d where everybody has d receivers: negatives are sent, too."""
    victim = DPMFYang(factors=4, degree=2)
    state = victim.init(ratings, 0)
    found = traffic(victim, state, ratings)
    samples = state.samples
    positive = int((samples.kind == POSITIVE).sum())
    explicit = int((samples.kind == EXPLICIT).sum())
    counts = np.bincount(samples.user, minlength=ratings.n_users)
    by_edge = sum(counts[sender] for sender in state.edges.sender)
    assert found.messages == by_edge == (explicit + 2 * positive) * 2
    assert found.rows == explicit + 2 * positive
    assert found.bytes == found.messages * (4 + 4 * 8)
    walking = DMF(walk_length=3)
    sent = traffic(walking, walking.init(ratings, 0), ratings)
    assert sent.rows == ratings.n_ratings
    assert sent.rows < sent.messages <= 9 * sent.rows


class TestReferences:
    @pytest.mark.parametrize("name", list(references.PACKAGES))
    def test_missing_packages_are_named(self, name, split, monkeypatch):
        monkeypatch.setitem(references.PACKAGES, name, "no-such-package-of-anybody")
        assert references.version_of(name) is None
        with pytest.raises(InputError, match=r"needs the package no-such-package.*factorleak\[references\]"):
            self.fit(name, split, 2)

    @pytest.mark.parametrize("name", list(references.PACKAGES))
    @pytest.mark.filterwarnings("ignore")  # of other people's packages
    def test_they_are_called_as_they_expect(self, name, split):
        if references.version_of(name) is None:
            pytest.skip(f"{references.PACKAGES[name]} is not installed: extra references")
        if name == "wrmf":
            values = hits(split, self.fit(name, split, 2).scores)
            assert all(0 <= value <= 1 for value in values.values())
            return
        train, test = split.train.explicit, split.test.explicit
        fitted = self.fit(name, split, 2)
        known = unit_rmse(fitted(train), train, "max")
        assert known < unit_rmse(np.full(train.n_ratings, unit_values(train, "max").mean()), train, "max")
        assert np.isfinite(fitted(test)).all()

    @staticmethod
    def fit(name, split, factors):
        if name == "wrmf":
            return references.weighted_factorisation(split.train.implicit, factors, 0)
        fit = references.svd_plus_plus if name == "svd++" else references.gaussian_pmf
        return fit(split.train.explicit, unit_values(split.train.explicit, "max"), factors, 0)


class TestCommunity:
    def test_sizes_and_trust(self, ratings):
        ring = np.stack([np.arange(40), (np.arange(40) + 1) % 40], axis=1).astype(np.int32)
        trusting = replace(ratings, trust=ring)
        part = community(trusting, Community(15, 20, 60, 1))
        assert part.n_users <= 15
        assert part.n_items <= 20
        assert part.n_ratings <= 60
        assert (np.diff(part.indptr) > 0).all()
        assert np.unique(part.items).size == part.n_items
        positions = np.sort(np.searchsorted(ratings.user_ids, part.user_ids))
        assert positions.size > 10
        assert len(part.trust) >= part.n_users - 4  # along the ring, but for users who were dropped
        assert pairs(part) == pairs(community(trusting, Community(15, 20, 60, 1)))
        assert pairs(part) != pairs(community(trusting, Community(15, 20, 60, 2)))

    def test_unusable(self, ratings):
        with pytest.raises(InputError, match="has no statements of trust"):
            community(ratings, Community(5, 5, 5))
        for text in ("", "5x5", "0x5x5", "5x5x5x1x1", "axbxc"):
            with pytest.raises(InputError, match="community of the data must be USERSxITEMSxRATINGS"):
                parse_community(text)
