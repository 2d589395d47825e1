"""Vector fields and residual blocks on feature maps (y, x, channels), for one sample."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .attention import Attention
from .convolution import Conv, ConvPrecision, GroupNorm


class ConvField(eqx.Module):
    """Time-concatenated convolutions with group norm: GN, ReLU, Conv, GN[, ReLU, Conv, GN].

    `convs=2` is the function f of ODE-Net, `convs=1` the paper's light f'' with its second layer removed; more make a
    deeper one. Every convolution is 3 x 3 and sees one more channel, filled with t; `precision` is theirs (`Conv`).
    """

    norms: tuple[GroupNorm, ...]
    convs: tuple[Conv, ...]

    def __init__(self, channels: int, convs: int = 2, *, precision: ConvPrecision | None = None, key: PRNGKeyArray):
        if convs < 1:
            raise ValueError(f"ConvField(convs={convs}): at least 1.")
        self.norms = tuple(GroupNorm(channels) for _ in range(convs + 1))
        keys = jax.random.split(key, convs)
        self.convs = tuple(Conv(channels, channels, timed=True, precision=precision, key=k) for k in keys)

    def __call__(self, t: Float[Array, ""], h: Float[Array, "y x channels"]) -> Float[Array, "y x channels"]:
        for norm, conv in zip(self.norms[:-1], self.convs, strict=True):
            h = conv(jax.nn.relu(norm(h)), t)
        return self.norms[-1](h)

    def on_batch(self, h: Float[Array, "batch y x channels"]) -> "_Kernels | None":
        """The same for a batch, by kernels; None where there are none for it."""
        return _kernels((self,), h)

    def beside(self, other: "ConvField") -> "_Stacked | None":
        """This field and another as one, which answers with both derivatives: half as many, larger operations.

        None where their convolutions have not the same precision.
        """
        alike = len({conv.precision for conv in (*self.convs, *other.convs)}) == 1
        return _Stacked(self, other) if alike else None


class _Stacked(eqx.Module):
    """Two fields on the same state: the layers both have are stacked, those that only the deeper has follow."""

    f: ConvField
    g: ConvField

    def __call__(self, t, h):
        norms, convs = _stack(self.f.norms, self.g.norms), _stack(self.f.convs, self.g.convs)
        both = jax.vmap(lambda norm: norm(h))(norms[0])
        for norm, conv in zip(norms[1:], convs, strict=True):
            both = jax.vmap(lambda norm, conv, x: norm(conv(jax.nn.relu(x), t)))(norm, conv, both)
        g_deeper = len(self.g.convs) >= len(self.f.convs)
        field, deep = (self.g, both[1]) if g_deeper else (self.f, both[0])
        for norm, conv in zip(field.norms[len(norms) :], field.convs[len(convs) :], strict=True):
            deep = norm(conv(jax.nn.relu(deep), t))
        return (both[0], deep) if g_deeper else (deep, both[1])

    def on_batch(self, h):
        """As `ConvField.on_batch`."""
        return _kernels((self.f, self.g), h)


def _stack(one, other):
    """The layers at the same place, stacked, as far as both go."""
    return tuple(jax.tree.map(lambda *both: jnp.stack(both), *layers) for layers in zip(one, other, strict=False))


def _kernels(fields: tuple[ConvField, ...], h) -> "_Kernels | None":
    """Fields for a batch by kernels; None where there are none for it."""
    if any(conv.precision != "float16" for field in fields for conv in field.convs):
        return None
    from . import conv_kernels  # slow to import

    return _Kernels(fields) if conv_kernels.usable(h) else None


class _Kernels(eqx.Module):
    """One field, or f and g, for a batch, by kernels (`OnBatch`)."""

    fields: tuple[ConvField, ...]
    attention: Callable | None = eqx.field(static=True, default=None)

    def attended(self, attention: Attention) -> "_Kernels | None":
        """The same for h attended with a, which is the second state or, without a field of its own, an argument."""
        # A class that only inherits from one that works element by element may work otherwise.
        alike = vars(type(attention)).get("elementwise", False)
        learned = any(map(eqx.is_array, jax.tree.leaves(attention)))  # kernels take no weights of an attention
        return _Kernels(self.fields, attention) if alike and not learned else None

    def slope(self, t, y, args):
        plain = lambda given: jax.vmap(_Plain(given[0], self.attention))(*given[1:])  # noqa: E731
        return _with_gradient_of(plain, self._slope)((self.fields, t, y, args))

    def _slope(self, given):
        from . import conv_kernels

        fields, t, y, args = given
        return self._state(conv_kernels.slopes(self._plan(y), t, self._maps(y, args), _weights(fields)), y)

    def step(self, tableau, t, dt, y, slope, args):
        from . import conv_kernels

        given = self._maps(y, args), self._maps(slope), _weights(self.fields)
        answers = conv_kernels.step(self._plan(y), tableau, t, dt, *given)
        return tuple(self._state(answer, y) if answer else None for answer in answers)

    def replay(self, tableau, t, dt, y, args):
        from . import conv_kernels

        given = self._maps(y, args), _weights(self.fields)
        return self._state(conv_kernels.replay(self._plan(y), tableau, t, dt, *given), y)

    def _plan(self, y):
        from . import conv_kernels

        return conv_kernels.Plan(jax.tree.leaves(y)[0].shape[1:3], self.fields[0].norms[0].groups, self.attention)

    def _maps(self, y, args=None):
        return tuple(map_.reshape(-1, map_.shape[-1]) for map_ in jax.tree.leaves((y, args)))

    def _state(self, maps, like):
        leaves, structure = jax.tree.flatten(like)
        return jax.tree.unflatten(structure, [x.reshape(leaf.shape) for x, leaf in zip(maps, leaves, strict=True)])


class _Plain(eqx.Module):
    """What `_Kernels` answers, for one sample, without kernels."""

    fields: tuple[ConvField, ...]
    attention: Callable | None = eqx.field(static=True)

    def __call__(self, t, y, args):
        maps = jax.tree.leaves((y, args))
        attended = maps[0] if self.attention is None else self.attention(*maps)
        slopes = tuple(field(t, attended) for field in self.fields)
        return slopes if isinstance(y, tuple) else slopes[0]


def _weights(fields: tuple[ConvField, ...]):
    from . import conv_kernels

    def of(field: ConvField):
        layers = (conv_kernels.Layer(conv.weight, conv.clock, conv.bias) for conv in field.convs)  # type: ignore[arg-type]
        return conv_kernels.Weights(tuple(norm.affine for norm in field.norms), tuple(layers))

    return tuple(map(of, fields))


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


class ResidualBlock(eqx.Module):
    """What a pre-activation residual block adds to its input: GN, ReLU, Conv, GN, ReLU, Conv, without biases."""

    norms: tuple[GroupNorm, GroupNorm]
    convs: tuple[Conv, Conv]

    def __init__(self, channels: int, *, precision: ConvPrecision | None = None, key: PRNGKeyArray):
        one, two = jax.random.split(key)
        self.norms = (GroupNorm(channels), GroupNorm(channels))
        given = {"bias": False, "precision": precision}
        self.convs = (Conv(channels, channels, **given, key=one), Conv(channels, channels, **given, key=two))

    def __call__(self, h: Float[Array, "y x channels"]) -> Float[Array, "y x channels"]:
        for norm, conv in zip(self.norms, self.convs, strict=True):
            h = conv(jax.nn.relu(norm(h)))
        return h
