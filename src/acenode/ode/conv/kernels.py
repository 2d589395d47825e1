"""The fields of `steps` by kernels for a GPU: group norm, ReLU and timed 3 x 3 convolutions of f and of g.

Feature maps are small (8 x 8, 64 channels), so what XLA spends its time on is to write every neighbourhood to memory
and to start many small operations. Here a program has the whole map of a sample, so that it can normalise what it
makes. An evaluation of f and g is one kernel for the state of the stage, the attention and the first norm, and one for
each convolution with the norm behind it, of both fields side by side.

Convolutions take inputs in half precision and add up in single precision, as `Conv(precision="float16")` does; what
norms make, and slopes, are rounded to half precision too. `gradient` has the kernels of the gradient.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ...precision import matmul, products_in
from .block import Block, Kernel, Shapes, Stage, launch, read_rows, warps_of
from .steps import TAPS, Evaluated, Kept, Layer, Normal, Plan, Weights, neighbours_of_ones, scale_and_shift


def _taps(layer: Layer) -> Float[Array, "taps inputs outputs"]:
    outputs, *_, inputs = layer.weight.shape
    return jnp.transpose(layer.weight.reshape(outputs, TAPS, inputs), (1, 2, 0)).astype(jnp.float16)


def _turned(layer: Layer) -> Float[Array, "taps outputs inputs"]:
    """Those of the convolution that takes gradients back."""
    outputs, *_, inputs = layer.weight.shape
    return jnp.transpose(layer.weight.reshape(outputs, TAPS, inputs)[:, ::-1], (1, 0, 2)).astype(jnp.bfloat16)


def _clock_map(layer: Layer, size: tuple[int, int]) -> Float[Array, "pixels outputs"]:
    """The convolution of a channel of ones."""
    with products_in("tf32"):
        return matmul(neighbours_of_ones(size, layer.clock.dtype), layer.clock.reshape(-1, TAPS).T)


class Field(NamedTuple):
    """Weights of a field as kernels read them."""

    affines: tuple
    taps: tuple
    turned: tuple
    clocks: tuple
    biases: tuple

    @classmethod
    def of(cls, weights: Weights, size: tuple[int, int]) -> "Field":
        layers = weights.layers
        return cls(
            weights.affines,
            tuple(map(_taps, layers)),
            tuple(map(_turned, layers)),
            tuple(_clock_map(layer, size) for layer in layers),
            tuple(layer.bias for layer in layers),
        )

    @property
    def depth(self) -> int:
        return len(self.taps)

    def layer(self, depth: int) -> tuple:
        """The weights of a convolution."""
        return self.taps[depth], self.clocks[depth], self.biases[depth]


def prepare(plan: Plan, fields: Sequence[Weights]) -> list[Field]:
    return [Field.of(field, plan.size) for field in fields]


def space(plan: Plan, y: tuple, fields: tuple[Weights, ...], evaluations: int) -> Kept:
    """Space for what the gradient of so many evaluations needs; what is in it is not defined."""
    rows, channels = y[0].shape
    maps = evaluations * (rows // plan.pixels)
    of_maps = lambda dtype: jax.ShapeDtypeStruct((maps * plan.pixels, channels), dtype)  # noqa: E731
    half, state = of_maps(jnp.float16), of_maps(jnp.bfloat16)
    normal = Normal(half, jax.ShapeDtypeStruct((maps, channels), jnp.float32))
    kept = Kept(
        (state,) * (0 if plan.attend is None else len(y)),
        normal,
        tuple((normal,) * len(field.layers) for field in fields),
        tuple((half,) * len(field.layers) for field in fields),
    )
    # Given the state, it is mapped over an ensemble with it; memory for one member would be copied for all.
    return launch([Kernel(_nothing)], [(lax.stop_gradient(y[0]),)], [kept], 1, warps=1)[0]


def _nothing(program, state, out) -> None:
    """A kernel that writes nothing is the one way to get memory that nobody fills."""


def _state_kernel(plan: Plan, sample, stage: Stage, y, weights, slopes, affines, out) -> None:
    """The state of a stage, attended and normalised, and the input of the first convolution of each field."""
    block = Block(plan, sample, y[0].shape[1], stage)
    state = [block.read(matrix) for matrix in y]
    for k, of_state in enumerate(slopes):
        state[k] += block.combined(weights, of_state)
    for matrix, values in zip(out.end, state, strict=False):
        block.write(matrix, values)
    for matrix, values in zip(out.state, state, strict=False):
        block.keep(matrix, values)
    normal, precision = block.normalised(plan.attended(state))
    block.keep_normal(out.first, normal, precision)
    write = block.write if stage.maps is None else block.keep
    for active, affine in zip(out.actives, affines, strict=True):
        write(active, scale_and_shift(normal, affine, True))


class _StateOut(NamedTuple):
    end: tuple  # the state itself
    state: tuple  # the same, kept
    first: Normal | None
    actives: tuple


def _layer_kernel(plan: Plan, relu: bool, sample, stage: Stage, active, taps, clock, bias, affine, out) -> None:
    """A convolution and the norm of what it answers, with a ReLU if another convolution follows."""
    block = Block(plan, sample, active.shape[1], stage)
    added = block.time * read_rows(clock, block.pixel, block.there) + bias[...][None, :]
    rows = block.rows if stage.maps is None else block.kept_rows
    normal, precision = block.normalised(block.conv(active, rows, taps) + added)
    answer, kept = out
    block.keep_normal(kept, normal, precision)
    write = block.keep if relu and stage.maps is not None else block.write
    write(answer, scale_and_shift(normal, affine, relu))


def evaluate(
    plan: Plan, fields: Sequence[Field], t, dt, node, y, weights, slopes, *, end=False, kept=None, maps=None, stage=0
) -> Evaluated:
    """The fields at `y + dt * sum_j weights[j] * slopes[j]`; with space in `kept`, what a gradient needs."""
    shapes, warps = Shapes.of(plan, y[0]), warps_of(y[0].shape[1])
    at = Stage.of(t, dt, node, stage, maps)
    pairs = [(w, slope) for w, slope in zip(weights, slopes, strict=False) if w != 0.0]
    # The solver hands on the first in single precision; it was rounded when it was evaluated, as all are.
    by_state = tuple(zip(*([x.astype(jnp.float16) for x in slope] for _, slope in pairs), strict=True))
    half = shapes.maps(jnp.float16)
    state, first = ((), None) if kept is None else (kept.state, kept.first)
    # What a convolution reads is written where it is kept; without that it is gone with the evaluation.
    place = lambda k, depth: half if kept is None else kept.actives[k][depth]  # noqa: E731
    out = _StateOut(
        (shapes.maps(),) * len(y) if end else (), state, first, tuple(place(k, 0) for k in range(len(fields)))
    )
    of_slopes = jnp.array([w for w, _ in pairs], t.dtype) if pairs else None
    given = at, y, of_slopes, by_state, [field.affines[0] for field in fields]
    (made,) = launch([Kernel(_state_kernel, (plan,))], [given], [out], shapes.samples, warps=warps)
    actives, normals = [[active] for active in made.actives], [[] for _ in fields]
    for depth in range(max(field.depth for field in fields)):
        going = [k for k, field in enumerate(fields) if field.depth > depth]
        kernels, given, out = [], [], []
        for k in going:
            relu = depth + 1 < fields[k].depth
            kernels.append(Kernel(_layer_kernel, (plan, relu)))
            given.append((at, actives[k][depth], *fields[k].layer(depth), fields[k].affines[depth + 1]))
            out.append((place(k, depth + 1) if relu else half, None if kept is None else kept.others[k][depth]))
        for k, (answer, normal) in zip(going, launch(kernels, given, out, shapes.samples, warps=warps), strict=True):
            actives[k].append(answer)
            normals[k].append(normal)
    slopes_of = tuple(active.pop() for active in actives)
    if kept is not None:
        kept = Kept(made.state, made.first, tuple(map(tuple, normals)), tuple(map(tuple, actives)))
    return Evaluated(slopes_of, made.end, kept)
