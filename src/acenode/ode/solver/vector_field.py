"""What the solver needs to know of a vector field `field(t, y, args)`, which is written for one sample."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
from jaxtyping import PyTree

from .runge_kutta import Tableau

#: The axis name of the batch inside a `BatchCoupled` vector field. JAX's error for any other field quotes it.
SAMPLES = "samples of a BatchCoupled field"


class BatchCoupled(eqx.Module):
    """Base class of vector fields in which the samples of a batch see each other.

    Such a field, or a part of it, may use collectives over the axis `SAMPLES`, e.g. `jax.lax.pmean(h, SAMPLES)`. All
    samples stay in one batch until the last one has finished; one that has finished keeps its last state. Use a fixed
    step where the samples are to be at the same time, and an adjoint other than `backsolve`.
    """


class InPrecision(eqx.Module):
    """A vector field whose products have the given precision wherever it is traced, so in its gradient too.

    What it has for a batch keeps a precision of its own.
    """

    field: Callable
    precision: str = eqx.field(static=True)  # JAX's name

    def __call__(self, *inputs):
        with jax.default_matmul_precision(self.precision):
            return self.field(*inputs)

    def on_batch(self, y):
        return of_batch(self.field, y)


def is_coupled(field) -> bool:
    """Whether `field` or a part of it is `BatchCoupled`."""
    found = lambda node: isinstance(node, BatchCoupled)  # noqa: E731
    return any(map(found, jax.tree.leaves(field, is_leaf=found)))


def batched(function, field):
    """`function` of one sample for a batch, with the axis name that `field` needs.

    A field may have a quicker way for a batch (`of_batch`).
    """
    each = jax.vmap(function, axis_name=SAMPLES if is_coupled(field) else None)

    def call(t, y, args):
        quick = of_batch(function, y)
        return each(t, y, args) if quick is None else quick.slope(t, y, args)

    return call


@runtime_checkable
class OnBatch(Protocol):
    """What a field can do for a whole batch more quickly than sample by sample."""

    def slope(self, t, y, args) -> PyTree:
        """The slope of each sample, with a gradient."""
        ...

    def space(self, y, args, evaluations: int) -> PyTree:
        """Space for what the gradient needs of so many evaluations of each sample.

        It is numbered: number n of a batch of b samples has the maps n * b to n * b + b - 1, one of each sample. All
        that follow are told by `maps[i]` which map of it is whose in evaluation i of a step; 0 is at its beginning.
        """
        ...

    def first(self, t, y, args, kept: PyTree, maps) -> tuple[PyTree, PyTree]:
        """The slope of each sample, without a gradient, and what was `kept` and this evaluation."""
        ...

    def step(
        self, tableau: Tableau, t, dt, y, slope, args, kept: PyTree = None, maps=None
    ) -> tuple[PyTree, PyTree, PyTree | None, PyTree]:
        """From the slope at the beginning of a step to the state at its end, the slope there, the error and what is
        kept, if there is space for that.

        Each sample has its own `dt`. Without a gradient; the error is None for a method that estimates none.
        """
        ...

    def evaluate_again(self, tableau: Tableau, t, dt, y, args, kept: PyTree, maps) -> PyTree:
        """What was `kept` and this step, with the evaluation at its beginning."""
        ...

    def replay(self, tableau: Tableau, t, dt, y, args, kept: PyTree, maps) -> PyTree:
        """The state at the end of a step that was kept, with a gradient."""
        ...

    def attended(self, attention: Callable) -> "OnBatch | None":
        """The same for states (h, a), or for h with a as args; None where it cannot do that."""
        ...


def of_batch(field, y) -> OnBatch | None:
    """What a field's own `on_batch(y)` gives for such a batch; None where it has none, or none for this one.

    A class that only inherits it may answer otherwise than what it inherits.
    """
    return field.on_batch(y) if "on_batch" in vars(type(field)) else None


def check_slope(slope: PyTree, y: PyTree) -> None:
    """Refuse a derivative that has not the shape of its state, which arithmetic would broadcast to it."""
    given, needed = ([leaf.shape[1:] for leaf in jax.tree.leaves(each)] for each in (slope, y))
    for name, one, other in zip(("h", "a", *("state",) * len(needed)), given, needed, strict=False):
        if one != other:
            hint = "; see pairwise_field for a g that gives H x H numbers" if name == "a" else ""
            raise ValueError(f"The vector field gives d{name}/dt of shape {one} where {name} has {other}{hint}.")
    if len(given) != len(needed):
        raise ValueError(f"The vector field gives {len(given)} arrays for a state of {len(needed)}.")


def prepare(field, y0, times, args):
    """The field, the state and the times as the solver takes them.

    The state and the times get the precision in which the field answers, e.g. float32 data under float64 weights. A
    field that closes over traced arrays is given them as leaves, so that they have a gradient.
    """
    start = times[:, 0].astype(jnp.result_type(*jax.tree.leaves(y0)))
    arrays, rest = eqx.partition(field, eqx.is_array)
    jaxpr, slope = jax.make_jaxpr(
        lambda arrays, *inputs: batched(eqx.combine(arrays, rest), field)(*inputs), return_shape=True
    )(arrays, start, y0, args)
    check_slope(slope, y0)
    widest = jnp.result_type(*jax.tree.leaves((y0, slope)))
    y0, times = jax.tree.map(lambda y: y.astype(widest), y0), times.astype(widest)
    if any(isinstance(each, jax.core.Tracer) for each in jaxpr.consts):
        if is_coupled(field):
            raise ValueError(
                "The vector field is BatchCoupled and closes over traced arrays: make its functions equinox.Modules "
                "that hold these arrays as fields."
            )
        field = eqx.filter_closure_convert(field, *jax.tree.map(lambda x: x[0], (times[:, 0], y0, args)))
    return field, y0, times
