"""Every victim, defense and attack by name. One line each; other packages add theirs by entry point.

Both become an ``Entry`` with a location "module:class" in the table that ``entries`` gives. Ours are no
entry points themselves: a checkout that is not installed has none, an editable installation has those of
the day it was installed, and a location alone says neither the summary that lists show nor the cost that
plans go by, for which every class would have to be imported.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, field
from typing import Any

from audit.plugins import (
    HERE,
    OURS,
    broken_member,
    imported,
    offered,
    package_of,
)
from victims.common.declarations import did_you_mean
from victims.common.errors import InputError

QUESTIONS = ("ratings", "lists", "attributes")  # that an attack answers, unless it says otherwise
LINKS, LENGTHS, SUMS, POSITIVES = "links", "lengths of lists", "sums of several clients", "positives"


@dataclass(frozen=True)
class Cost:
    """Seconds of an attack on two cores, within a factor of five (``tests/benchmarks/attack_costs.py``)."""

    start: int | float = 1  # with compilation
    client: int | float = 1e-2  # for each client, and for each uploaded row, of all rounds
    row: int | float = 1e-5  # for each client, and for each uploaded row, of all rounds

    def seconds(self, clients: int, rows: int) -> float:
        """Seconds on so many clients and rows."""
        return float(self.start + self.client * clients + self.row * rows)


CHEAP = Cost(0.05, 0, 1e-6)


@dataclass(frozen=True)
class Entry:
    """Where a component lives, without importing it."""

    location: str  # module:class
    summary: str
    fixed: dict[str, Any] = field(default_factory=dict)  # options that the name stands for
    per_client: bool = False  # an attack that solves client by client: it runs on a sample of clients
    whole: bool = False  # an attack that needs every client's rows
    sums: bool = False  # an attack that reads sums, to which others contributed
    unsigned: bool = False  # an attack that reads rows without a sender
    answers: tuple[str, ...] = QUESTIONS  # of an attack: ``QUESTIONS``, or others that nobody else answers
    cost: Cost = Cost()  # of an attack
    serverless: bool = False  # A victim whose clients send to each other
    short: dict[str, str] = field(default_factory=dict)  # other names of options
    # of a defense: the option that a sweep varies, and its values from weak to strong on a recording; those
    # of noise and norms are multiples of the size of what was uploaded (``relative``)
    strength: str = ""
    strengths: tuple[int | float, ...] = ()
    relative: bool = False
    # options under which an encryption shows the same views and numbers at no cost
    ideal: dict[str, str] = field(default_factory=dict)
    recorded_as: str = ""  # the name in results where that is another one
    package: str = ""  # the other package that it comes from, with its version
    refused: str = ""  # why the name cannot be used
    component: type | None = None  # the class itself where this process was given an object of it (``adopt``)

    @property
    def adopted(self) -> bool:
        """Whether no other process knows it."""
        return self.component is not None

    def load(self, what: str) -> type:
        """Import the component, which messages call ``what``."""
        if self.component is not None:
            return self.component
        if self.package:
            return imported(what, self.location, self.package)
        module, _, name = self.location.partition(":")
        return getattr(importlib.import_module(module), name)


GUESSES = "guess-"  # names of attacks that read no number of the transcript


def is_guess(attack: object) -> bool:
    """Tell whether an attack of this name reads nothing: others are held against it, and it proves nothing.

    Examples
    --------
    >>> is_guess("guess-majority"), is_guess("grid")
    (True, False)
    """
    return isinstance(attack, str) and attack.startswith(GUESSES)


def _root(method: str, words: str) -> Entry:
    return Entry(
        "attacks.root_finding.scipy_root:Root",
        f"Mai & Pang's systems, {words}",
        {"method": method},
        True,
        cost=Cost(0.5, 0.1, 0),
    )


def _peers(answers: str, words: str) -> Entry:
    summary = f"what neighbours send each other: {words}"
    return Entry(
        "attacks.peers.attack:Peers", summary, {"answers": answers},
        whole=True, unsigned=True, answers=(*QUESTIONS, LINKS), cost=CHEAP,
    )  # fmt: skip


NOISE: dict[str, Any] = {
    "strength": "scale", "strengths": (0.03, 0.1, 0.3, 1, 3, 10), "relative": True,
}  # fmt: skip
BUILT_IN: dict[str, dict[str, Entry]] = {
    "victims": {
        "fedmvmf": Entry(
            "victims.protocols.fedmvmf:FedMVMF",
            "federated multi-view matrix factorisation (Mai & Pang 2022), four scenarios",
        ),
        "fedmf": Entry(
            "victims.protocols.fedmf:FedMF", "user-level distributed matrix factorisation (Chai et al. 2021)"
        ),
        "decentralised-mf": Entry(
            "victims.protocols.decentralised_mf:DecentralisedMF",
            "matrix factorisation with clients on the unit ball (Hu & Fang 2023)",
            recorded_as="mf",
        ),
        "pdmfrec": Entry(
            "victims.protocols.pdmfrec:PDMFRec",
            "PDMFRec (Duriakova et al. 2019): gradients to similar clients, no server",
            serverless=True,
        ),
        "dpmf-yang": Entry(
            "victims.protocols.dpmf_yang:DPMFYang",
            "DPMF (Yang et al. 2022): explicit and implicit feedback, gradients to those who are trusted",
            serverless=True,
        ),
        "dmf": Entry(
            "victims.protocols.dmf:DMF",
            "matrix factorisation on random walks (Chen et al. 2018, as in Yang et al. 2022), no server",
            serverless=True,
        ),
        "fedrec": Entry(
            "victims.protocols.fedrec:FedRec",
            "F-NCF and F-LightGCN (Yuan et al. 2023): item embeddings, a shared network, positives",
        ),
    },
    "defenses": {
        "laplace": Entry(
            "defenses.row_noise:Laplace",
            "noise of scale b on every uploaded coordinate",
            short={"b": "scale"},
            **NOISE,
        ),
        "gaussian": Entry(
            "defenses.row_noise:Gaussian",
            "normal noise of deviation sigma on every uploaded coordinate",
            short={"sigma": "scale"},
            **NOISE,
        ),
        "clip": Entry(
            "defenses.compression:Clip",
            "the L2 norm of an upload, or of each row, bounded",
            strength="norm",
            strengths=(1, 0.3, 0.1),
            relative=True,
        ),
        "top-k": Entry(
            "defenses.compression:TopK",
            "the largest numbers or rows of an upload alone",
            strength="share",
            strengths=(0.5, 0.2, 0.1, 0.05, 0.02),
        ),
        "quantise": Entry(
            "defenses.compression:Quantise",
            "numbers of a few bits, rounded at random or to the nearest",
            strength="bits",
            strengths=(8, 6, 4, 3, 2),
        ),
        "round": Entry(
            "defenses.compression:Round",
            "numbers of a few decimal digits",
            strength="digits",
            strengths=(4, 3, 2, 1, 0),
        ),
        "dp-fedavg": Entry(
            "defenses.central_noise:CentralNoise",
            "a client's whole upload clipped, noise on the sum of sampled clients (McMahan et al. 2018)",
            {"epoch": "1", "name": "dp-fedavg"},
        ),
        "dp-ftrl": Entry(
            "defenses.central_noise:CentralNoise",
            "a client's whole upload clipped, tree-shared noise on running sums (Kairouz et al. 2021)",
            {"sampling": "1", "name": "dp-ftrl"},
        ),
        "unrated-sampling": Entry(
            "defenses.unrated_sampling:UnratedSampling",
            "rows of some unrated items (Mai & Pang 2022, Eq. 36)",
            strength="rho",
            strengths=(0.5, 1, 2, 5),
        ),
        "stretching": Entry(
            "defenses.heterogeneous:Stretching", "ratings shrunk by privacy weights (Hu & Fang 2023)"
        ),
        "personalized-sampling": Entry(
            "defenses.heterogeneous:PersonalizedSampling",
            "ratings left out at random, by their budgets (Hu & Fang 2023, Eq. 5)",
        ),
        "objective-noise": Entry(
            "defenses.heterogeneous:ObjectiveNoise",
            "Laplace noise that raters share (Hu & Fang 2023, Theorem 3)",
        ),
        "paillier": Entry(
            "defenses.encryption:Paillier",
            "uploads encrypted, sums decrypted by clients (Mai & Pang 2022, Chai et al. 2021)",
            ideal={"ideal": "true"},
        ),
        "compare-hashes": Entry(
            "defenses.compared_broadcasts:ComparedBroadcasts",
            "clients upload nothing where the factors that they were sent differ",
        ),
        "secure-sum": Entry(
            "defenses.encryption:SecureSum",
            "rows masked in pairs, so that nobody sees more than sums over clients",
            strength="min_contributors",
            strengths=(1, 2, 5),
        ),
    },
    "attacks": {
        "spectral": Entry(
            "attacks.closed_form.spectral:Spectral",
            "closed form, all clients at once",
            cost=Cost(0.1, 0, 4e-6),
        ),
        "likelihood": Entry(
            "attacks.likelihood.attack:Likelihood",
            "noisy uploads of any rounds, maximum likelihood or a posteriori",
            cost=Cost(0.5, 0, 1e-5),
        ),
        "trajectory": Entry(
            "attacks.trajectory.attack:Trajectory",
            "clients' start and ratings fitted to several rounds of uploads",
            whole=True,
            cost=Cost(10, 0.03, 0),
        ),
        "grid": Entry(
            "attacks.closed_form.grid.rating_grid:Grid",
            "one round and no update rule: the rating grid tells the length",
            cost=Cost(0.1, 0, 3e-6),
        ),
        "undeclared": Entry(
            "attacks.closed_form.undeclared:Undeclared",
            "one round of clients whose rule nobody declared: any scale, order and batches",
            cost=Cost(0.7, 6e-3, 3e-6),
        ),
        "inversion": Entry(
            "attacks.inversion.attack:Inversion",
            "one round under a differentiable rule: local steps or passes on copies, or a rule of one's own",
            whole=True,
            cost=Cost(1, 0, 2e-4),
        ),
        "imia": Entry(
            "attacks.inversion.imia:IMIA",
            "Yuan et al.'s attack on F-NCF and F-LightGCN: positives, by simulated clients",
            per_client=True,
            answers=("lists",),
            cost=Cost(20, 2, 0),
        ),
        "eq24-printed": Entry(
            "attacks.closed_form.fedmf_eq24:Eq24",
            "Chai et al.'s attack as printed",
            {"form": "printed"},
            cost=CHEAP,
        ),
        "eq24-corrected": Entry(
            "attacks.closed_form.fedmf_eq24:Eq24",
            "Chai et al.'s attack with its slips corrected",
            {"form": "corrected"},
            cost=CHEAP,
        ),
        "aggregate": Entry(
            "attacks.sums.aggregate:Aggregate",
            "sums, decrypted or told by broadcasts, taken apart contributor by contributor",
            whole=True,
            sums=True,
            answers=(*QUESTIONS, SUMS),
            cost=CHEAP,
        ),
        "isolated": Entry(
            "attacks.sums.isolated:Isolated",
            "an active server's: rows of single clients in sums to which all others contribute zeros",
            whole=True,
            sums=True,
            answers=(*QUESTIONS, SUMS),
            cost=CHEAP,
        ),
        "rated-set": Entry(
            "attacks.closed_form.lists.rated_set:RatedSet",
            "which items a client rated, from the lists it uploads and labels of its rows",
            answers=("lists",),
            cost=CHEAP,
        ),
        "peers": Entry(
            "attacks.peers.attack:Peers",
            "what neighbours send each other: rows without a sender linked, and read under pseudonyms",
            whole=True,
            unsigned=True,
            answers=(*QUESTIONS, LINKS),
            cost=CHEAP,
        ),
        "peers-named": _peers("ratings", "ratings of those whom their weights name"),
        "peers-lists": _peers("lists", "rated items of those whom their weights name"),
        "cofactors": Entry(
            "attacks.peers.cofactors:Cofactors",
            "ratings and implicit feedback of DPMF-Yang's users, by those whom they trust",
            answers=(*QUESTIONS, POSITIVES),
            cost=CHEAP,
        ),
        "cofactors-lists": Entry(
            "attacks.peers.cofactors:Cofactors",
            "rated items of DPMF-Yang's users, positives among them",
            {"answers": "lists"},
            answers=("lists", POSITIVES),
            cost=CHEAP,
        ),
        "helper-lists": Entry(
            "attacks.metadata.helper_lists:HelperLists",
            "the lists that a helper is told",
            unsigned=True,
            answers=("lists", LINKS),
            cost=CHEAP,
        ),
        "traffic": Entry(
            "attacks.metadata.traffic:Traffic",
            "lengths of lists, from sealed links",
            unsigned=True,
            answers=(LENGTHS,),
            cost=CHEAP,
        ),
        "root-hybr": _root("hybr", "Powell's hybrid method"),
        "root-broyden2": _root("broyden2", "Broyden's bad method"),
        "root-linearmixing": _root("linearmixing", "scalar Jacobian approximation"),
        "root-df-sane": _root("df-sane", "derivative-free spectral residual method"),
        "root-anderson": _root("anderson", "Anderson mixing"),
        "root-lm": _root("lm", "Levenberg-Marquardt"),
        "root-krylov": _root("krylov", "Newton-Krylov with exact Jacobian products"),
        "guess-uniform": Entry(
            "attacks.metadata.guess:GuessUniform", "every answer equally likely", cost=CHEAP
        ),
        "guess-majority": Entry("attacks.metadata.guess:GuessMajority", "the most common answer", cost=CHEAP),
        "guess-popularity": Entry(
            "attacks.metadata.guess:GuessPopularity", "popularity from the broadcast", cost=CHEAP
        ),
    },
}


# systems that are several defenses at once, with the options that define them
COMBINED: dict[str, dict[str, dict[str, str]]] = {
    "privmvmf": {"unrated-sampling": {"rho": "1"}, "paillier": {}},  # Mai & Pang 2022, section 5
    "hdpmf": {"stretching": {}, "objective-noise": {}},  # Hu & Fang 2023
    "hdpmf-r": {"stretching": {"rescale": "false"}, "objective-noise": {}},
    "pdpmf": {"personalized-sampling": {}, "objective-noise": {"budget": "mean-rated"}},
    "pdpmf-all-pairs": {  # whose t says nothing of who rated what
        "personalized-sampling": {"budget": "mean"},
        "objective-noise": {"budget": "mean"},
    },
    "dpmf-hua": {
        "objective-noise": {"budget": "smallest"}
    },  # Hu & Fang's baseline, and as its program has it
    "dpmf-program": {"objective-noise": {"budget": "smallest-rated", "mixing": "draw"}},
}

# other names of components and combinations
ALIASES: dict[str, dict[str, str]] = {
    "victims": {"mf": "decentralised-mf"},
    "defenses": {"dpmf": "dpmf-hua"},
    "attacks": {},
}


NAME = re.compile(r"[\w.-]+")


def main_name(group: str, name: str) -> str:
    """Look up the name that a component is listed under.

    Examples
    --------
    >>> main_name("victims", "mf"), main_name("victims", "fedmf")
    ('decentralised-mf', 'fedmf')
    """
    return ALIASES[group].get(name, name)


def recorded_name(victim: str) -> str:
    """Look up the name of a victim in results.

    Examples
    --------
    >>> recorded_name("decentralised-mf"), recorded_name("mf"), recorded_name("fedmf")
    ('mf', 'mf', 'fedmf')
    """
    return entry("victims", victim).recorded_as or victim


def entries(group: str) -> dict[str, Entry]:
    """List built-in components and those that installed packages offer under ``factorleak.GROUP``.

    A name that is offered twice, or that a command line could not hold, is refused: nobody could tell which
    of the two has answered.
    """
    found = dict(BUILT_IN[group])
    ours = {*found, *ALIASES[group], *(("none", *COMBINED) if group == "defenses" else ())}
    for name, points in offered(group).items():
        owners = [OURS] if name in ours else []
        owners += [f"{package_of(point)} ({point.value})" for point in points]
        refused = ""
        if len(owners) > 1:
            refused = f"the name is offered by {' and by '.join(owners)}; rename one or uninstall its package"
        elif not NAME.fullmatch(name):
            refused = f"a name must be letters, digits, '-', '_' and '.'; rename it in {owners[0]}"
        package = package_of(points[0])
        found[name] = Entry(points[0].value, f"from {package}", package=package, refused=refused)
    return found | _ADOPTED[group]


_ADOPTED: dict[str, dict[str, Entry]] = {group: {} for group in BUILT_IN}


def adopt(group: str, component: object) -> str:
    """Take up the class of an object in this process, and return its name here."""
    kind = type(component)
    if missing := broken_member(group, component):
        raise InputError(f"{group[:-1]} {kind.__name__} {missing}")
    name = str(getattr(component, "name", kind.__name__.lower()))
    known = entries(group).get(main_name(group, name))
    if known is not None and not known.adopted:
        raise InputError(f"{group[:-1]} {name!r} of {kind.__name__} has the name of another one; rename it")
    location = f"{kind.__module__}:{kind.__qualname__}"
    _ADOPTED[group][name] = Entry(location, "from this program", package=HERE, component=kind)
    return name


def entry(group: str, name: str) -> Entry:
    """Find one component by its name or an older one."""
    known = entries(group)
    name = name if name in known else main_name(group, name)
    if name not in known:
        attack, colon, option = name.partition(":")
        if group == "attacks" and colon and attack in known:  # as defenses are written
            raise InputError(
                f"unknown attack {name!r}; options of an attack stand apart: --option {option} in "
                f"`factorleak attack`, --option {attack}.{option} in `audit` and `sweep`"
            )
        names = [other for other, found in known.items() if not found.refused]
        raise InputError(
            f"unknown {group[:-1]} {name!r}{did_you_mean(name, names)}; known are "
            f"{', '.join(names) or 'none'}; correct it, or install the package that offers it"
        )
    if known[name].refused:
        raise InputError(f"{group[:-1]} {name!r} is refused: {known[name].refused}")
    return known[name]
