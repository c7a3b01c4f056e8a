"""What is measured on some ratings: the paths that a user waits for, each beside its floor."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from audit.factories import make_attack, make_defenses, make_victim
from tests.benchmarks.timing import NUMBER, Line, beside, copying, summing, written
from victims.data.ratings import Ratings
from victims.protocols.base import Victim
from victims.protocols.decentralised_mf import DecentralisedMF
from victims.protocols.fedmvmf import FedMVMF
from victims.protocols.network import joined_rows
from victims.recording import record
from victims.training import start
from victims.transcript.reader import open_transcript
from victims.transcript.recorder import Recorder
from victims.transcript.view import View

SCENARIOS = [(one, two) for one in ("semi-als", "sgd") for two in ("observed-only", "include-unrated")]
NOISE = "laplace:scale=1"
FEW = 16  # clients of ``likelihood``, which takes long for each
COURSE = 6  # rounds that ``trajectory`` follows
CALLS, PER_CALL, FACTORS = 5000, 100, 10  # of the Recorder


def all_lines(ratings: Ratings, path: Path, quick: bool) -> Iterator[Line]:
    """Every line; recordings are made at ``path`` and removed.

    The quick ones leave out what takes long to compile, the others a graph that grows with the square of the
    clients.
    """
    for update, weighting in SCENARIOS:
        yield from of_fedmvmf(ratings, path, update, weighting)
    yield likelihood(ratings, path)
    yield recorder(path)
    yield from epochs_of_mf(ratings, "batch")
    if quick:
        yield from (round_on_a_graph(name, ratings) for name in ("pdmfrec", "dpmf-yang"))
    else:
        yield from epochs_of_mf(ratings, "per-rating")
        yield trajectory(ratings, path)


def of_fedmvmf(ratings: Ratings, path: Path, update: str, weighting: str) -> Iterator[Line]:
    """A round, its recording, opening that, and ``spectral`` on it."""
    scenario, victim = f"{update}/{weighting}", FedMVMF(update=update, weighting=weighting)
    yield round_of_fedmvmf(f"round, {scenario}", victim, ratings)

    def recorded() -> None:
        removed(path)
        record(victim, ratings, path, rounds=[0] if update == "semi-als" else [0, 1])

    recorded()
    size = (path / "messages.arrow").stat().st_size
    yield beside(f"recording, {scenario}", recorded, lambda: written(path.with_name("plain"), size), 1)
    yield opening(f"opening, {scenario}", path)
    yield attacked(f"spectral, {scenario}", "spectral", open_transcript(path).view("server"))
    if weighting == "observed-only" and update == "sgd":
        shuffle(path)
        yield opening("opening, rows in any order", path)
    removed(path)


def round_of_fedmvmf(name: str, victim: FedMVMF, ratings: Ratings) -> Line:
    """The second round; the floor reads ratings and item factors, and writes factors of items and clients."""
    state = victim.round(victim.init(ratings, 0), ratings)
    touched = ratings.items.nbytes + ratings.values.nbytes
    touched += NUMBER * victim.factors * (2 * ratings.n_items + ratings.n_users)
    return beside(name, lambda: victim.round(state, ratings), copying(touched))


def opening(name: str, path: Path) -> Line:
    """Reading and checking every row."""
    gradients = open_transcript(path).messages.gradient
    assert gradients is not None
    return beside(name, lambda: open_transcript(path), summing(gradients))


def attacked(name: str, attack: str, view: View, times: int = 5) -> Line:
    """All clients of a view, which is new each time, so that nothing is remembered."""
    assert view.messages.gradient is not None

    def fresh() -> None:
        make_attack(attack).attack(replace(view, messages=replace(view.messages)), 0)

    return beside(name, fresh, summing(view.messages.gradient), times)


def likelihood(ratings: Ratings, path: Path) -> Line:
    """A few clients under Laplace noise, after compilation."""
    users = np.linspace(0, ratings.n_users - 1, FEW).astype(int)
    victim = FedMVMF(update="semi-als", weighting="observed-only")
    record(victim, ratings, path, rounds=[0, 1], users=users, defenses=make_defenses(NOISE))
    line = attacked(f"likelihood, {FEW} clients", "likelihood", open_transcript(path).view("server"), 1)
    removed(path)
    return line


def trajectory(ratings: Ratings, path: Path) -> Line:
    """HDPMF whose noise is drawn once, all clients, as the recommender sees it."""
    victim = DecentralisedMF(learning_rate=2e-4)
    record(victim, ratings, path, rounds=range(COURSE), defenses=make_defenses("hdpmf:noise=once"))
    line = attacked("trajectory, noise once", "trajectory", open_transcript(path).view("server"), 1)
    removed(path)
    return line


def epochs_of_mf(ratings: Ratings, order: str) -> Iterator[Line]:
    """One epoch of Hu & Fang 2023; the floor reads and writes one factor per rating and side."""
    victim = DecentralisedMF(order=order, learning_rate=2e-4)
    size = 4 * NUMBER * victim.factors * ratings.n_ratings
    for noise, said in (("none", ""), ("hdpmf:noise=fresh", " HDPMF")):
        run = start(victim, ratings, make_defenses(noise), 0).trained(0)
        epoch = lambda run=run: np.asarray(run.trained(1).state.client_factors)  # noqa: E731
        yield beside(f"round, mf/{order}{said}", epoch, copying(size))


def round_on_a_graph(name: str, ratings: Ratings) -> Line:
    """The second round; the floor reads and writes a factor for each user and row, and reads the graph."""
    victim: Victim = make_victim(name)
    state = victim.round(victim.init(ratings, 0), ratings)
    rows = joined_rows(list(victim.uploads(state, ratings, np.arange(ratings.n_users))))
    edges = victim.network(state, ratings).edges
    assert edges is not None
    touched = rows.gradient.shape[1] * (3 * rows.sender.size + 2 * ratings.n_users) + edges.sender.size
    return beside(f"round, {name}", lambda: victim.round(state, ratings), copying(NUMBER * touched), 2)


def recorder(path: Path) -> Line:
    """Calls of the ``Recorder`` with few rows each, and its floor, a plain file as large."""
    rows, items = np.random.default_rng(0).standard_normal((PER_CALL, FACTORS)), np.arange(PER_CALL)

    def recorded() -> None:
        removed(path)
        with Recorder(path, rating_levels=[1.0, 2.0, 3.0, 4.0, 5.0]) as into:
            into.broadcast(0, np.ones((PER_CALL, FACTORS)))
            for client in range(CALLS):
                into.upload(0, client, rows, items)

    recorded()
    size = (path / "messages.arrow").stat().st_size
    floor = lambda: written(path.with_name("plain"), size)  # noqa: E731
    line = beside(f"recording, {PER_CALL} rows a call", recorded, floor, 2)
    removed(path)
    return line


def shuffle(path: Path) -> None:
    """Bring the rows' names into any order, by a program that is not ours; numbers stay where they are."""
    file = path / "messages.arrow"
    with pa.memory_map(str(file)) as source:
        table = pa.ipc.open_file(source).read_all()
        order = np.random.default_rng(0).permutation(table.num_rows)
        for name in ("round", "sender", "kind", "index"):
            column = table[name].take(pa.array(order))
            table = table.set_column(table.column_names.index(name), table.schema.field(name), column)
        with pa.ipc.new_file(path / "shuffled", table.schema) as sink:
            sink.write_table(table, max_chunksize=1 << 16)
    (path / "shuffled").replace(file)


def removed(path: Path) -> None:
    """Remove a recording and what lies beside it."""
    shutil.rmtree(path, ignore_errors=True)
    for beside_it in path.parent.glob(f"{path.name}.*"):
        beside_it.unlink()
