"""Defenses side by side: what each adversary reads, how well the recommender ranks, and what it costs.

Behind ``factorleak compare``. Each defense is three kinds of cells: leakage (one per adversary, every attack
that adapts to the victim or to the defense: ``audit.experiments.campaign``), ranking quality (one per run:
``victims.evaluation.ranking``) and cost (``audit.experiments.cost``). Cells run in parallel processes and are
kept (``audit.experiments.cells``). What encryption leaks is measured with the ideal stand-in, which shows the
same views and numbers; what it costs, with the real cryptosystem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from audit.experiments import campaign
from audit.experiments.cells import content_of, digest, reason_of_failure, run_cells
from audit.experiments.cost import cost_of
from audit.experiments.results import Row, make_row
from audit.registry import attackers_of, code_used, expanded, make_attack, make_defenses, make_victim
from audit.scoring.statistics import NOT_TESTED
from audit.shell.debugging import trace
from victims.common.errors import InputError, OutputError
from victims.common.files import remove
from victims.data.ratings import Ratings
from victims.evaluation.ranking import case, measure, popular
from victims.protocols.base import Attacker

FEWEST = 2  # rounds that are watched at least, where nothing else is said
ADVERSARIES = ("server", "server+client", "decrypter", "eavesdropper", "item-server")
QUALITY = "ndcg_at_10"


@dataclass(frozen=True)
class Comparison:
    """What to compare.

    Attributes
    ----------
    defenses : tuple of str
        As ``none``, ``laplace:b=2``, ``unrated-sampling:rho=1+paillier`` or ``privmvmf``.
    victim, data, update, weighting : str
    adversaries : tuple of str
    attacks : tuple of str
        What is tried on every defense; empty: what the victim and each defense say adapts to them.
    rounds : tuple of int
        Rounds that the adversary watches, counted from 0; empty: as many from the first as the adapted
        attacks of any of the defenses use, the same for all.
    users : int
        Clients to record where nothing is encrypted; else all are, for the sums are of all.
    trained : int
        Rounds of training before the ranking is measured.
    runs : int
        Seeds of the ranking.
    seed : int
    victim_options : dict
    """

    defenses: tuple[str, ...]
    victim: str = "fedmvmf"
    data: str = "synthetic"
    update: str = "semi-als"
    weighting: str = "include-unrated"
    adversaries: tuple[str, ...] = ADVERSARIES
    attacks: tuple[str, ...] = ()
    rounds: tuple[int, ...] = ()
    users: int = 120
    trained: int = 50
    runs: int = 3
    seed: int = 0
    victim_options: dict[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """All options of the victim."""
        return {**self.victim_options, "update": self.update, "weighting": self.weighting}


def run(
    comparison: Comparison,
    ratings: Ratings,
    directory: Path,
    *,
    jobs: int = -1,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """Run every cell that is not there yet and write the result files.

    Parameters
    ----------
    comparison : Comparison
    ratings : Ratings
    directory : Path
        Created if missing.
    jobs : int
        Parallel processes; -1 is one per core.
    report : callable
        Called with (cells done, cells in all).
    """
    if not comparison.defenses:
        raise InputError("--defenses must name at least one defense, or none")
    comparison = settled(comparison)
    content = content_of(ratings)
    cells = [
        _Cell(comparison, directory, content, defense, *part)
        for defense in comparison.defenses
        for part in (("leakage", 0), ("cost", 0), *(("quality", run) for run in range(comparison.runs)))
    ]
    return run_cells(cells, _run_cell, ratings, directory, jobs, report)


def settled(comparison: Comparison) -> Comparison:
    """The comparison with its rounds chosen, every name in it checked.

    Raises
    ------
    InputError
        If a victim, defense, attack or adversary is unknown.
    """
    for name in comparison.attacks:
        make_attack(name)
    for name in comparison.adversaries:
        campaign.check_adversary(name)
    needed = [attacker.rounds for text in comparison.defenses for attacker in adapted(comparison, text)]
    rounds = comparison.rounds or tuple(range(max(FEWEST, *needed)))
    return replace(comparison, rounds=rounds)


def adapted(comparison: Comparison, defense: str) -> tuple[Attacker, ...]:
    """The attacks that one defense meets."""
    declared = attackers_of(comparison.victim, comparison.options, defense)
    if not comparison.attacks:
        return declared
    rounds = {attacker.name: attacker.rounds for attacker in declared}
    return tuple(Attacker(name, rounds.get(name, 1)) for name in comparison.attacks)


def short_of_rounds(comparison: Comparison) -> list[str]:
    """Where fewer rounds are watched than an adapted attack uses, in words."""
    rounds = np.array(settled(comparison).rounds)
    longest = max(part.size for part in np.split(rounds, np.flatnonzero(np.diff(rounds) != 1) + 1))
    return [
        f"{text}: {one.name} uses {one.rounds} consecutive rounds, {longest} are watched"
        for text in comparison.defenses
        for one in adapted(comparison, text)
        if one.rounds > longest
    ]


@dataclass(frozen=True)
class _Cell:
    comparison: Comparison
    directory: Path
    content: str
    defense: str
    part: str
    number: int

    @property
    def path(self) -> Path:
        """Where the rows are kept."""
        varying: dict[str, Any] = {"defenses": (), "runs": 0, "data": ""}
        if self.part != "quality":
            varying |= {"trained": 0}
        if self.part != "leakage":
            varying |= {"adversaries": (), "attacks": (), "rounds": (), "users": 0}
        attacks = [one.name for one in adapted(self.comparison, self.defense)]
        identity = {
            "code": code_used(self.comparison.victim, [self.defense], attacks),
            "plan": replace(self.comparison, **varying).__dict__,
            "ratings": self.content,
            "cell": (self.defense, self.part, self.number),
        }
        words = "".join(c if c.isalnum() or c in "-.=" else "_" for c in self.defense)[:60]
        name = f"{words}-{self.part}-{self.number}-{digest(identity)}.json"
        return self.directory / "cells" / name

    def shared(self) -> Row:
        """The columns that all rows of the cell have in common."""
        plan = self.comparison
        return {
            "victim": plan.victim,
            "update": plan.update,
            "weighting": plan.weighting,
            "data": plan.data,
            "defense": self.defense,
            "seed": plan.seed + self.number,
        }

    @property
    def scratch(self) -> tuple[Path, ...]:
        """Its recordings; the rows of attacks on them that ended are kept beside them."""
        return (self.directory / "leakage" / self.path.stem / "transcripts",)

    def failed(self, error: Exception) -> list[Row]:
        """Its row where it could not be finished."""
        reason = reason_of_failure(error)
        return [make_row(**self.shared(), metric=self.part, status="failed", reason=reason)]


def _run_cell(cell: _Cell, ratings: Ratings) -> list[Row]:
    parts = {"leakage": _leakage, "quality": _quality, "cost": _cost}
    try:
        return parts[cell.part](cell, ratings)
    except OutputError:
        raise
    except InputError as error:  # does not apply to this victim, say
        return [make_row(**cell.shared(), metric=cell.part, status="not applicable", reason=str(error))]
    except Exception as error:  # a failed cell is a row with its reason, never a missing row
        trace(error)
        return cell.failed(error)


def standing_in(text: str) -> str:
    """A defense with ideal encryption in the place of the real one."""
    out = []
    for part in expanded(text):
        name, _, options = part.partition(":")
        out.append(
            f"{name}:{','.join(filter(None, (options, 'ideal=true')))}" if name == "paillier" else part
        )
    return "+".join(out)


def _leakage(cell: _Cell, ratings: Ratings) -> list[Row]:
    """Every attack on every view of one recording."""
    plan, text = cell.comparison, standing_in(cell.defense)
    encrypted = "paillier" in text
    rows: list[Row] = []
    folder = cell.directory / "leakage" / cell.path.stem
    # without encryption a client's key adds nothing, and on the wire lies what the server receives
    alike = {"eavesdropper": "server"} | ({} if encrypted else {"server+client": "server"})
    for adversary in plan.adversaries:
        twin = alike.get(adversary)
        if twin in plan.adversaries:
            rows += [{**row, "adversary": adversary} for row in rows if row["adversary"] == twin]
            continue
        one = campaign.Campaign(
            victim=plan.victim,
            data=plan.data,
            updates=(plan.update,),
            weightings=(plan.weighting,),
            attacks=tuple(one.name for one in adapted(plan, cell.defense)),
            rounds=plan.rounds,
            adversary=adversary,
            seed=plan.seed,
            users=None if encrypted else plan.users,
            defenses=tuple(text.split("+")) if text else (),
            victim_options=plan.victim_options,
        )
        try:
            rows += campaign.run(one, ratings, folder, keep_transcripts=True)
        except InputError as error:  # nobody decrypts under this defense, say
            status = {"status": "not applicable", "verdict": NOT_TESTED, "reason": str(error)}
            rows.append(make_row(**cell.shared(), adversary=adversary, metric="rating_accuracy", **status))
    remove(folder / "transcripts")
    return [{**row, "defense": cell.defense} for row in rows]


def _quality(cell: _Cell, ratings: Ratings) -> list[Row]:
    """Ranking of known users among the items that they rated; see ``victims.evaluation.ranking``."""
    plan = cell.comparison
    seed = plan.seed + cell.number
    chosen = case("existing", ratings, seed)
    victim: Any = make_victim(plan.victim, plan.options)
    defenses = make_defenses(standing_in(cell.defense) or "none")
    found = measure(victim, chosen, rounds=plan.trained, defenses=defenses, seed=seed)["rated"]
    guess = popular(chosen, seed)["rated"]
    return [
        make_row(
            **cell.shared(),
            metric=QUALITY if name == "ndcg" else name,
            rounds=plan.trained,
            value=value,
            baseline=beside,
            baseline_name="popularity",
            status="ran",
        )
        for name, value, beside in zip(found._fields, found, guess, strict=True)
    ]


def _cost(cell: _Cell, ratings: Ratings) -> list[Row]:
    """Seconds and bytes of a client in one round."""
    plan = cell.comparison
    victim: Any = make_victim(plan.victim, plan.options)
    found = cost_of(victim, ratings, make_defenses(cell.defense), plan.seed)
    return [
        make_row(**cell.shared(), metric=metric, value=value, rounds=1, status="ran", reason=found.note)
        for metric, value in found.metrics().items()
    ]
