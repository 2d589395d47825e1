"""A program of JAX as an ONNX graph: each primitive of its jaxpr becomes one or a few nodes, loops become loops.

Only shapes that are known, and the primitives that fixed-step models are made of. What draws random numbers is left
out, and refused where an output depends on it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from .onnx_graph import OPSET, RANDOM, Graph, NotTranslated, Random, described, is_key
from .onnx_primitives import RULES

Value = str | Random

_MOST = 100_000  # numbers of a computed constant


def translate(graph: Graph, jaxpr: Jaxpr, consts: Sequence[Any], inputs: Sequence[Value]) -> list[Value]:
    """Add what the jaxpr does to the graph; gives the names of its outputs.

    What depends on nothing that goes in, such as the basis of a latent space, is computed here and becomes a constant.
    """
    known: dict[Any, Value] = {}
    fixed = dict(zip(jaxpr.constvars, consts, strict=True))

    def read(atom: Any) -> Value:
        if isinstance(atom, Literal):
            return graph.constant(np.asarray(atom.val, atom.aval.dtype))  # pyright: ignore[reportAttributeAccessIssue]
        if atom not in known:
            known[atom] = RANDOM if is_key(atom.aval) else graph.constant(np.asarray(fixed[atom]))
        return known[atom]

    known.update(zip(jaxpr.invars, inputs, strict=True))
    for equation in jaxpr.eqns:
        if all(isinstance(atom, Literal) or atom in fixed for atom in equation.invars) and _is_small(equation):
            fixed.update(zip(equation.outvars, _computed(equation, fixed), strict=True))
            continue
        name = equation.primitive.name
        given = [read(atom) for atom in equation.invars]
        if name in _CONTROL:
            made = _CONTROL[name](graph, equation, given)
        elif name.startswith(("random_", "threefry")) or any(isinstance(each, Random) for each in given):
            made = [RANDOM] * len(equation.outvars)
        elif name in RULES:
            made = RULES[name](graph, equation, *given)
        else:
            raise NotTranslated(f"ONNX: there is no translation of the operation {name!r}; export as stablehlo.")
        made = [made] if isinstance(made, str) else made
        known.update(zip(equation.outvars, made, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _is_small(equation: Any) -> bool:
    """Whether its results are numbers that nothing random has a part in, and not so many as to make the file large."""
    avals = [v.aval for v in equation.outvars]
    drawn = any(is_key(v.aval) for v in (*equation.invars, *equation.outvars))
    return not drawn and not equation.effects and sum(aval.size for aval in avals) <= _MOST


def _computed(equation: Any, values: dict[Any, Any]) -> list[Any]:
    """What one equation gives."""
    given = [atom.val if isinstance(atom, Literal) else values[atom] for atom in equation.invars]
    with equation.ctx.manager:
        made = equation.primitive.bind(*given, **equation.primitive.get_bind_params(equation.params))
    return list(made) if equation.primitive.multiple_results else [made]


def _closed(jaxpr: Any) -> tuple[Jaxpr, Sequence[Any]]:
    return (jaxpr.jaxpr, jaxpr.consts) if isinstance(jaxpr, ClosedJaxpr) else (jaxpr, ())


def _call(graph: Graph, equation: Any, given: list[Value]) -> list[Value]:
    """A function within the program: its equations in its place."""
    inner = next(equation.params[n] for n in ("jaxpr", "call_jaxpr", "fun_jaxpr") if n in equation.params)
    return translate(graph, *_closed(inner), given)


def _body(graph: Graph, name: str, inputs: list[Any], make: Callable[[Graph], list[tuple[str, Any]]]) -> Any:
    """A graph within a graph. `make` gives its outputs, each with its shape and type."""
    from onnx import helper

    inner = Graph(graph)
    outputs = []
    for value, aval in make(inner):
        # An output has to be made within, and once.
        outputs.append(described(inner.node("Identity", value), aval))
    return helper.make_graph(inner.nodes, inner.name(name), inputs, outputs)


def _kept(values: Sequence[Value]) -> list[int]:
    return [k for k, value in enumerate(values) if not isinstance(value, Random)]


def _spread(made: Sequence[str], kept: Sequence[int], count: int) -> list[Value]:
    """Results in their places, random numbers in the others."""
    values: list[Value] = [RANDOM] * count
    for place, name in zip(kept, made, strict=True):
        values[place] = name
    return values


def _scan_sizes(p: Mapping[str, Any]) -> tuple[int, int]:
    """How many constants and how many carried values a scan has."""
    if "num_consts" in p:
        return p["num_consts"], p["num_carry"]
    consts, carries, _ = p["ft_in"].unpack()  # since jax 0.12
    return len(consts.vals), len(carries.vals)


def _expanded(graph: Graph, equation: Any, given: list[Value]) -> list[Value]:
    """A primitive that has a program of others (`jnp.searchsorted` since jax 0.12)."""
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
    closed = jax.make_jaxpr(equation.params["_prim"].expand)(*shapes)
    return translate(graph, closed.jaxpr, closed.consts, given)


def _scan(graph: Graph, equation: Any, given: list[Value]) -> list[Value]:
    p = equation.params
    jaxpr, inner_consts = _closed(p["jaxpr"])
    n, m = _scan_sizes(p)
    consts, carries, xs = given[:n], given[n : n + m], given[n + m :]
    kept, rows = _kept(carries), _kept(xs)
    avals = [v.aval for v in jaxpr.invars]
    inside = [graph.name() for _ in avals]
    shown = [described(inside[n + k], avals[n + k]) for k in kept]
    counter = []
    shown += [described(inside[n + m + k], avals[n + m + k]) for k in rows]
    if not rows:  # ONNX counts by what it reads
        counter = [graph.constant(np.zeros(p["length"], np.int32))]
        shown.append(described(graph.name(), jax.ShapeDtypeStruct((), np.int32)))
    answered: list[int] = []

    def make(inner: Graph) -> list[tuple[str, Any]]:
        values: list[Value] = [*consts, *_spread([inside[n + k] for k in kept], kept, m)]
        values += _spread([inside[n + m + k] for k in rows], rows, len(xs))
        outputs = translate(inner, jaxpr, inner_consts, values)
        answered.extend(_kept(outputs[m:]))
        wanted = [*kept, *(m + k for k in answered)]
        return [(_certain(outputs[k]), jaxpr.outvars[k].aval) for k in wanted]

    body = _body(graph, "scan", shown, make)
    many = len(rows) + len(counter)
    direction = int(p["reverse"])
    made = graph.node(
        "Scan",
        *(_certain(carries[k]) for k in kept),
        *(_certain(xs[k]) for k in rows),
        *counter,
        outputs=[graph.name() for _ in range(len(kept) + len(answered))],
        body=body,
        num_scan_inputs=many,
        scan_input_directions=[direction] * many,
        **({"scan_output_directions": [direction] * len(answered)} if answered else {}),
    )
    last = _spread(made[: len(kept)], kept, m)
    return last + _spread(made[len(kept) :], answered, len(jaxpr.outvars) - m)


def _while(graph: Graph, equation: Any, given: list[Value]) -> list[Value]:
    p = equation.params
    cond, cond_consts = _closed(p["cond_jaxpr"])
    jaxpr, body_consts = _closed(p["body_jaxpr"])
    a, b = p["cond_nconsts"], p["body_nconsts"]
    of_cond, of_body, carries = given[:a], given[a : a + b], given[a + b :]
    kept = _kept(carries)
    avals = [v.aval for v in jaxpr.invars[b:]]
    inside = [graph.name() for _ in avals]
    flag, number = jax.ShapeDtypeStruct((), bool), jax.ShapeDtypeStruct((), np.int64)
    shown = [described(graph.name(), number), described(graph.name(), flag)]
    shown += [described(inside[k], avals[k]) for k in kept]
    (begin,) = translate(graph, cond, cond_consts, [*of_cond, *carries])

    def make(inner: Graph) -> list[tuple[str, Any]]:
        state = _spread([inside[k] for k in kept], kept, len(carries))
        after = translate(inner, jaxpr, body_consts, [*of_body, *state])
        (more,) = translate(inner, cond, cond_consts, [*of_cond, *after])
        return [(_certain(more), flag), *((_certain(after[k]), avals[k]) for k in kept)]

    body = _body(graph, "while", shown, make)
    outputs = [graph.name() for _ in kept]
    graph.node("Loop", "", _certain(begin), *(_certain(carries[k]) for k in kept), outputs=outputs, body=body)
    return _spread(outputs, kept, len(carries))


def _cond(graph: Graph, equation: Any, given: list[Value]) -> list[Value]:
    branches = equation.params["branches"]
    if len(branches) != 2:
        raise NotTranslated("ONNX: there is no translation of a choice of more than two; export as stablehlo.")
    index, *operands = given
    kept: list[int] = []

    def make(branch: Any) -> Callable[[Graph], list[tuple[str, Any]]]:
        jaxpr, consts = _closed(branch)

        def made(inner: Graph) -> list[tuple[str, Any]]:
            outputs = translate(inner, jaxpr, consts, operands)
            kept[:] = _kept(outputs)
            return [(_certain(outputs[k]), jaxpr.outvars[k].aval) for k in kept]

        return made

    no, yes = (_body(graph, "branch", [], make(branch)) for branch in branches)
    chosen = graph.cast(_certain(index), bool)
    outputs = [graph.name() for _ in kept]
    graph.node("If", chosen, outputs=outputs, then_branch=yes, else_branch=no)
    return _spread(outputs, kept, len(equation.outvars))


def _certain(value: Value) -> str:
    if isinstance(value, Random):
        raise NotTranslated("ONNX: the model draws random numbers where it predicts; export as stablehlo.")
    return value


_CONTROL: dict[str, Callable[[Graph, Any, list[Value]], list[Value]]] = {
    **dict.fromkeys(("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"), _call),
    **dict.fromkeys(("remat2", "checkpoint"), _call),
    "call_hi_primitive": _expanded,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}


def to_onnx(function: Callable, shapes: Sequence[Any], inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """The function as an ONNX model, checked for form; `shapes` are those of its arguments."""
    import onnx
    from onnx import helper, numpy_helper

    closed = jax.make_jaxpr(function)(*shapes)
    graph = Graph()
    made = translate(graph, closed.jaxpr, closed.consts, list(inputs))
    for value, name in zip(made, outputs, strict=True):
        graph.node("Identity", _certain(value), outputs=[name])
    whole = helper.make_graph(
        graph.nodes,
        "acenode",
        [described(name, v.aval) for name, v in zip(inputs, closed.jaxpr.invars, strict=True)],
        [described(name, v.aval) for name, v in zip(outputs, closed.jaxpr.outvars, strict=True)],
        [numpy_helper.from_array(array, name) for name, array in graph.constants.values()],
    )
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="acenode")
    model.ir_version = 9  # that of the time of the operator set: older runtimes refuse newer ones
    onnx.checker.check_model(model)
    return model
