"""Every option of the plans, once: its type, its rule, and how a command line has it.

A plan is a frozen dataclass whose fields are annotated with these. From its fields come the command's options
(``audit.cli.options.from_plan``), the keys of a campaign's blocks and what is checked (``check``), in the
same words wherever a value comes from, before anything is loaded or run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from audit.option_texts import (
    names,
    options_by_attack,
    parse_floats,
    parse_options,
    parse_rounds,
)
from defenses.ranges import NOISES, usable, usable_or_0
from victims.common.errors import InputError
from victims.common.validation import Rule, above, each, flag, one_of, or_none, require_fields, whole, words

MOST_CELLS = 10_000  # of one plan, or one campaign: so many are listed in seconds
SEED = whole(0, 2**63 - 1)
CLIENTS = whole(1, 2**31 - 1)
N_ROUNDS = whole(1, 1_000_000)  # how many
ROUND = whole(0, 999_999)  # which one
RUNS = whole(1, 1000)
FACTORS = whole(1, 10_000)
NAME = words()
NAMES = each(NAME)
ANY_NAMES = each(NAME, fewest=0)
SECONDS = above(0)
TEXT = Rule("text", lambda value: isinstance(value, str))
MOST_WATCHED = 100_001  # rounds: as many as a range of --rounds may have
WATCHED = each(ROUND, most=MOST_WATCHED)
ANY_WATCHED = each(ROUND, fewest=0, most=MOST_WATCHED)


def _is_plain(value: object) -> bool:
    """Whether a command line can write it; also a number of NumPy, which is not imported for that."""
    if value is None or isinstance(value, str | int | float):
        return True
    return type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0 and not _is_array(value)


def _is_array(value: object) -> bool:
    return type(value).__name__ == "ndarray"


def _are_options(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        NAME.holds(name) and _is_plain(one) for name, one in value.items()
    )


OPTIONS = Rule("names with a number, text, true, false or none each", _are_options)
OPTIONS_OF_ATTACKS = Rule(
    "names of attacks with options each, in turn names with a number, text, true, false or none",
    lambda value: (
        isinstance(value, Mapping)
        and all(NAME.holds(name) and _are_options(one) for name, one in value.items())
    ),
)

T = TypeVar("T")


def each_once(values: Iterable[T]) -> tuple[T, ...]:
    """Leave out what was there before.

    Examples
    --------
    >>> each_once((5, 1, 5))
    (5, 1)
    """
    return tuple(dict.fromkeys(values))


def refuse_idle_options(options: Mapping[str, Any], attacks: Iterable[str]) -> None:
    """Refuse options of attacks that do not run."""
    running = tuple(attacks)
    idle = sorted(str(name) for name in options if name not in running)
    if idle:
        raise InputError(
            f"options are given for {', '.join(idle)}, which does not run; name it among the attacks, now "
            f"{', '.join(running):.80}, or leave its options out"
        )


def refuse_said_elsewhere(thing: str, options: Mapping[str, Any], **elsewhere: str) -> None:
    """Refuse options of a victim that the plan itself has a field for, and would override."""
    for name, field in elsewhere.items():
        if name in options:
            raise InputError(
                f"set of {thing} must not name {name}, got {options[name]!r:.60}; leave it out of set and "
                f"say it by {field}"
            )


def refuse_too_many(thing: str, **axes: Collection[object] | range) -> None:
    """Refuse a plan whose cells are more than can be listed in seconds.

    Examples
    --------
    >>> refuse_too_many("a sweep", scales=range(10), rounds=range(100))
    """
    total = math.prod(map(len, axes.values()))
    if total > MOST_CELLS:
        sizes = ", ".join(f"{len(values):,} {name}" for name, values in axes.items())
        raise InputError(
            f"{thing} must have at most {MOST_CELLS:,} cells, got {total:,} ({sizes}); leave some out, or "
            "split it"
        )


def list_once(texts: list[str]) -> tuple[str, ...]:
    """Texts of a repeatable option as they are: there are commas in them."""
    return tuple(dict.fromkeys(texts))


Group = Literal["victims", "defenses", "attacks", "adversaries"]


@dataclass(frozen=True)
class Option:
    """How a value is checked and asked for."""

    rule: Rule
    help: str
    flags: tuple[str, ...] = ()  # default: the field's name
    # from the texts of a repeatable option to the value; None: the type on the command line is the field's
    read: Callable[[list[str]], Any] | None = None
    choices: tuple[str, ...] = ()  # what a repeatable option takes
    group: Group | None = None  # whose names a shell completes


UPDATES, WEIGHTINGS = ("semi-als", "sgd"), ("observed-only", "include-unrated")
USUAL_ATTACKS = "Default: those that adapt to the victim and its defenses."

Data = Annotated[
    str,
    Option(
        TEXT, "synthetic, synthetic:users=500,items=800,seed=1, ml-100k or filmtrust (fetched), or a path"
    ),
]
Victim = Annotated[str, Option(NAME, "See `factorleak list victims`.", group="victims")]
Updates = Annotated[
    tuple[str, ...],
    Option(ANY_NAMES, "Restrict the scenarios. Repeatable.", ("--update",), names, UPDATES),
]
Weightings = Annotated[
    tuple[str, ...],
    Option(ANY_NAMES, "Restrict the scenarios. Repeatable.", ("--weighting",), names, WEIGHTINGS),
]
Update = Annotated[str, Option(TEXT, "Default: the victim's first.", choices=UPDATES)]
FirstWeighting = Annotated[str, Option(TEXT, "Default: the victim's first.", choices=WEIGHTINGS)]
Weighting = Annotated[
    str, Option(TEXT, "Default: include-unrated where the victim has it.", choices=WEIGHTINGS)
]
VictimOptions = Annotated[
    dict[str, Any],
    Option(
        OPTIONS,
        "Hyper-parameter of the victim, name=value; see `factorleak list victims NAME`. Repeatable.",
        ("--set",),
        parse_options,
    ),
]
Attacks = Annotated[
    tuple[str, ...],
    Option(
        ANY_NAMES,
        f"Attack to run; see `factorleak list attacks`. Repeatable. {USUAL_ATTACKS}",
        ("--attack", "--attacks"),
        names,
        group="attacks",
    ),
]
DrawnAttacks = Annotated[
    tuple[str, ...],
    Option(
        NAMES,
        "Attacks: the first is drawn for all rounds, the second beside it; published is the procedure of "
        "Mai & Pang 2022 with the solver of their Table 6 for the scenario. Repeatable.",
        ("--attack", "--attacks"),
        names,
        group="attacks",
    ),
]
AttackOptions = Annotated[
    dict[str, dict[str, Any]],
    Option(
        OPTIONS_OF_ATTACKS,
        "Option of one attack, ATTACK.name=value. Repeatable.",
        ("--option",),
        options_by_attack,
    ),
]
Rounds = Annotated[
    tuple[int, ...],
    Option(WATCHED, "Rounds to record, counted from 0: 4,5 or 0-9. Repeatable.", read=parse_rounds),
]
AnyRounds = Annotated[
    tuple[int, ...],
    Option(
        ANY_WATCHED,
        "Rounds that the adversaries watch, counted from 0: 4,5 or 0-9. Repeatable. Default: as many from "
        "the first as the adapted attacks use.",
        read=parse_rounds,
    ),
]
WatchLengths = Annotated[
    tuple[int, ...],
    Option(each(N_ROUNDS), "Numbers of rounds that the server watches. Repeatable.", read=parse_rounds),
]
FirstRound = Annotated[int, Option(ROUND, "First round that is watched, counted from 0.")]
Adversary = Annotated[
    str, Option(NAME, "Whose view is attacked; see `factorleak list adversaries`.", group="adversaries")
]
AnyAdversary = Annotated[
    str, Option(TEXT, "Whose view is attacked; see `factorleak list adversaries`.", group="adversaries")
]
Adversaries = Annotated[
    tuple[str, ...],
    Option(
        ANY_NAMES,
        "See `factorleak list adversaries`. Repeatable; five by default.",
        ("--adversary", "--adversaries"),
        names,
        group="adversaries",
    ),
]
Defenses = Annotated[
    tuple[str, ...],
    Option(
        ANY_NAMES,
        "As laplace:scale=2,clip=10,known=false. Repeatable: several are applied in order.",
        ("--defense",),
        list_once,
        group="defenses",
    ),
]
Alternatives = Annotated[
    tuple[str, ...],
    Option(
        NAMES,
        "none, laplace:b=2, paillier, privmvmf, or several together as a+b. Repeatable.",
        ("--defense", "--defenses"),
        list_once,
        group="defenses",
    ),
]
Scales = Annotated[
    tuple[float, ...],
    Option(
        each(usable_or_0()),
        "Laplace scales b of the uploads; 0 is none. Repeatable.",
        ("--scale", "--scales"),
        lambda texts: tuple(sorted(set(parse_floats("--scales", texts, "0,0.5,2")))),
    ),
]
Epsilons = Annotated[
    tuple[float, ...],
    Option(
        each(usable()),
        "Largest budgets, as 0.1,1,10; several draw the figure. Repeatable.",
        ("--epsilon", "--epsilons"),
        lambda texts: parse_floats("--epsilons", texts, "0.1,1,10"),
    ),
]
Users = Annotated[int | None, Option(or_none(CLIENTS), "Record a random sample of this many clients.")]
RecordedUsers = Annotated[int, Option(CLIENTS, "Clients to record; all take part in training.")]
Sample = Annotated[int, Option(CLIENTS, "Clients for attacks that solve client by client (root-*).")]
Seed = Annotated[int, Option(SEED, "Every random choice derives from it.")]
Trained = Annotated[int, Option(N_ROUNDS, "Rounds before the ranking is measured.")]
Runs = Annotated[int, Option(RUNS, "Seeds of the ranking.")]
Infer = Annotated[
    tuple[str, ...],
    Option(
        ANY_NAMES,
        "Attribute of users that is never uploaded, as gender; inferred from what each attack recovers by an "
        "adversary who knows ratings and attributes of half of the users; or communities, who has most items "
        "in common with known users. Repeatable.",
        ("--infer",),
        names,
    ),
]
Exhaustive = Annotated[
    bool | None,
    Option(or_none(flag()), "Also run attacks whose every question is answered already.", ("--exhaustive",)),
]
Outputs = Annotated[
    int,
    Option(
        Rule("0, or a whole number from 8 to 1000", lambda value: whole(8, 1000).holds(value) or value == 0),
        "Also train so many models on random halves of the ratings, and of the clients, and tell from what "
        "each predicts and lists what it was trained on (adversary outputs), the others being its shadows; "
        "0: none. Minutes.",
    ),
]
Trials = Annotated[
    int,
    Option(
        Rule(
            "0, or a whole number from 20 to 100,000",
            lambda value: whole(20, 100_000).holds(value) or value == 0,
        ),
        "Also train so many times with the rows of one client and so many times without, under dp-fedavg or "
        "dp-ftrl, and bound epsilon from below by telling the two apart from all sums, beside its proof; "
        "0: none. Seconds to minutes.",
    ),
]
Protocols = Annotated[
    tuple[str, ...],
    Option(
        NAMES,
        "hdpmf, pdpmf, dpmf, mf, hdpmf-r, each with an option if wanted, as hdpmf:mixing=draw. Repeatable.",
        ("--protocol",),
        names,
    ),
]
Noises = Annotated[
    tuple[str, ...],
    Option(each(one_of(*NOISES)), f"{', '.join(NOISES)}. Repeatable.", ("--noise",), names),
]
Watched = Annotated[int, Option(whole(2, 1_000_000), "Rounds that the recommender watches, from the first.")]
Epochs = Annotated[int, Option(whole(2, 1_000_000), "Epochs of the whole training.")]
Repetitions = Annotated[
    int,
    Option(whole(0, 1_000_000), "Runs in each of two worlds for a second bound, of one client; 0: none."),
]
Bounds = Annotated[
    bool, Option(flag(), "Plant ratings for lower bounds; without, what is read and the error alone.")
]


def options_of_plan(plan: Any) -> dict[str, Option]:
    """The options of a plan, a class, by field."""
    hints = get_type_hints(plan, include_extras=True)
    return {
        name: option
        for name, hint in hints.items()
        for option in getattr(hint, "__metadata__", ())
        if isinstance(option, Option)
    }


def check(plan: Any, thing: str) -> None:
    """Check every field of a plan by its rule."""
    require_fields(plan, thing, **{name: one.rule for name, one in options_of_plan(type(plan)).items()})
