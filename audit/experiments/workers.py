"""Work elsewhere: in parallel processes, which end with this one, or on the workers of a Dask scheduler.

Workers of a scheduler share no disk with this one: the ratings are sent to each of them once, a worker works
in a folder of its own, and the rows come back here, where they are kept. joblib's own Dask backend is not
used, for it gives results only when all are there, so that what was finished would end with this process.
Whoever reaches a scheduler runs code on its workers: it belongs into a network where that is wanted.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import queue
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import joblib

from audit.experiments.cells import Batch, Done, Procedure, run_batch
from audit.plugins import own_code
from audit.shell import interrupts
from audit.shell.notes import note
from victims.common.errors import InputError
from victims.common.files import unfinished

if TYPE_CHECKING:
    from distributed import Client, Future


FEWEST = 2  # processes with which joblib does not work in this one
T = TypeVar("T")
R = TypeVar("R")


class KilledError(Exception):
    """The process that worked on something was killed twice."""

    def __init__(self) -> None:
        super().__init__(
            "its process was killed twice, perhaps for want of memory; try fewer clients or --jobs 1"
        )


def in_this_process(jobs: int) -> bool:
    """Tell whether so many jobs mean no other process."""
    return processes_of(jobs) == 1


def processes_of(jobs: int) -> int:
    """Count the processes that so many jobs mean."""
    return int(joblib.effective_n_jobs(jobs))


def in_processes(
    work: Callable[[T], R], tasks: Sequence[T], jobs: int
) -> Iterator[tuple[int, R | KilledError]]:
    """Yield the index and the result of each task, in the order in which they end.

    Where a process is killed, what was begun is tried once more, each task alone, so that it is known which
    one it was.
    """
    left = dict(enumerate(tasks))
    begun: list[int] = []
    with supervised():
        try:
            for index, result in _pool(jobs)(_begun(work, left, begun)):
                del left[index]
                yield index, result
        except BrokenProcessPool:
            interrupts.halt()
            note("a process was killed, perhaps for want of memory; what it worked on is tried again")
        for index in [index for index in begun if index in left]:
            yield index, _alone(work, index, left.pop(index))
    if left:  # what the killed one kept from being begun
        indices = list(left)
        for place, result in in_processes(work, list(left.values()), jobs):
            yield indices[place], result


def _alone(work: Callable[[T], R], index: int, task: T) -> R | KilledError:
    try:
        ((_, result),) = _pool(FEWEST)(_begun(work, {index: task}, []))
    except BrokenProcessPool:
        interrupts.halt()
        return KilledError()
    answer: R = result
    return answer


def _pool(jobs: int) -> joblib.Parallel:
    return joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")


def _begun(work: Callable[[T], R], left: Mapping[int, T], begun: list[int]) -> Iterator[Any]:
    """The tasks for joblib, each one noted when it is begun."""
    task = joblib.delayed(_indexed)
    for index, given in list(left.items()):
        begun.append(index)
        yield task(work, index, given)


def _indexed(work: Callable[[T], R], index: int, task: T) -> tuple[int, R]:
    return index, work(task)


@contextmanager
def supervised() -> Iterator[None]:
    """Let processes that are started meanwhile end with this one."""
    interrupts.leave_signals_to_this_process()
    with joblib.parallel_config("loky", initializer=_in_worker, initargs=(os.getpid(),)):
        yield


def _in_worker(parent: int) -> None:
    """A worker has one core, so that what it runs starts no processes of its own: every core has a worker
    already, and one that is replaced would wait five minutes for its own idle ones to end.
    """
    os.environ["LOKY_MAX_CPU_COUNT"] = "1"
    interrupts.in_worker(parent)


Task = TypeVar("Task")
Given = TypeVar("Given")
Prepared = TypeVar("Prepared")
SCHEMES = ("tcp://", "tls://")
ANSWER = 15  # seconds in which a scheduler must answer
LOOK = 2.0  # seconds between two looks at the workers
TRIED = 3  # times that data are sent again while no batch ends
NO_WORKER = "the scheduler has no worker; waiting for one (`dask worker`)"


@dataclass(frozen=True)
class Cluster:
    """Workers that a scheduler knows."""

    address: str  # of the scheduler, as ``tcp://10.0.0.5:8786``

    def __post_init__(self) -> None:
        if not self.address.startswith(SCHEMES):
            raise InputError(
                f"--distributed must be the address of a scheduler, as tcp://10.0.0.5:8786, got "
                f"{self.address!r:.60}; `dask scheduler` prints it"
            )


class LostError(Exception):
    """The worker of a batch was killed as often as the scheduler allows, also where it had nothing else."""

    def __init__(self) -> None:
        super().__init__(
            "every worker that tried it was killed, perhaps for want of memory; try fewer clients or larger "
            "workers"
        )


def on_workers(
    procedure: Procedure[Task, Given, Prepared],
    given: Given,
    batches: Sequence[Batch[Task]],
    cluster: Cluster,
) -> Iterator[tuple[int, list[Done] | LostError]]:
    """Yield the index and the cells of each batch, in the order in which they end.

    A batch whose worker is killed is given to another one. One that was on a worker each time when that was
    killed, as often as the scheduler allows, is tried again when nothing else is left, so that it is known
    which one it was.
    """
    with _client_of(cluster) as client:
        suspects = []
        for index, found in _finished(client, procedure, given, dict(enumerate(batches))):
            if isinstance(found, LostError):
                suspects.append(index)
            else:
                yield index, found
        for index in suspects:
            yield from _finished(client, procedure, given, {index: batches[index]})


@contextmanager
def _client_of(cluster: Cluster) -> Iterator[Client]:
    try:
        from distributed import Client
    except ImportError:
        raise InputError(
            "--distributed needs the extra distributed: pip install 'factorleak[distributed]'"
        ) from None
    try:
        client = Client(cluster.address, timeout=ANSWER, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"--distributed {cluster.address} must be a scheduler that answers ({error!s:.80}); start one "
            f"with `dask scheduler`"
        ) from None
    try:
        refuse_threads(client.nthreads())
        yield client
    finally:
        client.close()


def refuse_threads(threads: Mapping[str, int]) -> None:
    """Refuse workers with several threads: what is compiled and seeded is a process's."""
    for name, number in threads.items():
        if number != 1:
            raise InputError(
                f"a worker must have one thread, {name} has {number}; start it with --nthreads 1"
            )


def _finished(
    client: Client,
    procedure: Procedure[Task, Given, Prepared],
    given: Given,
    left: dict[int, Batch[Task]],
) -> Iterator[tuple[int, list[Done] | LostError]]:
    """Each batch as it ends; where all workers that held the data are gone it is sent again, and again only
    while that helps, for what kills a worker takes the data with it.
    """
    from distributed import KilledWorker

    barren = 0
    while left and barren < TRIED:
        before = len(left)
        _await_worker(client)
        (shared,) = client.scatter([given], hash=False)
        futures = {
            client.submit(_at_a_worker, own_code(), procedure, shared, batch, pure=False): index
            for index, batch in left.items()
        }
        for future in _as_they_end(client, list(futures)):
            try:
                found: list[Done] | LostError = future.result()
            except KilledWorker:
                found = LostError()
            except (asyncio.CancelledError, concurrent.futures.CancelledError):
                continue  # the data went with a worker, or the scheduler is gone
            del left[futures[future]]
            yield futures[future], found
        if left and client.status != "running":
            raise InputError(
                "the scheduler is gone; finished work is kept, start it and repeat the command to go on"
            )
        if left:
            note("the workers that held the ratings are gone; they are sent again")
        barren = barren + 1 if len(left) == before else 0
    yield from ((index, LostError()) for index in left)


def _await_worker(client: Client) -> None:
    """Wait until there is a worker, and say so."""
    told = False
    while client.status == "running" and not client.nthreads():
        if not told:
            note(NO_WORKER)
        told = True
        time.sleep(LOOK)


def _as_they_end(client: Client, futures: Sequence[Future]) -> Iterator[Future]:
    """Each future when it ended, was cancelled or lost; that no worker is left is said once."""
    ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
    for future in futures:
        future.add_done_callback(ended.put)
    waiting = False
    for _ in futures:
        while True:
            try:
                yield ended.get(timeout=LOOK)
                break
            except queue.Empty:
                alone = client.status == "running" and not client.nthreads()
                if alone and not waiting:
                    note(NO_WORKER)
                waiting = alone


def _at_a_worker(
    code: str, procedure: Procedure[Task, Given, Prepared], given: Given, batch: Batch[Task]
) -> list[Done]:
    """Compute a batch in a folder of the worker's, which ends with it."""
    from distributed import get_worker

    worker = get_worker()
    if own_code() != code:
        raise InputError(
            f"worker {worker.address} must have the same factorleak as the command, {code}, it has "
            f"{own_code()}; install the same version there"
        )
    place = Path(worker.local_directory)
    with unfinished(Path(tempfile.mkdtemp(prefix="factorleak-", dir=place))) as folder:
        return run_batch(procedure, given, False, moved(batch, folder))


def moved(batch: Batch[Any], folder: Path) -> Batch[Any]:
    """Move what a batch prepares into a folder; its rows are not kept there."""
    return tuple(
        replace(
            cell, path=None, scratch=tuple(folder / path.parent.name / path.name for path in cell.scratch)
        )
        for cell in batch
    )
