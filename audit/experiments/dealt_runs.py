"""Run an attack on dealt rows as long as the verdict on few clients may still change."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from attacks.base import Progress, Reconstruction
from audit.experiments.shuffled_null import DEALING_SECONDS, dealt_answers
from audit.scoring.metrics import score_users
from audit.scoring.nulls import Replicates, permuted_scores, scores_of_others_lists
from audit.scoring.statistics import LEAK_LEVEL, permutation_p_value
from audit.scoring.truth import Truth
from victims.common.seeds import Purpose, generator
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

Values = Mapping[str, Float[np.ndarray, " users"]]


def dealt_values(
    attack: str,
    options: dict[str, Any],
    seed: int,
    view: View,
    answer: Reconstruction,
    manifest: Manifest,
    truth: Truth,
    n_users: Mapping[str, int],
    n_dealings: int,
    progress: Progress,
) -> Replicates:
    """Compute what an attack reads of dealt rows, until no metric can be significant any more."""
    users = np.unique(answer.users)
    real = score_users(answer.blocks, manifest, truth, users, answer.scope)
    silent = np.isin(users, list(answer.abstained))
    anyhow = partial(permuted_scores, answer, manifest=manifest, truth=truth, users=users)
    others = scores_of_others_lists(answer, manifest, truth, users)
    made: list[Values] = []
    for number, one in enumerate(dealt_answers(attack, options, seed, view, n_dealings, progress)):
        read = anyhow(one, rng=generator(0, Purpose.DEALINGS, number))
        made.append(read | {metric: np.fmax(read[metric], told) for metric, told in others.items()})
        if not any(
            _may_tell(np.where(silent, np.nan, real[metric]), [one[metric] for one in made], n, n_dealings)
            for metric, n in n_users.items()
        ):
            return Replicates(tuple(made), n_dealings)
    late = 0 < len(made) < n_dealings
    return Replicates(tuple(made), n_dealings, DEALING_SECONDS if late else 0.0)


def _may_tell(
    real: Float[np.ndarray, " users"], made: list[Float[np.ndarray, " users"]], n_users: int, n_dealings: int
) -> bool:
    """Whether one metric is significant where all dealings that are left are worse."""
    told = np.flatnonzero(~np.isnan(real))
    # clients without an answer count as not read, and those for whom nothing is defined not at all
    right, dealt = np.full(n_users, np.nan), np.full((len(made), n_users), np.nan)
    right[: told.size], dealt[:, : told.size] = real[told], np.stack(made)[:, told]
    return permutation_p_value(right, dealt, n_beaten=n_dealings - len(made)) < LEAK_LEVEL
