"""What an attack recovers from permuted rows, which hold nothing of any client: a null of its scores."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from attacks.base import Identities, Progress, Reconstruction
from attacks.sums.parallel_rows import sums_of_others
from audit.experiments.answers import answered
from audit.registry import entry
from audit.scoring.metrics import UserScores, score_users
from audit.scoring.nulls import Replicates, permuted_scores, scores_of_others_lists
from audit.scoring.pseudonyms import null_scores
from audit.scoring.statistics import LEAK_LEVEL, permutation_p_value
from audit.scoring.truth import Truth
from victims.common.seeds import Purpose, generator
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

DEALING_SECONDS = 600.0  # after which no further dealing is begun
NULL_USERS = 200  # clients on which an attack is repeated with shuffled gradients


def shuffled_scores(
    attack: str, options: dict[str, Any], seed: int, view: View, truth: Truth, answer: Reconstruction
) -> UserScores | None:
    """Score the same attack on shuffled gradients, if it is fast enough to repeat."""
    if answer.identities == Identities.PSEUDONYMS:
        return _of_pseudonyms(attack, options, seed, view, truth, answer)
    if entry("attacks", attack).per_client or view.users.size == 0:
        return None
    shuffled = few_clients(view, attack, seed).shuffled(seed)
    if shuffled is None:
        return None
    null = answered(attack, options, shuffled, seed)
    return score_users(null.blocks, view.manifest, truth, np.unique(null.users))


def dealt_answers(
    attack: str, options: dict[str, Any], seed: int, view: View, n_dealings: int, progress: Progress
) -> Iterator[Reconstruction]:
    """Attack a view again and again, each time with all rows dealt out anew."""
    more = generator(seed, Purpose.DEALINGS).integers(1 << 31, size=n_dealings - 1)
    begin = time.monotonic()
    progress(0, n_dealings)
    for number, dealing in enumerate((seed, *more.tolist()), start=1):
        shuffled = view.shuffled(dealing)
        if shuffled is None or (number > 1 and time.monotonic() - begin > DEALING_SECONDS):
            return
        found = answered(attack, options, shuffled, seed)
        progress(number, n_dealings)
        yield found


def few_clients(view: View, attack: str, seed: int) -> View:
    """Leave so many clients of a view that the attack is repeated quickly, unless it needs them all."""
    if view.users.size <= NULL_USERS or entry("attacks", attack).whole:
        return view
    rng = generator(seed, Purpose.SHUFFLED_CLIENTS)
    return view.select(rng.choice(view.users, NULL_USERS, replace=False))


def _of_pseudonyms(
    attack: str, options: dict[str, Any], seed: int, view: View, truth: Truth, answer: Reconstruction
) -> UserScores | None:
    """Sums of others dealt out among items: those that the broadcasts tell are shuffled, too."""
    shuffled = sums_of_others(view)[0].shuffled(seed)
    if shuffled is None:
        return None
    null = answered(attack, options, shuffled, seed)
    return null_scores(null, view.manifest, truth, answer.users.size - len(answer.abstained))


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
