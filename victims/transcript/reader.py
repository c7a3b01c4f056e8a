"""Transcripts on disk, format versions 1 and 2: read memory-mapped and checked.

A transcript is a directory with ``manifest.json``, ``state.arrow`` (what was broadcast before the
uploads of each round) and ``messages.arrow`` (what was sent); version 2 may add ``deliveries.arrow`` (to
whom messages go). What the clients kept private lies in ``NAME.truth.arrow`` beside it, never in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from pydantic import ValidationError

from victims.common.declarations import first_complaint
from victims.common.errors import InputError
from victims.common.files import json_of, small_file
from victims.common.limits import refuse_absurd_sizes, refuse_absurd_table
from victims.transcript.columns import (
    ADDED,
    MESSAGES,
    MESSAGES_1,
    STATE,
    STATE_1,
    VERSION_1,
    ColumnFile,
    find_columns,
    open_columns,
)
from victims.transcript.kinds import ATTRIBUTE, ITEM, KINDS, of_implicit
from victims.transcript.manifest import Manifest, read_either
from victims.transcript.messages import (
    UNTOLD,
    Messages,
    Sent,
    Told,
    blocks_of,
    lookup,
    repeat_in_runs,
    runs_of,
    scattered,
)
from victims.transcript.received import Deliveries
from victims.transcript.recorded import Sealed, Transcript
from victims.transcript.sort_keys import Column, equal_to_the_next, order_of, repeated
from victims.transcript.tables import (
    MessageTable,
    State,
    read_deliveries,
    read_messages,
    read_state,
    split_by_kind,
)

MANIFEST_BYTES = 64 << 20
ONCE = "each round, sender, kind and index must occur once"
WRONG_PATHS = ((Path.is_file, "a file"), (Path.is_dir, "a directory without it"))


def open_transcript(path: Path | str) -> Transcript:
    """Open and check a transcript directory."""
    path = Path(path)
    manifest = read_manifest(path)
    first = manifest.version == 1
    state = open_columns(find_columns(path, "state"), STATE_1 if first else STATE)
    messages = open_columns(find_columns(path, "messages"), MESSAGES_1 if first else MESSAGES)
    if first:
        return _of_version_1(path, manifest, state.without(ADDED), messages.without(ADDED))
    deliveries = read_deliveries(path, manifest)
    return replace(
        _read(path, manifest, state, messages, deliveries),
        implicit=_of_implicit(path, manifest, state, messages, deliveries),
    )


def _of_version_1(path: Path, manifest: Manifest, state: ColumnFile, messages: ColumnFile) -> Transcript:
    """Read what is version 2 with fewer columns, where no row is sent to a second receiver."""
    transcript = _read(path, manifest, state, messages, None)
    if transcript.repeated_for_receivers:
        rows = transcript.messages
        raise _repetition(messages.path, (rows.round, rows.sender, rows.kind, rows.index), ONCE)
    for sums in (transcript.sums, transcript.item_server):
        _check_once(messages.path, sums.round, sums.kind % 2, sums.index)
    return transcript


def _of_implicit(
    path: Path, manifest: Manifest, state: ColumnFile, messages: ColumnFile, deliveries: Deliveries | None
) -> Transcript | None:
    """Rows about a second table of item factors, as a recording of their own; None where there are none."""
    kinds = of_implicit(manifest.kinds)
    some = split_by_kind(messages, list(kinds), kept=True)[0] if kinds else messages
    if not kinds or not sum(batch.num_rows for batch in some.batches):
        return None
    alone = manifest.model_copy(update={"kinds": kinds, "n_attributes": 0, "attribute_groups": []})
    return _read(path, alone, split_by_kind(state, list(kinds), kept=True)[0], some, deliveries)


def _read(
    path: Path, manifest: Manifest, state_file: ColumnFile, file: ColumnFile, deliveries: Deliveries | None
) -> Transcript:
    state = read_state(state_file, manifest)
    table = read_messages(file, manifest)
    known = _known_to_somebody(state)
    _refuse_absurd_sizes(path, manifest, known, table.uploads)
    several = check_rows(file, known, table.uploads, manifest, table.receiver)
    for rows in (table.sums, table.item_server):
        check_sums(file.path, rows, known)
    _refuse_lost(file.path, table, deliveries)
    return Transcript(
        path,
        manifest,
        state.broadcasts,
        table.uploads,
        table.receiver,
        table.sums,
        table.item_server,
        Sealed(table.ciphertexts, state.sealed),
        held=state.held,
        deliveries=deliveries,
        anonymous=table.anonymous,
        anonymous_receiver=table.anonymous_receiver,
        repeated_for_receivers=several,
        other={
            name: state.other.get(name, 0) + table.other.get(name, 0) for name in state.other | table.other
        },
        told={name: _together(path, name, state.told, table.told) for name in state.told | table.told},
    )


def _together(path: Path, name: str, *parts: Mapping[str, Told]) -> Told:
    """Rows of a kind that were broadcast, and those that were sent."""
    found = [vars(part[name]) for part in parts if name in part]
    widest = max(one["numbers"].shape[1] for one in found)
    numbers = [one["numbers"] for one in found if one["numbers"].shape[1] == widest]
    if len(numbers) < len(found):
        raise InputError(f"{path}: rows of kind {name!r:.80} must be as wide in state as in messages")
    return Told(**{key: np.concatenate([one[key] for one in found]) for key in found[0]})


def _known_to_somebody(state: State) -> dict[int, Indices]:
    """What is broadcast, and what single parties hold."""
    found = {round_: ([b.item_ids], [b.attribute_ids]) for round_, b in state.broadcasts.items()}
    for held in state.held.values():
        for round_, broadcast in held.items():
            found[round_][0].append(broadcast.item_ids)
            found[round_][1].append(broadcast.attribute_ids)
    return {round_: Indices(_union(items), _union(rest)) for round_, (items, rest) in found.items()}


def _union(ids: list[np.ndarray]) -> np.ndarray:
    return ids[0] if len(ids) == 1 else np.unique(np.concatenate(ids))


def _refuse_lost(path: Path, table: MessageTable, deliveries: Deliveries | None) -> None:
    """Rows without a receiver need a graph."""
    if deliveries is None:
        for chunk, start in zip(table.receiver, table.uploads.offsets, strict=False):
            if chunk.min(initial=0) == UNTOLD:
                raise InputError(
                    f"{path} row {start + int(chunk.argmin())}: receiver must not be null where there is no "
                    "deliveries.arrow beside the file"
                )


def read_manifest(path: Path) -> Manifest:
    """Read and check ``manifest.json`` of a transcript directory."""
    file = path / "manifest.json"
    if not _is(Path.is_file, file):
        got = next((what for is_one, what in WRONG_PATHS if _is(is_one, path)), "nothing of that name")
        raise InputError(
            f"{path} is not a transcript: it must be a directory with manifest.json, got {got}; give the one "
            "that factorleak record or factorleak.Recorder wrote"
        )
    try:
        content = json_of(small_file(file, MANIFEST_BYTES))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not valid JSON: {error}; record or copy it again") from None
    if not isinstance(content, dict):
        raise InputError(f"{file} must hold a JSON object, got {str(content)[:80]}")
    try:
        return read_either(content)
    except ValidationError as error:
        wrong = first_complaint(error)
        whole = isinstance(wrong.got, dict) and not wrong.where  # then the rule itself names the value
        got = "" if whole else f", got {str(wrong.got)[:80]}"
        raise InputError(f"{file}: {wrong}{got}") from None


def _is(kind: Callable[[Path], bool], path: Path) -> bool:
    """Whether a path is of a kind; no, where its name is one that no system would take."""
    try:
        return kind(path)
    except OSError:
        return False


def _refuse_absurd_sizes(
    path: Path, manifest: Manifest, known: dict[int, Indices], messages: Messages
) -> None:
    """Declared sizes must be plausible beside the rows, or scores would be about nothing."""
    items = max(indices.items.size for indices in known.values())
    attributes = max(indices.attributes.size for indices in known.values())
    file = path / "manifest.json"
    seen = {
        "n_items": (items, "items in the state"),
        "n_attributes": (attributes, "attributes in the state"),
        "n_users": (messages.n_rows, "uploaded rows"),
    }
    refuse_absurd_sizes(file, {name: getattr(manifest, name) for name in seen}, seen)
    senders = min(manifest.n_users, messages.n_rows)
    refuse_absurd_table(file, senders, manifest.n_attributes, messages.n_rows)


DENSE = 4  # a table of all indices is quicker than a search where it has few more places than rows


class Indices(NamedTuple):
    """What somebody has a factor of in one round, ascending."""

    items: Int[np.ndarray, " items"]
    attributes: Int[np.ndarray, " attributes"]


def check_rows(
    file: ColumnFile, known: Mapping[int, Indices], messages: Messages, manifest: Manifest, receiver: Column
) -> bool:
    """State for every index used; for a receiver no (round, sender, kind, index) twice, nor a sequence.

    Tells whether several receivers got some of them.
    """
    if messages.reference is None and not _all_known(known, manifest):
        for start, *block in blocks_of(messages, (messages.round, messages.kind, messages.index)):
            _check_state(file.path, known, start, *block)
    runs = None if scattered(messages) else runs_of(messages)
    sequence = messages.sequence
    client = ((min(manifest.rounds), max(manifest.rounds)), (0, manifest.n_users - 1))
    if sequence is not None and repeat_in_runs(messages, runs, [sequence], [*client, None]):
        ordered = [messages.round, messages.sender, sequence, receiver]
        if repeated(ordered):
            rule = "sequence must occur once among the rows of a round and sender"
            raise _repetition(file.path, ordered, rule)
    largest = max(manifest.n_items, manifest.n_attributes) - 1
    if not repeat_in_runs(messages, runs, [messages.kind, messages.index], [*client, None, (0, largest)]):
        return False
    columns = (messages.round, messages.sender, messages.kind, messages.index, receiver)
    if repeated(columns):
        raise _repetition(
            file.path, columns, ONCE if file.schema.metadata == VERSION_1 else f"{ONCE} for a receiver"
        )
    return True


def _all_known(known: Mapping[int, Indices], manifest: Manifest) -> bool:
    """Whether every index that rows may have has state in every round: then no row needs to be looked at."""
    sizes = (manifest.n_items, manifest.n_attributes)
    return all((indices.items.size, indices.attributes.size) == sizes for indices in known.values())


def _check_state(
    path: Path,
    known: Mapping[int, Indices],
    start: int,
    rounds: np.ndarray,
    kind: np.ndarray,
    index: np.ndarray,
) -> None:
    for round_, here in by_round(rounds):
        missing = _without_state(known[round_], kind[here], index[here])
        if missing.size:
            row = int(np.arange(rounds.size)[here][missing].min())
            raise InputError(
                f"{path} row {start + row}: {KINDS[kind[row]]} {index[row]} has no state in "
                f"round {round_}; state.arrow must hold every index used"
            )


def by_round(rounds: Int[np.ndarray, " rows"]) -> Iterator[tuple[int, slice | np.ndarray]]:
    """Go through the rounds and the rows of each, quickly whatever the number of rounds."""
    if rounds.size and (rounds == rounds[0]).all():
        yield int(rounds[0]), slice(None)
        return
    order = np.argsort(rounds, kind="stable")
    cuts = np.flatnonzero(np.diff(rounds[order])) + 1
    for rows in np.split(order, cuts) if order.size else ():
        yield int(rounds[rows[0]]), rows


def _without_state(known: Indices, kind: np.ndarray, index: np.ndarray) -> Int[np.ndarray, " missing"]:
    if not kind.any():
        return _missing(known.items, index)
    found = []
    for code, ids in ((ITEM, known.items), (ATTRIBUTE, known.attributes)):
        rows = np.flatnonzero(kind % 2 == code)
        found.append(rows[_missing(ids, index[rows])])
    return np.concatenate(found)


def _missing(ids: np.ndarray, index: np.ndarray) -> Int[np.ndarray, " missing"]:
    """Places of indices, all >= 0, that are not among the ids."""
    most = int(index.max(initial=-1))
    if ids.size and ids[0] == 0 and ids[-1] == ids.size - 1 and most < ids.size:  # ids are 0, 1, 2, …
        return np.zeros(0, np.int64)
    if most < DENSE * index.size:
        there = np.zeros(most + 1, bool)
        there[ids[: np.searchsorted(ids, most, side="right")]] = True
        return np.flatnonzero(~there[index])
    return np.flatnonzero(lookup(ids, index) < 0)


def check_sums(path: Path, sums: Sent, known: Mapping[int, Indices]) -> None:
    """State for every sum; no (round, kind, index) twice for a receiver."""
    for round_, here in by_round(sums.round):
        if _without_state(known[round_], sums.kind[here], sums.index[here]).size:
            raise InputError(
                f"{path}: a sum of round {round_} has no state; state.arrow must hold every index"
            )
    _check_once(path, sums.round, sums.kind % 2, sums.index, sums.receiver)


def _check_once(path: Path, round_: np.ndarray, *others: np.ndarray) -> None:
    columns = [[column] for column in (round_, *others)]
    order = order_of(columns)
    again = np.flatnonzero(equal_to_the_next(columns, order))
    if again.size:
        raise InputError(f"{path}: round {round_[order[again[0]]]} must hold each sum once")


def _repetition(path: Path, columns: Sequence[Column], rule: str) -> InputError:
    """The rule, and the first row that breaks it."""
    order = order_of(columns)
    at = np.flatnonzero(equal_to_the_next(columns, order))
    again = order[at + 1]  # equal rows stay in their order, so the later one is second
    first = int(again.argmin())
    return InputError(f"{path} row {again[first]}: {rule}, it repeats row {order[at[first]]}")
