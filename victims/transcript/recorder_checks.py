"""What is held against each other when a recorder closes: calls that memory does not hold any more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from victims.common.errors import InputError
from victims.transcript.deliveries import overlapping
from victims.transcript.kinds import RECORDED
from victims.transcript.ledger import Ledger, told_again, uploaded_again
from victims.transcript.recorded_files import RecordedFiles
from victims.transcript.sort_keys import equal_to_the_next, order_of, repeated


def refuse_contradictions(files: RecordedFiles, ledger: Ledger) -> None:
    """Refuse complete files that contradict each other."""
    if ledger.items.forgot:
        refuse_repeated_uploads(files.folder / "messages.arrow", ledger)
    if ledger.rated.forgot:
        refuse_repeated_truth(files.folder / "truth.arrow", ledger)
    refuse_lonely(files.folder / "deliveries.arrow", ledger)


def refuse_repeated_uploads(path: Path, ledger: Ledger) -> None:
    """Refuse an item that a client uploaded twice in a round to the same receiver."""
    found = _repetition(path, ("round", "sender", "receiver", "kind", "index"))
    if found is not None:
        round_, sender, _, code, index = found
        raise uploaded_again(ledger.name(sender), RECORDED[code], index, round_)


def refuse_repeated_truth(path: Path, ledger: Ledger) -> None:
    """Refuse truth that tells an item of a client twice."""
    found = _repetition(path, ("user", "kind", "index"))
    if found is not None:
        raise told_again(ledger.name(found[0]), found[2])


def refuse_lonely(path: Path, ledger: Ledger) -> None:
    """Refuse a client that sends to neighbours in a round where it has none."""
    sender, receiver, first, last = (
        _columns(path, ("sender", "receiver", "first_round", "last_round"))
        if path.exists()
        else [np.zeros(0, np.int32)] * 4
    )
    rows = overlapping(sender, receiver, first, last)
    if rows is not None:
        one, other = (ledger.name(int(column[rows[1]])) for column in (sender, receiver))
        raise InputError(
            f"edge must be called once for a sender, a receiver and a round, got {one!r:.40} to "
            f"{other!r:.40} again in round {first[rows[1]]}; end the first edge with last_round"
        )
    for round_, senders in ledger.passed_on().items():
        reached = sender[(first <= round_) & (round_ <= last)]
        alone = np.setdiff1d(senders, reached)
        if alone.size:
            raise InputError(
                f"upload to Recorder.NEIGHBOURS needs an edge, got none from client "
                f"{ledger.name(int(alone[0]))!r:.40} in round {round_}; call edge(sender, receiver), or give "
                "upload to=receiver"
            )


def _repetition(path: Path, names: Sequence[str]) -> list[int] | None:
    """The columns of the first row that repeats another."""
    columns = [[column] for column in _columns(path, names)]
    if not repeated(columns):
        return None
    order = order_of(columns)
    row = int(order[np.flatnonzero(equal_to_the_next(columns, order)) + 1].min())
    return [int(column[0][row]) for column in columns]


def _columns(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """Columns of whole numbers, kinds by their place in the dictionary, of rows that have a client."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
        batches = [file.get_batch(number).select(list(names)) for number in range(file.num_record_batches)]
        keep = [batch.filter(batch.column(names[1]).is_valid()) for batch in batches]
        return [np.concatenate([_whole(batch.column(name)) for batch in keep]) for name in names]


def _whole(column: pa.Array) -> np.ndarray:
    indices = column.indices if pa.types.is_dictionary(column.type) else column
    if indices.null_count:  # receivers of what goes along ``edge``
        indices = indices.cast(pa.int64()).fill_null(np.iinfo(np.int32).min)
    return indices.to_numpy(zero_copy_only=False)
