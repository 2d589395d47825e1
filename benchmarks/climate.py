"""GRU-ODE-Bayes: a training step of ours beside an eager PyTorch loop of the same equations and step size.

Series like those of USHCN: 200 units of time, some 300 rows on a grid of 0.1, five variables.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from measure import interleaved
from record import arguments, save, show

from acenode.models import gru_ode_bayes
from acenode.ode import GRUField, NeuralODE
from acenode.series import Question, series, stack
from acenode.tasks import Forecast, Headed

VARIABLES, SIZE, STEP = 5, 50, 0.1


def generated(count: int, rows: int, span: float) -> Question:
    random = np.random.default_rng(0)
    many = []
    for _ in range(count):
        places = np.sort(random.choice(np.arange(1, round(span / STEP)), rows, replace=False))
        values = random.normal(size=(rows, VARIABLES))
        values[random.random(values.shape) < 0.75] = np.nan
        values[np.arange(rows), random.integers(0, VARIABLES, rows)] = random.normal(size=rows)
        many.append(series(places * STEP, values))
    whole = stack(many)
    return Question(whole, whole.times, whole.values, whole.observed, whole.observed)


def main() -> None:
    parser = arguments(__doc__ or "", "climate")
    parser.add_argument("--batch", type=int, default=50)
    given = parser.parse_args()
    span, rows = (20.0, 30) if given.quick else (200.0, 300)
    question = generated(given.batch, rows, span)
    one, two = jax.random.split(jax.random.key(0))
    count = round(span / STEP) + 2
    ode = NeuralODE(GRUField(SIZE, key=one))
    model = gru_ode_bayes(VARIABLES, ode, SIZE, step=STEP, count=count, dropout=0.0, mixing=0.0, key=two)
    moving, still = eqx.partition(model, eqx.is_inexact_array)
    data = jax.tree.map(jnp.asarray, question)

    @jax.jit
    def gradient(moving):
        def loss(moving):
            headed = Headed(eqx.combine(moving, still), None)
            return Forecast().loss(headed, data, jax.random.key(0), jnp.asarray(0))[0]

        return jax.value_and_grad(loss)(moving)

    import rival_torch_bayes

    rival = rival_torch_bayes.Step(model, question.known, STEP)
    ours = float(gradient(moving)[0])
    theirs = rival() + 0.5 * float(np.log(2 * np.pi))
    timings = interleaved(
        {
            "acenode": lambda: jax.block_until_ready(gradient(moving)),
            "PyTorch, eager loop": rival,
        },
        2 if given.quick else 3,
    )
    ratio = timings["PyTorch, eager loop"].median_ms / timings["acenode"].median_ms
    show(["training step", "ms"], [[name, f"{timing.median_ms:.0f}"] for name, timing in timings.items()])
    print(f"loss {ours:.5f} against {theirs:.5f}; the eager loop takes {ratio:.1f} times as long")
    path = save(
        given.out,
        "climate",
        given.quick,
        batch=given.batch,
        rows=rows,
        span=span,
        step=STEP,
        training_step={name: timing.as_dict() for name, timing in timings.items()},
        ratio=round(ratio, 2),
        losses={"acenode": ours, "torch": theirs},
    )
    print(f"written to {path}")


if __name__ == "__main__":
    main()
