"""Sampling of unrated items: what is drawn, what is uploaded, and what FedMVMF learns from it."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.base import Outcome
from audit.factories import make_attack, make_defense, make_victim
from audit.keys import view_of
from audit.scoring.score import score
from audit.scoring.truth import read_truth
from defenses.unrated_sampling import UnratedSampling
from victims.common.errors import InputError
from victims.data.synthetic import Synthetic, generate
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.training import start
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript


@pytest.mark.parametrize("rho", [0.3, 1.0, 100.0])
def test_numbers_and_disjointness(ratings, rho):
    sample = UnratedSampling(rho).sampled(ratings, 3, 0)
    counts = np.diff(ratings.indptr)
    expected = np.minimum(np.ceil(rho * counts), ratings.n_items - counts)
    np.testing.assert_array_equal(np.bincount(sample.user, minlength=ratings.n_users), expected)
    pairs = set(zip(sample.user.tolist(), sample.item.tolist(), strict=True))
    assert len(pairs) == sample.user.size
    assert not pairs & set(zip(ratings.users.tolist(), ratings.items.tolist(), strict=True))
    assert (np.diff(sample.user * 10_000 + sample.item) > 0).all()


def test_redrawn_or_once_and_by_seed(ratings):
    def drawn(redrawn, number, seed):
        return UnratedSampling(1.0, redrawn).sampled(ratings, number, seed).item

    assert not np.array_equal(drawn(True, 0, 0), drawn(True, 1, 0))
    assert not np.array_equal(drawn(False, 0, 0), drawn(False, 0, 1))
    np.testing.assert_array_equal(drawn(False, 0, 0), drawn(False, 7, 0))
    np.testing.assert_array_equal(drawn(True, 5, 2), drawn(True, 5, 2))


def test_every_item_is_drawn_equally_often():
    """Of one client, over 600 rounds. Each count is binomial; a z-score above 4.5 for one of at most 60
    items has probability below 5e-4.
    """
    ratings, user = generate(Synthetic(users=2, items=60, ratings_per_user=10.0, single=0.0)), 1
    counts, n_rounds = np.zeros(ratings.n_items), 600
    for number in range(n_rounds):
        sample = UnratedSampling(1.0).sampled(ratings, number, 0)
        counts[sample.item[sample.user == user]] += 1
    rated = ratings.items[ratings.indptr[user] : ratings.indptr[user + 1]]
    assert counts[rated].sum() == 0
    share = rated.size / (ratings.n_items - rated.size)
    rest = np.delete(counts, rated)
    assert np.abs((rest - n_rounds * share) / np.sqrt(n_rounds * share * (1 - share))).max() < 4.5


@pytest.mark.parametrize("update", ["semi-als", "sgd"])
def test_a_sample_of_everything_is_include_unrated(ratings, update):
    victim = FedMVMF(update=update, weighting="include-unrated")
    everything = UnratedSampling(1e6).sampled(ratings, 0, 0)
    state = victim.init(ratings, 0)
    for _ in range(3):
        plain, sampled = victim.round(state, ratings), victim.round(state, ratings, sample=everything)
        np.testing.assert_allclose(sampled.item_factors, plain.item_factors, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(sampled.client_factors, plain.client_factors, rtol=1e-9, atol=1e-12)
        state = plain
    everybody = np.arange(ratings.n_users)
    dense, sparse = ([*victim.uploads(state, ratings, everybody, s)] for s in (None, everything))

    def table(pieces):
        return {
            (int(u), int(k), int(j)): g
            for rows in pieces
            for u, k, j, g in zip(rows.sender, rows.kind, rows.index, rows.gradient, strict=True)
        }

    expected, found = table(dense), table(sparse)
    assert expected.keys() == found.keys()
    for key, gradient in expected.items():
        np.testing.assert_allclose(found[key], gradient, rtol=1e-9, atol=1e-12)


def test_client_factors_solve_eq_8_with_the_weights_of_eq_36(ratings):
    victim = FedMVMF(weighting="include-unrated")
    state, sample = victim.init(ratings, 0), UnratedSampling(1.0).sampled(ratings, 0, 0)
    q, u = (np.asarray(part) for part in (state.item_factors, state.attribute_factors))
    found, table = victim.user_factors(state, ratings, sample), ratings.matrix().toarray()
    for user in range(ratings.n_users):
        c = np.where(table[user] > 0, 1.0, 0.0)
        c[sample.item[sample.user == user]] = victim.alpha
        left = q.T @ (c[:, None] * q) + victim.lambda_attributes * u.T @ u
        left += victim.lambda_factors * np.eye(victim.factors)
        right = q.T @ (c * table[user]) + victim.lambda_attributes * ratings.attributes[user] @ u
        np.testing.assert_allclose(found[user], np.linalg.solve(left, right), rtol=1e-9)


def test_plaintext_rows_tell_rated_from_sampled(ratings, tmp_path):
    """Without encryption the sample hides nothing: the rows' values say which items are rated."""
    victim = make_victim("fedmvmf", {"weighting": "include-unrated"})
    record(victim, ratings, tmp_path / "t", rounds=[2, 3], defenses=[make_defense("unrated-sampling:rho=1")])
    transcript = open_transcript(tmp_path / "t")
    assert transcript.manifest.defenses == [{"name": "unrated-sampling", "rho": 1.0, "redrawn": True}]
    found = make_attack("spectral").attack(transcript.view("server"), 0)
    table = ratings.matrix().toarray()
    for user, kind, index, value, _ in found.rows():
        items = kind == 0
        actual = table[user[items], index[items]]
        assert np.mean(np.abs(value[items] - actual) < 0.01) > 0.99


def test_refusals(ratings, tmp_path):
    with pytest.raises(InputError, match="rho of unrated-sampling must be > 0"):
        UnratedSampling(0.0)
    for victim in (make_victim("fedmvmf"), make_victim("mf", {"factors": "3"})):
        with pytest.raises(InputError, match="unrated items"):
            start(victim, ratings, [UnratedSampling(1.0)], 0).trained(0)
    twice = [UnratedSampling(1.0), UnratedSampling(2.0)]
    with pytest.raises(InputError, match="at most one defense"):
        record(FedMVMF(weighting="include-unrated"), ratings, tmp_path / "t", rounds=[0], defenses=twice)


@pytest.mark.thorough
def test_noise_on_lists_that_change_every_round(ratings, tmp_path):
    """A client has more items over the rounds than rows in one; (8) holds for each round's own list."""
    defenses = [UnratedSampling(1.0), make_defense("laplace:scale=0.2")]
    victim = FedMVMF(weighting="include-unrated")
    record(victim, ratings, tmp_path / "t", rounds=[2, 3], defenses=defenses)
    transcript = open_transcript(tmp_path / "t")
    found = make_attack("likelihood").attack(transcript.view("server"), 0)
    rows = score(found, transcript.manifest, read_truth(truth_path(tmp_path / "t")))
    values = {row.metric: row.summary for row in rows}
    assert values["rated_rating_accuracy"].value > 0.8
    assert values["attribute_group_accuracy"].value > 0.8


@pytest.fixture(scope="module")
def sealed(ratings, tmp_path_factory):
    path = tmp_path_factory.mktemp("sampled") / "t"
    defenses = [UnratedSampling(1.0), make_defense("paillier:ideal=true")]
    record(FedMF(factors=4, client_learning_rate=2e-3), ratings, path, rounds=[0, 1, 2], defenses=defenses)
    return open_transcript(path)


class TestFedMF:
    """Between full-text and part-text: encrypted rows of zeros for some unrated items."""

    def test_rows_of_zeros_beside_those_of_rated_items(self, ratings):
        victim, everybody = FedMF(factors=3), np.arange(ratings.n_users)
        sample = UnratedSampling(1.0).sampled(ratings, 0, 0)
        state = victim.init(ratings, 0)
        plain, mixed = ([*victim.uploads(state, ratings, everybody, chosen)] for chosen in (None, sample))
        sender, index, gradient = (
            np.concatenate([getattr(rows, name) for rows in mixed])
            for name in ("sender", "index", "gradient")
        )
        assert (np.diff(sender.astype(int) * ratings.n_items + index) > 0).all()
        zero = ~gradient.any(axis=1)
        np.testing.assert_array_equal(
            np.stack([sender, index])[:, zero], np.stack([sample.user, sample.item])
        )
        np.testing.assert_array_equal(gradient[~zero], np.concatenate([rows.gradient for rows in plain]))

    def test_the_training_stays_as_it_is(self, ratings):
        """A row of zeros adds nothing, whoever sums: the victim itself, or the server what it receives."""
        victim = FedMF(factors=3)
        plain, hidden = (start(victim, ratings, defenses, 0) for defenses in ([], [UnratedSampling(2.0)]))
        for round_ in range(2):
            plain, hidden = plain.trained(round_), hidden.trained(round_)
        np.testing.assert_array_equal(hidden.state.item_factors, plain.state.item_factors)
        sums = np.zeros((2, ratings.n_items, 3))
        sample = UnratedSampling(2.0).sampled(ratings, 0, 0)
        for total, chosen in zip(sums, (None, sample), strict=True):
            for rows in victim.uploads(victim.init(ratings, 0), ratings, np.arange(ratings.n_users), chosen):
                np.add.at(total, rows.index, rows.gradient)
        np.testing.assert_array_equal(*sums)

    def test_who_holds_no_key_has_the_lists_alone(self, sealed):
        """One round hides about half, three rounds hardly anything; the order of magnitude, not a rate."""
        truth = read_truth(truth_path(sealed.path))
        view = view_of(sealed, "server")
        found = []
        for rounds in ([0], [0, 1, 2]):
            answer = make_attack("rated-set").attack(view.during(rounds), 0)
            rows = {one.metric: one for one in score(answer, sealed.manifest, truth)}
            found.append(rows["rated_set_f1"].summary.value)
            assert rows["rated_set_f1"].baseline_name in ("popularity", "everything")
        assert found[0] < 0.85 < found[1] <= 1
        assert make_attack("spectral").attack(view, 0).outcome == Outcome.NOT_APPLICABLE

    def test_with_the_key_rows_of_zeros_are_left_out(self, sealed):
        """Else they would pass for ratings that are predicted exactly."""
        answer = make_attack("spectral").attack(view_of(sealed, "server+client"), 0)
        rows = {
            one.metric: one.summary.value
            for one in score(answer, sealed.manifest, read_truth(truth_path(sealed.path)))
        }
        assert rows["rating_accuracy"] > 0.95
        assert rows["rated_set_auc"] > 0.95

    def test_where_it_has_no_meaning(self, ratings):
        for victim, complaint in (
            (FedMF(upload="full-text"), "a row for every item"),
            (FedMF(local_steps=2), "leave the switches out"),
        ):
            with pytest.raises(InputError, match=complaint):
                start(victim, ratings, [UnratedSampling(1.0)], 0).trained(0)
