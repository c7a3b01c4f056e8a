"""Tasks in parallel processes, which end with this one and may be killed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

import joblib

from audit.shell import interrupts
from audit.shell.notes import note

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
