"""What attacks answer, checked, and what they answer to permuted rows, which hold nothing of any client.

Several attacks of one audit look at one view, so each gets one of its own: if one of them could write into
it, those after it would recover nothing, and the recording would look safe. None may end the program.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
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
from attacks.sums.aggregate import sums_of_others
from attacks.sums.isolated import targets_of
from audit.factories import make_attack
from audit.plugins import said
from audit.registry import Entry, entry
from audit.scoring.metrics import UserScores, score_users
from audit.scoring.nulls import Replicates, permuted_scores, scores_of_others_lists
from audit.scoring.pseudonyms import null_scores
from audit.scoring.statistics import LEAK_LEVEL, permutation_p_value
from audit.scoring.truth import Truth
from audit.shell.debugging import HINT
from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.transcript.adversaries import ACTIVE
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
    if view.adversary.startswith(ACTIVE) and found.identities == Identities.CLIENTS:
        return select_users(found, targets_of(view))  # of others such a server asks nothing
    return found


def select_users(answer: Reconstruction, users: np.ndarray) -> Reconstruction:
    """The answers about some of the clients."""
    blocks = []
    for block in answer.blocks:
        keep = np.isin(block.users, users)
        given = {name: part[keep] for name in OPTIONAL if (part := getattr(block, name)) is not None}
        kind, index = (part[keep] if part.shape[0] > 1 else part for part in (block.kind, block.index))
        chosen = replace(block, users=block.users[keep], kind=kind, index=index, value=block.value[keep])
        blocks += [replace(chosen, **given)] if keep.any() else []
    kept = np.isin(answer.users, users)
    return replace(
        answer,
        users=answer.users[kept],
        blocks=tuple(blocks),
        abstained={user: reason for user, reason in answer.abstained.items() if user in set(users.tolist())},
        diagnostics={name: values[kept] for name, values in answer.diagnostics.items()},
        factors=None if answer.factors is None else answer.factors.of(users),
    )


@dataclass(frozen=True)
class SeededAttack:
    """An attack with its options and seed: a function of views, run on real rows and on permuted ones."""

    name: str
    options: dict[str, Any]
    seed: int

    @property
    def declared(self) -> Entry:
        """What the registry says of it."""
        return entry("attacks", self.name)

    def run(self, view: View, progress: Progress = silent) -> Reconstruction:
        """Answer about a view."""
        return answered(self.name, self.options, view, self.seed, progress)


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


REPLICATE_SECONDS = 600.0  # after which no further permutation replicate is begun
NULL_USERS = 200  # clients on which an attack is repeated with shuffled gradients


def shuffled_scores(
    attack: SeededAttack, view: View, truth: Truth, answer: Reconstruction
) -> UserScores | None:
    """Score the same attack on shuffled gradients, if it is fast enough to repeat."""
    if answer.identities == Identities.PSEUDONYMS:
        return _shuffled_pseudonyms(attack, view, truth, answer)
    if attack.declared.per_client or view.users.size == 0:
        return None
    shuffled = few_clients(attack, view).shuffled(attack.seed)
    if shuffled is None:
        return None
    null = attack.run(shuffled)
    return score_users(null.blocks, view.manifest, truth, np.unique(null.users))


def permuted_answers(
    attack: SeededAttack, view: View, n_replicates: int, progress: Progress
) -> Iterator[Reconstruction]:
    """Attack a view again and again, each time with all rows permuted."""
    more = generator(attack.seed, Purpose.DEALINGS).integers(1 << 31, size=n_replicates - 1)
    begin = time.monotonic()
    progress(0, n_replicates)
    for number, permutation in enumerate((attack.seed, *more.tolist()), start=1):
        shuffled = view.shuffled(permutation)
        if shuffled is None or (number > 1 and time.monotonic() - begin > REPLICATE_SECONDS):
            return
        answer = attack.run(shuffled)
        progress(number, n_replicates)
        yield answer


def few_clients(attack: SeededAttack, view: View) -> View:
    """Leave so many clients of a view that the attack is repeated quickly, unless it needs them all."""
    if view.users.size <= NULL_USERS or attack.declared.whole:
        return view
    rng = generator(attack.seed, Purpose.SHUFFLED_CLIENTS)
    return view.select(rng.choice(view.users, NULL_USERS, replace=False))


def _shuffled_pseudonyms(
    attack: SeededAttack, view: View, truth: Truth, answer: Reconstruction
) -> UserScores | None:
    """Score sums of others, permuted among items: those that the broadcasts tell are shuffled, too."""
    shuffled = sums_of_others(view)[0].shuffled(attack.seed)
    if shuffled is None:
        return None
    null = attack.run(shuffled)
    return null_scores(null, view.manifest, truth, answer.users.size - len(answer.abstained))


def permutation_replicates(
    attack: SeededAttack,
    view: View,
    answer: Reconstruction,
    manifest: Manifest,
    truth: Truth,
    n_users: Mapping[str, int],
    n_replicates: int,
    progress: Progress,
) -> Replicates:
    """Score answers to permuted rows, until no metric of ``n_users`` can be significant any more."""
    users = np.unique(answer.users)
    observed = score_users(answer.blocks, manifest, truth, users, answer.scope)
    abstained = np.isin(users, list(answer.abstained))
    others = scores_of_others_lists(answer, manifest, truth, users)
    replicates: list[UserScores] = []
    for number, permuted in enumerate(permuted_answers(attack, view, n_replicates, progress)):
        rng = generator(0, Purpose.DEALINGS, number)
        scores = permuted_scores(answer, permuted, manifest, truth, users, rng)
        replicates.append(scores | {name: np.fmax(scores[name], values) for name, values in others.items()})
        if not any(
            _may_be_significant(
                np.where(abstained, np.nan, observed[metric]),
                [scores[metric] for scores in replicates],
                n,
                n_replicates,
            )
            for metric, n in n_users.items()
        ):
            return Replicates(tuple(replicates), n_replicates)
    late = 0 < len(replicates) < n_replicates
    return Replicates(tuple(replicates), n_replicates, REPLICATE_SECONDS if late else 0.0)


def _may_be_significant(
    observed: Float[np.ndarray, " users"],
    replicates: list[Float[np.ndarray, " users"]],
    n_users: int,
    n_replicates: int,
) -> bool:
    """Whether one metric is significant where all replicates that are left are worse."""
    answered_users = np.flatnonzero(~np.isnan(observed))
    # clients without an answer count as not read, and those for whom nothing is defined not at all
    real, permuted = np.full(n_users, np.nan), np.full((len(replicates), n_users), np.nan)
    real[: answered_users.size] = observed[answered_users]
    permuted[:, : answered_users.size] = np.stack(replicates)[:, answered_users]
    return permutation_p_value(real, permuted, n_beaten=n_replicates - len(replicates)) < LEAK_LEVEL
