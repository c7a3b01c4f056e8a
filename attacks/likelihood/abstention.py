"""When the attack does not answer: the clients' rule is another one, or noise alone explains the uploads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from attacks.base import Estimates, Reconstruction
from attacks.closed_form.fit.images import abstain_if_higher
from attacks.closed_form.uploads.reduction import freed
from attacks.likelihood.batches import Rows
from attacks.likelihood.learning import State, residual_scale
from attacks.likelihood.model import Answers, AnyArray
from attacks.likelihood.noise_laws import most_left
from attacks.likelihood.problem import Problem
from attacks.likelihood.upload_statistics import Size
from victims.common.seeds import Purpose, generator
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM, View

UNEXPLAINED = (
    "the rows of a client have a direction in common, and no ratings explain them: the clients' rule is not "
    "the declared one"
)
ALONG = 2.0  # times the noise off the rows' directions that noise along them may have
FEWEST = 50  # answers, of which it is said that they are too alike:
ALL, CERTAIN = 0.95, 0.8  # share of them that is one level, and their mean probability
MOST = 0.5  # share of a client's ratings, and of the clients, that signs alone may tell
LEAST_ODDS = 3.0  # nats by which the model must beat noise alone, over all clients
FLIPS = 199
MOST_CLIENTS = 200  # clients that are looked at; fewer where they have many rows
MOST_NUMBERS = 4_000_000  # coordinates that are looked at
LEVEL = 0.01


def wrong_rule(problem: Problem, state: State, size: Size) -> str:
    """Why what the fit leaves is more than noise, or nothing.

    Answers of a rule that does not hold leave signal along the clients' directions. Noise of a known scale
    leaves itself, but for five standard errors of its mean size (that of Laplace and normal noise is at most
    its scale over the root of the number of coordinates) and a twentieth for what the model approximates; of
    an unknown one, what lies off the directions, whose law is not known either.
    """
    left, b = residual_scale(problem, state.total), float(state.parameters.constants.noise)
    if problem.known_noise and left > most_left(max(float(state.total.coordinates), 1.0)) * b:
        return (
            f"the fit leaves {left:.2g} where noise of the declared scale leaves {b:.2g}: the clients' rule, "
            "or the scale, is not the declared one, or no ratings that fit were found: watch other "
            "rounds, or raise steps"
        )
    if not problem.known_noise and left > ALONG * max(size.scale, problem.floor):
        return (
            f"the fit leaves {left:.2g} along the clients' directions and {size.scale:.2g} off them, and "
            "noise would leave as much: the clients' rule is not the declared one"
        )
    return ""


def told_ratings(
    blocks: Sequence[Estimates],
) -> tuple[Float[np.ndarray, " ratings"], Float[np.ndarray, " ratings"]]:
    """Collect what is told of items."""
    told = [(block, (block.kind == ITEM) & ~np.isnan(block.value)) for block in blocks]
    probability = [block.probability[here] for block, here in told if block.probability is not None]
    return np.concatenate([block.value[here] for block, here in told]), np.concatenate(probability)


def unless_open_by_a_level(found: Reconstruction, view: View) -> Reconstruction:
    """Answer differences alone where answers are sure, and none of those answered has the highest level.

    Rows of ratings less the lowest level, none of which has it, are the same; see ``abstain_if_higher``.
    """
    _, probability = told_ratings(found.blocks)
    sure = probability.size and probability.mean() >= CERTAIN
    return abstain_if_higher(found, np.array(view.manifest.rating_levels)) if sure else found


def too_alike(blocks: Sequence[Estimates], manifest: Manifest) -> str:
    """Why answers say of the rows that they are too small or large, or nothing.

    Rows that are clipped, or of another scale than declared, are explained by the lowest level alone (or the
    highest), and well. Where all ratings are really the same there is nothing to be read that a guess lacks.
    """
    if manifest.weighting != "observed-only" or len(manifest.rating_levels) == 1:
        return ""
    value, probability = told_ratings(blocks)
    if value.size < FEWEST or probability.mean() < CERTAIN:
        return ""
    level, count = np.unique(value, return_counts=True)
    if count.max() < ALL * value.size:
        return ""
    return (
        f"{count.max()} of {value.size} answers are {level[count.argmax()]:g}, and sure: rows are clipped, "
        "or of another scale than declared"
    )


def at_the_bound(
    problem: Problem, rows: Rows, p: AnyArray, answers: Answers, lowered: float
) -> Float[np.ndarray, " users"]:
    """Share of each client's ratings all of whose rows are clipped, by what was read of them.

    A row at the bound tells the sign of its error and no more.
    """
    valid = np.asarray(rows.valid)
    if problem.model.clip is None:
        return np.zeros(len(valid))
    own = np.asarray(p).swapaxes(0, 1)
    predicted = np.einsum("tuk,tukr->tur", own, np.asarray(rows.factors))
    told = np.array(problem.model.levels)[np.asarray(answers.items).argmax(axis=0)]
    length = np.stack([np.asarray(problem.model.law.norm(jnp.asarray(one))) for one in own])[..., None]
    inside = (np.abs(told - lowered - predicted) * length < problem.model.clip) & np.asarray(rows.sent)
    clipped = valid & ~inside.any(axis=0)
    return clipped.sum(axis=1) / np.maximum(valid.sum(axis=1), 1)


def only_signs(
    users: Int[np.ndarray, " users"], share: Float[np.ndarray, " users"]
) -> tuple[dict[int, str], str]:
    """Clients most of whose ratings are told by signs alone, and why nobody is answered where most are so.

    What is learned of all ratings serves each client, and is not to be had from signs.
    """
    said = "of the ratings only rows clipped to the bound were sent, which tell the sign of an error alone"
    few = {int(user): f"of {part:.0%} {said}" for user, part in zip(users, share, strict=True) if part > MOST}
    mostly = len(few) > MOST * users.size
    return few, f"for {len(few)} of {users.size} clients: of most {said}" if mostly else ""


def unread(view: View, evidence: np.ndarray, key: int) -> tuple[dict[int, str], bool]:
    """Clients without an answer, and why; and whether that says that there is nothing in their uploads.

    It does where the model explains the uploads of others, and where all of them are noise to a test that
    knows no model.
    """
    users = view.users
    if float(np.sum(evidence, where=np.isfinite(evidence))) > LEAST_ODDS:
        quiet = users[~(evidence > -LEAST_ODDS)].tolist()
        return dict.fromkeys(
            quiet, "noise alone explains this client's uploads better than any rating does"
        ), bool(quiet)
    if has_structure(view, generator(key, Purpose.SIGN_FLIPS)):
        return dict.fromkeys(users.tolist(), UNEXPLAINED), False
    return dict.fromkeys(
        users.tolist(), "the uploads of all clients together cannot be told from noise alone"
    ), True


def has_structure(view: View, rng: np.random.Generator) -> bool:
    """Whether rows of the same client have a direction in common, at a level of 1 %."""
    return p_value(view, rng) <= LEVEL


def p_value(view: View, rng: np.random.Generator) -> float:
    """Probability of as much common direction in rows whose signs were flipped at random."""
    per_client = view.messages.n_rows * view.manifest.factors / max(view.users.size, 1)
    most = int(min(MOST_CLIENTS, max(1, MOST_NUMBERS // max(per_client, 1))))
    if view.users.size > most:
        view = view.select(np.sort(rng.choice(view.users, most, replace=False)))
    seen, flipped = 0.0, np.zeros(FLIPS)
    for rows in _rows(view):
        seen += float(_along(rows).sum())
        signs = np.array([-1.0, 1.0])
        for flip in range(FLIPS):
            flipped[flip] += float(_along(rows * rng.choice(signs, rows.shape)).sum())
    # sums of the same terms in another order may differ in the last bits
    return float((1 + np.sum(flipped >= seen * (1 - 1e-12))) / (1 + FLIPS))


def _rows(view: View) -> Iterator[Float[np.ndarray, "users rows K"]]:
    for batch in view.batches():
        for uploads in batch.rounds:
            rows = _squarable(freed(uploads, view.manifest.upload.regularization))
            finite = np.isfinite(np.einsum("urk,urk->u", rows, rows))
            yield rows[finite]


def _squarable(rows: Float[np.ndarray, "users rows K"]) -> Float[np.ndarray, "users rows K"]:
    """Rows of a size whose square does not overflow: the largest number of each client is 1."""
    largest = np.abs(rows).max(axis=(1, 2), initial=0)
    return rows / np.where(largest > 0, largest, 1)[:, None, None]


def _along(rows: Float[np.ndarray, "users rows K"]) -> Float[np.ndarray, " users"]:
    """Share of each client's energy along its leading direction; 0 for a client of zeros."""
    gram = np.matmul(rows.transpose(0, 2, 1), rows)
    energy = np.trace(gram, axis1=1, axis2=2)
    return np.linalg.eigvalsh(gram)[:, -1] / np.where(energy > 0, energy, 1)
