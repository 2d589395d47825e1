"""Settings of all tests: double precision, no compilation cache between runs, a key."""

import gc
import os

import jax
import pytest

# A cache from an older run could hide that something no longer compiles. Name a folder in the variable to use one.
os.environ.setdefault("ACENODE_COMPILATION_CACHE", "off")
jax.config.update("jax_enable_x64", True)
# Tests compile much and compute little: the compiler need not try hard. A third of the time goes this way.
jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(autouse=True, scope="module")
def _forget_compiled_programs():
    """A compiled program keeps a dozen memory maps; one process may hold 65,530, and dies where it asks for more."""
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture
def key():
    return jax.random.key(0)
