"""Which items are rated, from lists alone: the paper's bound, popularity, and the intersection of rounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from audit.factories import make_attack, make_defense
from audit.scoring.score import score
from audit.scoring.truth import read_truth
from victims.data.loaders import load
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript


@pytest.fixture(scope="module")
def many():
    return load("synthetic:users=300,items=400,seed=1")


@pytest.fixture(scope="module")
def views(many, tmp_path_factory):
    """rho = 1, four rounds, redrawn or not; the numbers in the rows are taken away, as encryption does."""
    out = {}
    for redrawn in (True, False):
        path = tmp_path_factory.mktemp("sampled") / f"{redrawn}"
        sampling = make_defense(f"unrated-sampling:rho=1,redrawn={redrawn}".lower())
        record(FedMVMF(weighting="include-unrated"), many, path, rounds=[1, 2, 3, 4], defenses=[sampling])
        view = open_transcript(path).view("server")
        out[redrawn] = replace(view, messages=replace(view.messages, gradient=None))
    return out


def certainty(found, n_items=400):
    """P(rated), (users, items); 0 where a client's item is no candidate."""
    out = np.zeros((found.users.size, n_items))
    for block in found.blocks:
        given = np.isfinite(block.value)
        row = np.searchsorted(found.users, block.users)[:, None]
        np.add.at(
            out,
            (np.broadcast_to(row, given.shape)[given], block.index[given]),
            np.where(block.value > 0, block.probability, 1 - block.probability)[given],
        )
    return out


def test_one_round_meets_the_paper_s_bound(many, views):
    found = make_attack("rated-set", {"popularity": "false"}).attack(views[True].during([1]), 0)
    rated = many.matrix().toarray() > 0
    probability = certainty(found)
    rows = np.diff(many.indptr) <= many.n_items / 2  # others cannot sample as many
    listed = (probability > 0) & rows[:, None]
    # every list holds exactly as many sampled items as rated ones
    assert rated[listed].mean() == 0.5
    np.testing.assert_allclose(probability[listed], 0.5, atol=1e-9)


def test_rounds_with_fresh_samples_intersect(many, views):
    """q = n / (m - n): of the sampled items about q come back in each further round."""
    rated = many.matrix().toarray() > 0
    false = []
    for n_rounds in (1, 2, 4):
        view = views[True].during(np.arange(1, 1 + n_rounds))
        probability = certainty(make_attack("rated-set").attack(view, 0))
        assert (probability[rated] > 0).all()
        false.append(((probability > 0) & ~rated).sum())
    n = np.diff(many.indptr).astype(float)
    n = np.minimum(n, many.n_items - n)
    chance = n / np.maximum(many.n_items - np.diff(many.indptr), 1)  # who rated everything samples nothing
    for found, n_rounds in zip(false, (1, 2, 4), strict=True):
        expected = np.sum(n * chance ** (n_rounds - 1))
        # a sum of nearly independent indicators: 5 standard deviations, failure below 1e-6
        assert abs(found - expected) <= 5 * np.sqrt(expected) * (n_rounds > 1)


def test_a_sample_drawn_once_keeps_its_cover(many, views):
    one, four = (
        certainty(make_attack("rated-set").attack(views[False].during(rounds), 0))
        for rounds in ([1], [1, 2, 3, 4])
    )
    np.testing.assert_allclose(one, four, atol=1e-9)


def test_popularity_helps_and_probabilities_are_calibrated(many, views):
    rated = many.matrix().toarray() > 0
    view = views[True].during([1])
    plain, popular = (
        certainty(make_attack("rated-set", {"popularity": flag}).attack(view, 0))
        for flag in ("false", "true")
    )
    listed = plain > 0

    def hits(probability):
        order = np.argsort(-np.where(listed, probability, -1), axis=1, kind="stable")
        n = rated.sum(axis=1)
        return np.mean([rated[i, order[i, : n[i]]].mean() for i in range(rated.shape[0])])

    rng = np.random.default_rng(0)
    assert hits(popular) > hits(rng.random(plain.shape)) + 0.05
    for low in (0.2, 0.4, 0.6, 0.8):
        bucket = listed & (popular >= low) & (popular < low + 0.2)
        share = rated[bucket].mean()
        deviation = np.sqrt(share * (1 - share) / bucket.sum())
        # 0.05 for what the popularity estimate itself gets wrong
        assert abs(share - popular[bucket].mean()) < 0.05 + 4 * deviation


def test_lists_in_the_open(transcripts, ratings):
    found = make_attack("rated-set").attack(transcripts["semi-als", "observed-only"].view("server"), 0)
    rated = ratings.matrix().toarray() > 0
    np.testing.assert_array_equal(certainty(found, ratings.n_items) == 1, rated[found.users])
    assert (found.diagnostics["expected"] == rated.sum(axis=1)).all()


def test_says_when_lists_say_nothing(transcripts):
    found = make_attack("rated-set").attack(transcripts["semi-als", "include-unrated"].view("server"), 0)
    assert "every client uploads every item" in next(iter(found.abstained.values()))


def test_is_scored_on_the_set_alone(transcripts):
    transcript = transcripts["sgd", "observed-only"]
    found = make_attack("rated-set").attack(transcript.view("server"), 0)
    rows = score(found, transcript.manifest, read_truth(truth_path(transcript.path)))
    assert {row.metric for row in rows} == {"rated_set_auc", "rated_set_f1", "tpr_at_fpr_0.1pct"}


@pytest.mark.thorough
def test_a_list_takes_no_more_memory_than_it_has_items(many, views):
    """What a manifest declares of items makes no table: two clients, and items by the million."""
    view = views[True].select(np.array([3, 4]))
    found = make_attack("rated-set").attack(view, 0)
    large = replace(view, manifest=view.manifest.model_copy(update={"n_items": 16_000_000}))
    again = make_attack("rated-set").attack(large, 0)
    assert sum(block.value.size for block in again.blocks) <= 2 * many.n_items
    assert [block.users.tolist() for block in again.blocks] == [
        block.users.tolist() for block in found.blocks
    ]
