"""What a manifest and its rounds tell of the clients' trajectories, or why they cannot be fitted."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from attacks.client_rules.client_update import unknown_step
from attacks.client_rules.premises import steps_after_uploads, unlike
from attacks.closed_form.uploads.repeated_noise import noise_repeats
from attacks.likelihood.manifest_model import fresh_normal, known_clip
from attacks.obstacles import unreadable
from attacks.trajectory.trajectory_model import TrajectoryModel
from victims.transcript.manifest import Manifest
from victims.transcript.view import View

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
