"""What is trained and measured for paper 004, and its cells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from audit.experiments.results import Row
from victims.evaluation.references import PACKAGES

VICTIM, DMF, IMPLICIT_PMF = "dpmf-yang", "dmf", "implicit-pmf"
SYSTEMS = (VICTIM, DMF, IMPLICIT_PMF, *PACKAGES)
ROUNDS = (1, 2, 5, 10, 20, 50, 100, 200)
WEIGHTS = tuple(
    (share, weight) for share in (0.005, 0.02, 0.06, 0.2, 0.6) for weight in (0.25, 0.5, 0.75, 1.0)
)
VARIED: dict[str, tuple[Any, ...]] = {
    "nothing": (None,),  # Table 4, Figures 4 and 6
    "weights": WEIGHTS,  # Figure 5: lambda, W
    "degree": (1, 2, 3, 5, 10),
    "users": (0.25, 0.5, 0.75, 1.0),  # Table 3
}
SHARE = 0.5  # section 4.1.2: of both parts of the split, as implicit feedback
SHARED = ("degree", "fallback", "rating_map")  # options that DMF has from the victim


@dataclass(frozen=True)
class TrustedPlan:
    """What to train."""

    systems: tuple[str, ...] = ()  # of ``SYSTEMS``; empty: all of them, the first where something varies
    data: str = "synthetic"
    factors: tuple[int, ...] = (3, 6, 12)
    rounds: int = 100  # rounds to train; seeds of split, start and draws
    runs: int = 5  # rounds to train; seeds of split, start and draws
    seed: int = 0  # rounds to train; seeds of split, start and draws
    vary: str = "nothing"  # A key of ``VARIED``
    # of ``dpmf-yang``; DMF takes those of ``SHARED``
    victim_options: dict[str, Any] = field(default_factory=dict)

    def options(self, system: str, factors: int, point: Any) -> dict[str, Any]:
        """Options of a victim at one point; empty for what is none."""
        if system not in (VICTIM, DMF):
            return {}
        given = self.victim_options
        if system == DMF:
            given = {name: value for name, value in given.items() if name in SHARED}
            given |= {"positive_share": str(SHARE)}
        if self.vary == "weights":
            given = {**given, "implicit_weight": str(point[0]), "negative_weight": str(point[1])}
        if self.vary == "degree":
            given = {**given, "degree": str(point)}
        return {**given, "factors": str(factors)}

    @property
    def rating_map(self) -> Any:
        """How ratings are scaled."""
        return self.victim_options.get("rating_map", "max")


@dataclass(frozen=True)
class Training:
    """The task of a cell: a system at one point; ``run`` numbers the seeds."""

    plan: TrustedPlan
    system: str
    factors: int
    point: Any
    run: int
    n_users: int

    @property
    def seed(self) -> int:
        """The seed of this run."""
        return self.plan.seed + self.run

    @property
    def setting(self) -> str:
        """What is varied, in words."""
        vary, point = self.plan.vary, self.point
        if vary == "weights":
            return f" lambda={point[0]:g} W={point[1]:g}"
        return "" if vary == "nothing" else f" {vary}={point:g}"

    def columns(self) -> Row:
        """Columns that all rows of the cell have in common."""
        said = "".join(f" {name}={value}" for name, value in sorted(self.plan.victim_options.items()))
        return {
            "victim": f"{self.system} K={self.factors}{self.setting}",
            "update": "sgd",
            "weighting": "observed-only",
            "data": f"{self.plan.data}{said}",
            "defense": "none",
            "seed": self.seed,
            "n_users": self.n_users,
        }

    def measured(self) -> list[int]:
        """Rounds after which to measure."""
        last = self.plan.rounds
        return sorted({n for n in ROUNDS if n < last} | {last}) if self.plan.vary == "nothing" else [last]
