"""What a fit of trajectories is told of protocol and ratings, or why there is none, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attacks.client_rules.client_update import unknown_step
from attacks.client_rules.premises import steps_after_uploads, unlike
from attacks.closed_form.uploads.repeated_noise import noise_repeats
from attacks.likelihood.manifest_model import fresh_normal, known_clip
from attacks.obstacles import unreadable
from victims.transcript.manifest import Manifest
from victims.transcript.view import ITEM, View

MODELLED = {"stretching", "personalized-sampling", "objective-noise", "gaussian"}  # defenses
NO_NOISE = {"unrated-sampling", "paillier", "secure-sum"}  # defenses whose rows are not those of a trajectory
CLOSED_FORM_ROUNDS = 4  # that ``attacks.trajectory.differencing`` needs
LOOSE = "clients step in an order that nobody sees, and this attack needs four consecutive rounds then"


def model_of(view: View, *, max_rounds: int, n_starts: int, max_steps: int) -> TrajectoryModel | str:
    """Derive the model of a view's uploads."""
    manifest = view.manifest
    premise = unlike(view, judges=True, own_references=True, follows=True)
    if obstacle := unreadable(view) or premise:
        return obstacle
    defenses = {str(entry.get("name")): entry for entry in manifest.defenses}
    declared = defenses["objective-noise"].get("noise") if "objective-noise" in defenses else "none"
    repeats = declared == "once"
    if "objective-noise" not in defenses and not NO_NOISE & set(defenses):
        repeats = noise_repeats(view)  # whatever noise is declared, or none
    fresh = not repeats and (declared != "none" or "gaussian" in defenses)
    rounds = max(np.split(view.rounds, np.flatnonzero(np.diff(view.rounds) != 1) + 1), key=len)
    loose = steps_after_uploads(view)
    rounds = rounds if fresh and not loose else rounds[:max_rounds]
    undeclared = repeats and declared != "once"
    if obstacle := ("" if undeclared else _unmodelled(manifest)) or _too_little(view, rounds, fresh):
        return obstacle
    unknown = unknown_step(manifest) or ("" if manifest.scale_known else "the rows' scale is not declared")
    return TrajectoryModel(
        manifest,
        rounds,
        fresh=fresh,
        repeated=repeats,
        stretched="stretching" in defenses,
        known_step=not unknown and (fresh or not loose),
        known_scale=manifest.scale_known or "stretching" in defenses,
        loose=loose,
        n_starts=n_starts,
        max_steps=max_steps,
    )


def _too_little(view: View, rounds: Int[np.ndarray, " T"], fresh: bool) -> str:
    """Why these rounds do not tell what is open, or nothing."""
    if rounds.size < 2:
        return "two rounds in a row are needed, and no two were recorded"
    by_item = any(entry.get("name") == "objective-noise" for entry in view.manifest.defenses)
    if fresh and by_item and any(view.broadcasts[int(t)].noise_scale is None for t in rounds):
        return "the recording does not tell the scale of the noise (noise_scale in state.arrow)"
    # the closed form needs rows with one weight, and no step
    closed_form = rounds.size >= CLOSED_FORM_ROUNDS and view.manifest.weighting == "observed-only"
    if not fresh and closed_form:
        return ""
    loose = steps_after_uploads(view) and not fresh
    return unknown_step(view.manifest) or (LOOSE if loose else "")


def _unmodelled(manifest: Manifest) -> str:
    """Why uploads under these defenses are no trajectory with noise of a modelled law, or nothing."""
    names = [str(entry.get("name")) for entry in manifest.defenses]
    once = any(entry.get("noise") == "once" for entry in manifest.defenses)
    if strange := set(names) - MODELLED:
        return f"this attack has no law of the uploads under {sorted(strange)[0]}"
    if "gaussian" not in names:
        return ""
    if known_clip(manifest) is not None:
        return "rows are clipped, which this attack does not model; likelihood does"
    if names.count("gaussian") > 1 or once:
        return "the uploads hold normal noise above other noise, which this attack does not model"
    return "" if fresh_normal(manifest) else "the manifest does not tell the scale of the normal noise"


class TrajectoryModel(NamedTuple):
    """What the adversary knows of the protocol, and how long a fit may take."""

    manifest: Manifest
    rounds: Int[np.ndarray, " T"]  # consecutive rounds that are fitted
    fresh: bool  # noise is drawn in every round, or once; neither where there is none
    repeated: bool  # noise is drawn in every round, or once; neither where there is none
    stretched: bool  # the fitted values s are W o R, not R
    known_step: bool  # the clients' step and its constants are public, and what rows are multiplied with
    known_scale: bool  # what rows are multiplied with is declared, or is not to be told from the grid
    loose: bool  # the step is known up to what the order of the client's ratings adds to it
    n_starts: int  # random starts of a client, and steps of each
    max_steps: int  # random starts of a client, and steps of each
    # what the program takes off every rating before it learns, in stars, where noise is none or repeats
    lowered: float = 0.0

    @property
    def levels(self) -> Float[np.ndarray, " levels"]:
        """The rating grid, in stars."""
        return np.array(self.manifest.rating_levels)


@dataclass(frozen=True)
class Fitted:
    """The fit of a batch of clients."""

    users: Int[np.ndarray, " users"]  # as in ``Packed``
    kind: Int[np.ndarray, "users n"]  # as in ``Packed``
    index: Int[np.ndarray, "users n"]  # as in ``Packed``
    valid: Bool[np.ndarray, "users n"]  # as in ``Packed``
    same_list: Bool[np.ndarray, " users"]  # as in ``Packed``
    value: Float[np.ndarray, "users n"]  # s and its standard error by the rows alone, in stars
    deviation: Float[np.ndarray, "users n"]  # s and its standard error by the rows alone, in stars
    start: Float[np.ndarray, "users numbers"]  # p^0, and what chance added to the later ones
    path: Float[np.ndarray, "users T K"]  # p^t; empty where no step was fitted
    # s with the prior counted in, from which the next pass starts
    posterior_value: Float[np.ndarray, "users n"]
    # root mean square that is not explained, as a share of the rows' size or in units of fresh noise
    residual: Float[np.ndarray, " users"]
    n_starts: Int[np.ndarray, " users"]  # starts that were tried
    by_grid: Bool[np.ndarray, " users"]  # the rating grid told what rows are multiplied with
    # the rows are exact, and of ratings that are on no multiple of the grid
    off_grid: Bool[np.ndarray, " users"]
    # what items' rows say that clients learn, in stars, under the declared scale and with nothing added; NaN
    # where they say nothing
    learned: Float[np.ndarray, "users n"] | None = None

    def __repr__(self) -> str:
        """One line: of how many clients and rows."""
        return f"Fitted(users={self.users.size}, rows={self.valid.shape[1]})"

    @property
    def item_rows(self) -> Bool[np.ndarray, "users n"]:
        """Rows about items that are fitted."""
        return self.valid & (self.kind == ITEM)


class Prior(NamedTuple):
    """Mean and standard deviation of s, Gaussian, for each client and row (users, n)."""

    mean: Float[np.ndarray, "users n"]
    deviation: Float[np.ndarray, "users n"]
