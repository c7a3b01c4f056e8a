"""Cells of a grid: what they are called, how they are kept, and their rows.

A finished cell is a JSON file whose name holds a hash of everything that determines it, so that a grid that
was stopped goes on where it was, and a changed option runs anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
import joblib
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from attacks.interface import RATED_SET, Reconstruction
from audit.abstentions import in_words
from audit.debugging import trace
from audit.metrics import UserScores
from audit.results import Row, make_row, write_results
from audit.score import Ceiling, as_record, score
from audit.statistics import NOT_TESTED
from audit.truth import Truth
from victims.errors import InputError
from victims.manifest import Manifest
from victims.ratings import Ratings


def digest(identity: dict[str, Any]) -> str:
    """Sixteen hexadecimal digits of a hash."""
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def content_of(ratings: Ratings) -> str:
    """A hash of the ratings, attributes and features themselves."""
    content = hashlib.sha256()
    for array in (ratings.indptr, ratings.items, ratings.values, ratings.attributes, ratings.item_features):
        content.update(np.ascontiguousarray(array).tobytes())
    return content.hexdigest()


def write_cell(path: Path, rows: list[Row]) -> None:
    """Keep a finished cell, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(rows), encoding="utf-8")
    partial.replace(path)


def read_cell(path: Path) -> list[Row]:
    """The rows of a finished cell.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}); remove it to run that cell again") from None


@runtime_checkable
class Cell(Protocol):
    """A piece of work that knows where its rows are kept."""

    @property
    def path(self) -> Path:
        """The file of its rows."""
        ...


FOLDER, LEAST = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
SLOW = 0.1  # seconds of compiling, from which a program is kept
C = TypeVar("C", bound=Cell)
T = TypeVar("T")


@contextmanager
def programs_kept(folder: Path) -> Iterator[None]:
    """What is compiled meanwhile is kept in ``folder``, and found there: attacks drop it from memory.

    A folder that the user chose (``JAX_COMPILATION_CACHE_DIR``) goes before.
    """
    if getattr(jax.config, FOLDER) is not None:
        yield
        return
    old = getattr(jax.config, LEAST)
    _configure(str(folder), SLOW)
    try:
        yield
    finally:
        _configure(None, old)


def _configure(folder: str | None, slow: float) -> None:
    jax.config.update(FOLDER, folder)
    jax.config.update(LEAST, slow)
    compilation_cache.reset_cache()  # the open folder is remembered otherwise


def _with_programs(work: Callable[[C, Ratings], T], folder: str, cell: C, ratings: Ratings) -> T:
    """``work``, with a folder for this process alone: JAX does not write programs atomically."""
    with programs_kept(Path(folder, str(os.getpid()))):
        return work(cell, ratings)


def run_cells(
    cells: Sequence[C],
    work: Callable[[C, Ratings], tuple[Path, list[Row]]],
    ratings: Ratings,
    directory: Path,
    jobs: int,
    report: Callable[[int, int], None],
) -> list[Row]:
    """Run every cell that is not there yet, in parallel processes, and write the result files.

    ``work`` keeps the rows of a cell itself (``write_cell``) unless one failed: repeating tries again.
    """
    open_ = [cell for cell in cells if not cell.path.exists()]
    done = len(cells) - len(open_)
    report(done, len(cells))
    failed: dict[Path, list[Row]] = {}
    pool = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")
    with TemporaryDirectory(prefix="factorleak-", ignore_cleanup_errors=True) as programs:
        task = joblib.delayed(partial(_with_programs, work, programs))
        for path, rows in pool(task(cell, ratings) for cell in open_):
            if any(row["status"] == "failed" for row in rows):
                failed[path] = rows
            done += 1
            report(done, len(cells))
    rows = [row for cell in cells for row in failed.get(cell.path) or read_cell(cell.path)]
    write_results(rows, directory)
    return rows


def failed_row(shared: Row, error: Exception) -> Row:
    """The row of a cell that failed, with its reason."""
    trace(error)
    name = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
    reason = f"{name}{error}"[:300]
    row = {**shared, "metric": "rating_accuracy", "status": "failed", "reason": reason}
    return make_row(**row, verdict=NOT_TESTED)


def metric_rows(
    shared: Row,
    reconstruction: Reconstruction,
    manifest: Manifest,
    truth: Truth,
    *,
    shuffled: UserScores | None = None,
    ceilings: Mapping[str, Ceiling] | None = None,
) -> list[Row]:
    """One row per metric, or one that says why the attack does not apply.

    An attack that looked at every client and found nothing did apply: it has scores, all of them the guess.
    """
    n_users = reconstruction.users.size
    n_silent = len(reconstruction.abstained)
    left = {"status": "not applicable", "verdict": NOT_TESTED, "n_users": n_users, "n_abstained": n_silent}
    if n_users == 0 or (n_silent == n_users and not reconstruction.options.get("found_nothing")):
        nobody = str(reconstruction.options.get("obstacle", "the adversary receives no uploads"))
        reason = in_words(reconstruction.abstained, n_users) or nobody
        return [make_row(**shared, metric="rating_accuracy", **left, reason=reason)]
    scores = score(reconstruction, manifest, truth, shuffled=shuffled, ceilings=ceilings)
    rows = [make_row(**shared, **as_record(part), status="ran") for part in scores]
    if reconstruction.options.get("reads") == RATED_SET:
        reason = "it reads which items are rated and nothing else"
        rows.append(make_row(**shared, metric="rating_accuracy", **left, reason=reason))
    return rows
