"""The models of the estimators, by name."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
from jaxtyping import Array

from ..layers import Linear, mlp
from ..models import (
    CRU,
    GRUD,
    MTAN,
    RNNVAE,
    TLSTM,
    Filter,
    GraFITi,
    GRUSimple,
    LatentODE,
    LinODENet,
    NeuralFlow,
    RNNDecay,
    RNNDt,
    RNNImpute,
    SequentialVAE,
    gru_ode_bayes,
)
from ..models.ode_rnn import ODERNN
from ..models.variable_bayes import attention_between_variables, variable_bayes
from ..ode import (
    AugmentedODE,
    CoEvolvingODE,
    Correlation,
    GRUField,
    MLPField,
    NeuralODE,
    Pairwise,
    Solver,
    covariance_attention,
    pairwise_field,
)
from ..tasks import Headed
from .baselines import SOLVED
from .entry import Entry, Sizes

EXTRA = 5


def _hidden(s: Sizes) -> int:
    return s.hidden


def _channels(s: Sizes) -> int:
    return max(4, s.hidden // 4)


def _stepped(ode: Any, s: Sizes) -> Any:
    return replace(ode, solver=Solver("euler", step=s.step, max_steps=s.count))


def _bayes(ode: Callable[[Sizes, Array], Any], extra: int = 0):
    def build(s: Sizes, key):
        one, two = jax.random.split(key)
        return gru_ode_bayes(s.variables, _stepped(ode(s, one), s), s.hidden, extra=extra, key=two)

    return build


def _rows(ode: Callable[[Sizes, Array], Any]):
    def build(s: Sizes, key):
        one, two = jax.random.split(key)
        return variable_bayes(s.variables, _stepped(ode(s, one), s), _channels(s), key=two)

    return build


def _gru_ode(s: Sizes, key):
    return NeuralODE(GRUField(s.hidden, key=key))


def _gru_ode_augmented(s: Sizes, key):
    return AugmentedODE(GRUField(s.hidden + EXTRA, key=key), EXTRA)


def _gru_ode_attentive(s: Sizes, key):
    one, two = jax.random.split(key)
    f, g = GRUField(s.hidden, self_decay=True, key=one), pairwise_field("gru_linear", s.hidden, key=two)
    return CoEvolvingODE(f, g, Pairwise(), Correlation(s.hidden))


def _gru_ode_covariance(s: Sizes, key):
    one, two = jax.random.split(key)
    return covariance_attention(GRUField(s.hidden, key=one), s.hidden, s.variables, key=two)


def _rows_attentive(s: Sizes, key):
    return attention_between_variables(s.variables, _channels(s), key=key)


def _latent(ode: Callable[[Sizes, Array], Any]):
    def build(s: Sizes, key):
        one, two, three = jax.random.split(key, 3)
        return LatentODE(
            encoder=ODERNN(s.variables, s.hidden, key=one),
            to_latent=mlp(2 * s.hidden, 2 * s.hidden, 100, 1, init="normal", key=two),
            ode=ode(s, three),
            shape=(s.hidden,),
            samples=1,
        )

    return build


def _solver(s: Sizes) -> Solver:
    return Solver("rk4", step=s.span / 40, max_steps=64, checkpoints=64)


def _latent_plain(s: Sizes, key):
    return NeuralODE(MLPField(s.hidden, 50, 2, last=0.1, key=key), _solver(s))


def _latent_augmented(s: Sizes, key):
    return AugmentedODE(MLPField(s.hidden + EXTRA, 50, 2, last=0.1, key=key), EXTRA, _solver(s))


def _latent_attentive(s: Sizes, key):
    one, two = jax.random.split(key)
    f = MLPField(s.hidden, 50, 2, last=0.1, key=one)
    g = pairwise_field("linear_h2", s.hidden, 50, 2, key=two)
    return CoEvolvingODE(f, g, Pairwise(), Correlation(s.hidden), _solver(s))


def _filter(cell: Callable, description: str) -> Entry:
    return Entry(lambda s, key: Filter(cell(s.variables, s.hidden, key=key)), _hidden, _hidden, description)


def _even(s: Sizes) -> int:
    """A size that two heads can share."""
    return s.hidden + s.hidden % 2


def _wide_enough(s: Sizes) -> int:
    """A size that holds every variable."""
    return max(s.hidden, s.variables)


def _wider(s: Sizes) -> int:
    return s.hidden + EXTRA


MODELS: dict[str, Entry] = {
    "ace-variables": Entry(
        _rows(_rows_attentive),
        lambda s: s.variables * _channels(s),
        None,
        "GRU-ODE-Bayes with a hidden row for each variable and a co-evolving attention between the variables",
        "variables",
    ),
    "ace-covariance": Entry(
        _bayes(_gru_ode_covariance),
        _hidden,
        None,
        "GRU-ODE-Bayes with a co-evolving covariance of its hidden dimensions, by which observations correct them",
        "hidden dimensions",
    ),
    "ace-gru-ode-bayes": Entry(
        _bayes(_gru_ode_attentive),
        _hidden,
        None,
        "GRU-ODE-Bayes with a co-evolving attention between its hidden dimensions, the paper's model",
        "hidden dimensions",
    ),
    "gru-ode-bayes": Entry(_bayes(_gru_ode), _hidden, None, "a GRU-ODE that jumps at every observation"),
    "augmented-gru-ode-bayes": Entry(
        _bayes(_gru_ode_augmented, EXTRA), _wider, None, "the same with five more dimensions"
    ),
    "ace-latent-ode": Entry(
        _latent(_latent_attentive),
        _hidden,
        _hidden,
        "Latent-ODE with a co-evolving attention between its latent dimensions, the paper's model",
        "hidden dimensions",
    ),
    "latent-ode": Entry(_latent(_latent_plain), _hidden, _hidden, "an ODE-RNN encoder and a latent ODE"),
    "augmented-latent-ode": Entry(_latent(_latent_augmented), _hidden, _wider, "the same with five more dimensions"),
    "gru-d": _filter(GRUD, "a GRU whose inputs and state decay with time"),
    "gru-simple": _filter(GRUSimple, "a GRU given values, mask and the time since each was seen"),
    "rnn-dt": _filter(RNNDt, "a GRU given values, mask and the gap"),
    "rnn-impute": _filter(RNNImpute, "a GRU whose missing inputs are imputed"),
    "rnn-decay": _filter(RNNDecay, "a GRU whose state decays with time"),
    "t-lstm": _filter(TLSTM, "an LSTM whose memory fades with time"),
    "sequential-vae": Entry(
        lambda s, key: Filter(SequentialVAE(s.variables, s.hidden, s.hidden, key=key)),
        lambda s: 2 * s.hidden,
        lambda s: 2 * s.hidden,
        "a deep Kalman filter",
    ),
    "rnn-vae": Entry(
        lambda s, key: RNNVAE(s.variables, s.hidden, s.hidden, samples=1, key=key),
        _hidden,
        _hidden,
        "a recurrent variational autoencoder",
    ),
    "linodenet": Entry(
        lambda s, key: LinODENet(s.variables, _wide_enough(s), s.hidden, time_scale=s.span, key=key),
        _wide_enough,
        None,
        "a linear latent ODE that a filter corrects at every observation",
    ),
    "cru": Entry(
        lambda s, key: CRU(s.variables, _even(s), time_scale=s.span, key=key),
        lambda s: 5 * _even(s) // 2,
        None,
        "a Kalman filter on a linear latent SDE",
    ),
    "neural-flow": Entry(
        lambda s, key: NeuralFlow(s.variables, s.hidden, time_scale=s.span, key=key),
        _hidden,
        None,
        "GRU-ODE-Bayes with a flow in place of its ODE, without a solver",
    ),
    "mtan": Entry(
        lambda s, key: MTAN(s.variables, s.hidden, 16, time_scale=s.span, key=key),
        lambda s: 2 * s.hidden,
        None,
        "attention over time to regular reference points, and from these to any time",
        causal=False,
    ),
    "grafiti": Entry(
        lambda s, key: GraFITi(s.variables, _even(s), time_scale=s.span, key=key),
        _even,
        None,
        "attention on the graph of times and variables",
        causal=False,
    ),
}


OWN = "own"
AUTO = "auto"


def entry(model: str | Entry) -> Entry:
    """The model of this name; a user's own is its own entry."""
    if isinstance(model, Entry):
        return model
    if model in SOLVED:
        return SOLVED[model].entry
    if model not in MODELS:
        raise ValueError(
            f"model={model!r}: there is no model of this name; choose from {AUTO}, {', '.join(MODELS)}, or give an "
            "Entry of your own."
        )
    return MODELS[model]


def name_of(model: str | Entry | Sequence[str]) -> str:
    if isinstance(model, Entry):
        return OWN
    return model if isinstance(model, str) else AUTO


def check_model(model: str | Entry | Sequence[str]) -> None:
    """Refuse names that there are not, and an empty list."""
    if isinstance(model, str | Entry):
        if model != AUTO:
            entry(model)
        return
    if not model:
        raise ValueError(f"model=[]: name at least one model to choose from, or {AUTO}.")
    twice = [name for name in model if list(model).count(name) > 1]
    if twice:
        raise ValueError(f"model=[...]: {twice[0]!r} is named twice; name each model once.")
    for name in model:
        if name not in MODELS:
            entry(name)
            raise ValueError(
                f"model=[..., {name!r}]: the plain baselines are compared anyway; name trained models only."
            )


def with_label_head(kind: Entry, given: Sizes, outputs: int, key: Array) -> Headed:
    """A model with a head that reads labels or targets from the summary of a series."""
    one, two = jax.random.split(key)
    size = kind.summary(given)
    head = Linear(size, outputs, key=two) if kind.linear else mlp(size, outputs, 32, 1, jax.nn.relu, key=two)
    return Headed(kind.build(given, one), head)


def is_search(model: str | Entry | Sequence[str]) -> bool:
    """Whether the model is to be found among several: `auto`, or a list of names."""
    return model == AUTO or not isinstance(model, str | Entry)
