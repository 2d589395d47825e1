"""Convolutional fields on batches of maps, as the solver has them, and what to compare on them."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from problems import noise

from acenode.ode import CoEvolvingODE, ConvField, ConvInitial, Elementwise, NeuralODE, Solver
from acenode.ode.coevolve import _Attended, _CoupledAsOne
from acenode.ode.conv import fields, steps
from acenode.ode.evolve import _Alone
from acenode.ode.solver import integrate, of_batch, step_size
from acenode.ode.solver.runge_kutta import METHODS, Tableau, combine, stages


def single(*shape: int, seed: int = 0):
    return noise(*shape, seed=seed).astype(jnp.float32)


def half(channels: int, convs: int = 2, seed: int = 0) -> ConvField:
    return ConvField(channels, convs, precision="float16", key=jax.random.key(seed))


def perturbed(model):
    """The same with all parameters drawn, scales and shifts of norms too."""
    leaves, structure = jax.tree.flatten(model)
    return jax.tree.unflatten(structure, [x + 0.1 * single(*x.shape, seed=i) for i, x in enumerate(leaves)])


def stack(models):
    """An ensemble."""
    return jax.tree.map(lambda *each: jnp.stack(each) if eqx.is_array(each[0]) else each[0], *models)


def size(x) -> float:
    return float(np.linalg.norm(np.asarray(x, np.float64)))


def own_program(function):
    """Compiled for one file of tests: a function that others compile too would share what kernels were chosen there."""
    return eqx.filter_jit(lambda *given: function(*given))


def assert_near(ours, plain, part: float) -> None:
    """Every array to within a part of its size.

    Norms of 32 channels have one in each group, so a bias below them has no slope but rounding: that is near zero.
    """
    assert jax.tree.structure(ours) == jax.tree.structure(plain)
    typical = np.median([size(leaf) for leaf in jax.tree.leaves(plain)])
    for (path, one), other in zip(jax.tree.leaves_with_path(ours), jax.tree.leaves(plain), strict=True):
        name = jax.tree_util.keystr(path)
        assert one.dtype == other.dtype and one.shape == other.shape, name
        whole = typical if name.endswith(".bias") and one.shape[-1] == 32 else size(other)
        assert whole > 0.01 * typical, f"{name} is {whole} where others are {typical}"
        assert size(one - other) < part * whole, f"{name} is {size(one - other)} away, of {whole}"


# --- one step of one problem ----------------------------------------------------------------------------------

# A problem is a field as the solver has it, `field(t, y, args)`, with the states and the arguments of a batch. With 64
# channels a group of a norm has two of them: groups matter, and a bias has a slope.


def alone():
    return _Alone(perturbed(half(64, 1))), single(3, 3, 4, 64), None


def frozen():
    return _Attended(perturbed(half(32, 1)), Elementwise()), *single(2, 3, 3, 4, 32)


def uneven():
    """23 groups of 3 channels, as in Augmented-ODE-Net: of a block's 32 x 4 columns 59 are empty."""
    return _Alone(perturbed(half(69, 1))), single(2, 3, 4, 69), None


class Lifted(Elementwise):
    """One that makes something of nothing."""

    elementwise: ClassVar[bool] = True

    def __call__(self, h, a):
        return h + jax.nn.sigmoid(a)


def lifted():
    return _Attended(perturbed(half(32, 1)), Lifted()), *single(2, 3, 3, 4, 32)


class Steep(Elementwise):
    """One that makes something of nothing, and has no slope there."""

    elementwise: ClassVar[bool] = True

    def __call__(self, h, a):
        return 1.0 + h + jnp.sqrt(jnp.square(a))


def steep():
    """11 groups of 3 channels, in 16 x 4 columns: what an attention makes of the empty ones is left out."""
    one, other = perturbed((half(33, 1), half(33, 1, seed=1)))
    return _CoupledAsOne(one.beside(other), Steep()), tuple(single(2, 3, 4, 3, 33)), None


def evolved(channels: int = 64, f: int = 1, g: int = 2):
    one, other = perturbed((half(channels, f), half(channels, g, seed=1)))
    return _CoupledAsOne(one.beside(other), Elementwise()), tuple(single(2, 3, 4, 3, channels)), None


def deep_f():
    return evolved(32, 2, 1)


def times(y):
    """Where each sample is, and how far it goes."""
    leaves = jax.tree.leaves(y)
    count, dtype = len(leaves[0]), leaves[0].dtype
    return jnp.linspace(0.1, 0.9, count, dtype=dtype), jnp.linspace(0.3, 0.8, count, dtype=dtype)


class Plain:
    """`OnBatch` of a field, sample by sample."""

    def __init__(self, field):
        self.slope = jax.vmap(field)

    def step(self, tableau, t, dt, y, slope, args):
        slopes, new = stages(self.slope, args, t, dt, y, slope, tableau)
        end = slopes[-1] if tableau.fsal else self.slope(t + dt, new, args)
        return new, end, combine(None, dt, tableau.b_error, slopes) if tableau.adaptive else None, None

    def space(self, y, args, evaluations):
        return None

    def evaluate_again(self, tableau, t, dt, y, args, kept, maps):
        return kept

    def replay(self, tableau, t, dt, y, args, kept, maps):
        return stages(self.slope, args, t, dt, y, self.slope(t, y, args), tableau)[1]


def on_batch(field, y, quickly: bool):
    found = of_batch(field, y) if quickly else Plain(field)
    assert found is not None
    return found


def slope(field, y, args, quickly: bool):
    return on_batch(field, y, quickly).slope(times(y)[0], y, args)


def step(field, y, args, tableau: Tableau, quickly: bool):
    """The state at the end of a step, the slope there and the error."""
    first = jax.vmap(field)(times(y)[0], y, args)
    return on_batch(field, y, quickly).step(tableau, *times(y), y, first, args)[:3]


def replay(field, y, args, tableau: Tableau, quickly: bool):
    """The state at the end of a step that was kept, among others and in another order of samples."""
    quick, count = on_batch(field, y, quickly), tableau.evaluations_per_step
    maps = (3 + jnp.arange((count + 1) * len(times(y)[0]), dtype=jnp.int32)[::-1]).reshape(count + 1, -1)
    held = jax.lax.stop_gradient((field, y, args))
    space = quick.space(y, args, count + 3)
    kept = on_batch(held[0], y, quickly).evaluate_again(tableau, *times(y), *held[1:], space, maps)
    return quick.replay(tableau, *times(y), y, args, kept, maps)


def gradient(field, y, args, tableau: Tableau, quickly: bool):
    """Of a weighted sum over the state after a step, in parameters, states and arguments; and that state."""

    def value(given):
        field, y, args = given
        new = replay(field, y, args, tableau, quickly)
        return sum(jnp.vdot(single(*x.shape, seed=9 + k), x) for k, x in enumerate(jax.tree.leaves(new))), new

    return eqx.filter_grad(value, has_aux=True)((field, y, args))


BOTH_WAYS = True, False

# Short ones, as gradients of kernels take long to compile. The first is like dopri5: its last stage is the slope at the
# end, and not all of its slopes are in the state there.
FSAL = Tableau(order=2, a=((0.5,), (0.0, 1.0)), b=(0.0, 1.0, 0.0), c=(0.5, 1.0), fsal=True)
KUTTA = Tableau(order=3, a=((0.5,), (-1.0, 2.0)), b=(1 / 6, 2 / 3, 1 / 6), c=(0.5, 1.0))
BOGACKI_SHAMPINE = Tableau(
    order=3,
    a=((1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
    b=(2 / 9, 1 / 3, 4 / 9, 0.0),
    c=(1 / 2, 3 / 4, 1.0),
    b_error=(-5 / 72, 1 / 12, 1 / 9, -1 / 8),
    fsal=True,
)


# --- inside an ODE --------------------------------------------------------------------------------------------

OF_ITS_GRADIENT = {"slopes", "step", "replay"}  # what `conv.steps` does for the gradient of a solve


def with_and_without(monkeypatch, expected: set[str], function, *inputs):
    """What a function of models and maps gives as it is, and where batches have nothing of their own."""
    answers, known = [], {name: getattr(steps, name) for name in (*OF_ITS_GRADIENT, "evaluate_again")}
    for quickly in BOTH_WAYS:
        called = set()
        if not quickly:
            without(monkeypatch)
        for name, one in known.items():
            spy = lambda *given, name=name, one=one, called=called: called.add(name) or one(*given)  # noqa: E731
            monkeypatch.setattr(steps, name, spy)
        answers.append(eqx.filter_jit(lambda *inputs: function(*inputs))(*inputs))  # new, so that it is traced again
        assert called == (expected if quickly else set())
    return answers


def without(monkeypatch) -> None:
    """Sample by sample."""
    for name in ("KERNELS_ON", "PRODUCTS_ON"):
        monkeypatch.setattr(fields, name, ())


def assert_same(monkeypatch, expected: set[str], function, *inputs, parts=(1e-3, 2e-2)) -> None:
    """`function` gives a gradient and states."""
    (ours, h), (plain, known) = with_and_without(monkeypatch, expected, function, *inputs)
    assert_near(h, known, parts[0])
    assert_near(ours, plain, parts[1])


EULER = Solver("euler", step=0.5, max_steps=2, checkpoints=2)


def attentive(solver: Solver, seed: int = 0, evolution: str = "evolved") -> CoEvolvingODE:
    initial = ConvInitial(32, 1, precision="float16", key=jax.random.key(seed))
    f, g, initial = perturbed((half(32, 1, seed + 1), half(32, 1, seed + 2), initial))
    return CoEvolvingODE(
        f, g if evolution == "evolved" else None, Elementwise(), initial, solver, evolution, stacked=True
    )


def gradient_at(*times: float):
    """The gradient of a weighted sum of what an ODE gives at times, in its parameters and first states; and that."""

    def value(queried):
        ode, h0 = queried
        h = ode(h0, jnp.array(times), attention=False).h[:, 1:]
        return jnp.vdot(single(*h.shape, seed=9), h), h

    return lambda ode, h0: eqx.filter_grad(value, has_aux=True)((ode, h0))


def with_rejections(monkeypatch, kept_steps: int):
    """A problem of which steps are tried in vain, the first of some samples among them; and its gradient."""
    monkeypatch.setitem(METHODS, "tsit5", BOGACKI_SHAMPINE)  # shorter, so that it compiles soon
    monkeypatch.setattr(step_size, "_SAFETY", 0.98)  # so that more are
    monkeypatch.setattr(
        integrate, "first_step", lambda field, args, t, *_: jnp.linspace(1.0, 0.01, len(t), dtype=t.dtype)
    )
    solver = Solver("tsit5", rtol=0.1, atol=0.1, max_steps=64, checkpoints=64, kept_steps=kept_steps)
    field = perturbed(half(32, 1))
    livelier = eqx.tree_at(lambda f: f.norms[-1].affine, field, replace_fn=lambda affine: 12.0 * affine)

    def value(queried):
        ode, h0 = queried
        path = ode(h0, jnp.array([0.0, 1.0]))
        return jnp.vdot(single(*h0.shape, seed=9), path.h[:, -1]), path.stats

    gradient = eqx.filter_grad(value, has_aux=True)
    return (NeuralODE(livelier, solver), single(3, 2, 3, 32)), lambda ode, h0: gradient((ode, h0))


def assert_same_after_rejections(answers, part: float) -> None:
    (ours, stats), (plain, known) = answers
    np.testing.assert_array_equal(stats.rejected, known.rejected)
    assert known.rejected.any() and known.accepted.min() > 3 and len(set(known.accepted.tolist())) > 1
    assert_near(ours, plain, part)


def of_batch_mates(field: ConvField):
    """The gradient of two samples beside a third without numbers; and their states."""
    solver = Solver("heun", step=0.5, max_steps=2, checkpoints=2, kept_steps=1)
    h0, ends = single(3, 2, 3, 32).at[1].set(jnp.nan), jnp.tile(jnp.array([0.0, 1.0], jnp.float32), (3, 1))

    def value(field):
        h = solver.solve(_Alone(field), h0, ends)[0][jnp.array([0, 2]), -1]
        return jnp.vdot(single(*h.shape, seed=9), h), h

    return eqx.filter_grad(value, has_aux=True)(field)
