"""A rule of one's own that is one function: what a client sends, with a rate that nobody told.

``factorleak.plugins.client_rule`` makes a rule of a function of factor, ratings, factors and the rate. It is
fitted, and so are further constants whose names are given. Whoever needs more writes the members of
``factorleak.plugins.ClientRule``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from attacks.client_rules.differentiable import Family, of_sigma
from victims.common.errors import InputError
from victims.transcript.manifest import Manifest

RATE = "rate"


@dataclass(frozen=True)
class FunctionRule:
    """A rule of a function; its constants are the logarithm of the rate, and what ``others`` names."""

    # from factor (K,), ratings (n,), factors (n, K), rate () and the others () to rows (n, K) and the factor
    # after the round (K,)
    function: Callable[..., tuple[Array, Array]]
    others: tuple[str, ...] = ()  # constants that are open, too
    mixes_rows: bool = False  # as of ``factorleak.plugins.ClientRule``

    @property
    def name(self) -> str:
        """Of the function."""
        return str(getattr(self.function, "__name__", "own"))

    def families(self, manifest: Manifest) -> tuple[Family, ...]:
        """The rate alone, then the others with it."""
        del manifest
        n_others = len(self.others)
        more = f"{' and '.join((RATE, *self.others))} open"
        families = (
            Family(words, (True, *[free] * n_others), start=partial(_start, n_others))
            for words, free in ((f"{RATE} open", False), (more, True))
        )
        return tuple(families) if n_others else (Family(f"{RATE} open"),)

    def upload(
        self,
        factor: Float[Array, " K"],
        ratings: Float[Array, " n"],
        factors: Float[Array, "n K"],
        constants: Float[Array, " c"],
    ) -> tuple[Float[Array, "n K"], Float[Array, " K"]]:
        """What the function gives."""
        takes = ", ".join(("factor (K,)", "ratings (n,)", "factors (n, K)", RATE, *self.others))
        must = f"it must take JAX arrays {takes} and give rows (n, K) and the factor after them (K,)"
        try:
            rows, after = self.function(factor, ratings, factors, jnp.exp(constants[0]), *constants[1:])
        except (Exception, SystemExit) as error:
            raise InputError(f"rule {self.name} cannot be computed: {must}; {error!r:.300}") from error
        got = jnp.shape(rows), jnp.shape(after)
        if got != (factors.shape, factor.shape):
            raise InputError(f"rule {self.name} gives shapes {got[0]} and {got[1]}; {must}")
        if jnp.iscomplexobj(rows) or jnp.iscomplexobj(after):
            raise InputError(f"rule {self.name} gives complex numbers; {must}, all of them real")
        return rows, after


def client_rule(
    function: Any = None,
    *,
    others: Any = (),  # a sequence of str, which is checked
    mixes_rows: bool = False,
) -> Any:
    """Make a client rule of a function, as a decorator.

    Parameters
    ----------
    function : callable
        From JAX arrays factor (K,), ratings (n,), factors (n, K), a rate > 0, and the ``others``, to the rows
        of a round (n, K) and the factor after it (K,). A row should be, to first order, a multiple of the
        rate times the error times the factor.
    others : sequence of str
        Names of further constants that nobody told, such as a weight decay; fits start with 0.
    mixes_rows : bool
        Whether an orthogonal mixture of ratings and factors gives the same mixture of rows.

    Returns
    -------
    FunctionRule
        Without a function, what makes one of it.

    Raises
    ------
    InputError
        If what is given is no function, or ``others`` are no names. When the rule is used: if the function
        cannot be computed, or gives other shapes.

    Examples
    --------
    >>> @client_rule
    ... def plain(factor, ratings, factors, rate):
    ...     error = rate * (ratings - factors @ factor)
    ...     return error[:, None] * factor, factor + error @ factors
    >>> plain.name, plain.mixes_rows
    ('plain', False)
    """
    if function is None:
        return partial(client_rule, others=others, mixes_rows=mixes_rows)
    if not callable(function):
        raise InputError(f"client_rule must be given a function, got {function!r:.80}")
    named = isinstance(others, Sequence) and not isinstance(others, str)
    if not named or not all(isinstance(one, str) for one in others):
        raise InputError(f"others of client_rule must be names, as others=('decay',), got {others!r:.80}")
    return FunctionRule(function, tuple(others), mixes_rows)


def _start(n_others: int, value: float, sigma: float, stiffness: float) -> tuple[float, ...]:
    return (*of_sigma(value, sigma, stiffness), *(0.0,) * n_others)
