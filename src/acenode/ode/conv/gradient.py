"""The gradient of an evaluation by kernels (`kernels`), from what it kept.

Gradients are small numbers, beyond the range of half precision: they, and what they are multiplied by, are rounded to
bfloat16. There is no derivative of these gradients: a Hessian needs the plain form (`Conv(precision=None)`).
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from .block import (
    OF_BIAS,
    OF_SCALE,
    OF_SHIFT,
    SUMS,
    Block,
    Kernel,
    Shapes,
    Stage,
    launch,
    neighbour,
    number,
    numbers,
    quotient,
    read_rows,
    remainder,
    warps_of,
    write_rows,
)
from .kernels import Field, evaluate, prepare, space
from .steps import TAPS, Back, Kept, Layer, Plan, Way, Weights, scale_and_shift

_ROWS = 64  # of a matrix that a program of the gradient of weights reads at a time
_PARTS = 32  # the gradient of a weight is added up in so many parts
_TOGETHER = 3  # taps in one program of it: those of a row


def _answer_back_kernel(plan: Plan, sample, stage: Stage, weights, terms, kept, affine, before, out) -> None:
    """Back through the last norm of a field, from gradients that make that of its answer."""
    block = Block(plan, sample, kept.normal.shape[1], stage)
    _norm_back(block, kept, block.read_kept(kept.normal), affine, block.combined(weights, terms), before, out)


def _norm_back(block: Block, kept, normal, affine, given, before, out) -> None:
    """Back through a norm that a convolution is below, and what is summed on the way."""
    scale = affine[0, :]
    of_shift, of_scale = jnp.sum(given, axis=0), jnp.sum(given * normal, axis=0)
    back = block.normalised_back(kept, normal, scale[None, :] * given, scale * of_shift, scale * of_scale)
    grad, sums = out
    block.write(grad, back)
    block.add_sums(before, sums, of_shift, of_scale, back, block.time)


def _through_relu(block: Block, normal, affine, grad, turned):
    """Back through a convolution and the ReLU below it."""
    return jnp.where(scale_and_shift(normal, affine, False) > 0, block.conv(grad, block.rows, turned), 0.0)


def _layer_back_kernel(plan: Plan, sample, stage: Stage, grad, turned, kept, affine, before, out) -> None:
    """Back through a convolution, the ReLU below it and the norm below that."""
    block = Block(plan, sample, grad.shape[1], stage)
    normal = block.read_kept(kept.normal)
    _norm_back(block, kept, normal, affine, _through_relu(block, normal, affine, grad, turned), before, out)


def _state_back_kernel(plan: Plan, sample, stage: Stage, grads, turned, affines, kept, state, before, out) -> None:
    """Back through the first convolution of every field, their norm and the attention, to the state."""
    block = Block(plan, sample, grads[0].shape[1], stage)
    of_state, sums = out
    normal = block.read_kept(kept.normal)
    totals: Any = None
    for k, grad in enumerate(grads):
        given = _through_relu(block, normal, affines[k], grad, turned[k])
        of_shift, of_scale = jnp.sum(given, axis=0), jnp.sum(given * normal, axis=0)
        block.add_sums(before[k], sums[k], of_shift, of_scale)
        scale = affines[k][0, :]
        terms = scale[None, :] * given, scale * of_shift, scale * of_scale
        totals = terms if totals is None else [total + term for total, term in zip(totals, terms, strict=True)]
    back = block.normalised_back(kept, normal, *totals)
    back = (back,) if plan.attend is None else jax.vjp(plan.attend, *map(block.read_kept, state))[1](back)
    for matrix, values in zip(of_state, back, strict=True):
        block.write(matrix, jnp.where(block.filled, values, 0.0))  # an attention may have no slope at nothing


def back(
    plan: Plan, fields: Sequence[Field], kept: Kept, maps, stage: int, t, dt, node, weights, terms, before
) -> Back:
    """From `dt * sum_j weights[j] * terms[k][j]`, the gradient of the slope of field k at a stage."""
    shapes, warps = Shapes.of(plan, terms[0][0]), warps_of(terms[0][0].shape[1])
    at, of_terms = Stage.of(t, dt, node, stage, maps), jnp.array(weights, t.dtype)
    nothing: list[list[Any]] = [[None] * (field.depth + 1) for field in fields]
    before, sums = before or nothing, [list(of_field) for of_field in nothing]
    out = (shapes.maps(jnp.bfloat16), shapes.sums())
    kernels = [Kernel(_answer_back_kernel, (plan,))] * len(fields)
    given = [
        (at, of_terms, terms[k], kept.others[k][-1], field.affines[-1], before[k][-1]) for k, field in enumerate(fields)
    ]
    answers = launch(kernels, given, [out] * len(fields), shapes.samples, warps=warps)
    grads = [[answer[0]] for answer in answers]  # the last layer's first
    for k, answer in enumerate(answers):
        sums[k][-1] = answer[1]
    for above in range(1, max(field.depth for field in fields)):
        going = [k for k, field in enumerate(fields) if field.depth > above]
        given = []
        for k in going:
            field, depth = fields[k], fields[k].depth - above
            norm = kept.others[k][depth - 1], field.affines[depth], before[k][depth]
            given.append((at, grads[k][-1], field.turned[depth], *norm))
        kernels = [Kernel(_layer_back_kernel, (plan,))] * len(going)
        answers = launch(kernels, given, [out] * len(going), shapes.samples, warps=warps)
        for k, answer in zip(going, answers, strict=True):
            grads[k].append(answer[0])
            sums[k][fields[k].depth - above] = answer[1]
    given = (
        at,
        [grad[-1] for grad in grads],
        [field.turned[0] for field in fields],
        [field.affines[0] for field in fields],
        kept.first,
        kept.state,
        [each[0] for each in before],
    )
    # Sums of a few of these follow, so that their rounding is no more than that of the gradients they are made of.
    out = ((shapes.maps(jnp.bfloat16),) * max(len(kept.state), 1), (shapes.sums(),) * len(fields))
    ((of_state, firsts),) = launch([Kernel(_state_back_kernel, (plan,))], [given], [out], shapes.samples, warps=warps)
    for k, first in enumerate(firsts):
        sums[k][0] = first
    return Back(of_state, tuple(tuple(grad[::-1]) for grad in grads), tuple(map(tuple, sums)))


def _weight_kernel(plan: Plan, count: int, number_of_parts: int, program, active, maps, stages, given, parts) -> None:
    """A part of the gradient of the weights of some taps; it reads `count` rows of a matrix at a time."""
    channels = active.shape[1]
    first, part = _TOGETHER * quotient(program, number_of_parts), remainder(program, number_of_parts)
    every = given[0].shape[0]
    each = pl.cdiv(pl.cdiv(every, count), number_of_parts)
    totals = tuple(jnp.zeros((channels, channels), jnp.float32) for _ in range(_TOGETHER))
    for i, grad in enumerate(given):
        stage = number(stages, i)

        def add(k, totals, stage=stage, grad=grad):
            rows = (part * each + k) * count + numbers(count)
            known, pixel = rows < every, remainder(rows, plan.pixels)
            at = triton.load(maps.at[stage, quotient(rows, plan.pixels)], mask=known, other=0)
            back = read_rows(grad, rows, known)

            def of_tap(i):
                inside, away = neighbour(pixel, first + i, plan.size)
                near = read_rows(active, at * plan.pixels + pixel + away, inside & known)
                return triton.dot(back, near.astype(jnp.bfloat16), trans_a=True)

            return tuple(total + of_tap(i) for i, total in enumerate(totals))

        totals = lax.fori_loop(0, each, add, totals)
    for i, total in enumerate(totals):
        write_rows(parts, (part * TAPS + first + i) * channels + numbers(channels), total)


def _weight_gradient(
    plan: Plan, active, maps, stages: Sequence[int], given: Sequence
) -> Float[Array, "outputs 3 3 inputs"]:
    """From the inputs of a convolution and the gradients of what it answers, at every stage."""
    channels = active.shape[1]
    shape = jax.ShapeDtypeStruct((_PARTS * TAPS * channels, channels), jnp.float32)
    kernel, read = Kernel(_weight_kernel, (plan, _ROWS, _PARTS)), (active, maps, jnp.array(stages, jnp.int32), given)
    (parts,) = launch([kernel], [read], [shape], TAPS // _TOGETHER * _PARTS, warps=warps_of(channels))
    total = parts.reshape(_PARTS, TAPS, channels, channels).sum(axis=0)
    return jnp.transpose(total, (1, 0, 2)).reshape(channels, 3, 3, channels)


def gradients(
    plan: Plan, fields: Sequence[Field], kept: Kept, maps, backs: dict[int, Back], sums
) -> tuple[Weights, ...]:
    """Of the weights, from all stages back and the last of their sums."""
    answers = []
    for k, field in enumerate(fields):
        totals = [each.reshape(-1, SUMS, each.shape[1]).sum(axis=0) for each in sums[k]]
        layers = [
            Layer(
                _weight_gradient(
                    plan, kept.actives[k][depth], maps, list(backs), [back.given[k][depth] for back in backs.values()]
                ),
                totals[depth + 1][:TAPS].T.reshape(-1, 3, 3),
                totals[depth + 1][OF_BIAS],
            )
            for depth in range(field.depth)
        ]
        answers.append(Weights(tuple(total[OF_SCALE : OF_SHIFT + 1] for total in totals), tuple(layers)))
    return tuple(answers)


KERNELS = Way(prepare, space, evaluate, back, gradients, single_slopes=True)
