"""Attentive co-evolving ODEs: the paper's method, Equations 3 to 5."""

import functools as ft
from collections.abc import Callable
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float

from ..backend import backend
from ..precision import products_in
from .attention import Attention
from .constant import Constant
from .evolve import where_jumped
from .fields import VectorField, evaluate_field
from .initial import Correlation, correlation
from .path import Path, check_query
from .solver import SAMPLES, BatchCoupled, Solver, check_solver, of_batch
from .updates import Assimilation, AttentionUpdate, Correction

Evolution = Literal["evolved", "frozen", "fixed"]
Stacked = bool | Literal["auto"]


_KNOTS = 33  # times at which a batch-wide attention is stored for evaluation


class CoEvolvingODE(eqx.Module):
    """A hidden state and an attention that evolve together, Equation 3.

        dh/dt = f(t, attention(h, a))
        da/dt = g(t, attention(h, a)),      a(0) = initial(h(0))

    `f` and `g` see only the attended state (`h'` of Equation 4, `h''` of Equation 5) and the time, unless they are a
    `VectorField` that takes more. They are written for one sample; `initial` takes the first states of the whole batch.

    `evolution` is how the attention gets its values:

    - `evolved`: by its own ODE (the method);
    - `frozen`: a(t) = a(0), no g (ablation);
    - `fixed`: a(t) = correlation of h(t) over the batch at every t, no g (the paper's "Fixed" ablation).

    `fixed` couples the samples of a batch, so it needs a solver with a fixed step, which keeps all samples at the same
    time; one whose times have ended keeps its last state and still counts. For evaluation it follows a path measured on
    training data. In training `Path.a` is the correlation of the samples' states at the k-th time of each, so at one
    moment only where all have the same times.

    For models in which h jumps at observations, the attention is kept at a jump by default. `update(a, before, after)`,
    for one sample, gives it from h before and after the jump: observations then move the attention, and the update
    belongs to theta_g. An `AttentionUpdate` is given the attention too; an `Assimilation` changes h and a together,
    from the observed values themselves, and a `Correction` likewise before the jump. `renew` begins anew from `initial`
    of the new h.

    `stacked` is for an f and a g that can be evaluated as one (`ConvField`), with the same answers up to rounding.
    `auto` takes whatever is quickest for a batch, and where there is nothing for it, stacks their layers on
    accelerators (on a CPU that was measured to be slower); True stacks them there too. False evaluates f and g by
    themselves, sample by sample.

    `hold_attention` is the paper's gradient for theta_f (Equation 7): a(t) counts as a constant.

    `reference` is what `fit_reference_statistics` has measured. `dataclasses.replace(ode, solver=...)` is the same ODE
    with another solver.
    """

    f: Callable
    g: Callable | None
    attention: Attention
    initial: Callable
    update: Callable | None
    solver: Solver = eqx.field(static=True)
    evolution: Evolution = eqx.field(static=True)
    renew: bool = eqx.field(static=True)
    stacked: Stacked = eqx.field(static=True)
    hold_attention: bool
    inference: bool
    reference: "_ReferencePath | None"

    def __init__(
        self,
        f: Callable,
        g: Callable | None,
        attention: Attention,
        initial: Callable,
        solver: Solver = Solver(),  # noqa: B008
        evolution: Evolution = "evolved",
        renew: bool = False,
        hold_attention: bool = False,
        inference: bool = False,
        reference: "_ReferencePath | None" = None,
        update: Callable | None = None,
        stacked: Stacked = "auto",
    ):
        if evolution not in get_args(Evolution):
            raise ValueError(f"CoEvolvingODE(evolution={evolution!r}): choose from {', '.join(get_args(Evolution))}.")
        if (g is None) != (evolution in ("frozen", "fixed")):
            need = "no g (g=None)" if evolution in ("frozen", "fixed") else "a g"
            raise ValueError(f"CoEvolvingODE(evolution={evolution!r}) takes {need}.")
        if evolution == "fixed" and not isinstance(initial, Correlation):
            raise ValueError(
                "CoEvolvingODE(evolution='fixed') recomputes a correlation: give initial=Correlation(...)."
            )
        check_solver("CoEvolvingODE", solver)
        if evolution == "fixed" and solver.adaptive:
            raise ValueError(
                f"CoEvolvingODE(evolution={evolution!r}) couples the samples of a batch, so all must step together: "
                "give a solver with a fixed step, e.g. Solver('rk4', step=0.05)."
            )
        if evolution == "fixed" and solver.adjoint == "backsolve":
            raise ValueError(
                f"CoEvolvingODE(evolution={evolution!r}) couples the samples of a batch, which cannot be solved "
                "backwards: give a solver with adjoint='checkpointed' or 'direct'."
            )
        if renew and update is not None:
            raise ValueError("CoEvolvingODE(renew=True, update=...): a jump either renews the attention or updates it.")
        if stacked not in (True, False, "auto"):
            raise ValueError(f"CoEvolvingODE(stacked={stacked!r}): choose from True, False, 'auto'.")
        if not isinstance(attention, Attention):
            raise ValueError(f"CoEvolvingODE(attention={attention!r}): give an attention such as Pairwise().")
        self.f, self.g, self.attention, self.initial, self.solver = f, g, attention, initial, solver
        self.evolution = evolution
        self.renew = renew
        self.stacked = stacked
        self.hold_attention = hold_attention
        self.inference = inference
        if reference is None and isinstance(initial, Correlation) and evolution == "fixed":
            # Not a number until it is measured, in arrays of the right shapes: so that a saved ODE can be loaded.
            size = initial.reference.array.shape[-1]
            unknown = jnp.full(_KNOTS, jnp.nan), jnp.full((_KNOTS, size, size), jnp.nan)
            reference = _ReferencePath(*map(Constant, unknown))
        self.reference = reference
        self.update = update

    def __call__(self, h0: Float[Array, "batch ..."], times: Array, *, attention: bool = True) -> Path:
        """Solve from `h0` at the first of `times`. `attention=False` leaves `Path.a` out, which is quicker."""
        solver, times = self.solver.with_enough_steps(times), check_query("CoEvolvingODE", h0, times)
        if self.evolution == "fixed" and self.inference:
            return self._along_reference(solver, h0, times, attention)
        a0 = self.initial(h0)
        expected = (h0.shape[0], *self.attention.shape(h0.shape[1:]))
        if a0.shape != expected:
            raise ValueError(
                f"CoEvolvingODE: initial gave a(0) of shape {a0.shape}; {type(self.attention).__name__} attention on "
                f"h0 of shape {h0.shape} needs {expected}."
            )
        if self.hold_attention:
            a0 = stop_gradient(a0)
        if self.evolution == "frozen":
            h, stats = solver.solve(_Attended(self.f, self.attention), h0, times, args=a0)
            a = jnp.broadcast_to(a0[:, None], (*times.shape, *a0.shape[1:])) if attention else None
            return Path(times, h, a, stats)
        if self.evolution == "fixed":
            h, stats = solver.solve(_Recomputed(self.f, self.attention), h0, times)
            a = None
            if attention:
                each = jax.vmap(correlation, in_axes=1)(h)
                a = jnp.broadcast_to(each, (h0.shape[0], *each.shape))
            return Path(times, h, a, stats)
        assert self.g is not None  # checked by __init__
        field = self._right_hand_side()
        if attention:
            (h, a), stats = solver.solve(field, (h0, a0), times)
        else:
            h, stats = solver.solve(field, (h0, a0), times, keep=_state_only)
            a = None
        return Path(times, h, a, stats)

    def begin(self, h0: Float[Array, "batch ..."]) -> tuple[Array, Array]:
        """The state (h, a) that `slope` moves, for models that take the steps themselves."""
        if self.evolution == "fixed":
            raise ValueError("CoEvolvingODE(evolution='fixed') cannot be stepped: choose evolved or frozen.")
        return h0, self.initial(h0)

    def slope(self, t: Float[Array, " batch"], state: tuple[Array, Array]) -> tuple[Array, Array]:
        """The derivative of h and a, Equation 3."""
        with products_in(self.solver.precision):
            if self.evolution == "frozen":
                h, a = state
                held = stop_gradient(a) if self.hold_attention else a
                return jax.vmap(_Attended(self.f, self.attention))(t, h, held), jnp.zeros_like(a)
            return jax.vmap(self._right_hand_side(), in_axes=(0, 0, None))(t, state, None)

    def hidden(self, state: tuple[Array, Array]) -> Array:
        """h, out of the state."""
        return state[0]

    def output(self, state: tuple[Array, Array]) -> Array:
        """What is read out of the state: h, unless the attention has something to say about it."""
        return jax.vmap(self.attention.output)(*state)

    def logits(self, state: tuple[Array, Array]) -> Array:
        """a, out of the state."""
        return state[1]

    def jump(self, state: tuple[Array, Array], h: Array, jumped: Bool[Array, " batch"]) -> tuple[Array, Array]:
        """The state with another h for the samples that jumped; their attention is kept, updated or renewed."""
        h, a = where_jumped(jumped, h, state[0]), state[1]
        if self.update is not None and not isinstance(self.update, Correction):
            given = isinstance(self.update, AttentionUpdate)
            update = ft.partial(self.update, self.attention) if given else self.update
            a = where_jumped(jumped, jax.vmap(update)(a, state[0], h), a)
            a = stop_gradient(a) if self.hold_attention else a
        elif self.renew:
            a = where_jumped(jumped, self.initial(h), a)
        return h, a

    def with_weights(self, state: tuple[Array, Array], weights: Array) -> tuple[Array, Array]:
        """The state with another attention, from what `Attention.of_weights` takes."""
        h, a = state
        a = jax.vmap(self.attention.of_weights)(a, weights)
        return h, stop_gradient(a) if self.hold_attention else a

    def assimilate(self, state: tuple[Array, Array], x: Array, observed: Bool[Array, "batch variables"]):
        """The state after a row of observed values, by an `update` that is an `Assimilation`."""
        assert isinstance(self.update, Assimilation)
        h, a = jax.vmap(self.update)(*state, x, observed)
        return h, stop_gradient(a) if self.hold_attention else a

    def correct(
        self,
        state: tuple[Array, Array],
        x: Array,
        observed: Bool[Array, "batch variables"],
        read: Callable,
        keep: Array,
    ) -> tuple[Array, Array]:
        """The state after a row of values of which `read(h, keep)` were expected, by a `Correction`."""
        update = self.update
        assert isinstance(update, Correction)
        one = lambda h, a, x, o, k: update(h, a, x, o, lambda h: read(h, k))  # noqa: E731
        jumped = observed.any(axis=1)
        after = jax.vmap(one)(*state, x, observed, keep)
        h, a = (where_jumped(jumped, yes, no) for yes, no in zip(after, state, strict=True))
        return h, stop_gradient(a) if self.hold_attention else a

    def _right_hand_side(self) -> Callable:
        assert self.g is not None  # checked by __init__
        together = bool(self.stacked) and not self.hold_attention
        both = _beside(self.f, self.g) if together else None
        if both is not None and (self.stacked != "auto" or backend() != "cpu"):
            return _CoupledAsOne(both, self.attention)
        return _Coupled(self.f, self.g, self.attention, self.hold_attention, both is not None)

    def fit_reference_statistics(self, h0: Float[Array, "batch ..."], times: Array | None) -> "CoEvolvingODE":
        """The same ODE, knowing the batch statistics of these training states for evaluation.

        `h0` are first states of training samples, `times` any times that span those of the queries.
        """
        ode = self
        if isinstance(self.initial, Correlation):
            ode = eqx.tree_at(lambda o: o.initial, ode, self.initial.fit_reference_statistics(h0))
        if self.evolution != "fixed":
            return ode
        if times is None:
            raise ValueError("fit_reference_statistics: a fixed attention is measured over times; give them.")
        knots = jnp.linspace(jnp.min(times), jnp.max(times), _KNOTS)
        path = eqx.nn.inference_mode(ode, False)(h0, knots)
        assert path.a is not None
        reference = _ReferencePath(Constant(knots), Constant(stop_gradient(path.a[0])))
        return eqx.tree_at(lambda o: o.reference, ode, reference)

    def _along_reference(self, solver: Solver, h0, times, attention):
        assert self.reference is not None  # set by __init__
        knots = self.reference.times.array
        if not isinstance(knots, jax.core.Tracer) and np.isnan(knots).all():
            raise ValueError(
                f"CoEvolvingODE(evolution={self.evolution!r}) in inference mode follows an attention measured on "
                "training data: call ode.fit_reference_statistics(h0, times) first."
            )
        h, stats = solver.solve(_Followed(self.f, self.attention, self.reference), h0, times)
        a = jax.vmap(jax.vmap(self.reference))(times) if attention else None
        return Path(times, h, a, stats)


def _state_only(y):
    return y[0]


class _Attended(eqx.Module):
    """`f` on the state attended with a constant attention."""

    f: Callable
    attention: Attention

    def __call__(self, t, h, a):
        return evaluate_field(self.f, t, self.attention(h, a), h, a)

    def on_batch(self, h):
        # What sees more than the attended state has no quicker way.
        return None if isinstance(self.f, VectorField) else _attended_on_batch(self.f, self.attention, h)


class _Coupled(eqx.Module):
    """The right-hand side of Equation 3."""

    f: Callable
    g: Callable
    attention: Callable
    hold_attention: bool = eqx.field(static=True)
    together: bool = eqx.field(static=True)  # for a batch, where f and g can

    def __call__(self, t, y, args):
        h, a = y
        held = stop_gradient(a) if self.hold_attention else a
        attended = self.attention(h, held)
        dh = evaluate_field(self.f, t, attended, h, held)
        seen = stop_gradient((attended, h)) if self.hold_attention else (attended, h)
        flow = lambda h: evaluate_field(self.f, t, self.attention(h, held), h, held)  # noqa: E731
        da = evaluate_field(self.g, t, *seen, a, flow)
        return dh, stop_gradient(da) if self.hold_attention else da

    def on_batch(self, y):
        both = _beside(self.f, self.g) if self.together else None
        return None if both is None else _attended_on_batch(both, self.attention, y[0])


def _beside(f: Callable, g: Callable | None) -> Callable | None:
    """f and g as one; None where they cannot be."""
    # A class that only inherits `beside` may answer otherwise than what it inherits.
    same_class = type(f) is type(g) and "beside" in vars(type(f))
    return f.beside(g) if same_class else None  # pyright: ignore[reportFunctionMemberAccess]


class _CoupledAsOne(eqx.Module):
    """The same where f and g can be evaluated together."""

    both: Callable
    attention: Attention

    def __call__(self, t, y, args):
        return self.both(t, self.attention(*y))

    def on_batch(self, y):
        return _attended_on_batch(self.both, self.attention, y[0])


def _attended_on_batch(field: Callable, attention: Callable, h):
    """What a field can do for a batch of attended states; None where it has nothing for them."""
    quick = of_batch(field, h)
    return None if quick is None else quick.attended(attention)


class _Recomputed(BatchCoupled):
    """`f` on the state attended with the correlation of the states of the whole batch at this moment."""

    f: Callable
    attention: Callable

    def __call__(self, t, h, args):
        batch = jax.lax.all_gather(h, SAMPLES)
        a = correlation(batch)
        return evaluate_field(self.f, t, self.attention(h, a), h, a)


class _ReferencePath(eqx.Module):
    """An attention known at some times, joined by straight lines."""

    times: Constant
    attention: Constant

    def __call__(self, t):
        knots, a = self.times.value, self.attention.value
        right = jnp.clip(jnp.searchsorted(knots, t), 1, knots.size - 1)
        width = knots[right] - knots[right - 1]
        x = jnp.clip((t - knots[right - 1]) / jnp.where(width > 0, width, 1.0), 0.0, 1.0)
        return (1 - x) * a[right - 1] + x * a[right]


class _Followed(eqx.Module):
    """`f` on the state attended with the attention measured on training data."""

    f: Callable
    attention: Callable
    reference: _ReferencePath

    def __call__(self, t, h, args):
        a = self.reference(t)
        return evaluate_field(self.f, t, self.attention(h, a), h, a)
