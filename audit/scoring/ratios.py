"""Shares of what a client has, where it may have nothing."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def ratio(part: np.ndarray, whole: np.ndarray) -> Float[np.ndarray, ...]:
    """Divide part by whole, NaN where the whole is empty."""
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)
