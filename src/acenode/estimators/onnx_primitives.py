"""The primitives of JAX that models are made of, as nodes of ONNX."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from .onnx_graph import Graph, NotTranslated, Rule


def _direct(kind: str) -> Rule:
    """One node of the same meaning."""
    return lambda g, e, *names: g.node(kind, *names)


def _on_booleans(kind: str, otherwise: str) -> Rule:
    """A node for truth values, and another one for the bits of numbers."""
    return lambda g, e, *names: g.node(kind if e.outvars[0].aval.dtype == bool else otherwise, *names)


def _comparison(kind: str) -> Rule:
    def rule(g: Graph, e, *names: str) -> str:
        if e.invars[0].aval.dtype == bool and kind != "Equal":
            names = tuple(g.cast(name, np.int32) for name in names)
        return g.node(kind, *names)

    return rule


def _not_equal(g: Graph, e, x: str, y: str) -> str:
    return g.node("Not", g.node("Equal", x, y))


def _is_finite(g: Graph, e, x: str) -> str:
    return g.node("Not", g.node("Or", g.node("IsNaN", x), g.node("IsInf", x)))


def _integer_pow(g: Graph, e, x: str) -> str:
    return g.node("Pow", x, g.constant(e.params["y"], e.invars[0].aval.dtype))


def _one_of(e) -> Any:
    return np.ones((), e.invars[0].aval.dtype)


def _rsqrt(g: Graph, e, x: str) -> str:
    return g.node("Reciprocal", g.node("Sqrt", x))


def _expm1(g: Graph, e, x: str) -> str:
    return g.node("Sub", g.node("Exp", x), g.constant(_one_of(e)))


def _log1p(g: Graph, e, x: str) -> str:
    return g.node("Log", g.node("Add", x, g.constant(_one_of(e))))


def _remainder(g: Graph, e, x: str, y: str) -> str:
    return g.node("Mod", x, y, fmod=1)


def _clamp(g: Graph, e, low: str, x: str, high: str) -> str:
    return g.node("Min", g.node("Max", x, low), high)


def _select(g: Graph, e, which: str, *cases: str) -> str:
    if len(cases) != 2 or e.invars[0].aval.dtype != bool:
        raise NotTranslated("ONNX: there is no translation of a choice of more than two; export as stablehlo.")
    no, yes = cases
    if e.outvars[0].aval.dtype != bool:
        return g.node("Where", which, yes, no)
    return g.node("Or", g.node("And", which, yes), g.node("And", g.node("Not", which), no))


def _convert(g: Graph, e, x: str) -> str:
    return g.cast(x, e.params["new_dtype"])


def _identity(g: Graph, e, x: str) -> str:
    return x


# --- shapes -----------------------------------------------------------------------------------------------------------


def _reshape(g: Graph, e, x: str) -> str:
    return g.reshape(x, e.outvars[0].aval.shape)


def _broadcast(g: Graph, e, x: str) -> str:
    shape, places = e.params["shape"], e.params["broadcast_dimensions"]
    given = e.invars[0].aval.shape
    middle = [1] * len(shape)
    for place, size in zip(places, given, strict=True):
        middle[place] = size
    if tuple(middle) != tuple(given):
        x = g.reshape(x, middle)
    return x if tuple(middle) == tuple(shape) else g.node("Expand", x, g.integers(shape))


def _transpose(g: Graph, e, x: str) -> str:
    return g.node("Transpose", x, perm=list(map(int, e.params["permutation"])))


def _slice(g: Graph, e, x: str) -> str:
    p = e.params
    axes = range(len(p["start_indices"]))
    strides = p["strides"] or [1] * len(axes)
    return g.node("Slice", x, *map(g.integers, (p["start_indices"], p["limit_indices"], axes, strides)))


def _reverse(g: Graph, e, x: str) -> str:
    axes = e.params["dimensions"]
    last, before_first = [-1] * len(axes), [np.iinfo(np.int64).min] * len(axes)
    return g.node("Slice", x, *map(g.integers, (last, before_first, axes, last)))


def _concatenate(g: Graph, e, *names: str) -> str:
    return g.node("Concat", *names, axis=int(e.params["dimension"]))


def _stack(g: Graph, e, *names: str) -> str:
    axis = int(e.params["axis"])
    return g.node("Concat", *(g.node("Unsqueeze", name, g.integers([axis])) for name in names), axis=axis)


def _tile(g: Graph, e, x: str) -> str:
    return g.node("Tile", x, g.integers(e.params["reps"]))


def _split(g: Graph, e, x: str) -> list[str]:
    sizes = e.params["sizes"]
    names = [g.name() for _ in sizes]
    return g.node("Split", x, g.integers(sizes), outputs=names, axis=int(e.params["axis"])) and names


def _pad(g: Graph, e, x: str, fill: str) -> str:
    low, high, inner = zip(*e.params["padding_config"], strict=True)
    if any(inner):
        raise NotTranslated("ONNX: there is no translation of padding within; export as stablehlo.")
    if e.outvars[0].aval.dtype == bool:
        made = g.node("Pad", g.cast(x, np.int32), g.integers([*low, *high]), g.cast(fill, np.int32))
        return g.cast(made, bool)
    return g.node("Pad", x, g.integers([*low, *high]), fill)


def _iota(g: Graph, e) -> str:
    shape, axis = e.params["shape"], e.params["dimension"]
    along = np.arange(shape[axis], dtype=e.params["dtype"]).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return g.constant(np.broadcast_to(along, shape))


# --- over an axis -----------------------------------------------------------------------------------------------------


def _reduction(kind: str) -> Rule:
    def rule(g: Graph, e, x: str) -> str:
        axes = g.integers(e.params["axes"])
        if e.invars[0].aval.dtype == bool:
            return g.cast(g.node(kind, g.cast(x, np.int32), axes, keepdims=0), bool)
        return g.node(kind, x, axes, keepdims=0)

    return rule


def _any_of_all(g: Graph, e, x: str) -> str:
    flat = g.reshape(g.cast(x, np.int32), [-1])
    return g.cast(g.node("ReduceMax", flat, g.integers([0]), keepdims=0), bool)


def _cumsum(g: Graph, e, x: str) -> str:
    return g.node("CumSum", x, g.constant(np.int64(e.params["axis"])), reverse=int(e.params["reverse"]))


def _extreme_so_far(kind: str):
    def rule(g: Graph, e, x: str) -> str:
        """With what is one before, then two, then four; the first ones with themselves."""
        axis, backwards = g.integers([e.params["axis"]]), e.params["reverse"]
        size = e.invars[0].aval.shape[e.params["axis"]]
        cut = lambda name, start, end: g.node("Slice", name, g.integers([start]), g.integers([end]), axis)  # noqa: E731
        ahead = 1
        while ahead < size:
            parts = (cut(x, 0, ahead), cut(x, 0, size - ahead))
            if backwards:
                parts = (cut(x, ahead, size), cut(x, size - ahead, size))
            x = g.node(kind, x, g.node("Concat", *parts, axis=int(e.params["axis"])))
            ahead *= 2
        return x

    return rule


def _sort(g: Graph, e, *names: str) -> list[str]:
    if e.params["num_keys"] != 1:
        raise NotTranslated("ONNX: there is no translation of sorting by several arrays; export as stablehlo.")
    axis = int(e.params["dimension"])
    size = e.invars[0].aval.shape[axis]
    key, order = g.node("TopK", names[0], g.integers([size]), outputs=2, axis=axis, largest=0, sorted=1)
    return [key, *(g.node("GatherElements", name, order, axis=axis) for name in names[1:])]


def _dot(g: Graph, e, x: str, y: str) -> str:
    (of_x, of_y), (batch_x, batch_y) = e.params["dimension_numbers"]
    sx, sy = e.invars[0].aval.shape, e.invars[1].aval.shape
    free_x = [k for k in range(len(sx)) if k not in (*of_x, *batch_x)]
    free_y = [k for k in range(len(sy)) if k not in (*of_y, *batch_y)]
    batch = [sx[k] for k in batch_x]
    inner = int(np.prod([sx[k] for k in of_x]))
    x = _laid(g, x, sx, [*batch_x, *free_x, *of_x], [*batch, int(np.prod([sx[k] for k in free_x])), inner])
    y = _laid(g, y, sy, [*batch_y, *of_y, *free_y], [*batch, inner, int(np.prod([sy[k] for k in free_y]))])
    return g.reshape(g.node("MatMul", x, y), e.outvars[0].aval.shape)


def _laid(g: Graph, x: str, shape: Sequence[Any], order: Sequence[Any], new: Sequence[Any]) -> str:
    order = list(map(int, order))
    if order != list(range(len(shape))):
        x = g.node("Transpose", x, perm=order)
    return x if [shape[k] for k in order] == list(new) else g.reshape(x, new)


# --- indices ----------------------------------------------------------------------------------------------------------


def _places(g: Graph, indices: str, of_indices, operand, shape, window, sizes, index_map, batching) -> tuple[str, str]:
    """For every element of a window of `shape` its place in the flat operand, and where the window lies within.

    `window` are pairs of an axis of `shape` and one of the operand, `batching` of an axis of the indices and one of the
    operand. The other axes of `shape` are those of the indices, in order.
    """
    strides = np.cumprod([1, *operand[:0:-1]])[::-1].astype(np.int64)
    outer = [k for k in range(len(shape)) if k not in dict(window)]
    fixed = np.zeros((1,) * len(shape), np.int64)
    for axis, of in [*window, *((outer[k], of) for k, of in batching)]:
        along = np.arange(shape[axis]) * strides[of]
        fixed = fixed + along.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    high = np.asarray([operand[of] - sizes[of] for of in index_map], np.int64)
    wide = g.cast(indices, np.int64)
    inside = g.node(
        "And",
        g.node("GreaterOrEqual", wide, g.constant(np.int64(0))),
        g.node("LessOrEqual", wide, g.constant(high)),
    )
    last = g.integers([len(of_indices) - 1])
    spread = [shape[k] if k in outer else 1 for k in range(len(shape))]
    inside = g.cast(g.node("ReduceMin", g.cast(inside, np.int32), last, keepdims=0), bool)
    bounded = g.node("Max", g.node("Min", wide, g.constant(high)), g.constant(np.int64(0)))
    start = g.node("Mul", bounded, g.constant(strides[list(map(int, index_map))]))
    start = g.reshape(g.node("ReduceSum", start, last, keepdims=0), spread)
    place = g.node("Add", start, g.constant(fixed))
    return g.node("Expand", place, g.integers(shape)), g.reshape(inside, spread)


def _gather(g: Graph, e, x: str, indices: str) -> str:
    p, of = e.params, e.params["dimension_numbers"]
    operand, shape = e.invars[0].aval.shape, e.outvars[0].aval.shape
    within = [k for k in range(len(operand)) if k not in (*of.collapsed_slice_dims, *of.operand_batching_dims)]
    window = list(zip(map(int, of.offset_dims), within, strict=True))
    batching = list(zip(of.start_indices_batching_dims, of.operand_batching_dims, strict=True))
    args = (e.invars[1].aval.shape, operand, shape, window, p["slice_sizes"], of.start_index_map, batching)
    place, inside = _places(g, indices, *args)
    dtype = e.outvars[0].aval.dtype
    taken = g.node("Gather", g.reshape(x, [-1]), place, axis=0)
    if p["mode"] is not GatherScatterMode.FILL_OR_DROP:
        return taken
    fill = p["fill_value"]
    if np.issubdtype(dtype, np.bool_):
        if fill is None or fill:
            return g.node("Or", taken, g.node("Not", inside))
        return g.node("And", taken, inside)
    if fill is None:
        fill = np.nan if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).min
    return g.node("Where", inside, taken, g.constant(fill, dtype))


def _scatter(reduction: str) -> Rule:
    def rule(g: Graph, e, x: str, indices: str, updates: str) -> str:
        of = e.params["dimension_numbers"]
        operand, shape = e.invars[0].aval.shape, e.invars[2].aval.shape
        within = [k for k in range(len(operand)) if k not in (*of.inserted_window_dims, *of.operand_batching_dims)]
        window = list(zip(map(int, of.update_window_dims), within, strict=True))
        sizes = [1] * len(operand)
        for axis, k in window:
            sizes[k] = shape[axis]
        batching = list(zip(of.scatter_indices_batching_dims, of.operand_batching_dims, strict=True))
        args = (e.invars[1].aval.shape, operand, shape, window, sizes, of.scatter_dims_to_operand_dims, batching)
        place, inside = _places(g, indices, *args)
        count = int(np.prod(operand))
        if e.params["mode"] is GatherScatterMode.FILL_OR_DROP:  # into a place that is cut off afterwards
            place = g.node("Where", inside, place, g.constant(np.int64(count)))
        flat = g.node("Concat", g.reshape(x, [-1]), g.constant(np.zeros(1, e.invars[0].aval.dtype)), axis=0)
        flat = g.node(
            "ScatterElements", flat, g.reshape(place, [-1]), g.reshape(updates, [-1]), axis=0, reduction=reduction
        )
        return g.reshape(g.node("Slice", flat, *map(g.integers, ([0], [count]))), operand)

    return rule


_SAME = (  # words that JAX and ONNX share but for their case
    "add sub mul div max min pow neg exp log tanh sqrt abs ceil floor sign erf sin cos".split()
)
_COMPARISONS = {
    **{"lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "eq": "Equal"},
    **{"lt_to": "Less", "le_to": "LessOrEqual"},
}

RULES: dict[str, Rule] = {
    **{name: _direct(name.capitalize()) for name in _SAME},
    **{name: _comparison(kind) for name, kind in _COMPARISONS.items()},
    "add_any": _direct("Add"),
    "logistic": _direct("Sigmoid"),
    "ne": _not_equal,
    "and": _on_booleans("And", "BitwiseAnd"),
    "or": _on_booleans("Or", "BitwiseOr"),
    "xor": _on_booleans("Xor", "BitwiseXor"),
    "not": _on_booleans("Not", "BitwiseNot"),
    "is_finite": _is_finite,
    "square": lambda g, e, x: g.node("Mul", x, x),
    "integer_pow": _integer_pow,
    "rsqrt": _rsqrt,
    "expm1": _expm1,
    "log1p": _log1p,
    "rem": _remainder,
    "clamp": _clamp,
    "select_n": _select,
    "convert_element_type": _convert,
    **dict.fromkeys(("stop_gradient", "copy", "copy_p", "optimization_barrier"), _identity),
    **dict.fromkeys(("reshape", "squeeze", "expand_dims"), _reshape),
    "broadcast_in_dim": _broadcast,
    "transpose": _transpose,
    "slice": _slice,
    "rev": _reverse,
    "concatenate": _concatenate,
    "stack": _stack,
    "tile": _tile,
    "split": _split,
    "pad": _pad,
    "iota": _iota,
    "reduce_sum": _reduction("ReduceSum"),
    "reduce_prod": _reduction("ReduceProd"),
    **dict.fromkeys(("reduce_max", "reduce_or"), _reduction("ReduceMax")),
    **dict.fromkeys(("reduce_min", "reduce_and"), _reduction("ReduceMin")),
    "unvmap_any": _any_of_all,
    "cumsum": _cumsum,
    "cummax": _extreme_so_far("Max"),
    "cummin": _extreme_so_far("Min"),
    "sort": _sort,
    "dot_general": _dot,
    "gather": _gather,
    "scatter": _scatter("none"),
    "scatter-add": _scatter("add"),
    "scatter-min": _scatter("min"),
    "scatter-max": _scatter("max"),
}
