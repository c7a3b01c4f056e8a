"""The test run checks types and shapes: what is no argument of a function is refused, and so is no result."""

from __future__ import annotations

from importlib.util import find_spec, module_from_spec

import numpy as np
import pytest
from beartype.roar import BeartypeCallHintParamViolation, BeartypeCallHintReturnViolation
from jaxtyping import Float, TypeCheckError

from attacks.base import Estimates
from tests.checked_types import EVERY, OFTEN, checks_its_types
from victims.protocols.fedmvmf import FedMVMF

Rows = Float[np.ndarray, "rows factors"]


def product(rows: Rows, factor: Float[np.ndarray, " factors"]) -> Float[np.ndarray, " rows"]:
    return rows @ factor


def name(number: int) -> str:
    return str(number) if number else number  # type: ignore[return-value]


@pytest.mark.parametrize("sizes", [((3, 2), (3,)), ((3,), (3,)), ((3, 2, 2), (2,))])
def test_sizes_agree_within_a_call(sizes):
    checked = checks_its_types(product)
    assert checked(np.ones((3, 2)), np.ones(2)).shape == (3,)
    with pytest.raises(TypeCheckError):
        checked(*map(np.ones, sizes))


def test_what_differs_from_a_checked_call_is_checked_again():
    """Other sizes, other types of a result for arguments alike, and what a list holds."""

    def rows(values: list[int], known: Float[np.ndarray, " n"], answer: object) -> Float[np.ndarray, " n"]:
        calls.append(values)
        return answer

    calls: list[list[int]] = []
    checked = checks_its_types(rows)
    for size in (2, 3):
        for _ in range(2):
            assert checked([1], np.ones(size), np.ones(size)).shape == (size,)
    assert len(calls) == 4
    for wrong in (([1], np.ones(2), np.ones(3)), ([1], np.ones(2), "x"), (["1"], np.ones(2), np.ones(2))):
        with pytest.raises(TypeCheckError):
            checked(*wrong)

    def doubled(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return [values * 2, values[1:], None][turn.pop()]

    turn = [2, 1, 0, 0]
    checked = checks_its_types(doubled)
    for _ in range(2):
        assert checked(np.ones(3)).tolist() == [2, 2, 2]
    for _ in range(2):
        with pytest.raises(TypeCheckError):
            checked(np.ones(3))


def test_types_of_arguments_and_results():
    checked = checks_its_types(name)
    assert checked(1) == "1"
    with pytest.raises(BeartypeCallHintParamViolation):
        checked("1")
    with pytest.raises(BeartypeCallHintReturnViolation):
        checked(0)


def test_of_what_is_called_very_often_some_calls_are_looked_at():
    checked, refused = checks_its_types(name), 0
    for _ in range(OFTEN + 2 * EVERY):
        try:
            checked("1")
        except BeartypeCallHintParamViolation:
            refused += 1
    assert OFTEN <= refused <= OFTEN + 3


def test_the_packages_are_checked(small_view):
    spec = find_spec("victims.evaluation.feedback_split")
    assert spec is not None
    assert spec.loader is not None
    fresh = module_from_spec(spec)  # whose functions nobody called: of many calls not all are looked at
    spec.loader.exec_module(fresh)
    with pytest.raises(BeartypeCallHintParamViolation):
        fresh.feedback_split("no ratings", 0.2, 0.5, 0)
    with pytest.raises(TypeCheckError):
        FedMVMF(factors="6")
    with pytest.raises(TypeCheckError):
        Estimates(small_view.users, np.zeros((1, 3), np.int8), np.zeros((1, 2), np.int32), np.ones((12, 3)))
