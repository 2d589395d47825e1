"""The fields of `steps` by large products of matrices, for CPUs.

A neighbourhood is taken apart: the three pixels of a row side by side, times the weights of all three rows at once, and
then three rows of what comes out are added up, each shifted by one. That is a third of the numbers to move that whole
neighbourhoods are (`layers.patches`), and the batch is one product. So is the gradient, forwards for the inputs
and once more for the weights: there is nothing to put back pixel by pixel. Products are in full precision, as a CPU
has no other.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ...precision import products_in
from .layers import EPSILON
from .steps import (
    TAPS,
    Back,
    Evaluated,
    Kept,
    Layer,
    Normal,
    Plan,
    Way,
    Weights,
    neighbours_of_ones,
    scale_and_shift,
)


class Field(NamedTuple):
    """Weights of a field as products take them."""

    affines: tuple
    forwards: tuple  # of each convolution: from neighbours in a row to shares of three rows
    backwards: tuple  # those of the convolution that takes gradients back
    clocks: tuple  # what a channel of ones adds
    biases: tuple


@products_in("float32")
def _prepare(plan: Plan, fields: Sequence[Weights]) -> list[Field]:
    def clock(layer: Layer):
        return neighbours_of_ones(plan.size, layer.clock.dtype) @ layer.clock.reshape(-1, TAPS).T

    return [
        Field(
            field.affines,
            tuple(_by_rows(_rounded(plan, layer.weight)) for layer in field.layers),
            tuple(_by_rows(jnp.swapaxes(layer.weight[:, ::-1, ::-1], 0, 3)) for layer in field.layers),
            tuple(map(clock, field.layers)),
            tuple(layer.bias for layer in field.layers),
        )
        for field in fields
    ]


def _by_rows(weight: Float[Array, "outputs 3 3 inputs"]) -> Float[Array, "n m"]:
    """From a pixel and those to its left and right, to its shares of three rows."""
    outputs, *_, inputs = weight.shape
    return jnp.transpose(weight, (2, 3, 1, 0)).reshape(3 * inputs, 3 * outputs)


def _rounded(plan: Plan, x):
    """The inputs of a convolution as it sees them."""
    return x.astype(jnp.float16).astype(x.dtype) if plan.half and x.dtype == jnp.float32 else x


def _space(plan: Plan, y: tuple, fields: tuple[Weights, ...], evaluations: int) -> Kept:
    rows, channels = y[0].shape
    maps = evaluations * (rows // plan.pixels)
    of_maps = lambda rows: jax.ShapeDtypeStruct((rows, channels), y[0].dtype)  # noqa: E731
    values, normal = of_maps(maps * plan.pixels), Normal(of_maps(maps * plan.pixels), of_maps(maps))
    states = 0 if plan.attend is None else len(y)
    kept = Kept((values,) * states, normal, tuple((normal,) * len(field.layers) for field in fields), ())
    # Each has a zero of its own. One array of zeros, of which all the others were copies, would be one more.
    leaves, structure = jax.tree.flatten(kept)
    zeros = lax.optimization_barrier([jnp.zeros((), leaf.dtype) for leaf in leaves])
    filled = [jnp.broadcast_to(zero, leaf.shape) for zero, leaf in zip(zeros, leaves, strict=True)]
    return jax.tree.unflatten(structure, filled)


class _Maps(NamedTuple):
    """Reads and writes a map of each sample."""

    plan: Plan
    at: Any  # which maps of what is kept

    def read(self, matrix):
        return matrix.reshape(-1, self.plan.pixels, matrix.shape[1])[self.at]

    def keep(self, matrix, values):
        by_map = matrix.reshape(-1, self.plan.pixels, matrix.shape[1])
        return _set(by_map, self.at, values).reshape(matrix.shape)

    def read_normal(self, kept: Normal):
        return self.read(kept.normal), kept.precision[self.at]

    def keep_normal(self, kept: Normal, normal, precision) -> Normal:
        return Normal(self.keep(kept.normal, normal), _set(kept.precision, self.at, precision))


def _set(into, at, values):
    return into.at[at].set(values, unique_indices=True, mode="promise_in_bounds")


@products_in("float32")
def _evaluate(
    plan: Plan, fields: Sequence[Field], t, dt, node, y, weights, slopes, *, end=False, kept=None, maps=None, stage=0
) -> Evaluated:
    """The fields at `y + dt * sum_j weights[j] * slopes[j]`; with space in `kept`, what a gradient needs."""
    by_sample = lambda x: x.reshape(len(t), plan.pixels, -1)  # noqa: E731
    state = [by_sample(x) for x in y]
    pairs = [(w, slope) for w, slope in zip(weights, slopes, strict=False) if w != 0.0]
    if pairs:
        for k in range(len(pairs[0][1])):
            state[k] = state[k] + dt[:, None, None] * sum(w * by_sample(slope[k]) for w, slope in pairs)
    first = _normalised(plan, plan.attended(state))
    answers, normals = [], []
    for field in fields:
        normal, of_field = first[0], []
        for affine, forwards, clock, bias in zip(
            field.affines, field.forwards, field.clocks, field.biases, strict=False
        ):
            active = _rounded(plan, _active(normal, affine))
            added = (t + node * dt)[:, None, None] * clock + bias
            normal, precision = _normalised(plan, _convolved(plan, _left_and_right(plan, active), forwards) + added)
            of_field.append((normal, precision))
        normals.append(of_field)
        answers.append(scale_and_shift(normal, field.affines[-1], False))
    if kept is not None:
        assert maps is not None  # the two come together
        held = _Maps(plan, maps[stage])
        kept = Kept(
            tuple(map(held.keep, kept.state, state)),
            held.keep_normal(kept.first, *first),
            tuple(
                tuple(held.keep_normal(into, *each) for into, each in zip(intos, of_field, strict=True))
                for intos, of_field in zip(kept.others, normals, strict=True)
            ),
            (),
        )
    as_rows = lambda maps: tuple(x.reshape(y[0].shape) for x in maps)  # noqa: E731
    return Evaluated(as_rows(answers), as_rows(state) if end else (), kept)


def _active(normal, affine):
    return jax.nn.relu(scale_and_shift(normal, affine, False))


def _normalised(plan: Plan, values):
    """With mean 0 and variance 1 in every group, and the factors for that."""
    mean = _over_group(plan, values.mean(axis=1))[:, None]
    centred = values - mean
    precision = lax.rsqrt(_over_group(plan, jnp.square(centred).mean(axis=1)) + EPSILON)
    return centred * precision[:, None], precision


def _normalised_back(plan: Plan, normal, precision, given, total, total_normal):
    """The gradient of what was normalised. `given` is that of the normal form; `total` and `total_normal` are its sums
    over pixels, alone and times the normal form."""
    total, total_normal = (_over_group(plan, each / plan.pixels)[:, None] for each in (total, total_normal))
    return precision[:, None] * (given - total - normal * total_normal)


def _over_group(plan: Plan, of_channels):
    """The mean over the channels of a group, at each of its channels.

    As a product with a matrix. With reshapes and sums instead a training step took a third longer on x86. What is no
    number in one group is none in all, as it would be after a convolution.
    """
    groups, size = plan.columns.groups, plan.columns.channels
    return of_channels @ jnp.kron(jnp.eye(groups), jnp.full((size, size), 1 / size)).astype(of_channels.dtype)


def _left_and_right(plan: Plan, x: Float[Array, "batch pixels channels"]) -> Float[Array, "rows n"]:
    """Of every pixel of every row, that to the left, itself and that to the right; rows of all samples together."""
    height, width = plan.size
    batch, _, channels = x.shape
    x = jnp.swapaxes(x.reshape(batch, height, width, channels), 0, 1).reshape(-1, channels)
    column = jnp.arange(len(x))[:, None] % width
    left = jnp.where(column > 0, jnp.roll(x, 1, axis=0), 0.0)
    right = jnp.where(column < width - 1, jnp.roll(x, -1, axis=0), 0.0)
    return jnp.concatenate([left, x, right], axis=1)


def _convolved(plan: Plan, beside, weight) -> Float[Array, "batch pixels channels"]:
    """From pixels beside each other (`_left_and_right`) and weights by rows (`_by_rows`)."""
    height, width = plan.size
    channels = weight.shape[1] // 3
    shares = (beside @ weight).reshape(height, -1, width, 3 * channels)
    padded = jnp.pad(shares, ((1, 1), (0, 0), (0, 0), (0, 0)))
    above, own, below = (padded[k : k + height, ..., k * channels : (k + 1) * channels] for k in range(3))
    return jnp.swapaxes(above + own + below, 0, 1).reshape(-1, plan.pixels, channels)


def _above_and_below(plan: Plan, x: Float[Array, "batch pixels channels"]) -> Float[Array, "rows n"]:
    """Of every pixel that above, itself and that below, in the order of `_left_and_right`."""
    height, width = plan.size
    batch, _, channels = x.shape
    x = jnp.swapaxes(x.reshape(batch, height, width, channels), 0, 1)
    padded = jnp.pad(x, ((1, 1), (0, 0), (0, 0), (0, 0)))
    near = jnp.concatenate([padded[k : k + height] for k in range(3)], axis=-1)
    return near.reshape(-1, 3 * channels)


@products_in("float32")
def _back(
    plan: Plan, fields: Sequence[Field], kept: Kept, maps, stage: int, t, dt, node, weights, terms, before
) -> Back:
    """From `dt * sum_j weights[j] * terms[k][j]`, the gradient of the slope of field k at a stage."""
    held, times = _Maps(plan, maps[stage]), jnp.stack([jnp.ones_like(t), t + node * dt])
    first, factors = held.read_normal(kept.first)
    sums, totals = [], None
    for k, field in enumerate(fields):
        given = dt[:, None, None] * sum(
            w * term.reshape(first.shape) for w, term in zip(weights, terms[k], strict=True)
        )
        normals = [(first, factors), *map(held.read_normal, kept.others[k])]
        affines, layers = [], []
        for depth in range(len(normals) - 1, -1, -1):
            normal, precision = normals[depth]
            of_shift, of_scale = given.sum(axis=1), (given * normal).sum(axis=1)
            affines.append(jnp.stack([of_scale.sum(axis=0), of_shift.sum(axis=0)]))
            scale = field.affines[depth][0]
            through = given * scale, of_shift * scale, of_scale * scale
            if depth == 0:
                totals = through if totals is None else [a + b for a, b in zip(totals, through, strict=True)]
                break
            grad = _normalised_back(plan, normal, precision, *through)
            active = _active(normals[depth - 1][0], field.affines[depth - 1])
            beside = _left_and_right(plan, grad)
            products = beside.T @ _above_and_below(plan, _rounded(plan, active))
            over_batch = times @ grad.reshape(len(t), -1)
            layers.append((products, over_batch))
            given = jnp.where(active > 0, _convolved(plan, beside, field.backwards[depth - 1]), 0.0)
        sums.append((affines[::-1], layers[::-1]))
    assert totals is not None
    back = _normalised_back(plan, first, factors, *totals)
    if plan.attend is None:
        state = (back,)
    else:
        state = jax.vjp(plan.attend, *map(held.read, kept.state))[1](back)
    total = sums if before is None else jax.tree.map(jnp.add, before, sums)
    return Back(tuple(x.reshape(-1, x.shape[-1]) for x in state), (), total)


@products_in("float32")
def _gradients(
    plan: Plan, fields: Sequence[Field], kept: Kept, maps, backs: dict[int, Back], sums
) -> tuple[Weights, ...]:
    def layer(products, over_batch):
        outputs, inputs = (n // 3 for n in products.shape)
        weight = jnp.transpose(products.reshape(3, outputs, 3, inputs)[::-1], (1, 2, 0, 3))
        of_bias, of_clock = over_batch.reshape(2, plan.pixels, outputs)
        clock = of_clock.T @ neighbours_of_ones(plan.size, of_clock.dtype)
        return Layer(weight, clock.reshape(-1, 3, 3), of_bias.sum(axis=0))

    return tuple(Weights(tuple(affines), tuple(layer(*each) for each in layers)) for affines, layers in sums)


PRODUCTS = Way(_prepare, _space, _evaluate, _back, _gradients, single_slopes=False)
