"""How large the noise and the rows are, before anything is decoded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attacks.closed_form.uploads.reduction import freed
from attacks.likelihood.manifest_model import noise_law
from victims.transcript.view import View


class Size(NamedTuple):
    """Scales of the uploads, in stars squared, and who cannot be read."""

    off_share: float  # root of the rows' energy off their leading direction, over all of it
    scale: float  # of noise of the manifest's law that would be this part
    length: float  # root mean square of the coordinates
    deviation: float  # standard deviation of this part, in the numbers as uploaded
    unusable: dict[int, str]  # clients that no attack can read, and why


def size_up(view: View) -> Size:
    """Estimate the scale of the noise and of the rows from the second moments of each client's rows."""
    moments = _second_moments(view)
    n_numbers = max(view.messages.n_rows * view.manifest.factors, 1)
    off, energy, freedom = moments.off, moments.energy, moments.freedom
    unusable = dict.fromkeys(moments.too_large, "the uploaded numbers are too large to square")
    if energy == 0:
        zero = "all uploaded rows are zero"
        unusable |= {int(user): zero for user in view.users if int(user) not in unusable}
    variance = off / freedom if freedom else energy / n_numbers
    unit = abs(view.manifest.upload.scale)
    scale = noise_law(view.manifest).scale_of_variance(variance) / unit
    length = float(np.sqrt(energy / n_numbers)) / unit
    share = float(np.sqrt(off / energy)) if energy and freedom else (1.0 if energy else 0.0)
    return Size(share, scale, length, float(np.sqrt(variance)), unusable)


class _SecondMoments(NamedTuple):
    """Sums over clients: energy of the rows off their leading direction and in all, coordinates that the
    noise off it has; and clients whose rows cannot be squared.
    """

    off: float
    energy: float
    freedom: float
    too_large: list[int]


def _second_moments(view: View) -> _SecondMoments:
    off = energy = freedom = 0.0
    too_large: list[int] = []
    k, regularization = view.manifest.factors, view.manifest.upload.regularization
    for batch in view.batches():
        for uploads in batch.rounds:
            rows = freed(uploads, regularization)
            with np.errstate(over="ignore", invalid="ignore"):
                gram = np.matmul(rows.transpose(0, 2, 1), rows)
            finite = np.isfinite(gram).all(axis=(1, 2)) & (np.abs(gram).max(axis=(1, 2)) < 1e200)
            values = np.linalg.eigvalsh(np.where(finite[:, None, None], gram, 0))
            total = values.sum(axis=1)
            too_large += batch.users[~finite].tolist()
            count = np.broadcast_to(uploads.valid, rows.shape[:2]).sum(axis=1)
            off += float(np.maximum(total - values[:, -1], 0).sum())
            energy += float(total.sum())
            freedom += float((np.maximum(count[finite] - 1, 0) * (k - 1)).sum())
    return _SecondMoments(off, energy, freedom, too_large)
