"""How far each path is from its floor, measured in one run. Nothing here is asserted.

    python -m pytest -o addopts= --import-mode=importlib tests/benchmarks

MovieLens 1M is read from the path in FACTORLEAK_ML_1M (default ../shared/data/ml-1m); without it these
benchmarks skip. The include-unrated recording takes 1.6 GB of disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from attacks.closed_form.spectral import Spectral
from attacks.likelihood.batch_ascent import ascend_batch
from attacks.likelihood.batch_cache import BatchCache
from attacks.likelihood.manifest_model import law_of
from attacks.likelihood.model import Point
from attacks.likelihood.problem import problem_of, start_parameters
from attacks.likelihood.starts import start_lam
from attacks.root_finding.scipy_root import Root
from attacks.trajectory.attack import Trajectory
from audit.factories import make_defenses
from tests.conftest import SCENARIOS
from victims.data.loaders import load
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.training import start
from victims.transcript.reader import open_transcript

DATA = Path(os.environ.get("FACTORLEAK_ML_1M", "../shared/data/ml-1m"))
pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} is not here")

# one attack in a fresh process, whose allocator holds no freed memory to reuse
MEMORY = """
import sys
from attacks.closed_form.spectral import Spectral
from tests.benchmarks.memory import PeakMemory
from victims.transcript.reader import open_transcript
view = open_transcript(sys.argv[1]).view("server")
with PeakMemory() as memory:
    Spectral().attack(view, 0)
print(memory.peak_megabytes)
"""


@pytest.fixture(scope="module")
def ml_1m():
    return load(str(DATA))


@pytest.fixture(scope="module", params=SCENARIOS, ids="/".join)
def recorded(request, ml_1m, tmp_path_factory):
    update, weighting = request.param
    path = tmp_path_factory.mktemp("bench") / f"{update}-{weighting}"
    rounds = [2] if update == "semi-als" else [2, 3]
    record(FedMVMF(update=update, weighting=weighting), ml_1m, path, rounds=rounds)
    yield path
    for file in path.iterdir():
        file.unlink()


def test_open(benchmark, recorded):
    """Reading and checking every row of a recording."""
    benchmark.pedantic(open_transcript, (recorded,), rounds=3, warmup_rounds=1)


def one_pass(benchmark, path):
    """One pass over the memory-mapped gradients."""
    view = open_transcript(path).view("server")
    benchmark.extra_info["gradients"] = view.messages.n_rows
    benchmark.pedantic(lambda: [np.sum(part) for part in view.messages.gradient], rounds=7, warmup_rounds=2)


def test_floor_numpy_sum(benchmark, recorded):
    """Of every attack on a recording."""
    one_pass(benchmark, recorded)


def test_spectral(benchmark, recorded):
    """All clients solved; a fresh view each time, so that nothing is remembered."""
    transcript = open_transcript(recorded)
    attack = Spectral()
    memory = subprocess.run(
        [sys.executable, "-c", MEMORY, str(recorded)], capture_output=True, text=True, check=True
    )
    benchmark.extra_info["peak_MB_above_the_mapped_file"] = round(float(memory.stdout))

    def fresh_attack():
        view = transcript.view("server")
        return attack.attack(replace(view, messages=replace(view.messages)), 0)

    found = benchmark.pedantic(fresh_attack, rounds=7, warmup_rounds=2)
    benchmark.extra_info["abstained"] = len(found.abstained)


def test_root_hybr_20_clients(benchmark, recorded):
    """The paper's solver on 20 clients of the same recording, one process, after compilation."""
    if "include-unrated" in recorded.name and "semi-als" in recorded.name:
        pytest.skip("3,918 unknowns are over the dense limit of hybr")
    view = open_transcript(recorded).view("server")
    view = view.select(np.random.default_rng(0).choice(view.users, 20, replace=False))
    attack = Root("hybr", jobs=1)
    benchmark.pedantic(attack.attack, (view, 0), rounds=2, warmup_rounds=1)


STEPS = 10


@pytest.fixture(scope="module")
def noisy_batches(recorded):
    """Batches and parameters of 128 clients, as if there was noise of scale 1."""
    view = open_transcript(recorded).view("server")
    view = view.select(np.random.default_rng(0).choice(view.users, 128, replace=False))
    model, constants = law_of(view.manifest, view.rounds, 1.0)
    problem = problem_of(
        view,
        model,
        steps=STEPS,
        key=0,
        estimated=True,
        known_noise=True,
        floor=0.0,
        precision=np.float32,
        shape_cost=1e5,
    )
    batches = BatchCache(problem)
    for batch in range(problem.n_batches):
        batches.rows(batch)
    return batches, start_parameters(problem, constants)


def test_likelihood_steps(benchmark, noisy_batches):
    """Newton steps of the likelihood attack, 128 clients."""
    batches, parameters = noisy_batches
    problem = batches.problem

    def ascend():
        for batch in range(problem.n_batches):
            p = np.ones((batches.rows(batch).live.size, problem.view.rounds.size, 6))
            point = Point(p, start_lam(problem.model, p))
            jax.block_until_ready(ascend_batch(batches, parameters, batch, point, STEPS))

    benchmark.extra_info["rows_x_steps"] = problem.view.messages.n_rows * STEPS
    benchmark.pedantic(ascend, rounds=3, warmup_rounds=1)


def test_floor_of_likelihood_steps(benchmark, noisy_batches):
    """The distances alone that the steps need: |f - y p| for every candidate and coordinate, in NumPy."""
    batches, problem = noisy_batches[0], noisy_batches[0].problem
    parts = [np.asarray(batches.rows(batch).items) for batch in range(problem.n_batches)]
    n_candidates = len(problem.model.levels)

    def distances():
        for _ in range(STEPS * n_candidates):
            for part in parts:
                np.abs(part - np.float32(1.5)).sum(axis=2)

    benchmark.pedantic(distances, rounds=3, warmup_rounds=1)


@pytest.mark.parametrize("scenario", SCENARIOS, ids="/".join)
def test_training_round(benchmark, ml_1m, scenario):
    """One round of the victim on all of MovieLens 1M, after compilation."""
    victim = FedMVMF(update=scenario[0], weighting=scenario[1])
    state = victim.round(victim.init(ml_1m, 0), ml_1m)
    benchmark.pedantic(victim.round, (state, ml_1m), rounds=5)  # it checks its result, so it waits


@pytest.mark.parametrize("order", ["batch", "per-rating"])
@pytest.mark.parametrize("noise", ["none", "hdpmf:noise=fresh"])
def test_epoch_of_mf(benchmark, ml_1m, order, noise):
    """One epoch of `mf`, K = 10; the floor reads and writes one factor per rating and side."""
    run = start(DecentralisedMF(order=order, learning_rate=2e-4), ml_1m, make_defenses(noise), 0).trained(0)
    benchmark.extra_info["floor_bytes"] = 4 * 8 * 10 * ml_1m.n_ratings

    def epoch():
        np.asarray(run.trained(1).state.client_factors)

    benchmark.pedantic(epoch, rounds=5, warmup_rounds=1)


COURSE = 12  # rounds
FEW = 100  # clients with fresh noise


@pytest.fixture(scope="module", params=["once", "fresh"])
def course(request, ml_1m, tmp_path_factory):
    """HDPMF, K = 10, as the recommender sees it: noise once, all clients; fresh noise, a few of them."""
    folder = tmp_path_factory.mktemp("courses") / request.param
    users = np.linspace(0, ml_1m.n_users - 1, FEW).astype(int) if request.param == "fresh" else None
    defenses = make_defenses(f"hdpmf:noise={request.param}")
    record(
        DecentralisedMF(learning_rate=2e-4),
        ml_1m,
        folder,
        rounds=range(COURSE),
        users=users,
        defenses=defenses,
    )
    yield folder
    for file in folder.iterdir():
        file.unlink()


def test_floor_of_trajectory(benchmark, course):
    """All rounds read once."""
    one_pass(benchmark, course)


def test_trajectory(benchmark, course):
    """W o R of all recorded clients: the closed form (once), or two passes of least squares (fresh)."""
    transcript = open_transcript(course)
    attack = Trajectory(answer="stretched")
    found = benchmark.pedantic(lambda: attack.attack(transcript.view("server"), 0), rounds=1, warmup_rounds=1)
    benchmark.extra_info["abstained"] = len(found.abstained)
