"""Settings of all tests: double precision but for `tests/single`, no compilation cache between runs, a key."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import hypothesis
import jax
import pytest


def _quick_compiler() -> None:
    """Half of the compiler's time goes into fusions that small programs do not need, a tenth into cutting them up.

    An unknown flag would end the process, so another one tries them first; the workers of a run inherit the answer.
    """
    flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    given = os.environ.get("XLA_FLAGS", "")
    if flags in given or "ACENODE_TESTS_TRIED_FLAGS" in os.environ:
        return
    os.environ["ACENODE_TESTS_TRIED_FLAGS"] = "yes"
    wanted = f"{given} {flags}".strip()
    trial = [sys.executable, "-c", "import jax; jax.devices()"]
    if subprocess.run(trial, env={**os.environ, "XLA_FLAGS": wanted}, capture_output=True).returncode == 0:
        os.environ["XLA_FLAGS"] = wanted


SINGLE = os.environ.get("ACENODE_TESTS_PRECISION") == "single"  # as users have it: float32, an optimising compiler
collect_ignore = [] if SINGLE else ["single"]
if not SINGLE:
    _quick_compiler()

# A cache from an older run could hide that something no longer compiles. Name a folder in the variable to use one.
os.environ.setdefault("ACENODE_COMPILATION_CACHE", "off")
jax.config.update("jax_enable_x64", not SINGLE)
# Tests compile much and compute little: the compiler need not try hard. A third of the time goes this way.
jax.config.update("jax_disable_most_optimizations", not SINGLE)

# The same examples in every run, however long one takes.
hypothesis.settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("repeatable")


_MAPS = Path("/proc/self/maps")


@pytest.fixture(autouse=True, scope="module")
def _forget_compiled_programs():
    """A compiled program keeps a dozen memory maps; one process may hold 65,530, and dies where it asks for more."""
    yield
    if not _MAPS.exists() or _MAPS.read_bytes().count(b"\n") > 15_000:
        jax.clear_caches()
        gc.collect()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A file stays together on one process, and so do all estimators, which share what they fitted."""
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return "estimators" if nodeid.startswith("tests/estimators/") else super()._split_scope(nodeid)

    return Together(config, log)


@pytest.fixture
def key():
    return jax.random.key(0)
