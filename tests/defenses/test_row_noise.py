"""Noise on rows: its law, its seeds, and what its account says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from audit.accounts import ALL, ONE, accounts_of
from audit.cli.output import Output, show_accounts
from audit.factories import make_attack, make_defense, make_defenses, make_victim
from audit.scoring.decoder import computable
from defenses.accounts import of_gaussian, of_laplace
from defenses.row_noise import Gaussian, Laplace
from victims.common.errors import InputError
from victims.data.loaders import load
from victims.data.synthetic import Synthetic, generate
from victims.protocols.account import Account, Line
from victims.protocols.base import Rows
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.transcript.reader import open_transcript

NOBODY = load("synthetic:users=2,items=40")


def rows(n_users=4, n=50, k=3):
    sender = np.repeat(np.arange(n_users, dtype=np.int32), n)
    zero = np.zeros(sender.size, np.int32)
    return Rows(sender, zero, zero, np.zeros((sender.size, k)))


def gradients(path):
    view = open_transcript(path).view("server")
    return np.concatenate(view.messages.gradient)


LAWS = {Laplace: stats.laplace(scale=2.0), Gaussian: stats.norm(scale=2.0)}
BOTH = pytest.mark.parametrize("noise", LAWS)


@BOTH
def test_law(noise):
    """A Kolmogorov-Smirnov test of a fixed draw; under the law it fails once in 1000 seeds."""
    drawn = noise(scale=2.0).uploaded(rows(4, 2000), NOBODY, 3, 0).gradient
    assert stats.kstest(drawn.ravel(), LAWS[noise].cdf).pvalue > 1e-3


@BOTH
def test_seeds_are_per_client_and_round(noise):
    """Neither who else is there, nor the order of the clients, changes a client's noise."""
    defense, everyone = noise(scale=1.0), rows()
    columns = everyone.sender, everyone.kind, everyone.index, everyone.gradient
    whole = defense.uploaded(everyone, NOBODY, 1, 0).gradient
    third = defense.uploaded(Rows(*(part[100:150] for part in columns)), NOBODY, 1, 0).gradient
    np.testing.assert_array_equal(third, whole[100:150])
    backwards = Rows(*(part[::-1].copy() for part in columns))
    other_way = defense.uploaded(backwards, NOBODY, 1, 0).gradient
    for client in range(4):
        mine = slice(50 * client, 50 * client + 50)
        np.testing.assert_array_equal(other_way[backwards.sender == client], whole[mine])
    for number, seed in ((2, 0), (1, 1)):
        assert not np.isin(defense.uploaded(everyone, NOBODY, number, seed).gradient, whole).any()


def test_each_noise_has_a_stream_of_its_own():
    """Not that of the other, from which the sign at least would be taken."""
    ours, theirs = (noise().uploaded(rows(1, 2000), NOBODY, 0, 0).gradient.ravel() for noise in LAWS)
    assert abs(stats.spearmanr(ours, theirs).statistic) < 4 / np.sqrt(ours.size)


@pytest.mark.parametrize(("noise", "first"), [(Laplace, [3 / 7, -4 / 7]), (Gaussian, [0.6, -0.8])])
def test_clipping_bounds_the_norm(noise, first):
    big = Rows(*(np.zeros(3, np.int32),) * 3, np.array([[3.0, -4.0], [0.1, 0.2], [0.0, 0.0]]))
    clipped = noise(scale=0.0, clip=1.0).uploaded(big, NOBODY, 0, 0).gradient
    np.testing.assert_allclose(clipped, [first, [0.1, 0.2], [0.0, 0.0]])
    assert noise().additive
    assert not noise(clip=1.0).additive


def test_the_server_trains_on_what_it_receives(ratings, tmp_path):
    """Noise of round 0 moves the broadcast of round 1; a scale of 0 changes nothing but rounding."""
    victim = FedMVMF()
    for name, defenses in (
        ("plain", ()),
        ("zero", (Laplace(scale=0.0, clip=1e9),)),
        ("noisy", (Laplace(scale=5.0),)),
    ):
        record(victim, ratings, tmp_path / name, rounds=[0, 1], defenses=defenses, seed=1)
    states = [
        open_transcript(tmp_path / name).view("server").broadcasts[1].factors
        for name in ("plain", "zero", "noisy")
    ]
    np.testing.assert_allclose(states[0], states[1], atol=1e-9)
    assert np.abs(states[0] - states[2]).max() > 1e-3
    plain, noisy = gradients(tmp_path / "plain"), gradients(tmp_path / "noisy")
    half = plain.shape[0] // 2  # round 0, whose broadcast is the same; fails once in 1000 seeds
    difference = (noisy - plain)[:half].ravel()
    assert stats.kstest(difference, stats.laplace(scale=5).cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("text", "defense"),
    [
        ("laplace:scale=2,clip=10,known=false", Laplace(2.0, 10.0, known=False)),
        ("gaussian:sigma=2,clip=10,known=false,delta=1e-6", Gaussian(2.0, 10.0, False, 1e-6)),
    ],
)
def test_text_form(text, defense):
    assert make_defense(text) == defense


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("laplace:scale=-1", r"scale of laplace must be 0 or between 1e-09 and 1e\+09, got -1"),
        ("gaussian:sigma=inf", r"scale of gaussian must be 0 or between 1e-09 and 1e\+09, got inf"),
        ("gaussian:clip=0", r"clip of gaussian must be between 1e-09 and 1e\+09, or none, got 0"),
        ("gaussian:delta=1", "delta of gaussian must be between 0 and 1, exclusive, got 1"),
        ("gauss", "unknown defense 'gauss'"),
    ],
)
def test_bad_options(text, message):
    with pytest.raises(InputError, match=message):
        make_defense(text)


@pytest.fixture(scope="module")
def view(ratings, tmp_path_factory):
    path = tmp_path_factory.mktemp("gaussian") / "t"
    record(FedMVMF(), ratings, path, rounds=[0], defenses=[Gaussian(scale=2.0, clip=3.0)])
    return open_transcript(path).view("server")


def test_manifest_tells_what_is_public(view):
    assert view.manifest.defenses == [{"name": "gaussian", "scale": 2.0, "clip": 3.0}]
    for noise, name in ((Laplace, "laplace"), (Gaussian, "gaussian")):
        assert noise(scale=2.0, known=False).public() == {"name": name}


def test_the_ceiling_of_laplace_noise_is_not_its_own(view):
    assert not computable(view)


@pytest.mark.parametrize("attack", ["spectral", "grid"])
def test_closed_forms_abstain_rather_than_misread(view, attack):
    found = make_attack(attack).attack(view, 0)
    assert len(found.abstained) == found.users.size


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
        plus what the mean loss adds; the plain sum would be four times.
        """
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
        rows differ along one direction, whatever the others do.
        """
        found = of_gaussian(scale=3.0, clip=1.5, rows=1, delta=1e-3)
        law = stats.norm(scale=3.0)
        place = np.linspace(-60, 60, 400_001)
        gap = np.maximum(law.pdf(place - 3.0) - np.exp(found.composed) * law.pdf(place), 0)
        assert integrate.trapezoid(gap, place) == pytest.approx(1e-3, rel=1e-4)

    @pytest.mark.parametrize(("rows", "rounds"), [(1, 4), (20, 3)])
    def test_composition_against_the_loss_distribution(self, rows, rounds):
        """The privacy loss distribution of one row, composed with itself by convolution: an upper bound that
        is tight to its grid.
        """
        from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

        step = 1e-4
        single = from_gaussian_mechanism(5.0, value_discretization_interval=step)
        composed = single.self_compose(rows * rounds).get_epsilon_for_delta(1e-5)
        found = of_gaussian(scale=10.0, clip=1.0, rows=rows, rounds=rounds).composed
        assert found <= composed + 1e-9
        assert found == pytest.approx(composed, abs=rows * rounds * step)

    def test_composition_below_the_general_bounds(self):
        """Fewer than rows times epsilon of one row at delta over rows, the plain composition; and below
        Renyi's bound (Mironov 2017, Proposition 3): n mu^2 / 2 + mu sqrt(2 n log(1 / delta)).
        """
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
    def account(self, ratings, victim, text, n_rounds, **options):
        model = make_victim(victim, options)
        told = accounts_of(victim, [model], make_defenses(text), ratings, n_rounds=n_rounds, seed=0)
        return told[0].accounts[0]

    def test_rows_of_clients(self, ratings):
        """In sgd one rating enters one row of round 0, and all of its client's rows of later rounds."""
        text = "gaussian:sigma=3,clip=1,delta=1e-6"
        account = self.account(ratings, "fedmvmf", text, 5, update="sgd")
        rows = np.diff(ratings.indptr) + ratings.n_attributes
        counts = 1 + 4 * int(rows.max()), int(np.ceil(np.median(5 * rows))), 5 * int(rows.max())
        assert [line.at_delta for line in account.lines] == [
            of_gaussian(3.0, 1.0, count, 1, 1e-6).composed for count in counts
        ]
        assert {line.delta for line in account.lines} == {1e-6}
        assert any("name them" in sentence for sentence in account.not_hidden)

    @pytest.mark.parametrize("moved", [{"update": "semi-als"}, {"local_steps": 2}, {"batch_size": 3},
                                       {"row_factor": "after"}, {"order": "per-rating"}])  # fmt: skip
    def test_where_a_rating_moves_all_rows_of_the_first_round(self, ratings, moved):
        """Before: one row was counted for it, whatever the client did before it sent."""
        options = {"update": "sgd"} | {name: str(value) for name, value in moved.items()}
        account = self.account(ratings, "fedmvmf", "laplace:b=2,clip=1", 1, **options)
        rows = np.diff(ratings.indptr) + ratings.n_attributes
        assert account.lines[0].what == "one rating"
        assert account.lines[0].epsilon == rows.max()

    def test_every_item_is_a_row_where_unrated_ones_are_uploaded(self, ratings):
        options = {"update": "sgd", "weighting": "include-unrated"}
        account = self.account(ratings, "fedmvmf", "laplace:b=2,clip=1", 1, **options)
        every = ratings.n_items + ratings.n_attributes
        assert [line.epsilon for line in account.lines] == [1.0, every, every]

    def test_no_row_of_attributes_where_none_is_sent(self, ratings):
        """FedMF's clients have attributes, and upload nothing about them."""
        account = self.account(ratings, "fedmf", "laplace:b=2,clip=1", 1)
        assert account.lines[-1].epsilon == np.diff(ratings.indptr).max()

    def test_lines_or_a_reason(self):
        line = Line("a row", 1.0, 1.0, 1e-5, "why")
        for parts in ({}, {"lines": (line,), "unproved": "both"}):
            with pytest.raises(InputError, match="must have either lines or a reason"):
                Account("title", **parts)


class TestAlongAGraph:
    """Noise of a row is one draw for all receivers; noise of a message is a draw for each of them."""

    RATINGS = generate(Synthetic(users=20, items=200, seed=4))
    COALITION = "neighbours:1,2,5"

    def lines(self, victim, per_message, adversary="", n_rounds=1, noise="laplace", **options):
        (defense,) = make_defenses(f"{noise}:scale=2,clip=1,per_message={per_message}")
        model = make_victim(victim, options)
        told = {"n_rounds": n_rounds, "seed": 0, "adversary": adversary}
        ((_, (account,)),) = accounts_of(victim, [model], [defense], self.RATINGS, **told)
        return {line.what.removeprefix("one "): line for line in account.lines}, account

    @pytest.mark.parametrize("per_message", [True, False])
    @pytest.mark.parametrize("victim", ["pdmfrec", "dpmf-yang"])
    def test_counted_in_a_recording(self, tmp_path, victim, per_message):
        """What the members of a coalition get of a sender: every draw of noise that differs, counted by hand;
        a row moves by at most 2 C = b, so that epsilon of a client is the number of its draws.
        """
        model = make_victim(victim, {"anonymous": "false"} if victim == "pdmfrec" else {})
        (defense,) = make_defenses(f"laplace:scale=2,clip=1,per_message={str(per_message).lower()}")
        record(model, self.RATINGS, tmp_path / "t", rounds=[0], watched=[1, 2, 5], defenses=[defense])
        view = open_transcript(tmp_path / "t").view(self.COALITION)
        draws: dict[int, set[tuple[float, ...]]] = {}
        for copies in [one.copies for one in (view, view.implicit) if one is not None]:
            rows = copies.gradient / (1 if per_message else copies.weight[:, None])
            for sender, kind, index, row in zip(copies.sender, copies.kind, copies.index, rows, strict=True):
                table = float(copies is not view.copies)
                draws.setdefault(int(sender), set()).add((table, kind, index, *row.round(9)))
        numbers = [len(found) for found in draws.values()]
        options = {"anonymous": "false"} if victim == "pdmfrec" else {}
        found, _ = self.lines(victim, str(per_message).lower(), self.COALITION, **options)
        whose = f"; {self.COALITION}" if per_message else ""
        assert found[f"client, largest{whose}"].epsilon == max(numbers)
        if per_message:
            assert found[f"client, median{whose}"].epsilon == int(np.ceil(np.median(numbers)))

    def test_one_receiver_and_all(self):
        """Nobody is named: one receiver's draws are those of the noise per row, and all together have one for
        each edge.
        """
        once, per_row = self.lines("dpmf-yang", "false")
        found, account = self.lines("dpmf-yang", "true")
        graph = make_victim("dpmf-yang")
        edges = graph.network(graph.init(self.RATINGS, 0), self.RATINGS).edges
        degree = np.bincount(edges.sender, minlength=20)
        largest = "client, largest"
        assert found[f"{largest}; {ONE}"].epsilon == once[largest].epsilon
        assert degree.max() == 3
        assert found[f"{largest}; {ALL}"].epsilon == 3 * once[largest].epsilon
        assert len(account.lines) == 2 * len(per_row.lines)

    def test_a_coalition_averages(self):
        """The mean of c draws has 1/sqrt(c) of the noise, and is all that they tell of a Gaussian row."""
        for c in (2, 3, 8):
            together = of_gaussian(scale=2.0, clip=1.0, rows=c).composed
            assert together == pytest.approx(of_gaussian(scale=2.0 / np.sqrt(c), clip=1.0, rows=1).composed)

    def test_noise_after_noise_of_messages_is_of_messages_too(self):
        """Before: a row was counted once for the second defense, whose noise is drawn for every message."""
        defenses = make_defenses("laplace:scale=2,clip=1,per_message=true+gaussian:scale=2,clip=1")
        model = make_victim("dpmf-yang")
        told = accounts_of("dpmf-yang", [model], defenses, self.RATINGS, n_rounds=1, seed=0)
        assert any(line.what.endswith(ALL) for line in told[1].accounts[0].lines)

    def test_clients_that_take_no_part_in_round_0_count(self):
        """Before: rows and receivers were those of round 0 alone."""
        half, _ = self.lines("dpmf-yang", "true", n_rounds=2, participation=0.5)
        whole, _ = self.lines("dpmf-yang", "true", n_rounds=2)
        assert half[f"client, largest; {ALL}"] == whole[f"client, largest; {ALL}"]

    def test_receivers_drawn_anew(self):
        """Each round has a graph of its own, and the largest number of copies in one counts in all."""
        walks = make_victim("dmf")
        state = walks.init(self.RATINGS, 0)
        met = [walks.network(state._replace(round=round_), self.RATINGS).edges for round_ in range(4)]
        copies = np.max([np.bincount(graph.sender, minlength=20) for graph in met], axis=0)
        rows = np.zeros(20, int)
        for some in walks.uploads(state, self.RATINGS, np.arange(20)):
            rows += np.bincount(some.sender, minlength=20)
        found, _ = self.lines("dmf", "true", n_rounds=4)
        assert found[f"client, largest; {ALL}"].epsilon == 4 * (rows * copies).max()

    def test_beyond_the_first_round_all_receivers_count(self):
        """Others pass on what they got: no number is stated of one receiver."""
        _, one_round = self.lines("dpmf-yang", "true")
        _, two = self.lines("dpmf-yang", "true", n_rounds=2)
        assert {line.what.partition("; ")[2] for line in one_round.lines} == {ONE, ALL}
        assert {line.what.partition("; ")[2] for line in two.lines} == {ALL}

    def test_implicit_rows_count(self):
        """DPMF-Yang sends a row for each explicit rating and two for each positive."""
        found, _ = self.lines("dpmf-yang", "false")
        samples = make_victim("dpmf-yang").init(self.RATINGS, 0).samples
        assert found["client, largest"].epsilon == np.bincount(samples.user).max()
        assert np.bincount(samples.user).max() > np.diff(self.RATINGS.indptr).max()

    @pytest.mark.parametrize("adversary", ["neighbour:anna", "helper", "eavesdropper"])
    def test_whoever_is_no_client_by_number(self, adversary):
        found, _ = self.lines("dpmf-yang", "true", adversary)
        assert f"rating; {ONE}" in found


def printed(capsys, victim, defenses, ratings, weightings=("observed-only",), n_rounds=1, **options):
    models = [make_victim(victim, {"weighting": weighting, **options}) for weighting in weightings]
    stated = accounts_of(victim, models, defenses, ratings, n_rounds=n_rounds, seed=0)
    show_accounts(Output(), stated)
    return " ".join(capsys.readouterr().out.split())


class TestPrinting:
    def test_each_defense_states_its_own(self, ratings, capsys):
        defenses = make_defenses("laplace:b=2,clip=1+gaussian:sigma=2,clip=1+paillier:ideal=true")
        scenarios = "observed-only", "include-unrated"
        text = printed(capsys, "fedmvmf", defenses, ratings, scenarios, update="sgd")
        for weighting in scenarios:
            assert text.count(f"Privacy account of laplace, fedmvmf sgd/{weighting}") == 1
            assert text.count(f"Privacy account of gaussian, fedmvmf sgd/{weighting}") == 1
        assert text.count("paillier states no privacy account") == 1
        assert "4.377" in text  # one row of the Gaussian mechanism at distance 1 sigma
        for sentence in ("not hidden: which items a client rated", "neighbours: recordings that differ",
                         "view: every message", "not claimed: user-level privacy"):  # fmt: skip
            assert text.count(sentence) == 1

    def test_no_clipping_is_said(self, ratings, capsys):
        text = printed(capsys, "fedmvmf", make_defenses("gaussian"), ratings, ("observed-only",) * 2)
        assert text.count("nothing is proved: rows have no bound without clipping") == 1

    def test_objective_noise(self, ratings, capsys):
        text = printed(capsys, "mf", make_defenses("hdpmf"), ratings)
        assert "stretching states no privacy account" in text
        assert "h known (the recommender)" in text
        again = printed(capsys, "mf", make_defenses("hdpmf:noise=fresh"), ratings, n_rounds=2)
        assert "nothing is proved: the proof is for 1 round" in again
