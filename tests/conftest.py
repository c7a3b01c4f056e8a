"""Shared data: small, seeded, made once."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# what one test compiles serves the next, in every worker and in the commands that tests start; with a limit
# of size JAX locks the folder, so that nobody reads what is half written
if "FACTORLEAK_TESTS_PROGRAMS" in os.environ:  # a folder that several runs of one gate share
    os.environ["JAX_COMPILATION_CACHE_DIR"] = os.environ["FACTORLEAK_TESTS_PROGRAMS"]
elif "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = mkdtemp(prefix="factorleak-tests-")
os.environ["JAX_COMPILATION_CACHE_MAX_SIZE"] = str(4 << 30)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of a gate in the background: Ctrl-C is tested here
    signal.signal(signal.SIGINT, signal.default_int_handler)
if any(word.startswith("-n") for word in sys.argv):  # a worker for each core: none needs several threads
    # before workers are started; and what asks for all cores starts no processes of its own
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LOKY_MAX_CPU_COUNT": "1"}
if not any("benchmarks" in word for word in sys.argv):  # timed: compiled as for users, and unchecked
    # the older way of emitting fused loops, without the optimiser's passes, compiles several times as fast;
    # most programs run for a moment only. As users compile them they are run by .ci/outside
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    # before what it checks is imported; the thorough half computes for longer what the other one has checked
    if "thorough" in sys.argv and "PYTEST_XDIST_WORKER" not in os.environ:
        os.environ["FACTORLEAK_TESTS_UNCHECKED"] = "1"
    if "FACTORLEAK_TESTS_UNCHECKED" not in os.environ:
        import tests.tools.checked_types  # noqa: F401
    else:  # imported now, that file would find that it comes too late
        collect_ignore = ["tools/checked_types.py"]

import jax
import pytest

from audit.cli.main import main
from tests.oracles.simulator import SCENARIOS, Reference
from victims.data.ratings import Ratings
from victims.data.synthetic import Synthetic, generate
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.recording import record
from victims.transcript.reader import open_transcript
from victims.transcript.recorded import Transcript
from victims.transcript.view import View

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nearly nothing of what is imported is garbage: it is looked for afterwards, and in this never again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000)  # JAX and hypothesis do something at every collection, and arrays need none


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests go to one worker, so that what they share is made, traced and compiled once.

    As they are collected, for files of few tests are the longest ones and must not come last. Not those
    that compute for long: a few of their files take most of their time.
    """
    if config.option.markexpr == "thorough" or config.option.dist != "load":
        return None
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


def pytest_unconfigure() -> None:
    if "PYTEST_XDIST_WORKER" in os.environ or "FACTORLEAK_TESTS_PROGRAMS" in os.environ:
        return
    shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(scope="module")
def optimised(request: pytest.FixtureRequest) -> Iterator[None]:
    """With the optimiser's passes, for a module whose programs run longer than they compile.

    Those of its thorough tests do: where none of them is selected, nothing changes. It holds
    from the first test that asks for it to the end of the module: where some do, they come last.
    """
    here = (item for item in request.session.items if item.path == request.path)
    if not any(item.get_closest_marker("thorough") for item in here):
        yield
        return
    before = jax.config.read("jax_disable_most_optimizations")
    jax.clear_caches()  # of programs without them
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="session")
def ratings() -> Ratings:
    """40 users with as few as one rating, 60 items."""
    return generate(Synthetic(users=40, items=60, ratings_per_user=12.0, single=0.1, seed=3))


@pytest.fixture(scope="session")
def transcripts(ratings: Ratings, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Our own recordings of all four scenarios, rounds 4 and 5."""
    folder = tmp_path_factory.mktemp("transcripts")
    found: dict[tuple[str, str], Transcript] = {}
    for update, weighting in SCENARIOS:
        path = folder / f"{update}-{weighting}"
        victim = FedMVMF(update=update, weighting=weighting)  # type: ignore[arg-type]
        record(victim, ratings, path, rounds=[4, 5], seed=1)
        found[update, weighting] = open_transcript(path)
    return found


@pytest.fixture
def outside(tmp_path: Path):
    """Make, write and open a reference transcript with the given changes."""

    def make(order: int | None = None, form: str = "arrow", **changes: object):
        reference = Reference(**changes)  # type: ignore[arg-type]
        path = reference.write(tmp_path / "outside", order=order, form=form)
        return reference, open_transcript(path)

    return make


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the program in this process; returns (exit code, stdout, stderr)."""

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["factorleak", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="session")
def small_view(tmp_path_factory: pytest.TempPathFactory) -> View:
    """What a server sees of 12 clients and 20 items in one round."""
    path = tmp_path_factory.mktemp("small") / "t"
    record(
        DecentralisedMF(factors=2),
        generate(Synthetic(users=12, items=20, ratings_per_user=6.0)),
        path,
        rounds=[0],
    )
    return open_transcript(path).view("server")


def shared(*parts: str) -> Path:
    """A file of the shared folder, or skip."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{Path('../shared').joinpath(*parts)} is not here")
    return path
