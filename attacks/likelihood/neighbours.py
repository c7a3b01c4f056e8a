"""Rows that clients send each other, as uploads that the posterior models: one step at factors that all hold.

PDMFRec (Duriakova et al. 2019) and DMF (Yang et al. 2022) send -e u + alpha v for every rating. In the order
``batch`` all rows of a client in a round are computed at one u, and in the first round after a shared start
at the v that everybody holds. Those are the rows of a federated client that steps once, with a factor of
which nothing is known: e = r - u . v, of DMF with r in 0..1. Noise that is drawn once for a row is in all of
its copies, and over the weight of the edge each of them is the row as it was sent.

Of other rows the model does not hold. In the order ``per-rating`` u moves from row to row; after the first
round a sender's v has moved by its own step and by what reached it, which a receiver does not see; where
starts are private it never knew it; noise of each message has another size in each row once it is over the
weight.
"""

from __future__ import annotations

from dataclasses import replace

from attacks.base import OPTIONAL, Estimates, Reconstruction
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

RULES = ("pdmfrec", "dmf")
PROBABILITIES = ("probability", "rated_probability")  # of ``Estimates``, the same in any unit
MOVED = (
    "rows of neighbours are read in the first round after a shared start alone: later, and after private "
    "starts, their item factors are not those that the adversary holds; watch round 0"
)
PER_MESSAGE = (
    "noise is drawn anew for each message, and over the weights of the edges has another size in each row, "
    "which this attack does not model"
)
MAPPED = "it needs ratings that are mapped to 0..1 by the largest (rating_map max)"


def of_neighbours(view: View) -> bool:
    """Tell whether a view is of a protocol whose clients send rows to each other that this file knows."""
    return view.manifest.rule_name in RULES


def as_uploads(view: View) -> View:
    """The view as if its rows were uploads of clients of whose factor nothing is known."""
    manifest, rule = view.manifest, view.manifest.rule
    known = type(rule).model_validate(rule.model_dump(include=set(type(rule).model_fields)))
    levels = [level / _unit(manifest) for level in manifest.rating_levels]
    return view.declared(declared_rule=known, update="sgd", hyperparameters={}, rating_levels=levels)


def unlike_uploads(view: View) -> str:
    """Say why the rows are not those of ``as_uploads``, beside what the rule declares."""
    manifest = view.manifest
    if any(entry.get("per_message") for entry in manifest.defenses):
        return PER_MESSAGE
    if _mapped(manifest) not in ("", "max"):
        return MAPPED
    own = any(view.rounds.size and int(view.rounds[0]) in held for held in view.holdings.values())
    return MOVED if own or view.rounds.tolist() != [0] else ""


def in_stars(found: Reconstruction, manifest: Manifest) -> Reconstruction:
    """The answers about ``as_uploads`` in the unit of the ratings."""
    unit = _unit(manifest)
    return found if unit == 1 else replace(found, blocks=tuple(_times(one, unit) for one in found.blocks))


def _times(block: Estimates, unit: float) -> Estimates:
    names = ("value", *(name for name in OPTIONAL if name not in PROBABILITIES))
    given = {name: part * unit for name in names if (part := getattr(block, name)) is not None}
    return replace(block, **given)


def _mapped(manifest: Manifest) -> str:
    """How ratings are mapped to 0..1; empty where they are not."""
    if manifest.rule_name != "dmf":
        return ""
    return str((manifest.rule.model_extra or {}).get("rating_map", "unknown"))


def _unit(manifest: Manifest) -> float:
    return manifest.rating_levels[-1] if _mapped(manifest) else 1.0
