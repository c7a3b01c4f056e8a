"""Views: what is left of them where an adversary watches less."""

from __future__ import annotations

import numpy as np
import pytest

from victims.common.errors import InputError


def test_a_view_of_some_rounds(transcripts):
    view = transcripts["sgd", "include-unrated"].view("server")
    part = view.during(view.rounds[:1])
    assert part.rounds.tolist() == part.manifest.rounds == view.rounds[:1].tolist()
    assert np.array_equal(part.users, view.users)
    with pytest.raises(InputError, match="round 77 is not in the view"):
        view.during([77])
