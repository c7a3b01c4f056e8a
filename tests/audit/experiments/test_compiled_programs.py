"""Compiled programs on disk while a grid runs."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from audit.experiments.compiled_programs import FOLDER, LEAST, programs_kept, use_folder


@pytest.fixture
def no_folder():
    """Without the folder for programs that all tests share."""
    chosen, least = (getattr(jax.config, option) for option in (FOLDER, LEAST))
    use_folder(None, least)
    yield
    use_folder(chosen, least)


@pytest.mark.thorough
def test_programs_are_kept(tmp_path, no_folder):
    """A second cell finds what the first compiled, with the same numbers; afterwards nothing is kept."""
    found = []
    for _ in range(2):
        with programs_kept(tmp_path, slow=0.0):
            number = float(jax.jit(lambda x: (x @ x.T).sum())(np.eye(3)))
        found.append((number, {path.name for path in tmp_path.glob("*-cache")}))
        jax.clear_caches()
        jax.jit(lambda x: x @ x)(np.eye(3))  # outside: not kept
    assert found[0] == found[1]
    assert found[0][0] == 3.0
    assert len(found[0][1]) > 0


def test_programs_in_the_folder_of_the_user(tmp_path, no_folder):
    use_folder(str(tmp_path / "mine"), 0.0)
    with programs_kept(tmp_path / "ours"):
        assert getattr(jax.config, FOLDER) == str(tmp_path / "mine")
