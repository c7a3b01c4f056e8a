"""What is kept is the answer to the same question, and nobody can change it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attacks.closed_form.uploads.kept import forget, kept


class Answer(NamedTuple):
    value: np.ndarray


def counting(size=2, depends_on=None):
    """A function that notes what it was asked."""
    asked = []

    @kept(size, depends_on)
    def doubled(rows, other=None):
        asked.append(other)
        return Answer(2 * rows)

    return doubled, asked


def test_the_same_question_is_answered_once():
    doubled, asked = counting()
    for rows in (np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(2, 6)[:, ::2] / 2):
        np.testing.assert_array_equal(doubled(rows, 1).value, 2 * rows)
    assert asked == [1]


def test_another_question_is_another():
    """Other numbers, another shape, another type of numbers, another value."""
    rows = np.zeros(4)
    doubled, asked = counting(size=9)
    for one in (rows, rows + 1, rows.reshape(2, 2), rows.astype(np.float32)):
        np.testing.assert_array_equal(doubled(one, None).value, 2 * one)
    for other in (1.0, {"a": 1}, {"a": 2}, {"a": 1}):
        doubled(rows, other)
    assert asked == [None] * 4 + [1.0, {"a": 1}, {"a": 2}]


def test_what_makes_no_difference_is_left_out():
    doubled, asked = counting(depends_on=lambda rows, other: (rows,))
    for other in (1, 2):
        doubled(np.ones(3), other)
    assert asked == [1]


def test_an_answer_that_is_changed_changes_no_other():
    doubled, _ = counting()
    for _ in range(3):
        found = doubled(np.ones(3))
        np.testing.assert_array_equal(found.value, 2.0)
        found.value[:] = 0


def test_the_oldest_answers_go_first():
    doubled, asked = counting(size=2)
    one, two, three = (np.full(1, value) for value in (1.0, 2.0, 3.0))
    for rows in (one, two, one, three, one, two):
        doubled(rows, rows.item())
    assert asked == [1.0, 2.0, 3.0, 2.0]


def test_what_is_forgotten_is_asked_again():
    doubled, asked = counting()
    for _ in range(2):
        doubled(np.zeros(3), 1)
        forget()
    assert asked == [1, 1]
