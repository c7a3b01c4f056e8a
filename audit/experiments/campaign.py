"""Run victims, attack their transcripts, score the answers: the grid behind ``factorleak audit``.

Each (scenario, attack) is a cell. A finished cell is kept in ``RESULTS/cells`` under a name that is a hash
of everything that determines it, so a campaign that was stopped goes on where it was, and a changed
option runs anew.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from attacks.base import Identities, Progress, Reconstruction, all_abstain
from attacks.sums.parallel_rows import sums_of_others
from audit.experiments.answers import answered
from audit.experiments.cells import (
    claimed,
    content_of,
    digest,
    failed_row,
    kept_rows,
    metric_rows,
    remove_stale,
    supervised,
    write_cell,
)
from audit.experiments.results import Row, make_row, write_results
from audit.keys import view_of
from audit.registry import attackers_of, code_used, entry, make_attack, make_defenses, make_victim
from audit.scoring.ceiling import ceilings, computable
from audit.scoring.metrics import UserScores, score_users
from audit.scoring.pseudonyms import null_scores
from audit.scoring.truth import Truth, read_truth
from victims.common.errors import InputError, OutputError
from victims.common.files import remove, write_text
from victims.common.seeds import Purpose, generator
from victims.data.ratings import Ratings
from victims.recording import record
from victims.transcript.reader import ADVERSARIES, Transcript, open_transcript
from victims.transcript.view import View
from victims.transcript.writer import key_path, truth_path

UPDATES = ("semi-als", "sgd")
WEIGHTINGS = ("observed-only", "include-unrated")
NULL_USERS = 200  # clients on which an attack is repeated with shuffled gradients

Report = Callable[[str, int, int], None]


def usual_attacks(
    victim: str, options: dict[str, Any] | None = None, defenses: Sequence[str] = ()
) -> tuple[str, ...]:
    """What is tried where nothing is chosen: the attacks that adapt to the victim and its defenses."""
    text = "+".join(defenses) or "none"
    return (*(one.name for one in attackers_of(victim, options or {}, text)), "guess-majority")


@dataclass(frozen=True)
class Campaign:
    """What to run.

    Attributes
    ----------
    victim : str
    data : str
        As given to ``--data``; part of the results.
    updates, weightings : tuple of str
        Scenarios are their product.
    attacks : tuple of str
    rounds : tuple of int
        Rounds that the adversary watches, counted from 0.
    adversary : str
    seed : int
        Of the victim's start, the samples and the attacks.
    sample : int
        Clients for attacks that solve client by client.
    users : int or None
        Clients to record; None records all.
    defenses : tuple of str
        As ``laplace:scale=2``, applied in this order; the server trains on what it receives.
    victim_options : dict
    attack_options : dict
        Attack -> its options.
    """

    victim: str = "fedmvmf"
    data: str = "synthetic"
    updates: tuple[str, ...] = UPDATES
    weightings: tuple[str, ...] = WEIGHTINGS
    attacks: tuple[str, ...] = usual_attacks("fedmvmf")
    rounds: tuple[int, ...] = (4, 5)
    adversary: str = "server"
    seed: int = 0
    sample: int = 20
    users: int | None = None
    defenses: tuple[str, ...] = ()
    victim_options: dict[str, Any] = field(default_factory=dict)
    attack_options: dict[str, dict[str, Any]] = field(default_factory=dict)


def run(
    campaign: Campaign,
    ratings: Ratings,
    directory: Path,
    *,
    keep_transcripts: bool = False,
    report: Report = lambda what, done, total: None,
) -> list[Row]:
    """Run every cell that is not there yet and write the result files.

    Parameters
    ----------
    campaign : Campaign
    ratings : Ratings
        What ``campaign.data`` names.
    directory : Path
        RESULTS; created if missing.
    keep_transcripts : bool
        Leave the recordings in ``RESULTS/transcripts``.
    report : callable
        Called with (what is going on, steps done, steps in all).

    Returns
    -------
    list of dict
        All rows, in the order of the grid, as in ``results.json``.
    """
    scenarios = [(u, w) for u in campaign.updates for w in campaign.weightings]
    _check(campaign, scenarios)
    _write_settings(campaign, directory)
    remove_stale(directory)
    rows: list[Row] = []
    total = len(scenarios) * (len(campaign.attacks) + 1)
    for number, (update, weighting) in enumerate(scenarios):
        scenario = _Scenario(campaign, ratings, directory, update, weighting)

        def step(what: str, inside: int, before: int = number * (len(campaign.attacks) + 1)) -> None:
            report(what, before + inside, total)

        with supervised(), claimed(scenario.recording):
            rows += scenario.rows(step, keep_transcripts)
        write_results(rows, directory)
    report("done", total, total)
    return rows


def _write_settings(campaign: Campaign, directory: Path) -> None:
    """``campaign.json``: every option of the run, and the versions that ran it."""
    packages = ("factorleak", "numpy", "scipy", "jax")
    content = {
        **asdict(campaign),
        "versions": {name: version(name) for name in packages},
        "code": code_used(campaign.victim, campaign.defenses, campaign.attacks),
    }
    write_text(directory / "campaign.json", json.dumps(content, indent=1) + "\n")


def _check(campaign: Campaign, scenarios: list[tuple[str, str]]) -> None:
    """A misspelt name must not cost the work before it."""
    for name in campaign.attacks:
        make_attack(name, campaign.attack_options.get(name))
    idle = set(campaign.attack_options) - set(campaign.attacks)
    if idle:
        raise InputError(f"options are given for {', '.join(sorted(idle))}, which does not run")
    check_adversary(campaign.adversary)
    for text in campaign.defenses:
        make_defenses(text)
    for update, weighting in scenarios:
        _victim(campaign, update, weighting)


def check_adversary(name: str) -> None:
    """Refuse an adversary that no recording has.

    Raises
    ------
    InputError
        If nobody has that name.
    """
    if name not in ADVERSARIES and not name.startswith("client:"):
        raise InputError(f"adversary must be one of {', '.join(ADVERSARIES)}, got {name!r}")


def _victim(campaign: Campaign, update: str, weighting: str) -> Any:
    options = {**campaign.victim_options, "update": update, "weighting": weighting}
    return make_victim(campaign.victim, options)


@dataclass(frozen=True)
class _Scenario:
    campaign: Campaign
    ratings: Ratings
    directory: Path
    update: str
    weighting: str

    def rows(self, step: Callable[..., None], keep: bool) -> list[Row]:
        paths = {name: self._cell_path(name) for name in self.campaign.attacks}
        found = {name: kept_rows(path) for name, path in paths.items()}
        left = [name for name, rows in found.items() if rows is None]
        if left:
            try:
                found |= self._attacked({name: paths[name] for name in left}, step)
            except OutputError:  # room for what is still to be written
                keep = False
                raise
            finally:
                if not keep:
                    for path in (self.recording, truth_path(self.recording), key_path(self.recording)):
                        remove(path)
        return [row for rows in found.values() for row in rows or []]

    def _attacked(self, attacks: dict[str, Path], step: Callable[..., None]) -> dict[str, list[Row]]:
        """Record the scenario and run attacks on it; each one's rows are kept at its path when it is done."""
        label = f"{self.update}/{self.weighting}"
        step(f"{label}: recording", 0)
        try:
            recorded = self._record()
        except OutputError:  # no room for the recording
            raise
        except Exception as error:  # training diverged, say: a row for each attack
            return {name: [failed_row(self._shared(name), error)] for name in attacks}
        truth = read_truth(truth_path(recorded.path))
        found = {}
        for name, path in attacks.items():
            number = 1 + self.campaign.attacks.index(name)

            def progress(done: int, clients: int, name: str = name, number: int = number) -> None:
                step(f"{label}: {name}, {done} of {clients} clients", number)

            step(f"{label}: {name}", number)
            found[name] = self._attack(name, recorded, truth, progress)
            if not any(row["status"] == "failed" for row in found[name]):  # repeating the command tries again
                write_cell(path, found[name])
        return found

    def _identity(self) -> dict[str, Any]:
        """Everything that determines the recording; the ratings by their content."""
        campaign = self.campaign
        return {
            "code": code_used(campaign.victim, campaign.defenses),
            "victim": campaign.victim,
            "options": campaign.victim_options,
            "update": self.update,
            "weighting": self.weighting,
            "ratings": content_of(self.ratings),
            "rounds": campaign.rounds,
            "users": campaign.users,
            "defenses": campaign.defenses,
            "seed": campaign.seed,
        }

    def _cell_path(self, attack: str) -> Path:
        campaign = self.campaign
        options = campaign.attack_options.get(attack, {})
        identity = {
            **self._identity(),
            "data": campaign.data,
            "attack": attack,
            "attack_code": code_used(campaign.victim, attacks=[attack]),
            "attack_options": options,
            "adversary": campaign.adversary,
            "sample": campaign.sample if entry("attacks", attack).per_client else None,
        }
        name = f"{self.update}-{self.weighting}-{attack}-{digest(identity)}.json"
        return self.directory / "cells" / name

    @property
    def recording(self) -> Path:
        """Where it is recorded."""
        name = f"{self.update}-{self.weighting}-{digest(self._identity())}"
        return self.directory / "transcripts" / name

    def _record(self) -> Transcript:
        path = self.recording
        if not (path.exists() and truth_path(path).exists()):
            for old in (path, truth_path(path), key_path(path)):
                remove(old)
            users = None
            if self.campaign.users is not None and self.campaign.users < self.ratings.n_users:
                rng = generator(self.campaign.seed, Purpose.RECORDED_CLIENTS)
                users = rng.choice(self.ratings.n_users, self.campaign.users, replace=False)
            victim = _victim(self.campaign, self.update, self.weighting)
            record(
                victim,
                self.ratings,
                path,
                rounds=self.campaign.rounds,
                users=users,
                defenses=[part for text in self.campaign.defenses for part in make_defenses(text)],
                seed=self.campaign.seed,
            )
        return open_transcript(path)

    def _attack(self, name: str, recorded: Transcript, truth: Truth, progress: Progress) -> list[Row]:
        campaign = self.campaign
        shared = self._shared(name)
        try:
            view = view_of(recorded, campaign.adversary)
            if entry("attacks", name).per_client and view.users.size > campaign.sample:
                rng = generator(campaign.seed, Purpose.ATTACKED_CLIENTS)
                view = view.select(rng.choice(view.users, campaign.sample, replace=False))
            start = time.perf_counter()
            options = campaign.attack_options.get(name)
            reconstruction = answered(name, options, view, campaign.seed, progress)
            shared["seconds"] = time.perf_counter() - start
            reconstruction = _of_others(campaign.adversary, reconstruction)
            shared["bytes"] = view.messages.n_rows * recorded.manifest.factors * 8
            null = self._null(name, view, truth, reconstruction)
            limits = None
            if campaign.defenses and computable(view):
                limits = ceilings(view, truth)
            scored = metric_rows(
                shared, reconstruction, recorded.manifest, truth, shuffled=null, ceilings=limits
            )
            return [*scored, *_diagnostic_rows(shared, reconstruction)]
        except InputError:
            raise
        except Exception as error:  # a failed cell is a row with its reason, never a missing row
            return [failed_row(shared, error)]

    def _shared(self, attack: str) -> Row:
        """The columns that all rows of a cell have in common."""
        campaign = self.campaign
        return {
            "victim": campaign.victim,
            "update": self.update,
            "weighting": self.weighting,
            "data": campaign.data,
            "defense": "+".join(campaign.defenses) or "none",
            "adversary": campaign.adversary,
            "attack": attack,
            "rounds": len(campaign.rounds),
            "seed": campaign.seed,
        }

    def _null(self, name: str, view: View, truth: Truth, found: Reconstruction) -> UserScores | None:
        """The same attack on shuffled gradients, for attacks that are fast enough to repeat."""
        if found.identities == Identities.PSEUDONYMS:
            return self._nameless_null(name, view, truth, found)
        if entry("attacks", name).per_client or view.users.size == 0:
            return None
        if view.users.size > NULL_USERS and not entry("attacks", name).whole:
            rng = generator(self.campaign.seed, Purpose.SHUFFLED_CLIENTS)
            view = view.select(rng.choice(view.users, NULL_USERS, replace=False))
        shuffled = view.shuffled(self.campaign.seed)
        if shuffled is None:
            return None
        null = answered(name, self.campaign.attack_options.get(name), shuffled, self.campaign.seed)
        return score_users(null.blocks, view.manifest, truth, np.unique(null.users))

    def _nameless_null(self, name: str, view: View, truth: Truth, found: Reconstruction) -> UserScores | None:
        """Sums of others dealt out among items: those that the broadcasts tell are shuffled, too."""
        shuffled = sums_of_others(view)[0].shuffled(self.campaign.seed)
        if shuffled is None:
            return None
        null = answered(name, self.campaign.attack_options.get(name), shuffled, self.campaign.seed)
        return null_scores(null, view.manifest, truth, found.users.size - len(found.abstained))


def _of_others(adversary: str, found: Reconstruction) -> Reconstruction:
    """What a client reads of its own uploads is no leak."""
    alone = adversary.startswith("client:") or adversary == "decrypter"
    if not alone or found.identities == Identities.PSEUDONYMS:
        return found
    reason = "the adversary is a client and receives nobody else's uploads"
    return all_abstain(found.attack, found.users, reason, found.options)


def _diagnostic_rows(shared: Row, reconstruction: Reconstruction) -> list[Row]:
    """What an attack says of itself, mean over clients: convergence, time, share of the rows that it read."""
    rows = []
    solved = reconstruction.diagnostics
    for metric, source in (
        ("solver_success_rate", "converged"),
        ("seconds_per_user", "seconds"),
        ("share_of_rows_read", "read"),
    ):
        if source in solved and solved[source].size:
            values = solved[source].astype(np.float64)
            rows.append(
                make_row(
                    **shared,
                    metric=metric,
                    value=float(values.mean()),
                    n_users=values.size,
                    n_abstained=len(reconstruction.abstained),
                    status="ran",
                )
            )
    return rows
