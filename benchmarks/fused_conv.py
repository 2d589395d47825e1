"""A kernel for group norm, ReLU and a 3 x 3 convolution in one, beside the plain form: same answers? quicker?

    python benchmarks/fused_conv.py --out fused-conv-h200

A map of at most 64 pixels stays on one multiprocessor. To shift it is a product with a matrix of zeros and ones, so
that nothing goes through memory between the norm and the result. The gradient in the weights is left to XLA, which adds
it up over the batch in one product. On a CPU it is interpreted and compared only.

On an H200 it agrees (gradients to 4e-4 of the largest) and is slower: both steps of Algorithm 1 take 15.5 ms against
13.2 ms for one seed, 58 ms against 49 ms for five. So the library does not use it.
"""

import functools as ft

import equinox as eqx
import image
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from measure import interleaved
from record import arguments, save, show

from acenode.ode import ConvField, conv_fields
from acenode.ode.convolution import _EPSILON, patches
from acenode.precision import matmul, products_in

ROWS = 64  # pixels that a program holds
OFFSETS = tuple((dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1))


def shift(width: int, pixels: int, offset: tuple[int, int], dtype):
    """Row p of a product with it is the row of the pixel that far from p, or zero beyond the edge."""
    p, q = (lax.broadcasted_iota(jnp.int32, (ROWS, ROWS), axis) for axis in (0, 1))
    y, x = p // width + offset[0], p % width + offset[1]
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < pixels // width) & (p < pixels)
    return jnp.where(inside & (q == y * width + x), 1.0, 0.0).astype(dtype)


def normalised(x, groups: int, pixels: int):
    """The map with mean 0 and variance 1 in every group, the factor for that, which rows count, and group means."""
    channels = x.shape[1]
    valid = lax.broadcasted_iota(jnp.int32, x.shape, 0) < pixels
    i, j = (lax.broadcasted_iota(jnp.int32, (channels, channels), axis) // (channels // groups) for axis in (0, 1))
    same_group = jnp.where(i == j, groups / channels, 0.0)

    def over_group(by_channel):
        return jnp.sum(same_group * by_channel[None, :], axis=1)

    mean = over_group(jnp.sum(jnp.where(valid, x, 0.0), axis=0) / pixels)
    centred = jnp.where(valid, x - mean[None, :], 0.0)
    precision = lax.rsqrt(over_group(jnp.sum(centred * centred, axis=0) / pixels) + _EPSILON)
    return centred * precision[None, :], precision, valid, over_group


def forward(x, affine, weight, add, out, activation, *, width: int, groups: int, pixels: int):
    normal, _, valid, _ = normalised(x[...], groups, pixels)
    z = normal * affine[0, :][None, :] + affine[1, :][None, :]
    a = jnp.where(valid & (z > 0), z, 0.0).astype(jnp.float16)
    total = add[...]
    for k, offset in enumerate(OFFSETS):
        moved = triton.dot(shift(width, pixels, offset, jnp.float16), a).astype(jnp.float16)
        total += triton.dot(moved, weight[k].astype(jnp.float16))
    out[...], activation[...] = total, a


def backward(x, affine, weight, grad, dx, daffine, *, width: int, groups: int, pixels: int):
    normal, precision, valid, over_group = normalised(x[...], groups, pixels)
    scale = affine[0, :]
    positive = valid & (normal * scale[None, :] + affine[1, :][None, :] > 0)
    given, back = jnp.where(valid, grad[...], 0.0), jnp.zeros_like(normal)
    for k, offset in enumerate(OFFSETS):
        to_input = triton.dot(given, weight[k], trans_b=True, allow_tf32=True)
        back += triton.dot(shift(width, pixels, offset, jnp.float32), to_input, trans_a=True, allow_tf32=True)
    back = jnp.where(positive, back, 0.0)
    by_channel, with_normal = jnp.sum(back, axis=0), jnp.sum(back * normal, axis=0)
    along_mean, along_normal = (over_group(scale * each) / pixels for each in (by_channel, with_normal))
    dx[...] = precision[None, :] * (scale[None, :] * back - along_mean[None, :] - normal * along_normal[None, :])
    daffine[0, :], daffine[1, :] = with_normal, by_channel


def call(kernel, shapes):
    """A program for each sample; `vmap` makes a grid of them."""
    if jax.default_backend() == "cpu":
        return pl.pallas_call(kernel, out_shape=shapes, interpret=True)
    return pl.pallas_call(kernel, out_shape=shapes, compiler_params=triton.CompilerParams(num_warps=8, num_stages=1))


def padded(x):
    return jnp.pad(x, ((0, ROWS - x.shape[0]), (0, 0)))


@ft.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def norm_relu_conv(width: int, groups: int, x, affine, weight, add):
    """`conv(relu(group_norm(x))) + add`, and the activation, of x (pixels, channels), weight (9, inputs, outputs) and
    add (pixels, outputs). No gradient for the weight."""
    return _forward(width, groups, x, affine, weight, add)[0]


def _forward(width, groups, x, affine, weight, add):
    pixels = x.shape[0]
    shapes = [
        jax.ShapeDtypeStruct((ROWS, weight.shape[2]), x.dtype),
        jax.ShapeDtypeStruct((ROWS, x.shape[1]), jnp.float16),
    ]
    kernel = ft.partial(forward, width=width, groups=groups, pixels=pixels)
    out, a = call(kernel, shapes)(padded(x), affine, weight, padded(add))
    return (out[:pixels], a[:pixels]), (x, affine, weight)


def _backward(width, groups, kept, grads):
    x, affine, weight = kept
    pixels = x.shape[0]
    shapes = [jax.ShapeDtypeStruct(shape, x.dtype) for shape in ((ROWS, x.shape[1]), affine.shape)]
    kernel = ft.partial(backward, width=width, groups=groups, pixels=pixels)
    dx, daffine = call(kernel, shapes)(padded(x), affine, weight, padded(grads[0]))
    return dx[:pixels], daffine, None, grads[0]


norm_relu_conv.defvjp(_forward, _backward)


@ft.partial(jax.custom_jvp, nondiff_argnums=(0,))
def weight_gradient(width: int, a, weight):
    """Zero, with the gradient of the convolution of a in its weight."""
    return jnp.zeros((a.shape[0], weight.shape[2]), weight.dtype)


@weight_gradient.defjvp
def _weight_gradient_jvp(width, primals, tangents):
    a, weight = primals
    near = patches(a.astype(jnp.float32).reshape(-1, width, a.shape[1]), 3, 1, 1).reshape(a.shape[0], -1)
    with products_in("tf32"):
        return weight_gradient(width, a, weight), matmul(near, tangents[1].reshape(-1, weight.shape[2]))


def layer(norm, conv, h, t):
    """`conv(relu(norm(h)), t)` by the kernel."""
    height, width, channels = h.shape
    outputs = conv.weight.shape[0]
    weight = jnp.moveaxis(conv.weight, 0, -1).reshape(9, channels, outputs)
    clock = conv._plain_product(jnp.ones((height, width, 1), h.dtype), conv.clock[..., None])
    add = t * clock.reshape(-1, outputs) + conv.bias
    held = lax.stop_gradient(weight)
    out, a = norm_relu_conv(width, norm.groups, h.reshape(-1, channels), norm.affine, held, add)
    out = out + weight_gradient(width, lax.stop_gradient(a), weight)
    return out.reshape(height, width, outputs)


def field(self: ConvField, t, h):
    for norm, conv in zip(self.norms[:-1], self.convs, strict=True):
        h = layer(norm, conv, h, t)
    return self.norms[-1](h)


def stack(self: conv_fields._Stacked, t, h):
    """f and g at once, as far as both go."""
    both = jax.vmap(lambda norm, conv: layer(norm, conv, h, t))(self.norms[0], self.convs[0])
    for norm, conv in zip(self.norms[1:-1], self.convs[1:], strict=True):
        both = jax.vmap(lambda norm, conv, x: layer(norm, conv, x, t))(norm, conv, both)
    first, second = (jax.tree.map(lambda leaf, i=i: leaf[i], self.norms[-1]) for i in (0, 1))
    if not self.more_convs:
        return first(both[0]), second(both[1])
    norms, deep = (first, second)[self.deeper], both[self.deeper]
    for norm, conv in zip((norms, *self.more_norms[:-1]), self.more_convs, strict=True):
        deep = layer(norm, conv, deep, t)
    deep = self.more_norms[-1](deep)
    return (first(both[0]), deep) if self.deeper else (deep, second(both[1]))


PLAIN = (ConvField.__call__, conv_fields._Stacked.__call__)


def use(fused: bool) -> None:
    """The kernel, or the plain form, in all programs that are compiled from now on."""
    jax.clear_caches()
    ConvField.__call__, conv_fields._Stacked.__call__ = (field, stack) if fused else PLAIN


def difference(f_convs: int, g_convs: int, size: int, channels: int) -> dict[str, float]:
    """The largest difference of values and of gradients, relative to the largest of them."""
    one, two, three = jax.random.split(jax.random.key(0), 3)
    f, g = (ConvField(channels, n, precision="float16", key=k) for n, k in ((f_convs, one), (g_convs, two)))
    h, t = jax.random.normal(three, (2, size, size, channels)), jnp.asarray([0.3, 0.6])

    def loss(given):
        f, g, h = given
        out = jax.vmap(f.beside(g))(t, h)
        return sum(jnp.sum(jnp.sin(each)) for each in out), out

    found = []
    for fused in (False, True):
        use(fused)
        (_, out), grad = eqx.filter_jit(eqx.filter_value_and_grad(loss, has_aux=True))((f, g, h))
        found.append((jnp.stack(out), jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(grad)])))
    far = [float(jnp.abs(a - b).max() / jnp.abs(a).max()) for a, b in zip(*found, strict=True)]
    return {"value": far[0], "gradient": far[1]}


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], "fused-conv")
    given = parser.parse_args()
    on_cpu = jax.default_backend() == "cpu"
    sizes = (6, 16) if on_cpu else (6, 64)
    apart = {f"f of {f}, g of {g}": difference(f, g, *sizes) for f, g in ((1, 2), (2, 2), (2, 1))}
    show(
        ("convolutions", "value", "gradient"),
        [(k, f"{v['value']:.1e}", f"{v['gradient']:.1e}") for k, v in apart.items()],
    )
    times = {}
    for name, fused in () if on_cpu else (("plain", False), ("kernel", True)):
        use(fused)
        for seeds in (None, 5):
            timed = {f"{name}, {seeds or 1} at once": image.both_steps("ACE-ODE-Net", 128, seeds, "float16")}
            times |= {key: each.as_dict() for key, each in interleaved(timed, 1 if given.quick else 5).items()}
    print(save(given.out, "fused-conv", given.quick, differences=apart, both_steps=times))


if __name__ == "__main__":
    main()
