"""What everybody knows of ratings: means of published sets lie between 0.63 (MovieLens) and 0.8 (Amazon) of
the grid. As a law and the number of ratings that it counts as, for priors that the uploads then correct.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

MIDDLE, PSEUDO_COUNTS = 0.7, 100.0
WIDE = 0.25  # standard deviation, as a share of the grid


def log_shares(levels: Float[np.ndarray, " levels"], middle: float = MIDDLE) -> Float[np.ndarray, " levels"]:
    """Log frequencies of a normal law on the rating grid.

    Examples
    --------
    >>> np.exp(log_shares(np.arange(1.0, 6.0))).round(2)
    array([0.01, 0.08, 0.3 , 0.41, 0.2 ])
    """
    lowest, highest = levels.min(), levels.max()
    position = (levels - lowest) / (highest - lowest) if highest > lowest else np.full(levels.shape, 0.5)
    log = -0.5 * ((position - middle) / WIDE) ** 2
    return np.asarray(log - np.log(np.exp(log).sum()))
