"""Chai et al.'s own attack: who is answered, and who is not."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.closed_form.fedmf_eq24 import Eq24
from tests.oracles.simulator import Reference
from victims.transcript.reader import open_transcript
from victims.transcript.view import View


@pytest.fixture(scope="module")
def reference() -> Reference:
    """Gradient steps on ratings alone, 60 clients."""
    return Reference("sgd", groups=(), rounds=(1, 2), n_users=60, n_items=40, factors=4)


@pytest.fixture(scope="module")
def seen(reference, tmp_path_factory) -> View:
    folder = tmp_path_factory.mktemp("eq24") / "t"
    reference.write(folder)
    return open_transcript(folder).view("server")


def noisy(reference: Reference, path, scale: float) -> View:
    """The same program with Laplace noise on every number that it sends."""
    state, messages = reference.run()
    rng = np.random.default_rng(3)
    perturbed = {key: row + rng.laplace(0, scale, row.shape) for key, row in messages.items()}
    copy = Reference("sgd", groups=(), rounds=(1, 2), n_users=60, n_items=40, factors=4)
    copy.run = lambda: (state, perturbed)  # type: ignore[method-assign]
    copy.write(path)
    return open_transcript(path).view("server")


def share_right(found, ratings: np.ndarray) -> float:
    columns = [
        np.abs(value - ratings[user, index]) < 0.5 for user, _, index, value, _ in found.rows() if user.size
    ]
    return float(np.concatenate(columns).mean()) if columns else float("nan")


def test_exact_rows_are_answered_whole(seen, reference):
    found = Eq24().attack(seen, 0)
    assert not found.abstained
    assert share_right(found, reference.ratings) == 1


@pytest.mark.parametrize("form", ["printed", "corrected"])
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_noise_is_no_answer(reference, tmp_path, form, scale):
    """Each client is answered about nothing with a probability of 0.001 at most; 60 clients, none here.

    Without the judgement nearly everybody who has a root is answered, most of them wrongly.
    """
    view = noisy(reference, tmp_path / "t", scale)
    found, as_the_paper = (Eq24(form, answer=answer).attack(view, 0) for answer in ("judged", "any"))
    assert len(found.abstained) == 60
    assert any("little better than chance" in reason for reason in found.abstained.values())
    assert len(as_the_paper.abstained) < 45
    assert share_right(as_the_paper, reference.ratings) < 0.5


def test_as_printed_it_answers_as_the_paper_does_on_request(seen, reference):
    found, as_the_paper = (Eq24("printed", answer=answer).attack(seen, 0) for answer in ("judged", "any"))
    assert len(found.abstained) == 60
    assert 0 < len(as_the_paper.abstained) < 60
    assert share_right(as_the_paper, reference.ratings) < 0.5
