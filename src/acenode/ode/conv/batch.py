"""What `ConvField`s can do for a whole batch of maps: slopes, steps and their gradients, of one or of f and g."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from . import steps
from .steps import Columns, Layer, Plan, Way, Weights


class OnMaps(eqx.Module):
    """One field, or f and g, for a batch (`OnBatch`)."""

    fields: tuple[Any, ...]  # `ConvField`s, which know this module
    way: Way = eqx.field(static=True)
    columns: Columns = eqx.field(static=True)
    attention: Callable | None = eqx.field(static=True, default=None)

    def attended(self, attention: Callable) -> "OnMaps | None":
        """The same for h attended with a, which is the second state or, without a field of its own, an argument."""
        # A class that only inherits from one that works element by element may work otherwise.
        alike = vars(type(attention)).get("elementwise", False)
        learned = any(map(eqx.is_array, jax.tree.leaves(attention)))  # no way takes weights of an attention
        return OnMaps(self.fields, self.way, self.columns, attention) if alike and not learned else None

    def slope(self, t, y, args):
        plain = lambda given: jax.vmap(_Plain(given[0], self.attention))(*given[1:])  # noqa: E731
        given = self.fields, t, y, args
        return _with_gradient_of(plain, self._slope)(given) if self.way.single_slopes else plain(given)

    def _slope(self, given):
        fields, t, y, args = given
        return self._state(steps.slopes(self._plan(y), t, self._maps(y, args), self._weights(fields, y))[0], y)

    def space(self, y, args, evaluations):
        return self.way.space(self._plan(y), self._maps(y, args), self._weights(self.fields, y), evaluations)

    def first(self, t, y, args, kept, maps):
        given = self._maps(y, args), self._weights(self.fields, y)
        slope, kept = steps.slopes(self._plan(y), t, *given, kept, maps)
        return self._state(slope, y), kept

    def step(self, tableau, t, dt, y, slope, args, kept=None, maps=None):
        given = self._maps(y, args), self._maps(slope), self._weights(self.fields, y)
        new, end, error, kept = steps.step(self._plan(y), tableau, t, dt, *given, kept, maps)
        return self._state(new, y), self._state(end, y), self._state(error, y) if error else None, kept

    def evaluate_again(self, tableau, t, dt, y, args, kept, maps):
        given = self._maps(y, args), self._weights(self.fields, y)
        return steps.evaluate_again(self._plan(y), tableau, t, dt, *given, kept, maps)

    def replay(self, tableau, t, dt, y, args, kept, maps):
        given = self._maps(y, args), self._weights(self.fields, y)
        return self._state(steps.replay(self._plan(y), tableau, t, dt, *given, kept, maps), y)

    def _plan(self, y):
        half = self.fields[0].convs[0].precision == "float16"
        return Plan(self.way, jax.tree.leaves(y)[0].shape[1:3], self.columns, self.attention, half)

    def _maps(self, y, args=None):
        leaves = jax.tree.leaves((y, args))
        return tuple(self.columns.spread(x.reshape(-1, x.shape[-1]).astype(leaves[0].dtype)) for x in leaves)

    def _state(self, maps, like):
        leaves, structure = jax.tree.flatten(like)
        shaped = (self.columns.gathered(x).reshape(leaf.shape) for x, leaf in zip(maps, leaves, strict=True))
        return jax.tree.unflatten(structure, [x.astype(leaves[0].dtype) for x in shaped])

    def _weights(self, fields, y):
        """In the precision of the states."""
        dtype, spread = jax.tree.leaves(y)[0].dtype, self.columns.spread

        def layer(conv):
            return Layer(spread(spread(conv.weight), 0), spread(conv.clock, 0), spread(conv.bias))

        def of(field):
            return Weights(tuple(spread(norm.affine) for norm in field.norms), tuple(map(layer, field.convs)))

        return jax.tree.map(lambda x: x.astype(dtype), tuple(map(of, fields)))


class _Plain(eqx.Module):
    """What `OnMaps` answers, for one sample."""

    fields: tuple[Any, ...]
    attention: Callable | None = eqx.field(static=True)

    def __call__(self, t, y, args):
        maps = jax.tree.leaves((y, args))
        attended = maps[0] if self.attention is None else self.attention(*maps)
        slopes = tuple(field(t, attended) for field in self.fields)
        return slopes if isinstance(y, tuple) else slopes[0]


def _with_gradient_of(plain, quick):
    """What `quick` answers, with the gradient of `plain`."""

    @eqx.filter_custom_vjp
    def answer(given):
        return quick(given)

    answer.def_fwd(lambda perturbed, given: (quick(given), None))

    @answer.def_bwd
    def back(kept, grad, perturbed, given):
        moving, still = eqx.partition(given, perturbed)
        answers, vjp = jax.vjp(lambda moving: plain(eqx.combine(moving, still)), moving)
        grad = jax.tree.map(lambda x, g: jnp.zeros_like(x) if g is None else g, answers, grad)  # None: not asked for
        return vjp(grad)[0]

    return answer
