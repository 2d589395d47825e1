"""An ONNX graph in the making: its nodes, names and constants."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

OPSET = 18
Rule = Callable[..., Any]  # (graph, equation, *names) -> the name of the output, or the names of several


class NotTranslated(ValueError):
    """The program has a part that ONNX has no word for here."""


class Random:
    """Stands for keys and random numbers, which an exported program has none of."""


RANDOM = Random()


class Graph:
    """Nodes as they are made. Graphs within a graph (bodies of loops, branches) share the names and constants."""

    def __init__(self, parent: "Graph | None" = None):
        self.nodes: list[Any] = []
        self.parent = parent
        self._count: list[int] = parent._count if parent else [0]
        self.constants: dict[Any, tuple[str, np.ndarray]] = parent.constants if parent else {}

    def name(self, hint: str = "v") -> str:
        self._count[0] += 1
        return f"{hint}{self._count[0]}"

    def constant(self, value: Any, dtype: Any = None) -> str:
        """The name of a constant; equal ones are one."""
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = (self.name("c"), array)
        return self.constants[key][0]

    def integers(self, values: Iterable[Any]) -> str:
        return self.constant(np.asarray(list(values), np.int64))

    def node(self, kind: str, *inputs: str, outputs: int | Sequence[str] = 1, **attributes: Any) -> Any:
        """Add a node; gives the name of its output, or the names of several."""
        from onnx import helper

        names = [self.name() for _ in range(outputs)] if isinstance(outputs, int) else list(outputs)
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def reshape(self, x: str, shape: Iterable[Any]) -> str:
        return self.node("Reshape", x, self.integers(shape), allowzero=1)

    def cast(self, x: str, dtype: Any) -> str:
        return self.node("Cast", x, to=element_type(dtype))


def element_type(dtype: Any) -> int:
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def described(name: str, aval: Any) -> Any:
    """The name, type and shape of a value of a graph."""
    from onnx import helper

    return helper.make_tensor_value_info(name, element_type(aval.dtype), list(aval.shape))


def is_key(aval: Any) -> bool:
    return jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key)
