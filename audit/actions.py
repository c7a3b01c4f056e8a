"""What the face and the command line do: record, attack, score and report once; and the face's grids.

``audit``, ``sweep`` and ``compare`` are given what Python users give, components as names or objects, and
make plans of it, as the command line makes them of texts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from attacks.base import Attack, Foreseeing, Identities, Reconstruction
from attacks.identify.identification import Identification
from attacks.identify.identify import identify
from audit.components import defense_texts, named, named_attacks, several
from audit.experiments import plan as plans
from audit.experiments.answers import answered_or_refused, complaints, lent
from audit.experiments.options import CLIENTS, NAME, SEED, WATCHED
from audit.experiments.results import COLUMNS, RUN_FILE, Row, facts_of, file_of, finite, rows_of
from audit.factories import make_attack
from audit.keys import view_of
from audit.plugins import said
from audit.rating_data import as_real, label_of, ratings_of, sample_of
from audit.scoring.ceiling import Ceiling
from audit.scoring.clients import Client, client_table, clients_of
from audit.scoring.decoder import ceilings, obstacle
from audit.scoring.files import read_reconstruction
from audit.scoring.pseudonyms import Senders, senders_of
from audit.scoring.reliability import Bin, reliability
from audit.scoring.score import score as score_reconstruction
from audit.scoring.truth import Truth, read_truth
from audit.scoring.verdicts import as_record
from audit.shell.progress import Silent, progress
from victims.common.errors import InputError
from victims.common.files import refuse_unwritable
from victims.common.seeds import Purpose
from victims.common.validation import or_none, require
from victims.data.ratings import Ratings
from victims.protocols.base import Defense, Victim
from victims.recording import record as run_and_record
from victims.transcript.adversaries import names_of
from victims.transcript.beside import truth_path
from victims.transcript.manifest import Manifest
from victims.transcript.reader import open_transcript
from victims.transcript.recorded import Transcript
from victims.transcript.view import View

if TYPE_CHECKING:
    import pandas as pd

    from audit.experiments.runner import Experiment
    from reports.page.content import Page

BY_DEFAULT = ("spectral", "undeclared", "aggregate")
"""Where no attack is named, the first of these that applies: a known step, any step, decrypted sums."""


def record(
    victim: Victim,
    load: Callable[[], Ratings],
    out: Path,
    report: Callable[[int, int], None] = lambda done, total: None,
    *,
    rounds: Sequence[int],
    users: int | None = None,
    defenses: Sequence[Defense] = (),
    seed: int = 0,
) -> Ratings:
    """Write the transcript, the truth and, under encryption, the key beside it."""
    require("a recording", "rounds", rounds, WATCHED, "the default is 4, 5")
    require("a recording", "users", users, or_none(CLIENTS), "the default is none")
    require("a recording", "seed", seed, SEED, "the default is 0")
    refuse_unwritable(out)
    ratings = load()
    kept = sample_of(np.arange(ratings.n_users), users, Purpose.RECORDED_CLIENTS, seed)
    try:
        run_and_record(
            victim, ratings, out, rounds=rounds, users=kept, defenses=defenses, seed=seed, progress=report
        )
    except SystemExit as error:
        raise InputError(f"a victim or defense must not end the program, got {said(error)}") from error
    return ratings


@dataclass(frozen=True)
class Attacked:
    """What the attack read, of which view, in how many seconds; the rule that was found, if asked."""

    reconstruction: Reconstruction
    view: View
    seconds: float
    identification: Identification | None = None


def attack(
    target: Transcript | View | Path,
    chosen: object = None,
    report: Callable[[int, int], None] = lambda done, total: None,
    *,
    adversary: str = "server",
    users: int | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    identified: bool = False,
) -> Attacked:
    """Run one attack: by name, which takes ``options``; an object, which has them; or the first that applies.

    ``identified`` attacks under the client rule that the uploads show, not the declared one.
    """
    require("an attack", "adversary", adversary, NAME, "the default is server")
    require("an attack", "users", users, or_none(CLIENTS), "the default is none")
    require("an attack", "seed", seed, SEED, "the default is 0")
    options = dict(options or {})
    if isinstance(chosen, str):
        make_attack(chosen, options)  # a misspelt name comes before opening the transcript
    elif chosen is not None and not isinstance(chosen, Attack):
        raise InputError(
            f"attack must be a name or have the verb of factorleak.plugins.Attack, got {chosen!r:.80}"
        )
    elif options:
        whose = "into the attack that is given as an object" if chosen is not None else "with a named attack"
        raise InputError(f"options go {whose}, got {options}; name it, or leave them out")
    view = view_of_target(target, adversary)
    identification = identify(view) if identified else None
    if identification is not None:
        view = identification.applied(view)
    sample = sample_of(view.users, users, Purpose.ATTACKED_CLIENTS, seed)
    if sample is not None:
        view = view.select(sample)
    if chosen is None:
        chosen = first_that_applies(view)
    start = time.perf_counter()
    if isinstance(chosen, str):
        found = answered_or_refused(chosen, options, view, seed, report)
    else:
        try:
            found = chosen.attack(lent(view), seed, report)
        except (SystemExit, GeneratorExit) as error:
            raise InputError(f"attack {chosen.name!r} must not end the program, got {said(error)}") from error
        for complaint in complaints(found, view):
            raise InputError(f"attack {chosen.name!r} {complaint}")
    seconds = time.perf_counter() - start
    if identification is not None:
        found = replace(found, options={**found.options, "identified": identification.summary()})
    return Attacked(found, view, seconds, identification)


def first_that_applies(view: View) -> str:
    """Find the attack on a view where none is named."""
    for name in BY_DEFAULT:
        attack = make_attack(name)
        if not isinstance(attack, Foreseeing) or not attack.obstacle(view):
            return name
    return BY_DEFAULT[0]


def view_of_target(target: Transcript | View | Path, adversary: str) -> View:
    """What an adversary sees of a recording; a view is what it is."""
    if isinstance(target, View):
        return target
    if not isinstance(target, Transcript | Path):
        raise InputError(f"target must be a recording, its directory or a view of it, got {target!r:.80}")
    recorded = target if isinstance(target, Transcript) else open_transcript(target)
    return view_of(recorded, adversary)


@dataclass(frozen=True)
class Scored:
    """How much of the truth a reconstruction holds."""

    reconstruction: Reconstruction
    manifest: Manifest  # of the transcript that was attacked
    adversary: str
    metrics: list[Row]  # one row for each metric
    bins: list[Bin]  # empty unless reliability was asked for and the attack gave probabilities
    no_ceiling: str  # why there is no ceiling under a defense, or nothing
    clients: list[Client]  # of whom how much is recovered; empty where answers are about nobody by name

    @property
    def rows(self) -> list[Row]:
        """The metrics with the columns of the result table that are known of a single reconstruction."""
        about = {
            "update": self.manifest.rule_name,
            "weighting": self.manifest.weighting,
            "adversary": self.adversary,
            "attack": self.reconstruction.attack,
            "status": "ran",
        }
        return [{**row, **about} for row in self.metrics]

    def content(self, reliability: bool) -> dict[str, Any]:
        """The response as JSON values."""
        found = {
            "attack": self.reconstruction.attack,
            "update": self.manifest.rule_name,
            "weighting": self.manifest.weighting,
            "abstained": {str(user): why for user, why in self.reconstruction.abstained.items()},
            "scores": [finite(row) for row in self.metrics],
        }
        return found | ({"reliability": [one._asdict() for one in self.bins]} if reliability else {})


def score(
    reconstruction: Reconstruction | Path,
    truth: Truth | Path | None = None,
    *,
    transcript: Transcript | Path | None = None,
    adversary: str | None = None,
    with_reliability: bool = False,
    seed: int = 0,
) -> Scored:
    """Score every metric of a reconstruction, as an attack returned it or from a file.

    The truth is by default the file beside the transcript. That is needed for a reconstruction that does not
    come from a file of ours, and for the ceiling of uploads under a defense. Who attacked is by default whom
    the file or the answer itself names, or the server.
    """
    require("a score", "seed", seed, SEED, "the default is 0")
    found, manifest, adversary = _attacked(reconstruction, adversary)
    recorded = open_transcript(transcript) if isinstance(transcript, Path) else transcript
    if recorded is not None:
        manifest = recorded.manifest
    if manifest is None:
        called = str(reconstruction) if isinstance(reconstruction, Path) else "the reconstruction"
        raise InputError(f"{called} does not say which transcript it is about; give --transcript DIR")
    known = _truth(truth, recorded)
    if recorded is not None and found.identities == Identities.CLIENTS:
        known.refuse_unless_about(manifest)
        known.refuse_unless_of(found.users, names_of(recorded.path))
    limits, why = _ceilings(recorded, manifest, adversary, found.users, known)
    senders = _senders(recorded, adversary, found)
    scores = score_reconstruction(found, manifest, known, ceilings=limits, senders=senders, seed=seed)
    bins = reliability(found, manifest, known, seed) if with_reliability else []
    clients = list(clients_of(found.attack, client_table(found, known, scores)))
    return Scored(found, manifest, adversary, [as_record(one) for one in scores], bins, why, clients)


def _attacked(
    given: Reconstruction | Path, adversary: str | None
) -> tuple[Reconstruction, Manifest | None, str]:
    """The reconstruction, and the recording and the adversary as far as its file names them."""
    if not isinstance(given, Reconstruction | Path):
        raise InputError(f"reconstruction must be what an attack returned, or a file, got {given!r:.80}")
    if isinstance(given, Reconstruction):
        said = given.linked.adversary if given.linked is not None else ""
        return given, None, adversary or said or "server"
    stored = read_reconstruction(given)
    if stored.origin is None:
        return stored.reconstruction, None, adversary or "server"
    return stored.reconstruction, stored.origin.manifest, adversary or stored.origin.adversary


def _senders(recorded: Transcript | None, adversary: str, found: Reconstruction) -> Senders | None:
    """Who sent what the adversary got without a sender; None where the recording does not tell it."""
    if recorded is None or found.linked is None:
        return None
    linked, view = found.linked, view_of(recorded, adversary)
    if view.copies is not None and linked.round is not None:
        view = view.during(np.unique(linked.round))
    arrived = 0 if view.copies is None else view.copies.round.size
    if arrived != linked.label.size:
        raise InputError(
            f"the reconstruction says who sent {linked.label.size:,} rows, and {adversary!r} receives "
            f"{arrived:,} in those rounds of {recorded.path}; give adversary and transcript of the attack"
        )
    return senders_of(recorded, view)


def _truth(truth: Truth | Path | None, recorded: Transcript | None) -> Truth:
    if isinstance(truth, Truth):
        return truth
    if truth is None and recorded is None:
        raise InputError(
            "scoring needs the truth: give NAME.truth.arrow, or the transcript that it is beside"
        )
    return read_truth(truth if truth is not None else truth_path(recorded.path))  # type: ignore[union-attr]


def _ceilings(
    recorded: Transcript | None, manifest: Manifest, adversary: str, users: np.ndarray, truth: Truth
) -> tuple[dict[str, Ceiling] | None, str]:
    """The limits of a recording's uploads for the scored clients where they are not known; or why not."""
    if not (manifest.defenses or manifest.withholds_ratings):
        return None, ""
    if recorded is None:
        when = "under a defense" if manifest.defenses else "where ratings are never sent"
        return None, f"{when} it needs the uploads: give --transcript DIR"
    view = view_of(recorded, adversary).select(users)
    why = obstacle(view)
    return (None if why else ceilings(view, truth)), why


def report(
    results: Path,
    out: Path | None = None,
    title: str = "What the traffic gives away",
    style: str = "screen",
) -> tuple[Page, tuple[Path, ...]]:
    """Write the page of a directory of results, or of its ``results.json``, by default beside them.

    What is read is checked as what strangers wrote.
    """
    from audit.experiments.outputs import ADVERSARY, SEES
    from reports.page.content import page_of
    from reports.page.render import STYLES, write_page
    from victims.transcript.adversaries import ADVERSARIES

    if style not in STYLES:
        raise InputError(f"style of a page must be {' or '.join(STYLES)}, got {style!r:.80}")
    source = file_of(results)
    rows = rows_of(source)
    folder = out or source.parent
    refuse_unwritable(folder)
    page = page_of(rows, title, ADVERSARIES | {ADVERSARY: SEES}, facts_of(source.parent / RUN_FILE))
    return page, tuple(write_page(page, folder, style))


def audit(
    data: str | Path | Ratings, out: str | Path | None, show: bool, within: int | float | None, **given: Any
) -> pd.DataFrame:
    """Audit a victim; ``given`` are the fields of ``Audit``."""
    from audit.experiments import auditing

    plan = auditing.settled(_plan(plans.Audit, data, given)[0])
    with _folder(out) as folder, bar("audit", show, even=False) as update:
        rows = auditing.audit(plan, lambda: ratings_of(data), folder, update, within=within).rows
    return _framed(rows)


def audit_recording(
    transcript: Any, out: str | Path | None, show: bool, within: int | float | None, **given: Any
) -> pd.DataFrame:
    """Audit a recording; ``given`` are the fields of ``GivenRecording``."""
    from audit.experiments import auditing

    chosen = named_attacks(given.pop("attacks"), given.pop("attack_options"))
    plan, opened = auditing.opened(
        plans.GivenRecording(transcript, attacks=chosen.names, attack_options=chosen.options, **given)
    )
    with _folder(out) as folder, bar("audit", show, even=False) as update:
        rows = auditing.audit_recording(plan, opened, folder, update, within=within).rows
    return _framed(rows)


def sweep(
    data: str | Path | Ratings,
    out: str | Path | None,
    show: bool,
    jobs: int,
    *,
    transcript: Any,
    truth: Any,
    defense: str | Defense,
    adversary: str,
    **given: Any,
) -> pd.DataFrame:
    """Sweep strengths of a defense and rounds, of a victim or of a recording; ``given`` are the fields of
    ``Sweep``.
    """
    from audit.experiments.sweep import EXPERIMENT

    given["scales"] = tuple(map(as_real, several(given["scales"])))
    if transcript is not None:
        from audit.experiments.recorded_defenses import swept

        plan, here_alone = _plan(plans.Sweep, data, given)
        _refuse_idle(plan, data, "attacks", "scales", "rounds", "sample", "seed", "attack_options")
        swept_one = defense_texts(defense)
        text = "+".join(swept_one.texts)
        asked = swept(plan, _folder_of(transcript), truth, defense=text, adversary=adversary)
        return _defended("sweep", asked, out, show, 1 if here_alone or swept_one.adopted else jobs)
    for name, value in (("truth", truth), ("adversary", adversary), ("defense", defense != "laplace")):
        if value:
            raise InputError(f"{name} is about a recording, which transcript names; leave it out")
    return _grid("sweep", EXPERIMENT, plans.Sweep, data, out, show, jobs, given)


def compare(
    data: str | Path | Ratings,
    out: str | Path | None,
    show: bool,
    jobs: int,
    *,
    transcript: Any,
    truth: Any,
    **given: Any,
) -> pd.DataFrame:
    """Compare defenses of a victim or of a recording; ``given`` are the fields of ``Comparison``."""
    from audit.experiments.comparison import EXPERIMENT

    if transcript is not None:
        from audit.experiments.recorded_defenses import compared

        plan, here_alone = _plan(plans.Comparison, data, given)
        _refuse_idle(plan, data, "defenses", "attacks", "adversaries", "rounds", "seed")
        asked = compared(plan, _folder_of(transcript), truth)
        return _defended("compare", asked, out, show, 1 if here_alone else jobs)
    if truth is not None:
        raise InputError("truth is about a recording, which transcript names; leave it out")
    return _grid("compare", EXPERIMENT, plans.Comparison, data, out, show, jobs, given)


def _folder_of(transcript: Any) -> Any:
    return transcript.path if isinstance(transcript, Transcript) else transcript


def _refuse_idle(plan: Any, data: object, *shared: str) -> None:
    """Refuse what says which victim to run where a recording is given; ``shared`` fields mean something."""
    usual = type(plan)()
    idle = [one.name for one in fields(plan) if getattr(plan, one.name) != getattr(usual, one.name)]
    ratings = ["ratings"] if isinstance(data, Ratings) else []
    for name in ratings + [name for name in idle if name not in shared]:
        raise InputError(f"{name} says what to run, and with transcript nothing is run; leave it out")


def _defended(
    label: str, plan: plans.RecordedDefenses, out: str | Path | None, show: bool, jobs: int
) -> pd.DataFrame:
    from audit.experiments.recorded_defenses import EXPERIMENT

    with _folder(out) as folder, bar(label, show) as update:
        return _framed(EXPERIMENT.run(plan, plan, folder, jobs=jobs, report=update))


def _grid(
    label: str,
    experiment: Experiment[Any, Any, Any, Any],
    kind: type,
    data: str | Path | Ratings,
    out: str | Path | None,
    show: bool,
    jobs: int,
    given: dict[str, Any],
) -> pd.DataFrame:
    plan, here_alone = _plan(kind, data, given)
    plan = experiment.settle(plan)
    with _folder(out) as folder, bar(label, show) as update:
        rows = experiment.run(plan, ratings_of(data), folder, jobs=1 if here_alone else jobs, report=update)
    return _framed(rows)


def _plan(kind: type, data: str | Path | Ratings, given: dict[str, Any]) -> tuple[Any, bool]:
    """A plan, and whether a component of it is known to this process alone."""
    victim = named("victims", given["victim"])
    defenses = defense_texts(given.get("defenses"))
    fields = {**given, "data": label_of(data), "victim": victim.name}
    fields["victim_options"] = {**victim.options, **given["victim_options"]}
    if "defenses" in given:
        fields["defenses"] = defenses.texts
    here_alone = victim.adopted or defenses.adopted
    if "attack_options" in given:
        attacks = named_attacks(given["attacks"], given["attack_options"])
        fields |= {"attacks": attacks.names, "attack_options": attacks.options}
        here_alone |= attacks.adopted
    else:
        fields["attacks"] = tuple(map(str, several(given["attacks"])))
    for name in {"updates", "weightings", "adversaries", "infer"} & given.keys():
        fields[name] = tuple(map(str, several(given[name])))
    for name in {"update", "weighting"} & given.keys():
        fields[name] = "" if given[name] is None else given[name]
    return kind(**fields | {"rounds": several(given["rounds"])}), here_alone


def _framed(rows: Sequence[Row]) -> pd.DataFrame:
    from audit.frames import frame

    return frame(rows, COLUMNS)


def path_or_object(name: str, given: Any) -> Any:
    """A path where one is given; what was made of it stays itself, and None, which many arguments may be."""
    if isinstance(given, str | PathLike):
        return Path(given)
    if given is None or isinstance(given, View | Transcript | Reconstruction | Truth):
        return given
    raise InputError(f"{name} must be a path, or what factorleak read from one, got {given!r:.80}")


@contextmanager
def _folder(out: str | Path | None) -> Iterator[Path]:
    """Where results go; without a name a folder that is removed."""
    if out is not None:
        yield Path(out)
        return
    with TemporaryDirectory(prefix="factorleak-") as folder:
        yield Path(folder)


@contextmanager
def bar(label: str, wanted: bool, even: bool = True) -> Iterator[Any]:
    """A progress bar, or one that shows nothing."""
    if not wanted:
        yield Silent()
        return
    with progress(label, even) as update:
        yield update
