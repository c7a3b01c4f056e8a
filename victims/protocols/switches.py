"""What programs do differently from the papers: how clients step before they upload, and what they send.

Every victim takes the same switches, or refuses one with a reason (``server_switches``, ``peer_switches``).
Their defaults are the published protocols; a victim with any other is recorded as transcript version 2, whose
rule declares them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from victims.common.errors import InputError
from victims.common.validation import Rule, between, in_half_open, one_of, positive_share, require_fields
from victims.transcript.client_rule import ClientRule

MOST = 1_000_000  # steps and ratings that a manifest can declare
WHOLE = ("gradient", "part-text", "full-text")  # names of uploads of gradients; the last two are FedMF's


@dataclass(frozen=True, kw_only=True)
class Switches:
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
        upload about the items' biases is each error times the rate, in the clear: recordings have it as rows
        of kind ``item-bias``, and defenses of uploads are refused.
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

    @property
    def published(self) -> bool:
        """Whether every switch is as the papers have it."""
        own = default_switches(self)
        return all(getattr(self, name) == own[name] for name in own if name != "upload") and (
            self.upload in WHOLE
        )

    @property
    def everybody(self) -> bool:
        """Whether all clients take part in every round, and all are heard."""
        return self.participation == 1 and self.dropout == 0


def default_switches(victim: Switches) -> dict[str, Any]:
    """Look up the switches' values in the published protocol of a victim."""
    own = {field.name: field.default for field in fields(victim)}
    return {field.name: own[field.name] for field in fields(Switches)}


def check_switches(
    victim: Any, thing: str, uploads: tuple[str, ...] = ("gradient", "delta", "weights")
) -> None:
    """Refuse values that no switch has, and switches that make no sense together."""
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
        why = "order=per-rating steps after every rating; order=batch steps after batch_size of them"
        refuse(switches, thing, {"batch_size": "all"}, why)
    # a default that order=batch leaves without a meaning is nobody's choice
    if switches.ratings_of_a_step is None and switches.shuffle != default_switches(switches)["shuffle"]:
        refuse(switches, thing, {"shuffle": "never"}, "a step over all ratings has no order of them")
    if switches.sends != "gradient":
        refuse(
            switches,
            thing,
            {"row_factor": "before"},
            f"upload={switches.upload} sends copies of item factors",
        )


def refuse(switches: Any, thing: str, needed: dict[str, Any], why: str) -> None:
    """Refuse switches that another one leaves no choice of."""
    for name, value in needed.items():
        given = getattr(switches, name)
        if given != value:
            text = "none" if value is None else value
            raise InputError(f"{name} of {thing} must be {text}, for {why}; got {given}; use {name}={text}")


def rule_of(
    switches: Switches,
    rule: str | None,
    rows: Literal["rated", "all"],
    moves_items: bool,
    **more: Any,
) -> ClientRule:
    """The clients' rule of these switches, as recordings declare it."""
    said: dict[str, Any] = {"loss": "squared", "link": "identity", "clip": "none", "start": "kept"}
    return ClientRule(
        rule=rule,
        order=switches.order,
        local_steps=switches.local_steps,
        batch_size=1 if switches.order == "per-rating" else switches.batch_size,
        reduction=switches.reduction,
        upload=switches.sends,
        rows=rows,
        moves_items=moves_items,
        **(said | more),
    )
