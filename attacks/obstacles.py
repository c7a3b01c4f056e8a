"""Reasons why a view tells an attack nothing: each a sentence for a person, empty where there is none."""

from __future__ import annotations

import numpy as np

from victims.transcript.view import View

MISSING = 0.2  # share of entries that are 0, beyond which they were not sent; rounding leaves less


def unreadable(view: View) -> str:
    """Say why uploads tell nothing to an attack that takes their rows apart."""
    if view.messages.n_rows == 0:
        return nothing_received(view)
    if view.messages.gradient is None:
        return "the uploads are encrypted and the adversary holds no key"
    return factors_hidden(view)


def nothing_received(view: View) -> str:
    """Say why a view has no rows of clients."""
    if view.anonymous_rows:
        return (
            f"{view.anonymous_rows} rows have no sender, and this attack needs to know which are one client's"
        )
    if view.unplaced_rows:
        return (
            f"{view.unplaced_rows} rows are about factors that were broadcast to one client alone; where the "
            "adversary knows these, as who handed them out does, give Recorder.upload their references"
        )
    return "the adversary receives no uploads"


def factors_hidden(view: View) -> str:
    """Say why nothing that needs the broadcast factors can be read."""
    return "" if view.broadcasts else "the broadcast factors are encrypted and the adversary holds no key"


def alpha_unknown(view: View) -> str:
    """Say why an attack that does not estimate alpha abstains."""
    if view.manifest.weighting == "include-unrated" and "alpha" not in view.manifest.hyperparameters:
        return "alpha, the weight of unrated items, is not public"
    return ""


def entries_missing(view: View) -> str:
    """Say why an attack that takes each row for whole abstains: some of the entries alone were sent."""
    zeros, n_rows = np.zeros(view.manifest.factors), 0
    for gradient in view.messages.gradient or ():
        rows = gradient[(gradient != 0).any(axis=1)]
        zeros += (rows == 0).sum(axis=0)
        n_rows += len(rows)
    used = zeros < n_rows
    if not used.any() or zeros[used].mean() <= MISSING * n_rows:
        return ""
    share = zeros[used].mean() / n_rows
    return (
        f"{share:.0%} of the entries of the rows are exactly 0 and were not sent, which this attack takes "
        "for numbers; undeclared reads such rows"
    )
