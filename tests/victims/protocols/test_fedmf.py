"""FedMF against a slow restatement of Algorithm 1, and the attacks on it."""

from __future__ import annotations

import numpy as np
import pytest

from audit.factories import make_attack, make_defenses, make_victim
from audit.scoring.score import score
from audit.scoring.truth import read_truth
from victims.common.errors import InputError
from victims.evaluation.rating_error import learning_curve
from victims.protocols.fedmf import FedMF
from victims.recording import record
from victims.training import start
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript

RATE, RIDGE, MU = 3e-3, 0.2, 0.3


def small(**options) -> FedMF:
    given = {"lambda_factors": RIDGE, "item_regularization": MU, "client_learning_rate": RATE, "factors": 5}
    return FedMF(**(given | options))


def recorded(victim, ratings, path, rounds):
    record(victim, ratings, path, rounds=rounds)
    return open_transcript(path), read_truth(truth_path(path))


def accuracy(name, transcript, truth, options=None):
    found = make_attack(name, options).attack(transcript.view("server"), 0)
    rows = {row.metric: row.summary for row in score(found, transcript.manifest, truth)}
    return rows["rating_accuracy"], found


def reference_round(u, v, table):
    """Algorithm 1, rating by rating: the new factors and every upload."""
    new_u, uploads = u.copy(), {}
    new_v = v.copy()
    for i in range(u.shape[0]):
        new_u[i] = (1 - 2 * RATE * RIDGE) * u[i]
        for j in np.flatnonzero(table[i]):
            error = table[i, j] - u[i] @ v[j]
            new_u[i] = new_u[i] + 2 * RATE * error * v[j]
            uploads[i, j] = RATE * (-2 * error * u[i] + 2 * MU * v[j])
            new_v[j] = new_v[j] - uploads[i, j]
    return new_u, new_v, uploads


@pytest.mark.parametrize("upload", ["part-text", "full-text"])
def test_rounds_and_uploads_are_algorithm_1(ratings, upload):
    victim, table = small(upload=upload), ratings.matrix().toarray()
    state = victim.init(ratings, 1)
    for _ in range(3):
        u, v = np.asarray(state.client_factors), np.asarray(state.item_factors)
        new_u, new_v, expected = reference_round(u, v, table)
        seen = {}
        for rows in victim.uploads(state, ratings, np.arange(ratings.n_users)):
            seen |= {
                (int(i), int(j)): g for i, j, g in zip(rows.sender, rows.index, rows.gradient, strict=True)
            }
        assert len(seen) == (table.size if upload == "full-text" else len(expected))
        for pair, gradient in seen.items():
            np.testing.assert_allclose(gradient, expected.get(pair, np.zeros(5)), atol=1e-15)
        state = victim.round(state, ratings)
        np.testing.assert_allclose(state.client_factors, new_u, rtol=1e-12)
        np.testing.assert_allclose(state.item_factors, new_v, rtol=1e-12)


def test_the_published_start_keeps_all_dimensions_equal(ratings):
    victim = small(start="constant", init_scale=0.01)
    state = victim.init(ratings, 0)
    for _ in range(3):
        state = victim.round(state, ratings)
    for factors in (state.item_factors, state.client_factors):
        np.testing.assert_allclose(factors, np.asarray(factors)[:, :1] * np.ones(5), rtol=1e-12)


def right(found, table):
    """Clients whose answers are all right, and those on whom the attack abstains."""
    wrong = set()
    for user, _, index, value, _ in found.rows():
        wrong |= set(user[np.abs(value - table[user, index]) > 1e-3].tolist())
    return set(found.users.tolist()) - wrong - set(found.abstained), set(found.abstained)


@pytest.mark.parametrize("upload", ["part-text", "full-text"])
@pytest.mark.parametrize("name", ["spectral", "grid", "eq24-corrected"])
def test_plaintext_gradients_give_all_ratings(ratings, tmp_path, upload, name):
    transcript, _ = recorded(small(upload=upload), ratings, tmp_path / "t", [2, 3])
    found = make_attack(name).attack(transcript.view("server"), 0)
    solved, silent = right(found, ratings.matrix().toarray())
    single = set(np.flatnonzero(np.diff(ratings.indptr) == 1).tolist())
    assert single
    assert silent == (single if name == "grid" else set())
    assert solved == set(range(40)) - silent


def test_one_round_is_enough_for_the_grid(ratings, tmp_path):
    """With one rating any level has its length: the attack says so. The others need the second round."""
    transcript, _ = recorded(small(factors=20), ratings, tmp_path / "t", [4])
    view = transcript.view("server")
    found = make_attack("grid").attack(view, 0)
    solved, silent = right(found, ratings.matrix().toarray())
    assert len(solved) + len(silent) == 40
    assert silent == set(np.flatnonzero(np.diff(ratings.indptr) == 1).tolist())
    assert "more than one" in next(iter(found.abstained.values()))
    for name in ("spectral", "eq24-corrected"):
        assert len(make_attack(name).attack(view, 0).abstained) == 40


def test_eq_24_as_printed_is_no_better_than_guessing(ratings, tmp_path):
    """The learning rate is missing in it, so that it only works where that is 1."""
    transcript, truth = recorded(small(), ratings, tmp_path / "t", [2, 3])
    value, _ = accuracy("eq24-printed", transcript, truth, {"answer": "any"})
    assert value.value < value.baseline


def test_grid_reads_the_other_protocol_too(ratings, transcripts):
    for transcript in transcripts.values():
        found = make_attack("grid").attack(transcript.view("server"), 0)
        table = np.concatenate([ratings.matrix().toarray(), ratings.attributes], axis=1)
        for user, kind, index, value, _ in found.rows():
            actual = table[user, index + kind * ratings.n_items]
            assert np.mean(np.abs(value - actual) < 0.01) > 0.99
        assert len(found.abstained) < 10


def test_bad_options():
    for options, rule in (
        ({"upload": "half"}, "fedmf option upload"),
        ({"factors": "0"}, "between 1 and 4096"),
        ({"client_learning_rate": "0"}, "> 0"),
        ({"update": "semi-als"}, "fedmf option update"),
    ):
        with pytest.raises(InputError, match=rule):
            make_victim("fedmf", options)


def test_divergence_is_told(ratings):
    victim = small(client_learning_rate=5.0)
    state = victim.init(ratings, 0)

    def train():
        after = state
        for _ in range(200):
            after = victim.round(after, ratings)

    with pytest.raises(InputError, match="lower client_learning_rate"):
        train()


def test_divergence_under_noise_is_told_before_numbers_are_infinite(ratings, tmp_path):
    """Rows are about 1e-3 here, and noise of scale 2 grows from round to round."""
    with pytest.raises(InputError, match=r"fedmf diverged in round \d: .*record earlier rounds, or lower"):
        record(small(), ratings, tmp_path / "t", rounds=[4, 5, 9], defenses=make_defenses("laplace:scale=2"))


@pytest.mark.parametrize("rounds", [[2], [3], [4], [5]])
def test_divergence_is_told_in_whatever_round_is_recorded(ratings, tmp_path, rounds):
    """Rows are too large a round before factors are."""
    with pytest.raises(InputError, match=r"fedmf diverged in round \d: .*record earlier rounds, or lower"):
        record(small(), ratings, tmp_path / "t", rounds=rounds, defenses=make_defenses("laplace:scale=1e9"))


class TestStopping:
    """Section 3.1: the training stops when gradients are smaller than epsilon."""

    @pytest.fixture
    def norms(self, ratings):
        """The largest gradients (5) and (6) of 40 rounds, of clients and of items, from the uploads."""
        victim, table, sizes = small(), ratings.matrix().toarray(), []
        state = victim.init(ratings, 0)
        for _ in range(40):
            u, v = np.asarray(state.client_factors), np.asarray(state.item_factors)
            _, _, uploads = reference_round(u, v, table)
            of_clients, of_items = 2 * RIDGE * u, np.zeros_like(v)
            for (i, j), row in uploads.items():
                of_clients[i] -= 2 * (table[i, j] - u[i] @ v[j]) * v[j]
                of_items[j] += row / RATE
            sizes.append([np.linalg.norm(part, axis=1).max() for part in (of_clients, of_items)])
            state = victim.round(state, ratings)
        return np.array(sizes)

    @pytest.mark.parametrize("side", ["clients", "items", "both"])
    def test_it_stops_in_the_first_round_of_small_gradients(self, ratings, norms, side):
        asked = {"clients": norms[:, 0], "items": norms[:, 1], "both": norms.max(axis=1)}[side]
        threshold = float(np.sort(asked)[5])  # the sixth smallest is not below itself, five are
        expected = int(np.flatnonzero(asked < threshold)[0])
        victim = small(stop_gradient=threshold, stop_side=side)
        run = start(victim, ratings, [], 0)
        assert not run.stopped
        for round_ in range(expected + 1):
            run = run.trained(round_)
            np.testing.assert_allclose(run.state.gradient, norms[round_], rtol=1e-9)
            assert run.stopped == (round_ == expected)
        np.testing.assert_array_equal(
            run.state.item_factors, start_of(small(), ratings, expected + 1).item_factors
        )

    def test_what_trains_stops_there(self, ratings, norms):
        victim = small(stop_gradient=float(norms.max(axis=1)[2]) * (1 + 1e-9))
        learned = learning_curve(victim, ratings, ratings, [1, 39], sweeps=1)
        last = int(np.flatnonzero(norms.max(axis=1) < victim.stop_gradient)[0]) + 1
        assert (learned.rounds, learned.stopped) == (sorted({1, last}), True)
        assert not learning_curve(small(), ratings, ratings, [1, 2], sweeps=1).stopped

    def test_rounds_after_the_end_are_not_recorded(self, ratings, tmp_path):
        victim = small(stop_gradient=1e6)
        record(victim, ratings, tmp_path / "first", rounds=[0])
        with pytest.raises(InputError, match=r"over after round 0.*rounds must be at most 0, got 3"):
            record(victim, ratings, tmp_path / "more", rounds=[3])
        assert not list(tmp_path.glob("more*"))

    def test_refusals(self):
        with pytest.raises(InputError, match="stop_gradient of fedmf must be >= 0"):
            small(stop_gradient=-1.0)
        with pytest.raises(InputError, match="stop_side must be"):
            make_victim("fedmf", {"stop_side": "nobody"})


def start_of(victim, ratings, rounds):
    """The state after some rounds."""
    state = victim.init(ratings, 0)
    for _ in range(rounds):
        state = victim.round(state, ratings)
    return state
