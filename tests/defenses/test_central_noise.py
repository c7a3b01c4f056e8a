"""User-level noise on sums: how far a client moves them, which have noise, what is proved, for whom."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm as normal

from audit.accounts import accounts_of
from audit.experiments.user_level import Silenced, covariance, craft
from audit.factories import make_defense, make_defenses, make_victim
from tests.contract.test_accounts import made, other_values
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.protocols.base import Received
from victims.training import obstacle, received, start

RATINGS = generate(Synthetic(users=9, items=12, ratings_per_user=4.0, seed=2))
CRAFTED, CLIENT = craft(RATINGS, 3), 3
TEXTS = ("dp-fedavg:norm=0.002,noise=1", "dp-ftrl:norm=0.002,noise=1,epoch=2")
DELTA = RATINGS.n_users**-1.1


def stated(text, options=None, name="fedmf", n_rounds=2, of=-1):
    victim, defenses = make_victim(name, options or {}), make_defenses(text)
    return accounts_of(name, [victim], defenses, RATINGS, n_rounds=n_rounds, seed=0)[of].accounts[0]


def epsilons(*given, **more):
    return [line.at_delta for line in stated(*given, **more).lines]


def options_of(name):
    """Every option that has a number, with another value."""
    for option in ({}, *other_values(name)):
        victim = made(name, option)
        if "shuffle" in option:  # one stream draws all clients' orders here, so that worlds differ in draws
            continue
        if victim is None or obstacle(victim, make_defenses(TEXTS[0])):
            continue
        told = accounts_of(name, [victim], make_defenses(TEXTS[0]), RATINGS, n_rounds=2, seed=0)
        if told[0].accounts[0].lines:
            yield option, victim


@pytest.mark.parametrize(
    "name", ["fedmf", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("fedmvmf", "mf"))]
)
def test_a_client_moves_sums_by_the_norm_at_most_and_nothing_else(name):
    """Sending or not, whatever it rates: sums of both worlds, and what follows from the same sums."""
    checked, longest = 0, 0.0
    for option, victim in options_of(name):
        for text in TEXTS:
            quiet = replace(make_defense(text), noise=0.0)
            silent = [Silenced(CLIENT), quiet]
            runs = [start(victim, CRAFTED, [quiet], 0), start(victim, RATINGS, silent, 0)]
            for round_ in range(3):
                with_it, without = (received(run, round_) for run in runs)
                apart = [a - b for a, b in zip(with_it[:2], without[:2], strict=True)]
                moved = np.sqrt(sum((part**2).sum() for part in apart))
                assert moved <= quiet.norm * (1 + 1e-9), option
                longest = max(longest, moved / quiet.norm)
                runs = [run._replace(state=run.victim.round(run.state, run.ratings, with_it)) for run in runs]
                for ours, theirs in zip(*(run.victim.broadcast(run.state) for run in runs), strict=True):
                    np.testing.assert_array_equal(ours, theirs, err_msg=str(option))
                assert runs[0].stopped == runs[1].stopped
        checked += 1
    assert checked > 10
    assert longest == pytest.approx(1)  # the bound is attained


def test_the_check_finds_a_server_that_counts_senders():
    """Copies are averaged over those who sent them: no noise hides their number."""
    victim = make_victim("fedmf", {"upload": "weights"})
    runs = [start(victim, one, make_defenses(TEXTS[0]), 0) for one in (CRAFTED, RATINGS)]
    sums = received(runs[0], 0)
    with_it, without = (run.victim.broadcast(run.victim.round(run.state, run.ratings, sums)) for run in runs)
    assert (with_it[0] != without[0]).any()
    assert "the server count" in stated(TEXTS[0], {"upload": "weights"}).unproved


@pytest.mark.parametrize("text", ["dp-fedavg:norm=0.5,noise=3", "dp-ftrl:norm=0.5,noise=3,epoch=5"])
def test_every_sum_has_noise_of_the_law_that_is_accounted(text):
    """Covariances of the rounds, of 40,000 numbers each, within 6 standard errors: fails with 1e-7."""
    defense, rounds = make_defense(text), 7
    nothing = Received(np.zeros((4_000, 8)), np.zeros((1_000, 8)))
    drawn = np.array(
        [np.concatenate(defense.summed(nothing, round_, 5)[:2]).ravel() for round_ in range(rounds)]
    )
    expected = np.eye(rounds)
    if defense.name == "dp-ftrl":
        expected[:5, :5], expected[5:, 5:] = covariance(5), covariance(2)
    found = drawn @ drawn.T / drawn.shape[1] / 1.5**2
    error = np.sqrt((expected**2 + np.outer(expected.diagonal(), expected.diagonal())) / drawn.shape[1])
    assert (np.abs(found - expected) < 6 * error).all()
    running = np.cumsum(drawn, axis=0).var(axis=1)[:5] / 1.5**2
    if defense.name == "dp-ftrl":  # as many nodes as the number of rounds has ones in base two
        np.testing.assert_allclose(running, [1, 1, 2, 1, 2], rtol=0.05)


@pytest.mark.parametrize("text", TEXTS)
def test_the_server_steps_with_the_noisy_sums(text):
    run = start(make_victim("fedmf", {"factors": "3"}), RATINGS, make_defenses(text), 0)
    for round_ in range(3):
        after, sums = run.trained(round_), received(run, round_)
        before, then = (one.victim.broadcast(one.state)[0] for one in (run, after))
        np.testing.assert_allclose(before - then, sums.items, atol=1e-15)
        assert (sums.items != 0).all()
        run = after


def test_each_client_sends_once_in_an_epoch():
    defense = make_defense("dp-ftrl:epoch=4")
    for epoch in range(3):
        counts = np.bincount(defense.turns(103, epoch, 0), minlength=4)
        assert counts.sum() == 103
        assert np.ptp(counts) <= 1


def exact(multiplier, delta):
    """Balle and Wang 2018, Theorem 8, at distance 1."""

    def excess(epsilon):
        low, high = 0.5 / multiplier - epsilon * multiplier, -0.5 / multiplier - epsilon * multiplier
        return normal.cdf(low) - np.exp(epsilon) * normal.cdf(high) - delta

    return brentq(excess, 0, 200)


def test_account_of_sums():
    ours, server = stated("dp-fedavg:noise=2", n_rounds=9).lines
    assert ours.at_delta == pytest.approx(exact(2 / 3, DELTA), rel=1e-6)
    assert ours.epsilon == np.inf
    assert ours.delta == DELTA
    assert np.isnan(server.at_delta)  # it receives single uploads
    assert np.isnan(server.epsilon)
    hidden, watched, _ = epsilons("dp-fedavg:noise=2,sampling=0.1", n_rounds=9)
    assert hidden < ours.at_delta / 4
    assert watched == ours.at_delta


def test_what_sums_tell_at_most_is_what_is_accounted():
    """Epsilon at delta of the normal trade-off (Dong, Roth, Su 2019, Corollary 2.13)."""
    (line, _) = stated("dp-fedavg:norm=0.002,noise=3", n_rounds=7).lines
    mu, epsilon = make_defense("dp-fedavg:noise=3").most_told(7), line.at_delta
    above, below = normal.cdf(-epsilon / mu + mu / 2), normal.cdf(-epsilon / mu - mu / 2)
    assert above - np.exp(epsilon) * below == pytest.approx(line.delta, rel=1e-4)


def test_a_fixed_number_of_clients_is_no_poisson_sample():
    """One of nine, in both: replaced clients are at twice the distance."""
    fixed = epsilons("dp-fedavg:noise=2", {"participation": "0.11"}, n_rounds=50)
    poisson = epsilons(f"dp-fedavg:noise=2,sampling={1 / 9}", n_rounds=50)
    assert poisson[0] < fixed[0] < fixed[1] == poisson[1]


@pytest.mark.parametrize(("epoch", "rounds", "nodes"), [(1, 5, 5), (4, 4, 3), (4, 6, 5), (8, 24, 12)])
def test_account_of_trees(epoch, rounds, nodes):
    """All nodes that an upload enters are one Gaussian mechanism; Renyi orders are a little above."""
    (found, _) = epsilons(f"dp-ftrl:noise=4,epoch={epoch},delta=1e-5", n_rounds=rounds)
    least = exact(4 / np.sqrt(nodes), 1e-5)
    assert least <= found <= 1.15 * least


@pytest.mark.parametrize(
    ("why", "found"),
    [
        ("no noise", lambda: stated("dp-fedavg:noise=0")),
        ("does not cover regularize=sample of mf", lambda: stated("dp-ftrl", {"regularize": "sample"}, "mf")),
        ("does not cover stop_gradient", lambda: stated("dp-fedavg", {"stop_gradient": "0.1"})),
        ("what gaussian does to clipped rows", lambda: stated("dp-fedavg+gaussian:scale=1", of=0)),
        ("does not know what objective-noise", lambda: stated("objective-noise+dp-fedavg")),
    ],
)
def test_what_is_not_proved_has_a_reason(why, found):
    assert why in found().unproved


def test_defenses_that_act_client_by_client_may_come_before():
    assert epsilons("top-k+laplace:scale=1+dp-fedavg")[:-1] == epsilons("dp-fedavg")[:-1]


@pytest.mark.parametrize("text", ["compare-hashes+{}", "{}+compare-hashes"])
def test_what_leaves_rows_leaves_the_proof(text):
    (beside,) = (one for one in make_defenses(text.format(TEXTS[0])) if one.name == "dp-fedavg")
    place = make_defenses(text.format(TEXTS[0])).index(beside)
    assert stated(text.format(TEXTS[0]), of=place).lines[0] == stated(TEXTS[0]).lines[0]


def test_one_defense_draws_the_noise_of_sums():
    with pytest.raises(InputError, match="must be one, got dp-fedavg, dp-ftrl"):
        start(make_victim("fedmf", {}), RATINGS, make_defenses("dp-fedavg+dp-ftrl"), 0)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    ("name", "options", "more", "said"),
    [
        ("pdmfrec", {}, "", "needs an aggregator"),
        ("fedmvmf", {}, "+paillier:ideal=true", "needs an aggregator"),
        ("mf", {"order": "per-rating"}, "", "steps at every upload"),
        ("fedmf", {"biases": "items"}, "", "must have no biases"),
    ],
)
def test_refused_where_there_is_no_sum_to_add_to(name, options, more, said, text):
    victim, defenses = make_victim(name, options), make_defenses(text + more)
    assert said in obstacle(victim, defenses)
    with pytest.raises(InputError, match=said):
        start(victim, RATINGS, defenses, 0)
