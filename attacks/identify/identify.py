"""Which client rule the uploads follow, with what constants, by evidence: for recordings that declare none.

What a client uploads in one round tells its factor and its errors without any rule
(``attacks.identify.client_states``). Over the clients it shows whether they step once or after every rating,
whether rows are sums or means and what multiplies them, and what regularises them; over the factors it shows
which known step moved them (``attacks.identify.rules``). What the rows say is held against what is declared:
a wrong declaration is named, with how many clients contradict it.

What it assumes: uploads of rated items in the clear and without noise, and the rating grid. Where few clients
can be read it says so, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from attacks.base import unreadable
from attacks.closed_form.common_scale import ALIKE, MOST, common, common_scale
from attacks.closed_form.upload_kind import Mismatch, mismatch
from attacks.identify.client_states import ClientStates, states_of
from attacks.identify.rules import Fit, fits
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

CLIENTS, ROUNDS = 200, 4  # that are looked at
LEAST_RATINGS = 4  # of clients that are looked at, if there are such
EXACT = 1e-3  # misfit of rows that are what they are taken for
UNLIKE = 0.3  # of how far factors move: a rule that leaves more of most is not the one that moved them
FEW = 0.1  # of the clients: a rule that explains no more is not theirs


class Contradiction(NamedTuple):
    """A key that is declared, and what the rows say instead.

    Attributes
    ----------
    key, declared, found : str
    clients, looked_at : int
        Who says so, of how many.
    """

    key: str
    declared: str
    found: str
    clients: int
    looked_at: int

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
    """

    rule: Mapping[str, Any]
    constants: Mapping[str, float]
    fits: tuple[Fit, ...] = ()
    n_clients: int = 0
    n_read: int = 0
    obstacle: str = field(default="", kw_only=True)
    upload: Mismatch | None = field(default=None, kw_only=True)

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
        scale, pull = (constants.pop(name, None) for name in ("upload_scale", "upload_regularization"))
        upload = {} if scale is None else {"scale": scale, "regularization": pull or 0.0}
        changed: dict[str, Any] = {
            "declared_rule": manifest.rule.model_copy(update=dict(self.rule)),
            "hyperparameters": {**manifest.hyperparameters, **constants},
            "upload": manifest.upload.model_copy(update=upload),
            "scale_known": manifest.scale_known or scale is not None,
        }
        if self.rule.get("rule") in ("sgd", "semi-als"):
            changed["update"] = self.rule["rule"]
        return replace(view, manifest=manifest.model_copy(update=changed))


def identify(view: View) -> Identification:
    """Find the clients' rule from what they upload.

    Parameters
    ----------
    view : View

    Returns
    -------
    Identification
    """
    reason = unreadable(view)
    if not reason and view.manifest.weighting != "observed-only":
        reason = "rows of unrated items have a weight of their own"
    if reason:
        return Identification({}, {}, obstacle=reason)
    some = _sample(view)
    wrong = mismatch(some)
    states = states_of(some)
    here = states.read.any(axis=0)
    n_clients, n_read = here.size, int(here.sum())
    if n_read < MOST * n_clients:
        obstacle = (
            f"{n_read} of {n_clients} clients sent rows of one step that fit the rating levels, and half "
        )
        obstacle += "of them must have; attacks may read others"
        return Identification({}, {}, (), n_clients, n_read, obstacle=obstacle, upload=wrong)
    rule, constants = _of_rows(states, view.manifest)
    tried = tuple(fits(states))
    if tried and tried[0].share >= MOST:
        best = tried[0]
        rule |= {"rule": best.rule} | ({"start": "kept"} if best.rule == "sgd" else {})
        constants |= best.constants
    elif rule.get("order") == "per-rating":
        rule["rule"] = "sgd"
    return Identification(rule, constants, tried, n_clients, n_read, upload=wrong)


def _sample(view: View) -> View:
    """Some clients, evenly spaced among those with enough ratings, in rounds that follow each other."""
    rounds = max(np.split(view.rounds, np.flatnonzero(np.diff(view.rounds) != 1) + 1), key=len)[:ROUNDS]
    seen = view.during(rounds.tolist())
    count = np.bincount(np.searchsorted(seen.users, np.concatenate(seen.messages.sender)))
    enough = np.flatnonzero(count >= LEAST_RATINGS * rounds.size)
    chosen = enough if enough.size else np.arange(count.size)
    step = max(1, -(-chosen.size // CLIENTS))
    return seen.select(seen.users[chosen[::step]])


def _of_rows(states: ClientStates, manifest: Manifest) -> tuple[dict[str, Any], dict[str, float]]:
    """What the rows of single rounds tell: steps, scale, reduction, regularisation."""
    rule: dict[str, Any] = {}
    constants: dict[str, float] = {}
    read = states.read
    steps, rated, scale = states.steps[read], states.n_rated[read], states.scale[read]
    if np.mean(states.misfit[read] < EXACT) >= MOST:
        rule |= {"loss": "squared", "link": "identity"}
        if np.mean(steps == 1) >= MOST:
            rule |= {"order": "batch", "batch_size": "all", "local_steps": 1}
        elif np.mean((steps == rated) & (steps > 1)) >= MOST:
            rule |= {"order": "per-rating", "local_steps": 1}
    if manifest.rule.reduction == "mean" and manifest.rule.batch_size == "all":
        scale = scale / rated  # the view has made sums of them
    if (shared := common_scale(scale, rated)) is not None:
        constants["upload_scale"] = shared.value * manifest.upload.scale
        # of clients with equally many ratings a sum may be a mean
        rule |= {"reduction": shared.reduction} if np.unique(rated).size > 1 else {}
    pull, share = common(states.pull[read] * (rated if rule.get("reduction") == "mean" else 1))
    if share >= MOST and "upload_scale" in constants:
        constants["upload_regularization"] = manifest.upload.regularization + pull * manifest.upload.scale
    return rule, constants


def _explains(found: Identification, rule: str) -> float:
    """Share of the clients whose factors a rule explains; 1 where it was not tried."""
    return max((fit.share for fit in found.fits if fit.rule == rule), default=1.0)


def _one_kept_step(manifest: Manifest) -> bool:
    """Whether everything is declared that makes the next factor a linear function of what a round shows."""
    rule = manifest.rule
    one = rule.rule == "sgd" and rule.order == "batch" and rule.local_steps == 1 and rule.batch_size == "all"
    return manifest.version > 1 and one and rule.start == "kept" and not rule.beyond


def _contradicted(found: Identification, manifest: Manifest) -> Iterator[tuple[str, str, str]]:
    for key, value in found.rule.items():
        declared = manifest.update if key == "rule" else getattr(manifest.rule, key)
        if declared is not None and declared != value:
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
        if key in public and abs(public[key] - number) > ALIKE * max(abs(public[key]), abs(number)):
            yield key, f"{public[key]:g}", f"{number:g}"
