"""The request behind ``factorleak audit``: run a victim in its scenarios, attack it, score."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from audit.epsilon.accounts import Stated, accounts_of
from audit.experiments import campaign
from audit.experiments.cluster import Cluster
from audit.experiments.grid import Found, Report, silent
from audit.experiments.ladder import is_exhaustive
from audit.experiments.plan_rules import SECONDS
from audit.experiments.results import Row
from audit.factories import make_defenses
from audit.registry import entry
from audit.requests.hints import uploads_name_lists
from victims.common.errors import InputError
from victims.common.files import refuse_unwritable
from victims.common.validation import require
from victims.data.ratings import Ratings
from victims.recording import manifest_of

NO_SERVER = (
    "Clients send to each other here, and nothing to a server: --adversary neighbour:0 is what client 0 "
    "sees, helper and eavesdropper are others."
)


@dataclass(frozen=True)
class AuditRequest:
    """What to audit; what is empty is chosen by the victim and its defenses."""

    out: Path  # directory for results; finished cells in it are reused
    data: str = "synthetic"  # what the column ``data`` says
    victim: str = "fedmvmf"
    updates: tuple[str, ...] = ()  # scenarios are their product; empty: all that the victim has
    weightings: tuple[str, ...] = ()  # scenarios are their product; empty: all that the victim has
    attacks: tuple[str, ...] = ()  # empty: those that adapt to the victim and its defenses, and a guess
    rounds: tuple[int, ...] = (4, 5)  # rounds that the adversary watches, counted from 0
    adversary: str = "server"
    sample: int = 20  # clients for attacks that solve client by client
    users: int | None = None  # clients to record; None records all
    defenses: tuple[str, ...] = ()  # applied in this order
    seed: int = 0
    victim_options: dict[str, Any] = field(default_factory=dict)
    attack_options: dict[str, dict[str, Any]] = field(default_factory=dict)  # attack -> its options
    keep_transcripts: bool = False  # leave the recordings in ``out/transcripts``
    # attack also where every question of an attack is answered; None: where attacks, or their options, are
    # named
    exhaustive: bool | None = None
    within: int | float | None = None  # seconds, after which what was not reached is NOT TESTED

    def settled(self) -> AuditRequest:
        """The same request with nothing left empty."""
        plan = campaign.settled(self.plan)
        return replace(
            self,
            updates=plan.updates,
            weightings=plan.weightings,
            victim_options=plan.victim_options,
            attacks=plan.attacks,
            exhaustive=plan.exhaustive,
        )

    @property
    def plan(self) -> campaign.Campaign:
        """What is run, without where its results go."""
        return campaign.Campaign(
            victim=self.victim,
            data=self.data,
            updates=self.updates,
            weightings=self.weightings,
            attacks=self.attacks,
            rounds=self.rounds,
            adversary=self.adversary,
            seed=self.seed,
            sample=self.sample,
            users=self.users,
            defenses=self.defenses,
            victim_options=self.victim_options,
            attack_options=self.attack_options,
            exhaustive=is_exhaustive(self.exhaustive, self.attacks, self.attack_options),
        )

    @property
    def scenarios(self) -> list[str]:
        """Updates and weightings as the condition ``scenario`` names them."""
        return [f"{update}/{weighting}" for update in self.updates for weighting in self.weightings]


@dataclass(frozen=True)
class AuditResponse:
    """What an audit found."""

    request: AuditRequest  # settled
    ratings: Ratings
    rows: list[Row]  # with the columns of ``results.json``
    accounts: list[Stated]  # what the defenses prove of themselves
    lists_open: bool  # whether uploads name the rated items where unrated ones have no weight
    hint: str  # whose view to ask for where there is no server; empty where that is so already
    seconds: float


def audit(
    request: AuditRequest,
    load: Callable[[], Ratings],
    report: Report = silent,
    *,
    jobs: int | Cluster = 1,
    found: Found = silent,
) -> AuditResponse:
    """Run every cell that is not there yet; the result files are in ``request.out``."""
    if request.within is not None:
        require("an audit", "within", request.within, SECONDS)
    request = request.settled()
    if request.within is not None and isinstance(jobs, Cluster):
        raise InputError(
            "--within bounds work in one process, not that of --distributed; leave one of them out"
        )
    if request.keep_transcripts and isinstance(jobs, Cluster):
        raise InputError(
            "--keep-transcripts needs recordings that are made here, and --distributed makes them on "
            "workers; leave one of them out"
        )
    refuse_unwritable(request.out)
    start = time.perf_counter()
    ratings = load()
    plan = request.plan
    deadline = None if request.within is None else time.monotonic() + request.within
    rows = campaign.run(
        plan, ratings, request.out,
        keep_transcripts=request.keep_transcripts, jobs=jobs, report=report, found=found, deadline=deadline,
    )  # fmt: skip
    victims = [plan.victim_of(*scenario) for scenario in product(request.updates, request.weightings)]
    chosen = [defense for text in request.defenses for defense in make_defenses(text)]
    lists_open = uploads_name_lists(manifest_of(victims[0], ratings, list(request.rounds)), chosen)
    n_rounds = max(request.rounds) + 1
    accounts = accounts_of(
        request.victim, victims, chosen, ratings,
        n_rounds=n_rounds, seed=request.seed, adversary=request.adversary,
    )  # fmt: skip
    serverless = entry("victims", request.victim).serverless
    hint = NO_SERVER if serverless and request.adversary == "server" else ""
    return AuditResponse(request, ratings, rows, accounts, lists_open, hint, time.perf_counter() - start)
