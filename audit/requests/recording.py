"""The request behind ``factorleak record``: run one victim and keep its transcript."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from audit.experiments.plan_rules import CLIENTS, SEED, WATCHED
from audit.plugins import said
from audit.requests.rating_data import sample_of
from victims.common.errors import InputError
from victims.common.files import refuse_unwritable
from victims.common.seeds import Purpose
from victims.common.validation import or_none, require_fields
from victims.data.ratings import Ratings
from victims.protocols.base import Defense, Victim
from victims.recording import record as run_and_record


@dataclass(frozen=True)
class RecordRequest:
    """What to record."""

    out: Path  # transcript directory to create
    victim: Victim
    rounds: tuple[int, ...] = (4, 5)  # rounds to keep, counted from 0
    users: int | None = None  # clients to keep, a random sample; None keeps all
    defenses: tuple[Defense, ...] = ()  # applied in this order
    seed: int = 0


def record(
    request: RecordRequest,
    load: Callable[[], Ratings],
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Ratings:
    """Write the transcript, the truth and, under encryption, the key beside it."""
    require_fields(request, "a recording", rounds=WATCHED, users=or_none(CLIENTS), seed=SEED)
    refuse_unwritable(request.out)
    ratings = load()
    users = sample_of(np.arange(ratings.n_users), request.users, Purpose.RECORDED_CLIENTS, request.seed)
    try:
        run_and_record(
            request.victim,
            ratings,
            request.out,
            rounds=request.rounds,
            users=users,
            defenses=request.defenses,
            seed=request.seed,
            progress=report,
        )
    except SystemExit as error:
        raise InputError(f"a victim or defense must not end the program, got {said(error)}") from error
    return ratings
