"""What attacks answer, checked, and what they answer to permuted rows, which hold nothing of any client.

Several attacks of one audit look at one view, so each gets one of its own: if one of them could write into
it, those after it would recover nothing, and the recording would look safe. None may end the program.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from attacks.base import (
    OPTIONAL,
    Estimates,
    Identities,
    Progress,
    Reconstruction,
    all_abstain,
    silent,
)
from attacks.sums.parallel_rows import sums_of_others
from audit.factories import make_attack
from audit.plugins import said
from audit.registry import entry
from audit.scoring.metrics import UserScores, score_users
from audit.scoring.nulls import Replicates, permuted_scores, scores_of_others_lists
from audit.scoring.pseudonyms import null_scores
from audit.scoring.statistics import LEAK_LEVEL, permutation_p_value
from audit.scoring.truth import Truth
from audit.shell.debugging import HINT
from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.transcript.manifest import Manifest
from victims.transcript.view import ATTRIBUTE, ITEM, View, layout_of


def lent(view: View) -> View:
    """Make a view whose arrays cannot be written, with a manifest and mappings of its own."""
    mine = cast(View, _lent(view))
    for part in (mine, mine.implicit):
        if part is not None:
            _protect(layout_of(part.messages))
    return mine


def _lent(value: Any) -> Any:
    """The same content, where a write fails or stays without consequence."""
    out = value
    if isinstance(value, np.ndarray):
        out = value.view()
        out.flags.writeable = False
    elif isinstance(value, Manifest):
        out = value.model_copy(deep=True)
    elif isinstance(value, dict):
        out = {key: _lent(one) for key, one in value.items()}
    elif isinstance(value, list | tuple):
        parts = [_lent(one) for one in value]
        out = type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    elif is_dataclass(value) and not isinstance(value, type):
        given = [one.name for one in fields(value) if one.init]
        out = replace(value, **{name: _lent(getattr(value, name)) for name in given})
    return out


def _protect(layout: Any) -> None:
    """Let nobody write into arrays that are kept for as long as their messages."""
    for one in fields(layout):
        array = getattr(layout, one.name)
        if isinstance(array, np.ndarray):
            array.flags.writeable = False


# what arithmetic says that has left the numbers; errors of programming stay errors
NUMERICAL = (np.linalg.LinAlgError, FloatingPointError, OverflowError)


class WrongAnswer(Exception):
    """An attack broke its interface; the message says how."""


def answered(
    name: str, options: dict[str, Any] | None, view: View, seed: int, progress: Progress = silent
) -> Reconstruction:
    """Run an attack on a view; where its arithmetic breaks down it has abstained on everybody."""
    attack, theirs = make_attack(name, options), entry("attacks", name).package
    try:
        # thousands of small matrices: a second thread of BLAS waits busily, 100 times as long as they take
        with threadpool_limits(1, user_api="blas"):
            found = attack.attack(lent(view) if theirs else view, seed, progress)
    except NUMERICAL as error:
        reason = f"the numbers of this recording are beyond the attack's arithmetic ({said(error)})"
        return all_abstain(name, view.users, reason, {"seed": seed})
    for complaint in complaints(found, view):
        raise WrongAnswer(f"attack {name!r} {complaint}")
    return found


def answered_or_refused(
    name: str, options: dict[str, Any] | None, view: View, seed: int, progress: Progress = silent
) -> Reconstruction:
    """Run one attack alone, where nothing else goes on when it fails."""
    try:
        return answered(name, options, view, seed, progress)
    except (InputError, KeyboardInterrupt):
        raise
    except BaseException as error:
        package = entry("attacks", name).package
        if not package and isinstance(error, Exception):
            raise
        reason = str(error) if isinstance(error, WrongAnswer) else f"attack {name!r} failed: {said(error)}"
        whose = f"it is part of {package}" if package else "an object that it was given ends the program"
        raise InputError(f"{reason}; {whose}; {HINT}") from error


def complaints(found: object, view: View) -> Iterator[str]:
    """Say how an answer breaks the interface, the worst first; what is below may need what is above."""
    if not isinstance(found, Reconstruction):
        yield f"must return a Reconstruction, got {type(found).__name__}"
        return
    users = found.users
    if not (isinstance(users, np.ndarray) and users.ndim == 1 and users.dtype.kind in "iu"):
        yield "must give users as a vector of whole numbers"
    if np.any(np.diff(users) <= 0):
        yield "must name every client once, ascending"
    if found.identities == Identities.CLIENTS:
        for client in np.setdiff1d(users, _known(view)):
            yield f"answered about client {client}, which it was not asked about"
        for client in np.setdiff1d(view.users, users):
            yield f"said nothing about client {client}, which it was asked about"
    for client in set(found.abstained) - set(users.tolist()):
        yield f"abstained on client {client}, which is not among its users"
    yield from _of_texts(found)
    for name, values in found.diagnostics.items():
        if np.shape(values) != users.shape:
            yield f"must give diagnostics {name!r} one number a client"
    for number, block in enumerate(found.blocks):
        for complaint in _of_block(block, users, view):
            yield f"block {number}: {complaint}"
    answered = [client for block in found.blocks for client in block.users.tolist()]
    if len(set(answered)) < len(answered):
        yield "must answer about every client in one block"


def _known(view: View) -> np.ndarray:
    """Clients whose rows the adversary receives, with a name or without, or of whom it is told something."""
    links = [] if view.links is None else [view.links.sender[np.isin(view.links.receiver, view.members)]]
    told = [one.sender for one in view.told.values()]
    passing = [] if view.traffic is None else [view.traffic.sender]
    return np.unique(np.concatenate([view.users, *links, *told, *passing]))


def _of_texts(found: Reconstruction) -> Iterator[str]:
    """Reasons that are no text; words and options that no file can hold."""
    for client, reason in found.abstained.items():
        if not isinstance(reason, str):
            yield f"must say in words why it abstained on client {client}, got {type(reason).__name__}"
    try:
        texts = found.attack, found.obstacle, list(found.abstained.values()), dict(found.options)
        json.dumps(texts, default=str, ensure_ascii=False).encode()
    except Exception as error:
        yield f"must give options and words that can be written as JSON in UTF-8 ({said(error)})"


def _of_block(block: object, users: np.ndarray, view: View) -> Iterator[str]:
    if not isinstance(block, Estimates):
        yield f"must be Estimates, got {type(block).__name__}"
        return
    shape = np.shape(block.value)
    if len(shape) != 2 or np.shape(block.users) != shape[:1]:
        yield f"must have a row of values for each of its clients, got shape {shape}"
    for name, values in (("kind", block.kind), ("index", block.index)):
        if np.shape(values) not in ((1, shape[1]), shape):
            yield f"{name} must have the shape of the values or one row, got {np.shape(values)}"
    yield from _of_types(block)
    for client in set(block.users.tolist()) - set(users.tolist()):
        yield f"answers about client {client}, which is not among its users"
    if np.isinf(block.value).any():
        yield "values must be finite, or NaN where there is no answer"
    for name in OPTIONAL:
        given = getattr(block, name)
        if given is not None and np.isinf(given).any():
            yield f"{name} must be finite, or NaN where there is no answer"
    given = ~np.isnan(block.value)
    yield from _of_rows(block, given, view)
    if block.probability is None:
        return
    if np.shape(block.probability) != shape:
        yield "probability must have the shape of the values"
    claimed = block.probability[given]
    if np.any((claimed < 0) | (claimed > 1)):
        yield "probability must be in 0..1"


def _of_types(block: Estimates) -> Iterator[str]:
    """Columns that are no numbers."""
    columns = (("value", "real", "iuf"), ("kind", "whole", "iu"), ("index", "whole", "iu"))
    for name, words, types in columns:
        if np.asarray(getattr(block, name)).dtype.kind not in types:
            yield f"{name} must be {words} numbers"


def _of_rows(block: Estimates, given: np.ndarray, view: View) -> Iterator[str]:
    """Items and attributes that do not exist, or occur twice for one client."""
    sizes = view.manifest.n_items, view.manifest.n_attributes
    kind, index = (np.broadcast_to(one, given.shape)[given] for one in (block.kind, block.index))
    if not np.isin(kind, (ITEM, ATTRIBUTE)).all():
        yield "kind must be item or attribute"
    if np.any((index < 0) | (index >= np.array(sizes)[kind.astype(np.intp)])):
        yield f"index must be one of {sizes[0]} items or {sizes[1]} attributes"
    cell = np.nonzero(given)[0] * sum(sizes) + np.where(kind == ITEM, 0, sizes[0]) + index
    if _distinct(cell, given.shape[0] * sum(sizes)) < cell.size:
        yield "must answer about each item and attribute of a client once"


def _distinct(cell: np.ndarray, below: int) -> int:
    """How many different numbers; with a flag for each possible one, unless most would be unused."""
    if below > 64 * cell.size + (1 << 20):
        return np.unique(cell).size
    told = np.zeros(below, bool)
    told[cell] = True
    return int(np.count_nonzero(told))


DEALING_SECONDS = 600.0  # after which no further dealing is begun
NULL_USERS = 200  # clients on which an attack is repeated with shuffled gradients


def shuffled_scores(
    attack: str, options: dict[str, Any], seed: int, view: View, truth: Truth, answer: Reconstruction
) -> UserScores | None:
    """Score the same attack on shuffled gradients, if it is fast enough to repeat."""
    if answer.identities == Identities.PSEUDONYMS:
        return _of_pseudonyms(attack, options, seed, view, truth, answer)
    if entry("attacks", attack).per_client or view.users.size == 0:
        return None
    shuffled = few_clients(view, attack, seed).shuffled(seed)
    if shuffled is None:
        return None
    null = answered(attack, options, shuffled, seed)
    return score_users(null.blocks, view.manifest, truth, np.unique(null.users))


def dealt_answers(
    attack: str, options: dict[str, Any], seed: int, view: View, n_dealings: int, progress: Progress
) -> Iterator[Reconstruction]:
    """Attack a view again and again, each time with all rows dealt out anew."""
    more = generator(seed, Purpose.DEALINGS).integers(1 << 31, size=n_dealings - 1)
    begin = time.monotonic()
    progress(0, n_dealings)
    for number, dealing in enumerate((seed, *more.tolist()), start=1):
        shuffled = view.shuffled(dealing)
        if shuffled is None or (number > 1 and time.monotonic() - begin > DEALING_SECONDS):
            return
        found = answered(attack, options, shuffled, seed)
        progress(number, n_dealings)
        yield found


def few_clients(view: View, attack: str, seed: int) -> View:
    """Leave so many clients of a view that the attack is repeated quickly, unless it needs them all."""
    if view.users.size <= NULL_USERS or entry("attacks", attack).whole:
        return view
    rng = generator(seed, Purpose.SHUFFLED_CLIENTS)
    return view.select(rng.choice(view.users, NULL_USERS, replace=False))


def _of_pseudonyms(
    attack: str, options: dict[str, Any], seed: int, view: View, truth: Truth, answer: Reconstruction
) -> UserScores | None:
    """Sums of others dealt out among items: those that the broadcasts tell are shuffled, too."""
    shuffled = sums_of_others(view)[0].shuffled(seed)
    if shuffled is None:
        return None
    null = answered(attack, options, shuffled, seed)
    return null_scores(null, view.manifest, truth, answer.users.size - len(answer.abstained))


Values = Mapping[str, Float[np.ndarray, " users"]]


def dealt_values(
    attack: str,
    options: dict[str, Any],
    seed: int,
    view: View,
    answer: Reconstruction,
    manifest: Manifest,
    truth: Truth,
    n_users: Mapping[str, int],
    n_dealings: int,
    progress: Progress,
) -> Replicates:
    """Compute what an attack reads of dealt rows, until no metric can be significant any more."""
    users = np.unique(answer.users)
    real = score_users(answer.blocks, manifest, truth, users, answer.scope)
    silent = np.isin(users, list(answer.abstained))
    anyhow = partial(permuted_scores, answer, manifest=manifest, truth=truth, users=users)
    others = scores_of_others_lists(answer, manifest, truth, users)
    made: list[Values] = []
    for number, one in enumerate(dealt_answers(attack, options, seed, view, n_dealings, progress)):
        read = anyhow(one, rng=generator(0, Purpose.DEALINGS, number))
        made.append(read | {metric: np.fmax(read[metric], told) for metric, told in others.items()})
        if not any(
            _may_tell(np.where(silent, np.nan, real[metric]), [one[metric] for one in made], n, n_dealings)
            for metric, n in n_users.items()
        ):
            return Replicates(tuple(made), n_dealings)
    late = 0 < len(made) < n_dealings
    return Replicates(tuple(made), n_dealings, DEALING_SECONDS if late else 0.0)


def _may_tell(
    real: Float[np.ndarray, " users"], made: list[Float[np.ndarray, " users"]], n_users: int, n_dealings: int
) -> bool:
    """Whether one metric is significant where all dealings that are left are worse."""
    told = np.flatnonzero(~np.isnan(real))
    # clients without an answer count as not read, and those for whom nothing is defined not at all
    right, dealt = np.full(n_users, np.nan), np.full((len(made), n_users), np.nan)
    right[: told.size], dealt[:, : told.size] = real[told], np.stack(made)[:, told]
    return permutation_p_value(right, dealt, n_beaten=n_dealings - len(made)) < LEAK_LEVEL
