"""How long each client's list is, from sealed links alone: who sends how many rows.

Beyond Duriakova et al. 2019 and Yang et al. 2022, whose clients send a row for each rating in every round:
whoever sees that messages pass, and nothing in them, counts the ratings of everybody. Which items these are
no count tells.

What it assumes: one message a row, or a size that tells how many rows it holds; rows of rated items alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from attacks.base import Progress, Reconstruction, Scope, all_abstain, silent
from victims.transcript.view import View


@dataclass(frozen=True)
class Traffic:
    """It has no hyper-parameters."""

    name: str = "traffic"

    def attack(self, view: View, key: int, progress: Progress = silent) -> Reconstruction:
        """Count."""
        options = {**asdict(self), "seed": key}
        if obstacle := self.obstacle(view):
            return all_abstain(self.name, view.users, obstacle, options, scope=Scope.LIST_LENGTHS)
        assert view.traffic is not None
        users = np.union1d(view.users, view.traffic.sender)
        rows = [view.traffic.rows[view.traffic.sender == user] for user in users]
        length = np.array([np.median(counts) if counts.size else np.nan for counts in rows])
        progress(users.size, users.size)
        silent = dict.fromkeys(users[np.isnan(length)].tolist(), "no row of the client passes")
        told = {"list_length": length}
        return Reconstruction(self.name, users, (), silent, options, told, scope=Scope.LIST_LENGTHS)

    def obstacle(self, view: View) -> str:
        """Why there is nothing to count, or nothing."""
        if view.traffic is None:
            return "it counts rows on sealed links, and this adversary sees what they hold, or none"
        if view.manifest.weighting != "observed-only" or view.manifest.rule.rows == "all":
            return "clients send rows about items that they did not rate, too"
        return "" if view.traffic.sender.size else "no rows pass"
