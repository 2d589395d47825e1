"""ACE-ODE-Net on feature maps: a training step beside torchdiffeq's, an ensemble, and the forms of a convolution.

The shape is that of MNIST: 64 channels, 6 x 6, dopri5 at a tolerance of 1e-3.
"""

import os

# Two frameworks share one GPU: neither may take all of its memory. Has to be said before JAX starts.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from measure import interleaved
from record import arguments, save, show

from acenode.ode import Conv, ConvField, Stats
from acenode.paper import images
from acenode.precision import products_in
from acenode.tasks import ImageClassification, LabelledImages
from acenode.train import Recipe
from acenode.train.algorithm import Clock, Rates, Tally, attention_step, main_step, optimisers_of

TOLERANCE, CHANNELS, MAP = images.TOLERANCE, images.WIDTH, 6
EVALUATIONS = 32  # of the field in one program, to time one of them
RECIPE = Recipe(batch_size=images.BATCH, optimiser="momentum")


def pictures(batch: int) -> LabelledImages:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (batch, 28, 28, 1), np.uint8)
    return LabelledImages(jnp.asarray(pixels), jnp.asarray(random.integers(0, 10, batch), jnp.int32))


def both_steps(name: str, batch: int, seeds: int | None, precision: str):
    """Both steps of Algorithm 1 on the whole model (one optimiser step for a model without attention)."""
    build = images.models("mnist", precision=precision)[name].build
    task, data, rates = ImageClassification(), pictures(batch), Rates(jnp.asarray(1e-2), jnp.asarray(1e-4))
    clock = Clock(jnp.asarray(0), jnp.asarray(0))

    def one(arrays, optimisers, key):
        model, tally = eqx.combine(arrays, static), Tally.zero()
        for step in (main_step, attention_step) if name.startswith("ACE") else (main_step,):
            model, optimisers, tally = step(RECIPE, task, model, optimisers, data, key, rates, clock, tally)
        return eqx.filter(model, eqx.is_array), optimisers, tally

    def begin(key):
        model = build(key)
        return eqx.filter(model, eqx.is_array), optimisers_of(RECIPE, model), key

    keys = jax.random.split(jax.random.key(0), seeds or 1)
    static = eqx.filter(eqx.filter_eval_shape(build, keys[0]), lambda x: not isinstance(x, jax.ShapeDtypeStruct))
    state = jax.vmap(begin)(keys)
    if seeds is None:
        state = jax.tree.map(lambda x: x[0], state)
    program = jax.jit(products_in()(one if seeds is None else jax.vmap(one)))
    return lambda: jax.block_until_ready(program(*state))


def joint_step(ode, h0):
    """The gradient of everything in the ODE, as torchdiffeq computes it."""
    moving, still = eqx.partition(ode, eqx.is_inexact_array)

    def loss(moving):
        path = eqx.combine(moving, still)(h0, jnp.array([0.0, 1.0]), attention=False)
        return jnp.mean(jnp.square(path.h[:, -1])), path.stats

    program = jax.jit(products_in()(jax.value_and_grad(loss, has_aux=True)))
    return lambda: jax.block_until_ready(program(moving))


class Convolution(Conv):
    """The compiler's own convolution."""

    def _product(self, x, weight):
        pads = ((self.padding, self.padding),) * 2
        dimensions = ("NHWC", "OHWI", "NHWC")
        return lax.conv_general_dilated(x[None], weight, (1, 1), pads, dimension_numbers=dimensions)[0]


def as_convolutions(field: ConvField) -> ConvField:
    def change(conv: Conv) -> Convolution:
        other = object.__new__(Convolution)
        for name, value in vars(conv).items():
            object.__setattr__(other, name, value)
        return other

    return eqx.tree_at(lambda f: f.convs, field, tuple(map(change, field.convs)))


def evaluation(fields, batch: int, gradient: bool):
    """Many evaluations of f and g on a batch, one after another, in one program."""
    moving, still = eqx.partition(fields, eqx.is_inexact_array)
    h = 0.3 * jax.random.normal(jax.random.key(1), (batch, MAP, MAP, CHANNELS))
    t = jnp.full(batch, 0.3)

    def both(moving, h):
        together = eqx.combine(moving, still)
        if isinstance(together, tuple):
            f, g = together
            return jax.vmap(lambda t, h: (f(t, h), g(t, h)))(t, h)
        return jax.vmap(together)(t, h)

    def plain(_, h):
        dh, da = both(moving, h)
        return h + 1e-3 * (dh + da)

    def pulled(_, carry):
        h, total = carry
        out, pull = jax.vjp(both, moving, h)
        more, grad = pull(out)
        return h + 1e-3 * grad, jax.tree.map(jnp.add, total, more)

    if gradient:
        program = jax.jit(lambda h, zero: lax.fori_loop(0, EVALUATIONS, pulled, (h, zero)))
        zero = jax.tree.map(jnp.zeros_like, moving)
        return lambda: jax.block_until_ready(program(h, zero))
    program = jax.jit(lambda h: lax.fori_loop(0, EVALUATIONS, plain, h))
    return lambda: jax.block_until_ready(program(h))


def arithmetic(batch: int, evaluations: int, vjp_evaluations: int) -> float:
    """Multiplications and additions of the convolutions of f (one) and g (two) in both steps, in 1e9."""
    one = 3 * 2 * 9 * (CHANNELS + 1) * CHANNELS * MAP * MAP * batch
    # Gradients for inputs and for weights cost one evaluation each.
    return 2 * one * (evaluations + 2 * vjp_evaluations) / 1e9


def main() -> None:
    parser = arguments(__doc__ or "", "image")
    parser.add_argument("--batch", type=int, default=32 if jax.default_backend() == "cpu" else 128)
    precisions = ("float32", "tf32", "bfloat16", "float16")
    parser.add_argument("--precision", choices=precisions, default="float32", help="of our convolutions")
    parser.add_argument("--no-forms", action="store_true", help="leave out the forms of a convolution")
    given = parser.parse_args()
    rounds = 2 if given.quick else 5
    ode = images.models("mnist", precision=given.precision)["ACE-ODE-Net"].build(jax.random.key(0)).ode
    h0 = 0.3 * jax.random.normal(jax.random.key(1), (given.batch, MAP, MAP, CHANNELS))

    steps = {"both steps of Algorithm 1": both_steps("ACE-ODE-Net", given.batch, None, given.precision)}
    if jax.default_backend() != "cpu":
        steps["the same, five seeds at once"] = both_steps("ACE-ODE-Net", given.batch, 5, given.precision)
    timings = reported(interleaved(steps, rounds))
    joint, stats, agreement = beside_torch(ode, h0)
    timings |= reported(interleaved(joint, rounds))
    evaluations, vjp_evaluations = int(np.max(stats.evaluations)), int(np.max(stats.vjp_evaluations))
    work = arithmetic(given.batch, evaluations, vjp_evaluations)
    print(
        f"evaluations {evaluations}, vjp_evaluations {vjp_evaluations}; both steps take {work:.0f} GFLOP in the field"
    )
    print(f"largest difference of a gradient from torchdiffeq's, relative: {agreement}", flush=True)
    forms = {} if given.no_forms else compared_forms(ode.f, ode.g, given.batch, rounds)
    path = save(
        given.out,
        "image",
        given.quick,
        batch=given.batch,
        tolerance=TOLERANCE,
        precision=given.precision,
        training_step={name: timing.as_dict() for name, timing in timings.items()},
        evaluation_us=forms,
        evaluations=evaluations,
        vjp_evaluations=vjp_evaluations,
        gflop_both_steps=work,
        gradient_difference=agreement,
    )
    print(f"written to {path}")


def reported(timings: dict) -> dict:
    show(["training step", "ms"], [[name, f"{timing.median_ms:.1f}"] for name, timing in timings.items()])
    print(flush=True)
    return timings


def beside_torch(ode, h0) -> tuple[dict, Stats, dict[str, float]]:
    """Our joint step and torchdiffeq's, what ours took, and how far the gradients are apart."""
    import baseline_torch_image

    ours = joint_step(ode, h0)
    (_, stats), gradient = ours()
    things, agreement = {"acenode, joint step": ours}, {}
    for solver in baseline_torch_image.SOLVERS:
        device = "cpu" if jax.default_backend() == "cpu" else "gpu"
        candidate = baseline_torch_image.Step(solver, ode, h0, TOLERANCE, device)
        candidate()
        theirs, own = candidate.first_gradient(), np.asarray(gradient.f.convs[0].weight)
        agreement[solver] = float(np.abs(theirs - own).max() / np.abs(theirs).max())
        things[f"torchdiffeq {solver}, joint step"] = candidate
    return things, stats, agreement


def compared_forms(f: ConvField, g: ConvField, batch: int, rounds: int) -> dict[str, dict[str, float]]:
    """One evaluation of f and g, and one with its gradient, in microseconds."""
    forms = {
        "patches times a matrix": (f, g),
        "the same, f and g stacked": f.beside(g),
        "the compiler's convolution": (as_convolutions(f), as_convolutions(g)),
    }
    taken = {}
    for name, fields in forms.items():
        pair = {"value": evaluation(fields, batch, False), "with gradient": evaluation(fields, batch, True)}
        taken[name] = {k: 1e3 * timing.median_ms / EVALUATIONS for k, timing in interleaved(pair, rounds).items()}
    show(
        ["one evaluation of f and g, us", "value", "with gradient"],
        [[name, *(f"{us:.0f}" for us in each.values())] for name, each in taken.items()],
    )
    return taken


if __name__ == "__main__":
    main()
