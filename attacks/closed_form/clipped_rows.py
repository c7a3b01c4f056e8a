"""What rows say, with those among them that programs clipped, entry by entry or sample by sample."""

from __future__ import annotations

from attacks.closed_form.clipped_entries import reading_of_clipped_entries
from attacks.closed_form.clipped_samples import reading_of_clipped_samples
from attacks.closed_form.gaps import reading_with_gaps
from attacks.closed_form.readings import Reading, Rows, on_the_rest
from victims.transcript.manifest import Manifest

READINGS = (reading_of_clipped_entries, reading_of_clipped_samples)


def reading_with_clipped(rows: Rows, manifest: Manifest, max_misfit: float) -> Reading:
    """Read each client as what its rows fit best; who is not read, as one who clips.

    Parameters
    ----------
    rows : Rows
    manifest : Manifest
        Names the rating grid.
    max_misfit : float
        Largest misfit at which a client is answered.

    Returns
    -------
    Reading
    """
    best = reading_with_gaps(rows, manifest, max_misfit)
    for reading in READINGS if rows.rows.shape[1] and len(manifest.rating_levels) > 1 else ():
        best = on_the_rest(best, reading, ~best.answered, rows, manifest, max_misfit)
    return best
