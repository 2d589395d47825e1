"""A fitted estimator as a program in StableHLO or ONNX, to be run without this library."""

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export

from ..precision import products_in
from ..series import Panel, Series
from ..tasks.forecast import mixture, predictions
from ..train.checkpoint import write_atomically
from .inference import with_enough_steps
from .saved import HEAD

FORMATS = ("stablehlo", "onnx")


def export(
    estimator: Any,
    out: str | Path,
    *,
    format: str = "stablehlo",
    batch: int = 1,
    rows: int = 128,
    queries: int = 8,
) -> Path:
    """Write the program to `out`, and beside it a JSON file that says how to call it; gives the path of the latter.

    The program takes `batch` series at a time: `times` (batch, rows) since the first time of each series in units of
    `unit`, padded by repeating the last; `values` (batch, rows, variables), NaN where missing; `length` (batch,) real
    rows; and for a forecaster or an imputer `queries` (batch, queries). It gives mean and standard deviation at the
    query times, or the probabilities of the labels, all in the units of the data. All outputs of a series are NaN
    where one of its times needs more steps than there are. Values go in and come out in single precision.
    """
    out = Path(out)
    if format not in FORMATS:
        raise ValueError(f"export(format={format!r}): expected one of {', '.join(FORMATS)}.")
    if (out.parent / HEAD).is_file():
        raise ValueError(f"{out.parent.absolute()} holds a saved model; choose another place for the program.")
    labels = estimator.task == "classify"
    inputs = ["times", "values", "length", *([] if labels else ["queries"])]
    outputs = ["probability"] if labels else ["mean", "standard deviation"]
    described = {
        "task": estimator.task,
        "variables": list(estimator.columns_.values),
        "classes": getattr(estimator, "classes_", None),
        "unit": estimator.settings_.unit,
        "time": estimator.clock_.kind,
        "batch": batch,
        "rows": rows,
        "queries": None if labels else queries,
        "inputs": inputs,
        "outputs": outputs,
        "conventions": {
            "times": "since the first row of a series, divided by unit; in padding, the last time again",
            "values": "NaN where not observed, and in padding; in single precision, as the outputs are",
            "length": "rows of each series without padding",
            **({} if labels else {"queries": f"as times, sorted{_LATE if estimator.task == 'forecast' else ''}"}),
            "reach": f"to {estimator.settings_.span:g} units; all outputs of a series are NaN if one needs more",
        },
        "format": format,
        "call": _CALL[format],
        "jax": jax.__version__,
    }
    if format == "onnx":
        content = _onnx(estimator, batch, rows, queries, inputs, outputs)
    else:
        content = _stablehlo(*_program(estimator, batch, rows, queries))
    write_atomically(out, content)
    beside = out.with_name(f"{out.name}.json")
    write_atomically(beside, json.dumps(described, indent=1, default=str).encode() + b"\n")
    return beside


_LATE = ", at the last row or later: rows after a query would count for it"

_CALL = {
    "stablehlo": "jax.export.deserialize(bytearray(open(file, 'rb').read())).call(*inputs)",
    "onnx": "onnxruntime.InferenceSession(file).run(None, inputs by name)",
}


def _program(estimator: Any, batch: int, rows: int, queries: int) -> tuple[Callable, list[jax.ShapeDtypeStruct]]:
    """The program as a function, and the shapes of its arguments."""
    width = len(estimator.columns_.values)
    single = jnp.float32
    shapes = [
        jax.ShapeDtypeStruct((batch, rows), single),
        jax.ShapeDtypeStruct((batch, rows, width), single),
        jax.ShapeDtypeStruct((batch,), jnp.int32),
    ]
    if estimator.columns_.future:
        raise ValueError("export: the model has columns that are known ahead, which a program does not take yet.")
    if estimator.task == "regress":
        raise ValueError("export: a Regressor has no exported form yet; predict with this library.")
    labels = estimator.task == "classify"
    scaler = jax.tree.map(lambda x: np.asarray(x, np.float32), estimator.scaler_)
    models = _with_enough_steps(estimator, rows, 1 if labels else queries)
    weights, calibration = estimator.members_.weights, estimator.calibration_

    def series(times, values, length):
        observed = ~jnp.isnan(values)
        return scaler.scale(Series(times, jnp.where(observed, values, 0.0), observed, length))

    def classify(times, values, length):
        given = series(times, values, length)

        def one(model):
            trace = model.model(given, given.times[:, -1:], jax.random.key(0)).mask_failed()
            return jnp.mean(jax.nn.softmax(jax.vmap(jax.vmap(model.head))(trace.summary), axis=-1), axis=0)

        return sum(w * one(model) for w, model in zip(weights, models, strict=True))

    def values_at(times, values, length, queries):
        given = series(times, values, length)

        def one(model):
            trace = model.model(given, queries, jax.random.key(0)).mask_failed()
            return mixture(*predictions(model, trace))

        mean, variance = _mixed([one(model) for model in models], weights)
        last = jnp.take_along_axis(times, jnp.maximum(length - 1, 0)[:, None], axis=1)
        factor = calibration.factor(jnp.maximum(queries - last, 0.0))
        return scaler.unscale(mean), scaler.unscale_deviation(factor[..., None] * jnp.sqrt(variance))

    if labels:
        return products_in()(classify), shapes
    return products_in()(values_at), [*shapes, jax.ShapeDtypeStruct((batch, queries), single)]


def _stablehlo(function: Callable, shapes: Sequence[jax.ShapeDtypeStruct]) -> bytes:
    program = jax_export.export(jax.jit(function))(*shapes)
    try:
        return bytes(program.serialize())
    except ImportError as error:
        raise ValueError("export needs flatbuffers; install it with: pip install 'acenode[export]'") from error


def _onnx(estimator: Any, batch: int, rows: int, queries: int, inputs: list[str], outputs: list[str]) -> bytes:
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise ValueError("export as onnx needs onnx; install it with: pip install 'acenode[export]'") from error
    from .onnx_program import to_onnx

    solvers = [getattr(getattr(each.model, "ode", None), "solver", None) for each in estimator.members_.models]
    if any(solver is not None and solver.adaptive for solver in solvers):
        raise ValueError("export(format='onnx'): the model's solver adapts its steps; export it as stablehlo.")
    one = copy.copy(estimator)
    with jax.enable_x64(False):  # runtimes of ONNX compute in single precision, and so does the program
        models = jax.tree.map(
            lambda x: jnp.asarray(x, jnp.float32) if eqx.is_inexact_array(x) else x, estimator.members_.models
        )
        one.members_ = replace(estimator.members_, models=models)
        return to_onnx(*_program(one, batch, rows, queries), inputs, outputs).SerializeToString()


def _mixed(said: list, weights: tuple[float, ...]) -> tuple[Any, Any]:
    """Mean and variance of a mixture of Gaussians."""
    mean = sum(w * m for w, (m, _) in zip(weights, said, strict=True))
    spread = sum(w * (jnp.exp(v) + jnp.square(m - mean)) for w, (m, v) in zip(weights, said, strict=True))
    return mean, spread


def _with_enough_steps(estimator: Any, rows: int, queries: int) -> Any:
    """The models, allowed the steps of the longest series and queries that the program takes."""
    width, span = len(estimator.columns_.values), estimator.settings_.span
    values = np.zeros((1, rows, width), np.float32)
    longest = Series(np.full((1, rows), span, np.float32), values, values > 0, np.full(1, rows, np.int32))
    panel = Panel(longest, np.zeros(1, object), estimator.columns_.values)
    queried = np.full((1, queries), span, np.float32)
    return [with_enough_steps(model, panel, queried) for model in estimator.members_.models]
