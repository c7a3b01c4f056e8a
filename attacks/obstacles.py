"""Reasons why a view tells an attack nothing: each a sentence for a person, empty where there is none."""

from __future__ import annotations

from victims.transcript.view import View


def unreadable(view: View) -> str:
    """Say why uploads tell nothing to an attack that takes their rows apart.

    Parameters
    ----------
    view : View

    Returns
    -------
    str
        Empty where they can be read.
    """
    if view.messages.n_rows == 0:
        return nothing_received(view)
    if view.messages.gradient is None:
        return "the uploads are encrypted and the adversary holds no key"
    return factors_hidden(view)


def nothing_received(view: View) -> str:
    """Say why a view has no rows of clients.

    Parameters
    ----------
    view : View

    Returns
    -------
    str
    """
    if view.anonymous_rows:
        return (
            f"{view.anonymous_rows} rows have no sender, and this attack needs to know which are one client's"
        )
    return "the adversary receives no uploads"


def factors_hidden(view: View) -> str:
    """Say why nothing that needs the broadcast factors can be read.

    Parameters
    ----------
    view : View

    Returns
    -------
    str
        Empty where the view holds them.
    """
    return "" if view.broadcasts else "the broadcast factors are encrypted and the adversary holds no key"


def alpha_unknown(view: View) -> str:
    """Say why an attack that does not estimate alpha abstains.

    Parameters
    ----------
    view : View

    Returns
    -------
    str
        Empty where alpha is public or not needed.
    """
    if view.manifest.weighting == "include-unrated" and "alpha" not in view.manifest.hyperparameters:
        return "alpha, the weight of unrated items, is not public"
    return ""
