"""What every attack and every defense must do, as checks that other packages call in their own tests.

Each makes small recordings of its own and raises ``AssertionError`` with the rule that is broken. A check
that passes says that the interface is kept, not that an attack reads much or that a defense hides it.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from attacks.base import Attack, Outcome, Reconstruction, Scope
from audit.experiments.answers import complaints
from audit.factories import make_attack, make_victim
from audit.scoring.score import score
from audit.scoring.truth import Truth, read_truth
from audit.scoring.verdicts import in_words
from victims.data.ratings import Ratings
from victims.data.synthetic import Synthetic, generate
from victims.protocols.base import Defense, Rows
from victims.recording import record
from victims.training import Run, sent_rows, start
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript
from victims.transcript.view import View

RECORDED = (
    ("fedmvmf", {"update": "sgd", "weighting": "include-unrated", "factors": "3"}),
    ("fedmf", {"factors": "3"}),
)
ROUNDS = (0, 1)
KEY = 7
BY_CHANCE = 1e-4  # of a sign test on dealt-out gradients: about one honest attack in a thousand is refused
COLUMNS = ("sender", "kind", "index", "gradient")


def check_attack(attack: Attack) -> None:
    """Hold an attack against what every attack must do.

    It has a name and the verb; it can be sent to a worker process; it answers or abstains for every client
    of a view, within the items, levels and probabilities that exist; the same view and key give the same
    answer; where gradients are permuted among the rows it recovers no more than the baseline; and of uploads
    that determine every rating it answers somebody, unless it says that it does not apply to them.

    Parameters
    ----------
    attack : Attack

    Raises
    ------
    AssertionError
        Naming the rule that is broken.

    Examples
    --------
    >>> from audit.factories import make_attack
    >>> check_attack(make_attack("guess-majority"))
    """
    _demand(isinstance(attack, Attack), f"an attack has a name and `attack(view, key)`, got {attack!r:.200}")
    name = _common(attack)
    tried = []
    for view, truth in _recordings():
        found = attack.attack(view, KEY)
        for complaint in complaints(found, view):
            _demand(False, f"attack {name!r} {complaint}")
        again = attack.attack(view, KEY)
        _demand(_alike(found, again), f"attack {name!r} must give the same answer for the same view and key")
        _read_nothing_of_noise(attack, view, truth)
        tried += [found] if found.outcome != Outcome.NOT_APPLICABLE else []
    why = "; ".join(filter(None, (in_words(one.abstained, one.users.size) for one in tried)))
    _demand(
        not tried or any(map(_answers, tried)),
        f"attack {name!r} must answer some client of recordings without a defense, whose uploads determine "
        f"every rating, got no answer ({why or 'and no reason'}); where it does not apply, return "
        "fl.plugins.all_abstain",
    )


def check_defense(defense: Defense) -> None:
    """Hold a defense against what every defense must do.

    It inherits ``Defense``; it can be sent to a worker process; what the manifest tells
    has its name and is JSON; the attacks that adapt to it exist; ``uploaded`` gives finite rows of the
    clients whom it was given, the same for the same seed, whoever else takes part, and leaves what it was
    given as it was.

    Parameters
    ----------
    defense : Defense

    Raises
    ------
    AssertionError
        Naming the rule that is broken.

    Examples
    --------
    >>> from defenses.row_noise import Laplace
    >>> check_defense(Laplace())
    """
    _demand(
        isinstance(defense, Defense), f"a defense inherits `factorleak.plugins.Defense`, got {defense!r:.200}"
    )
    name = _common(defense)
    told = defense.public()
    _demand(told.get("name") == name, f"public() of defense {name!r} must have its name, got {told!r:.200}")
    _demand(json.loads(json.dumps(told)) == told, f"public() of defense {name!r} must be JSON")
    for attacker in defense.attackers:
        make_attack(attacker.name)
        _demand(attacker.rounds >= 1, f"attackers of defense {name!r} must watch at least one round")
    for victim, options in RECORDED:
        run = start(make_victim(victim, options), _ratings(), (), KEY)
        _of_rows(defense, run)


def _of_rows(defense: Defense, run: Run) -> None:
    everyone = np.arange(run.ratings.n_users)
    formed = _joined(sent_rows(run, everyone, 0))
    before = [getattr(formed, column).copy() for column in COLUMNS]
    sent = defense.uploaded(formed, run.ratings, 0, KEY)
    rule = f"uploaded() of defense {defense.name!r} must"
    unchanged = all(
        np.array_equal(getattr(formed, column), old) for column, old in zip(COLUMNS, before, strict=True)
    )
    _demand(unchanged, f"{rule} leave the rows that it is given as they are")
    _demand(bool(np.isfinite(sent.gradient).all()), f"{rule} give finite numbers")
    _demand(sent.gradient.shape == (sent.sender.size, formed.gradient.shape[1]), f"{rule} keep the width")
    _demand(bool(np.isin(sent.sender, everyone).all()), f"{rule} give rows of the clients whom it is given")
    again = defense.uploaded(formed, run.ratings, 0, KEY)
    _demand(_same_rows(sent, again), f"{rule} give the same rows for the same seed")
    some = everyone[::2]
    alone = defense.uploaded(_joined(sent_rows(run, some, 0)), run.ratings, 0, KEY)
    kept = np.isin(sent.sender, some)
    mine = replace(sent, **{column: getattr(sent, column)[kept] for column in COLUMNS})
    _demand(_same_rows(mine, alone), f"{rule} treat a client alike whoever else takes part")


def _common(component: Attack | Defense) -> str:
    name = component.name
    _demand(isinstance(name, str) and bool(name), f"a component has a name, got {name!r}")
    try:
        copy = pickle.loads(pickle.dumps(component))
    except Exception as error:
        raise AssertionError(f"{name!r} must be picklable for worker processes: {error}") from error
    _demand(copy == component, f"{name!r} must equal its pickled copy; a frozen dataclass does")
    return name


def _read_nothing_of_noise(attack: Attack, view: View, truth: Truth) -> None:
    """Which items are rated is in the open where only those have rows: that is no finding."""
    dealt = view.shuffled(KEY)
    if dealt is None:
        return
    found = attack.attack(dealt, KEY)
    if not found.applies:
        return
    for one in score(found, view.manifest, truth):
        listed = view.manifest.weighting == "observed-only" and one.metric.startswith(("rated_set", "tpr"))
        chance = one.summary.p_value
        _demand(
            listed or not (chance < BY_CHANCE and one.summary.advantage_low > 0),
            f"attack {attack.name!r} must read nothing where gradients are dealt out anew, got "
            f"{one.metric} {one.summary.value:.3f} beside {one.summary.baseline:.3f} (p = {chance:.1g})",
        )


def _answers(found: Reconstruction) -> bool:
    """Whether anything is said of any client, in blocks or beside them."""
    lengths = found.scope == Scope.LIST_LENGTHS and len(found.abstained) < found.users.size
    beside = lengths or found.factors is not None or found.linked is not None
    return beside or any(bool((~np.isnan(block.value)).any()) for block in found.blocks)


def _recordings() -> Iterator[tuple[View, Truth]]:
    """What a server sees of a few clients, under two protocols."""
    for victim, options in RECORDED:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "recording"
            record(make_victim(victim, options), _ratings(), path, rounds=ROUNDS, seed=KEY)
            yield open_transcript(path).view("server"), read_truth(truth_path(path))


def _ratings() -> Ratings:
    return generate(Synthetic(users=24, items=30, ratings_per_user=8.0, seed=KEY))


def _joined(batches: Iterator[Rows]) -> Rows:
    """The rows of all clients as one batch."""
    given = list(batches)
    if len(given) == 1:
        return given[0]
    columns = {name: np.concatenate([getattr(one, name) for one in given]) for name in COLUMNS}
    return replace(given[0], **columns)


def _alike(first: Reconstruction, second: Reconstruction) -> bool:
    if first.abstained != second.abstained or len(first.blocks) != len(second.blocks):
        return False
    pairs = zip(first.rows(), second.rows(), strict=True)
    return all(
        np.array_equal(a, b, equal_nan=True) for one, other in pairs for a, b in zip(one, other, strict=True)
    )


def _same_rows(first: Rows, second: Rows) -> bool:
    return all(np.array_equal(getattr(first, column), getattr(second, column)) for column in COLUMNS)


def _demand(holds: bool, rule: str) -> None:
    if not holds:
        raise AssertionError(rule)
