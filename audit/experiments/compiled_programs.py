"""Programs that JAX compiled, kept on disk while a grid runs: attacks drop them from memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

FOLDER, LEAST = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
SLOW = 0.1  # seconds of compiling, from which a program is kept


@contextmanager
def programs_kept(folder: Path, slow: float = SLOW) -> Iterator[None]:
    """Keep what is compiled meanwhile in a folder, and find it there.

    JAX does not write programs atomically: give each process a folder. One that the user chose
    (``JAX_COMPILATION_CACHE_DIR``) goes before.

    Parameters
    ----------
    folder : Path
    slow : float
        Seconds of compiling, from which a program is kept.

    Yields
    ------
    None
    """
    if getattr(jax.config, FOLDER) is not None:
        yield
        return
    least = getattr(jax.config, LEAST)
    use_folder(str(folder), slow)
    try:
        yield
    finally:
        use_folder(None, least)


def use_folder(folder: str | None, slow: float) -> None:
    """Set JAX's folder for programs from now on.

    Parameters
    ----------
    folder : str or None
        None keeps nothing.
    slow : float
        Seconds of compiling, from which a program is kept.
    """
    jax.config.update(FOLDER, folder)
    jax.config.update(LEAST, slow)
    compilation_cache.reset_cache()  # the open folder is remembered otherwise
