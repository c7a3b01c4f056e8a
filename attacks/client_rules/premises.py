"""What attacks take for granted about the clients' rule, held against what a recording declares.

An attack that judges its own fit may try a rule that nobody declared: where its premise is wrong it
abstains by itself. One that does not judge asks for the declaration.
"""

from __future__ import annotations

from attacks.client_rules.protocols import DECLARED_RULES
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

ONE_STEP = {  # what closed forms, root finding, posteriors and trajectories are about
    "order": ("batch", "a client's factor moves after every rating"),
    "local_steps": (1, "clients take several steps between broadcast and upload"),
    "batch_size": ("all", "a client's factor moves after every batch of its ratings"),
    "loss": ("squared", "the clients' loss is not the square of the error"),
    "link": ("identity", "predictions go through a link function"),
    "clip": ("none", "clients clip their ratings or errors"),
}
FOLLOWED = {"start": ("kept", "a client's factor begins anew in every round")}
NEEDED = ("rule", "order", "local_steps", "batch_size", "reduction", "upload", "loss", "link", "clip")


def unlike(
    view: View,
    *,
    judges: bool = False,
    own_references: bool = False,
    follows: bool = False,
) -> str:
    """Say why the declared rule is not the one that an attack is about."""
    manifest = view.manifest
    follows = follows and manifest.update != "semi-als" and view.rounds.size > 1
    premise = ONE_STEP | (FOLLOWED if follows else {})
    if own_references and steps_after_uploads(view):
        premise = {key: told for key, told in premise.items() if key not in ("order", "batch_size")}
    reason = _declared_otherwise(manifest, premise)
    if reason := reason or _computed_otherwise(view, own_references):
        return reason
    if judges:
        return ""
    needed = (*NEEDED, "start") if follows else NEEDED
    unknown = [name for name in needed if name in manifest.rule.unknown()]
    unknown += [] if manifest.scale_known else ["upload_scale"]
    if unknown:
        names = ", ".join(unknown)
        return f"the clients' rule is not declared ({names}), and this attack does not judge its fit"
    if manifest.update is None:
        return f"the clients' rule {manifest.rule_name} is not one that this attack knows"
    return ""


def steps_after_uploads(view: View) -> bool:
    """Tell whether clients step after every rating, but only once all their rows are sent.

    So it is where the recommender steps at every upload (Hu & Fang 2023): each row is computed at a factor of
    its own, and all of a round with one factor of the client.
    """
    rule = DECLARED_RULES.get(view.manifest.rule_name)
    in_turn = view.messages.reference is not None and view.manifest.rule.order == "per-rating"
    return in_turn and rule is not None and rule.after_server


def _computed_otherwise(view: View, own_references: bool) -> str:
    """Why the rows are errors of other predictions than the broadcast factors give, or nothing."""
    if any(known.bias is not None and known.bias.any() for known in view.broadcasts.values()):
        return "predictions have biases of the items, which this attack does not model; undeclared does"
    if view.messages.reference is not None and not own_references:
        return "rows were computed at factors of their own, and this attack needs those that were broadcast"
    return ""


def _declared_otherwise(manifest: Manifest, premise: dict[str, tuple[object, str]]) -> str:
    rule = manifest.rule
    for key, (assumed, words) in premise.items():
        declared = getattr(rule, key)
        if declared is not None and declared != assumed:
            return f"{words} ({key} {declared}), which this attack does not model"
    if rule.beyond:
        return f"the rule has {rule.beyond[0]}, which this attack does not model"
    return ""
