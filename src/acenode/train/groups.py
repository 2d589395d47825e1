"""Whose parameters are whose: theta_f, theta_g, theta_q and what is not trained, read off a model's structure."""

from typing import Literal, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..ode import CoEvolvingODE, Constant, Correlation
from ..tasks.ensemble import Ensemble

Group = Literal["main", "attention", "initial", "constant", "other"]
Model = TypeVar("Model")

_FIELDS: dict[str, Group] = {"g": "attention", "update": "attention", "initial": "initial"}


def groups(model: PyTree) -> PyTree:
    """The group of every leaf of `model`.

    - `attention`: theta_g, the arrays inside the `g` and the `update` of any `CoEvolvingODE`, wherever it sits;
    - `initial`: theta_q, the arrays inside its `initial`;
    - `constant`: arrays inside a `Constant`, which are measured and not trained;
    - `main`: theta_f and all other floating point arrays;
    - `other`: what is not a floating point array.
    """

    def label(path, leaf) -> Group:
        if not eqx.is_inexact_array(leaf):
            return "other"
        node, group = model, cast(Group, "main")
        for key in path:
            if isinstance(node, Constant):
                return "constant"
            if isinstance(node, CoEvolvingODE):
                group = _FIELDS.get(key.name, group)
            node = _child(node, key)
        return group

    return jax.tree_util.tree_map_with_path(label, model)


def _child(node, key):
    if isinstance(key, jax.tree_util.GetAttrKey):
        return getattr(node, key.name)
    if isinstance(key, jax.tree_util.FlattenedIndexKey):  # of a class that names no keys
        return jax.tree.leaves(node, is_leaf=lambda n: n is not node)[key.key]
    return node[key.idx if isinstance(key, jax.tree_util.SequenceKey) else key.key]


def belongs(model: PyTree, *wanted: str) -> PyTree:
    """`True` for the arrays of the wanted groups: a filter for `equinox.partition`."""
    return jax.tree.map(lambda label: label in wanted, groups(model))


def has_attention(model: PyTree) -> bool:
    """Whether there is a theta_g to train."""
    return "attention" in jax.tree.leaves(groups(model))


def parameter_count(model: PyTree) -> int:
    """How many numbers are trained."""
    trained = belongs(model, "main", "attention", "initial")
    return sum(x.size for x, yes in zip(jax.tree.leaves(model), jax.tree.leaves(trained), strict=True) if yes)


def norm(parameters: PyTree, kind: Literal["l1", "l2"]) -> Float[Array, ""]:
    """`||theta||_1` or `||theta||_2` of all weights together; not squared, as in Equation 6.

    Weights are arrays of two or more dimensions: a penalty on a bias or on the logarithm of a rate would not make g
    smaller but pull it towards an arbitrary value. Scales and shifts of a group norm are one array of two dimensions,
    and so in the norm.
    """
    leaves = [leaf for leaf in jax.tree.leaves(parameters) if eqx.is_inexact_array(leaf) and leaf.ndim >= 2]
    if kind == "l1":
        # JAX has a slope of 1 for the absolute value of zero, which would push zeros away; this has none.
        return sum((jnp.sum(leaf * jnp.sign(leaf)) for leaf in leaves), jnp.zeros(()))
    square = sum((jnp.sum(jnp.square(leaf)) for leaf in leaves), jnp.zeros(()))
    # The gradient of the square root at zero is infinite; all-zero parameters get none.
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def length(tree: PyTree) -> Float[Array, ""]:
    """The Euclidean norm of all arrays together."""
    return jnp.sqrt(sum((jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)), jnp.zeros(())))


def attention_norm(model: PyTree, kind: Literal["l1", "l2"]) -> Float[Array, ""]:
    """The norm of theta_g in Equation 6; of a ensemble, the sum over its members."""
    if isinstance(model, Ensemble):
        return eqx.filter_vmap(lambda member: attention_norm(member, kind))(model.models).sum()
    return norm(eqx.filter(model, belongs(model, "attention")), kind)


def _on_odes(change, model: Model) -> Model:
    is_ode = lambda n: isinstance(n, CoEvolvingODE)  # noqa: E731
    return jax.tree.map(lambda n: change(n) if is_ode(n) else n, model, is_leaf=is_ode)


def hold_attention(model: Model, hold: bool = True) -> Model:
    """The same model with a(t) counted as a constant in gradients: the paper's form for theta_f (Equation 7)."""
    return _on_odes(lambda ode: eqx.tree_at(lambda o: o.hold_attention, ode, hold), model)


def fit_reference_statistics(model: Model, h0: Float[Array, "batch ..."], times: Array | None) -> Model:
    """The same model, with the batch statistics of its attention measured on these training states.

    Those of a ensemble have a leading axis over its members.
    """
    if isinstance(model, Ensemble):
        return eqx.tree_at(
            lambda m: m.models, model, eqx.filter_vmap(fit_reference_statistics)(model.models, h0, times)
        )
    if len(_measuring(model)) > 1:
        raise ValueError(
            "fit_reference_statistics: the model has several ODEs whose attention is measured on training data, and "
            "one set of first states for all of them. Call it for each ODE with its own, or give all but one another "
            "`initial`."
        )
    return _on_odes(lambda ode: ode.fit_reference_statistics(h0, times), model)


def needs_reference_statistics(model: PyTree) -> bool:
    """Whether evaluation rests on statistics of training data."""
    return bool(_measuring(model))


def _measuring(model: PyTree) -> list[CoEvolvingODE]:
    """The ODEs whose attention is measured on training data."""
    nodes = jax.tree.leaves(model, is_leaf=lambda n: isinstance(n, CoEvolvingODE))
    odes = [n for n in nodes if isinstance(n, CoEvolvingODE)]
    return [ode for ode in odes if isinstance(ode.initial, Correlation) or ode.evolution == "fixed"]
