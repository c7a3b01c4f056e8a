"""Names of cells: a hash of everything that determines their rows, so that what changed is computed anew."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from victims.data.ratings import Ratings


def digest(identity: Mapping[str, Any]) -> str:
    """Hash what determines something."""
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def content_of(ratings: Ratings) -> str:
    """Hash the ratings, attributes and features themselves."""
    content = hashlib.sha256()
    for array in (ratings.indptr, ratings.items, ratings.values, ratings.attributes, ratings.item_features):
        content.update(np.ascontiguousarray(array).tobytes())
    return content.hexdigest()


def cell_path(directory: Path, label: str, identity: Mapping[str, Any]) -> Path:
    """Name the file of a cell's rows."""
    return directory / "cells" / f"{label}-{digest(identity)}.json"
