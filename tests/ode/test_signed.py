"""`Signed` and `LeastSquares` against plain loops, their gradients, and what observations do to the weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finite_differences import assert_every_slope_matches
from problems import Wave, noise

from acenode.ode import (
    CoEvolvingODE,
    LeastSquares,
    LeastSquaresField,
    LeastSquaresInitial,
    LeastSquaresUpdate,
    MessageField,
    Signed,
    Solver,
    Zeros,
)
from acenode.ode.pairwise_fields import QueryKey

N, C = 3, 2
RANDOM = np.random.default_rng(0)
H, W = jnp.asarray(RANDOM.normal(size=(N, C))), jnp.asarray(RANDOM.normal(size=(N, N)))


@pytest.mark.parametrize("heads", [1, 2])
def test_signed_messages_are_those_of_plain_loops(heads):
    signed = Signed(C, heads, 4, key=jax.random.key(0))
    a = jnp.asarray(RANDOM.normal(size=signed.shape((N, C))))
    expected = np.zeros((N, C))
    for k, weights in enumerate(np.asarray(a).reshape(heads, N, N)):
        for i in range(N):
            for j in range(N):
                if i != j:
                    message = np.asarray(signed.message(jnp.concatenate([H[i], H[j]])))
                    expected[i] += weights[i, j] * message[k * C : (k + 1) * C]
    np.testing.assert_allclose(signed(H, a), expected, rtol=1e-10)
    assert a.shape == ((N, N) if heads == 1 else (heads, N, N))
    np.testing.assert_array_equal(np.diagonal(signed.weights(a), axis1=-2, axis2=-1), 0)


@pytest.mark.slow
def test_signed_weights_evolve_beside_rows():
    one, two, three = jax.random.split(jax.random.key(1), 3)
    ode = CoEvolvingODE(
        MessageField((N, C), 4, key=one),
        QueryKey((N, C), key=two),
        Signed(C, 1, 4, key=three),
        Zeros((N, N)),
        Solver("rk4", step=0.25),
    )

    weights, static = eqx.partition(ode, eqx.is_inexact_array)

    def far(step):
        g = jax.tree.map(lambda p: p + step, weights.g)
        moved = eqx.combine(eqx.tree_at(lambda o: o.g, weights, g), static)
        return jnp.sum(moved(H[None], jnp.asarray([0.0, 1.0])).h ** 2)

    slope = jax.jit(jax.grad(far))(0.0)
    assert abs(slope) > 1e-6
    np.testing.assert_allclose(slope, (far(1e-5) - far(-1e-5)) / 2e-5, rtol=1e-5)


def test_the_gradient_through_two_heads_by_finite_differences():
    """In every parameter of f, g and the messages, and in h(0)."""
    heads, solver = 2, Solver("midpoint", step=0.5, max_steps=4)
    attention = Signed(C, heads, 4, key=jax.random.key(2))
    f, g = MessageField((N, C), 4, key=jax.random.key(1)), Wave(N * C, (heads, N, N))
    ode = CoEvolvingODE(f, g, attention, Zeros((heads, N, N)), solver)
    moving, still = eqx.partition((ode, H[None]), eqx.is_inexact_array)

    def loss(moving):
        ode, h0 = eqx.combine(moving, still)
        path = ode(h0, jnp.asarray([0.0, 0.4, 1.0]))
        return sum(jnp.sum(noise(*x.shape, seed=7) * jnp.sin(x)) for x in (path.h, path.a))

    assert_every_slope_matches(loss, moving)


# --- least squares ------------------------------------------------------------------------------------------------


def parts(key=0):
    return (
        LeastSquares(C, 4, key=jax.random.key(key)),
        LeastSquaresField(C),
        LeastSquaresUpdate(C),
        LeastSquaresInitial(W, C),
    )


def split(a):
    """w, s, P, v and surprise of each row."""
    a = np.asarray(a)
    ends = np.cumsum([N, N * C, N * N, C])
    w, s, p, v, surprise = np.split(a, ends, axis=1)
    return w, s.reshape(N, N, C), p.reshape(N, N, N), v, surprise[:, 0]


def test_messages_add_up_and_uncertainty_returns_to_the_prior():
    attention, g, _, initial = parts()
    a = initial(H[None])[0] + 0.1
    attended = attention(H, a)
    w, _, p, _, surprise = split(a)
    _, ds, dp, dv, fading = split(g(0.0, attended, a))
    for i in range(N):
        for j in range(N):
            message = np.asarray(attention.signed.message(jnp.concatenate([H[i], H[j]])))
            np.testing.assert_allclose(ds[i, j], message if i != j else 0, rtol=1e-10)
        total = sum(w[i, j] * ds[i, j] for j in range(N) if j != i)
        np.testing.assert_allclose(attended[i, 0], total, rtol=1e-10)
    np.testing.assert_allclose(dp, -0.2 * (p - np.eye(N)), rtol=1e-10)
    np.testing.assert_allclose(dv, 0.01)
    np.testing.assert_allclose(fading, -2 * surprise)


def test_a_corrected_row_is_that_of_recursive_least_squares():
    """One channel observed, so that h, w and P are those of the textbook's formulas."""
    _, _, update, initial = parts()
    a = initial(H[None])[0]
    w, s, p, v, surprise = split(a)
    s = RANDOM.normal(size=s.shape)
    a = jnp.concatenate([w, s.reshape(N, -1), p.reshape(N, -1), v, surprise[:, None]], axis=1)
    x = np.asarray(H) + RANDOM.normal(size=H.shape) * 0.1
    seen = np.zeros((N, C), bool)
    seen[1, 0] = True
    h, new = update(H, a, jnp.asarray(x).ravel(), jnp.asarray(seen).ravel())
    w1, s1, p1, v1, surprise1 = split(new)
    error, noise = x[1, 0] - float(H[1, 0]), 0.01
    spread = s[1, :, 0] @ p[1] @ s[1, :, 0] + v[1, 0] + noise
    np.testing.assert_allclose(surprise1[1], error**2 / spread - 1)
    grown = p[1] + np.eye(N) / (1 + np.exp(-(surprise1[1] - 4)))
    total = s[1, :, 0] @ grown @ s[1, :, 0] + v[1, 0] + noise
    gain = grown @ s[1, :, 0] / total
    np.testing.assert_allclose(w1[1], w[1] + gain * error)
    np.testing.assert_allclose(p1[1], grown - np.outer(gain, s[1, :, 0] @ grown))
    own = 1 - noise / total
    np.testing.assert_allclose(h[1], [H[1, 0] + own * error, H[1, 1] + gain @ s[1, :, 1] * error])
    np.testing.assert_allclose(s1[1, :, 0], (1 - own) * s[1, :, 0], rtol=1e-9)
    np.testing.assert_allclose(v1[1, 0], v[1, 0] * (1 - v[1, 0] / total))
    np.testing.assert_array_equal(np.delete(np.asarray(h), 1, 0), np.delete(np.asarray(H), 1, 0))
    np.testing.assert_array_equal(np.delete(np.asarray(new), 1, 0), np.delete(np.asarray(a), 1, 0))


def test_the_motion_identifies_the_weights():
    """Rows move by known messages with unknown weights; observations of the rows find the weights."""
    truth = RANDOM.choice([-1.0, 0.0, 1.0], (N, N)) * (1 - np.eye(N))
    attention, g, update, _ = parts(3)
    h = state = jnp.asarray(RANDOM.normal(size=(N, C)))
    a = LeastSquaresInitial(jnp.zeros((N, N)), C)(h[None])[0]

    @jax.jit
    def move(h, state, a):
        def moved(weights, h):
            return jnp.einsum("ij,ijc->ic", weights, attention.signed.messages(h))

        for _ in range(4):
            attended = attention(state, a)
            h, state, a = (
                h + 0.05 * moved(truth, h) + 0.02 * jnp.roll(h, 1, axis=1) * jnp.asarray([1, -1]),
                state + 0.05 * attended[:, 0] + 0.02 * jnp.roll(state, 1, axis=1) * jnp.asarray([1, -1]),
                a + 0.05 * g(0.0, attended, a),
            )
        return h, *update(state, a, h.ravel(), jnp.ones(h.size, bool))

    for k in range(150):
        h, state, a = move(h, state, a)
        if k % 5 == 4:  # elsewhere, so that the messages tell the units apart
            h = jnp.asarray(RANDOM.normal(size=(N, C)))
            state = h
    found = np.asarray(attention.weights(a))
    assert np.abs(found - truth).max() < 0.2


def test_weights_that_do_not_adapt_are_kept():
    attention, _, _, _ = parts()
    g, update = LeastSquaresField(C, adapts=False), LeastSquaresUpdate(C, adapts=False)
    a = LeastSquaresInitial(W, C, adapts=False)(H[None])[0]
    a = a + 0.5 * g(0.0, attention(H, a), a)
    h, a = update(H, a, jnp.ravel(H) + 1.0, jnp.ones(N * C, bool))
    np.testing.assert_array_equal(a[:, :N], W)
    assert float(jnp.abs(h - H).min()) > 0.5  # the state is corrected all the same
