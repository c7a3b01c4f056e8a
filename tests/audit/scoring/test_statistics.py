"""The exact sign test over clients."""

from __future__ import annotations

import numpy as np
import pytest

from audit.scoring.statistics import sign_test


def test_sign_test_is_exact():
    values = np.array([1.0, 1, 1, 1, 0, 0.5])
    baseline = np.array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    assert sign_test("rating_accuracy", values, baseline) == pytest.approx(6 / 32)
    assert sign_test("rating_mae", values, baseline) == pytest.approx(31 / 32)
    assert sign_test("rating_accuracy", baseline, baseline) == 1.0
