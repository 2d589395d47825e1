"""Whether an attention does anything: numbers that tell an active g from one that training has switched off."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..compiled import compiled
from ..ode import Attention, CoEvolvingODE, Elementwise, Pairwise, VectorField
from ..tasks.ensemble import Ensemble
from ..tasks.task import AttentionTask, Task
from .groups import has_attention
from .layout import Layout

INACTIVE = 0.01  # a smaller change of all weights along the solve is none
SAMPLES = 32  # of the validation data
NAMES = ("attention_change", "attention_entropy", "attended_variance")


def has_health(model: PyTree, task: Task) -> bool:
    """Whether there is a g that may change the weights, and a task that can show the attention."""
    if not (isinstance(task, AttentionTask) and has_attention(model)):
        return False
    odes = _evolving(model)
    return bool(odes) and not (isinstance(odes[0].g, VectorField) and odes[0].g.keeps_weights)


def attention_health(model: PyTree, task: AttentionTask, batch: PyTree, key: PRNGKeyArray) -> dict[str, Array]:
    """Of a model on a batch, means over its samples.

    - `attention_change`: the largest change of a weight from the first to any later query time;
    - `attention_entropy`: of the weights at the last one, from 0 (one choice) to 1 (uniform); NaN without a choice;
    - `attended_variance`: the part of the variance of h over its dimensions that the attended state has; NaN for an
      attention whose `output` is more than h.
    """
    attention = _evolving(model)[0].attention
    h, a = task.attention_path(model, batch, key)
    weights = attention.weights(a)
    change = jnp.abs(weights - weights[:, :1]).reshape(len(a), -1).max(axis=1)
    part = jnp.asarray(jnp.nan)
    if type(attention).output is Attention.output:
        part = _spread(jax.vmap(jax.vmap(attention))(h, a)) / _spread(h)
    values = (change.mean(), _entropy(attention, weights[:, -1]), part)
    return dict(zip(NAMES, values, strict=True))


def _evolving(model: PyTree) -> list[CoEvolvingODE]:
    """The ODEs with a g; of an ensemble, those of its first member."""
    model = model[0] if isinstance(model, Ensemble) else model
    nodes = jax.tree.leaves(model, is_leaf=lambda n: isinstance(n, CoEvolvingODE))
    return [n for n in nodes if isinstance(n, CoEvolvingODE) and n.g is not None]


def _entropy(attention: Attention, weights: Float[Array, "batch ..."]) -> Float[Array, ""]:
    def of(p):
        return -p * jnp.log(jnp.maximum(p, 1e-12))

    if isinstance(attention, Pairwise):
        return of(weights).sum(axis=-1).mean() / jnp.log(weights.shape[-1])
    if isinstance(attention, Elementwise):
        return (of(weights) + of(1 - weights)).mean() / jnp.log(2)
    return jnp.asarray(jnp.nan)


def _spread(h: Float[Array, "batch times ..."]) -> Float[Array, ""]:
    """The variance over the dimensions of a state, mean over samples and times."""
    return jnp.var(h.reshape(*h.shape[:2], -1), axis=-1).mean()


def health_of_members(models: PyTree, task: Task, data: PyTree, rows, keys, layout: Layout) -> dict[str, Array]:
    """`attention_health` of every member on its first rows; nothing where there is none."""
    if not (isinstance(task, AttentionTask) and has_health(models, task)):
        return {}
    return _of_each(layout, *eqx.partition(models, eqx.is_array), task, data, rows, keys)


@compiled
def _of_each(layout: Layout, arrays, static, task: AttentionTask, data, rows, keys):
    measured, described = eqx.partition(task, eqx.is_array)

    def on_a_device(own, shared):
        data, measured = shared

        def one(arrays, rows, key):
            batch = jax.tree.map(lambda x: x[rows[:SAMPLES]], data)
            return attention_health(eqx.combine(arrays, static), eqx.combine(measured, described), batch, key)

        return layout.each(one, *own, at_once=1)

    return layout.sharded(on_a_device)((arrays, rows, keys), (data, measured))
