"""The attack on decrypted sums: alone, peeled, by lists, by parallel rows; against noise and thresholds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attacks.closed_form.fit.images import OPEN_OFFSET
from attacks.sums.aggregate import Aggregate
from attacks.sums.peeling import findings, sums_of_round
from audit.factories import make_defense
from audit.keys import view_of
from audit.scoring.score import score
from audit.scoring.truth import read_truth
from victims.data.subsets import of_users
from victims.data.synthetic import Synthetic, generate
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript
from victims.transcript.view import Sums

IDEAL = "paillier:ideal=true"


def recorded(victim, ratings, path, *defenses, rounds=(2,)):
    record(victim, ratings, path, rounds=rounds, defenses=[make_defense(text) for text in defenses])
    return open_transcript(path), read_truth(truth_path(path))


def read(transcript, truth, adversary="server"):
    found = Aggregate().attack(view_of(transcript, adversary), 0)
    rows = {row.metric: row.summary for row in score(found, transcript.manifest, truth)}
    return rows, found


@pytest.fixture(scope="module")
def sparse():
    """300 users with about 6 of 900 items each: many items have one rater."""
    return generate(Synthetic(users=300, items=900, ratings_per_user=6.0, single=0.1, seed=5))


def test_few_clients_are_read_completely(sparse, tmp_path):
    """Also every answer about unrated and sampled items, and all attributes."""
    few = of_users(sparse, np.flatnonzero(np.diff(sparse.indptr) >= 5)[:5])
    victim = FedMVMF(update="sgd", weighting="include-unrated", client_learning_rate=1e-3)
    rows, found = read(*recorded(victim, few, tmp_path / "t", "unrated-sampling:rho=1", IDEAL))
    assert found.diagnostics["read"].min() == 1
    assert rows["rating_accuracy"].value == 1
    assert rows["attribute_accuracy"].value == 1


def test_what_is_read_is_right_and_the_rest_is_said_to_be_a_guess(sparse, tmp_path):
    transcript, truth = recorded(FedMVMF(), sparse, tmp_path / "t", IDEAL)
    rows, found = read(transcript, truth)
    (block,) = found.blocks
    certain = block.probability == 1
    item = certain & (block.kind == 0)
    table = np.zeros((sparse.n_users, sparse.n_items))
    table[:, : truth.ratings.shape[1]] = truth.ratings.toarray()
    answer = block.value[:, : sparse.n_items]
    assert item.sum() > 300
    assert (answer == table)[item[:, : sparse.n_items]].all()
    attributes = certain[:, sparse.n_items :]
    assert (block.value[:, sparse.n_items :] == truth.attributes)[attributes].all()
    assert 0 < found.diagnostics["read"].mean() < 1
    assert rows["rating_accuracy"].advantage_low > 0


def test_peeling_reads_more_than_the_lone_rows(sparse, tmp_path):
    """Sums with two or more contributors fall as well."""
    transcript, truth = recorded(FedMVMF(), sparse, tmp_path / "t", IDEAL)
    _, found = read(transcript, truth)
    count = np.bincount(sparse.items, minlength=sparse.n_items)
    lone = count[np.arange(sparse.n_items)] == 1
    (block,) = found.blocks
    certain = (block.probability == 1)[:, : sparse.n_items]
    assert certain[:, count >= 3].any()
    assert certain[:, ~lone].sum() > 0.2 * certain[:, lone].sum()


def test_a_step_changes_nothing_that_it_is_given(sparse, tmp_path):
    """What one step finds in an untouched round is found again, and is true of one contributor's row."""
    transcript, truth = recorded(FedMVMF(), sparse, tmp_path / "t", IDEAL)
    view = view_of(transcript, "server")
    (number,) = view.sums
    sums = sums_of_round(view, view.users, number)
    factors = np.full((view.users.size, view.manifest.factors), np.nan)
    answers = np.full((view.users.size, view.manifest.n_items + view.manifest.n_attributes), np.nan)
    first, second = (findings(view.manifest, sums, factors, answers) for _ in range(2))
    assert np.isnan(factors).all()
    assert np.isnan(answers).all()
    assert len(first) == len(second) > 0
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.answers, other.answers)
        items = one.columns[one.columns < truth.ratings.shape[1]]
        actual = truth.ratings[[int(one.clients)], :].toarray()[0, items]
        np.testing.assert_array_equal(one.answers[one.columns < truth.ratings.shape[1]], actual)


def test_a_threshold_of_contributors_helps(sparse, tmp_path):
    shares = []
    for fewest in (1, 2, 8):
        transcript, truth = recorded(
            FedMVMF(), sparse, tmp_path / f"{fewest}", f"{IDEAL},min_contributors={fewest}"
        )
        _, found = read(transcript, truth)
        shares.append(found.diagnostics["read"].mean() if found.diagnostics else 0.0)
    # rows of clients with two lone items or more are read: of these at least the lone ones
    counts = np.bincount(sparse.items, minlength=sparse.n_items)
    lone = np.bincount(sparse.users, counts[sparse.items] == 1, sparse.n_users)
    rows = np.diff(sparse.indptr) + sparse.n_attributes
    assert shares[0] > np.mean(np.where(lone >= 2, lone, 0) / rows) > 0.01
    assert shares[0] > shares[1] >= shares[2] == 0


def test_nobody_need_be_alone(tmp_path):
    """Sums of the same few clients span their factors; spans that share one client show it."""
    many = generate(Synthetic(users=60, items=300, ratings_per_user=80.0, seed=2))
    dense = of_users(many, np.argsort(np.abs(np.diff(many.indptr) - 100))[:6])
    fewest = 3
    transcript, truth = recorded(FedMVMF(), dense, tmp_path / "t", f"{IDEAL},min_contributors={fewest}")
    count = np.bincount(dense.items, minlength=dense.n_items)
    assert count.max() > fewest
    _, found = read(transcript, truth)
    (block,) = found.blocks
    certain = (block.probability == 1)[:, : dense.n_items]
    table = truth.ratings.toarray()
    released = (count >= fewest)[: table.shape[1]] & (table > 0)
    assert certain[:, : table.shape[1]][released].mean() > 0.5
    assert (block.value[:, : dense.n_items] == np.pad(table, ((0, 0), (0, dense.n_items - table.shape[1]))))[
        certain
    ].all()


def test_a_threshold_of_k_hides_everybody(tmp_path):
    """K sums of K clients span everything."""
    dense = generate(Synthetic(users=12, items=300, ratings_per_user=120.0, seed=2))
    transcript, truth = recorded(FedMVMF(), dense, tmp_path / "t", f"{IDEAL},min_contributors=6")
    _, found = read(transcript, truth)
    assert set(found.abstained.values()) == {"no sum of few enough contributors shows this client"}


def test_noise_under_the_encryption_ends_in_abstention(sparse, tmp_path):
    transcript, truth = recorded(FedMVMF(), sparse, tmp_path / "t", "laplace:scale=0.5", IDEAL)
    _, found = read(transcript, truth)
    assert len(found.abstained) == found.users.size


def test_shuffled_sums_are_the_null(sparse, tmp_path):
    transcript, _ = recorded(FedMVMF(), sparse, tmp_path / "t", IDEAL)
    view = view_of(transcript, "server")
    null = view.shuffled(1)
    assert null.messages is view.messages
    for number, sums in view.sums.items():
        for kind in (0, 1):
            mine, other = sums.values[sums.kind == kind], null.sums[number].values[sums.kind == kind]
            assert not np.array_equal(mine, other)
            np.testing.assert_array_equal(np.sort(mine.ravel()), np.sort(other.ravel()))
    found = Aggregate().attack(null, 0)
    assert not found.diagnostics or found.diagnostics["read"].mean() < 0.01


@pytest.fixture(scope="module")
def fedmf(sparse, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fedmf")
    return {
        upload: recorded(FedMF(upload=upload, factors=20), sparse, folder / upload, IDEAL, rounds=(3, 4))
        for upload in ("part-text", "full-text")
    }


@pytest.mark.thorough
class TestWithoutLists:
    def test_its_own_rows_do_not_hide_others(self, fedmf, sparse):
        """With itself subtracted a client sees items that it and one other rated."""
        transcript, truth = fedmf["part-text"]
        busiest = int(np.diff(sparse.indptr).argmax())
        _, found = read(transcript, truth, f"client:{busiest}")
        own = sparse.items[sparse.indptr[busiest] : sparse.indptr[busiest + 1]]
        shared = own[np.bincount(sparse.items)[own] == 2]

        read_items = np.concatenate([index for _, _, index, *_ in found.rows()])
        assert shared.size
        assert np.isin(shared, read_items).mean() > 0.5

    def test_a_decrypter_of_privmvmf(self, sparse, tmp_path):
        transcript, truth = recorded(FedMVMF(), sparse, tmp_path / "t", f"{IDEAL},decrypters=2")
        rows, _ = read(transcript, truth, "decrypter")
        assert rows["claimed_rating_accuracy"].value > 0.95

    def test_what_may_be_a_level_higher_is_not_claimed(self, tmp_path):
        """Nobody has the highest level: what is left are differences, and a claim is of ratings."""
        people = generate(Synthetic(users=60, items=600, ratings_per_user=6.0, single=0.1, seed=5))
        people = replace(people, values=np.minimum(people.values, people.levels[-2]))
        victim = FedMF(upload="part-text", factors=8)
        rows, found = read(*recorded(victim, people, tmp_path / "t", IDEAL, rounds=(3, 4)), "client:7")
        assert len(found.abstained) == found.users.size > 30
        assert set(found.abstained.values()) == {OPEN_OFFSET}
        assert rows["claimed_rating_accuracy"].verdict == "NOT TESTED"


def test_no_sums_no_answer(transcripts):
    for transcript in transcripts.values():
        found = Aggregate().attack(transcript.view("server"), 0)
        assert {*found.abstained.values()} == {"the adversary sees no decrypted sums"}


def test_a_table_that_does_not_fit_is_a_reason(small_view):
    """What a manifest declares of items may not eat the machine."""
    large = replace(
        small_view,
        manifest=small_view.manifest.model_copy(update={"n_items": 16_000_000}),
        sums={0: Sums(np.zeros(1, np.int8), np.zeros(1, np.int32), np.ones((1, 2)))},
    )
    found = Aggregate().attack(large, 0)
    assert found.users.size * 16_000_000 > 1 << 27
    assert "12 clients x 16,000,000 items" in found.obstacle
