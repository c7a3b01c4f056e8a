"""What a client rule is to an attack that fits it: a pure function of JAX arrays.

A rule of one's own is an object with the members below; ``factorleak.plugins.ClientRule`` is this interface.
A package offers it by an entry point of the group ``factorleak.client_rules``, under the name that
``inversion:rule=NAME`` takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Float

from victims.transcript.manifest import Manifest

MOST_STEPS = 1000  # local steps or passes that a fit follows; each costs as much as the upload of one


def declared_steps(manifest: Manifest) -> int | None:
    """How many local steps or passes a recording declares, where they are no more than fits can follow."""
    declared = manifest.rule.local_steps
    return declared if declared is not None and declared <= MOST_STEPS else None


def of_sigma(value: float, sigma: float, stiffness: float) -> tuple[float, ...]:
    """Start from a rate alone, of a single short step."""
    del value, stiffness
    return (float(np.log(sigma)),)


def as_it_was(constants: Float[np.ndarray, "*clients c"], value: float) -> Float[np.ndarray, "*clients c"]:
    """Start from the constants that fit with another value of a family."""
    del value
    return constants


class Family(NamedTuple):
    """Hypotheses about a rule that differ in one number, such as how many steps a client takes.

    Attributes
    ----------
    label : str
        For readers.
    free : tuple of bool
        Which constants are fitted, client by client.
    values : tuple of float
        Of that number, ascending; neighbours should explain a client's rows nearly as well. One value where
        there is nothing to choose.
    first : float or None
        The value that is declared.
    start : callable
        From a value, sigma and the largest eigenvalue of the sum over items of v v' to constants under which
        a row is, to first order, sigma e u. By default one constant, the logarithm of sigma.
    carried : callable
        From constants that fit with another value, and a value, to constants to start from with this one: by
        default the same.
    multiples : bool
        Whether any multiple of factor and ratings gives the same rows, with other free constants: a client
        whose ratings have another multiple on the grid is then not told by its own rows.
    """

    label: str = ""
    free: tuple[bool, ...] = (True,)
    values: tuple[float, ...] = (0.0,)
    first: float | None = None
    start: Callable[[float, float, float], tuple[float, ...]] = of_sigma
    carried: Callable[[Float[np.ndarray, "*clients c"], float], Float[np.ndarray, "*clients c"]] = as_it_was
    multiples: bool = False


@runtime_checkable
class ClientRule(Protocol):
    """A client's work between broadcast and upload; hashable, for compiled programs are kept by it."""

    @property
    def name(self) -> str:
        """The name in results."""
        ...

    @property
    def mixes_rows(self) -> bool:
        """Whether an orthogonal mixture of ratings and factors gives the same mixture of rows.

        It holds where predictions and losses are linear and squared and all ratings take part in each step;
        then a client with any number of ratings is fitted as one with K + 1 of them.
        """
        ...

    def families(self, manifest: Manifest) -> tuple[Family, ...]:
        """What to try, the likeliest first."""
        ...

    def upload(
        self,
        factor: Float[Array, " K"],
        ratings: Float[Array, " n"],
        factors: Float[Array, "n K"],
        constants: Float[Array, " c"],
    ) -> tuple[Float[Array, "n K"], Float[Array, " K"]]:
        """The rows that a client sends in a round, and its factor after it.

        ``ratings`` may lie between the levels, and a rating of 0 for a factor of 0 gives a row of 0.
        """
        ...
