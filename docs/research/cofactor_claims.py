"""What those who are trusted most claim: ``python docs/research/cofactor_claims.py SHARED``.

Records DPMF-Yang on FilmTrust (of the folder SHARED) in rounds 0 to 2, lets ``cofactors`` read the rows that
reach the 20 users to whom most send, with those about implicit feedback and without, and prints as CSV
how many of the ratings that were sent it is sure of (probability 1), how many of these are right, and how
many items it lists as rated.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from neighbours import YANG, adversary_of, members_of, ratings_of, recorded

import factorleak as fl
from audit.keys import view_of
from factorleak import plugins
from victims.data.ratings import Ratings

COALITION = "coalition of 20"
ROUNDS = (0, 2)
HEAD = (
    "round watched", "rows about Z", "senders", "explicit ratings sent", "claimed", "right",
    "items listed as rated", "items rated", "listed and not rated",
)  # fmt: skip


def main(shared: Path) -> None:
    """Print the table."""
    ratings = ratings_of(YANG.data, shared)
    members = members_of(COALITION, YANG, ratings)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(HEAD)
    with TemporaryDirectory() as folder:
        made = recorded(YANG, ratings, members, range(max(ROUNDS) + 1), Path(folder))
        whole = view_of(made.transcript, adversary_of(COALITION, members))
        for number in ROUNDS:
            view = whole.during([number])
            for said, seen in (("read", view), ("left out", replace(view, implicit=None))):
                out.writerow([number, said, *(f"{count:,}" for count in counts(seen, members, ratings))])


def counts(view: fl.View, members: list[int], ratings: Ratings) -> tuple[int, ...]:
    """Senders, ratings sent, claimed and right; items listed, rated, and listed though they are not."""
    assert view.copies is not None
    tables = [one.copies for one in (view, view.implicit) if one is not None and one.copies is not None]
    senders = np.setdiff1d(np.concatenate([one.sender for one in tables]), members)
    here = np.isin(view.copies.sender, senders)
    sent = len(set(zip(view.copies.sender[here].tolist(), view.copies.index[here].tolist(), strict=True)))
    true, levels = ratings.matrix()[senders].toarray(), np.array(ratings.levels)
    claimed = right = listed = unrated = 0
    for block in fl.attack(view, "cofactors").blocks:
        assert block.probability is not None
        index, kind = (np.broadcast_to(column, block.value.shape) for column in (block.index, block.kind))
        told = np.isin(block.users, senders)[:, None] & (kind == plugins.ITEM) & (block.value > 0)
        row, column = np.nonzero(told)
        named = levels[np.abs(block.value[told][:, None] - levels).argmin(axis=1)]
        truth = true[np.searchsorted(senders, block.users[row]), index[row, column]]
        sure = block.probability[told] == 1
        claimed, right = claimed + sure.sum(), right + np.sum(named[sure] == truth[sure])
        listed, unrated = listed + truth.size, unrated + np.sum(truth == 0)
    return senders.size, sent, int(claimed), int(right), int(listed), int(np.sum(true > 0)), int(unrated)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
