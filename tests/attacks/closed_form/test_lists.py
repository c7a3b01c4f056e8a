"""Which items a client rated, from what it sends of items that it did not rate."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

import factorleak as fl
from attacks.closed_form.lists.sent_items import direction_of, lists_of, share_of_hardly_used
from audit.experiments.recordings import lists_open
from audit.factories import make_attack, make_defense
from audit.scoring.score import score
from audit.scoring.truth import read_truth
from tests.attacks.closed_form.test_uploads import CLIENTS, answers_of_averaged_rows, record
from victims.data.loaders import load
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record as record_of_rated_set
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder

# Items that clients draw in each round, and give ratings that they make up, beside those that they rated.


CLIENTS_DRAWN_ANEW, ITEMS, RATED, FACTORS = 20, 400, 20, 4


def _recorded(path, rounds, *, drawn=True, sample=1.0, grows=False):
    """Clients of one step, who rate what many rate; the ratings, 0 where unrated."""
    rng = np.random.default_rng(2)
    q, p = rng.normal(0, 0.3, (ITEMS, FACTORS)), rng.normal(0, 0.3, (CLIENTS_DRAWN_ANEW, FACTORS))
    table, popular = np.zeros((CLIENTS_DRAWN_ANEW, ITEMS)), rng.lognormal(0, 1.5, ITEMS)
    for own in table:
        own[rng.choice(ITEMS, RATED, replace=False, p=popular / popular.sum())] = rng.integers(1, 6, RATED)
    with fl.Recorder(path, rating_levels=range(1, 6), rule={"rule": "sgd", "order": "batch"}) as recorder:
        for t in range(rounds):
            recorder.broadcast(t, q)
            for user, own in enumerate(table):
                rated, others = (
                    np.flatnonzero(own),
                    rng.permutation(np.flatnonzero(own == 0))[: RATED * drawn],
                )
                there = rng.random(rated.size) < sample if sample < 1 else np.full(rated.size, True)
                rated = rated[there] if not grows else rated[: RATED - rounds + t + 1]
                items = np.sort(np.concatenate([rated, others]))
                stars = np.where(own[items] > 0, own[items], rng.integers(1, 6, items.size))
                error = stars - q[items] @ p[user]
                recorder.upload(t, user, error[:, None] * p[user], items)
                p[user] += 0.02 * error @ q[items]
            q = q + rng.normal(0, 0.02, q.shape)
    return table


def _answers(path, attack, table):
    """Right and wrong ratings of rated items, and unrated ones called rated."""
    parts = [(user, index, value) for user, _, index, value, _ in fl.attack(path, attack).rows() if user.size]
    user, index, value = (np.concatenate(column) for column in zip(*parts, strict=True))
    actual, told = table[user, index], np.rint(value)
    rated = actual > 0
    wrong = told[rated] != actual[rated]
    return int((~wrong).sum()), int(wrong.sum()), int((told[~rated] != 0).sum())


@pytest.mark.parametrize("attack", ["undeclared", "inversion"])
def test_items_that_are_always_there_are_answered(tmp_path, attack):
    """Others come and go as even draws do; by accident one in a hundred is in all of three rounds."""
    table = _recorded(tmp_path / "t", 3)
    right, wrong, made_up = _answers(tmp_path / "t", attack, table)
    assert right >= 0.95 * CLIENTS_DRAWN_ANEW * RATED
    assert wrong == 0
    assert made_up <= 0.02 * right


@pytest.mark.parametrize(
    "program",
    [{}, {"sample": 0.7}, {"sample": 0.95}, {"grows": True}],
    ids=["all", "samples", "most", "grows"],
)
def test_lists_of_rated_items_alone_are_answered(tmp_path, program):
    """A sample of the ratings in each round comes and goes as well, but not as even draws do."""
    table = _recorded(tmp_path / "t", 3, drawn=False, **program)
    right, wrong, made_up = _answers(tmp_path / "t", "undeclared", table)
    # of samples one round is answered, whatever is in the others
    assert right >= (program.get("sample", 1.0) - 0.1) * CLIENTS_DRAWN_ANEW * RATED
    assert (wrong, made_up) == (0, 0)


def test_items_at_the_rounded_mean_of_a_client_are_not_called_rated(tmp_path):
    """FedRec's user averaging, with the mean rounded to a level: of as many items as were rated, or twice."""
    for drawn in (12, 24):
        path = tmp_path / str(drawn)
        lists = record(path, np.float32, drawn=drawn, mean=lambda ratings: np.rint(ratings.mean()))
        told = answers_of_averaged_rows(path)
        assert all(round(value) == lists[client].get(item) for (client, item), value in told.items())
        assert len(told) >= 0.5 * CLIENTS * 12


# Which items are rated, from lists alone: the paper's bound, popularity, and the intersection of rounds.


@pytest.fixture(scope="module")
def many():
    return load("synthetic:users=300,items=400,seed=1")


@pytest.fixture(scope="module")
def views_of_rated_set(many, tmp_path_factory):
    """rho = 1, four rounds, redrawn or not; the numbers in the rows are taken away, as encryption does."""
    out = {}
    for redrawn in (True, False):
        path = tmp_path_factory.mktemp("sampled") / f"{redrawn}"
        sampling = make_defense(f"unrated-sampling:rho=1,redrawn={redrawn}".lower())
        record_of_rated_set(
            FedMVMF(weighting="include-unrated"), many, path, rounds=[1, 2, 3, 4], defenses=[sampling]
        )
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


def test_one_round_meets_the_paper_s_bound(many, views_of_rated_set):
    found = make_attack("rated-set", {"popularity": "false"}).attack(views_of_rated_set[True].during([1]), 0)
    rated = many.matrix().toarray() > 0
    probability = certainty(found)
    rows = np.diff(many.indptr) <= many.n_items / 2  # others cannot sample as many
    listed = (probability > 0) & rows[:, None]
    # every list holds exactly as many sampled items as rated ones
    assert rated[listed].mean() == 0.5
    np.testing.assert_allclose(probability[listed], 0.5, atol=1e-9)


def test_rounds_with_fresh_samples_intersect(many, views_of_rated_set):
    """q = n / (m - n): of the sampled items about q come back in each further round."""
    rated = many.matrix().toarray() > 0
    false = []
    for n_rounds in (1, 2, 4):
        view = views_of_rated_set[True].during(np.arange(1, 1 + n_rounds))
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


def test_a_sample_drawn_once_keeps_its_cover(many, views_of_rated_set):
    one, four = (
        certainty(make_attack("rated-set").attack(views_of_rated_set[False].during(rounds), 0))
        for rounds in ([1], [1, 2, 3, 4])
    )
    np.testing.assert_allclose(one, four, atol=1e-9)


def test_popularity_helps_and_probabilities_are_calibrated(many, views_of_rated_set):
    rated = many.matrix().toarray() > 0
    view = views_of_rated_set[True].during([1])
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
def test_a_list_takes_no_more_memory_than_it_has_items(many, views_of_rated_set):
    """What a manifest declares of items makes no table: two clients, and items by the million."""
    view = views_of_rated_set[True].select(np.array([3, 4]))
    found = make_attack("rated-set").attack(view, 0)
    large = replace(view, manifest=view.manifest.model_copy(update={"n_items": 16_000_000}))
    again = make_attack("rated-set").attack(large, 0)
    assert sum(block.value.size for block in again.blocks) <= 2 * many.n_items
    assert [block.users.tolist() for block in again.blocks] == [
        block.users.tolist() for block in found.blocks
    ]


# Rated, drawn, or neither: what evidence says of the items that are sent, and nothing without it.


N_CLIENTS, N_ITEMS, K_SENT_ITEMS = 60, 1000, 4


class Program(NamedTuple):
    path: object
    rated: np.ndarray


@pytest.fixture
def program_of_sent_items(tmp_path):
    """Record implicit feedback: few items are used by many, and what is sent is the program's."""

    def record(send, *, n_clients=N_CLIENTS, rounds=1, levels=(1,), seed=0):
        rng = np.random.default_rng(seed)
        popular = rng.lognormal(0, 1.5, N_ITEMS)
        rated = np.zeros((n_clients, N_ITEMS), bool)
        items = rng.normal(0, 0.1, (N_ITEMS, K_SENT_ITEMS))
        with Recorder(tmp_path / "t", rating_levels=levels) as recorder:
            for client in range(n_clients):
                own = rng.choice(N_ITEMS, rng.integers(20, 120), replace=False, p=popular / popular.sum())
                rated[client, own] = True
                recorder.truth(client, own, np.ones(own.size))
            for number in range(rounds):
                recorder.broadcast(number, items)
                for client in range(n_clients):
                    rows = send(rng, items, rng.normal(0, 0.1, K_SENT_ITEMS), rated[client], number)
                    recorder.upload(number, client, rows)
        return Program(tmp_path / "t", rated)

    return record


def cross_entropy(rng, items, factor, rated, number):
    """Four distinct negatives for each positive."""
    drawn = rng.choice(np.flatnonzero(~rated), 4 * rated.sum(), replace=False)
    error = 1 / (1 + np.exp(-items @ factor)) - rated
    rows = np.zeros(items.shape)
    rows[rated] = error[rated, None] * factor
    rows[drawn] = error[drawn, None] * factor
    return rows


def negatives_alone(times):
    """BPR of one pass whose positives stay at home: ``times`` negatives for each."""

    def send(rng, items, factor, rated, number):
        rows = np.zeros(items.shape)
        for positive in np.repeat(np.flatnonzero(rated), times):
            drawn = rng.choice(np.flatnonzero(~rated))
            rows[drawn] -= factor / (1 + np.exp((items[positive] - items[drawn]) @ factor))
        return rows

    return send


def said(found, n_items=N_ITEMS):
    """P(rated) of every client and item, NaN of clients without an answer."""
    out = np.zeros((found.users.size, n_items))
    for block in found.blocks:
        here = np.isfinite(block.value)
        user = np.broadcast_to(block.users[:, None], here.shape)[here]
        out[user, block.index[here]] = block.rated_probability[here]
    out[np.isin(found.users, list(found.abstained))] = np.nan
    return out


def test_drawn_negatives_are_not_called_rated(program_of_sent_items):
    """Before: all of them, with probability 1."""
    path, rated = program_of_sent_items(cross_entropy)
    found = fl.attack(path, "rated-set")
    assert not found.abstained
    assert (found.diagnostics["classes"] == 2).all()
    np.testing.assert_array_equal(said(found) > 0.5, rated)
    assert not lists_open(open_transcript(path).view("server"))


def test_negatives_sent_alone_say_what_is_rated(program_of_sent_items):
    """Before: the lists upside down, F1 0. Of 60 clients items that many use are missing by six standard
    deviations; a list of even draws is as far off in one of 10^8 recordings.
    """
    path, rated = program_of_sent_items(negatives_alone(20))
    found = fl.attack(path, "rated-set")
    rows = fl.score(found, transcript=path).set_index("metric")
    assert rows.verdict["rated_set_f1"] == "LEAK"
    assert rows.value["rated_set_auc"] > 0.9
    probability = said(found)
    answered = ~np.isnan(probability).any(axis=1)
    for low in (0.2, 0.4, 0.6, 0.8):  # 0.25 for what is wrong about popularity and the length of lists
        here = (probability[answered] >= low) & (probability[answered] <= low + 0.2)
        assert abs(rated[answered][here].mean() - probability[answered][here].mean()) < 0.25
    assert not lists_open(open_transcript(path).view("server"))


def test_where_nothing_tells_nobody_is_answered(program_of_sent_items, run, tmp_path):
    """Few negatives alone of few clients: before, all were called rated, and a bar was passed."""
    path, _ = program_of_sent_items(negatives_alone(1), n_clients=10)
    found = fl.attack(path, "rated-set")
    assert set(found.abstained) == set(range(10))
    assert "rows may be of rated items, of drawn negatives or of both" in found.abstained[0]
    words = ("--transcript", path, "--attack", "rated-set", "--fail-on", "leak", "--out", tmp_path / "r")
    code, text, err = run("audit", *words)
    assert (code, "NOT TESTED" in text, "lies in the open" in text) == (3, True, False), err


def test_a_round_of_all_items_takes_no_answer_away(program_of_sent_items):
    """Before: nobody was answered of both rounds."""

    def send(rng, items, factor, rated, number):
        rows = np.where(rated[:, None], rng.normal(0, 1, items.shape), 0)
        return rows + number * rng.normal(0, 0.1, items.shape)

    path, rated = program_of_sent_items(send, rounds=2, levels=(1, 2, 3, 4, 5))
    found = fl.attack(path, "rated-set")
    assert not found.abstained
    claimed = np.zeros(rated.shape, bool)
    for block in found.blocks:
        assert block.probability is None  # nothing says so but that there are ratings on several levels
        here = block.value > 0
        claimed[np.broadcast_to(block.users[:, None], here.shape)[here], block.index[here]] = True
    np.testing.assert_array_equal(claimed, rated)


def test_rows_that_are_not_read_hold_as_many_draws_as_hardly_used_items_say():
    """Rated items and even draws: right in the mean to a tenth, and skewed to the right; the other way round
    where what is rated is not sent. 300 clients: five standard errors of c are 0.01.
    """
    rng = np.random.default_rng(0)
    share = np.minimum(4 / np.arange(1, 401) ** 0.9, 0.8)
    rated = rng.random((300, 400)) < share
    for drawn in (0.1, 0.5):
        other = rng.random(rated.shape) < drawn
        both, alone = sp.csr_array((rated | other) * 1.0), sp.csr_array((other & ~rated) * 1.0)
        assert direction_of(both) == 1
        assert direction_of(alone) == (-1 if drawn == 0.5 else 0)  # few draws say too little
        assert share_of_hardly_used(both, 1) == pytest.approx(
            drawn + (1 - drawn) * share[-40:].mean(), abs=0.02
        )
        assert direction_of(sp.csr_array(other * 1.0)) == 0


def test_rounds_of_all_items_are_left_out(program_of_sent_items):
    path, rated = program_of_sent_items(
        lambda rng, items, factor, own, number: (own | (number > 0))[:, None] * factor, rounds=3
    )
    view = open_transcript(path).view("server")
    np.testing.assert_array_equal(lists_of(view, every_round=False).listed.toarray() > 0, rated)
    assert lists_of(view, every_round=True).n_rounds.tolist() == [3] * N_CLIENTS
