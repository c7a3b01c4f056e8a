"""Rows that are regularised by another multiple of their items' factors than is declared."""

from __future__ import annotations

import numpy as np
import pytest

import factorleak as fl
from attacks.closed_form.spectral import Spectral
from attacks.closed_form.uploads.undeclared_pull import as_rows_say
from attacks.root_finding.scipy_root import Root
from tests.attacks.closed_form.test_spectral import assert_read
from tests.attacks.root_finding.test_judgement import RULE
from tests.conftest import SCENARIOS


def _declared(transcript, regularization):
    view = transcript.view("server")
    return view.declared(upload=view.manifest.upload.model_copy(update={"regularization": regularization}))


@pytest.mark.parametrize(("update", "weighting"), SCENARIOS)
@pytest.mark.parametrize(("sent", "declared"), [(0.1, 0.0), (-0.4, 0.2), (0.0, 0.3)])
def test_rows_tell_the_multiple(outside, update, weighting, sent, declared):
    reference, transcript = outside(update=update, weighting=weighting, regularization=sent)
    assert_read(Spectral().attack(_declared(transcript, declared), 0), reference)


@pytest.mark.parametrize("weighting", ["include-unrated"])
def test_solvers_take_it_off(outside, weighting):
    """The system of the rows as they were declared has a root as well, of numbers that are no ratings."""
    _, transcript = outside(weighting=weighting, regularization=0.1, lambda_factors=0.5)
    view, wrong = _declared(transcript, 0.1), _declared(transcript, 0.0)
    right, found = (Root(method="hybr", jobs=1).attack(one, 0) for one in (view, wrong))
    assert right.abstained.keys() == found.abstained.keys() < set(range(12))
    for one, other in zip(right.rows(), found.rows(), strict=True):
        np.testing.assert_allclose(one[3], other[3], atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_declared_rightly_is_left(outside, dtype):
    """What rounding leaves across the direction is no multiple of factors."""
    view = outside(dtype=dtype, regularization=0.2)[1].view("server")
    assert as_rows_say(view) == (view, "")


def _recorded(path, multiples):
    """A client for each multiple: one exact solution of its factor, twelve items."""
    rng = np.random.default_rng(1)
    q = rng.normal(0, 0.5, (30, 4))
    constants = {"lambda_factors": 0.3, "upload_scale": 1.0}
    with fl.Recorder(path, rating_levels=range(1, 6), rule=RULE, constants=constants) as recorder:
        recorder.broadcast(0, q)
        for user, pull in enumerate(multiples):
            items = np.sort(rng.permutation(30)[:12])
            stars, v = rng.integers(1, 6, 12), q[items]
            p = np.linalg.solve(v.T @ v + 0.3 * np.eye(4), v.T @ stars)
            recorder.upload(0, user, (stars - v @ p)[:, None] * p + pull * v, items)
    return fl.open_transcript(path).view("server")


def test_clients_with_multiples_of_their_own_are_not_read(tmp_path):
    view = _recorded(tmp_path / "t", 0.1 * np.arange(1, 9))
    found = Spectral().attack(view, 0)
    assert len(found.abstained) == 8
    assert "each client its own" in found.abstained[0]
    assert Root(jobs=1).attack(view, 0).abstained == found.abstained


def test_one_client_with_a_multiple_changes_nothing_for_the_others(tmp_path):
    view = _recorded(tmp_path / "t", [0.1] + [0.0] * 7)
    assert as_rows_say(view) == (view, "")
