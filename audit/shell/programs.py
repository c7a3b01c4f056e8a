"""Programs that JAX compiles, kept in the user's cache folder: half of a short command is compiling."""

from __future__ import annotations

import os
import platform
import sys

from victims.data.fetch import cache_directory

LARGEST = 512 << 20  # bytes, beyond which the oldest go; with a limit JAX locks the folder
SLOW = 0.1  # seconds of compiling, from which a program is kept
SETTINGS = {
    "jax_compilation_cache_max_size": LARGEST,
    "jax_persistent_cache_min_compile_time_secs": SLOW,
}
FOLDER = "jax_compilation_cache_dir"  # and in capitals the environment's; the user's own goes before


def keep_programs() -> None:
    """Have this process, and those that it starts, keep what JAX compiles, and find it.

    JAX tells versions, options and kinds of processor apart. A folder of its own for each machine is for
    those whose home is one and the same. Where it cannot be written, nothing is kept.
    """
    if FOLDER.upper() in os.environ:
        return
    folder = cache_directory() / "programs" / platform.node()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if not os.access(folder, os.W_OK):
        return
    settings = {FOLDER: str(folder), **SETTINGS}
    if "jax" not in sys.modules:  # it reads them when it is imported
        os.environ |= {name.upper(): str(value) for name, value in settings.items()}
        return
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    if getattr(jax.config, FOLDER) is None:
        for name, value in settings.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()  # that it had no folder is remembered otherwise
