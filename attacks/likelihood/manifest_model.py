"""What a manifest tells an adversary about the law of noisy uploads."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int

from attacks.likelihood.model import Constants, Model, model_of
from attacks.likelihood.noise_laws import LAPLACE, NORMAL, OF_DEFENSE, Law
from victims.transcript.manifest import Manifest

# where the manifest is silent the update rule is not used, so that these values do not matter
DEFAULTS = {"lambda_attributes": 1.0, "lambda_factors": 10.0, "client_learning_rate": 0.0, "alpha": 0.1}


def noise_law(manifest: Manifest) -> Law:
    """The law of the noise on the uploads is that of the first defense with a known one, else Laplace's."""
    return next((OF_DEFENSE[str(entry["name"])] for entry in _noises(manifest)), LAPLACE)


def known_scale(manifest: Manifest) -> float | None:
    """Scale of the noise (``noise_law``) that the adversary is taken to know, in the units of the uploads."""
    return _of_noise(manifest, "scale")


def known_clip(manifest: Manifest) -> float | None:
    """The law's norm to which the clients clip their rows, in the units of the uploads."""
    return _of_noise(manifest, "clip")


def fresh_normal(manifest: Manifest) -> float | None:
    """Standard deviation of the normal noise that clients draw anew in every round, where that is told."""
    return known_scale(manifest) if noise_law(manifest) == NORMAL else None


def _noises(manifest: Manifest) -> list[dict[str, Any]]:
    """The manifest's entries of defenses that add noise of a law."""
    return [entry for entry in manifest.defenses if entry.get("name") in OF_DEFENSE]


def _of_noise(manifest: Manifest, name: str) -> float | None:
    for defense in _noises(manifest):
        value = defense.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < np.inf:
            return float(value)
    return None


def unmodelled(manifest: Manifest) -> str:
    """Say why the model's law is not that of the uploads."""
    if known_clip(manifest) is not None and manifest.upload.regularization != 0:
        return "rows are clipped together with their regularisation, which the decoder does not model"
    if len(_noises(manifest)) > 1:
        return "the uploads hold noise of two defenses, whose sum has a law that the decoder does not model"
    for name in ("stretching", "objective-noise"):
        if any(entry.get("name") == name for entry in manifest.defenses):
            return f"the uploads are under {name}, whose law the decoder does not model; trajectory does"
    return ""


def ties(manifest: Manifest) -> tuple[bool, bool]:
    """Whether (8) ties p to the answers, and whether (9), (10) link consecutive rounds."""
    known = manifest.hyperparameters
    needed = {"lambda_factors"} | ({"lambda_attributes"} if manifest.n_attributes else set())
    public = needed <= set(known)
    tied = manifest.update == "semi-als" and public and known["lambda_factors"] > 0
    carried = manifest.update == "sgd" and manifest.rule.start == "kept"
    return tied, carried and public and "client_learning_rate" in known


def law_of(manifest: Manifest, rounds: Int[np.ndarray, " rounds"], noise: float) -> tuple[Model, Constants]:
    """Make the model and the constants of a view from its manifest."""
    known = dict(manifest.hyperparameters)
    values = [known.get(name, default) for name, default in DEFAULTS.items()]
    constants = Constants(*(np.asarray(value, np.float64) for value in (*values, noise)))
    tied, linked = ties(manifest)
    clip = known_clip(manifest)
    clip = None if clip is None else clip / abs(manifest.upload.scale)
    return (
        model_of(manifest, rounds, tied=tied, linked=linked, clip=clip, law=noise_law(manifest)),
        constants,
    )
