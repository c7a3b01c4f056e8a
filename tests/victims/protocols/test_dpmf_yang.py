"""DPMF-Yang and DMF: rounds against a plain program, gradients against the loss, and what is drawn."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from tests.oracles.cofactor_loss import loss
from tests.oracles.cofactor_program import one_round
from tests.oracles.peer_programs import cofactors_of, drawn, round_of
from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.data.subsets import of_users
from victims.protocols.cofactor_draws import EXPLICIT, NEGATIVE, POSITIVE
from victims.protocols.cofactor_round import key_of, sample_factors, trained_of, whole
from victims.protocols.dmf import DMF
from victims.protocols.dpmf_yang import DPMFYang
from victims.training import start
from victims.transcript.kinds import IMPLICIT, ITEM

K = 3


@pytest.fixture(scope="module")
def few(ratings):
    """Twelve users, some of whom trust nobody, one, or more than three."""
    some = of_users(ratings, np.arange(12))
    trust = [(0, 1), (0, 2), (0, 5), (0, 7), (1, 0), (2, 0), (2, 3), (2, 9), (5, 0), (11, 4)]
    return replace(some, trust=np.array(trust, np.int32))


@pytest.mark.parametrize(
    "victim",
    [
        DPMFYang(),
        DPMFYang(order="batch", regularize="round", rating_map="min-max", personal_start="private"),
        DPMFYang(negatives="rounds", receivers="rounds", fallback="similarity", negative_weight=1.0),
        DPMFYang(order="per-rating", regularize="round", fallback="nobody", start="normal"),
        DMF(fallback="nobody", walk_length=3),
        DMF(order="batch", walks="fixed", positive_share=0.4, regularize="round", personal_start="private"),
    ],
    ids=lambda victim: f"{victim.name}-{victim.order}-{victim.regularize}",
)
def test_rounds_are_those_of_a_plain_program(few, victim):
    victim = replace(victim, factors=K, learning_rate=0.3, lambda_users=0.05, lambda_items=0.02)
    run = start(victim, few, (), 4)
    constants, users = cofactors_of(victim, run.state, few)
    for number in range(3):
        samples, receivers, order = round_of(victim, run.state, few)
        sent = one_round(constants, users, samples, receivers)
        sent = np.array([row for number in range(few.n_users) for row in sent[number]])
        rows = trained_of(victim.rules, run.state, victim.samples_of(run.state, few)).last.rows
        np.testing.assert_allclose(rows[order], sent, atol=1e-12)
        uploaded = np.concatenate([r.gradient for r in victim.uploads(run.state, few, np.arange(12))])
        np.testing.assert_array_equal(uploaded, rows)
        run = run.trained(number)
    state = run.state
    np.testing.assert_allclose(state.clients, [user.u for user in users], atol=1e-12)
    if victim.rules.has_offsets:
        means = [np.mean([*user.q.values()], axis=0) if user.q else np.zeros(K) for user in users]
        np.testing.assert_allclose(state.offsets, means, atol=1e-12)
    for name, table in (("v", state.items), ("z", state.implicit)):
        for part, copies in (("p", table.public), ("q", table.personal)):
            held = [[user.parts[name + part][j] for j in range(few.n_items)] for user in users]
            np.testing.assert_allclose(whole(copies, np.arange(12)), held, atol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize(("link", "weight"), [("logistic", 0.5), ("identity", 1.0)])
def test_gradients_are_those_of_the_loss(few, link, weight):
    """Of U, of every Q_k, and of everybody's V and Z, by automatic differentiation."""
    victim = DPMFYang(
        order="batch", regularize="round", negative_weight=weight, lambda_implicit=0.03, implicit_weight=0.7
    )
    rules = victim.rules._replace(link=link)
    state = victim.init(few, 1)
    samples, rng = state.samples, np.random.default_rng(0)
    is_explicit = samples.kind == EXPLICIT
    user = samples.user[is_explicit]
    q = drawn(rng, user.size)
    counts = np.bincount(user, minlength=few.n_users)
    mean = np.stack([np.bincount(user, column, minlength=few.n_users) for column in q.T], axis=1)
    state = state._replace(clients=drawn(rng, 12), offsets=mean / np.maximum(counts, 1)[:, None])
    factors = sample_factors(state, samples)
    expected = jax.grad(loss, argnums=(2, 3, 4, 5))(
        rules, samples, state.clients, q, factors[is_explicit], factors[~is_explicit]
    )
    passed = trained_of(rules, state, samples).last
    np.testing.assert_allclose((state.clients - passed.clients) / rules.rate, expected[0], atol=1e-12)
    np.testing.assert_allclose(passed.rows[is_explicit], expected[2], atol=1e-14)
    np.testing.assert_allclose(passed.rows[~is_explicit], expected[3], atol=1e-14)
    moved = (state.offsets - passed.offsets) / rules.rate - rules.offsets * state.offsets
    np.testing.assert_allclose(moved[user], expected[1] - rules.offsets * q, atol=1e-12)


def test_samples_are_as_section_4_says(few):
    victim = DPMFYang(positive_share=0.3, negatives="rounds")
    state = victim.init(few, 2)
    samples = victim.samples_of(state, few)
    keys = key_of(samples.user, samples.item, few.n_items)
    rated = key_of(few.users, few.items, few.n_items)
    by_kind = [keys[samples.kind == kind] for kind in (EXPLICIT, POSITIVE, NEGATIVE)]
    assert by_kind[1].size == round(0.3 * few.n_ratings)
    assert np.array_equal(np.sort(np.concatenate(by_kind[:2])), rated)
    assert not np.isin(by_kind[2], rated).any()
    assert np.unique(keys).size == keys.size  # nobody has an item twice
    counts = [np.bincount(found // few.n_items, minlength=12) for found in by_kind]
    assert np.array_equal(counts[1], counts[2])
    later = victim.samples_of(state._replace(round=1), few)
    assert not np.array_equal(later.item, samples.item)
    kept = samples.kind != NEGATIVE
    assert np.array_equal(samples.item[kept], later.item[later.kind != NEGATIVE])


def test_negatives_of_a_user_who_rated_nearly_everything_are_what_is_left(few):
    full = replace(
        of_users(few, np.array([0])),
        indptr=np.array([0, few.n_items - 2]),
        items=np.arange(few.n_items - 2, dtype=np.int32),
        values=np.full(few.n_items - 2, few.levels[-1]),
    )
    samples = DPMFYang(fallback="nobody").init(full, 0).samples
    assert samples.item[samples.kind == NEGATIVE].tolist() == [few.n_items - 2, few.n_items - 1]


def test_a_personal_part_that_starts_at_zero_is_minus_theta_times_the_rows(few):
    victim = DPMFYang(factors=K)
    run, total = start(victim, few, (), 0), 0.0
    for number in range(4):
        rows = next(iter(victim.uploads(run.state, few, np.arange(12))))
        total = total + rows.gradient[rows.kind == ITEM]
        run = run.trained(number)
    np.testing.assert_allclose(run.state.items.personal.values, -victim.learning_rate * total, atol=1e-15)


@pytest.mark.parametrize("victim", [DPMFYang(personal_start="private"), DMF(personal_start="private")])
def test_private_starts_differ(few, victim):
    """Before: those of dmf were all zero."""
    held = whole(victim.init(few, 0).items.personal, np.arange(2))
    assert (held[0] != held[1]).all()
    assert np.std(held) == pytest.approx(0.01, rel=0.2)  # of 2 x 3 x n_items normal numbers


def test_who_hears_of_nothing_holds_the_start(few):
    victim = DPMFYang(fallback="nobody")
    run = start(victim, few, (), 0)
    for number in range(2):
        run = run.trained(number)
    received = set(victim.edges_of(run.state, few).receiver.tolist())
    deaf = next(user for user in range(12) if user not in received)
    own = run.state.samples.item[(run.state.samples.user == deaf) & (run.state.samples.kind == EXPLICIT)]
    of_v, shared, of_z = victim.holdings(run.state, few, np.array([deaf]))
    assert set(of_v.index.tolist()) == set(own.tolist())
    assert [(of_v.holder, of_v.kind), (shared.holder, shared.kind)] == [(deaf, ITEM), (None, IMPLICIT)]
    assert (of_z.holder, of_z.kind) == (deaf, IMPLICIT)
    assert set(of_z.index.tolist()) == set(run.state.samples.item[run.state.samples.user == deaf]) - set(own)


class TestGraph:
    def test_choices(self, few):
        edges = DPMFYang(fallback="nobody").init(few, 0).edges
        pairs = set(zip(edges.sender.tolist(), edges.receiver.tolist(), strict=True))
        stated = set(map(tuple, few.trust.tolist()))
        assert pairs <= stated
        assert {s for s, _ in stated} == {s for s, _ in pairs}
        assert np.bincount(edges.sender, minlength=12)[0] == 3  # of four
        assert np.array_equal(np.lexsort((edges.sender, edges.receiver)), np.arange(edges.sender.size))

    @pytest.mark.parametrize("fallback", ["random", "similarity"])
    def test_filled_up(self, few, fallback):
        edges = DPMFYang(fallback=fallback).init(few, 0).edges
        pairs = set(zip(edges.sender.tolist(), edges.receiver.tolist(), strict=True))
        assert len(pairs) == edges.sender.size == 36
        assert not any(sender == receiver for sender, receiver in pairs)
        assert {pair for pair in map(tuple, few.trust.tolist()) if pair[0] != 0} <= pairs

    def test_similar_users_are_those_with_the_largest_cosine(self, few):
        edges = DPMFYang(fallback="similarity", degree=1).init(few, 0).edges
        sets = [set(few.items[few.users == user].tolist()) for user in range(12)]

        def cosine(one, other):
            return len(sets[one] & sets[other]) / np.sqrt(len(sets[one]) * len(sets[other]))

        for sender, receiver in zip(edges.sender, edges.receiver, strict=True):
            if sender not in few.trust[:, 0]:
                best = max(cosine(sender, other) for other in range(12) if other != sender)
                assert cosine(sender, receiver) == pytest.approx(best)

    def test_walks_stay_on_the_graph_and_short(self, few):
        near = DMF(fallback="nobody", walk_length=1).edges_of(DMF(walks="rounds").init(few, 0), few)
        stated = set(map(tuple, few.trust.tolist()))
        assert set(zip(near.sender.tolist(), near.receiver.tolist(), strict=True)) <= stated
        assert np.bincount(near.sender, near.weight, minlength=12)[[0, 1, 2]].tolist() == [3, 3, 3]
        victim = DMF(fallback="nobody", walk_length=4)
        far = victim.edges_of(victim.init(few, 0), few)
        assert np.bincount(far.sender, far.weight, minlength=12).max() <= 12
        assert not (far.sender == far.receiver).any()


def test_unusable_options_are_refused(few):
    with pytest.raises(InputError, match="negative_weight of dpmf-yang must be between 0 and 1"):
        DPMFYang(negative_weight=2.0)
    run = start(DPMFYang(learning_rate=1e200), few, (), 0)
    with np.errstate(all="ignore"), pytest.raises(InputError, match="dpmf-yang diverged in round"):
        run.trained(0).trained(1)


def test_draws_depend_on_the_seed_alone(few):
    one, other = (start(DPMFYang(), few, (), 9).trained(0).state for _ in range(2))
    assert np.array_equal(one.items.public.values, other.items.public.values)
    assert generator(9, Purpose.DPMF_START, 0).random() != generator(8, Purpose.DPMF_START, 0).random()
