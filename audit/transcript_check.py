"""The request behind ``factorleak transcript check``: what a recording holds, and which attacks apply."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attacks.base import Foreseeing
from attacks.identify.identification import Identification
from attacks.identify.identify import identify
from audit.experiments.recordings import other_adversary, own_rows_alone, rows_of_others
from audit.factories import make_attack
from audit.keys import view_of
from audit.registry import entries, is_guess
from audit.scoring.truth import read_truth
from victims.common.errors import InputError, printable
from victims.transcript.adversaries import called_by_name, names_of
from victims.transcript.beside import key_path, truth_path
from victims.transcript.manifest import ClientRule, Manifest
from victims.transcript.reader import open_transcript
from victims.transcript.recorded import Transcript
from victims.transcript.view import View

DECLARED, SEEN, OF_VERSION_1, FOUND, UNKNOWN = (
    "declared",
    "seen by the recorder in the calls",
    "what version 1 means by this update",
    "found in the rows",
    "not declared: unknown to the adversary",
)
UNRATED_TOO = "include-unrated: every client uploads every item"
CONTRADICTED = "contradicted by the uploads"
NOT_ASKED = "they were not asked"
ROUNDING = 1e-12


class Fact(NamedTuple):
    """Something that a recording holds, in words."""

    name: str
    value: str


class RuleKey(NamedTuple):
    """A key of the clients' rule, what it is taken to be, and why."""

    name: str
    value: str
    source: str


class Applicability(NamedTuple):
    """An attack, whether it will be tried, and the reason where it will not."""

    attack: str
    applies: bool
    reason: str


@dataclass(frozen=True, repr=False)
class TranscriptCheck:
    """What a recording holds.

    Attributes
    ----------
    path : Path
    adversary : str
        Whose view the attacks are asked about.
    facts : tuple of Fact
    rule : tuple of RuleKey
    identified : Identification
        What the uploads say of the rule.
    attacks : tuple of Applicability
        That one applies says that it will look, not that it will find.
    hint : str
        Whose view to ask about where this adversary is sent nothing; otherwise empty.
    """

    path: Path
    adversary: str
    facts: tuple[Fact, ...]
    rule: tuple[RuleKey, ...]
    identified: Identification
    attacks: tuple[Applicability, ...]
    hint: str = ""

    def __repr__(self) -> str:
        """One line: how many attacks apply."""
        applies = sum(one.applies for one in self.attacks)
        return f"TranscriptCheck({str(self.path)!r}, {applies} of {len(self.attacks)} attacks apply)"


def check_transcript(path: Path, adversary: str = "", *, identified: bool = True) -> TranscriptCheck:
    """Open a recording, and ask every attack whether it applies."""
    if not isinstance(path, Path):
        raise InputError(f"transcript must be the directory of a recording, got {path!r:.80}")
    opened = open_transcript(path)
    adversary = opened.adversary(adversary)
    view = view_of(opened, adversary)
    facts = (*_facts(opened), *_adversary(opened, adversary), *_seen(view))
    told = identify(view) if identified else Identification({}, {}, obstacle=NOT_ASKED)
    rule = tuple(_rule(opened, view, told))
    hint = other_adversary(opened, view)
    return TranscriptCheck(path, adversary, facts, rule, told, tuple(_attacks(view)), hint)


def _facts(opened: Transcript) -> Iterator[Fact]:
    """What everybody can see of the recording."""
    manifest, messages = opened.manifest, opened.messages
    yield Fact("format", f"version {manifest.version}, recorded by {manifest.recorded_by}")
    yield Fact("protocol", f"{manifest.protocol}, {manifest.weighting}")
    yield Fact("recorded for", manifest.adversary)
    size = f"{manifest.n_users:,} clients, {manifest.n_items:,} items, {manifest.n_attributes:,} attributes"
    yield Fact("sizes", f"{size}, factors of {manifest.factors} numbers")
    rounds = manifest.rounds
    yield Fact("rounds", f"{len(rounds):,}: {rounds[0]}" + (f" to {rounds[-1]}" if len(rounds) > 1 else ""))
    yield Fact("rating levels", ", ".join(f"{level:g}" for level in manifest.rating_levels[:12]))
    sealed = messages.gradient is None and messages.n_rows > 0
    how = f", {'encrypted' if sealed else 'in the clear'}" if messages.n_rows else ""
    anonymous = opened.anonymous is not None and opened.anonymous.n_rows > 0
    yield Fact("uploads with a sender" if anonymous else "uploads", f"{messages.n_rows:,} rows{how}")
    if opened.anonymous is not None and anonymous:
        yield Fact("without a sender", f"{opened.anonymous.n_rows:,} rows")
    if messages.reference is not None:
        yield Fact("reference factors", "each row has its own")
    if messages.sequence is not None:
        yield Fact("order of rows", "seen by the adversary")
    if opened.deliveries is not None:
        yield Fact("graph of receivers", f"{opened.deliveries.sender.size:,} edges")
    if opened.held:
        yield Fact("factors held by one party", f"{len(opened.held):,} parties")
    if any(known.bias is not None for known in opened.broadcasts.values()):
        yield Fact("biases of items", "broadcast with the factors")
    if opened.implicit is not None:
        yield Fact("second table of item factors", f"{opened.implicit.messages.n_rows:,} rows")
    for kind, count in opened.other.items():
        amount = opened.unread.get(printable(kind))
        said = f"{amount}, held and read by no attack" if amount else f"{count:,} rows that attacks read"
        yield Fact(f"rows of kind {printable(kind)}", said)
    names = [str(entry.get("name", "unnamed")) for entry in manifest.defenses]
    yield Fact("defenses", ", ".join(names) or "none declared")
    yield Fact("truth beside it", _truth_beside(opened))
    if key_path(opened.path).is_file():
        yield Fact("key beside it", "yes")


def _adversary(opened: Transcript, adversary: str) -> Iterator[Fact]:
    """Which client a number is, where the recording keeps names."""
    if called := called_by_name(opened.path, adversary):
        yield Fact("adversary", called)


def _truth_beside(opened: Transcript) -> str:
    """Whether there is one, and whether it is about those who upload."""
    path = truth_path(opened.path)
    if not path.is_file():
        return "no"
    uploading = [np.unique(sender) for sender in opened.messages.sender]
    try:
        read_truth(path).refuse_unless_of(
            np.unique(np.concatenate([np.zeros(0, int), *uploading])), names_of(opened.path)
        )
    except InputError as error:
        return f"yes, but {error}"
    return "yes"


def _seen(view: View) -> Iterator[Fact]:
    """What the adversary has of it."""
    unsigned = f", and {view.anonymous_rows:,} rows without a sender" if view.anonymous_rows else ""
    if view.unplaced_rows:
        unsigned += f", and {view.unplaced_rows:,} about factors that it does not know"
    seen = f"{view.messages.n_rows:,} rows of {view.users.size:,} client{'s' * (view.users.size != 1)}"
    yield Fact(f"the {view.adversary} sees", seen + unsigned)
    if view.messages.n_rows:
        length = np.bincount(np.searchsorted(view.users, np.concatenate(view.messages.sender)))
        yield Fact(
            "rows of a client",
            f"{length.min():,} to {length.max():,}, half of them {np.median(length):,.0f} or less",
        )
    if view.sums:
        yield Fact("decrypted sums", f"in {len(view.sums):,} rounds")


def _rule(opened: Transcript, view: View, identified: Identification) -> Iterator[RuleKey]:
    """Each key of the rule as attacks take it, and what the uploads say of it."""
    keys = [*_declared_rule(opened, view), *_constants(opened.manifest)]
    wrong = {one.key: f"{CONTRADICTED}: {one}" for one in identified.contradictions(view.manifest)}
    told = {**identified.rule, **identified.constants}
    share = f"found in the uploads of {identified.n_read:,} of {identified.n_clients:,} clients"
    for key in keys:
        if key.source == UNKNOWN and key.name in told:
            yield RuleKey(key.name, _shown(told[key.name]), share)
        else:
            yield key._replace(source=wrong.get(key.name, key.source))
    for name in sorted(told.keys() - {key.name for key in keys}):
        yield RuleKey(name, _shown(told[name]), share)


def _shown(value: object) -> str:
    """A constant or a word of the rule as the format writes it; what is 0 but for rounding is 0."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if abs(value) > ROUNDING else "0"
    return str(value)


def _declared_rule(opened: Transcript, view: View) -> Iterator[RuleKey]:
    declared, taken = opened.manifest.rule, view.manifest.rule
    old = opened.manifest.version == 1
    for name in ClientRule.model_fields:
        value = getattr(taken, name)
        source = OF_VERSION_1 if old else SEEN if name in opened.manifest.inferred else DECLARED
        if value is None:
            source = UNKNOWN
        elif getattr(declared, name) is None:
            source = FOUND
        if name == "rows" and opened.manifest.weighting == "include-unrated":
            value, source = "all", UNRATED_TOO
        yield RuleKey(name, "?" if value is None else _shown(value), source)
    for name in taken.beyond:
        yield RuleKey(name, _shown((taken.model_extra or {})[name]), "declared, and not known to the format")


def _constants(manifest: Manifest) -> Iterator[RuleKey]:
    """Numbers that are public."""
    upload = manifest.upload
    if manifest.scale_known:
        yield RuleKey("upload_scale", f"{upload.scale:g}", DECLARED)
        yield RuleKey("upload_regularization", f"{upload.regularization:g}", DECLARED)
    else:
        yield RuleKey("upload_scale", "?", UNKNOWN)
    for name, value in manifest.hyperparameters.items():
        yield RuleKey(name, f"{value:g}", DECLARED)


def _attacks(view: View) -> Iterator[Applicability]:
    """Every attack that reads something, those that apply first."""
    found = []
    for name, one in entries("attacks").items():
        if is_guess(name) or one.adopted:
            continue
        if one.refused:
            found.append(Applicability(name, False, one.refused))
            continue
        seen, attack = rows_of_others(view, name), make_attack(name)
        if not isinstance(attack, Foreseeing):
            found.append(Applicability(name, True, "it does not say beforehand"))
            continue
        reason = ("" if one.sums or one.unsigned else own_rows_alone(seen)) or attack.obstacle(seen)
        found.append(Applicability(name, not reason, reason))
    yield from sorted(found, key=lambda one: not one.applies)
