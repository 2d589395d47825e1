"""The error of reduced precision: answers and gradients of the main models against double precision.

Every model has the same weights in all rows. `answers` and `gradient` are the length of the difference from double
precision, divided by the length of what double precision gives. Steps are fixed, so that this is rounding alone.
`evaluations` are those of an adaptive solver of the pairwise system at two tolerances: where the vector field has fewer
digits than the tolerance asks for, the solver takes ever smaller steps.

A CPU has neither tf32 nor bfloat16, so there they are emulated: inputs of every product are rounded to 10 or 7 binary
digits, in the gradient too. The file says so.
"""

import contextlib
import functools as ft
from collections.abc import Callable, Iterator
from dataclasses import replace
from unittest import mock

import climate
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import system
from jax import lax
from jax._src.lax import lax as internal
from record import arguments, save, show

from acenode.estimators.inference import without_sampling
from acenode.models.recurrent import GRUD
from acenode.ode import CoEvolvingODE, ConvField, ConvInitial, Elementwise, Solver
from acenode.paper import climate as rows
from acenode.precision import products_in
from acenode.tasks import Forecast, Headed

PRECISIONS = ("float32", "tf32", "bfloat16")
ONLY_CONVOLUTIONS = "float16"
SPAN = 20.0
TOLERANCES = (1e-4, 1e-6)
DIGITS = {"tf32": 10, "bfloat16": 7}
jax.config.update("jax_disable_most_optimizations", True)  # many programs to compile, and little to compute
EMULATED = tuple(DIGITS) if jax.default_backend() == "cpu" else ()


@contextlib.contextmanager
def rounded_products(digits: int) -> Iterator[None]:
    """Inputs of all products that are traced within it are rounded to so many binary digits, their gradients' too."""
    exact = internal.dot_general

    def round_to(x):
        return lax.reduce_precision(x, 8, digits) if x.dtype == jnp.float32 else x

    def rounded(lhs, rhs, *how, **options):
        @jax.custom_vjp
        def product(lhs, rhs):
            return exact(round_to(lhs), round_to(rhs), *how, **options)

        def forward(lhs, rhs):
            return jax.vjp(lambda a, b: exact(a, b, *how, **options), round_to(lhs), round_to(rhs))

        product.defvjp(forward, lambda pull, grad: pull(round_to(grad)))
        return product(lhs, rhs)

    with mock.patch.object(internal, "dot_general", rounded), mock.patch.object(lax, "dot_general", rounded):
        yield


@contextlib.contextmanager
def within(precision: str) -> Iterator[None]:
    """What is traced within it has this precision, emulated where the machine does not have it."""
    with products_in("float32" if precision in (*EMULATED, ONLY_CONVOLUTIONS) else precision):  # type: ignore[arg-type]
        if precision not in EMULATED:
            yield
            return
        jax.clear_caches()  # or a product that was traced before would be taken as it is
        with rounded_products(DIGITS[precision]):
            yield
        jax.clear_caches()


# --- models: a tree of weights, and answers and a loss that are functions of it ------------------------------------


def pairwise(precision: str, quick: bool):
    size = system.Size(h=8, batch=4, times=5) if quick else system.Size(h=20, batch=16, times=10)
    ode, h0, times = system.problem(size, Solver("heun", step=0.05), gain=2.0)
    return ode, (h0, times), lambda ode, given: ode(*given).h


def images(precision: str, quick: bool):
    one, two, three, four = jax.random.split(jax.random.key(0), 4)
    channels, batch = (4, 2) if quick else (32, 8)
    how = {"precision": precision if precision == ONLY_CONVOLUTIONS else None}
    fields = ConvField(channels, 1, **how, key=one), ConvField(channels, 2, **how, key=two)
    ode = CoEvolvingODE(
        *fields, Elementwise(), ConvInitial(channels, 1, **how, key=three), Solver("heun", step=0.1), stacked=False
    )
    h0 = jax.random.normal(four, (batch, 6, 6, channels))
    return ode, (h0, jnp.asarray([0.0, 0.5, 1.0])), lambda ode, given: ode(*given).h


def series_model(build: Callable):
    def make(precision: str, quick: bool):
        headed = build(jax.random.key(0))
        headed = headed if isinstance(headed, Headed) else Headed(headed, None)
        query = jax.tree.map(jnp.asarray, climate.generated(2 if quick else 8, 10 if quick else 40, SPAN))

        def answers(headed, query):
            mean, log_variance = Forecast().outputs(headed, query, jax.random.key(0))[:2]
            return jnp.where(query.observed, mean + log_variance, 0.0)

        return without_sampling(headed), query, answers

    return make


MODELS = {
    "pairwise co-evolving ODE": pairwise,
    "ACE-ODE-Net (feature maps)": images,
    "GRU-ODE-Bayes": series_model(lambda key: climate.built("GRU-ODE-Bayes", SPAN, key)),
    "Latent-ODE": series_model(rows.latent(masked=True)),
    "GRU-D": series_model(rows.filtered(GRUD)),
}


def computed(name: str, precision: str, quick: bool, double: bool) -> tuple[np.ndarray, np.ndarray]:
    """Answers, and the gradient of the mean of their squares; in double precision the same numbers as in single."""
    model, given, answers = built(name, precision == ONLY_CONVOLUTIONS, quick)
    with jax.enable_x64(double), within(precision):
        model, given = jax.tree.map(lambda x: jnp.asarray(x, float) if _is_number(x) else x, (model, given))
        moving, still = eqx.partition(model, eqx.is_inexact_array)

        def loss(moving, given):
            out = answers(eqx.combine(moving, still), given)
            return jnp.mean(jnp.square(out)), out

        gradient, out = jax.jit(jax.grad(loss, has_aux=True))(moving, given)
        assert out.dtype == (jnp.float64 if double else jnp.float32), (name, out.dtype)
        flat = np.concatenate([np.ravel(np.asarray(x, float)) for x in jax.tree.leaves(gradient)])
        return np.asarray(out, float), flat


@ft.cache
def built(name: str, half: bool, quick: bool):
    """A model, what it is given, and its answers; numbers as numpy arrays in single precision."""
    model, given, answers = MODELS[name](ONLY_CONVOLUTIONS if half else "float32", quick)
    model, given = jax.tree.map(lambda x: np.asarray(x) if eqx.is_array(x) else x, (model, given))
    return model, given, answers


def _is_number(x) -> bool:
    return isinstance(x, np.ndarray) and np.issubdtype(x.dtype, np.floating)


def error(found: np.ndarray, exact: np.ndarray) -> float:
    assert np.isfinite(exact).all() and np.linalg.norm(exact) > 0
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def errors(quick: bool) -> dict[str, dict[str, dict[str, float]]]:
    table = {}
    for name in MODELS:
        exact = computed(name, "float32", quick, double=True)
        wanted = (*PRECISIONS, ONLY_CONVOLUTIONS) if name == "ACE-ODE-Net (feature maps)" else PRECISIONS
        table[name] = {}
        for precision in wanted:
            pairs = zip(computed(name, precision, quick, double=False), exact, strict=True)
            table[name][precision] = dict(zip(("answers", "gradient"), (error(*pair) for pair in pairs), strict=True))
        print(name, table[name], flush=True)
    return table


def evaluations(quick: bool) -> dict[str, dict[str, int]]:
    """Evaluations of the pairwise system that an adaptive solver takes for its slowest sample."""
    table = {}
    for precision in PRECISIONS:
        with within(precision):
            ode, (h0, times), _ = pairwise(precision, quick)
            taken = {}
            for tolerance in TOLERANCES:
                solver = Solver("dopri5", rtol=tolerance, atol=tolerance, max_steps=512)
                path = eqx.filter_jit(replace(ode, solver=solver))(h0, times)
                taken[f"{tolerance:g}"] = int(path.stats.evaluations.max())
        table[precision] = taken
    return table


def main() -> None:
    given = arguments((__doc__ or "").splitlines()[0], "precision").parse_args()
    table, taken = errors(given.quick), evaluations(given.quick)
    lines = [
        [name, precision, f"{row['answers']:.1e}", f"{row['gradient']:.1e}"]
        for name, by in table.items()
        for precision, row in by.items()
    ]
    show(["error against float64", "precision", "answers", "gradient"], lines)
    print()
    heads = ["evaluations of an adaptive solver", *(f"tolerance {t:g}" for t in TOLERANCES)]
    show(heads, [[precision, *counts.values()] for precision, counts in taken.items()])
    path = save(given.out, "precision", given.quick, errors=table, evaluations=taken, emulated=list(EMULATED))
    print(f"\nwritten: {path}")


if __name__ == "__main__":
    main()
