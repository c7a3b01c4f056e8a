"""What every victim, defense and attack must do, as checks that other packages call in their own tests.

Each makes small recordings of its own and raises ``AssertionError`` with the rule that is broken. A check
that passes says that the interface is kept, not that a victim learns, a defense hides or an attack reads
much.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from attacks.base import Attack, Outcome, Reconstruction, Scope
from audit.experiments.answers import complaints
from audit.factories import make_attack, make_defenses, make_victim
from audit.scoring.score import score
from audit.scoring.truth import Truth, read_truth
from audit.scoring.verdicts import in_words
from victims.common.errors import InputError
from victims.data.ratings import Ratings
from victims.data.synthetic import Synthetic, generate
from victims.protocols.base import Defense, Rows, Victim
from victims.recording import record
from victims.training import Run, sent_rows, start
from victims.transcript.beside import truth_path
from victims.transcript.reader import open_transcript
from victims.transcript.view import ATTRIBUTE, View

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


def check_victim(victim: Victim) -> None:
    """Hold a victim against what every victim must do.

    It has the verbs of ``Victim`` and can be sent to a worker process. States, rows and recordings follow
    from ratings and seed alone; another seed gives another start, unless its option ``start`` is "constant";
    and no verb changes the state that it is given. Rows are finite, about items and attributes that exist, of
    the clients who are asked, and the same whoever else is asked. The manifest has the sizes of the ratings.
    What ``capabilities`` claims is there: attackers, receivers, predictions, factors for those who are new.
    It takes unrated items that a defense samples, or says why not (``sampling_obstacle``), and refuses
    factors that are not finite. The first attacker that it names recovers nothing where gradients are
    permuted: nothing else that is recorded may give ratings away.

    Parameters
    ----------
    victim : Victim

    Raises
    ------
    AssertionError
        Naming the rule that is broken.

    Examples
    --------
    >>> from audit.factories import make_victim
    >>> check_victim(make_victim("fedmf", {"factors": "3"}))
    """
    _demand(
        isinstance(victim, Victim),
        f"a victim has the verbs of `factorleak.plugins.Victim`, got {victim!r:.200}",
    )
    _equals_its_copy(victim, type(victim).__name__)
    ratings = _ratings()
    manifest = victim.manifest(ratings, list(ROUNDS))
    sizes = manifest.n_users, manifest.n_items, tuple(manifest.rounds)
    expected = ratings.n_users, ratings.n_items, ROUNDS
    _demand(sizes == expected, f"manifest() must have n_users, n_items and rounds {expected}, got {sizes}")
    run = start(victim, ratings, (), KEY)
    _demand(_same(victim.init(ratings, KEY), run.state), "init() must give the same state for the same seed")
    others = run._replace(state=victim.init(ratings, KEY + 1))
    alike = _same(_factors(run), _factors(others))
    _demand(
        not alike or getattr(victim, "start", "") == "constant",
        "init() must give another state for another seed",
    )
    _of_capabilities(run)
    for number in ROUNDS:
        _demand(run.state.round == number, f"state.round must be {number} after so many rounds")
        before, copy = run.state, pickle.loads(pickle.dumps(run.state))
        _of_uploads(run, number)
        run = run.trained(number)
        _demand(_same(before, copy), "no verb may change the state that it is given")
        again = run._replace(state=copy).trained(number)
        _demand(_same(again.state, run.state), "round() must give the same state for the same state")
    _of_samples(victim)
    if hasattr(run.state, "item_factors"):
        lost = run.state._replace(item_factors=np.full_like(np.asarray(run.state.item_factors), np.nan))
        refused = f"round() of {victim!r:.80} must refuse factors that are not finite with an InputError"
        _demand(_refuses(lambda: victim.round(lost, run.ratings)), refused)
    _of_recordings(victim)


def _factors(run: Run) -> tuple[Any, ...]:
    return (*run.victim.broadcast(run.state), run.user_factors(0))


def _of_uploads(run: Run, number: int) -> None:
    everyone, sizes = np.arange(run.ratings.n_users), run.victim.manifest(run.ratings, list(ROUNDS))
    sent = _joined(sent_rows(run, everyone, number))
    _demand(bool(np.isfinite(sent.gradient).all()), "uploads() must give finite numbers")
    limit = np.where(sent.kind == ATTRIBUTE, sizes.n_attributes, sizes.n_items)
    there = ((sent.index >= 0) & (sent.index < limit)).all()
    _demand(bool(there), "uploads() must be about items and attributes that exist")
    alone = _joined(sent_rows(run, everyone[::2], number))
    mine = _of_clients(sent, everyone[::2])
    _demand(_same_rows(mine, alone), "uploads() must give the rows of those asked for, alike whoever else is")


def _of_capabilities(run: Run) -> None:
    can, ratings, state = run.can, run.ratings, run.state
    items = run.victim.broadcast(state)[0]
    _demand(len(run.user_factors(0)) == ratings.n_users, "user_factors() must have a row for each client")
    for attacker in can.attackers:
        make_attack(attacker.name)
        _demand(attacker.rounds >= 1, "attackers of a victim must watch at least one round")
    edges = run.network.edges
    if edges is not None:
        ends = np.concatenate([edges.sender, edges.receiver])
        there = bool(((ends >= 0) & (ends < ratings.n_users)).all())
        _demand(there, "network() must join clients that exist")
    _demand(not can.has_biases or hasattr(state, "biases"), "has_biases asks for state.biases")
    some, predictor = np.arange(3), run.predictor(0)
    scores, pairs = predictor.scores(some), predictor.pairs(some, some)
    _demand(scores.shape == (3, ratings.n_items), "scores() must be a table of clients and items")
    _demand(pairs.shape == (3,), "pairs() must have a prediction for each pair")
    _demand(bool(np.isfinite(scores).all() and np.isfinite(pairs).all()), "predictions must be finite")
    news = {
        "new_clients": (can.new_clients, ratings.attributes),
        "new_items": (can.new_items, ratings.item_features),
    }
    for name, (new, about) in news.items():
        right = new is None or np.shape(new(state, about[:3])) == (3, items.shape[1])
        _demand(right, f"{name} must give factors for each of those who are new")


def _of_samples(victim: Victim) -> None:
    """Unrated items that a defense samples take part, or there is an obstacle, whose words users see."""
    run = start(victim, _ratings(), make_defenses("unrated-sampling:rho=1"), KEY)
    if victim.capabilities.sampling_obstacle:
        _demand(_refuses(lambda: run.sample(0)), "sampling_obstacle must be refused")
        return
    everyone, sample = np.arange(run.ratings.n_users), run.sample(0)
    sent, fewer = (
        _joined(sent_rows(one, everyone, 0, given))
        for one, given in ((run, sample), (start(victim, run.ratings, (), KEY), None))
    )
    _demand(
        sent.sender.size >= fewer.sender.size,
        "uploads() must have rows of sampled items; else say sampling_obstacle",
    )


def _of_recordings(victim: Victim) -> None:
    """Two recordings are alike, and permuted gradients give nothing away."""
    found = []
    with TemporaryDirectory() as folder:
        for name in ("one", "two"):
            path = Path(folder) / name
            record(victim, _ratings(), path, rounds=ROUNDS, seed=KEY)
            found.append(sorted((file.name, file.read_bytes()) for file in path.iterdir()))
        _demand(found[0] == found[1], "two recordings under one seed must be alike, byte by byte")
        opened, truth = open_transcript(path), read_truth(truth_path(path))
        view = opened.view("server" if opened.deliveries is None else "neighbour:0")
        for attacker in victim.capabilities.attackers[:1]:
            _read_nothing_of_noise(make_attack(attacker.name), view, truth)


def _refuses(act: Callable[[], object]) -> bool:
    try:
        act()
    except InputError:
        return True
    return False


def _same(first: Any, second: Any) -> bool:
    """Whether two states hold the same numbers."""
    if isinstance(first, tuple):
        return isinstance(second, tuple) and len(first) == len(second) and all(map(_same, first, second))
    return pickle.dumps(first) == pickle.dumps(second) or bool(np.array_equal(first, second))


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
    mine = _of_clients(sent, some)
    _demand(_same_rows(mine, alone), f"{rule} treat a client alike whoever else takes part")


def _common(component: Attack | Defense) -> str:
    name = component.name
    _demand(isinstance(name, str) and bool(name), f"a component has a name, got {name!r}")
    _equals_its_copy(component, name)
    return name


def _equals_its_copy(component: object, name: str) -> None:
    try:
        copy = pickle.loads(pickle.dumps(component))
    except Exception as error:
        raise AssertionError(f"{name!r} must be picklable for worker processes: {error}") from error
    _demand(copy == component, f"{name!r} must equal its pickled copy; a frozen dataclass does")


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
    parts = {name: [getattr(one, name) for one in given] for name in _columns(given[0])}
    return replace(given[0], **{name: np.concatenate(part) for name, part in parts.items()})


def _of_clients(rows: Rows, users: np.ndarray) -> Rows:
    kept = np.isin(rows.sender, users)
    return replace(rows, **{name: getattr(rows, name)[kept] for name in _columns(rows)})


def _columns(rows: Rows) -> list[str]:
    return [one.name for one in fields(rows) if getattr(rows, one.name) is not None]


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
