"""Attacks of other packages change nothing of what others see, and break in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attacks.base import Reconstruction
from attacks.metadata.guess import GuessMajority
from audit.experiments.answers import WrongAnswer, answered, answered_or_refused, lent
from audit.plugins import said
from audit.registry import entries
from victims.common.errors import InputError


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def written_to(view):
    """Everything that an attack may try to write into."""
    broadcast = view.broadcasts[int(view.rounds[0])]
    yield from (view.users, view.rounds, view.layout.order, broadcast.factors, broadcast.item_ids)
    yield from (view.messages.gradient[0], view.messages.index[0])


def test_no_array_can_be_written(small_view):
    for array in written_to(lent(small_view)):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_what_is_no_array_is_a_copy(small_view):
    mine = lent(small_view)
    before, rounds = small_view.manifest.model_dump(), sorted(small_view.broadcasts)
    mine.manifest.rating_levels.append(99.0)
    mine.manifest.hyperparameters["alpha"] = 2.0
    object.__setattr__(mine.manifest, "n_items", 10**9)
    mine.broadcasts.clear()
    assert small_view.manifest.model_dump() == before
    assert sorted(small_view.broadcasts) == rounds


def test_it_says_the_same(small_view):
    mine = lent(small_view)
    for one, other in zip(written_to(mine), written_to(small_view), strict=True):
        np.testing.assert_array_equal(one, other)
    batch, own = next(mine.batches()), next(small_view.batches())
    np.testing.assert_array_equal(batch.rounds[0].gradients, own.rounds[0].gradients)


@pytest.mark.parametrize("error", [GeneratorExit(), BaseException("over"), Unspeakable()])
def test_any_error_is_refused_in_words(small_view, monkeypatch, error):
    def attack(*_):
        raise error

    monkeypatch.setattr(GuessMajority, "attack", attack)
    theirs = replace(entries("attacks")["guess-majority"], package="theirs 0.1")
    monkeypatch.setattr("audit.experiments.answers.entry", lambda *_: theirs)
    with pytest.raises(InputError, match=f"failed: {type(error).__name__}.*part of theirs 0.1"):
        answered_or_refused("guess-majority", None, small_view, 0)


def test_an_error_without_words():
    assert said(Unspeakable()) == "Unspeakable"


@pytest.mark.parametrize(
    ("abstained", "options", "complaint"),
    [({0: None}, {}, "in words why it abstained on client 0"), ({}, {"a": "\ud800"}, "JSON in UTF-8")],
)
def test_words_that_no_file_can_hold(small_view, monkeypatch, abstained, options, complaint):
    found = Reconstruction("guess-majority", small_view.users, ())
    for name, value in (("abstained", abstained), ("options", options)):
        object.__setattr__(found, name, value)  # as without the checks of the test run
    monkeypatch.setattr(GuessMajority, "attack", lambda *_: found)
    with pytest.raises(WrongAnswer, match=complaint):
        answered("guess-majority", None, small_view, 0)
