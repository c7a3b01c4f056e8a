"""A view as attacks of others get it: what they do to it stays with them.

Several attacks of one audit look at one view. If one of them could write into it, those after it would read
nothing, and the recording would look safe.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import numpy as np

from victims.transcript.batches import layout_of
from victims.transcript.manifest import Manifest
from victims.transcript.view import View


def lent(view: View) -> View:
    """Make a view whose arrays cannot be written, with a manifest and mappings of its own."""
    mine = cast(View, _lent(view))
    for part in (mine, mine.implicit):
        if part is not None:
            _protect(layout_of(part.messages))
    return mine


def _lent(value: Any) -> Any:
    """The same content, where a write fails or stays without consequence."""
    out = value
    if isinstance(value, np.ndarray):
        out = value.view()
        out.flags.writeable = False
    elif isinstance(value, Manifest):
        out = value.model_copy(deep=True)
    elif isinstance(value, dict):
        out = {key: _lent(one) for key, one in value.items()}
    elif isinstance(value, list | tuple):
        parts = [_lent(one) for one in value]
        out = type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    elif is_dataclass(value) and not isinstance(value, type):
        given = [one.name for one in fields(value) if one.init]
        out = replace(value, **{name: _lent(getattr(value, name)) for name in given})
    return out


def _protect(layout: Any) -> None:
    """Let nobody write into arrays that are kept for as long as their messages."""
    for one in fields(layout):
        array = getattr(layout, one.name)
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
