"""GRU-ODE-Bayes as the climate tables have it: which ODE moves h, and all of it around that ODE."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
from jaxtyping import Array

from ..models import gru_ode_bayes
from ..models.variable_bayes import RowGRUField, attention_between_variables, variable_bayes
from ..ode import (
    AugmentedODE,
    CoEvolvingODE,
    ConditionedGRUField,
    Correlation,
    Dense,
    GRUField,
    Identity,
    NeuralODE,
    Pairwise,
    Solver,
    pairwise_field,
)
from ..tasks import Headed

EXTRA = 5  # dimensions that an augmented ODE adds
CHANNELS = 12  # of a variable's row
PLAIN = "GRU-ODE-Bayes"
CHANNEL_INDEPENDENT = "GRU-ODE-Bayes, channel-independent"
UNIFORM = "GRU-ODE-Bayes, uniform attention"
KEPT: dict[str, object] = {"jump": "attention kept"}
SELF_DECAY: dict[str, object] = {**KEPT, "decay": "of the state itself"}
CONDITIONED: dict[str, object] = {**KEPT, "attention": "input of the GRU"}
# Lambda of rows between variables, from the paper's grid: with 1e-2 a leaky g has lost its weights after four epochs.
ALIVE = 0.0
TEMPERATURE = 0.1  # of the softmax, by validation: with 1 the first attention is nearly the mean of all of h


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
    temperature: float = 1.0,
    renew: bool = False,
    initial: str = "correlation",
    self_decay: bool = False,
    conditioned: bool = False,
) -> Callable[[Array], CoEvolvingODE]:
    """ACE-GRU-ODE-Bayes: g', the temperature of the softmax, whether a jump renews the attention, q, the decay of f'.

    `conditioned`: f moves h itself and is given the attended state, where the paper's f' sees nothing else.

    By validation a jump keeps the attention: on double OU, temperature 0.1 with self-decay, one seed, 12 epochs, the
    NegLL is -1.177 kept and -1.159 renewed.
    """

    def make(key):
        one, two, three = jax.random.split(key, 3)
        f = ConditionedGRUField(size, key=one) if conditioned else GRUField(size, self_decay, key=one)
        g = pairwise_field(form, size, key=two)
        q = Correlation(size) if initial == "correlation" else Dense(size, key=three)
        return CoEvolvingODE(f, g, Pairwise(temperature), q, renew=renew)

    return make


def between_variables(variables: int) -> Callable[[Array], CoEvolvingODE]:
    """Rows of h, one for each variable, that know of each other by their attention alone."""
    return lambda key: attention_between_variables(variables, CHANNELS, key=key)


def channel_independent(variables: int) -> Callable[[Array], NeuralODE]:
    """The same rows without attention: each variable on its own."""
    return lambda key: NeuralODE(RowGRUField(variables, CHANNELS, key=key))


def uniform_attention(variables: int) -> Callable[[Array], CoEvolvingODE]:
    """The same rows, where each sees the mean of all: an attention that cannot choose."""

    def make(key):
        f = RowGRUField(variables, CHANNELS, key=key)
        return CoEvolvingODE(f, None, Pairwise(), Identity(0.0), evolution="frozen")

    return make


def _stepped(ode: Any, step: float, span: float) -> Any:
    """The ODE with Euler steps over the whole span, as published."""
    return replace(ode, solver=Solver("euler", step=step, max_steps=round(span / step) + 2))


def row_bayes(ode: Callable[[Array], object], variables: int, step: float, span: float) -> Callable[[Array], Headed]:
    """Builds GRU-ODE-Bayes with a row of h for each variable."""

    def build(key):
        one, two = jax.random.split(key)
        return Headed(variable_bayes(variables, _stepped(ode(one), step, span), CHANNELS, key=two), None)

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
        moved = _stepped(ode(one), step, span)
        return Headed(gru_ode_bayes(variables, moved, size, extra=extra, dropout=dropout, key=two), None)

    return build
