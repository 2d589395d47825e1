"""The models of the PhysioNet and Human Activity tables: the Latent-ODE family and its recurrent baselines.

They differ between the tables in their sizes alone; what is read from them (a label, values, a class for each point)
belongs to the table.
"""

import functools as ft
from collections.abc import Callable, Mapping
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..layers import Init, mlp
from ..models import (
    GRUD,
    ODERNN,
    RNNVAE,
    Filter,
    ForwardODERNN,
    GRUEncoder,
    Joined,
    LatentODE,
    LatentPoisson,
    RNNDecay,
    RNNDt,
    RNNImpute,
)
from ..ode import (
    AugmentedODE,
    CoEvolvingODE,
    ConditionedMLPField,
    Constant,
    Correlation,
    Dense,
    MLPField,
    NeuralODE,
    Pairwise,
    SelfDecay,
    Solver,
    pairwise_field,
)
from ..ode.coevolve import Evolution
from .history_features import CarriedForward, Statistics

EXTRA = 5  # dimensions of Augmented-Latent-ODE
# The paper's, of learning rate and lambda (Equation 6). Its text ends at 1e-3, its appendix calls 1e-2 best: so without
# the smallest of the text, and with that of the appendix.
GRID = tuple(product((1e-4, 1e-3, 1e-2), (0.1, 0.03, 0.01, 0.003, 0.001, 0.0001, 0.0)))
SOLVER = Solver("dopri5", rtol=1e-3, atol=1e-4, max_steps=512, checkpoints=32)
STEADY = Solver("rk4", step=0.05, max_steps=64, checkpoints=32)


class Sizes(NamedTuple):
    """Of one table: `encoder_layers` and `layers` count the hidden layers of width `width` of the two ODEs."""

    variables: int
    latent: int
    recognition: int
    width: int
    encoder_layers: int
    layers: int
    gate_width: int = 50
    samples: int = 3
    memory: float | None = None  # of the gates of the ODE-RNN at the start; the published ones forget half at every row
    init: Init = "normal"  # of the vector fields


class Kind(NamedTuple):
    """A row's model: `build(key, mean)`, with the training mean of each variable, and the sizes that heads see.

    With statistics `build` needs `edges` too. `config` is what a result file says of the model.
    """

    build: Callable[..., eqx.Module]
    state: int
    summary: int
    deep_decoder: bool  # recurrent baselines decode by a hidden layer, the Latent-ODE family without one
    config: Mapping[str, object] = MappingProxyType({})
    base: str = ""  # the row that it extends by an attention
    differs: str = ""  # what else is not as in that row
    ode: bool = True  # there is a vector field to be solved
    events: bool = False  # the state holds the intensity of observations too (`PoissonHead`)
    controls: tuple[str, ...] = ()  # rows that it is compared with besides


def plain(sizes: Sizes) -> Callable[[Array], NeuralODE]:
    return lambda key: NeuralODE(_field(sizes, sizes.latent, key), SOLVER)


def augmented(sizes: Sizes) -> Callable[[Array], AugmentedODE]:
    return lambda key: AugmentedODE(_field(sizes, sizes.latent + EXTRA, key), EXTRA, SOLVER)


def attentive(
    sizes: Sizes,
    form: str = "linear_h2",
    temperature: float = 1.0,
    initial: str = "correlation",
    evolution: Evolution = "evolved",
    self_decaying: bool = False,
    conditioned: bool = False,
) -> Callable[[Array], CoEvolvingODE]:
    """ACE and its ablations: the form of g', the temperature of the softmax, q, and how a(t) gets its values.

    With `self_decaying` old attention fades; with `conditioned` f sees h beside the attended state, where the paper's
    f' sees nothing else.
    """

    def make(key):
        one, two, three = jax.random.split(key, 3)
        g = None
        if evolution == "evolved":
            g = pairwise_field(form, sizes.latent, sizes.width, sizes.layers, init=sizes.init, key=two)
            g = SelfDecay(g) if self_decaying else g
        kind = ConditionedMLPField if conditioned else MLPField
        f = kind(sizes.latent, sizes.width, sizes.layers, init=sizes.init, key=one)
        q = Correlation(sizes.latent) if initial == "correlation" else Dense(sizes.latent, key=three)
        solver = SOLVER if evolution in ("evolved", "frozen") else STEADY
        return CoEvolvingODE(f, g, Pairwise(temperature), q, solver, evolution)

    return make


def _field(sizes: Sizes, size: int, key: Array) -> MLPField:
    return MLPField(size, sizes.width, sizes.layers, init=sizes.init, key=key)


def _ode_encoder(sizes: Sizes, key: Array) -> ODERNN:
    return ODERNN(sizes.variables, sizes.recognition, *_layers(sizes), **_starts(sizes), key=key)


def _layers(sizes: Sizes) -> tuple[int, int]:
    """Of the field of an ODE-RNN."""
    return sizes.width, sizes.encoder_layers


def _starts(sizes: Sizes) -> dict[str, Any]:
    """How an ODE-RNN begins."""
    return {"gate_width": sizes.gate_width, "memory": sizes.memory, "init": sizes.init}


def _fields(sizes: Sizes) -> dict[str, object]:
    return {} if sizes.init == "normal" else {"init": sizes.init}


def _gates(sizes: Sizes) -> dict[str, object]:
    return {"gate_memory": sizes.memory, **_fields(sizes)}


def latent_ode(
    sizes: Sizes, ode: Callable[[Array], Any], extra: int = 0, statistics: bool = False, base: str = ""
) -> Kind:
    """Latent-ODE with an ODE encoder and any ODE behind it.

    With `statistics` it is given those of every variable besides, and the encoder sees the last value of a variable
    where it has none; `build` then also takes the `edges` of their bins. So many inputs need the smaller first weights
    of `init="uniform"`.
    """

    def build(key, mean, edges=None):
        one, two, three = jax.random.split(key, 3)
        encoder, size, init = _ode_encoder(sizes, one), 2 * sizes.recognition, "normal"
        if statistics:
            beside = Statistics(Constant(jnp.asarray(edges)))
            encoder, size, init = Joined((CarriedForward(encoder), beside)), size + beside.size, "uniform"
        to_latent = mlp(size, 2 * sizes.latent, 100, 1, init=init, key=two)
        return LatentODE(encoder, to_latent, ode(three), (sizes.latent,), sizes.samples)

    config = _gates(sizes)
    if statistics:
        config["encoder"] = "ODE-RNN over values carried forward, and binned statistics of every variable"
    return Kind(build, sizes.latent + extra, sizes.latent, False, config, base)


def _recurrent_encoder(sizes: Sizes) -> Kind:
    def build(key, mean):
        one, two, three = jax.random.split(key, 3)
        encoder = GRUEncoder(sizes.variables, sizes.recognition, key=one)
        to_latent = mlp(sizes.recognition, 2 * sizes.latent, sizes.width, 1, init="normal", key=two)
        return LatentODE(encoder, to_latent, plain(sizes)(three), (sizes.latent,), sizes.samples)

    return Kind(build, sizes.latent, sizes.latent, False, _fields(sizes))


def _poisson(sizes: Sizes) -> Kind:
    both = 2 * sizes.latent

    def build(key, mean):
        one, two, three, four = jax.random.split(key, 4)
        to_latent = mlp(2 * sizes.recognition, 2 * both, 100, 1, init="normal", key=two)
        f = _field(sizes, both, three)
        rest = (both, sizes.variables, sizes.width, SOLVER, sizes.samples)
        return LatentPoisson(_ode_encoder(sizes, one), to_latent, f, *rest, key=four)

    events = {"events": "after the first row, of all variables"}
    return Kind(build, sizes.latent, both, False, {**_gates(sizes), **events}, events=True)


def _recurrent(sizes: Sizes, cell: Callable, including: bool, imputes: bool = False) -> Kind:
    def build(key, mean):
        filled = (Constant(jnp.asarray(mean)),) if imputes and mean is not None else ()
        return Filter(cell(sizes.variables, sizes.latent, *filled, key=key), including)

    return Kind(build, sizes.latent, sizes.latent, True, ode=False)


def _vae(sizes: Sizes) -> Kind:
    def build(key, mean):
        return RNNVAE(sizes.variables, sizes.latent, sizes.recognition, sizes.width, sizes.samples, key=key)

    return Kind(build, sizes.latent, sizes.latent, True, ode=False)


def _ode_rnn(sizes: Sizes, including: bool) -> Kind:
    def build(key, mean):
        given = {**_starts(sizes), "including": including}
        return ForwardODERNN(sizes.variables, sizes.latent, *_layers(sizes), **given, key=key)

    return Kind(build, sizes.latent, sizes.latent, True, _gates(sizes))


PLAIN, POISSON = "Latent-ODE (ODE Enc.)", "Latent-ODE + Poisson"
AUGMENTED = "Augmented-Latent-ODE (ODE Enc.)"
DENSE, FIXED = "FC-ACE-Latent-ODE", "Fixed-ACE-Latent-ODE"


def odes(sizes: Sizes, statistics: bool = False) -> dict[str, Kind]:
    """The Latent-ODEs with an ODE encoder: the rows that differ in the generative ODE alone."""
    made = ft.partial(latent_ode, sizes, statistics=statistics)
    return {
        PLAIN: made(plain(sizes)),
        AUGMENTED: made(augmented(sizes), EXTRA),
        "ACE-Latent-ODE (ODE Enc.)": made(attentive(sizes), base=PLAIN)._replace(controls=(AUGMENTED, DENSE, FIXED)),
        DENSE: made(attentive(sizes, initial="dense"), base=PLAIN),
        FIXED: made(attentive(sizes, evolution="fixed"), base=PLAIN)._replace(differs="another solver"),
    }


def kinds(sizes: Sizes, including: bool = False) -> dict[str, Kind]:
    """All rows, in the order of the tables. `including`: the state at a time has seen the row of that time."""
    return {
        "RNN-Dt": _recurrent(sizes, RNNDt, including),
        "RNN-Impute": _recurrent(sizes, RNNImpute, including, imputes=True),
        "RNN-Decay": _recurrent(sizes, RNNDecay, including),
        "GRU-D": _recurrent(sizes, GRUD, including, imputes=True),
        "RNN-VAE": _vae(sizes),
        "Latent-ODE (RNN Enc.)": _recurrent_encoder(sizes),
        "ODE-RNN": _ode_rnn(sizes, including),
        POISSON: _poisson(sizes),
        **odes(sizes),
    }
