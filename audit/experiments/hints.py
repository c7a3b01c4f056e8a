"""What somebody who audits another program's recording should be told beside the results."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from attacks.closed_form.lists.rated_set import RatedSet, rated_items
from audit.experiments.attack_rows import users_of_others
from audit.experiments.plan import Comparison
from audit.factories import make_defenses, make_victim
from audit.scoring.truth import Truth
from victims.data.ratings import Ratings
from victims.protocols.base import Defense
from victims.recording import manifest_of
from victims.transcript.adversaries import CLIENT, names_of, spoken
from victims.transcript.manifest import SAMPLING, Manifest
from victims.transcript.recorded import Transcript
from victims.transcript.view import ITEM, View

RECEIVE = ("server", "server+client", "eavesdropper")  # the uploads of all clients


def other_adversary(opened: Transcript, view: View) -> str:
    """Say whose view is worth an audit, where nothing was sent to the one that was asked about."""
    if view.messages.n_rows or view.anonymous_rows or view.sums:
        return ""
    columns = [*opened.receiver, *opened.anonymous_receiver]
    if opened.deliveries is not None:
        columns.append(opened.deliveries.receiver)
    receiving = np.unique(
        np.concatenate([np.zeros(0, np.int64), *(column[column >= 0] for column in columns)])
    )
    if not receiving.size:
        return ""
    first = int(receiving[0])
    name = spoken(names_of(opened.path).get(first, str(first)))
    return (
        f"Nothing was sent to the {view.adversary}, and something to {receiving.size:,} clients: --adversary "
        f"{CLIENT}{name} shows what one of them sees, --adversary eavesdropper what is on the wire."
    )


def uploads_name_lists(manifest: Manifest, defenses: Iterable[Defense]) -> bool:
    """Tell whether a victim's uploads name the items that clients rated."""
    zeros = manifest.upload.zeros_if_unrated or manifest.senders_hidden
    return not zeros and not any(defense.name == SAMPLING for defense in defenses)


def lists_named_to(plan: Comparison, ratings: Ratings) -> dict[str, tuple[str, ...]]:
    """List, for each defense of a comparison, the adversaries to whom uploads name the rated items."""
    if plan.weighting != "observed-only":
        return {}
    manifest = manifest_of(
        make_victim(plan.victim, {**plan.victim_options, "update": plan.update, "weighting": plan.weighting}),
        ratings,
        list(plan.rounds),
    )
    receive = [name for name in plan.adversaries if name in RECEIVE]
    return {
        text: tuple(receive) for text in plan.defenses if uploads_name_lists(manifest, make_defenses(text))
    }


def lists_open(view: View, truth: Truth | None = None) -> bool:
    """Tell whether uploads name the items that clients rated: rows of these alone, whatever is in them."""
    manifest = view.manifest
    lists = manifest.weighting == "observed-only" and not manifest.unrated_rows
    if not lists or manifest.senders_hidden or not users_of_others(view).size:
        return False
    if truth is not None:
        return _all_rated(view, truth)
    return not RatedSet().obstacle(view) and rated_items(view).all_sent


def _all_rated(view: View, truth: Truth) -> bool:
    """Whether every item that an upload is about was rated by its client."""
    width = max(view.manifest.n_items, truth.ratings.shape[1])
    listed = truth.ratings.tocoo()
    rated = np.unique(truth.users[listed.row].astype(np.int64) * width + listed.col)
    messages = view.messages
    for sender, kind, index in zip(messages.sender, messages.kind, messages.index, strict=True):
        about = (kind == ITEM) & np.isin(sender, truth.users)
        cells = sender[about].astype(np.int64) * width + index[about]
        if not np.isin(cells, rated).all():
            return False
    return True
