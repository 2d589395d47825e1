"""GRU-ODE-Bayes as the climate tables have it: which ODE moves h, and all of it around that ODE."""

from collections.abc import Callable

import jax
from jaxtyping import Array

from ..models import gru_ode_bayes
from ..models.variable_bayes import RowGRUField, attention_between_variables, variable_bayes
from ..ode import (
    AugmentedODE,
    CoEvolvingODE,
    Correlation,
    Dense,
    FedGRUField,
    GRUField,
    Identity,
    NeuralODE,
    Pairwise,
    pairwise_field,
)
from ..tasks import Headed

EXTRA = 5  # dimensions that an augmented ODE adds
CHANNELS = 12  # of a variable's row
PLAIN, APART = "GRU-ODE-Bayes", "GRU-ODE-Bayes, variables apart"  # rows that others extend by an attention
MIXED = "GRU-ODE-Bayes, variables mixed evenly"
KEPT: dict[str, object] = {"jump": "attention kept"}
OWN_LEAK: dict[str, object] = {**KEPT, "leak": "of the state itself"}
FED: dict[str, object] = {**KEPT, "attention": "input of the GRU"}
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
    fed: bool = False,
) -> Callable[[Array], CoEvolvingODE]:
    """ACE-GRU-ODE-Bayes: g', the scale of the logits, whether a jump makes the attention anew, q, the leak of f'.

    `fed`: f moves h itself and is fed with the attended state, where the paper's f' sees nothing else.

    By validation a jump keeps the attention: on double OU, sharp with its own leak, one seed, 12 epochs, the NegLL is
    -1.177 kept and -1.159 renewed.
    """

    def make(key):
        one, two, three = jax.random.split(key, 3)
        f = FedGRUField(size, key=one) if fed else GRUField(size, own_leak, key=one)
        g = pairwise_field(form, size, key=two)
        q = Correlation(size) if initial == "correlation" else Dense(size, key=three)
        return CoEvolvingODE(f, g, Pairwise(scale), q, renew=renew)

    return make


def between_variables(variables: int) -> Callable[[Array], CoEvolvingODE]:
    """Rows of h, one for each variable, that know of each other by their attention alone."""
    return lambda key: attention_between_variables(variables, CHANNELS, key=key)


def variables_apart(variables: int) -> Callable[[Array], NeuralODE]:
    """The same rows without attention: each variable on its own."""
    return lambda key: NeuralODE(RowGRUField(variables, CHANNELS, key=key))


def variables_mixed(variables: int) -> Callable[[Array], CoEvolvingODE]:
    """The same rows, where each sees the mean of all: an attention that cannot choose."""

    def make(key):
        f = RowGRUField(variables, CHANNELS, key=key)
        return CoEvolvingODE(f, None, Pairwise(), Identity(0.0), evolution="frozen")

    return make


def row_bayes(ode: Callable[[Array], object], variables: int, step: float, span: float) -> Callable[[Array], Headed]:
    """Builds GRU-ODE-Bayes with a row of h for each variable."""

    def build(key):
        one, two = jax.random.split(key)
        ticks = round(span / step) + 2
        return Headed(variable_bayes(variables, ode(one), CHANNELS, step=step, count=ticks, key=two), None)

    return build


def bayes(
    ode: Callable[[Array], object],
    variables: int,
    size: int,
    step: float,
    span: float,
    extra: int = 0,
    dropout: float = 0.0,
) -> Callable[[Array], Headed]:
    """Builds GRU-ODE-Bayes with the given ODE, for series that are `span` long."""

    def build(key):
        one, two = jax.random.split(key)
        ticks = round(span / step) + 2
        options = {"extra": extra, "step": step, "count": ticks, "dropout": dropout}
        return Headed(gru_ode_bayes(variables, ode(one), size, **options, key=two), None)

    return build
