"""The persistent compilation cache: a program compiled once is not compiled again in the next process."""

import os
from pathlib import Path

import jax

from ..folders import user_cache

SWITCH = "ACENODE_COMPILATION_CACHE"


def enable_compilation_cache() -> None:
    """Keep compiled programs in the user's cache folder.

    Does nothing where JAX already has a cache folder. The environment variable `ACENODE_COMPILATION_CACHE` names
    another folder, or turns the cache off with the value `off`.
    """
    wish = os.environ.get(SWITCH, "")
    if wish == "off" or jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    home = user_cache()
    if not wish and home is None:
        return
    folder = Path(wish) if wish or home is None else home / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written to costs time, not the run
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
