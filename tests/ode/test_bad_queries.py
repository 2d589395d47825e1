"""What cannot be solved is refused before it is tried, by a sentence that names the argument and what was given."""

import re

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from problems import Wave, decay

from acenode.ode import (
    AugmentedODE,
    CoEvolvingODE,
    ConvInitial,
    Correlation,
    Dense,
    Elementwise,
    Identity,
    NeuralODE,
    Pairwise,
    ResidualStack,
    Solver,
)
from acenode.ode.path import check_query

H0 = jnp.ones((2, 3))
TIMES = jnp.array([0.0, 1.0])
ODES = [
    NeuralODE(decay),
    AugmentedODE(decay),
    ResidualStack([lambda h: h]),
    CoEvolvingODE(decay, None, Pairwise(), Identity(), evolution="frozen"),
]
every_ode = pytest.mark.parametrize("ode", ODES, ids=lambda ode: type(ode).__name__)


@every_ode
@pytest.mark.parametrize(
    "h0, times, says",
    [
        (jnp.ones(3), TIMES, "h0 has shape (3,); expected (batch, state...). For one sample give h0[None]."),
        (jnp.ones((0, 3)), TIMES, "h0 has shape (0, 3): the batch is empty."),
        (
            H0,
            jnp.ones((3, 2)),
            "times has shape (3, 2); expected (times,) for all samples, or (batch, times) with batch 2",
        ),
        (H0, jnp.asarray(1.0), "times has shape (); expected (times,)"),
        (H0, jnp.ones((2, 2, 2)), "times has shape (2, 2, 2); expected (times,)"),
        (H0, jnp.ones((2, 0)), "times has shape (2, 0); expected (times,)"),
        (H0, jnp.ones(0), "at least one time each"),
        (H0, jnp.array([0.0, jnp.nan]), "times holds values that are not finite"),
        (H0, jnp.array([0.0, jnp.inf]), "times holds values that are not finite"),
        (H0, jnp.array([0.0, 2.0, 1.0]), "the times of sample 0 are not sorted: [0. 2. 1.]."),
        (H0, jnp.array([[0.0, 1.0], [0.5, 0.25]]), "the times of sample 1 are not sorted: [0.5  0.25]."),
        (
            H0.astype(jnp.float32),
            jnp.array([1.7e9, 1.7e9 + 1]),
            "the times 0 and 1 of sample 0 are both 1.7e+09 in float32. Count time from the first of them.",
        ),
        (H0.at[1, 2].set(jnp.nan), TIMES, "h0 holds values that are not finite"),
        (H0.at[1, 2].set(jnp.inf), TIMES, "h0 holds values that are not finite"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_questions(ode, h0, times, says):
    with pytest.raises(ValueError, match=re.escape(f"{type(ode).__name__}: ") + ".*" + re.escape(says)):
        ode(h0, times)


@pytest.mark.slow
@pytest.mark.parametrize("times", [[1.0, 0.5], [0.0, 1.0, 0.5], [0.0, jnp.nan, 1.0], [0.0, jnp.inf]])
@pytest.mark.parametrize("adjoint", ["checkpointed", "direct"])
def test_bad_times_that_are_not_known_before_the_solve_fail_with_a_status(times, adjoint):
    ode = NeuralODE(decay, Solver("rk4", step=0.25, max_steps=16, adjoint=adjoint))
    good = jnp.linspace(0.0, 1.0, len(times))
    path = eqx.filter_jit(ode)(H0, jnp.stack([jnp.asarray(times), good]))
    assert path.stats.failed.tolist() == [True, False] and "not sorted" in path.stats.message(0)
    assert np.isnan(path.h[0]).all() and np.isfinite(path.h[1]).all() and np.isfinite(path.finite).all()


@pytest.mark.parametrize(
    "f, g, says",
    [
        (lambda t, h: h[:1], lambda t, h: jnp.outer(h, h), "dh/dt of shape (1,) where h has (3,)"),
        (lambda t, h: h, lambda t, h: h, "da/dt of shape (3,) where a has (3, 3); see pairwise_field"),
    ],
)
def test_a_slope_of_another_shape_than_its_state(f, g, says):
    """Batches of one and of H, for which arithmetic would stretch it."""
    ode = CoEvolvingODE(f, g, Pairwise(), Identity())
    for h0 in (jnp.ones((1, 3)), jnp.ones((3, 3))):
        with pytest.raises(ValueError, match=re.escape(says)):
            ode(h0, TIMES)


def test_whole_numbers_are_no_states():
    with pytest.raises(ValueError, match="Name: h0 has dtype int32; expected floating point numbers"):
        check_query("Name", jnp.ones((2, 3), jnp.int32), TIMES)


@pytest.mark.parametrize(
    "options, says",
    [
        ({"method": "rk45"}, "Solver(method='rk45'): no such method. Choose from euler, midpoint, heun, rk4, rk4_38, "),
        (
            {"adjoint": "adjoint"},
            "Solver(adjoint='adjoint'): no such adjoint. Choose from checkpointed, backsolve, ",
        ),
        ({"norm": "max"}, "Solver(norm='max'): no such norm. Choose from per_part, joint."),
        ({"method": "euler"}, "Solver(method='euler') has no error estimate: give it a step, e.g. step=0.1."),
        ({"step": 0.0}, "Solver(step=0.0): the step must be positive."),
        ({"step": -0.1}, "Solver(step=-0.1): the step must be positive."),
        ({"step": float("nan")}, "Solver(step=nan): the step must be positive."),
        ({"rtol": 0.0}, "Solver(rtol=0.0, atol=1e-05): tolerances must be positive."),
        ({"atol": -1.0}, "Solver(rtol=0.0001, atol=-1.0): tolerances must be positive."),
        ({"max_steps": 0}, "Solver(max_steps=0): must be at least 1."),
        ({"checkpoints": 0}, "Solver(checkpoints=0): must be an even number, at least 2."),
        ({"checkpoints": 5}, "Solver(checkpoints=5): must be an even number, at least 2."),
        ({"kept_steps": -1}, "Solver(kept_steps=-1): must not be negative."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_solvers(options, says):
    # Types are checked during these tests and refuse some of it earlier; the sentences are for a user without.
    with pytest.raises(Exception) as refusal:
        Solver(**options)
    if isinstance(refusal.value, ValueError):
        assert says in str(refusal.value)
    else:
        assert {"adjoint", "norm"} & options.keys() and "Literal" in str(refusal.value)


def evolving(evolution="evolved", g=decay, initial=None, solver=None, attention=None):
    solver = Solver("rk4", step=0.1) if solver is None else solver
    initial = Correlation(3) if initial is None else initial
    return CoEvolvingODE(decay, g, attention or Pairwise(), initial, solver, evolution)


@pytest.mark.parametrize(
    "options, says",
    [
        ({"evolution": "evolved", "g": None}, "CoEvolvingODE(evolution='evolved') takes a g."),
        ({"evolution": "frozen"}, "CoEvolvingODE(evolution='frozen') takes no g (g=None)."),
        ({"evolution": "fixed"}, "CoEvolvingODE(evolution='fixed') takes no g (g=None)."),
        (
            {"evolution": "fixed", "g": None, "initial": Identity()},
            "CoEvolvingODE(evolution='fixed') recomputes a correlation: give initial=Correlation(...).",
        ),
        (
            {"evolution": "fixed", "g": None, "solver": Solver()},
            "CoEvolvingODE(evolution='fixed') couples the samples of a batch, so all must step together: give a solver "
            "with a fixed step, e.g. Solver('rk4', step=0.05).",
        ),
        (
            {"evolution": "fixed", "g": None, "solver": Solver("rk4", step=0.1, adjoint="backsolve")},
            "CoEvolvingODE(evolution='fixed') couples the samples of a batch, which cannot be solved backwards",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_evolutions(options, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        evolving(**options)


@pytest.mark.parametrize("make", [NeuralODE, AugmentedODE, lambda f, solver: evolving(solver=solver)])
def test_what_is_no_solver_or_attention(make):
    with pytest.raises(Exception, match="give a Solver, e.g. Solver|solver.*'rk4'"):
        make(decay, solver="rk4")
    with pytest.raises(Exception, match="give an attention such as Pairwise|attention.*Pairwise"):
        evolving(attention=Pairwise)


def test_a_correlation_of_another_size():
    for q in (Correlation(7), Correlation(7, inference=True)):
        with pytest.raises(ValueError, match=re.escape("Correlation(7): h0 has shape (2, 3); give Correlation(3).")):
            evolving(initial=q)(H0, TIMES)


def test_known_times_are_checked_while_the_rest_is_traced():
    back = TIMES[::-1]
    with pytest.raises(ValueError, match="not sorted.*To go back in time, solve -f"):
        eqx.filter_jit(lambda h0: NeuralODE(decay)(h0, back))(H0)


def test_an_unknown_evolution():
    with pytest.raises(Exception, match="evolved.*frozen.*fixed"):
        evolving("evolves")


@pytest.mark.parametrize(
    "attention, initial, says",
    [
        (
            Elementwise(),
            Identity(),
            "initial gave a(0) of shape (2, 3, 3); Elementwise attention on h0 of shape (2, 3)",
        ),
        (
            Pairwise(),
            lambda h: h,
            "initial gave a(0) of shape (2, 3); Pairwise attention on h0 of shape (2, 3) needs (2, 3, 3)",
        ),
    ],
    ids=["elementwise", "pairwise"],
)
def test_a_first_attention_of_the_wrong_shape(attention, initial, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        evolving(attention=attention, initial=initial)(H0, TIMES)


def test_sizes_that_do_not_fit(key):
    """Shapes inside fields and q are theirs to refuse; they do, and do not give numbers."""
    for q in (Dense(4, key=key), ConvInitial(3, key=key)):
        with pytest.raises(Exception, match="(?i)shape|dot|size|type"):
            evolving(initial=q)(H0, TIMES)
    with pytest.raises(TypeError, match="(?i)shape|dot"):
        NeuralODE(Wave(4, (3,)))(H0, TIMES)
    with pytest.raises((TypeError, ValueError), match="(?i)shape|broadcast"):
        NeuralODE(Wave(3, (2,)))(H0, TIMES)


def test_conv_initial_has_one_layer_or_two(key):
    with pytest.raises(ValueError, match=re.escape("ConvInitial(convs=3): 1 or 2.")):
        ConvInitial(4, 3, key=key)
