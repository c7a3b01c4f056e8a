"""The privacy accounts against closed forms and direct integrals, and what is printed of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from audit.cli.accounts import show_accounts
from audit.cli.output import Output
from audit.factories import make_defenses, make_victim
from audit.requests.accounts import accounts_of
from defenses.accounting.row_noise import of_gaussian, of_laplace
from victims.common.errors import InputError
from victims.protocols.account import Account, Line, Setting
from victims.protocols.base import Defense, Unchanged


class TestLaplace:
    def test_one_row_is_the_laplace_mechanism(self):
        """2 C / b; at delta > 0 the smallest epsilon with (1 - exp((epsilon - single) / 2)) <= delta."""
        found = of_laplace(scale=4.0, clip=1.0, rows=1, delta=1e-3)
        assert found.pure == 0.5
        exact = 0.5 + 2 * np.log(1 - 1e-3)
        assert exact <= found.composed <= exact + 0.01

    def test_the_plain_sum_bounds_the_composition(self):
        for rows, rounds in ((1, 1), (10, 20), (500, 20)):
            found = of_laplace(scale=10.0, clip=1.0, rows=rows, rounds=rounds)
            assert found.rows == rows * rounds
            assert found.pure == pytest.approx(0.2 * rows * rounds)
            assert 0 < found.composed <= found.pure

    def test_composition_grows_with_the_root_where_single_losses_are_small(self):
        """For many small losses the composition is nearly Gaussian: four times as many rows, twice epsilon,
        plus what the mean loss adds; the plain sum would be four times."""
        one, four = (of_laplace(scale=2000.0, clip=1.0, rows=n).composed for n in (10_000, 40_000))
        assert 1.9 < four / one < 2.3

    @pytest.mark.parametrize("split", [0.5, 0.1])
    def test_one_coordinate_dominates_a_row(self, split):
        """Two coordinates that share the distance are less distinguishable than one that has it all."""
        from dp_accounting.pld.privacy_loss_distribution import from_laplace_mechanism

        total = 1.5
        step = 1e-4
        parts = [from_laplace_mechanism(1 / (total * w), value_discretization_interval=step)
                 for w in (split, 1 - split)]  # fmt: skip
        both = parts[0].compose(parts[1])
        alone = from_laplace_mechanism(1 / total, value_discretization_interval=step)
        for epsilon in np.linspace(0, total, 16):
            assert both.get_delta_for_epsilon(epsilon) <= alone.get_delta_for_epsilon(epsilon) + 1e-3


class TestGaussian:
    @pytest.mark.parametrize(("scale", "clip"), [(2.0, 1.0), (30.0, 1.0), (0.5, 0.25), (1.0, 8.0)])
    def test_one_row_is_the_analytic_gaussian_mechanism(self, scale, clip):
        """Balle and Wang 2018, Theorem 8, written out."""
        mu, delta = 2 * clip / scale, 1e-5

        def excess(epsilon):
            second = np.exp(epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu))
            return stats.norm.cdf(mu / 2 - epsilon / mu) - second - delta

        expected = optimize.brentq(excess, 0, mu**2 + 20 * mu, xtol=1e-12)
        found = of_gaussian(scale, clip, rows=1, delta=delta)
        assert found.composed == pytest.approx(expected, rel=1e-6)
        assert np.isinf(found.pure)

    def test_delta_by_a_direct_integral(self):
        """The mass by which one normal density exceeds e^epsilon times the other, 2 C apart, in a plane:
        rows differ along one direction, whatever the others do."""
        found = of_gaussian(scale=3.0, clip=1.5, rows=1, delta=1e-3)
        law = stats.norm(scale=3.0)
        place = np.linspace(-60, 60, 400_001)
        gap = np.maximum(law.pdf(place - 3.0) - np.exp(found.composed) * law.pdf(place), 0)
        assert integrate.trapezoid(gap, place) == pytest.approx(1e-3, rel=1e-4)

    @pytest.mark.parametrize(("rows", "rounds"), [(1, 4), (20, 3)])
    def test_composition_against_the_loss_distribution(self, rows, rounds):
        """The privacy loss distribution of one row, composed with itself by convolution: an upper bound that
        is tight to its grid."""
        from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

        step = 1e-4
        single = from_gaussian_mechanism(5.0, value_discretization_interval=step)
        composed = single.self_compose(rows * rounds).get_epsilon_for_delta(1e-5)
        found = of_gaussian(scale=10.0, clip=1.0, rows=rows, rounds=rounds).composed
        assert found <= composed + 1e-9
        assert found == pytest.approx(composed, abs=rows * rounds * step)

    def test_composition_below_the_general_bounds(self):
        """Fewer than rows times epsilon of one row at delta over rows, the plain composition; and below
        Renyi's bound (Mironov 2017, Proposition 3): n mu^2 / 2 + mu sqrt(2 n log(1 / delta))."""
        n, mu, delta = 50, 0.2, 1e-5
        found = of_gaussian(scale=2 / mu, clip=1.0, rows=n, delta=delta).composed
        assert found < n * of_gaussian(scale=2 / mu, clip=1.0, rows=1, delta=delta / n).composed
        assert found < n * mu**2 / 2 + mu * np.sqrt(2 * n * np.log(1 / delta))

    def test_large_and_small(self):
        """A client of thousands of rows with next to no noise, and one row that delta alone covers."""
        most = of_gaussian(scale=0.01, clip=1.0, rows=3000, rounds=100).composed
        mu = 200 * np.sqrt(300_000)
        assert most == pytest.approx(mu**2 / 2, rel=1e-3)
        assert of_gaussian(scale=1e9, clip=1.0, rows=1).composed == 0


@pytest.mark.parametrize("of", [of_laplace, of_gaussian])
class TestBoth:
    def test_no_clipping_no_epsilon(self, of):
        for scale, clip in ((2.0, None), (0.0, 1.0)):
            found = of(scale=scale, clip=clip, rows=3)
            assert found.pure == found.composed == np.inf

    @pytest.mark.parametrize(
        ("numbers", "message"),
        [
            ({"delta": 0.0}, "delta of the account must be between 0 and 1, exclusive, got 0.0"),
            ({"delta": 1.0}, "delta of the account must be between 0 and 1, exclusive, got 1.0"),
            ({"rows": 0}, "rows of the account must be >= 1, got 0"),
            ({"rounds": 0}, "rounds of the account must be >= 1, got 0"),
            ({"clip": 0.0}, r"clip of the account must be between 1e-09 and 1e\+09, or none, got 0.0"),
            ({"clip": -1.0}, r"clip of the account must be between 1e-09 and 1e\+09, or none, got -1.0"),
            ({"scale": -1.0}, r"scale of the account must be 0 or between 1e-09 and 1e\+09, got -1.0"),
        ],
    )
    def test_bad_numbers(self, of, numbers, message):
        with pytest.raises(InputError, match=message):
            of(**{"scale": 1.0, "clip": 1.0, "rows": 1, **numbers})


class TestAccounts:
    def test_rows_of_clients(self, ratings):
        """One row, the median and the largest client, in one round and in all."""
        (defense,) = make_defenses("gaussian:sigma=3,clip=1,delta=1e-6")
        account = defense.account(ratings, Setting("fedmvmf", "observed-only", 5, None))
        rows = np.diff(ratings.indptr) + ratings.n_attributes
        expected = [
            of_gaussian(3.0, 1.0, count, rounds, 1e-6).composed
            for count in (1, int(np.median(rows)), int(rows.max()))
            for rounds in (1, 5)
        ]
        assert [line.at_delta for line in account.lines] == expected
        assert {line.delta for line in account.lines} == {1e-6}
        assert any("name them" in sentence for sentence in account.not_hidden)

    def test_every_item_is_a_row_where_unrated_ones_are_uploaded(self, ratings):
        (defense,) = make_defenses("laplace:b=2,clip=1")
        account = defense.account(ratings, Setting("fedmvmf", "include-unrated", 1, None))
        every = ratings.n_items + ratings.n_attributes
        assert [line.epsilon for line in account.lines] == [1.0, every, every]

    @pytest.mark.parametrize(("bound", "count"), [(1.0, 1.0), (2.0, 2.0)])
    def test_objective_noise_needs_a_bound_of_the_factors(self, ratings, bound, count):
        """Theorem 2 counts the budget of a rating; factors twice as long move an upload twice as far."""
        (defense,) = make_defenses("objective-noise:epsilon=1")
        account = defense.account(ratings, Setting("mf", "observed-only", 2, bound))
        assert account.lines[0].epsilon == pytest.approx(count)
        none = defense.account(ratings, Setting("fedmf", "observed-only", 2, None))
        assert not none.lines
        assert "factors of fedmf's clients have no bound" in none.unproved

    def test_which_victims_have_a_bound(self):
        """That of ``mf`` is tried where it is trained."""
        bounds = {name: make_victim(name).factor_bound for name in ("mf", "fedmf", "fedmvmf")}
        assert bounds == {"mf": 1.0, "fedmf": None, "fedmvmf": None}

    def test_lines_or_a_reason(self):
        line = Line("a row", 1.0, 1.0, 1e-5, "why")
        for parts in ({}, {"lines": (line,), "unproved": "both"}):
            with pytest.raises(InputError, match="must have either lines or a reason"):
                Account("title", **parts)


@dataclass(frozen=True)
class Foreign(Unchanged):
    """A defense of another package: normal noise, under names that ours have other meanings for."""

    clip: float = 1.0
    scale: float = 2.0
    name: str = "foreign"

    def threshold(self, ratings, seed):
        return 1.0


def printed(capsys, victim, defenses, ratings, weightings=("observed-only",)):
    model = make_victim(victim)
    stated = accounts_of(victim, model, defenses, ratings, weightings=weightings, n_rounds=2, seed=0)
    show_accounts(Output(), stated)
    return capsys.readouterr().out


class TestPrinting:
    @pytest.mark.parametrize("victim", ["mf", "fedmvmf"])
    def test_who_states_nothing_gets_no_epsilon(self, ratings, capsys, victim):
        assert isinstance(Foreign(), Defense)
        text = printed(capsys, victim, [Foreign()], ratings)
        assert text.strip() == "foreign states no privacy account"

    def test_each_defense_states_its_own(self, ratings, capsys):
        defenses = [*make_defenses("laplace:b=2,clip=1+gaussian:sigma=2,clip=1+paillier"), Foreign()]
        text = printed(capsys, "fedmvmf", defenses, ratings, ("observed-only", "include-unrated"))
        for weighting in ("observed-only", "include-unrated"):
            assert text.count(f"Privacy account of laplace, {weighting}") == 1
            assert text.count(f"Privacy account of gaussian, {weighting}") == 1
        assert text.count("paillier states no privacy account") == 1
        assert text.count("foreign states no privacy account") == 1
        assert "4.377" in text  # one row of the Gaussian mechanism at distance 1 sigma
        assert text.count("not hidden: which items a client rated") == 1

    def test_no_clipping_is_said(self, ratings, capsys):
        text = printed(capsys, "fedmvmf", make_defenses("gaussian"), ratings, ("observed-only",) * 2)
        assert text.count("there is no finite epsilon") == 1

    def test_objective_noise(self, ratings, capsys):
        text = printed(capsys, "mf", make_defenses("hdpmf"), ratings)
        assert "stretching states no privacy account" in text
        assert "what is proved" in text
        assert "nothing proved" in text
