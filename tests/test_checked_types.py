"""The test run checks types and shapes of the packages."""

from __future__ import annotations

from importlib.util import find_spec, module_from_spec

import numpy as np
import pytest
from beartype.roar import BeartypeCallHintParamViolation
from jaxtyping import TypeCheckError

from attacks.base import Estimates
from victims.protocols.fedmvmf import FedMVMF


def test_the_packages_are_checked(small_view):
    spec = find_spec("audit.papers.feedback")
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
