"""What an attack is, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int, Shaped

from victims.transcript.view import View

Progress = Callable[[int, int], None]


def silent(done: int, total: int) -> None:
    """Report progress to nobody."""


RATED_SET = "rated set"  # option ``reads`` of an attack that says nothing of ratings and attributes


@dataclass(frozen=True)
class Estimates:
    """Answers about some clients, one row per item or attribute.

    Attributes
    ----------
    users : (n_users,)
    kind, index : (1 or n_users, n_rows)
        One row when shared by all clients of the block.
    value : (n_users, n_rows) float32 or float64
        Estimated rating in stars, 0 for unrated; estimated attribute. Not rounded. NaN marks
        padding and clients that the attack abstains on.
    probability : (n_users, n_rows), optional
        The attack's own probability that ``value``, rounded to the grid, is right.
    rated_probability : (n_users, n_rows), optional
        The attack's own probability that the item is rated at all.
    rating_if_rated : (n_users, n_rows), optional
        The most probable rating in stars, given that the item is rated; not rounded. Without it ``value``
        answers that question, too.
    median_if_rated : (n_users, n_rows), optional
        The median of the same posterior in stars, which has the least expected absolute error.

    The last three are about items and may be NaN anywhere; each metric uses the answer to its own question
    (``audit.scoring.metrics``).
    """

    users: Int[np.ndarray, " users"]
    kind: Int[np.ndarray, "a rows"]
    index: Int[np.ndarray, "b rows"]
    value: Float[np.ndarray, "users rows"]
    probability: Float[np.ndarray, "users rows"] | None = None
    rated_probability: Float[np.ndarray, "users rows"] | None = None
    rating_if_rated: Float[np.ndarray, "users rows"] | None = None
    median_if_rated: Float[np.ndarray, "users rows"] | None = None

    def __repr__(self) -> str:
        """One line: of how many clients and rows."""
        return f"Estimates(users={self.users.size}, rows={self.value.shape[-1]})"


OPTIONAL = ("probability", "rated_probability", "rating_if_rated", "median_if_rated")  # of Estimates


@dataclass(frozen=True)
class Reconstruction:
    """What an attack read out of a view.

    Attributes
    ----------
    attack : str
    users : (n_users,)
        Every client that the attack looked at, ascending.
    blocks : tuple of Estimates
    abstained : mapping of client to reason
    options : mapping
        The attack's hyper-parameters and seed, as recorded in the file.
    diagnostics : mapping of name to (n_users,) array
        Per client, in the order of ``users``.
    """

    attack: str
    users: Int[np.ndarray, " users"]
    blocks: tuple[Estimates, ...]
    abstained: Mapping[int, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    diagnostics: Mapping[str, Shaped[np.ndarray, " users"]] = field(default_factory=dict)

    def __repr__(self) -> str:
        """One line: who read how many clients, and how many were left out."""
        return (
            f"Reconstruction(attack={self.attack!r}, users={self.users.size}, blocks={len(self.blocks)}, "
            f"abstained={len(self.abstained)})"
        )

    def rows(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Flat columns user, kind, index, value, probability, block by block, without padding."""
        for part in self.columns():
            yield tuple(part[name] for name in ("user", "kind", "index", "value", "probability"))

    def columns(self) -> Iterator[dict[str, np.ndarray]]:
        """All flat columns by name, block by block, without padding; NaN where the attack says nothing."""
        for block in self.blocks:
            shape = block.value.shape
            keep = ~np.isnan(block.value)
            found = {
                "user": np.broadcast_to(block.users[:, None], shape)[keep],
                "kind": np.broadcast_to(block.kind, shape)[keep],
                "index": np.broadcast_to(block.index, shape)[keep],
                "value": block.value[keep].astype(np.float64),
            }
            for name in OPTIONAL:
                given = getattr(block, name)
                found[name] = np.full(keep.sum(), np.nan) if given is None else given[keep].astype(np.float64)
            yield found


def all_abstain(
    name: str, users: Int[np.ndarray, " users"], reason: str, options: Mapping[str, Any]
) -> Reconstruction:
    """An answer that says for every client why there is none."""
    return Reconstruction(name, users, (), dict.fromkeys(users.tolist(), reason), options)


@runtime_checkable
class Attack(Protocol):
    """A frozen set of hyper-parameters with a name and one verb.

    ``attack`` is deterministic for a view and key, never raises on a valid view and abstains, with a
    reason a person can act on, where the view does not determine the answer.
    """

    @property
    def name(self) -> str:
        """The name in the registry and in results."""
        ...

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Read what the view gives away; ``key`` seeds every random choice."""
        ...


def unreadable(view: View) -> str:
    """Why uploads say nothing to an attack that takes their rows apart, or nothing."""
    if view.messages.n_rows == 0:
        return "the adversary receives no uploads"
    if view.messages.gradient is None:
        return "the uploads are encrypted and the adversary holds no key"
    return factors_hidden(view)


def factors_hidden(view: View) -> str:
    """Why nothing that needs the broadcast factors can be said, or nothing."""
    return "" if view.broadcasts else "the broadcast factors are encrypted and the adversary holds no key"


def alpha_unknown(view: View) -> str:
    """Why an attack that does not estimate alpha abstains, or nothing."""
    if view.manifest.weighting == "include-unrated" and "alpha" not in view.manifest.hyperparameters:
        return "alpha, the weight of unrated items, is not public"
    return ""
