"""How the library compiles: with options of its own on a GPU, alone and within other compiled functions."""

import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from acenode import compiled as module
from acenode.compiled import compiled, compiled_quickly, in_parallel
from acenode.precision import jax_precision, products_in


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_a_compiled_function_answers_alone_and_within_others(monkeypatch, backend):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)  # the options of a GPU mean nothing to a CPU
    square = compiled(lambda x: x @ x)
    x = jnp.arange(4.0).reshape(2, 2)
    expected = x @ x
    assert jnp.array_equal(square(x), expected)
    assert jnp.array_equal(jax.jit(lambda x: square(x))(x), expected)
    assert jnp.array_equal(jax.vmap(square)(x[None])[0], expected)
    assert eqx.filter_eval_shape(square, x).shape == (2, 2)
    assert jnp.array_equal(compiled_quickly(lambda x: x @ x)(x), expected)


def test_flags_of_the_user_count_more(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=4")
    assert "xla_gpu_autotune_level" not in module._options()
    monkeypatch.delenv("XLA_FLAGS")
    assert module._options()["xla_gpu_autotune_level"] == 0


@pytest.mark.parametrize(("devices", "threads"), [(1, 2), (2, 1)])
def test_functions_in_parallel_keep_their_order_and_the_precision_around_them(monkeypatch, devices, threads):
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    met = threading.Barrier(threads, timeout=60)

    def told(name):
        met.wait()  # both are under way at once, where there is one device
        return name, jax_precision(), threading.current_thread() is threading.main_thread()

    with products_in("tf32"):
        found = in_parallel(lambda: told("a"), lambda: told("b"))
    assert found == [("a", "tensorfloat32", devices > 1), ("b", "tensorfloat32", devices > 1)]


def test_what_goes_wrong_in_a_thread_is_raised():
    with pytest.raises(ZeroDivisionError):
        in_parallel(lambda: 1, lambda: 1 // 0)
