"""How often attacks go through the rows of a recording: counted, for a timing is asserted nowhere.

A budget is rows of batches that an attack asks for, over the rows that clients uploaded, where nothing is
wrong with the declaration. One look at every client costs one pass; questions about the recording as a whole
ask a sample. Closed forms, and ``likelihood`` where there is no noise, compile no program.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest

import attacks.trajectory.trajectory_fits
import victims.transcript.view
from audit.factories import make_attack
from victims.data.synthetic import Synthetic, generate
from victims.protocols.fedmf import FedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.transcript.reader import open_transcript

CLIENTS = 600
SAMPLES = 0.25  # of the rows: two samples of 60 clients, the longest among them
BUDGETS = {
    "spectral": 1 + SAMPLES,
    "grid": 1,
    "rated-set": 0,
    "aggregate": 0,
    "undeclared": 9,  # one pass for each rule that it has to exclude
    "likelihood": 5 + SAMPLES,  # as ``undeclared``, for exact rows are read in closed form
}
COMPILED = "/jax/core/compile/backend_compile_duration"
SCENARIOS = [("semi-als", "observed-only"), ("sgd", "include-unrated")]


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    ratings = generate(Synthetic(users=CLIENTS, items=40, ratings_per_user=8.0, seed=5))
    found = {}
    for update, weighting in SCENARIOS:
        path = tmp_path_factory.mktemp("counted") / "t"
        record(FedMVMF(update=update, weighting=weighting, factors=3), ratings, path, rounds=[0, 1])
        found[update, weighting] = open_transcript(path).view("server")
    return found


@pytest.mark.parametrize("scenario", SCENARIOS, ids="/".join)
@pytest.mark.parametrize("name", BUDGETS)
def test_passes_over_the_rows(views, monkeypatch, name, scenario):
    """Before: ``spectral`` asked every row whether it is a gradient or a weight, three times over."""
    view, asked, programs = views[scenario], [], []
    gathered = victims.transcript.view.gathered

    def counted(*given):
        found = gathered(*given)
        users, rows = found.gradients.shape[:2]
        full = found.valid.mean() if found.valid.size else 0.0
        asked.append(users * rows * full)
        return found

    def compiled(event, *_, **__):
        programs.append(event == COMPILED)

    monkeypatch.setattr(victims.transcript.view, "gathered", counted)
    jax.monitoring.register_event_duration_secs_listener(compiled)
    try:
        make_attack(name).attack(view, 0)
    finally:
        jax.monitoring.unregister_event_duration_listener(compiled)
    assert sum(asked) <= BUDGETS[name] * view.messages.n_rows + 1
    assert not any(programs)


def test_rows_without_noise_are_not_fitted(tmp_path, monkeypatch):
    """Before: ``trajectory`` fitted every client of two clean rounds, whom the closed form reads at once."""
    ratings = generate(Synthetic(users=60, items=40, ratings_per_user=12.0, seed=5))
    record(FedMF(factors=3), ratings, tmp_path / "t", rounds=[0, 1])
    monkeypatch.setattr(attacks.trajectory.trajectory_fits, "fit", None)
    found = make_attack("trajectory").attack(open_transcript(tmp_path / "t").view("server"), 0)
    user, _, item, value, _ = (np.concatenate(part) for part in zip(*found.rows(), strict=True))
    assert np.array_equal(value, ratings.matrix().toarray()[user, item])
    assert value.size == ratings.n_ratings
