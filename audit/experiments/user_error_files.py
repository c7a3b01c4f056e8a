"""Errors of each user beside the rows of a prediction's cell: ``CELL.users.npy``, (3, n_users)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from audit.scoring.prediction_errors import UserErrors
from victims.common.files import replacing


def write_user_errors(cell: Path, sums: np.ndarray) -> None:
    """Keep the sums of one training."""
    with replacing(_beside(cell)) as partial, partial.open("wb") as file:
        np.save(file, sums, allow_pickle=False)


def read_user_errors(cell: Path, n_users: int) -> UserErrors | None:
    """Read the sums of one training."""
    try:
        table = np.load(_beside(cell), allow_pickle=False, mmap_mode="r")
    except (OSError, ValueError):
        return None
    if table.shape != (3, n_users) or table.dtype != np.float64:
        return None
    return UserErrors(*np.array(table)[:, None])


def _beside(cell: Path) -> Path:
    return cell.with_suffix(".users.npy")
