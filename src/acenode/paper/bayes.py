"""GRU-ODE-Bayes as the climate tables have it: which ODE moves h, and all of it around that ODE."""

from collections.abc import Callable

import jax
from jaxtyping import Array

from ..models import gru_ode_bayes
from ..ode import AugmentedODE, CoEvolvingODE, Correlation, Dense, GRUField, NeuralODE, Pairwise, pairwise_field
from ..tasks import Headed

EXTRA = 5  # dimensions that an augmented ODE adds
SHARP = 10.0  # on the logits, by validation: with 1 the first attention is nearly the mean of all of h


def plain(size: int) -> Callable[[Array], NeuralODE]:
    """GRU-ODE-Bayes."""
    return lambda key: NeuralODE(GRUField(size, key=key))


def augmented(size: int) -> Callable[[Array], AugmentedODE]:
    """Augmented-GRU-ODE-Bayes."""
    return lambda key: AugmentedODE(GRUField(size + EXTRA, key=key), EXTRA)


def attentive(
    size: int,
    *,
    form: str = "gru_linear",
    scale: float = 1.0,
    renew: bool = False,
    initial: str = "correlation",
    own_leak: bool = False,
) -> Callable[[Array], CoEvolvingODE]:
    """ACE-GRU-ODE-Bayes: g', the scale of the logits, whether a jump makes the attention anew, q, the leak of f'."""

    def make(key):
        one, two, three = jax.random.split(key, 3)
        f, g = GRUField(size, own_leak, key=one), pairwise_field(form, size, key=two)
        q = Correlation(size) if initial == "correlation" else Dense(size, key=three)
        return CoEvolvingODE(f, g, Pairwise(scale), q, renew=renew)

    return make


def bayes(
    ode: Callable[[Array], object], variables: int, size: int, step: float, span: float, extra: int = 0
) -> Callable[[Array], Headed]:
    """Builds GRU-ODE-Bayes with the given ODE, for series that are `span` long."""

    def build(key):
        one, two = jax.random.split(key)
        ticks = round(span / step) + 2
        model = gru_ode_bayes(variables, ode(one), size, extra=extra, step=step, count=ticks, key=two)
        return Headed(model, None)

    return build
