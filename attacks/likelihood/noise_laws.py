"""The laws of the noise that clients add: what a decoder needs of each.

A law has the density exp(-loss(x) / unit) / volume on every coordinate, with a loss that does not depend on
its scale: |x| and b for Laplace, x^2 / 2 and sigma^2 for a normal law. The norm is the one by which rows are
clipped before such noise, L1 or L2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

APPROXIMATE, ERRORS = 0.05, 5.0  # what a right fit may leave beyond the noise: a share, and standard errors


@dataclass(frozen=True)
class LaplaceLaw:
    """Scale b > 0; the methods take arrays of any shape."""

    def loss(self, x: Any) -> Any:
        """|x|."""
        return abs(x)

    def gain(self, f: Array, x: Array) -> Array:
        """loss(f - x) - loss(f)."""
        return jnp.abs(f - x) - jnp.abs(f)

    def score(self, x: Array) -> Array:
        """The slope of the loss."""
        return jnp.sign(x)

    def unit(self, scale: Any) -> Any:
        """What the loss is divided by in the log density."""
        return scale

    def scale_of(self, loss: float) -> float:
        """The likeliest scale, given the mean loss of a coordinate."""
        return loss

    def log_volume(self, scale: float) -> float:
        """log of 2 b."""
        return float(np.log(2 * scale))

    def scale_of_variance(self, variance: float) -> float:
        """The scale of noise with this variance."""
        return float(np.sqrt(variance / 2))

    def norm(self, p: Float[Array, "users K"]) -> Float[Array, " users"]:
        """L1."""
        return jnp.abs(p).sum(axis=-1)

    def norm_slope(self, p: Float[Array, "users K"]) -> Float[Array, "users K"]:
        """Derivative of the norm."""
        return jnp.sign(p)


@dataclass(frozen=True)
class NormalLaw:
    """Scale sigma > 0; methods as of ``LaplaceLaw``."""

    def loss(self, x: Any) -> Any:
        """x^2 / 2."""
        return x * x / 2

    def gain(self, f: Array, x: Array) -> Array:
        """loss(f - x) - loss(f), without taking the difference of two large numbers."""
        return x * (x / 2 - f)

    def score(self, x: Array) -> Array:
        """The slope of the loss."""
        return x

    def unit(self, scale: Any) -> Any:
        """What the loss is divided by in the log density."""
        return scale * scale

    def scale_of(self, loss: float) -> float:
        """The likeliest scale, given the mean loss of a coordinate."""
        return float(np.sqrt(2 * max(loss, 0.0)))

    def log_volume(self, scale: float) -> float:
        """log of sigma times the root of 2 pi."""
        return float(np.log(scale * np.sqrt(2 * np.pi)))

    def scale_of_variance(self, variance: float) -> float:
        """The scale of noise with this variance."""
        return float(np.sqrt(variance))

    def norm(self, p: Float[Array, "users K"]) -> Float[Array, " users"]:
        """L2."""
        return jnp.sqrt((p * p).sum(axis=-1))

    def norm_slope(self, p: Float[Array, "users K"]) -> Float[Array, "users K"]:
        """Derivative of the norm, 0 at 0."""
        return p / jnp.maximum(self.norm(p), 1e-30)[..., None]


Law = LaplaceLaw | NormalLaw
LAPLACE, NORMAL = LaplaceLaw(), NormalLaw()
OF_DEFENSE: dict[str, Law] = {"laplace": LAPLACE, "gaussian": NORMAL}


def most_left(coordinates: Any) -> Any:
    """Largest scale that a right fit leaves, in scales of the noise: approximations and chance add to it."""
    return 1 + APPROXIMATE + ERRORS / np.sqrt(coordinates)
