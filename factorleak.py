"""Measure what the traffic of a federated or decentralised matrix-factorisation recommender gives away.

    import factorleak as fl

    transcript = fl.record("demo", fl.synthetic(users=50), victim="fedmvmf", update="sgd")
    found = fl.attack(transcript, "spectral")
    fl.score(found, transcript=transcript)

Components are given by name (``fl.list_components()``) or as objects; what their authors need lies in
``factorleak.plugins``. Results are pandas data frames of tidy rows, with the columns of ``results.json``.
Everything is loaded when it is first used. The command line is ``python -m factorleak``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

    from attacks.base import Attack, Estimates, Reconstruction
    from attacks.identify.identification import Identification
    from audit.scoring.truth import Truth
    from audit.transcript_check import TranscriptCheck
    from victims.common.errors import InputError, OutputError
    from victims.data.ratings import Ratings
    from victims.protocols.base import Defense, Victim
    from victims.recorders.flower import RecordedGrid
    from victims.recorders.torch import RecordedModule
    from victims.transcript.recorded import Transcript
    from victims.transcript.recorder import Recorder
    from victims.transcript.view import View

    __version__: str

__all__ = [
    "Estimates",
    "InputError",
    "OutputError",
    "Ratings",
    "Reconstruction",
    "RecordedGrid",
    "RecordedModule",
    "Recorder",
    "Transcript",
    "View",
    "attack",
    "audit",
    "audit_recording",
    "check_transcript",
    "compare",
    "identify",
    "list_components",
    "load",
    "main",
    "open_transcript",
    "record",
    "report",
    "score",
    "sweep",
    "synthetic",
]

_LOCATIONS = {
    "attacks.base": ("Estimates", "Reconstruction"),
    "victims.common.errors": ("InputError", "OutputError"),
    "victims.data.ratings": ("Ratings",),
    "victims.recorders.flower": ("RecordedGrid",),
    "victims.recorders.torch": ("RecordedModule",),
    "victims.transcript.reader": ("Transcript",),
    "victims.transcript.recorder": ("Recorder",),
    "victims.transcript.view": ("View",),
}
_MODULE_OF = {name: module for module, names in _LOCATIONS.items() for name in names}
__path__ = [str(Path(__file__).with_name("audit") / "face")]  # where ``factorleak.plugins`` lies
_PACKAGES = ("victims", "defenses", "attacks", "reports", "audit")


if not TYPE_CHECKING:  # to a checker every name would be there

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("factorleak")
        if name == "plugins":
            return import_module("factorleak.plugins")
        if name not in _MODULE_OF:
            lost = "" if name.startswith("_") else _hint(name)
            raise AttributeError(f"module 'factorleak' has no attribute {name!r}{lost}")
        found = getattr(import_module(_MODULE_OF[name]), name)
        globals()[name] = found
        return found

    def _hint(name: str) -> str:
        return "; it is in factorleak.plugins" if name in import_module("factorleak.plugins").__all__ else ""


def __dir__() -> list[str]:
    return sorted([*__all__, "plugins", "__doc__", "__file__", "__name__", "__version__"])


def load(
    data: str | Path,
    *,
    item_components: int | None = None,
    community: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Ratings:
    """Load ratings.

    Parameters
    ----------
    data : str or Path
        ``synthetic`` (``synthetic:users=500,items=800``), the name of a fetched data set, or a path to
        MovieLens 100K, 1M or CSV, FilmTrust, Epinions, or ratings of one's own: CSV, TSV, Parquet, JSON
        lines, or a database.
    item_components : int, optional
        Replace item features by this many principal components, >= 1.
    community : int, optional
        Let a random sample of this many clients be all that there are, >= 1.
    seed : int
        Of that sample.
    **options
        How to read ratings of one's own: ``user``, ``item``, ``rating``, ``time`` (names of columns),
        ``implicit``, ``min_ratings``, ``min_item_ratings``, ``attributes``, ``features``, ``trust`` (files
        beside them), ``table`` (of a database). See the handbook, "Use your own ratings".

    Returns
    -------
    Ratings
        ``notes`` say what was guessed, ``losses`` what was left out and why.

    Raises
    ------
    InputError
        If nothing is there, the format is not recognised, or a row breaks a rule.

    Examples
    --------
    >>> load("synthetic:users=20,items=30,ratings_per_user=8").n_users
    20
    """
    from audit.rating_data import ratings_of

    return ratings_of(data, item_components, community, seed, options)


def synthetic(
    *,
    users: int = 200,
    items: int = 300,
    ratings_per_user: float = 30.0,
    single: float = 0.02,
    factors: int = 4,
    noise: float = 0.5,
    half_stars: bool = False,
    seed: int = 0,
) -> Ratings:
    """Draw synthetic ratings; equal arguments give equal bytes.

    Parameters
    ----------
    users, items : int
        Numbers of users and items, >= 2.
    ratings_per_user : float
        Mean of the log-normal number of ratings, >= 1.
    single : float
        Share of users who rated exactly one item, 0..1.
    factors : int
        Planted dimensions, >= 1.
    noise : float
        Standard deviation of the rating noise, in stars.
    half_stars : bool
        Grid 0.5..5 in half stars instead of 1..5.
    seed : int

    Returns
    -------
    Ratings

    Raises
    ------
    InputError
        If a size is out of range.

    Examples
    --------
    >>> ratings = synthetic(users=20, items=30, ratings_per_user=8)
    >>> ratings.n_users, ratings.n_items, ratings.levels
    (20, 30, (1.0, 2.0, 3.0, 4.0, 5.0))
    """
    from audit.rating_data import as_real
    from victims.data.synthetic import Synthetic, generate

    return generate(
        Synthetic(
            users=users, items=items, ratings_per_user=as_real(ratings_per_user), single=as_real(single),
            factors=factors, noise=as_real(noise), half_stars=half_stars, seed=seed,
        )
    )  # fmt: skip


def record(
    path: str | Path,
    ratings: str | Path | Ratings = "synthetic",
    *,
    victim: str | Victim[Any] = "fedmvmf",
    defenses: str | Defense | Sequence[str | Defense] = (),
    rounds: Sequence[int] = (4, 5),
    users: int | None = None,
    seed: int = 0,
    progress: bool = True,
    **options: Any,
) -> Transcript:
    """Run one victim and keep its transcript.

    Parameters
    ----------
    path : str or Path
        Directory to create. The truth goes to ``NAME.truth.arrow`` beside it, the clients' factors in the
        kept rounds to ``NAME.factors.arrow``, and where uploads are encrypted the clients' key to
        ``NAME.key.json``.
    ratings : str, Path or Ratings
        Ratings, or what ``load`` takes.
    victim : str or Victim
    defenses : str, Defense or sequence
        Applied in this order, as ``"laplace:scale=2"`` or as objects.
    rounds : sequence of int
        Rounds to keep, counted from 0.
    users : int, optional
        Clients to keep, a random sample; everybody takes part in training.
    seed : int
        Every random choice derives from it.
    progress : bool
        Say on standard error how far long work is, and about how long it will take.
    **options
        Hyper-parameters of a victim given by name, as ``update="sgd", factors=8``.

    Returns
    -------
    Transcript

    Raises
    ------
    InputError
        If a name, option or round is wrong, ``path`` exists, or training diverges.
    OutputError
        If ``path`` cannot be written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     ratings = synthetic(users=12, items=20, ratings_per_user=6)
    ...     transcript = record(Path(folder, "demo"), ratings, victim="mf", factors=2, rounds=[0])
    ...     transcript.manifest.protocol, transcript.manifest.rounds
    ('mf', [0])
    """
    from audit import actions
    from audit.components import defenses_of, several, victim_of
    from audit.rating_data import ratings_of

    made, chosen = victim_of(victim, options), defenses_of(defenses)
    with actions.bar("round", progress) as update:
        actions.record(
            made, lambda: ratings_of(ratings), Path(path), update,
            rounds=several(rounds), users=users, defenses=chosen, seed=seed,
        )  # fmt: skip
    return open_transcript(path)


def open_transcript(path: str | Path) -> Transcript:
    """Open and check a transcript directory, recorded here or by another program.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Transcript

    Raises
    ------
    InputError
        Naming file, row and rule, if it is damaged.
    """
    from victims.transcript.reader import open_transcript as opened

    return opened(path)


def attack(
    target: str | Path | Transcript | View,
    attack: str | Attack | None = None,
    *,
    adversary: str = "server",
    users: int | None = None,
    seed: int = 0,
    identified: bool = False,
    progress: bool = True,
    **options: Any,
) -> Reconstruction:
    """Attack a transcript.

    Parameters
    ----------
    target : str, Path, Transcript or View
        A transcript or its directory; a view is attacked as it is.
    attack : str, Attack or None
        None takes ``spectral``, ``undeclared`` where clients take a step that ``spectral`` does not know,
        ``aggregate`` where nothing but sums is seen.
    adversary : str
        Whose view is attacked; see ``list_components("adversaries")``.
    users : int, optional
        Attack a random sample of this many clients.
    seed : int
        Every random choice derives from it.
    identified : bool
        Attack under the client rule that the uploads show (``identify``), not the declared one.
    progress : bool
        Say on standard error how far long work is, and about how long it will take.
    **options
        Options of an attack given by name; see ``list_components("attacks", NAME)``.

    Returns
    -------
    Reconstruction
        Also clients on which the attack abstained, with the reason.

    Raises
    ------
    InputError
        If a name or option is wrong, the transcript is damaged, or it does not hold what the adversary saw.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     ratings = synthetic(users=12, items=20, ratings_per_user=6)
    ...     found = attack(record(Path(folder, "demo"), ratings, victim="mf", rounds=[0]), "guess-majority")
    >>> found.attack, found.users.size
    ('guess-majority', 12)
    """
    from audit import actions

    with actions.bar(str(getattr(attack, "name", attack or "attack")), progress) as update:
        return actions.attack(
            actions.path_or_object("target", target), attack, update,
            adversary=adversary, users=users, seed=seed, options=options, identified=identified,
        ).reconstruction  # fmt: skip


def score(
    reconstruction: str | Path | Reconstruction,
    truth: str | Path | Truth | None = None,
    *,
    transcript: str | Path | Transcript | None = None,
    adversary: str | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Score a reconstruction against the truth, beside the best guess without the transcript.

    Parameters
    ----------
    reconstruction : str, Path or Reconstruction
        As ``attack`` returned it, or a reconstruction file, also of other software.
    truth : str, Path or Truth, optional
        Default: the file beside the transcript.
    transcript : str, Path or Transcript, optional
        What was attacked. A file that ``factorleak attack`` wrote says that itself; the ceiling of uploads
        under a defense needs it in any case.
    adversary : str, optional
        Who attacked; default: whom the file or the answer itself names, or the server.
    seed : int
        Of the bootstrap.

    Returns
    -------
    pandas.DataFrame
        One row for each metric, with value, interval, best guess, ceiling, advantage and verdict.

    Raises
    ------
    InputError
        If a file is damaged or about something else, or it is not said what was attacked.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     ratings = synthetic(users=12, items=20, ratings_per_user=6)
    ...     transcript = record(Path(folder, "demo"), ratings, victim="mf", rounds=[0])
    ...     scores = score(attack(transcript, "guess-majority"), transcript=transcript)
    >>> scores["metric"].tolist()[:3]
    ['rating_accuracy', 'rated_rating_accuracy', 'rating_mae']
    """
    from audit import actions
    from audit.frames import frame

    found = actions.score(
        actions.path_or_object("reconstruction", reconstruction), actions.path_or_object("truth", truth),
        transcript=actions.path_or_object("transcript", transcript), adversary=adversary, seed=seed,
    )  # fmt: skip
    return frame(found.rows)


def audit(
    ratings: str | Path | Ratings = "synthetic",
    *,
    victim: str | Victim[Any] = "fedmvmf",
    attacks: str | Attack | Sequence[str | Attack] = (),
    defenses: str | Defense | Sequence[str | Defense] = (),
    updates: str | Sequence[str] = (),
    weightings: str | Sequence[str] = (),
    rounds: Sequence[int] = (4, 5),
    adversary: str = "server",
    users: int | None = None,
    sample: int = 20,
    seed: int = 0,
    attack_options: Mapping[str, Mapping[str, Any]] | None = None,
    out: str | Path | None = None,
    exhaustive: bool | None = None,
    infer: str | Sequence[str] = (),
    outputs: int = 0,
    trials: int = 0,
    within: float | None = None,
    progress: bool = True,
    **options: Any,
) -> pd.DataFrame:
    """Run a victim in its scenarios, attack it, and score what was read.

    Parameters
    ----------
    ratings : str, Path or Ratings
        Ratings, or what ``load`` takes.
    victim : str or Victim
    attacks : str, Attack or sequence
        Default: those that adapt to the victim and its defenses, and a guess.
    defenses : str, Defense or sequence
        Applied in this order, as ``"laplace:scale=2"`` or as objects.
    updates, weightings : str or sequence of str
        Scenarios are their product; default: all that the victim has.
    rounds : sequence of int
        Rounds that the adversary watches, counted from 0.
    adversary : str
        See ``list_components("adversaries")``.
    users : int, optional
        Clients to record, a random sample; everybody takes part in training.
    sample : int
        Clients for attacks that solve client by client.
    seed : int
        Every random choice derives from it.
    attack_options : mapping of str to mapping, optional
        Options of attacks given by name.
    out : str or Path, optional
        Directory for results; finished cells in it are reused. Default: nothing is kept.
    exhaustive : bool, optional
        Attack also where every question of an attack is answered already. Default: where attacks are named.
    infer : str or sequence of str
        Attributes of users, as ``"gender"``, inferred from what each attack recovers, by an adversary who
        knows ratings and attributes of half of the users; or ``"communities"``, who has most items in
        common with known users.
    outputs : int
        Models, trained on random halves, whose outputs are attacked, too, each with the others as shadows: 8
        or more; 0 for none. Minutes.
    trials : int
        Trainings with one client's rows, and as many without, told apart from all sums: a lower bound of the
        epsilon of dp-fedavg or dp-ftrl, beside what is proved; 0 for none.
    within : float, optional
        Seconds, after which an attack is ended, and what was not reached is NOT TESTED.
    progress : bool
        Say on standard error how far long work is, and about how long it will take.
    **options
        Hyper-parameters of the victim.

    Returns
    -------
    pandas.DataFrame
        One row for each scenario, attack and metric. A cell that failed, does not apply, was not needed or
        not reached is a row with its reason.

    Raises
    ------
    InputError
        If a name or option is wrong.
    OutputError
        If ``out`` cannot be written.

    Examples
    --------
    >>> ratings = synthetic(users=12, items=20, ratings_per_user=6)
    >>> rows = audit(ratings, victim="mf", attacks="guess-majority", rounds=[0], factors=2)
    >>> set(rows["status"])
    {'ran'}
    """
    from audit import actions

    return actions.audit(
        ratings, out, progress, within,
        victim=victim, attacks=attacks, defenses=defenses, updates=updates, weightings=weightings,
        rounds=rounds, adversary=adversary, users=users, sample=sample, seed=seed,
        attack_options=attack_options, exhaustive=exhaustive, infer=infer, outputs=outputs,
        trials=trials,
        victim_options=options,
    )  # fmt: skip


def audit_recording(
    transcript: str | Path,
    *,
    truth: str | Path | None = None,
    attacks: str | Attack | Sequence[str | Attack] = (),
    adversary: str = "",
    sample: int = 20,
    seed: int = 0,
    attack_options: Mapping[str, Mapping[str, Any]] | None = None,
    out: str | Path | None = None,
    exhaustive: bool | None = None,
    within: float | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Run attacks on a recording of any origin, and score what was read.

    Parameters
    ----------
    transcript : str or Path
        A directory that ``Recorder``, ``record`` or another program wrote.
    truth : str or Path, optional
        Default: the file beside it. Without one the rows say for whom there is an answer.
    attacks : str, Attack or sequence
        Default: all.
    adversary : str
        Default: the one who recorded, or the server.
    sample, seed, attack_options, out, exhaustive, within, progress
        As in ``audit``.

    Returns
    -------
    pandas.DataFrame
        One row for each attack and metric. An attack that failed, does not apply, was not needed or not
        reached is a row with its reason.

    Raises
    ------
    InputError
        If the recording is damaged, or a name or option is wrong.
    OutputError
        If ``out`` cannot be written.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> path = mkdtemp() + "/demo"
    >>> ratings = synthetic(users=12, items=20, ratings_per_user=6)
    >>> _ = record(path, ratings, victim="mf", factors=2, rounds=[0])
    >>> set(audit_recording(path, attacks="guess-majority")["status"])
    {'ran'}
    """
    from audit import actions

    return actions.audit_recording(
        actions.path_or_object("transcript", transcript), out, progress, within,
        truth=actions.path_or_object("truth", truth), attacks=attacks, adversary=adversary, sample=sample,
        seed=seed, attack_options=attack_options, exhaustive=exhaustive,
    )  # fmt: skip


def identify(target: str | Path | Transcript | View, *, adversary: str = "server") -> Identification:
    """Find the clients' rule from what they upload, and what of the declaration the uploads contradict.

    Parameters
    ----------
    target : str, Path, Transcript or View
    adversary : str
        Whose view is looked at.

    Returns
    -------
    Identification
        ``rule`` and ``constants`` under the manifest's names; ``contradictions(manifest)``.

    Raises
    ------
    InputError
        If the transcript is damaged, or does not hold what the adversary saw.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> ratings = synthetic(users=12, items=20, ratings_per_user=8)
    >>> found = identify(record(mkdtemp() + "/demo", ratings, victim="fedmf", factors=4, rounds=[0, 1]))
    >>> found.rule["rule"], round(found.constants["client_learning_rate"], 6)
    ('sgd', 0.001)
    """
    from attacks.identify.identify import identify as identified
    from audit.actions import path_or_object, view_of_target

    return identified(view_of_target(path_or_object("target", target), adversary))


def check_transcript(
    transcript: str | Path, *, adversary: str = "", identified: bool = True
) -> TranscriptCheck:
    """Say what a recording holds, what its clients' rule is taken to be, and which attacks apply.

    Parameters
    ----------
    transcript : str or Path
        A directory that ``Recorder``, ``record`` or another program wrote.
    adversary : str
        Whose view attacks are asked about. Default: the one who recorded, or the server.
    identified : bool
        Whether the uploads are asked which rule they follow, which may take minutes.

    Returns
    -------
    TranscriptCheck
        ``facts``, ``rule`` and ``attacks``: tuples of named tuples, which ``pandas.DataFrame`` takes.

    Raises
    ------
    InputError
        If a rule of the format is broken, or the adversary is unknown or was not recorded.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> path = mkdtemp() + "/demo"
    >>> _ = record(path, synthetic(users=12, items=20, ratings_per_user=6), victim="mf", factors=2)
    >>> dict(check_transcript(path).facts)["uploads"].endswith("rows, in the clear")
    True
    """
    from audit.actions import path_or_object
    from audit.transcript_check import check_transcript as checked

    return checked(path_or_object("transcript", transcript), adversary, identified=identified)


def sweep(
    ratings: str | Path | Ratings = "synthetic",
    *,
    transcript: str | Path | Transcript | None = None,
    truth: str | Path | None = None,
    defense: str | Defense = "laplace",
    adversary: str = "",
    victim: str | Victim[Any] = "fedmvmf",
    attacks: str | Attack | Sequence[str | Attack] = ("likelihood", "published"),
    scales: Sequence[float] = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
    rounds: Sequence[int] = (1, 5, 20),
    first: int = 4,
    updates: str | Sequence[str] = (),
    weightings: str | Sequence[str] = (),
    users: int = 120,
    sample: int = 20,
    seed: int = 0,
    attack_options: Mapping[str, Mapping[str, Any]] | None = None,
    jobs: int = -1,
    out: str | Path | None = None,
    progress: bool = True,
    **options: Any,
) -> pd.DataFrame:
    """Measure accuracy against noise scale and rounds watched, under Laplace noise; or on a recording.

    Parameters
    ----------
    ratings : str, Path or Ratings
        Ratings, or what ``load`` takes.
    transcript : str, Path or Transcript, optional
        A recording of any origin: nothing is run, and ``defense`` is applied to its uploads. What training
        would have sent under it is not simulated.
    truth : str or Path, optional
        With ``transcript``. Default: the file beside it.
    defense : str or Defense
        With ``transcript``: whose strength ``scales`` are, such as ``"top-k"``; the default scales then suit
        the recording, the default attacks are those of a moment, and the default rounds are all.
    adversary : str
        With ``transcript``. Default: the one who recorded, or the server.
    victim : str or Victim
    attacks : str, Attack or sequence
        ``published`` is Mai & Pang's procedure with the solver that its Table 6 chose for the scenario.
    scales : sequence of float
        Laplace scales b of the uploads, >= 0; 0 is no noise.
    rounds : sequence of int
        Numbers of consecutive rounds that the server watches, >= 1.
    first : int
        The first of them, counted from 0.
    jobs : int
        Parallel processes; -1 is one per core. Objects whose class no installed package offers run in one.
    updates, weightings, users, sample, seed, attack_options, out, progress
        As in ``audit``.
    **options
        Hyper-parameters of the victim.

    Returns
    -------
    pandas.DataFrame
        One row for each scenario, scale, attack, number of rounds and metric.

    Raises
    ------
    InputError
        If a name, option, scale or number of rounds is wrong.
    OutputError
        If ``out`` cannot be written.
    """
    from audit import actions

    return actions.sweep(
        ratings, out, progress, jobs,
        transcript=actions.path_or_object("transcript", transcript),
        truth=actions.path_or_object("truth", truth), defense=defense, adversary=adversary,
        victim=victim, attacks=attacks, scales=scales, rounds=rounds, first=first, updates=updates,
        weightings=weightings, users=users, sample=sample, seed=seed, attack_options=attack_options,
        victim_options=options,
    )  # fmt: skip


def report(
    results: str | Path, *, out: str | Path | None = None, title: str = "What the traffic gives away"
) -> list[Path]:
    """Write results as one self-contained page, as Markdown, and as figures.

    Parameters
    ----------
    results : str or Path
        Directory of results, or its ``results.json``.
    out : str or Path, optional
        Directory for the page; default: beside the results.
    title : str
        Heading of the page.

    Returns
    -------
    list of Path
        ``report.html``, ``report.md``, and each chart as SVG and PNG.

    Raises
    ------
    InputError
        If there are no results, or they are not rows of results.
    OutputError
        If the page cannot be written.
    """
    from audit import actions

    _, files = actions.report(Path(results), None if out is None else Path(out), title)
    return list(files)


def compare(
    defenses: str | Defense | Sequence[str | Defense],
    ratings: str | Path | Ratings = "synthetic",
    *,
    transcript: str | Path | Transcript | None = None,
    truth: str | Path | None = None,
    victim: str | Victim[Any] = "fedmvmf",
    update: str | None = None,
    weighting: str | None = None,
    attacks: str | Sequence[str] = (),
    adversaries: str | Sequence[str] = (),
    rounds: Sequence[int] = (),
    users: int = 120,
    trained: int = 50,
    runs: int = 3,
    seed: int = 0,
    jobs: int = -1,
    out: str | Path | None = None,
    progress: bool = True,
    **options: Any,
) -> pd.DataFrame:
    """Compare defenses: leakage to each adversary, recommendation quality, cost.

    Parameters
    ----------
    defenses : str, Defense or sequence
        Alternatives: ``"none"``, ``"laplace:scale=2"``, ``"privmvmf"``, several together as ``"a+b"``, or
        objects.
    ratings : str, Path or Ratings
        Ratings, or what ``load`` takes.
    transcript : str, Path or Transcript, optional
        A recording of any origin, to whose uploads the defenses are applied, as in ``sweep``; then
        ``adversaries`` is one, and ranking and bytes are not measured, but the distortion of the sums.
    truth : str or Path, optional
        As in ``sweep``.
    victim : str or Victim
    update : str, optional
        Default: the victim's first.
    weighting : str, optional
        Default: include-unrated where the victim has it.
    attacks : str or sequence of str
        What is tried on every defense; default: what adapts to the victim and to each defense.
    adversaries : str or sequence of str
        Default: five.
    rounds : sequence of int
        Rounds that the adversaries watch, counted from 0; default: as many from the first as the adapted
        attacks use.
    users : int
        Clients to record where nothing is encrypted; else all are.
    trained : int
        Rounds of training before the ranking is measured, >= 1.
    runs : int
        Seeds of the ranking, >= 1.
    jobs : int
        As in ``sweep``.
    seed, out, progress
        As in ``audit``.
    **options
        Hyper-parameters of the victim.

    Returns
    -------
    pandas.DataFrame
        One row for each defense, adversary, attack and metric of leakage, quality or cost.

    Raises
    ------
    InputError
        If a name or option is wrong.
    OutputError
        If ``out`` cannot be written.
    """
    from audit import actions

    return actions.compare(
        ratings, out, progress, jobs,
        transcript=actions.path_or_object("transcript", transcript),
        truth=actions.path_or_object("truth", truth),
        defenses=defenses, victim=victim, update=update, weighting=weighting, attacks=attacks,
        adversaries=adversaries, rounds=rounds, users=users, trained=trained, runs=runs, seed=seed,
        victim_options=options,
    )  # fmt: skip


def list_components(
    group: Literal["victims", "defenses", "attacks", "adversaries"] | None = None, name: str | None = None
) -> pd.DataFrame:
    """List components, or the options of one.

    Parameters
    ----------
    group : str, optional
        ``victims``, ``defenses``, ``attacks`` or ``adversaries``; default: all.
    name : str, optional
        A component of the group, whose options are listed.

    Returns
    -------
    pandas.DataFrame
        Columns group, name and summary; or of one component name, type, default and meaning of its options.

    Raises
    ------
    InputError
        If there is no such group or component.

    Examples
    --------
    >>> list_components("victims")["name"].tolist()[:3]
    ['fedmvmf', 'fedmf', 'decentralised-mf']
    >>> list_components("defenses", "laplace")["name"].tolist()
    ['scale', 'clip', 'known', 'per_message']
    """
    import pandas as pd

    from audit.components import GROUPS, Component, Option, components, options_of

    if group is not None and name is not None:
        return pd.DataFrame(options_of(group, name), columns=list(Option._fields))
    groups = GROUPS if group is None else (group,)
    found = [one for each in groups for one in components(each)]
    return pd.DataFrame(found, columns=list(Component._fields))


def main() -> None:
    """Run the command line: ``factorleak``, also ``python -m factorleak``."""
    from audit.__main__ import main as run

    run()


def _hidden() -> str:
    """Which file hides one of the packages and what to do, or nothing."""
    home = Path(__file__).resolve().parent
    for name in _PACKAGES:
        try:
            spec = find_spec(name)
        except ValueError:  # something without a file was put into sys.modules
            spec = None
        origin = None if spec is None else spec.origin
        if origin is None:
            folders = [*(spec.submodule_search_locations or ())] if spec is not None else []
            if folders:  # as a version that was removed leaves it; it goes before an editable installation
                return (
                    f"{folders[0]} has no __init__.py and hides factorleak's package {name!r}; "
                    "remove or rename that folder"
                )
            return f"factorleak's package {name!r} is not found beside {__file__}; install factorleak again"
        if Path(origin).resolve() != home / name / "__init__.py":
            return (
                f"{origin} hides factorleak's package {name!r}; rename it, or start Python with -P so that "
                "the folder of the script does not come first"
            )
    return ""


if _reason := _hidden():
    if Path(sys.argv[0]).stem == "factorleak":  # the program: one line, and its code for unusable input
        print(f"factorleak: error: {_reason}", file=sys.stderr)
        raise SystemExit(2)
    raise ImportError(_reason)

if __name__ == "__main__":
    main()
