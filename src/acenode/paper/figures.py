"""What a result file keeps for pictures: the error over time, and the attention over time."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..compiled import compiled
from ..ode import CoEvolvingODE
from ..series import Query
from ..tasks import Headed, Task
from ..tasks.metrics import error_by_time

_PART = 200  # samples at a time


def error_over_time(
    model: Headed,
    task: Task,
    data: Query,
    test,
    *,
    bins: int = 12,
    between: tuple[float, float] | None = None,
    unit: float = 1.0,
    unit_name: str = "",
) -> dict:
    """The squared error of the scored test values, in equal bins of the query time (times `unit`).

    `between` two times, so that runs with other test samples have the same bins.
    """
    queried = jax.tree.map(lambda x: jnp.asarray(x)[np.asarray(test)], data)
    mean = np.concatenate([_mean(task, model, _rows(queried, part)) for part in _parts(len(queried))])
    error = np.square(np.asarray(queried.values) - mean)
    scored, times = np.asarray(queried.scored), np.asarray(queried.times) * unit
    edges, mse, count = error_by_time(times, error, scored, bins, between)
    kept = count > 0
    middles = 0.5 * (edges[1:] + edges[:-1])
    return {
        "time": rounded(middles[kept]),
        "mse": rounded(mse[kept]),
        "values": count[kept].tolist(),
        **({"unit": unit_name} if unit_name else {}),
    }


def attention_over_time(
    model: Headed, task: Task, data: Any, test, *, until: float, unit: float = 1.0, samples: int = 200, points: int = 6
) -> dict:
    """The mean attention over some test samples from 0 to `until`, and its entropy (in nats, mean over rows).

    Nothing of a model without one that evolves.
    """
    if not has_g(model):
        return {}
    series = _known(data)
    chosen = jax.tree.map(lambda x: jnp.asarray(x)[np.asarray(test)[:samples]], series)
    times = jnp.linspace(0.0, until, points)
    queried = jnp.broadcast_to(times, (len(chosen), points)).astype(chosen.times.dtype)
    logits = _attention(model.model, chosen, queried)
    weights = model.model.ode.attention.weights(logits)
    entropy = -jnp.sum(weights * jnp.log(jnp.maximum(weights, 1e-12)), axis=-1)
    return {
        "times": rounded(np.asarray(times) * unit),
        "matrices": rounded(weights.mean(axis=(0, 1)), 4),
        "entropy": rounded(entropy.mean(axis=(0, 1, 3))),
    }


def has_g(model: Any) -> bool:
    """Whether an attention evolves in this model."""
    nodes = jax.tree.leaves(model, is_leaf=lambda node: isinstance(node, CoEvolvingODE))
    return any(isinstance(node, CoEvolvingODE) and node.g is not None for node in nodes)


@compiled
def _attention(model, series, queried):
    return model(series, queried, jax.random.key(0), attention=True).attention


@compiled
def _mean(task, model, batch):
    return task.outputs(model, batch, jax.random.key(0))[0]


def _known(data: Any):
    """The series that a model sees, whatever the task."""
    query = getattr(data, "query", data)
    return query.context if isinstance(query, Query) else data.series


def _parts(count: int) -> list[slice]:
    return [slice(k, k + _PART) for k in range(0, count, _PART)]


def _rows(data: Query, part: slice) -> Query:
    return jax.tree.map(lambda x: x[part], data)


def rounded(values, digits: int = 6) -> list:
    """Numbers for a file; a picture needs no more digits."""
    return np.round(np.asarray(values, float), digits).tolist()
