"""What programs do differently from the papers: how clients step before they upload, and what they send.

Every victim takes the same switches, or refuses one with a reason. Their defaults are the published
protocols; a victim with any other is recorded as transcript version 2, whose rule declares them.

Among neighbours they mean what they mean with a server, but that a client's copies of the item factors are
its own: it keeps them, and its own steps move them in every pass, whatever it sends. A ``delta`` is then the
change of the sender's own copy by its own steps of the round, for a copy moves by what neighbours send, too,
which they need not hear again; receivers add it where they would step by a gradient. ``weights`` is the
sender's copy after these steps, as gossip learning sends (R. Ormandi et al., "Gossip learning with linear
models on fully distributed data", 2013, doi:10.1002/cpe.2858): a receiver takes the mean of its own copy,
which counts once, and of those that arrive, each with the weight that its gradient would have. A mean, and no
sum, for copies added up grow with the number of neighbours. Who takes no part in a round is not there: it
does not step, does not send, and nothing reaches it. ``row_factor`` and ``biases`` are refused
(``check_peer_switches``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from victims.common.errors import InputError
from victims.common.seeds import Purpose, generator
from victims.common.validation import Rule, between, in_half_open, one_of, positive_share, require_fields
from victims.data.ratings import Ratings
from victims.protocols.exchanged import Attacker
from victims.protocols.network import Edges
from victims.transcript.kinds import ITEM_BIAS, STANDARD, Kind
from victims.transcript.manifest import ClientRule, Manifest, Upload

MOST = 1_000_000  # steps and ratings that a manifest can declare
READERS: tuple[Attacker, ...] = (
    Attacker("undeclared", 2),
    Attacker("grid"),
    Attacker("spectral", 2),
    Attacker("rated-set", 2),
)
GRADIENT_ALONE = "a row is the gradient by which its sender steps its own copy, too"
NO_BIASES = (
    "neighbours send rows about copies of item factors, and a row about a bias would be the error itself"
)
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
    rows: Literal["rated", "all"] | None,
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


def declared(
    switches: Switches,
    manifest: Manifest,
    *,
    rate: float | None,
    item_pull: float = 0.0,
    rule: str | None = None,
    more: dict[str, Any] | None = None,
) -> Manifest:
    """A manifest of version 1 as version 2, with the clients' rule of these switches; itself as published."""
    if switches.published:
        return manifest
    upload, known = manifest.upload, True
    if switches.sends != "gradient":
        known = rate is not None
        scale = 1.0 if rate is None else 2 * rate
        pull = 0.0 if rate is None else -2 * rate * item_pull
        upload = Upload(scale=scale, regularization=pull)
    extra: dict[str, Any] = {} if switches.row_factor == "before" else {"row_factor": switches.row_factor}
    extra |= {"client_biases": True} if switches.biases == "both" else {}
    said = rule_of(
        switches,
        rule or manifest.update,
        "all" if manifest.upload.zeros_if_unrated else "rated",
        switches.sends != "gradient",
        **extra,
        **(more or {}),
    )
    update = manifest.update if rule is None else None
    of_biases = {} if switches.biases is None else {ITEM_BIAS: Kind(of="item", role="other", width=1)}
    changes = {
        "version": 2,
        "update": update,
        "upload": upload,
        "declared_rule": said,
        "scale_known": known,
        "kinds": {**STANDARD, **of_biases},
    }
    return manifest.model_copy(update=changes)


def published_manifest(
    protocol: str,
    victim: Any,
    ratings: Ratings,
    rounds: list[int],
    hyperparameters: dict[str, float],
    **more: Any,
) -> Manifest:
    """Write down what a participant of a published protocol knows."""
    of_ratings: dict[str, Any] = {"n_attributes": 0, "attribute_groups": [], "parties": {"server": -1}}
    return Manifest(
        format="factorleak-transcript",
        version=1,
        protocol=protocol,
        update=victim.update,
        weighting=victim.weighting,
        n_users=ratings.n_users,
        n_items=ratings.n_items,
        factors=victim.factors,
        rounds=rounds,
        hyperparameters=hyperparameters,
        rating_levels=list(ratings.levels),
        adversary="all",
        recorded_by="factorleak",
        **(of_ratings | more),
    )


def peer_manifest(
    protocol: str,
    victim: Any,
    ratings: Ratings,
    rounds: list[int],
    constants: dict[str, float],
    ridge: float,
    moves_items: bool,
    said: dict[str, Any],
    **more: Any,
) -> Manifest:
    """Write down what neighbours know: rows of errors with a ridge, of copies that each client keeps."""
    rate = -1.0 if victim.sends == "gradient" else victim.learning_rate  # of errors in a row
    return Manifest(
        format="factorleak-transcript",
        version=2,
        protocol=protocol,
        update=None,
        weighting="observed-only",
        n_users=ratings.n_users,
        n_items=ratings.n_items,
        n_attributes=0,
        factors=victim.factors,
        rounds=rounds,
        hyperparameters=constants,
        upload=Upload(scale=rate, regularization=-rate * ridge),
        rating_levels=list(ratings.levels),
        recorded_by="factorleak",
        declared_rule=rule_of(victim, protocol, "rated", moves_items, own_items=True, **said),
        **more,
    )


class Present(NamedTuple):
    """Clients of one round, (n_users,) each: who steps, and who is heard of those."""

    stepping: Bool[np.ndarray, " users"]
    heard: Bool[np.ndarray, " users"]


def present(switches: Switches, n_users: int, seed: int, round_: int) -> Present:
    """Draw the clients of a round; at least one is heard."""
    stepping = np.ones(n_users, bool)
    if switches.participation < 1:
        many = max(round(switches.participation * n_users), 1)
        order = generator(seed, Purpose.TAKING_PART, round_).permutation(n_users)
        stepping[order[many:]] = False
    heard = stepping.copy()
    if switches.dropout > 0:
        there = np.flatnonzero(stepping)
        lost = min(round(switches.dropout * there.size), there.size - 1)
        heard[generator(seed, Purpose.LOST_UPLOADS, round_).permutation(there)[:lost]] = False
    return Present(stepping, heard)


def check_peer_switches(victim: Switches, thing: str) -> None:
    """Refuse values that no switch has, and switches that make no sense among neighbours."""
    check_switches(victim, thing)
    refuse(victim, thing, {"row_factor": "before"}, GRADIENT_ALONE)
    refuse(victim, thing, {"biases": None}, NO_BIASES)


def edges_present(switches: Switches, edges: Edges, n_users: int, seed: int, round_: int) -> Edges:
    """Leave out the edges to clients who take no part in a round."""
    if switches.participation == 1:
        return edges
    there = present(switches, n_users, seed, round_).stepping[edges.receiver]
    return Edges(*(column[there] for column in edges))


def as_gradients(
    switches: Switches,
    rate: float,
    arrived: Float[np.ndarray, "*pairs K"],
    times: Float[np.ndarray, "*pairs"],
    own: Float[np.ndarray, "*pairs K"],
) -> Float[np.ndarray, "*pairs K"]:
    """What receivers make of rows, as the gradients by which they would step as far.

    Examples
    --------
    >>> one, copy = np.array([[2.0, 4.0]]), np.array([[0.0, 0.0]])
    >>> as_gradients(Switches(upload="weights"), 0.5, one, np.ones(1), copy)  # half way, in steps of 1/2
    array([[-2., -4.]])
    """
    if switches.sends == "gradient":
        return arrived
    if switches.sends == "delta":
        return -arrived / rate
    return (times[..., None] * own - arrived) / ((1 + times[..., None]) * rate)
