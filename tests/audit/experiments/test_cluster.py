"""Workers of a Dask scheduler: nothing is lost, the same bytes, and data go to each of them once."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

from audit.experiments.cells import Cell, Procedure, run_batch
from audit.experiments.results import make_row
from audit.experiments.runner import run_grid
from audit.experiments.workers import Cluster, LostError, moved, refuse_threads
from tests.audit.experiments.clusters import cluster
from victims.common.errors import InputError

TASKS = tuple("abcdefghijkl")
CAMPAIGN = """
format = "factorleak-campaign"
version = 1
[grid]
runs = 1
trained = 1
adversaries = ["server"]
attacks = ["guess-majority", "rated-set", "spectral"]
rounds = [[0]]
[[data]]
name = "small"
path = "synthetic:users=20,items=30,ratings_per_user=8"
[[victim]]
name = "mf"
defenses = ["none", "laplace:b=5"]
set = { factors = 3 }
"""
DATA = "synthetic:users=20,items=30,ratings_per_user=8"
GRIDS = {
    "audit": "audit --victim mf --attack spectral --attack guess-majority --rounds 0,1",
    "predict pdmfrec": "predict --victim pdmfrec --method pmf --rates 0.01,0.02 --epochs 2 --runs 2",
    "claims": "claims --protocol mf --protocol hdpmf --noise once --epochs 2 --rounds 2 --no-bounds",
}
BLOCKS = f"""
format = "factorleak-campaign"
version = 1
[[data]]
name = "{DATA}"
[[audit]]
victim = "mf"
attacks = ["spectral", "guess-majority"]
[[sweep]]
victim = "mf"
attacks = ["spectral"]
scales = [0, 1]
rounds = [1]
[[predict]]
methods = ["mf", "hdpmf"]
factors = [2]
epochs = 2
runs = 2
[[quality]]
victim = "mf"
defense = "laplace:b=1"
rounds = 1
runs = 2
scenarios = ["existing"]
[[cost]]
victim = "dpmf-yang"
set = {{ factors = 2 }}
"""


@dataclass
class Counted:
    """Something to start from that notes each process that unpacks it."""

    log: Path
    name: str = "given"

    def __getstate__(self) -> tuple[Path, str]:
        return self.log, self.name

    def __setstate__(self, state: tuple[Path, str]) -> None:
        self.log, self.name = state
        with self.log.open("a") as file:
            file.write(f"{os.getpid()}\n")


def prepare(cell: Cell[str], given: Counted, say: object) -> str:
    for path in cell.scratch:
        path.mkdir(parents=True)
    return given.name


def measure(killed: Path, times: int, cell: Cell[str], prepared: str, say: object) -> list[dict]:
    """Rows of a cell; at ``e`` the process is killed so many times."""
    if cell.task == "e" and (before := len(killed.read_text() if killed.exists() else "")) < times:
        killed.write_text("x" * (before + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    assert all(path.exists() for path in cell.scratch)
    return [make_row(attack=cell.task, value=ord(cell.task) / 7, reason=prepared, status="ran")]


def failed(task: str, error: Exception) -> list[dict]:
    return [make_row(attack=task, reason=str(error), status="failed")]


def cells(folder: Path) -> list[Cell[str]]:
    """Two to a scratch."""
    return [
        Cell(task, folder / "cells" / f"{task}.json", (folder / "scratch" / str(place // 2),))
        for place, task in enumerate(TASKS)
    ]


def procedure(folder: Path, times: int) -> Procedure[str, Counted, str]:
    return Procedure(prepare, partial(measure, folder / "killed", times), failed)


REACHED = {
    "audit": (GRIDS["audit"], 2),
    "predict": ("predict --method mf --method hdpmf --factors 2 --epochs 2 --runs 2", 4),
    "predict pdmfrec": (GRIDS["predict pdmfrec"], 4),
    "predict dpmf-yang": ("predict --victim dpmf-yang --method dmf --factors 2,3 --epochs 2 --runs 3", 6),
    "claims": (GRIDS["claims"], 2),
}  # how many cells there are


@pytest.mark.parametrize("name", REACHED)
def test_a_command_hands_its_cells_to_the_workers(run, tmp_path, monkeypatch, name):
    """All of them, in place of processes of this machine; here nobody works on them."""
    words, n_cells = REACHED[name]
    asked = []

    def on_workers(procedure, given, batches, cluster):
        asked.append((cluster.address, sum(map(len, batches))))
        yield from ((index, LostError()) for index in range(len(batches)))

    monkeypatch.setattr("audit.experiments.runner.on_workers", on_workers)
    code, _, error = run(
        *words.split(), "--data", DATA, "--out", tmp_path, "--distributed", "tcp://10.0.0.5:8786"
    )
    assert code == 0, error
    assert asked == [("tcp://10.0.0.5:8786", n_cells)]
    rows = json.loads((tmp_path / "results.json").read_text())
    assert {row["status"] for row in rows} == {"failed"}


def test_errors_of_users_come_back_from_the_workers(run, tmp_path, monkeypatch):
    """They are kept beside the rows here, as without workers, and give the same intervals."""
    words = (
        "papers",
        "predict",
        "--method",
        "mf",
        "--factors",
        2,
        "--epochs",
        1,
        "--runs",
        1,
        "--data",
        DATA,
        "--out",
    )

    def on_workers(procedure, given, batches, cluster):
        for index, batch in enumerate(batches):
            work = moved(batch, tmp_path / "scratch" / str(index))
            yield index, run_batch(procedure, given, False, work)

    near = run(*words, tmp_path / "near", "--jobs", 1)
    monkeypatch.setattr("audit.experiments.runner.on_workers", on_workers)
    far = run(*words, tmp_path / "far", "--distributed", "tcp://10.0.0.5:8786")
    assert (near[0], far[0]) == (0, 0), far[2]
    cells = [{path.name: path for path in (tmp_path / at / "cells").iterdir()} for at in ("near", "far")]
    assert cells[0].keys() == cells[1].keys()
    (beside,) = (name for name in cells[0] if name.endswith(".users.npy"))
    assert cells[0][beside].read_bytes() == cells[1][beside].read_bytes()
    assert comparable(tmp_path / "far") == comparable(tmp_path / "near")


def test_what_stays_on_this_machine_and_workers_exclude_each_other(run, tmp_path):
    for words, message in (
        ("audit --keep-transcripts", "--keep-transcripts needs recordings that are made here"),
        ("claims --jobs 2", "--distributed has workers of its own; leave --jobs 2 out"),
        ("predict --jobs 2", "--distributed has workers of its own; leave --jobs 2 out"),
        ("audit --transcript x", "--distributed says what to run, and with --transcript nothing is run"),
    ):
        code, _, error = run(*words.split(), "--out", tmp_path / "R", "--distributed", "tcp://10.0.0.5:8786")
        assert code == 2
        assert message in error


def test_an_address_is_one_of_a_scheduler():
    with pytest.raises(InputError, match=r"--distributed must be .* tcp://10.0.0.5:8786, got 'here'"):
        Cluster("here")


def test_a_worker_keeps_nothing_under_the_names_of_the_results(tmp_path):
    """What it computes is what a process of this machine computes, in a folder of its own."""
    batch = tuple(cells(tmp_path / "R")[:2])
    given = Counted(tmp_path / "log")
    there = run_batch(procedure(tmp_path, 0), given, False, moved(batch, tmp_path / "worker"))
    assert not (tmp_path / "R").exists()
    here = run_batch(procedure(tmp_path, 0), given, False, batch)
    assert str([done.rows for done in here]) == str([done.rows for done in there])
    assert (tmp_path / "R" / "cells" / "a.json").exists()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Of a scheduler that lets a batch lose two workers, with two of them."""
    pytest.importorskip("distributed")
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder, DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="1") as found:
        yield found
    assert not list((folder / "scratch").glob("**/factorleak-*"))


@pytest.mark.thorough  # with the extra distributed
class TestTwoWorkers:
    def test_one_is_killed_in_the_middle(self, tmp_path, address):
        """Before the last cells are there; its batch goes to the other worker."""
        log = tmp_path / "log"
        far = run_grid(
            cells(tmp_path / "far"), procedure(tmp_path, 1), Counted(log), tmp_path / "far",
            jobs=Cluster(address),
        )  # fmt: skip
        assert (tmp_path / "killed").read_text() == "x"
        assert set(Counter(log.read_text().split()).values()) == {1}
        near = run_grid(cells(tmp_path / "near"), procedure(tmp_path, 1), Counted(log), tmp_path / "near")
        assert str(far) == str(near)
        for name in ("results.json", "results.csv", "results.parquet"):
            assert (tmp_path / "far" / name).read_bytes() == (tmp_path / "near" / name).read_bytes()
        assert len(list((tmp_path / "far" / "cells").iterdir())) == len(TASKS)

    def test_a_campaign_whose_worker_is_killed_has_the_same_rows(self, run, tmp_path, address):
        """The program itself; timings apart."""
        (tmp_path / "campaign.toml").write_text(CAMPAIGN)
        words = ("compare", tmp_path / "campaign.toml", "--out")
        code, _, error = run(*words, tmp_path / "near", "--jobs", 1)
        assert code == 0, error
        with kills_a_worker(address) as killed:
            code, _, error = run(*words, tmp_path / "far", "--distributed", address)
        assert code == 0, error
        assert killed
        assert comparable(tmp_path / "far") == comparable(tmp_path / "near")

    def test_blocks_whose_worker_is_killed_have_the_same_rows(self, run, tmp_path, address):
        """A campaign's own cells stay on this machine where they must."""
        (tmp_path / "campaign.toml").write_text(BLOCKS)
        words = ("compare", tmp_path / "campaign.toml", "--out")
        code, _, error = run(*words, tmp_path / "near", "--jobs", 1)
        assert code == 0, error
        with kills_a_worker(address) as killed:
            code, _, error = run(*words, tmp_path / "far", "--distributed", address)
        assert code == 0, error
        assert killed
        assert comparable(tmp_path / "far") == comparable(tmp_path / "near")
        assert sorted(path.name for path in (tmp_path / "far" / "cells").glob("*.json")) == sorted(
            path.name for path in (tmp_path / "near" / "cells").glob("*.json")
        )

    def test_what_kills_every_worker_is_a_failed_row(self, tmp_path, address):
        """And cells that merely stood in line behind it are not."""
        rows = run_grid(
            cells(tmp_path / "R"), procedure(tmp_path, 99), Counted(tmp_path / "log"), tmp_path / "R",
            jobs=Cluster(address),
        )  # fmt: skip
        assert [row["attack"] for row in rows if row["status"] == "failed"] == ["e", "f"]
        assert "every worker that tried it was killed" in rows[4]["reason"]
        assert len((tmp_path / "killed").read_text()) < 99  # it ends by itself


@contextmanager
def kills_a_worker(address: str) -> Iterator[list[int]]:
    """Kill the first worker that is seen at work."""
    from distributed import Client

    killed: list[int] = []
    over = Event()

    def watch(client: Client, numbers: dict[str, int]) -> None:
        while not over.wait(0.01):
            if at_work := [worker for worker, tasks in client.processing().items() if tasks]:
                os.kill(numbers[at_work[0]], signal.SIGKILL)
                killed.append(numbers[at_work[0]])
                return

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(2)  # the one killed by the test before comes again
        thread = Thread(target=watch, args=(client, client.run(os.getpid)))
        thread.start()
        try:
            yield killed
        finally:
            over.set()
            thread.join()


def comparable(results: Path) -> list[dict]:
    """Rows without what a clock or a process says."""
    rows = json.loads((results / "results.json").read_text())
    timed = ("seconds", "peak_bytes")
    return [{**row, "seconds": None} for row in rows if not row["metric"].startswith(timed)]


def test_workers_with_several_threads_are_refused():
    refuse_threads({"tcp://10.0.0.5:1": 1})
    with pytest.raises(InputError, match=r"one thread, tcp://10.0.0.5:2 has 4; start it with --nthreads 1"):
        refuse_threads({"tcp://10.0.0.5:1": 1, "tcp://10.0.0.5:2": 4})


@pytest.mark.thorough  # waits for an answer
def test_without_the_extra_or_a_scheduler(tmp_path, monkeypatch):
    """One line with what to do, whichever is missing."""
    monkeypatch.setattr("audit.experiments.workers.ANSWER", 2)
    with pytest.raises(InputError, match=r"pip install 'factorleak|must be a scheduler that answers"):
        run_grid(
            cells(tmp_path), procedure(tmp_path, 0), None, tmp_path, jobs=Cluster("tcp://127.0.0.1:9")
        )  # fmt: skip
