"""Clients' factors: recorded beside the transcript, read by attacks, kept in files, scored beside guesses."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from attacks.base import ClientFactors, Reconstruction, joined, silent_about
from attacks.closed_form.fedmf_eq24 import Eq24
from attacks.closed_form.grid.rating_grid import Grid
from attacks.closed_form.spectral import Spectral
from attacks.likelihood.attack import Likelihood
from attacks.root_finding.scipy_root import Root
from attacks.sums.aggregate import Aggregate
from audit.factories import make_defense
from audit.keys import view_of
from audit.scoring.answers import Factors
from audit.scoring.baselines import factor_cosine
from audit.scoring.files import read_reconstruction, write_reconstruction
from audit.scoring.metrics import FACTOR_METRICS, METRICS
from audit.scoring.score import score
from audit.scoring.truth import FactorTruth, factors_beside, read_factors, read_truth
from defenses.row_noise import Laplace
from tests.oracles.simulator import SCENARIOS
from victims.common.errors import InputError
from victims.data.subsets import of_users
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.transcript.beside import factors_path, truth_path, write_columns
from victims.transcript.columns import FACTORS
from victims.transcript.reader import open_transcript
from victims.transcript.writer import Table


def errors(found: Reconstruction, path: Path) -> np.ndarray:
    """Relative error of every factor that was read."""
    truth = read_truth(truth_path(path)).factors
    return Factors(found.factors, truth, found.factors.users).relative_error(found.factors.value)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_closed_form_reads_factors_of_every_protocol(transcripts, scenario):
    """With length and sign, for everybody whom it answers, in the round that it names."""
    transcript = transcripts[scenario]
    found = Spectral().attack(transcript.view("server"), 0)
    assert set(found.factors.users.tolist()) == set(found.users.tolist()) - set(found.abstained)
    assert errors(found, transcript.path).max() < 1e-6


@pytest.mark.parametrize("scenario", [("semi-als", "observed-only"), ("sgd", "include-unrated")])
def test_solvers_read_factors(transcripts, scenario):
    """Of whom they solve; in sgd of the earlier round, whose factor the system is about."""
    transcript = transcripts[scenario]
    view = transcript.view("server")
    found = Root(jobs=1).attack(view.select(view.users[:12]), 0)
    assert (found.factors.round == view.rounds[-1 if scenario[0] == "semi-als" else -2]).all()
    assert set(found.factors.users.tolist()) == set(found.users.tolist()) - set(found.abstained)
    assert np.median(errors(found, transcript.path)) < 1e-6


def test_sums_of_few_clients_tell_their_factors(ratings, tmp_path):
    """Without a number in the clear but the sums; nobody is named whom no sum shows."""
    few = of_users(ratings, np.arange(4))
    record(FedMVMF(), few, tmp_path / "t", rounds=[2, 3], defenses=[make_defense("paillier:ideal=true")])
    found = Aggregate().attack(view_of(open_transcript(tmp_path / "t"), "server"), 0)
    assert (found.factors.round == 3).all()
    assert found.factors.users.size >= 3
    assert errors(found, tmp_path / "t").max() < 1e-5
    assert set(found.factors.users.tolist()).isdisjoint(found.abstained)


@pytest.fixture(scope="module")
def fedmf(ratings, tmp_path_factory):
    path = tmp_path_factory.mktemp("factors") / "t"
    record(FedMF(factors=5, client_learning_rate=2e-3), ratings, path, rounds=[4, 5], seed=2)
    return open_transcript(path)


@pytest.mark.parametrize("attack", [Grid(), Eq24()], ids=lambda attack: attack.name)
def test_other_closed_forms_read_factors(fedmf, attack):
    """Also the one that is told no constant: r = A g + B d . q says that p is B d."""
    found = attack.attack(fedmf.view("server"), 0)
    assert found.factors.users.size > 20
    assert np.median(errors(found, fedmf.path)) < 1e-6
    assert set(found.factors.users.tolist()).isdisjoint(found.abstained)


@pytest.mark.thorough
def test_factors_under_noise_are_estimates(ratings, tmp_path):
    """Better than the best guess, not exact, of the last round that was read."""
    record(FedMVMF(), ratings, tmp_path / "t", rounds=[4, 5, 6], defenses=[Laplace(scale=0.2)], seed=1)
    transcript = open_transcript(tmp_path / "t")
    found = Likelihood().attack(transcript.view("server"), 0)
    scores = {
        one.metric: one for one in score(found, transcript.manifest, read_truth(truth_path(transcript.path)))
    }
    assert (found.factors.round == 6).all()
    assert scores["factor_cosine"].summary.advantage_low > 0.5
    assert 0 < scores["factor_relative_error"].summary.value < 0.3


def test_scores_by_hand():
    """Three clients: one read, one of whom the line alone is right, one who is not read."""
    truth = FactorTruth(
        np.array([0, 1, 2]), np.array([7, 7, 7]), np.array([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]])
    )
    found = ClientFactors(
        np.array([0, 1], np.int32), np.array([7, 7], np.int32), np.array([[3.0, 4.0], [0.0, -1.0]])
    )
    factors = Factors(found, truth, np.array([0, 1, 2]))
    cosine, error = (one for one in METRICS if one.name in FACTOR_METRICS)
    assert np.allclose(cosine.score(factors), [1, 1, np.nan], equal_nan=True)
    assert np.allclose(error.score(factors), [0, 1.5, np.nan], equal_nan=True)
    assert np.allclose(error.baselines(factors)["zero"], 1)
    others = np.array([[0.5, 1.0], [2.0, 2.0], [1.5, 3.0]])
    own = truth.value
    assert np.allclose(
        error.baselines(factors)["mean"], np.linalg.norm(others - own, axis=1) / np.linalg.norm(own, axis=1)
    )
    cosines = (
        np.abs((others * own).sum(axis=1)) / np.linalg.norm(others, axis=1) / np.linalg.norm(own, axis=1)
    )
    assert np.allclose(cosine.baselines(factors)["mean"], cosines)
    with pytest.raises(InputError, match="as many numbers"):
        Factors(ClientFactors(found.users, found.round, np.ones((2, 3))), truth, np.array([0, 1, 2]))


@pytest.mark.parametrize("factors", [1, 2, 10])
def test_expected_cosine_of_a_random_direction(factors):
    """Against 100,000 draws; five standard errors, exceeded by chance once in a million."""
    draws = np.random.default_rng(0).normal(size=(100_000, factors))
    cosines = np.abs(draws[:, 0]) / np.linalg.norm(draws, axis=1)
    truth = FactorTruth(np.array([0]), np.array([0]), np.ones((1, factors)))
    found = ClientFactors(np.zeros(1, np.int32), np.zeros(1, np.int32), np.ones((1, factors)))
    guess = factor_cosine(Factors(found, truth, np.array([0])))["random"][0]
    assert abs(guess - cosines.mean()) <= 5 * cosines.std() / math.sqrt(cosines.size) + 1e-12


def test_factors_are_scored_where_both_sides_have_them(fedmf, tmp_path):
    """Old truth files have none beside them; the rows of all other metrics stay as they are."""
    found = Spectral().attack(fedmf.view("server"), 0)
    both = score(found, fedmf.manifest, read_truth(truth_path(fedmf.path)))
    lone = tmp_path / "old.truth.arrow"
    lone.write_bytes(truth_path(fedmf.path).read_bytes())
    without = score(found, fedmf.manifest, read_truth(lone))
    assert [one.metric for one in both[-2:]] == list(FACTOR_METRICS)
    assert both[:-2] == without
    assert all(one.summary.verdict == "LEAK" and one.ceiling.best in (0, 1) for one in both[-2:])


def test_a_client_without_a_factor_counts_as_the_guess(fedmf):
    """So that abstaining neither helps nor hurts."""
    found = Spectral().attack(fedmf.view("server"), 0)
    few = found.factors.of(found.users[:10])
    some = Reconstruction("spectral", found.users, found.blocks, found.abstained, factors=few)
    one = score(some, fedmf.manifest, read_truth(truth_path(fedmf.path)))[-1]
    assert one.n_abstained == found.users.size - 10
    assert abs(one.summary.value - one.summary.baseline * (1 - 10 / found.users.size)) < 0.05


def test_reconstruction_files_keep_factors(fedmf, tmp_path):
    """As rows of a kind of their own; files without factors have no further column."""
    found = Spectral().attack(fedmf.view("server"), 0)
    write_reconstruction(tmp_path / "r.arrow", found, fedmf.manifest, adversary="server", seconds=1.0)
    again = read_reconstruction(tmp_path / "r.arrow").reconstruction
    for name in ("users", "round", "value"):
        assert np.array_equal(getattr(again.factors, name), getattr(found.factors, name))
    assert sum(block.value.size for block in again.blocks) > 0
    assert all((block.kind <= 1).all() for block in again.blocks)
    bare = Reconstruction("spectral", found.users, found.blocks, found.abstained)
    write_reconstruction(tmp_path / "b.arrow", bare, fedmf.manifest, adversary="server", seconds=1.0)
    assert "round" not in pa.ipc.open_file(tmp_path / "b.arrow").schema.names


def written(path: Path, kind: list[str], index: list[int], **columns: list) -> Path:
    rows = {"user": [0] * len(kind), "index": index, "value": [1.0] * len(kind)} | columns
    arrays = {name: pa.array(column) for name, column in rows.items()}
    write_columns(path, iter([arrays | {"kind": pa.array(kind)}]))
    return path


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({}, "needs a round"),
        ({"round": [3, None]}, "row 1: a row of kind factor needs a round"),
        ({"round": [3, 4]}, "of one round"),
        ({"round": [3, 3], "index": [0, 2]}, "every coordinate"),
        ({"round": [3, 3], "index": [0, 2**31 - 2]}, "every coordinate"),
        ({"round": [3, 3], "index": [1, 1]}, "must occur once"),
        ({"round": [0.5, 3.0]}, "round must be int32"),
    ],
)
def test_damaged_factors_of_a_reconstruction_are_named(tmp_path, columns, complaint):
    columns = {"index": [0, 1], **columns}
    path = written(tmp_path / "r.arrow", ["factor", "factor"], **columns)
    with pytest.raises(InputError, match=complaint):
        read_reconstruction(path)


def test_factors_of_other_software_are_read(tmp_path):
    path = written(tmp_path / "r.arrow", ["item", "factor", "factor"], [4, 1, 0], round=[None, 3, 3])
    found = read_reconstruction(path).reconstruction
    assert found.factors.round.tolist() == [3]
    assert found.factors.value.tolist() == [[1.0, 1.0]]
    assert found.blocks[0].index.tolist() == [[4]]


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"user": np.array([0, 0], np.int32)}, "row 1: each user and round must occur once"),
        ({"user": np.array([0, -1], np.int32)}, "row 1: user must be >= 0"),
        ({"factor": np.array([[1.0, np.nan], [1.0, 2.0]])}, "row 0: factor must be finite"),
    ],
)
def test_damaged_files_of_factors_are_named(tmp_path, columns, complaint):
    good = {"user": np.array([0, 1], np.int32), "round": 0, "factor": np.ones((2, 2))}
    path = tmp_path / "t.factors.arrow"
    spool = Table(path, FACTORS)
    spool.add(2, good | columns)
    spool.close()
    with pytest.raises(InputError, match=complaint):
        read_factors(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="not a readable Arrow"):
        read_factors(path)


def test_factors_lie_beside_the_recording_as_private_as_the_truth(fedmf):
    """Never in it: what an adversary is given is the folder."""
    path = factors_path(fedmf.path)
    assert path == factors_beside(truth_path(fedmf.path))
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent == fedmf.path.parent
    truth = read_factors(path)
    assert truth.value.shape == (2 * 40, 5)
    assert np.unique(truth.round).tolist() == [4, 5]
    assert factors_beside(fedmf.path / "elsewhere") is None


def test_factors_that_contradict_themselves_are_refused():
    one = ClientFactors(np.array([3], np.int32), np.zeros(1, np.int32), np.ones((1, 2)))
    with pytest.raises(InputError, match="among its users"):
        Reconstruction("test", np.array([0, 1], np.int32), (), factors=one)
    with pytest.raises(InputError, match="ascend"):
        ClientFactors(np.array([3, 3], np.int32), np.zeros(2, np.int32), np.ones((2, 2)))
    nothing = np.full((2, 2), np.nan)
    assert joined([(np.array([4, 1]), np.array([0, 0]), nothing)]) is None


def test_factors_of_nobody_are_scored(transcripts):
    """An attack that takes all its answers back has none: the guesses are left."""
    path = transcripts["sgd", "observed-only"].path
    found = Spectral().attack(open_transcript(path).view("server"), 0)
    nobody = silent_about(found, np.ones(found.users.size, bool), "taken back")
    rows = score(nobody, open_transcript(path).manifest, read_truth(truth_path(path)))
    assert {row.summary.verdict for row in rows} == {"NOT TESTED"}
