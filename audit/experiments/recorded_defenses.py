"""Defenses applied to recorded uploads, and attacked again: what a defense buys on a recording of one's own.

What clients would have sent had they trained under the defense is not known, and not simulated: the rows are
those of the recording, changed as the defense changes rows (``Defense.uploaded``). ``unrated-sampling`` adds
rows of zeros about items that the client's uploads do not name; under ``secure-sum`` the view holds the sums
over all clients of a round, of items that enough of them sent a row of, and no upload, as where everybody
sends a masked vector of all items.

The cost is the distortion of the sums, the server's own use of uploads: ||S' - S|| / ||S|| (L2 over all items
and attributes), S the sum of a round's rows and S' that under the defense, mean over rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int

from attacks.base import RELATIVE, Identities, Reconstruction
from audit.code_identity import defense_code
from audit.experiments import attack_cells
from audit.experiments.answers import SeededAttack
from audit.experiments.attack_cells import Attempt
from audit.experiments.auditing import BEST_GUESS, columns_of, content_of_files, opened, truth_of
from audit.experiments.cells import Cell, Procedure, Say, cell_path, digest
from audit.experiments.ladder import by_cost, is_exhaustive, not_needed
from audit.experiments.options import check, each_once, refuse_idle_options, refuse_too_many
from audit.experiments.plan import Comparison, GivenRecording, RecordedDefenses, Sweep
from audit.experiments.recordings import lists_open
from audit.experiments.results import Row, make_row
from audit.experiments.rows import failed_row, open_row
from audit.experiments.runner import Experiment
from audit.factories import UNDECLARED, make_attack, make_defenses
from audit.keys import view_of
from audit.option_texts import named_options
from audit.registry import entry, is_guess
from audit.scoring.answers import round_ratings
from audit.scoring.ceiling import Ceiling
from audit.scoring.decoder import ceilings, computable
from audit.scoring.truth import Truth
from victims.common.errors import InputError
from victims.data.ratings import Ratings, from_triples
from victims.protocols.base import Defense, Rows, changes
from victims.transcript.kinds import ITEM
from victims.transcript.manifest import SECURE_SUM
from victims.transcript.messages import Messages, Sums, rows_of
from victims.transcript.reader import open_transcript
from victims.transcript.recorded import Transcript
from victims.transcript.view import View

NOT_SIMULATED = (
    "Defenses are applied to the uploads as they were recorded; what training under them would have sent is "
    "not simulated."
)
DISTORTION = "distortion"
MANIFEST = "manifest.json"
ATTACKS = ("rated-set", "spectral", "grid", "aggregate", "likelihood", "undeclared")
ADVISED = ("laplace", "top-k", "quantise")  # families of which a few strengths are tried, from weak to strong
CHEAPEST = ("rated-set", "aggregate")  # beside the attacks that leak, and those that adapt to a defense
N_STRENGTHS = 3  # of each, but the strongest
OF_CLIENTS = ("agreed", "on_device", "set_up", "noise_scale")  # verbs that need what only a client knows


# Defenses on a view


def defended(view: View, defenses: Sequence[Defense], seed: int) -> View:
    """What the adversary would see of the same uploads under some defenses, in their order."""
    if reason := obstacle(view, defenses):
        raise InputError(reason)
    if not defenses:
        return view
    lists = _lists(view)
    messages = rows_of(view.messages, view.messages.in_order())
    rounds = [
        _sent(messages, int(round_), view, defenses, lists, seed) for round_ in np.unique(messages.round[0])
    ]
    entries = [*view.manifest.defenses, *(defense.public() for defense in defenses)]
    changed = replace(
        view,
        manifest=view.manifest.model_copy(update={"defenses": entries}),
        messages=_joined(rounds),
    )
    summed = next((defense for defense in defenses if defense.name == SECURE_SUM), None)
    if summed is None:
        return changed
    fewest: int = getattr(summed, "min_contributors", 1)
    sums = {int(one.round[0][0]): sums_of(one, fewest) for one in rounds}
    none = (np.zeros(0, np.int32),)
    return replace(changed, messages=Messages(none, none, none, none, None), sums=sums)


def obstacle(view: View, defenses: Sequence[Defense]) -> str:
    """Say why defenses cannot be applied to what an adversary sees."""
    if view.members:
        return (
            f"defenses are applied to what clients upload, and the {view.adversary} is one of them; name "
            "--adversary server or eavesdropper"
        )
    if view.messages.gradient is None or not view.messages.n_rows:
        return f"defenses need uploads in the clear, and the {view.adversary} sees none in this recording"
    if view.implicit is not None:
        return "defenses are applied to rows about one table of item factors, and here are two; record one"
    if any(changes(one, "sampled") for one in defenses):
        if view.manifest.upload.zeros_if_unrated:
            return "unrated items cannot be sampled where a row of every item is sent already"
        if view.messages.sequence is not None or view.messages.reference is not None:
            return (
                "unrated items cannot be sampled where each row has an order or a factor of its own, which "
                "those of sampled rows would lack"
            )
    found = (_inapplicable(one, defenses[place + 1 :]) for place, one in enumerate(defenses))
    return next(filter(None, found), "")


def _inapplicable(defense: Defense, after: Sequence[Defense]) -> str:
    """Say why one defense cannot be applied to a recording."""
    if defense.name == SECURE_SUM:
        return f"{SECURE_SUM} must be the last defense, got {after[0].name} after it" if after else ""
    if changes(defense, "cipher"):
        return f"{defense.name} hides all but the sums; on a recording name {SECURE_SUM} in its place"
    if changes(defense, "summed"):
        return (
            f"{defense.name} adds noise to the sums that broadcasts are made of, and a recording's "
            "are made; record the victim under it"
        )
    if needs := [verb for verb in OF_CLIENTS if changes(defense, verb)]:
        return (
            f"{defense.name} acts on what only clients know ({', '.join(needs)}), and a recording does not "
            "hold that; record the victim under it, or compare it there"
        )
    return ""


def _sent(
    messages: Messages, round_: int, view: View, defenses: Sequence[Defense], lists: Ratings, seed: int
) -> Messages:
    """The rows of one round after the defenses, in one chunk."""
    assert messages.gradient is not None
    here = messages.round[0] == round_

    def of(column: Sequence[np.ndarray] | None) -> Any:
        return None if column is None else column[0][here]

    gradient = messages.gradient[0][here].astype(np.float64)
    rows = Rows(
        of(messages.sender), of(messages.kind), of(messages.index), gradient,
        of(messages.sequence), of(messages.reference),
    )  # fmt: skip
    for defense in defenses:
        sample = defense.sampled(lists, round_, seed)
        if sample is not None:
            more = sample.of(np.unique(rows.sender))
            rows = _with_zeros(rows, more.user, more.item)
        rows = defense.uploaded(rows, lists, round_, seed)
    given = {"sequence": rows.sequence, "reference": rows.reference}
    return Messages(
        (np.full(rows.sender.size, round_, np.int32),),
        (rows.sender,), (rows.kind,), (rows.index,), (rows.gradient,),
        **{name: None if column is None else (column,) for name, column in given.items()},
    )  # fmt: skip


def _with_zeros(rows: Rows, sender: Int[np.ndarray, " more"], item: Int[np.ndarray, " more"]) -> Rows:
    """Add rows of zeros about more items, each client's behind its own."""
    senders = np.concatenate([rows.sender, sender.astype(rows.sender.dtype)])
    order = np.argsort(senders, kind="stable")
    kind = np.concatenate([rows.kind, np.full(item.size, ITEM, rows.kind.dtype)])
    index = np.concatenate([rows.index, item.astype(rows.index.dtype)])
    gradient = np.concatenate([rows.gradient, np.zeros((item.size, rows.gradient.shape[1]))])
    return Rows(senders[order], kind[order], index[order], gradient[order])


def _lists(view: View) -> Ratings:
    """Which items the uploads of each client name, in any round, in the place of its ratings."""
    manifest, messages = view.manifest, view.messages
    sender, kind, index = (np.concatenate(one) for one in (messages.sender, messages.kind, messages.index))
    user, item = sender[kind == ITEM], index[kind == ITEM]
    if not item.size:
        raise InputError("defenses are applied to rows about items, and this recording has none")
    return from_triples(
        "uploads", user, item, np.full(item.size, manifest.rating_levels[0]),
        user_ids=np.arange(manifest.n_users), item_ids=np.arange(manifest.n_items),
        levels=tuple(manifest.rating_levels),
    )  # fmt: skip


def _joined(rounds: Sequence[Messages]) -> Messages:
    """Rounds one after the other, a chunk each."""

    def chunks(name: str) -> Any:
        found = [getattr(one, name) for one in rounds]
        return None if found[0] is None else tuple(column[0] for column in found)

    names = ("round", "sender", "kind", "index", "gradient", "sequence", "reference")
    return Messages(**{name: chunks(name) for name in names})


def sums_of(messages: Messages, fewest: int = 1) -> Sums:
    """Sums over the clients of the rows of one round; those of fewer clients are left out."""
    assert messages.gradient is not None
    sender, kind, index = (np.concatenate(one) for one in (messages.sender, messages.kind, messages.index))
    gradient = np.concatenate(messages.gradient)
    key = (kind.astype(np.int64) << 32) | index
    found, at = np.unique(key, return_inverse=True)
    values = np.zeros((found.size, gradient.shape[1]))
    np.add.at(values, at, gradient)
    contributors = np.bincount(np.unique(np.stack([at, sender]), axis=1)[0], minlength=found.size)
    seen = contributors >= fewest
    return Sums(
        (found >> 32).astype(np.int8)[seen], (found & 0xFFFFFFFF).astype(np.int32)[seen], values[seen]
    )


def distortions(before: View, after: View) -> Float[np.ndarray, " rounds"]:
    """Relative L2 error of the summed upload of each round."""
    out = []
    for round_ in before.rounds.tolist():
        was = sums_of(before.during([round_]).messages)
        now = after.sums[round_] if after.sums else sums_of(after.during([round_]).messages)
        error = {key: -value for key, value in _by_key(was)}
        for key, value in _by_key(now):
            error[key] = error.get(key, 0) + value
        size = np.linalg.norm(was.values)
        out.append(np.sqrt(sum(np.sum(one**2) for one in error.values())) / size if size else 0.0)
    return np.array(out)


def _by_key(sums: Sums) -> Iterable[tuple[tuple[int, int], Float[np.ndarray, " K"]]]:
    return zip(zip(sums.kind.tolist(), sums.index.tolist(), strict=True), sums.values, strict=True)


def strengths(defense: str, view: View) -> tuple[int | float, ...]:
    """How strong a defense is tried where nobody says so, from weak to strong, to two digits.

    Noise is a multiple of the root mean square of the uploaded numbers, norms of the median client's.
    """
    _strength_of(defense)
    declared = entry("defenses", defense.partition(":")[0])
    if not declared.relative or view.messages.gradient is None:
        return declared.strengths
    gradient = np.concatenate(view.messages.gradient).astype(np.float64)
    unit = float(np.sqrt(np.mean(gradient**2)))
    if declared.strength == "norm":
        of_row = "of=row" in defense
        owner = np.unique(
            np.stack([np.concatenate(view.messages.round), np.concatenate(view.messages.sender)]),
            axis=1, return_inverse=True,
        )[1].ravel()  # fmt: skip
        squares = np.sum(gradient**2, axis=1)
        unit = float(np.sqrt(np.median(squares if of_row else np.bincount(owner, squares))))
    return tuple(float(f"{unit * factor:.2g}") for factor in declared.strengths)


def of_strength(defense: str, value: int | float) -> str:
    """Write a defense with the value of the option that a sweep varies.

    Examples
    --------
    >>> of_strength("laplace:clip=1", 0.5), of_strength("top-k", 0.1), of_strength("laplace", 0)
    ('laplace:clip=1,scale=0.5', 'top-k:share=0.1', 'none')
    """
    option = _strength_of(defense)
    if option == "scale" and value == 0:
        return "none"
    return f"{defense}{',' if ':' in defense else ':'}{option}={value:g}"


def _strength_of(defense: str) -> str:
    """The option that a sweep of a defense varies."""
    name, options = named_options(defense)
    declared = entry("defenses", name)
    if not declared.strength:
        raise InputError(f"{name} has no strength that a sweep varies; compare takes it with its options")
    for option in options:
        if declared.short.get(option, option) == declared.strength:
            raise InputError(f"--scales are values of {option} of {name}; leave it out of {defense}")
    return declared.strength


def with_strength(text: str) -> str:
    """Write ``laplace:0.1`` as ``laplace:scale=0.1``, also among several.

    Examples
    --------
    >>> with_strength("clip:2+laplace:0.1"), with_strength("none"), with_strength("laplace:b=1")
    ('clip:norm=2+laplace:scale=0.1', 'none', 'laplace:b=1')
    """
    out = []
    for part in text.split("+"):
        name, _, value = part.partition(":")
        short = value and "=" not in value and name != "none" and entry("defenses", name).strength
        out.append(f"{name}:{short}={value}" if short else part)
    return "+".join(out)


def advised(recording: GivenRecording, leaking: Sequence[str]) -> RecordedDefenses:
    """A few defenses of a recording in a few strengths, against attacks that leak and those that adapt."""
    guess = (BEST_GUESS,) if recording.truth is not None else ()
    everywhere = each_once((*guess, *leaking, *CHEAPEST))
    attacks = by_cost(each_once((*everywhere, *ATTACKS)))
    bare = settled(
        RecordedDefenses(
            recording.transcript,
            recording.truth,
            attacks=attacks,
            everywhere=everywhere,
            adversary=recording.adversary,
            sample=recording.sample,
            seed=recording.seed,
            attack_options={name: one for name, one in recording.attack_options.items() if name in attacks},
            exhaustive=False,
        )
    )
    view = seen(bare).view
    texts = [
        of_strength(family, value)
        for family in ADVISED
        for value in strengths(family, view)[-N_STRENGTHS - 1 : -1]
    ]
    hidden = [f"unrated-sampling:rho=1+{texts[1]}", SECURE_SUM]
    possible = [text for text in hidden if not obstacle(view, make_defenses(text))]
    return settled(replace(bare, defenses=(*texts, *possible)))


def compared(plan: Comparison, transcript: Path, truth: Path | None = None) -> RecordedDefenses:
    """Settle a comparison of defenses of a recording; what its plan says of a victim is not looked at."""
    if len(plan.adversaries) > 1:
        names = ", ".join(plan.adversaries)
        raise InputError(f"adversary must be one where a transcript is given, got {names}; run it for each")
    if not plan.defenses:
        raise InputError("a comparison must have a defense at least; name laplace:0.1 or secure-sum, say")
    return settled(
        RecordedDefenses(
            transcript,
            truth,
            plan.defenses,
            plan.attacks,
            adversary="".join(plan.adversaries),
            watched=plan.rounds,
            seed=plan.seed,
        )
    )


def swept(
    plan: Sweep,
    transcript: Path,
    truth: Path | None = None,
    *,
    defense: str = "laplace",
    adversary: str = "",
    ceiling: bool = False,
) -> RecordedDefenses:
    """Settle a sweep of one defense, of strengths that suit the recording where the plan names none."""
    check(plan, "a sweep")
    asked = () if plan.attacks == Sweep.attacks else plan.attacks
    bare = settled(
        RecordedDefenses(
            transcript,
            truth,
            attacks=asked,
            adversary=adversary,
            ceiling=ceiling,
            rounds=() if plan.rounds == Sweep.rounds else plan.rounds,
            sample=plan.sample,
            seed=plan.seed,
            attack_options=plan.attack_options,
        )
    )
    scales = strengths(defense, seen(bare).view) if plan.scales == Sweep.scales else plan.scales
    texts = tuple(of_strength(defense, scale) for scale in scales)
    return settled(replace(bare, defenses=texts, attacks=asked, exhaustive=None))


# The grid


def settled(plan: RecordedDefenses) -> RecordedDefenses:
    """Fill in what is left open, and check every name and number before anything is attacked."""
    check(plan, "a comparison on a recording")
    recording, _ = opened(_given(plan))
    plan = replace(plan, truth=recording.truth, adversary=recording.adversary)
    view = seen(plan).view
    defenses = each_once(("none", *map(with_strength, plan.defenses)))
    made = {text: make_defenses(text) for text in defenses}
    for text, several in made.items():
        if reason := obstacle(view, several):
            raise InputError(f"{text}: {reason}")
    named = [one.name for several in made.values() for defense in several for one in defense.attackers]
    guess = (BEST_GUESS,) if plan.truth is not None else ()  # which has a number for every question
    attacks = each_once(plan.attacks or by_cost(each_once((*guess, *ATTACKS, *named))))
    for name in attacks:
        make_attack(name, plan.attack_options.get(name))
    refuse_idle_options(plan.attack_options, attacks)
    recorded = view.rounds.size
    for count in plan.rounds:
        if not 1 <= count <= recorded:
            raise InputError(f"rounds must be numbers of recorded rounds, 1 to {recorded}, got {count}")
    rounds = plan.rounds or (recorded,)
    refuse_too_many("a comparison", defenses=defenses, rounds=rounds, attacks=attacks)
    return replace(
        plan,
        defenses=defenses,
        attacks=attacks,
        rounds=rounds,
        exhaustive=is_exhaustive(plan.exhaustive, plan.attacks, plan.attack_options),
    )


def _given(plan: RecordedDefenses) -> GivenRecording:
    return GivenRecording(plan.transcript, plan.truth, ATTACKS, plan.adversary, seed=plan.seed)


class Seen(NamedTuple):
    """A recording, and what an adversary sees of it."""

    transcript: Transcript
    view: View


def seen(plan: RecordedDefenses) -> Seen:
    """The recording of a plan, opened once in each process."""
    found = _seen(plan.transcript, plan.adversary, (plan.transcript / MANIFEST).stat().st_mtime_ns)
    return found._replace(view=found.view.during(plan.watched)) if plan.watched else found


@lru_cache(1)
def _seen(path: Path, adversary: str, changed: int) -> Seen:
    transcript = open_transcript(path)
    return Seen(transcript, view_of(transcript, adversary))


def _attacks_on(plan: RecordedDefenses, defense: str) -> list[str]:
    named = {attacker.name for one in make_defenses(defense) for attacker in one.attackers or UNDECLARED}
    whole = not plan.everywhere or defense == "none"
    return [name for name in plan.attacks if whole or name in plan.everywhere or name in named]


def cells_of(plan: RecordedDefenses, given: RecordedDefenses, directory: Path) -> list[Cell[Attempt]]:
    """List the cells: of every defense and watch its distortion, and every attack."""
    transcript, view = seen(plan)
    content = content_of_files(_given(plan))
    columns = columns_of(_given(plan), transcript)
    cells: list[Cell[Attempt]] = []
    for defense, count in product(plan.defenses, plan.rounds):
        identity = {"content": content, "code": defense_code(defense)}
        cost = Attempt(
            "",
            plan.adversary,
            sample=plan.sample,
            seed=plan.seed,
            label=f"{defense}, {count} of {view.rounds.size} rounds",
            columns={**columns, "defense": defense, "rounds": count},
            watched=tuple(view.rounds[:count].tolist()),
            bounded=plan.ceiling and defense != "none",
            scores_alone=True,
            exhaustive=bool(plan.exhaustive),
        )
        attempts = [
            replace(
                cost,
                attack=attack,
                options=plan.attack_options.get(attack, {}),
                label=f"{cost.label}: {attack}",
                columns={**cost.columns, "attack": attack},
            )
            for attack in _attacks_on(plan, defense)
        ]
        batch: list[Cell[Attempt]] = [
            Cell(cost, cell_path(directory, DISTORTION, {**identity, "cost": asdict(cost)})),
            *attack_cells.cells_of(attempts, digest(identity), directory),
        ]
        cells += [replace(cell, together=cost.label, kind="recording", place="here") for cell in batch]
    return cells


@dataclass(frozen=True)
class Prepared:
    """A recording before and after a defense."""

    transcript: Transcript
    before: View
    after: View
    truth: Truth | None
    reference: Truth | None = None  # answers to the undefended recording, where there is no truth
    limits: Mapping[str, Ceiling] | None = None


def _prepare(cell: Cell[Attempt], plan: RecordedDefenses, say: Say) -> Prepared:

    task = cell.task
    say(f"{task.label}: uploads")
    transcript, view = seen(plan)
    before = view.during(task.watched)
    after = defended(before, make_defenses(str(task.columns["defense"])), plan.seed)
    truth = truth_of(_given(plan), transcript)
    if truth is not None:
        bounded = task.bounded and computable(after)
        if bounded:
            say(f"{task.label}: the highest reachable accuracy")
        limits = ceilings(after, truth) if bounded else None
        return Prepared(transcript, before, after, truth, limits=limits)
    say(f"{task.label}: answers to the recording as it is")
    return Prepared(transcript, before, after, None, reference=_reference(plan, before))


_REFERENCES: dict[str, Truth | None] = {}  # the last one of this process


def _reference(plan: RecordedDefenses, view: View) -> Truth | None:
    """The answers of the attack that answers most clients of the undefended recording."""
    names = ("transcript", "adversary", "attacks", "attack_options", "seed")
    key = digest({name: getattr(plan, name) for name in names} | {"watched": view.rounds.tolist()})
    if key not in _REFERENCES:
        _REFERENCES.clear()
        _REFERENCES[key] = _answers(plan, view)
    return _REFERENCES[key]


def _answers(plan: RecordedDefenses, view: View) -> Truth | None:
    best: Truth | None = None
    levels = view.manifest.rating_levels
    for attack in plan.attacks:
        if is_guess(attack) or entry("attacks", attack).per_client:
            continue
        answers = _as_truth(
            SeededAttack(attack, plan.attack_options.get(attack, {}), plan.seed).run(view), levels
        )
        if answers is not None and (best is None or answers.users.size > best.users.size):
            best = answers
        if best is not None and best.users.size == view.users.size:
            break
    return best


def _as_truth(answer: Reconstruction, levels: Sequence[float]) -> Truth | None:
    """Ratings that an attack answers, as if they were true; None where it answers none."""
    if not answer.applies or answer.identities != Identities.CLIENTS or answer.scope in RELATIVE:
        return None
    users, items, values = [], [], []
    for block in answer.blocks:
        kind, index = (np.broadcast_to(part, block.value.shape) for part in (block.kind, block.index))
        value = round_ratings(np.nan_to_num(block.value), levels)
        rated = (kind == ITEM) & (value > 0)
        if block.rating_if_rated is not None:  # which does not say "unrated"
            value = np.where(np.isnan(block.rating_if_rated), value, block.rating_if_rated)
            value = round_ratings(np.maximum(value, levels[0]), levels)
        users.append(np.broadcast_to(block.users[:, None], value.shape)[rated])
        items.append(index[rated])
        values.append(value[rated])
    if not users or not np.concatenate(users).size:
        return None
    known, row = np.unique(np.concatenate(users), return_inverse=True)
    item = np.concatenate(items)
    shape = known.size, int(item.max()) + 1
    ratings = sp.csr_array((np.concatenate(values), (row, item)), shape=shape)
    ratings.sort_indices()
    return Truth(known, ratings, np.zeros((known.size, 0)))


def _measure(cell: Cell[Attempt], prepared: Prepared, say: Say) -> list[Row]:
    task = cell.task
    if task.attack:
        rows, _ = attack_cells.rows_of(
            replace(task, watched=(), bounded=False), prepared.transcript, prepared.truth, say,
            view=prepared.after, reference=prepared.reference, limits=prepared.limits,
        )  # fmt: skip
        return rows
    value = float(distortions(prepared.before, prepared.after).mean())
    cost = make_row(**task.columns, metric=DISTORTION, value=value, status="ran", reason=NOT_SIMULATED)
    named = lists_open(prepared.after, prepared.truth)
    return [cost, *([open_row(**task.columns)] if named else [])]


def _failed(task: Attempt, error: Exception) -> list[Row]:
    return [failed_row(task.columns, error, *(() if task.attack else (DISTORTION, "")))]


def _unneeded(task: Attempt, rows: Sequence[Row]) -> str:
    if task.exhaustive or not task.attack:
        return ""
    mine = [row for row in rows if isinstance(row["attack"], str) and row["attack"]]
    return not_needed(task.attack, mine)


PROCEDURE: Procedure[Attempt, RecordedDefenses, Prepared] = Procedure(
    _prepare, _measure, _failed, unneeded=_unneeded
)
EXPERIMENT = Experiment(settled, cells_of, PROCEDURE)  # what is given is the plan: cells open its recording
