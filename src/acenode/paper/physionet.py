"""PhysioNet 2012: the models of the mortality table that are a Latent-ODE, with the architecture of the base paper."""

import hashlib
from collections.abc import Callable
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..datasets import physionet
from ..models import ODERNN, LatentODE
from ..ode import (
    AugmentedODE,
    CoEvolvingODE,
    Correlation,
    Dense,
    MLPField,
    NeuralODE,
    Pairwise,
    Solver,
    pairwise_field,
)
from ..ode.coevolve import Evolution
from ..ode.fields import mlp
from ..series import Panel, Scaler, Series, reconstruct
from ..tasks import Headed, LabelHead, Labelled, LabelSeries
from ..tasks.label import ReadFrom
from ..train import Recipe
from .row import Prepared, Row

HOURS = 48.0
LATENT, RECOGNITION, WIDTH, VARIABLES = 20, 40, 50, 41
EXTRA = 5
SOLVER = Solver("dopri5", rtol=1e-3, atol=1e-4, max_steps=512, checkpoints=32)
STEADY = Solver("rk4", step=0.05, max_steps=64, checkpoints=32)


def _plain(key: Array) -> NeuralODE:
    return NeuralODE(MLPField(LATENT, WIDTH, 4, init="normal", key=key), SOLVER)


def _augmented(key: Array) -> AugmentedODE:
    return AugmentedODE(MLPField(LATENT + EXTRA, WIDTH, 4, init="normal", key=key), EXTRA, SOLVER)


def attentive(
    form: str = "linear_h2", scale: float = 1.0, initial: str = "correlation", evolution: Evolution = "evolved"
) -> Callable[[Array], CoEvolvingODE]:
    """ACE-Latent-ODE and its ablations: the form of g', the scale of the logits, q, and how a(t) gets its values."""

    def make(key):
        one, two, three = jax.random.split(key, 3)
        g = None
        if evolution in ("evolved", "shared"):
            g = pairwise_field(form, LATENT, WIDTH, 4, init="normal", key=two)
        q = Correlation(LATENT) if initial == "correlation" else Dense(LATENT, key=three)
        solver = SOLVER if evolution in ("evolved", "frozen") else STEADY
        f = MLPField(LATENT, WIDTH, 4, init="normal", key=one)
        return CoEvolvingODE(f, g, Pairwise(scale), q, solver, evolution)

    return make


ODES: dict[str, tuple[Callable, int]] = {
    "Latent-ODE (ODE Enc.)": (_plain, LATENT),
    "Augmented-Latent-ODE (ODE Enc.)": (_augmented, LATENT + EXTRA),
    "ACE-Latent-ODE (ODE Enc.)": (attentive(), LATENT),
    "FC-ACE-Latent-ODE": (attentive(initial="dense"), LATENT),
    "Fixed-ACE-Latent-ODE": (attentive(evolution="fixed"), LATENT),
}


def mortality_model(ode: Callable, state: int, read: str = "start") -> Callable[[Array], Headed]:
    """Builds the Latent-ODE with the given ODE and a label head (163,972 parameters with a plain ODE)."""

    def build(key):
        one, two, three, four = jax.random.split(key, 4)
        model = LatentODE(
            encoder=ODERNN(VARIABLES, RECOGNITION, WIDTH, 4, key=one),
            to_latent=mlp(2 * RECOGNITION, 2 * LATENT, 100, 1, init="normal", key=two),
            ode=ode(three),
            shape=(LATENT,),
            samples=3,
        )
        summary = LATENT if read == "start" else state
        return Headed(model, LabelHead(state, summary, VARIABLES, key=four))

    return build


def mortality_data(panel: Panel, died: np.ndarray, train: np.ndarray) -> Labelled:
    """Records scaled by training statistics (minimum over maximum, as published), times in units of 48 hours."""
    scaler = Scaler.fit(panel.series[train], "min_over_max")
    scaled = scaler.scale(panel.series)
    in_units = eqx.tree_at(lambda s: s.times, scaled, (scaled.times / HOURS).astype(np.float32))
    return Labelled(reconstruct(_trimmed(in_units)), jnp.asarray(died, jnp.float32))


def _trimmed(series: Series) -> Series:
    rows = int(series.length.max())
    return Series(series.times[:, :rows], series.values[:, :rows], series.observed[:, :rows], series.length)


@cache
def _mortality_once(data_dir) -> Prepared:
    """The 4,000 labelled records of set a, split as published (test fifth), a tenth of training for validation."""
    loaded = physionet.load(("a",), data_dir=data_dir)
    split = physionet.split(loaded.panel.ids, labels=loaded.died)
    data = mortality_data(loaded.panel, loaded.died, split.train)
    digest = hashlib.sha256()
    for array in jax.tree.leaves(data):
        digest.update(np.ascontiguousarray(array).tobytes())
    return Prepared(data, split, digest.hexdigest())


def _mortality(data_dir, seeds) -> Prepared:
    return _mortality_once(data_dir)


def _decay(iteration):
    """The learning rate falls by a thousandth every iteration, down to a tenth."""
    return jnp.maximum(0.999**iteration, 0.1)


def recipe(epochs: int) -> Recipe:
    return Recipe(epochs=epochs, batch_size=50, optimiser="adamax", schedule=_decay, norm="l2", eval_batch=400)


def mortality_row(name: str, ode: Callable, state: int, read: ReadFrom = "start", **config) -> Row:
    """A row of the mortality table. `read="end"` takes the label from the end of the solve."""
    return Row(
        table="physionet-classification",
        name=name if read == "start" else f"{name}, label from the end",
        data=_mortality,
        task=LabelSeries(read=read),
        build=mortality_model(ode, state, read),
        recipe=recipe,
        epochs=30,
        learning_rate=1e-2,
        penalty=1e-2,
        config={"read": read, "scaling": "min over max of training records", **config},
    )


ROWS = tuple(mortality_row(name, *ODES[name], read) for read in ("start", "end") for name in ODES)
