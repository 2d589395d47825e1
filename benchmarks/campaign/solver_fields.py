"""Hard vector fields `(xp, t, y, p) -> dy/dt` with parameters p, xp being numpy or jax.numpy; closed forms of most."""

from collections.abc import Callable

import numpy as np


def linear(xp, t, y, p):
    return p[0] * y


def rotation(xp, t, y, p):
    return xp.stack([-p[0] * y[1], p[0] * y[0]])


def follows_cosine(xp, t, y, p):
    """Prothero and Robinson's stiff problem."""
    return -p[0] * (y - xp.cos(t)) - xp.sin(t)


def van_der_pol(xp, t, y, p):
    return xp.stack([y[1], p[0] * (1 - y[0] ** 2) * y[1] - y[0]])


def robertson(xp, t, y, p):
    slow, fast = -0.04 * y[0] + 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
    return xp.stack([slow, -slow - fast, fast])


def stair(xp, t, y, p):
    """Another constant slope from each of three times on."""
    return p[3] + sum(p[4 + k] * (t > p[k]) for k in range(3)) + 0 * y


def friction(xp, t, y, p):
    """A spring with dry friction: the sign of the speed jumps."""
    return xp.stack([y[1], -p[0] * y[0] - p[1] * xp.sign(y[1])])


def sliding(xp, t, y, p):
    """Moves to zero at a constant speed, and has to stay there."""
    return -p[0] * xp.sign(y)


def square(xp, t, y, p):
    return p[0] * y * y


def exponential(xp, t, y, p):
    return p[0] * xp.exp(y)


def zero(xp, t, y, p):
    return 0 * y


def constant(xp, t, y, p):
    return p[0] + 0 * y


def scaled_pendulum(xp, t, y, p):
    """A pendulum in units of p[0] and a time of p[1]."""
    a, b = y[0] / p[0], y[1] / p[0]
    return xp.stack([b, -xp.sin(a)]) * p[0] / p[1]


def late(xp, t, y, p):
    """Nothing at first; from p[0] on a decay to p[1]."""
    return xp.where(t > p[0], p[1] - y, 0 * y)


# --- closed forms (y0, p, t since the start) -> y; NaN from where the solution explodes -------------------------------


def _friction(y0, p, t):
    """Half swings around a centre that friction moves, until the spring is too weak for the next."""
    (x, v), (k, mu), w = y0, p, np.sqrt(p[0])
    while True:
        if v == 0 and k * abs(x) <= mu:
            return np.array([x, 0.0])
        sign = np.sign(v) if v else -np.sign(x)
        centre = -mu * sign / k
        a, b = x - centre, v / w
        turn = (np.arctan2(b, a) % np.pi) / w or np.pi / w  # of -a sin + b cos = 0
        if v == 0:
            turn = np.pi / w
        if t <= turn:
            return np.array(
                [centre + a * np.cos(w * t) + b * np.sin(w * t), w * (b * np.cos(w * t) - a * np.sin(w * t))]
            )
        x, v, t = centre + a * np.cos(w * turn) + b * np.sin(w * turn), 0.0, t - turn


def _square(y0, p, t):
    left = 1 - p[0] * y0 * t
    return np.where(left > 0, y0 / np.where(left > 0, left, 1.0), np.nan)


def _exponential(y0, p, t):
    left = np.exp(-y0) - p[0] * t
    return np.where(left > 0, -np.log(np.where(left > 0, left, 1.0)), np.nan)


def _rotation(y0, p, t):
    c, s = np.cos(p[0] * t), np.sin(p[0] * t)
    return np.array([c * y0[0] - s * y0[1], s * y0[0] + c * y0[1]])


CLOSED_FORMS: dict[Callable, Callable] = {
    linear: lambda y0, p, t: y0 * np.exp(p[0] * t),
    rotation: _rotation,
    follows_cosine: lambda y0, p, t: np.cos(t) + (y0 - 1) * np.exp(-p[0] * t),
    stair: lambda y0, p, t: y0 + p[3] * t + sum(p[4 + k] * max(t - p[k], 0.0) for k in range(3)),
    friction: _friction,
    sliding: lambda y0, p, t: np.sign(y0) * np.maximum(np.abs(y0) - p[0] * t, 0.0),
    square: _square,
    exponential: _exponential,
    zero: lambda y0, p, t: y0,
    constant: lambda y0, p, t: y0 + p[0] * t,
    late: lambda y0, p, t: p[1] + (y0 - p[1]) * np.exp(-max(t - p[0], 0.0)),
}
