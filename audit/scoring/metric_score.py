"""One metric of one reconstruction, and its columns of the result table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from audit.scoring.limits import Limit
from audit.scoring.summary import Summary


class PerClient(NamedTuple):
    """What the means of a score are of.

    values (n_users,): a client without an answer has the guess's; guesses: (n_users,) by name; silent
    (n_users,): who got no answer.
    """

    values: Float[np.ndarray, " users"]
    guesses: Mapping[str, Float[np.ndarray, " users"]]
    silent: Bool[np.ndarray, " users"]


@dataclass(frozen=True)
class Score:
    """One metric of one reconstruction.

    ``ceiling`` is what a decoder reaches that knows all other answers of the client
    (``audit.scoring.ceiling``); None where it is not computed. Clients without an answer count with the best
    guess, so that abstaining neither helps nor hurts; ``n_abstained`` says how many they are, ``reason`` why,
    and why a verdict is INCONCLUSIVE. A guess has none. An attack that looked at everything and could not
    tell the uploads from noise (``Outcome.NOTHING_FOUND``) has answered: with the guess. ``clients`` is of
    the clients of the reconstruction, ascending; None where answers are about nobody by name.
    """

    metric: str
    summary: Summary
    baseline_name: str
    ceiling: Limit | None
    n_abstained: int
    reason: str = ""
    clients: PerClient | None = field(default=None, compare=False, repr=False)


def as_record(score: Score) -> dict[str, object]:
    """Flatten a score to the columns of the result table."""
    summary = asdict(score.summary)
    n_users = summary.pop("n_users")
    for inside in ("below", "n_unanswered", "by_ratings", "by_dealings"):
        del summary[inside]
    return {
        "metric": score.metric,
        **summary,
        "baseline_name": score.baseline_name,
        **_flat(score),
        "n_users": n_users,
        "n_abstained": score.n_abstained,
        "reason": score.reason,
    }


def _flat(score: Score) -> dict[str, float]:
    if score.ceiling is None:
        return dict.fromkeys(("ceiling", "ceiling_ml", "ceiling_map"), float("nan"))
    return {
        "ceiling": score.ceiling.best,
        "ceiling_ml": score.ceiling.ml,
        "ceiling_map": score.ceiling.map,
    }
