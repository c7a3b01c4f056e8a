"""What the papers' commands measure: their plans, each a choice of axes with the paper's values as defaults.

Nothing heavy is imported here, for the command line's help is made from these fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from audit.experiments.options import (
    ANY_NAMES,
    CLIENTS,
    FACTORS,
    MOST_WATCHED,
    N_ROUNDS,
    NAME,
    RUNS,
    TEXT,
    Data,
    Defenses,
    FirstWeighting,
    Option,
    Seed,
    Update,
    Victim,
    VictimOptions,
    Weighting,
)
from audit.option_texts import names, parse_floats, parse_numbers, parse_rounds
from defenses.ranges import NOISES
from victims.common.validation import (
    above,
    each,
    finite,
    flag,
    one_of,
    strictly_between,
    whole,
)

# Hu & Fang 2023: one victim, bare or under a defense, Table 3 and Figures 2 to 8
METHODS = ("mf", "hdpmf", "pdpmf", "dpmf", "hdpmf-r")
VARIED = {
    "nothing": (float("nan"),),
    "user_low": (0.1, 0.2, 0.3, 0.4),  # Figures 2 and 3
    "user_conservative": (0.1, 0.2, 0.3, 0.4, 0.54),  # Figures 4 and 5
    "fraction": (0.2, 0.4, 0.6, 0.8, 1.0),  # Figures 6 and 7
    "epsilon": (0.1, 0.3, 1.0, 3.0, 10.0),
}
PAPER = "paper"  # how Hu & Fang hold ratings out

# Duriakova et al. 2019: method -> variant of the victim; "" is no victim
PEER_METHODS = {"pdmfrec": "full", "pdmfrec-sim": "-sim", "pdmfrec-sim-all": "-sim,all", "pmf": ""}
PEER_RATES = (0.01, 0.02, 0.03, 0.04, 0.05)  # section 4.4
PEER_ROUNDS = (1, 2, 5, 10, 15, 20, 30, 40, 50, 60, 80, 100, 125, 150)
PARTS = 5

# Yang et al. 2022
PACKAGES = {"svd++": "scikit-surprise", "wrmf": "implicit", "gaussian-pmf": "cornac"}
TRUSTED_SYSTEMS = ("dpmf-yang", "dmf", "implicit-pmf", *PACKAGES)
TRUSTED_VARIED: dict[str, tuple[Any, ...]] = {
    "nothing": (None,),  # Table 4, Figures 4 and 6
    # Figure 5: lambda, W
    "weights": tuple(
        (share, weight) for share in (0.005, 0.02, 0.06, 0.2, 0.6) for weight in (0.25, 0.5, 0.75, 1.0)
    ),
    "degree": (1, 2, 3, 5, 10),
    "users": (0.25, 0.5, 0.75, 1.0),  # Table 3
}

Split = Annotated[
    str,
    Option(NAME, "How ratings are held out: random, time (the latest), last:3 (of each client)."),
]
TestFraction = Annotated[
    float, Option(strictly_between(0, 1), "Share of ratings held out by random and time.")
]
Training = Annotated[int, Option(N_ROUNDS, "Rounds of training.")]
Length = Annotated[int, Option(CLIENTS, "Length of Paillier's key.")]
ENCRYPTED = 256  # rows that are encrypted, added and decrypted


@dataclass(frozen=True)
class Prediction:
    """Held-out error under noise."""

    data: Data = "synthetic"
    methods: Annotated[
        tuple[str, ...],
        Option(
            ANY_NAMES,
            "mf, hdpmf, pdpmf, dpmf, hdpmf-r (all by default), dpmf-program (dpmf as the authors' program "
            "has it), pdpmf-all-pairs (t over all pairs). Repeatable.",
            ("--method",),
            names,
        ),
    ] = ()
    noise: Annotated[
        str,
        Option(
            one_of(*NOISES),
            "When noise is drawn: once, fresh (every epoch) or composed (every epoch, eps/T).",
        ),
    ] = "fresh"
    factors: Annotated[
        tuple[int, ...],
        Option(
            each(FACTORS, fewest=0),
            "Numbers of factors. Repeatable. Default: 10,5; with dpmf-yang 3,6,12.",
            read=partial(parse_numbers, "--factors"),
        ),
    ] = ()
    epochs: Annotated[int, Option(N_ROUNDS, "Epochs, or rounds, of training.")] = 100
    runs: Annotated[int, Option(RUNS, "Seeds.")] = 5
    vary: Annotated[
        str,
        Option(
            one_of(*VARIED),
            "nothing (Table 3, Fig. 8), user_low (Fig. 2, 3), user_conservative (4, 5), fraction (6, 7), "
            "epsilon; of dpmf-yang nothing (Table 4, Fig. 4, 6), weights (Fig. 5), degree, users",
        ),
    ] = "nothing"
    points: Annotated[
        tuple[float, ...],
        Option(
            each(finite(), fewest=0),
            "Values of what varies: 1,1.5,2. Repeatable. Default: the paper's.",
            read=partial(parse_floats, "--points", example="1,1.5,2"),
        ),
    ] = ()
    # the paper does not say whether it clips
    clip: Annotated[bool, Option(flag(), "Clip predictions to the rating grid.")] = True
    split: Annotated[
        str,
        Option(
            NAME,
            "How ratings are held out: paper (the published split, else ten of each client), random, time "
            "(the latest), last:3 (of each client).",
        ),
    ] = PAPER
    test_fraction: TestFraction = 0.2
    weights: Annotated[
        str,
        Option(TEXT, "Privacy weights in place of drawn ones: a table kind (user, item), id, weight."),
    ] = ""
    seed: Seed = 0
    victim_options: VictimOptions = field(default_factory=dict)
    chosen: Mapping[tuple[str, int], dict[str, str]] = field(default_factory=dict)  # by ``tuned_mf``
    source: str = ""  # where the published split is looked for; empty: what ``data`` says

    @property
    def places(self) -> tuple[float, ...]:
        """The values that are tried."""
        return self.points or VARIED[self.vary]


@dataclass(frozen=True)
class PartsPlan:
    """Held-out error among neighbours, in five rotations of five parts."""

    methods: Annotated[tuple[str, ...], Option(each(one_of(*PEER_METHODS), fewest=0), "")] = ()
    data: Data = "synthetic"
    rates: Annotated[tuple[float, ...], Option(each(above(0), fewest=0), "")] = ()  # to choose from
    # after which to measure, ascending
    rounds: Annotated[tuple[int, ...], Option(each(N_ROUNDS), "")] = PEER_ROUNDS
    runs: Annotated[int, Option(whole(1, PARTS), "")] = PARTS  # rotations
    seed: Seed = 0
    # of ``pdmfrec``; ``pmf`` takes ``factors``, ``regularization`` and ``init_scale`` of them
    victim_options: VictimOptions = field(default_factory=dict)


@dataclass(frozen=True)
class TrustedPlan:
    """Held-out error and recommended items among users who trust each other."""

    # empty: all of them, the first where something varies
    systems: Annotated[tuple[str, ...], Option(each(one_of(*TRUSTED_SYSTEMS), fewest=0), "")] = ()
    data: Data = "synthetic"
    factors: Annotated[tuple[int, ...], Option(each(FACTORS, fewest=0), "")] = ()
    rounds: Training = 100
    runs: Annotated[int, Option(RUNS, "")] = 5
    seed: Seed = 0
    vary: Annotated[str, Option(one_of(*TRUSTED_VARIED), "")] = "nothing"
    victim_options: VictimOptions = field(default_factory=dict)  # of ``dpmf-yang``; some of them of ``dmf``


@dataclass(frozen=True)
class Quality:
    """Ranking quality with and without encryption: Mai & Pang 2022, Table 4."""

    data: Data = "synthetic"
    defense: Annotated[
        str,
        Option(NAME, "As for compare; encryption is replaced by its ideal stand-in.", group="defenses"),
    ] = "privmvmf"
    victim: Victim = "fedmvmf"
    update: Update = ""
    weighting: Weighting = ""
    rounds: Training = 200
    runs: Annotated[int, Option(RUNS, "Seeds of start, split and sample.")] = 5
    scenarios: Annotated[
        tuple[str, ...],
        Option(
            ANY_NAMES,
            "existing, 'new user' or 'new item'. Repeatable; all by default.",
            ("--scenario",),
            names,
        ),
    ] = ()
    cut: Any = None  # a ``victims.evaluation.ranking.Cut``; None: the paper's
    split: Split = "random"  # of existing users
    seed: Seed = 0
    victim_options: VictimOptions = field(default_factory=dict)


@dataclass(frozen=True)
class Sheet:
    """What encrypted rounds cost: in the clear, with phe, and packed, under every key length."""

    data: Data = "synthetic"
    victim: Victim = "fedmf"
    update: Update = ""
    weighting: Weighting = ""
    items: Annotated[
        tuple[int, ...],
        Option(
            each(CLIENTS, fewest=0),
            "Numbers of most rated items, as 40,2560. Repeatable. Default: all items.",
            read=partial(parse_numbers, "--items"),
        ),
    ] = ()
    key_bits: Annotated[
        tuple[int, ...],
        Option(
            each(CLIENTS, fewest=0),
            "Lengths of Paillier's keys: 1024,2048. Repeatable.",
            read=partial(parse_numbers, "--key-bits"),
        ),
    ] = (1024, 2048)
    phe: Annotated[bool, Option(flag(), "Also measure phe as it comes, one number a ciphertext.")] = True
    defense: Annotated[
        str,
        Option(NAME, "What goes before encryption, as unrated-sampling:rho=1, or none.", group="defenses"),
    ] = "none"
    sample: Annotated[int, Option(CLIENTS, "Rows that are encrypted, added and decrypted.")] = ENCRYPTED
    seed: Seed = 0
    victim_options: VictimOptions = field(default_factory=dict)
    bits_per_second: float = 1e9  # of the network
    uploads: tuple[str, ...] = ()  # of FedMF, side by side; empty: the one that the options name


@dataclass(frozen=True)
class Lists:
    """FedMF between part-text and full-text: which items clients rated, against the cost of hiding them."""

    data: Data = "synthetic"
    # part-text and full-text are always beside them
    rhos: Annotated[
        tuple[float, ...],
        Option(
            each(above(0)),
            "Sampled unrated items per rated one. Repeatable.",
            ("--rho",),
            partial(parse_floats, "--rho", example="0.5,1,4"),
        ),
    ] = (0.5, 1.0, 2.0, 4.0)
    rounds: Annotated[
        tuple[int, ...],
        Option(
            each(N_ROUNDS),
            "Numbers of rounds that the server watches. Repeatable.",
            read=partial(parse_numbers, "--rounds"),
        ),
    ] = (1, 2, 5, 10)
    key_bits: Length = 1024
    seed: Seed = 0
    victim_options: VictimOptions = field(default_factory=dict)
    sample: int = ENCRYPTED


@dataclass(frozen=True)
class Search:
    """A k-fold search for options of FedMVMF: Mai & Pang 2022, section 6.1."""

    data: Data = "synthetic"
    update: Update = ""
    weighting: FirstWeighting = ""
    defenses: Defenses = ()
    # in all, those of earlier calls included
    trials: Annotated[int, Option(whole(1, 1_000_000), "Sets of options to try.", ("--trials", "--tune"))] = (
        30
    )
    folds: Annotated[int, Option(whole(2, 100), "Folds of the ratings.")] = 4
    rounds: Training = 200
    seed: Seed = 0
    victim_options: VictimOptions = field(default_factory=dict)  # what is given is not searched


@dataclass(frozen=True)
class Learning:
    """Held-out error after numbers of rounds, of any victim."""

    data: Data = "synthetic"
    victim: Victim = "fedmvmf"
    update: Update = ""
    weighting: FirstWeighting = ""
    rounds: Annotated[
        tuple[int, ...],
        Option(
            each(N_ROUNDS, most=MOST_WATCHED),
            "Numbers of rounds after which to measure: 20,50,100. Repeatable.",
            read=parse_rounds,
        ),
    ] = (10, 20, 50, 100, 200)
    test_fraction: TestFraction = 0.2
    split: Split = "random"
    defenses: Defenses = ()
    seed: Seed = 0
    victim_options: VictimOptions = field(default_factory=dict)
