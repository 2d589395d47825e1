"""`Recipe` and `Member`: how to train, and what differs between the members of an ensemble."""

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Literal, get_args

import optax

from ..precision import Precision, check_precision
from .self_check import SelfCheck, check_self_check

OPTIMISERS: dict[str, Callable[[], optax.GradientTransformation]] = {
    "adam": optax.scale_by_adam,
    "adamax": optax.scale_by_adamax,
    "sgd": optax.identity,
    "momentum": lambda: optax.trace(decay=0.9),
    "adamw": optax.scale_by_adam,
}

Optimiser = str | optax.GradientTransformation

Algorithm = Literal["alternating", "joint"]
Unit = Literal["batch", "epoch"]
Norm = Literal["l1", "l2"]
MainGradient = Literal["exact", "paper"]
InitialWith = Literal["main", "attention"]


@dataclass(frozen=True)
class Recipe:
    """How to train. Learning rate and lambda belong to a `Member`, so that an ensemble can vary them.

    - `epochs`, `batch_size`: the last, incomplete batch of a shuffled epoch is left out.
    - `optimiser`: `adam`, `adamw`, `adamax`, `sgd`, `momentum` (0.9), stepped with the learning rate of the member; or
      any optax optimiser, taken as it is: its learning rate, schedule, decay and clipping are its own.
    - `attention_optimiser`, `initial_optimiser`: that of theta_g and of theta_q; that of `optimiser` by default.
    - `attention_rate`, `initial_rate`: factors on the learning rate of theta_g and of theta_q.
    - `schedule`: a factor on the learning rate as a function of the iteration; any optax schedule from 1.
    - `algorithm`: `alternating` is the paper's Algorithm 1; `joint` takes one step on all parameters.
    - `unit`: alternate theta_f and theta_g per mini-`batch` or per `epoch`.
    - `main_gradient`: theta_f with the `exact` gradient, or with the `paper`'s, which holds a(t) constant.
    - `initial_with`: whether theta_q is trained with the `main` parameters or with the `attention`.
    - `norm`: of theta_g in L_a (Equation 6).
    - `weight_decay`: added to the gradient of the main parameters, as in L2 regularisation, or with `adamw` to its
      step; `attention_decay` and `initial_decay` are those of theta_g and of theta_q.
    - `clip`: largest norm of the gradient of the main parameters, longer ones are scaled down; in a `joint` step that
      of theta_g and of theta_q too, each by itself.
    - `average`: validate and keep not the parameters themselves but their exponential moving average, which keeps so
      much of itself at every iteration, e.g. 0.99; 0 for the parameters themselves.
    - `patience`: stop a member after so many epochs without a better validation score.
    - `validate_every`: validate after every so many epochs, and after the last.
    - `eval_batch`: samples of each member per call in validation; several members are computed at once.
    - `bucket`: fill batches with series of similar length, where the data are series: less padding to compute.
    - `reference`: training samples on which batch statistics are measured for evaluation.
    - `precision`: of matrix products in training and evaluation, on every kind of machine: `float32`, `tf32` or
      `bfloat16` (`acenode.precision`). A `Solver` or a `Conv` that names its own keeps it.
    - `self_check`: before their first use, compare programs of whole batches with those of parts of them, and compute
      by parts, with a warning, where the answers differ (`acenode.train.self_check`). `auto` does so on accelerators.
    """

    epochs: int = 50
    batch_size: int = 50
    optimiser: Optimiser = "adam"
    attention_optimiser: Optimiser | None = None
    initial_optimiser: Optimiser | None = None
    attention_rate: float = 1.0
    initial_rate: float = 1.0
    schedule: Callable | None = None
    algorithm: Algorithm = "alternating"
    unit: Unit = "batch"
    main_gradient: MainGradient = "exact"
    initial_with: InitialWith = "main"
    norm: Norm = "l2"
    weight_decay: float = 0.0
    attention_decay: float = 0.0
    initial_decay: float = 0.0
    clip: float | None = None
    average: float = 0.0
    patience: int | None = None
    validate_every: int = 1
    eval_batch: int = 256
    bucket: bool = False
    reference: int = 512
    precision: Precision = "float32"
    self_check: SelfCheck = "auto"

    def __post_init__(self):
        for name, allowed in (
            ("algorithm", Algorithm),
            ("unit", Unit),
            ("main_gradient", MainGradient),
            ("initial_with", InitialWith),
            ("norm", Norm),
        ):
            if getattr(self, name) not in get_args(allowed):
                raise ValueError(f"Recipe({name}={getattr(self, name)!r}): choose from {', '.join(get_args(allowed))}.")
        check_precision("Recipe", self.precision, optional=False)
        check_self_check("Recipe", self.self_check)
        for name in ("epochs", "batch_size", "validate_every", "eval_batch", "reference", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"Recipe({name}={value}): must be at least 1.")
        for name in ("weight_decay", "attention_decay", "initial_decay"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"Recipe({name}={getattr(self, name)}): must be a number, not negative.")
        for name in ("attention_rate", "initial_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"Recipe({name}={getattr(self, name)}): must be a positive number.")
        if not 0 <= self.average < 1:
            raise ValueError(f"Recipe(average={self.average}): from 0 to below 1.")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"Recipe(clip={self.clip}): must be positive, or None.")
        for name in ("optimiser", "attention_optimiser", "initial_optimiser"):
            given = getattr(self, name)
            if isinstance(given, str) and given not in OPTIMISERS:
                raise ValueError(
                    f"Recipe({name}={given!r}): choose from {', '.join(OPTIMISERS)}, or an optax optimiser."
                )
        if self.main_gradient == "paper" and self.algorithm == "joint":
            raise ValueError("Recipe(main_gradient='paper') holds a(t) constant, which a joint step cannot: alternate.")
        if self.main_gradient == "paper" and self.initial_with == "main":
            # a(t) held constant gives theta_q no gradient in the main step: silently never trained.
            object.__setattr__(self, "initial_with", "attention")

    def plain(self) -> dict[str, str | int | float | bool | None]:
        """What of it can be written into a file: all but functions."""
        return {k: v for k, v in asdict(self).items() if isinstance(v, str | int | float | bool | type(None))}

    @property
    def own_optimisers(self) -> tuple[optax.GradientTransformation, ...]:
        """The optax optimisers among those of the groups, which have a learning rate of their own."""
        given = (self.optimiser, self.attention_optimiser, self.initial_optimiser)
        return tuple(each for each in given if not isinstance(each, str | type(None)))

    def transformation(self, group: str, rate, weight_decay=None) -> optax.GradientTransformation:
        """The optimiser of a group (main, attention or initial).

        `rate` is the member's learning rate now, `weight_decay` that of its main parameters where it has one.
        """
        own = {"main": None, "attention": self.attention_optimiser, "initial": self.initial_optimiser}[group]
        optimiser = self.optimiser if own is None else own
        decay = {"main": self.weight_decay, "attention": self.attention_decay, "initial": self.initial_decay}[group]
        factor = {"main": 1.0, "attention": self.attention_rate, "initial": self.initial_rate}[group]
        parts = []
        if self.clip is not None and (group == "main" or self.algorithm == "joint"):
            parts.append(optax.clip_by_global_norm(self.clip))
        decayed = [optax.add_decayed_weights(decay)] if decay else []
        if group == "main" and weight_decay is not None:
            decayed = [optax.add_decayed_weights(weight_decay)]
        if not isinstance(optimiser, str):
            return optax.chain(*parts, *decayed, optimiser)
        scaled = [OPTIMISERS[optimiser]()]
        parts += [*scaled, *decayed] if optimiser == "adamw" else [*decayed, *scaled]
        # On all parameters as one vector: a kernel for each of them would take longer to compile than the model.
        return optax.flatten(optax.chain(*parts, optax.scale(-factor * rate)))


@dataclass(frozen=True)
class Member:
    """One run of an ensemble: its seed, its fold of the data, its learning rate and its lambda (Equation 6).

    `weight_decay` is that of the recipe by default.
    """

    seed: int = 0
    fold: int = 0
    learning_rate: float = 1e-3
    penalty: float = 0.0
    weight_decay: float | None = None

    def __post_init__(self):
        if not -(2**31) <= self.seed < 2**31:
            raise ValueError(f"Member(seed={self.seed}): must be a whole number of 32 bits.")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"Member(learning_rate={self.learning_rate}): must be a positive number.")
        if not 0 <= self.penalty < math.inf:
            raise ValueError(f"Member(penalty={self.penalty}): must be a number, not negative.")
        if self.weight_decay is not None and not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"Member(weight_decay={self.weight_decay}): must be a number, not negative.")

    def given(self) -> dict[str, int | float]:
        """What it has of its own."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        return ", ".join(f"{k}={v:g}" for k, v in self.given().items())


def members(
    seeds: Iterable[int] = (0,),
    learning_rates: Iterable[float] = (1e-3,),
    penalties: Iterable[float] = (0.0,),
    folds: Iterable[int] = (0,),
) -> tuple[Member, ...]:
    """Every combination, as one ensemble."""
    grid = itertools.product(seeds, folds, learning_rates, penalties)
    return tuple(Member(*each) for each in grid)
