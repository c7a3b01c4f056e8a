"""The closed form against transcripts that it did not help to write."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import factorleak as fl
from attacks.base import Reconstruction
from attacks.closed_form.fit.goodness_of_fit import misfit
from attacks.closed_form.spectral import Spectral
from audit.factories import make_defenses
from tests.oracles.simulator import SCENARIOS, Reference
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.transcript.reader import open_transcript
from victims.transcript.recorded import Transcript
from victims.transcript.view import View


def dense(found: Reconstruction, n_users: int, n_items: int, n_attributes: int):
    """Estimates as (ratings, attributes); NaN where nothing was answered."""
    ratings = np.full((n_users, n_items), np.nan)
    attributes = np.full((n_users, n_attributes), np.nan)
    for user, kind, index, value, _ in found.rows():
        ratings[user[kind == 0], index[kind == 0]] = value[kind == 0]
        attributes[user[kind == 1], index[kind == 1]] = value[kind == 1]
    return ratings, attributes


def assert_read(found: Reconstruction, reference: Reference, tolerance: float = 1e-4) -> None:
    """Every rating and attribute is right, and nobody was abstained on."""
    assert found.abstained == {}
    ratings, attributes = dense(found, *reference.ratings.shape, reference.attributes.shape[1])
    expected = reference.ratings
    if reference.weighting == "observed-only":
        expected = np.where(expected > 0, expected, np.nan)
    np.testing.assert_allclose(ratings, expected, atol=tolerance)
    np.testing.assert_allclose(attributes, reference.attributes, atol=tolerance)


@pytest.mark.parametrize(("update", "weighting"), SCENARIOS)
class TestOutsideTranscripts:
    def test_plain(self, outside, update, weighting):
        reference, transcript = outside(update=update, weighting=weighting)
        assert_read(Spectral().attack(transcript.view("server"), 0), reference)

    def test_shuffled_rows_later_rounds(self, outside, update, weighting):
        reference, transcript = outside(update=update, weighting=weighting, rounds=(7, 8, 9), order=11)
        assert_read(Spectral().attack(transcript.view("server"), 0), reference)

    @pytest.mark.parametrize("form", ["chunked", "lz4", "parquet"])
    def test_other_forms(self, outside, update, weighting, form):
        reference, transcript = outside(update=update, weighting=weighting, form=form)
        assert_read(Spectral().attack(transcript.view("server"), 0), reference)

    def test_half_stars_without_attributes(self, outside, update, weighting):
        reference, transcript = outside(
            update=update,
            weighting=weighting,
            groups=(),
            levels=tuple(np.arange(0.5, 5.1, 0.5)),
        )
        assert_read(Spectral().attack(transcript.view("server"), 0), reference)

    def test_float32(self, outside, update, weighting):
        reference, transcript = outside(update=update, weighting=weighting, dtype=np.float32)
        found = Spectral().attack(transcript.view("server"), 0)
        assert_read(found, reference, tolerance=0.1)

    @pytest.mark.parametrize("factors", [2, 20])
    def test_other_sizes(self, outside, update, weighting, factors):
        reference, transcript = outside(
            update=update,
            weighting=weighting,
            factors=factors,
            n_users=33,
            n_items=90,
            density=0.1,
            seed=8,
            lambda_factors=0.7,
            lambda_attributes=0.2,
            alpha=0.4,
        )
        assert_read(Spectral().attack(transcript.view("server"), 0), reference)

    def test_scaled_and_regularised_uploads(self, outside, update, weighting):
        reference, transcript = outside(update=update, weighting=weighting, scale=-0.02, regularization=0.003)
        assert_read(Spectral().attack(transcript.view("server"), 0), reference)

    def test_shuffled_gradients_are_abstained_on(self, outside, update, weighting):
        _, transcript = outside(update=update, weighting=weighting, n_users=60, n_items=80)
        found = Spectral().attack(transcript.view("server").shuffled(3), 0)
        # a client with very few rows can fit by accident; 60 clients, at most 5 % of them
        assert len(found.abstained) >= 57
        assert all("chance" in r or "length" in r for r in found.abstained.values())


def with_constants(transcript: Transcript, **changes: float | None) -> View:
    """The server's view with other public constants; None hides one."""
    view = transcript.view("server")
    constants = {**view.manifest.hyperparameters, **changes}
    constants = {name: value for name, value in constants.items() if value is not None}
    manifest = view.manifest.model_copy(update={"hyperparameters": constants})
    return dataclasses.replace(view, manifest=manifest)


class TestWithoutTheUpdateRule:
    """Where the update leaves the length open, two rounds with the same ratings close it."""

    @pytest.mark.parametrize("update", ["semi-als", "sgd"])
    def test_hidden_constants_observed_only(self, outside, update):
        reference, transcript = outside(
            update=update, rounds=(1, 4), server_learning_rate=0.05, single_raters=0
        )
        view = with_constants(transcript, lambda_factors=None, client_learning_rate=None)
        assert_read(Spectral().attack(view, 0), reference)

    @pytest.mark.parametrize("update", ["semi-als", "sgd"])
    @pytest.mark.parametrize("groups", [(), ((0, 1, 2), (3, 4))])
    def test_one_round_of_include_unrated_needs_only_alpha(self, outside, update, groups):
        reference, transcript = outside(
            update=update, weighting="include-unrated", rounds=(2,), groups=groups
        )
        view = with_constants(
            transcript, lambda_factors=None, lambda_attributes=None, client_learning_rate=None
        )
        assert_read(Spectral().attack(view, 0), reference)

    def test_rounds_that_do_not_follow_each_other(self, outside):
        reference, transcript = outside(update="sgd", rounds=(1, 5), server_learning_rate=0.05)
        assert_read(Spectral().attack(transcript.view("server"), 0), reference)

    def test_vanishing_shrinkage(self, outside):
        rate, ridge = 0.004, 125.0
        assert 1 - 2 * rate * ridge == 0
        reference, transcript = outside(
            update="sgd",
            lambda_factors=ridge,
            client_learning_rate=rate,
            server_learning_rate=0.001,
        )
        assert_read(Spectral().attack(transcript.view("server"), 0), reference, tolerance=1e-3)

    def test_one_factor_has_parallel_directions(self, outside):
        reference, transcript = outside(update="sgd", factors=1, rounds=(1, 2), server_learning_rate=0.05)
        assert_read(Spectral().attack(transcript.view("server"), 0), reference, tolerance=1e-3)


class TestAbstains:
    def test_one_round_of_sgd(self, outside):
        _, transcript = outside(update="sgd", rounds=(1,))
        found = Spectral().attack(transcript.view("server"), 0)
        assert found.blocks == ()
        assert len(found.abstained) == 12
        assert "a second round is needed" in found.abstained[0]

    def test_hidden_constant_in_one_round(self, outside):
        _, transcript = outside(rounds=(1,))
        view = with_constants(transcript, lambda_factors=None)
        assert "lambda_factors" in Spectral().attack(view, 0).abstained[0]

    def test_hidden_alpha(self, outside):
        _, transcript = outside(weighting="include-unrated")
        view = with_constants(transcript, alpha=None)
        assert "alpha" in Spectral().attack(view, 0).abstained[0]

    def test_zero_rows(self, outside):
        _, transcript = outside()
        view = transcript.view("server")
        gradient = view.messages.gradient[0].copy()
        gradient[view.messages.sender[0] == 4] = 0
        messages = dataclasses.replace(view.messages, gradient=(gradient,))
        found = Spectral().attack(dataclasses.replace(view, messages=messages), 0)
        assert found.abstained == {4: "all uploaded rows are zero"}

    def test_missing_attribute_rows(self, outside):
        _, transcript = outside(rounds=(1,))
        view = transcript.view("server")
        keep = ~((view.messages.sender[0] == 2) & (view.messages.kind[0] == 1)
                 & (view.messages.index[0] == 3))  # fmt: skip
        messages = dataclasses.replace(
            view.messages,
            **{
                name: (getattr(view.messages, name)[0][keep],)
                for name in ("round", "sender", "kind", "index", "gradient")
            },
        )
        found = Spectral().attack(dataclasses.replace(view, messages=messages), 0)
        assert list(found.abstained) == [2]

    def test_view_without_uploads(self, transcripts):
        view = transcripts["semi-als", "observed-only"].view("item-server")
        found = Spectral().attack(view, 0)
        assert found.users.size == 0
        assert found.blocks == ()


def test_attribute_constant_is_not_needed_without_attributes(outside):
    reference, transcript = outside(groups=(), rounds=(2,))
    view = with_constants(transcript, lambda_attributes=None)
    assert_read(Spectral().attack(view, 0), reference)


def test_numbers_far_off_the_grid_are_no_ratings_however_far_off_chance_is():
    """Factors that noise drove to huge values: paired at random, the numbers are further off still."""
    rng = np.random.default_rng(0)
    predicted = rng.normal(0, 1e6, (5, 40))
    error = 3.0 - predicted + rng.normal(0, 1e3, (5, 40))
    everywhere = np.ones((5, 40), bool)
    off, judged = misfit(error, predicted, everywhere, everywhere, np.arange(1.0, 6.0), None)
    assert (judged == 40).all()
    assert (off > 1).all()


def test_diagnostics_give_the_length_of_the_factor(outside):
    reference, transcript = outside(rounds=(1,))
    found = Spectral().attack(transcript.view("server"), 0)
    state, messages = reference.run()
    row = messages[1, 3, "attribute", 0]
    p_norm = found.diagnostics["length"][3]
    error = np.linalg.norm(row) / p_norm  # |f| = |e| |p|
    r_hat = reference.attributes[3, 0]
    p = row / np.linalg.norm(row) * p_norm
    candidates = [abs(r_hat - sign * p @ state[1, "attribute", 0]) for sign in (-1, 1)]
    assert min(abs(error - c) for c in candidates) < 1e-9
    assert math.isclose(found.diagnostics["misfit"].max(), 0, abs_tol=1e-4)


def test_order_of_workers_changes_no_byte(transcripts):
    view = transcripts["sgd", "include-unrated"].view("server")
    first, second = (Spectral().attack(view, 0) for _ in range(2))
    for a, b in zip(first.rows(), second.rows(), strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def test_declared_noise_moves_rows_off_the_grid(ratings, tmp_path):
    """Little noise of a known law: a right answer may be further from the grid; nothing else is read."""
    victim = FedMVMF("semi-als", "include-unrated")
    record(
        victim, ratings, tmp_path / "t", rounds=[0, 1], defenses=make_defenses("laplace:scale=0.01"), seed=1
    )
    view, truth = open_transcript(tmp_path / "t").view("server"), ratings.matrix().toarray()
    found = Spectral().attack(view, 0)
    as_without = Spectral(noisy_misfit=0.25).attack(view, 0)
    assert len(found.abstained) <= len(as_without.abstained) - 3
    for user, kind, index, value, _ in found.rows():
        rated = (kind == 0) & (value > 0)
        assert np.mean(np.round(value[rated]) == truth[user[rated], index[rated]]) > 0.95
    for seed in range(3):
        assert len(Spectral().attack(view.shuffled(seed), 0).abstained) == ratings.n_users


def test_equal_rows_near_the_grid_are_no_answer(tmp_path):
    """Rows of Adam: all errors come out alike, and near a level for some clients by accident."""
    rng = np.random.default_rng(0)
    users, items, k, rate = 60, 40, 5, 0.01
    q, p = rng.normal(0, 0.3, (items, k)), rng.normal(0, 0.3, (users, k))
    lists = [rng.choice(items, 15, replace=False) for _ in range(users)]
    ratings = [rng.choice(np.arange(1.0, 6.0), 15) for _ in range(users)]
    first, second = np.zeros((2, users, 15, k))
    with fl.Recorder(tmp_path / "run", rating_levels=range(1, 6)) as recorder:
        for round_ in range(2):
            recorder.broadcast(round_, q)
            moved = np.zeros_like(q)
            for user, own in enumerate(lists):
                gradient = -2 * (ratings[user] - q[own] @ p[user])[:, None] * p[user]
                first[user] = 0.9 * first[user] + 0.1 * gradient
                second[user] = 0.999 * second[user] + 0.001 * gradient**2
                mean, square = (
                    first[user] / (1 - 0.9 ** (round_ + 1)),
                    second[user] / (1 - 0.999 ** (round_ + 1)),
                )
                rows = rate * mean / (np.sqrt(square) + 1e-8)
                recorder.upload(round_, user, rows, own)
                moved[own] += rows
            q = q - 0.1 * moved
    found = fl.attack(tmp_path / "run", "spectral")
    assert len(found.abstained) == users


def declared_with_noise(reference: Reference, path, noise: float, scale: float) -> View:
    """A program under Laplace noise that is declared, its rows' scale declared as another one."""
    state, messages = reference.run()
    rng = np.random.default_rng([reference.seed, 1])
    perturbed = {key: row + rng.laplace(0, noise, row.shape) for key, row in messages.items()}
    manifest = {**reference.manifest(), "defenses": [{"name": "laplace", "scale": noise}]}
    copy = dataclasses.replace(reference)
    copy.run, copy.manifest = lambda: (state, perturbed), lambda: manifest  # type: ignore[method-assign]
    copy.write(path)
    view = open_transcript(path).view("server")
    return dataclasses.replace(view, manifest=declared_scale(view, scale))


@pytest.mark.parametrize(
    ("update", "weighting", "seed", "noise", "scale"),
    [
        ("sgd", "observed-only", 5, 0.3, -1.0),  # one client fits, by accident
        (
            "semi-als",
            "include-unrated",
            0,
            0.001,
            2.0,
        ),  # misfits of 0.25 to 0.5, which this noise does not make
    ],
)
def test_declared_noise_excuses_no_wrong_scale(tmp_path, update, weighting, seed, noise, scale):
    """Before, clients were answered wrongly under either."""
    reference = Reference(
        update, weighting, n_users=60, n_items=60, seed=seed, groups=(), factors=3 + seed % 3,
        single_raters=2 if scale < 0 else 0,
    )  # fmt: skip
    view = declared_with_noise(reference, tmp_path / "t", noise, scale)
    assert len(Spectral().attack(view, 0).abstained) == 60
    right = dataclasses.replace(view, manifest=declared_scale(view, 1.0))
    if noise < 0.1:
        assert len(Spectral().attack(right, 0).abstained) <= 3


def declared_scale(view: View, scale: float):
    """The view's manifest with another scale of the rows."""
    upload = view.manifest.upload.model_copy(update={"scale": scale})
    return view.manifest.model_copy(update={"upload": upload})
