"""Steps of an ODE on feature maps for a whole batch, and their gradients, from what evaluations of its fields keep.

The fields are those of `ConvField`, f alone or f and g on the same attended state. How they are evaluated, forwards and
backwards, is a `Way`: by kernels for a GPU (`kernels`), or by the products of matrices that a CPU is quick at
(`products`). When to stop, which steps count and how long the next one is remain the solver's affair. `ConvField`
and `runge_kutta.stages` are the plain twins, with which tests compare.

A batch of maps is one matrix, a row for each pixel of each sample. A state is the map h, or h and the attention a. The
first of them has the first field, and so on: an attention without a field does not move.

A gradient needs of every evaluation its state, what its norms made and perhaps what its convolutions read. A solve
writes them down (`Kept`), one map of each evaluation of each sample.
"""

import functools as ft
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..solver.runge_kutta import Tableau, combine

TAPS = 9  # pixels of a neighbourhood


class Layer(NamedTuple):
    """Weights of `Conv`, or their gradient."""

    weight: Float[Array, "outputs 3 3 inputs"]
    clock: Float[Array, "outputs 3 3"]
    bias: Float[Array, " outputs"]


class Weights(NamedTuple):
    """Weights of `ConvField`: scales and shifts of its norms, one more than layers."""

    affines: tuple[Float[Array, "2 channels"], ...]
    layers: tuple[Layer, ...]


class Normal(NamedTuple):
    """What the gradient of a norm needs: a row for each pixel of each map, and one for each map."""

    normal: Any
    precision: Any


class Kept(NamedTuple):
    """What the gradient of a solve needs of its evaluations. Which map is whose is told by whoever writes and reads."""

    state: tuple  # h and a, if there is an attention
    first: Normal  # the norm of the attended state
    others: tuple[tuple[Normal, ...], ...]  # of each field, its other norms
    actives: tuple[tuple, ...]  # of each field, the inputs of its convolutions, unless these are made again from norms


class Evaluated(NamedTuple):
    """The fields at a stage of a step."""

    slopes: tuple
    end: tuple  # the state, if it is that at the end of the step
    kept: Kept | None


class Back(NamedTuple):
    """A stage backwards."""

    state: tuple  # its gradient
    given: tuple  # of each field, the gradients of what its convolutions answer, if the way needs them in the end
    sums: Any  # what makes the gradients of weights, of this stage and those after it


class Way(NamedTuple):
    """How fields are evaluated."""

    prepare: Callable  # (plan, weights): these as all the others take them
    space: Callable  # (plan, y, weights, evaluations): `Kept`, of which nothing is defined
    evaluate: Callable  # (plan, prepared, t, dt, node, y, weights, slopes, ...): `Evaluated` at a stage
    back: Callable  # (plan, prepared, kept, maps, stage, t, dt, node, weights, terms, sums): `Back` through a stage
    gradients: Callable  # (plan, prepared, kept, maps, backs, sums): `Weights` of each field
    single_slopes: bool  # whether it evaluates slopes outside of steps too


class Columns(NamedTuple):
    """Where channels are in a matrix. A way may want more columns than there are channels: they are empty."""

    groups: int  # of the norms
    channels: int  # of a group
    rooms: int  # for groups
    width: int  # of a room

    @classmethod
    def of(cls, groups: int, channels: int) -> "Columns":
        return cls(groups, channels, groups, channels)

    @property
    def full(self) -> bool:
        return (self.groups, self.channels) == (self.rooms, self.width)

    def spread(self, x, axis: int = -1):
        """From channels along an axis to columns, of which the empty ones are zero."""
        if self.full:
            return x
        x = jnp.moveaxis(x, axis, -1)
        rooms = x.reshape(*x.shape[:-1], self.groups, self.channels)
        before = [(0, 0)] * (x.ndim - 1)
        rooms = jnp.pad(rooms, (*before, (0, self.rooms - self.groups), (0, self.width - self.channels)))
        return jnp.moveaxis(rooms.reshape(*x.shape[:-1], self.rooms * self.width), -1, axis)

    def gathered(self, x):
        """From columns to channels, along the last axis."""
        if self.full:
            return x
        rooms = x.reshape(*x.shape[:-1], self.rooms, self.width)[..., : self.groups, : self.channels]
        return rooms.reshape(*x.shape[:-1], self.groups * self.channels)


class Plan(NamedTuple):
    """What is the same for all evaluations of a solve."""

    way: Way
    size: tuple[int, int]  # of a map
    columns: Columns
    attend: Callable | None  # the attended state from h and a, element by element; None where there is no a
    half: bool  # whether convolutions take their inputs in half precision; by kernels they always do

    @property
    def pixels(self) -> int:
        return self.size[0] * self.size[1]

    def attended(self, state: Sequence):
        return state[0] if self.attend is None else self.attend(*state)


def neighbours_of_ones(size: tuple[int, int], dtype) -> Float[Array, "pixels taps"]:
    """Which pixels have which neighbours: every neighbourhood of a channel of ones."""
    padded = jnp.pad(jnp.ones(size, dtype), 1)
    return jnp.stack([padded[i : i + size[0], j : j + size[1]].ravel() for i in range(3) for j in range(3)], axis=1)


def scale_and_shift(normal, affine, relu: bool):
    z = normal * affine[0, :][None, :] + affine[1, :][None, :]
    # On a GPU the maximum of 0 and what is not a number is 0: the second term keeps it.
    return jnp.maximum(z, 0.0) + 0.0 * z if relu else z


def slopes(plan: Plan, t, y: tuple, fields: tuple[Weights, ...], kept: Kept | None = None, maps=None):
    """What fields answer to the attended state, without a gradient, and what is kept of it: its maps are `maps[0]`."""
    prepared = plan.way.prepare(plan, fields)
    found = plan.way.evaluate(plan, prepared, t, jnp.zeros_like(t), 0.0, y, (), (), kept=kept, maps=maps)
    return found.slopes, found.kept


def step(
    plan: Plan,
    tableau: Tableau,
    t: Float[Array, " batch"],
    dt: Float[Array, " batch"],
    y: tuple,
    slope: tuple,
    fields: tuple[Weights, ...],
    kept: Kept | None = None,
    maps: Int[Array, "evaluations batch"] | None = None,
):
    """The state at the end of a step, the slope there, the error and what is kept, without a gradient.

    The maps of evaluation i of the step are `maps[i]`; the first is that of `slope`, which was evaluated before.
    """
    prepared, every, found = plan.way.prepare(plan, fields), [slope], None
    rows = [*zip(tableau.a, tableau.c, strict=True), *([] if tableau.fsal else [(tableau.b, 1.0)])]
    for i, (weights, node) in enumerate(rows, start=1):
        told = {"end": i == len(rows), "kept": kept, "maps": maps, "stage": i}
        found = plan.way.evaluate(plan, prepared, t, dt, node, y, weights, every, **told)
        every.append(found.slopes)
        kept = found.kept
    assert found is not None
    error = () if tableau.b_error is None else combined(None, dt, tableau.b_error, every)
    return found.end[: len(fields)], found.slopes, error, kept


def combined(y: tuple | None, dt, weights, slopes: Sequence[tuple]) -> tuple:
    """`combine` of matrices."""
    by_sample = lambda maps: tuple(x.reshape(dt.shape[0], -1, x.shape[1]).astype(dt.dtype) for x in maps)  # noqa: E731
    answer = combine(None if y is None else by_sample(y), dt, weights, list(map(by_sample, slopes)))
    return tuple(x.reshape(like.shape) for x, like in zip(answer, slopes[0], strict=True))


def stages_of(tableau: Tableau):
    """(weights of slopes, node) of every stage that the new state depends on, and the new state's weights."""
    rows = [((), 0.0), *zip(tableau.a, tableau.c, strict=True)]
    return (rows[:-1] if tableau.fsal else rows), tableau.b


def evaluate_again(
    plan: Plan, tableau: Tableau, t, dt, y: tuple, fields: tuple[Weights, ...], kept: Kept, maps
) -> Kept:
    """Evaluate a step once more, for what the gradient needs of it."""
    prepared, every = plan.way.prepare(plan, fields), []
    for i, (weights, node) in enumerate(stages_of(tableau)[0]):
        found = plan.way.evaluate(plan, prepared, t, dt, node, y, weights, every, kept=kept, maps=maps, stage=i)
        every.append(found.slopes)
        kept = found.kept
    return kept


@ft.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def replay(
    plan: Plan,
    tableau: Tableau,
    t: Float[Array, " batch"],
    dt: Float[Array, " batch"],
    y: tuple,
    fields: tuple,
    kept: Kept,
    maps: Int[Array, "evaluations batch"],
) -> tuple:
    """The state at the end of a step that was kept, with a gradient in the state at its beginning and in the weights.

    Times and steps are what the solver chose: they count as constants.
    """
    return _end(plan, tableau, dt, y, fields, kept, maps)


def _end(plan, tableau, dt, y, fields, kept, maps):
    rows, weights = stages_of(tableau)

    def slope(stage: int, k: int):
        normal = kept.others[k][-1].normal.reshape(-1, plan.pixels, y[k].shape[1])[maps[stage]]
        return scale_and_shift(normal.reshape(y[k].shape).astype(y[k].dtype), fields[k].affines[-1], False)

    every = [tuple(slope(stage, k) for k in range(len(fields))) for stage in range(len(rows))]
    return combined(y[: len(fields)], dt, weights, every)


def _replay_fwd(plan, tableau, t, dt, y, fields, kept, maps):
    saved = t, dt, plan.way.prepare(plan, fields), kept, maps
    return _end(plan, tableau, dt, y, fields, kept, maps), saved


def _replay_bwd(plan, tableau, saved, grad):
    t, dt, prepared, kept, maps = saved
    rows, weights = stages_of(tableau)
    backs: dict[int, Back] = {}
    sums: Any = None
    for i in range(len(rows) - 1, -1, -1):
        # The slope is in the state at the end, and in those of stages after it.
        pairs = [(weights[i], grad)] if weights[i] != 0.0 else []
        pairs += [(rows[j][0][i], back.state) for j, back in sorted(backs.items()) if rows[j][0][i] != 0.0]
        if not pairs:
            continue
        terms = [[term[k] for _, term in pairs] for k in range(len(prepared))]
        of_terms = [w for w, _ in pairs]
        backs[i] = plan.way.back(plan, prepared, kept, maps, i, t, dt, rows[i][1], of_terms, terms, sums)
        sums = backs[i].sums
    backs = dict(sorted(backs.items()))
    of_y = [
        sum(x.astype(dt.dtype) for x in of_k) for of_k in zip(*(back.state for back in backs.values()), strict=True)
    ]
    for k, of_end in enumerate(grad):
        of_y[k] += of_end
    answers = plan.way.gradients(plan, prepared, kept, maps, backs, sums)
    return jnp.zeros_like(t), jnp.zeros_like(dt), tuple(of_y), answers, None, None


replay.defvjp(_replay_fwd, _replay_bwd)
