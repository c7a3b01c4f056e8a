"""What the uploads say of the clients' rule, and what of a declaration they contradict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isnan
from typing import Any, NamedTuple

from attacks.client_rules.adaptive_rule import ADAPTIVE
from attacks.client_rules.protocols import CLIENT_RULES, DECLARED_RULES, RIDGES
from attacks.closed_form.uploads.common_scale import ALIKE
from attacks.closed_form.uploads.upload_kind import Mismatch
from attacks.identify.factor_moves import Fit
from attacks.identify.row_rules import RowFit
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

UNLIKE = 0.3  # of how far factors move: a rule that leaves more of most is not the one that moved them
FEW = 0.1  # of the clients: a rule that explains no more is not theirs
NOTHING = 1e-9  # constants below it are 0, up to the digits of the rows that tell them
OPTIMIZERS = tuple(rule.name for rule in ADAPTIVE)
ONE = {"bernoulli": "logistic"}  # names of one loss


class Contradiction(NamedTuple):
    """A key that is declared, and what the rows say instead."""

    key: str
    declared: str
    found: str
    clients: int  # who says so, of how many
    looked_at: int  # who says so, of how many

    def __str__(self) -> str:
        """One sentence."""
        who = f"the rows of {self.clients} of {self.looked_at} clients"
        return f"{self.key} is declared {self.declared}, and {who} say {self.found}"


@dataclass(frozen=True)
class Identification:
    """What the uploads say of the clients' rule.

    Attributes
    ----------
    rule : mapping
        Keys of the manifest's ``rule``, as far as the rows tell them.
    constants : mapping
        Keys of the manifest's ``constants``.
    fits : tuple of Fit
        Every rule that was tried on the clients' factors, the best one first.
    n_clients, n_read : int
        How many clients were looked at, and how many of them were read.
    obstacle : str
        Why nothing can be said of the rule; otherwise empty.
    upload : Mismatch, or None
        What rows are where they are not what ``upload`` declares.
    rows : tuple of RowFit
        What the rows of one round were asked to be, and how each idea does.
    undecided : tuple of str
        Keys of which several values explain the uploads equally well, and which.
    """

    rule: Mapping[str, Any]
    constants: Mapping[str, float]
    fits: tuple[Fit, ...] = ()
    n_clients: int = 0
    n_read: int = 0
    obstacle: str = field(default="", kw_only=True)
    upload: Mismatch | None = field(default=None, kw_only=True)
    rows: tuple[RowFit, ...] = field(default=(), kw_only=True, repr=False)
    undecided: tuple[str, ...] = field(default=(), kw_only=True)

    def __repr__(self) -> str:
        """One line: the rule, and how many clients show it."""
        name = self.rule.get("rule", "unknown")
        return f"Identification({name!r}, {self.n_read} of {self.n_clients} clients read)"

    def contradictions(self, manifest: Manifest) -> tuple[Contradiction, ...]:
        """Declared keys that the rows contradict.

        Parameters
        ----------
        manifest : Manifest
            The declaration.
        """
        told = [
            Contradiction(key, declared, found, self.n_read, self.n_clients)
            for key, declared, found in _contradicted(self, manifest)
        ]
        if self.upload is not None:
            told.append(Contradiction("upload", str(manifest.rule.upload), *self.upload))
        return tuple(told)

    def words(self) -> str:
        """The rule in one line, or why there is none, and what is undecided."""
        told = ", ".join(f"{key} {value}" for key, value in self.rule.items())
        told = told or f"none ({self.obstacle or 'no idea explains the rows'})"
        return told + "".join(f"; undecided: {one}" for one in self.undecided)

    def families(self) -> list[tuple[str, int, int, float | None]]:
        """Families of client programs that explain somebody: clients, of how many, nats where they count."""
        rows = [
            (one.name, one.clients, one.looked_at, None if isnan(one.nats) else one.nats) for one in self.rows
        ]
        return rows + [
            (f"factors moved by {one.rule}", round(one.share * one.n_clients), one.n_clients, None)
            for one in self.fits
            if one.share
        ]

    def summary(self) -> dict[str, Any]:
        """What was found, for files and people."""
        return {
            "rule": dict(self.rule),
            "constants": dict(self.constants),
            "undecided": list(self.undecided),
            "evidence": [str(one) for one in self.rows],
            "clients": self.n_read,
            "looked_at": self.n_clients,
            "obstacle": self.obstacle,
        }

    def applied(self, view: View) -> View:
        """The view under the rule that was found; what the rows do not tell stays as declared.

        Parameters
        ----------
        view : View
        """
        if self.obstacle or not self.rule:
            return view
        manifest = view.manifest
        constants = dict(self.constants)
        if "epochs" in manifest.hyperparameters:  # the rate of these rounds, of a rate that drops
            constants.pop("learning_rate", None)
        declared = dict(manifest.hyperparameters)
        for name in RIDGES if {*RIDGES} & {*constants} else ():  # it counts in one of the two ways
            declared.pop(name, None)
        scale, pull = (constants.pop(name, None) for name in ("upload_scale", "upload_regularization"))
        upload = {} if scale is None else {"scale": scale, "regularization": pull or 0.0}
        changed: dict[str, Any] = {
            "declared_rule": manifest.rule.model_copy(update=dict(self.rule)),
            "hyperparameters": {**declared, **constants},
            "upload": manifest.upload.model_copy(update=upload),
            "scale_known": manifest.scale_known or scale is not None,
        }
        if self.rule.get("rule") in ("sgd", "semi-als"):
            changed["update"] = self.rule["rule"]
        elif self.rule.get("rule") in OPTIMIZERS:
            changed["update"] = None
        return view.declared(**changed)


def _explains(found: Identification, rule: str) -> float:
    """Share of the clients whose factors a rule explains; 1 where it was not tried."""
    return max((fit.share for fit in found.fits if fit.rule == rule), default=1.0)


def _one_kept_step(manifest: Manifest) -> bool:
    """Whether everything is declared that makes the next factor a linear function of what a round shows."""
    rule = manifest.rule
    one = rule.rule == "sgd" and rule.order == "batch" and rule.local_steps == 1 and rule.batch_size == "all"
    return manifest.version > 1 and one and rule.start == "kept" and not rule.beyond


def _declared(manifest: Manifest, key: str) -> Any:
    """Of a key of the rule; None where it is unknown, or names a rule that is nobody's to check."""
    if key != "rule":
        return getattr(manifest.rule, key, None)
    if manifest.version == 1 and CLIENT_RULES.get(manifest.protocol) is DECLARED_RULES["projected-sgd"]:
        return "projected-sgd"
    known = (*DECLARED_RULES, *OPTIMIZERS)
    return manifest.rule.rule if manifest.rule.rule in known else manifest.update


def _contradicted(found: Identification, manifest: Manifest) -> Iterator[tuple[str, str, str]]:
    for key, value in found.rule.items():
        declared = _declared(manifest, key)
        if declared is not None and ONE.get(declared, declared) != value:
            yield key, str(declared), str(value)
    if manifest.update == "semi-als" and "rule" not in found.rule and _explains(found, "semi-als") < FEW:
        yield "rule", "semi-als", "another: next to no factor is the solution that Eq. (8) asks for"
    if _one_kept_step(manifest) and "rule" not in found.rule:
        left = min((fit.left for fit in found.fits if fit.rule == "sgd"), default=0.0)
        if _explains(found, "sgd") < FEW and left > UNLIKE:
            words = (
                "another, or a factor that is drawn anew: next to no factor moves as one step would move it"
            )
            yield "rule", "sgd", words
    public = dict(manifest.hyperparameters)
    if manifest.scale_known:
        public |= {"upload_scale": manifest.upload.scale}
        public |= {"upload_regularization": manifest.upload.regularization}
    for key, number in found.constants.items():
        if key == "learning_rate" and "epochs" in public:
            continue
        if key not in public:
            continue
        declared = public[key]
        size = max(abs(declared), abs(number))
        if size > NOTHING and abs(declared - number) > ALIKE * size:
            # the manifest holds 0 for a regularisation that version 2 leaves out
            unsaid = key == "upload_regularization" and declared == 0 and manifest.version > 1
            yield key, f"{declared:g}" + (", or not at all" if unsaid else ""), f"{number:g}"
