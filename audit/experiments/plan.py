"""Plans: what ``audit``, ``audit --transcript``, ``compare``, ``sweep`` and ``claims`` measure.

Each is a choice of axes (data, victim, defense, adversary, attack, rounds, scale, seed) with its own
defaults; what a field may be and how it is asked for stands in ``audit.experiments.options``. Nothing heavy
is imported here, for the command line's help is made from these fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from audit.experiments.options import (
    NOISES,
    Adversaries,
    Adversary,
    Alternatives,
    AnyAdversary,
    AnyRounds,
    AttackOptions,
    Attacks,
    Bounds,
    Data,
    Defenses,
    DrawnAttacks,
    Epochs,
    Epsilons,
    Exhaustive,
    FirstRound,
    FirstWeighting,
    Infer,
    Noises,
    Outputs,
    Protocols,
    RecordedUsers,
    Repetitions,
    Rounds,
    Runs,
    Sample,
    Scales,
    Seed,
    Trained,
    Trials,
    Update,
    Updates,
    Users,
    Victim,
    VictimOptions,
    Watched,
    WatchLengths,
    Weighting,
    Weightings,
)

PROTOCOLS = ("hdpmf", "pdpmf", "dpmf", "mf")
PUBLISHED = "published"  # stands among attacks for the solver that Mai & Pang 2022 chose for a scenario


@dataclass(frozen=True)
class Recording:
    """A victim in one scenario, recorded."""

    data: Data = "synthetic"
    victim: Victim = "fedmvmf"
    update: Update = ""
    weighting: FirstWeighting = ""
    rounds: Rounds = (4, 5)
    users: Users = None
    defenses: Defenses = ()
    seed: Seed = 0
    victim_options: VictimOptions = field(default_factory=dict)


@dataclass(frozen=True)
class Audit:
    """A victim in its scenarios, attacked."""

    data: Data = "synthetic"  # what the column ``data`` says
    victim: Victim = "fedmvmf"
    updates: Updates = ()  # scenarios are their product; empty: all that the victim has
    weightings: Weightings = ()
    attacks: Attacks = ()  # empty: those that adapt to the victim and its defenses, and a guess
    rounds: Rounds = (4, 5)  # that the adversary watches, counted from 0
    adversary: Adversary = "server"
    sample: Sample = 20
    users: Users = None
    defenses: Defenses = ()  # applied in this order; the server trains on what it receives
    seed: Seed = 0
    victim_options: VictimOptions = field(default_factory=dict)
    attack_options: AttackOptions = field(default_factory=dict)
    exhaustive: Exhaustive = None  # None: where attacks, or options of them, are named
    infer: Infer = ()  # of users who are not known to the adversary
    outputs: Outputs = 0  # models whose outputs are attacked, too
    trials: Trials = 0  # trainings with a client, and as many without, that are told apart by sums

    @property
    def scenarios(self) -> list[tuple[str, str]]:
        """Updates and weightings, in the order of the results."""
        return [(update, weighting) for update in self.updates for weighting in self.weightings]


@dataclass(frozen=True)
class GivenRecording:
    """A recording of any origin, attacked."""

    transcript: Path
    truth: Path | None = None  # None: the file beside the transcript, if there is one
    attacks: Attacks = ()  # empty: all
    adversary: AnyAdversary = ""  # empty: the one who recorded, or the server
    sample: Sample = 20
    seed: Seed = 0
    attack_options: AttackOptions = field(default_factory=dict)
    exhaustive: Exhaustive = None


@dataclass(frozen=True)
class RecordedDefenses:
    """Defenses applied to the uploads of a recording, each for itself, and attacked again."""

    transcript: Path
    truth: Path | None = None  # None: the file beside the transcript, if there is one
    defenses: Alternatives = ("none",)  # which others are held against, comes first in any case
    attacks: Attacks = ()  # empty: those that take a moment, and those that the defenses name
    # run on every defense, others of ``attacks`` on those that name them and on none; empty: all on all
    everywhere: Attacks = ()
    adversary: AnyAdversary = ""  # empty: the one who recorded, or the server
    ceiling: bool = False  # whether the highest reachable accuracy is computed, a minute for each defense
    watched: AnyRounds = ()  # which rounds; empty: all that were recorded
    rounds: AnyRounds = ()  # how many of them, from the first; empty: all
    sample: Sample = 20
    seed: Seed = 0
    attack_options: AttackOptions = field(default_factory=dict)
    exhaustive: Exhaustive = None


@dataclass(frozen=True)
class Comparison:
    """Defenses side by side, each for itself."""

    defenses: Alternatives = ()  # as ``none``, ``laplace:b=2`` or ``unrated-sampling:rho=1+paillier``
    data: Data = "synthetic"
    victim: Victim = "fedmvmf"
    update: Update = ""  # empty: the victim's first, and include-unrated where it has that
    weighting: Weighting = ""
    attacks: Attacks = ()  # tried on every defense; empty: those that adapt to the victim and to each
    adversaries: Adversaries = ()  # empty: those that there are
    rounds: AnyRounds = ()  # empty: as many from the first as the adapted attacks use, the same for all
    users: RecordedUsers = 120  # where nothing is encrypted; else all are, for the sums are of all
    trained: Trained = 50
    runs: Runs = 3
    seed: Seed = 0
    victim_options: VictimOptions = field(default_factory=dict)


@dataclass(frozen=True)
class Sweep:
    """Accuracy against noise scale and rounds watched."""

    data: Data = "synthetic"
    victim: Victim = "fedmvmf"
    updates: Updates = ()
    weightings: Weightings = ()
    attacks: DrawnAttacks = ("likelihood", PUBLISHED)
    scales: Scales = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    rounds: WatchLengths = (1, 5, 20)  # numbers of consecutive rounds
    first: FirstRound = 4
    users: RecordedUsers = 120
    sample: Sample = 20
    seed: Seed = 0
    victim_options: VictimOptions = field(default_factory=dict)
    attack_options: AttackOptions = field(
        default_factory=dict
    )  # ``published`` takes ten solutions by default


@dataclass(frozen=True)
class Claims:
    """A claimed epsilon against what the recommender sees."""

    data: Data = "synthetic"
    protocols: Protocols = PROTOCOLS
    noises: Noises = NOISES
    epsilons: Epsilons = (1.0,)
    rounds: Watched = 12
    epochs: Epochs = 100
    repetitions: Repetitions = 0
    bounds: Bounds = True
    seed: Seed = 0
    victim_options: VictimOptions = field(default_factory=dict)
    source: str = ""  # where the published split is looked for; empty: what ``data`` says

    @property
    def victim(self) -> dict[str, object]:
        """Options of the victim."""
        return {**self.victim_options, "epochs": str(self.epochs)}
