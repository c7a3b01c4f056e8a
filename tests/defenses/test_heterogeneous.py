"""Privacy specification, stretching, sampling and noise against their laws, and the account."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from audit.accounts import accounts_of
from audit.code_identity import code_used
from audit.factories import expanded, make_defense, make_defenses
from defenses.heterogeneous import (
    ObjectiveNoise,
    PersonalizedSampling,
    Specification,
    Stretching,
    budgets,
    draw,
    probabilities,
)
from defenses.shared_noise import delta_given_h, epsilon_given_h, first_round
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.protocols.base import Rows
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.recording import record
from victims.training import received, start
from victims.transcript.reader import open_transcript

UNLIKELY = 1e-4  # probability that a test of a law fails on a new seed


@pytest.fixture(scope="module")
def many():
    return generate(Synthetic(users=1000, items=600, ratings_per_user=20.0, seed=1))


class TestSpecification:
    def test_groups_have_their_shares_and_laws(self, many):
        weights = draw(Specification(), many, 3)
        for part, shares in ((weights.user, (540, 370, 90)), (weights.item, (200, 200, 200))):
            low, middle = part[part < 0.5], part[(part >= 0.5) & (part < 1)]
            assert (low.size, middle.size, (part == 1).sum()) == shares
            assert stats.kstest(low, stats.uniform(0.1, 0.4).cdf).pvalue > UNLIKELY
            assert stats.kstest(middle, stats.uniform(0.5, 0.5).cdf).pvalue > UNLIKELY

    def test_budgets_are_products(self, many):
        weights = draw(Specification(epsilon=2.0), many, 3)
        expected = 2 * weights.user[many.users] * weights.item[many.items]
        np.testing.assert_array_equal(budgets(Specification(epsilon=2.0), many, 3), expected)

    def test_every_part_of_a_system_sees_the_same_weights(self, many):
        stretching, noise = make_defenses("hdpmf:user_low=0.3")
        np.testing.assert_array_equal(draw(stretching, many, 1).user, draw(noise, many, 1).user)
        assert (draw(stretching, many, 1).user != draw(stretching, many, 2).user).any()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ("epsilon=0", r"epsilon of a privacy specification must be between 1e-09 and 1e\+09, got 0.0"),
            ("epsilon=-1", r"epsilon of a privacy specification must be between 1e-09 and 1e\+09"),
            ("epsilon=nan", r"epsilon of a privacy specification must be between 1e-09 and 1e\+09, got nan"),
            ("user_low=0", r"user_low of .* must be in \(0, 1\], got 0.0"),
            ("item_middle=1.5", r"item_middle of .* must be in \(0, 1\], got 1.5"),
            ("user_low=0.6", "user_low must be at most user_middle = 0.5, got 0.6"),
            ("user_conservative=0.8", "must add up to at most 1, .*got 0.8 . 0.37 = 1.17"),
            ("item_moderate=-0.1", "item_moderate of .* must be between 0 and 1, got -0.1"),
        ],
    )
    def test_bad_specifications(self, options, message):
        for name in ("stretching", "personalized-sampling", "objective-noise"):
            with pytest.raises(InputError, match=message):
                make_defense(f"{name}:{options}")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("objective-noise:noise=often", "noise"),
            ("objective-noise:epochs=0", "epochs of objective-noise must be >= 1, got 0"),
            ("hdpmf:speed=1", "hdpmf has no option 'speed'; it takes budget, epochs, epsilon"),
            ("pdpmf:budget=smallest", "pdpmf fixes the option 'budget'"),
        ],
    )
    def test_bad_options(self, text, message):
        with pytest.raises(InputError, match=message):
            make_defenses(text)

    def test_combined_names(self):
        assert expanded("hdpmf-r:noise=fresh,epsilon=2") == [
            "stretching:rescale=false,epsilon=2",
            "objective-noise:noise=fresh,epsilon=2",
        ]
        assert [d.name for d in make_defenses("pdpmf")] == ["personalized-sampling", "objective-noise"]


class TestStretching:
    def test_shrinks_and_rescales(self, many):
        defense = Stretching()
        held = defense.on_device(many, 4)
        assert (held.values <= many.values).all()
        np.testing.assert_allclose(defense.predicted(held.values, many, 4), many.values)
        np.testing.assert_array_equal(Stretching(rescale=False).predicted(held.values, many, 4), held.values)
        assert held.levels == many.levels


class TestSampling:
    def test_probabilities_are_equation_5(self, many):
        """Counts in ten classes of probability; an exact binomial test each."""
        defense = PersonalizedSampling()
        weights = draw(defense, many, 0)
        expected = probabilities(weights.of(many), weights.of(many).mean())
        held = defense.on_device(many, 0)
        kept = np.isin(
            many.users.astype(int) * many.n_items + many.items,
            held.users.astype(int) * many.n_items + held.items,
        )
        assert kept[expected == 1].all()
        order = np.argsort(expected)[: int((expected < 1).sum())]
        for part in np.array_split(order, 10):
            deviation = (kept[part].sum() - expected[part].sum()) / np.sqrt(
                (expected[part] * (1 - expected[part])).sum()
            )
            assert abs(deviation) < stats.norm.isf(UNLIKELY / 2)

    def test_noise_is_for_the_mean_over_all_training_ratings(self, many):
        """Hu & Fang 2023, section 5.1.2: t is the same in Eq. (5) and in the noise, whoever was sampled."""
        mean = {
            "pdpmf": budgets(PersonalizedSampling(), many, 3).mean(),
            "pdpmf-all-pairs": np.prod(
                [part.mean() for part in vars(draw(ObjectiveNoise(), many, 3)).values()]
            ),
        }
        assert len(set(mean.values())) == 2
        for name, expected in mean.items():
            sampling, noise = make_defenses(name)
            held = sampling.on_device(many, 3)
            assert held.n_ratings < many.n_ratings
            assert noise.threshold(held, 3) == pytest.approx(expected)

    def test_one_draw_serves_the_training(self, many):
        run = start(DecentralisedMF(), many, make_defenses("pdpmf"), 0)
        assert run.trained(0).ratings is run.ratings
        assert run.ratings.n_ratings < many.n_ratings


class TestNoise:
    def zeros(self, ratings, k):
        kind = np.zeros(ratings.n_ratings, np.int8)
        return Rows(ratings.users, kind, ratings.items, np.zeros((ratings.n_ratings, k)))

    @pytest.mark.parametrize("budget", ["largest", "mean", "smallest"])
    def test_an_items_sum_has_laplaces_law(self, many, budget):
        """Theorem 3, scale 2 Delta sqrt(K) / t; a Kolmogorov-Smirnov test of 600 x 8 sums."""
        defense = ObjectiveNoise(budget=budget, epsilon=0.7)
        rows = defense.uploaded(self.zeros(many, 8), many, 0, 1)
        sums = np.zeros((many.n_items, 8))
        np.add.at(sums, many.items, rows.gradient)
        rated = np.bincount(many.items, minlength=many.n_items) > 0
        weights = draw(defense, many, 1)
        share = {
            "largest": 1.0,
            "mean": weights.user.mean() * weights.item.mean(),
            "smallest": weights.user.min() * weights.item.min(),
        }[budget]
        scale = 2 * 4 * np.sqrt(8) / (0.7 * share)
        assert stats.kstest(sums[rated].ravel(), stats.laplace(scale=scale).cdf).pvalue > UNLIKELY

    def test_a_share_is_normal_given_h(self, many):
        defense = ObjectiveNoise(noise="fresh")
        rows = defense.uploaded(self.zeros(many, 3), many, 5, 1)
        told = defense.noise_scale(many, 3, 5, 1)
        assert stats.kstest((rows.gradient / told[many.items]).ravel(), stats.norm.cdf).pvalue > UNLIKELY
        raters = np.bincount(many.items, minlength=many.n_items)
        h = (told / defense.laplace_scale(many, 3, 1)) ** 2 * np.maximum(raters, 1)[:, None] / 2
        assert stats.kstest(h.ravel(), stats.expon.cdf).pvalue > UNLIKELY

    def test_one_h_for_all_items(self, many):
        """As Hu & Fang's program may draw it: what differs between items is how many raters they have."""
        defense = ObjectiveNoise(mixing="draw")
        told = defense.noise_scale(many, 3, 5, 1)
        raters = np.maximum(np.bincount(many.items, minlength=many.n_items), 1)
        h = (told / defense.laplace_scale(many, 3, 1)) ** 2 * raters[:, None] / 2
        np.testing.assert_allclose(h, np.broadcast_to(h[0], h.shape))
        assert np.unique(h[0]).size == 3
        ((_, (account,)),) = accounts_of("mf", [DecentralisedMF()], [defense], many, n_rounds=1, seed=0)
        assert "share h" in account.unproved
        assert defense.public()["mixing"] == "draw"
        assert "mixing" not in ObjectiveNoise().public()

    def test_the_smallest_budget_of_a_rating(self, many):
        """What the authors' program makes DPMF's noise for: never smaller than that of all pairs."""
        defense = ObjectiveNoise(budget="smallest-rated")
        assert defense.threshold(many, 4) == budgets(defense, many, 4).min()
        assert defense.threshold(many, 4) > ObjectiveNoise(budget="smallest").threshold(many, 4)
        assert (defense.promised(many, 4) == defense.threshold(many, 4)).all()

    def test_three_readings(self, many):
        def drawn(number, **options):
            return ObjectiveNoise(**options).uploaded(self.zeros(many, 2), many, number, 0).gradient

        np.testing.assert_array_equal(drawn(0, noise="once"), drawn(7, noise="once"))
        assert not np.isin(drawn(0, noise="fresh"), drawn(7, noise="fresh")).any()
        np.testing.assert_allclose(
            drawn(7, noise="composed", epochs=50), 50 * drawn(7, noise="fresh"), rtol=1e-12
        )

    def test_the_server_trains_on_it_and_is_told_the_scale(self, many, tmp_path):
        victim, defenses = DecentralisedMF(factors=2, learning_rate=0.01), make_defenses("hdpmf:noise=fresh")
        run = start(victim, many, defenses, 2)
        record(victim, many, tmp_path / "x", rounds=[0, 1], defenses=defenses, seed=2)
        view = open_transcript(tmp_path / "x").view("server")
        np.testing.assert_array_equal(
            view.broadcasts[1].noise_scale, defenses[1].noise_scale(run.ratings, 2, 1, 2)
        )
        sums = received(run, 0).items
        np.add.at(sums, view.messages.index[0], -view.messages.gradient[0])
        np.testing.assert_allclose(sums, 0, atol=1e-8)
        np.testing.assert_allclose(run.trained(0).state.item_factors, view.broadcasts[1].factors)

    def test_one_level_is_refused(self, many):
        from dataclasses import replace

        with pytest.raises(InputError, match="at least two levels"):
            ObjectiveNoise().noise_scale(replace(many, levels=(3.0,)), 2, 0, 0)

    def test_bad_scales_in_a_recording(self, many, tmp_path):
        import pyarrow as pa

        record(DecentralisedMF(factors=2), many, tmp_path / "x", rounds=[0], defenses=make_defenses("dpmf"))
        file = tmp_path / "x" / "state.arrow"
        table = pa.ipc.open_file(file).read_all()
        flat = np.full(2 * table.num_rows, -1.0)
        column = pa.FixedSizeListArray.from_arrays(pa.array(flat), 2)
        table = table.set_column(table.schema.get_field_index("noise_scale"), "noise_scale", column)
        with pa.ipc.new_file(str(file), table.schema) as writer:
            writer.write_table(table)
        with pytest.raises(InputError, match="row 0: noise_scale must be >= 0, got -1"):
            open_transcript(tmp_path / "x")


class TestAccount:
    def test_the_sum_without_h_is_theorem_2(self):
        """Brute force for K = 1: the largest ratio of two Laplace densities at distance 2 w Delta."""
        weight, width, t = 0.3, 4.0, 0.8
        scale, place = 2 * width / t, np.linspace(-200, 200, 100_001)
        law = stats.laplace(scale=scale)
        worst = (law.logpdf(place) - law.logpdf(place - 2 * weight * width)).max()
        assert first_round(weight * t, 50)[0].epsilon == pytest.approx(worst)

    @pytest.mark.thorough
    @pytest.mark.parametrize("raters", [1, pytest.param(9, marks=pytest.mark.thorough)])
    def test_delta_given_h_by_brute_force(self, raters):
        """K = 1, where the bound is exact: both densities integrated over h and the noise."""
        weight, width, t, epsilon = 0.5, 4.0, 1.0, 0.4
        scale, shift = 2 * width / t / np.sqrt(raters), 2 * weight * width

        def inner(h):
            law = stats.norm(scale=scale * np.sqrt(2 * h))
            place = np.linspace(-12, 12, 4001) * law.std() + shift
            gap = np.maximum(law.pdf(place - shift) - np.exp(epsilon) * law.pdf(place), 0)
            return integrate.trapezoid(gap, place) * np.exp(-h)

        h = np.geomspace(1e-8, 40, 3000)
        expected = integrate.trapezoid([inner(x) for x in h], h)
        assert delta_given_h(epsilon, weight * t, raters) == pytest.approx(expected, rel=2e-3)

    def test_epsilon_at_delta_inverts(self):
        found = epsilon_given_h(0.5, 20, 1e-3)
        assert delta_given_h(found, 0.5, 20) == pytest.approx(1e-3, rel=1e-3)
        assert epsilon_given_h(1e-6, 1, 0.01) == 0

    @pytest.mark.parametrize("noise", ["once", "fresh", "composed"])
    def test_nothing_is_claimed_that_is_not_covered(self, many, noise):
        """Before: the first round's lines stood in accounts of any number of rounds."""
        (defense,) = make_defenses(f"objective-noise:noise={noise}")
        for n_rounds in (1, 12):
            told = {"n_rounds": n_rounds, "seed": 0}
            ((_, (account,)),) = accounts_of("mf", [DecentralisedMF()], [defense], many, **told)
            if n_rounds == 1:
                assert np.isfinite(account.lines[0].epsilon)
                assert np.isinf(account.lines[-1].epsilon)  # the recommender
            elif noise == "once":
                assert [line.at_delta for line in account.lines] == [np.inf]
            else:
                assert "the proof is for 1 round" in account.unproved

    def test_the_most_raters_count(self, many):
        """Shares of more raters are smaller: what holds for the median item does not for the others."""
        ((_, (account,)),) = accounts_of(
            "mf", [DecentralisedMF()], [ObjectiveNoise()], many, n_rounds=1, seed=0
        )
        most = int(np.bincount(many.items).max())
        assert account.lines[-1].at_delta == pytest.approx(epsilon_given_h(1.0, most))

    @pytest.mark.parametrize(
        ("values", "message"),
        [((0, 1), "budget of the account must be > 0"), ((1, 0), "raters of .* must be >= 1")],
    )
    def test_bad_numbers(self, values, message):
        with pytest.raises(InputError, match=message):
            first_round(float(values[0]), values[1])


class TestGivenWeights:
    """W from a file in place of a drawn one."""

    def written(self, path, ratings, **changes):
        rows = {("user", str(name)): 0.25 for name in ratings.user_ids}
        rows |= {("item", str(name)): 0.5 for name in ratings.item_ids}
        rows |= changes.get("rows", {})
        lines = [f"{kind},{name},{weight}" for (kind, name), weight in rows.items()]
        path.write_text("\n".join(["kind,id,weight", *lines, *changes.get("more", [])]))
        return path

    def test_every_part_of_a_system_takes_them(self, ratings, tmp_path):
        first = str(ratings.user_ids[0])
        path = self.written(tmp_path / "w.csv", ratings, rows={("user", first): 1})
        stretching, noise = make_defenses(f"hdpmf:weights={path}")
        expected = np.where(ratings.users == 0, 0.5, 0.125)
        np.testing.assert_array_equal(draw(stretching, ratings, 0).of(ratings), expected)
        np.testing.assert_array_equal(stretching.on_device(ratings, 7).values, ratings.values * expected)
        assert noise.threshold(ratings, 0) == 1.0
        (smallest,) = make_defenses(f"dpmf:weights={path}")
        assert smallest.threshold(ratings, 0) == 0.125

    def test_a_changed_file_is_read_again_and_runs_anew(self, ratings, tmp_path):
        path = self.written(tmp_path / "w.csv", ratings)
        text = f"hdpmf:weights={path}"
        before = code_used("decentralised-mf", [text]), draw(make_defenses(text)[0], ratings, 0).user[0]
        self.written(path, ratings, rows={("user", str(ratings.user_ids[0])): 0.875})
        after = code_used("decentralised-mf", [text]), draw(make_defenses(text)[0], ratings, 0).user[0]
        assert before[0] != after[0]
        assert (before[1], after[1]) == (0.25, 0.875)

    @pytest.mark.parametrize(
        ("more", "complaint"),
        [
            (["user,new,1.5"], r"weight must be in \(0, 1\], got '1.5'"),
            (["user,new,nan"], r"weight must be in \(0, 1\]"),
            (["user,new,high"], r"weight must be in \(0, 1\], got 'high'"),
            (["actor,new,1"], "kind must be user or item, got 'actor'"),
            (["item,new,1", "item,new,1"], "item 'new' must be named once"),
        ],
    )
    def test_damaged_files_are_named(self, ratings, tmp_path, more, complaint):
        path = self.written(tmp_path / "w.csv", ratings, more=more)
        with pytest.raises(InputError, match=complaint):
            draw(Specification(weights=str(path)), ratings, 0)

    def test_nobody_may_be_missing(self, ratings, tmp_path):
        path = tmp_path / "w.csv"
        path.write_text("kind,id,weight\nuser,nobody,1\n")
        with pytest.raises(InputError, match="40 of 40 have none"):
            draw(Specification(weights=str(path)), ratings, 0)
        with pytest.raises(InputError, match="cannot be read"):
            draw(Specification(weights=str(tmp_path / "none.csv")), ratings, 0)
