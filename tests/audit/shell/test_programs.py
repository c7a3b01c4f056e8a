"""Compiled programs in the user's cache folder."""

from __future__ import annotations

import os
import subprocess
import sys

FIRST = "from audit.shell.programs import keep_programs, SETTINGS as S; S['{slow}'] = 0; "
SLOW = "jax_persistent_cache_min_compile_time_secs"
COMPILE = "import jax, numpy as np; print(float(jax.jit(lambda x: (x @ x.T).sum())(np.eye(3))))"


def numbers(code, folder, **more):
    known = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    settings = {**known, "FACTORLEAK_CACHE": str(folder), "JAX_PLATFORMS": "cpu", **more}
    words = [sys.executable, "-W", "error", "-c", FIRST.format(slow=SLOW) + code]
    found = subprocess.run(words, env=settings, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    return found.stdout


def kept(folder):
    return {path.name for path in folder.rglob("*-cache")}


def test_what_was_compiled_is_found_again(tmp_path):
    """Where JAX was there already, with the same numbers."""
    code = f"{COMPILE}; jax.clear_caches(); keep_programs(); {COMPILE}"
    assert set(numbers(code, tmp_path).split()) == {"3.0"}
    first = kept(tmp_path)
    assert first
    assert set(numbers(code, tmp_path).split()) == {"3.0"}
    assert kept(tmp_path) == first


def test_a_folder_of_the_user_goes_before(tmp_path):
    mine = tmp_path / "mine"
    numbers(f"keep_programs(); {COMPILE}", tmp_path / "cache", JAX_COMPILATION_CACHE_DIR=str(mine),
            JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0")  # fmt: skip
    assert kept(mine)
    assert not kept(tmp_path / "cache")


def test_without_a_folder_nothing_is_kept(tmp_path):
    (tmp_path / "file").write_text("")
    assert numbers(f"keep_programs(); {COMPILE}", tmp_path / "file") == "3.0\n"
