"""What programs do differently from the papers: how clients step before they upload, and what they send.

Every victim takes the same switches. Their defaults are the published protocols; a victim with any other is
recorded as transcript version 2, whose rule declares them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from victims.common.errors import InputError
from victims.common.validation import Rule, between, in_half_open, one_of, positive_share, require_fields
from victims.data.ratings import Ratings
from victims.protocols.exchanged import Attacker, Sample
from victims.protocols.one_server import OneServer, Products
from victims.transcript.client_rule import ClientRule
from victims.transcript.manifest import Manifest, Upload

MOST = 1_000_000  # steps and ratings that a manifest can declare
READERS = (Attacker("undeclared", 2), Attacker("grid"), Attacker("spectral", 2), Attacker("rated-set", 2))
WHOLE = ("gradient", "part-text", "full-text")  # names of uploads of gradients; the last two are FedMF's


@dataclass(frozen=True, kw_only=True)
class Switches(OneServer):
    """The switches; victims inherit them.

    Attributes
    ----------
    order : "batch" or "per-rating"
        Whether the client's factor moves once per step over all its ratings (or ``batch_size`` of them), or
        after every rating.
    local_steps : int
        Passes over the client's ratings between broadcast and upload, >= 1. Uploads of gradients are those of
        the last pass, all at the broadcast factors; otherwise the client's copies of the factors move, too.
    batch_size : int or "all"
        Ratings of one step.
    shuffle : "never", "once" or "rounds"
        Whether clients go through their ratings by ascending item, in an order of their own, or in a new one
        each round.
    reduction : "sum" or "mean"
        Over the ratings of a step; regularization is not divided.
    upload : "gradient", "delta" or "weights"
        What a row is: the gradient, the change of the client's copy of the factor, or that copy.
    row_factor : "before" or "after"
        Whether a row has the client's factor before its step, as a gradient has, or after it.
    participation : float
        Share of the clients that take part in a round, drawn anew each round, in (0, 1].
    dropout : float
        Share of those whose upload is lost, though they stepped, in [0, 1).
    biases : "items", "both" or none
        Whether predictions have biases of the items, which are broadcast, and of the clients. What clients
        upload about biases is each error itself, which leaves nothing to attack: it is not recorded.
    """

    order: Literal["batch", "per-rating"] = "batch"
    local_steps: int = 1
    batch_size: int | Literal["all"] = "all"
    shuffle: Literal["never", "once", "rounds"] = "never"
    reduction: Literal["sum", "mean"] = "sum"
    upload: Literal["gradient", "delta", "weights"] = "gradient"
    row_factor: Literal["before", "after"] = "before"
    participation: float = 1.0
    dropout: float = 0.0
    biases: Literal["items", "both"] | None = None

    @property
    def ratings_of_a_step(self) -> int | None:
        """How many; None for all of them."""
        if self.order == "per-rating":
            return 1
        return None if self.batch_size == "all" else self.batch_size

    @property
    def sends(self) -> Literal["gradient", "delta", "weights"]:
        """What a row is."""
        return "gradient" if self.upload in WHOLE else self.upload

    @property
    def one_step(self) -> bool:
        """Whether clients upload before their factor has moved, and step once."""
        alone = self.local_steps == 1 and self.ratings_of_a_step is None
        return alone and self.row_factor == "before"

    def predictor(self, state: Any, ratings: Ratings, sample: Sample | None = None) -> Products:
        """p . q, and the biases if there are any."""
        products = super().predictor(state, ratings, sample)
        if self.biases is None:
            return products
        clients, items = products.clients, products.items
        of_clients, of_items = np.ones((len(clients), 2)), np.ones((len(items), 2))
        of_clients[:, 0], of_items[:, 1] = state.biases.clients, state.biases.items
        return Products(
            np.concatenate([clients, of_clients], axis=1), np.concatenate([items, of_items], axis=1)
        )

    @property
    def published(self) -> bool:
        """Whether every switch is as the papers have it."""
        own = Switches()
        same = all(getattr(self, f.name) == getattr(own, f.name) for f in fields(own) if f.name != "upload")
        return same and self.upload in WHOLE


def check_switches(
    victim: Any, thing: str, uploads: tuple[str, ...] = ("gradient", "delta", "weights")
) -> None:
    """Refuse values that no switch has, and switches that make no sense together.

    Parameters
    ----------
    victim : Switches
    thing : str
        Its name.
    uploads : tuple of str
        Values of ``upload``.

    Raises
    ------
    InputError
        Naming the switch, the rule, the value and what to do.
    """
    require_fields(
        victim,
        thing,
        order=one_of("batch", "per-rating"),
        local_steps=between(1, MOST),
        batch_size=Rule(
            f"all, or between 1 and {MOST:,}", lambda value: value == "all" or 1 <= value <= MOST
        ),
        shuffle=one_of("never", "once", "rounds"),
        reduction=one_of("sum", "mean"),
        upload=one_of(*uploads),
        row_factor=one_of("before", "after"),
        participation=positive_share(),
        dropout=in_half_open(0, 1),
        biases=one_of(None, "items", "both"),
    )
    switches: Switches = victim
    if switches.order == "per-rating":
        refuse(switches, thing, {"batch_size": "all"}, "order=per-rating steps after every rating")
    if switches.ratings_of_a_step is None:
        refuse(switches, thing, {"shuffle": "never"}, "a step over all ratings has no order of them")
    if switches.sends != "gradient":
        refuse(
            switches,
            thing,
            {"row_factor": "before"},
            f"upload={switches.upload} sends copies of item factors",
        )


def refuse(switches: Any, thing: str, needed: dict[str, Any], why: str) -> None:
    """Refuse switches that another one leaves no choice of.

    Parameters
    ----------
    switches : Switches
    thing : str
        The victim's name.
    needed : mapping of switch to value
    why : str

    Raises
    ------
    InputError
        For the first that has another value.
    """
    for name, value in needed.items():
        given = getattr(switches, name)
        if given != value:
            text = "none" if value is None else value
            raise InputError(f"{name} of {thing} must be {text}, for {why}; got {given}; use {name}={text}")


def declared(
    switches: Switches,
    manifest: Manifest,
    *,
    rate: float | None,
    item_pull: float = 0.0,
    rule: str | None = None,
    more: dict[str, Any] | None = None,
) -> Manifest:
    """A manifest of version 1 as version 2, with the clients' rule of these switches.

    Parameters
    ----------
    switches : Switches
    manifest : Manifest
        Of the published protocol, which says what a gradient is.
    rate : float or None
        gamma of the client's step on its copies; None where it is not one number.
    item_pull : float
        mu of that step, which regularises the copies.
    rule : str, optional
        Name of the rule, where it is not the manifest's ``update``.
    more : mapping, optional
        Keys of the rule that the format does not know.

    Returns
    -------
    Manifest
    """
    upload, known = manifest.upload, True
    if switches.sends != "gradient":
        known = rate is not None
        scale = 1.0 if rate is None else 2 * rate
        pull = 0.0 if rate is None else -2 * rate * item_pull
        upload = Upload(scale=scale, regularization=pull)
    per_rating = switches.order == "per-rating"
    extra: dict[str, Any] = {} if switches.row_factor == "before" else {"row_factor": switches.row_factor}
    extra |= {"client_biases": True} if switches.biases == "both" else {}
    said = ClientRule(
        rule=rule or manifest.update,
        order=switches.order,
        local_steps=switches.local_steps,
        batch_size=1 if per_rating else switches.batch_size,
        reduction=switches.reduction,
        upload=switches.sends,
        rows="all" if manifest.upload.zeros_if_unrated else "rated",
        loss="squared",
        link="identity",
        clip="none",
        moves_items=switches.sends != "gradient",
        start="kept",
        **extra,
        **(more or {}),
    )
    update = manifest.update if rule is None else None
    changes = {"version": 2, "update": update, "upload": upload, "declared_rule": said, "scale_known": known}
    return manifest.model_copy(update=changes)
