"""Programs that learn ratings less the lowest level: who has none of that level fits one too low."""

from __future__ import annotations

import numpy as np

from attacks.base import RELATIVE, Reconstruction
from attacks.closed_form.common_numbers import untold_offset
from attacks.closed_form.fit.contradicted import silent_about
from attacks.closed_form.fit.shunned_level import unless_shunned
from attacks.closed_form.uploads.reduction import NOISES
from victims.transcript.view import View

MAX_MISFIT = 0.25  # of the clients that are asked, as ``undeclared`` allows


def unless_lowered(found: Reconstruction, view: View) -> Reconstruction:
    """Answer nobody where clients show that the program learns ratings less the lowest level."""
    manifest, found = view.manifest, unless_shunned(found, view)
    answered = ~np.isin(found.users, list(found.abstained))
    added = all(entry.get("name") in NOISES for entry in manifest.defenses)
    plain = manifest.weighting == "observed-only" and added
    if not plain or answered.all() or not answered.any() or found.scope in RELATIVE:
        return found
    lowered = untold_offset(view, MAX_MISFIT).lowered
    if not lowered:
        return found
    reason = (
        f"clients' rows say that the program learns ratings less {lowered:g}, which this attack does not "
        "know; undeclared reads them"
    )
    return silent_about(found, answered, reason)
