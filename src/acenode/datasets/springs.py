"""Bodies in the plane that attract or repel each other, after the systems of neural relational inference (NRI).

    dx_i/dt = v_i,    dv_i/dt = sum_j W_ij (x_j - x_i) k(|x_j - x_i|)

Springs (`generate`): k = 1 (Hooke's law), and W_ij = W_ji is `stiffness` or 0, an undirected graph for each sample;
with `switches` it changes once, at a moment between 20 % and 40 % of the span.
Charged particles (`charged`): k(r) = 1 / (r^2 + softening^2)^(3/2) (Coulomb's law, softened), and
W_ij = -strength q_i q_j with charges -1, 0 and 1: like charges repel. There is no box around them, unlike in NRI, since
a wall would be one more influence. Observed are place and velocity of each body.
"""

import functools as ft

import numpy as np

from .known_truth import KnownTruth, Rows, check_size, observe, random_graph

CHANNELS = ("x", "y", "vx", "vy")
SOFTENING = 0.5


def slope(state: np.ndarray, influence: np.ndarray, softening: float | None = None) -> np.ndarray:
    """The rate of change of states (samples, bodies, 4); of springs without a `softening`, of charges with one."""
    place, velocity = state[..., :2], state[..., 2:]
    if softening is not None:
        x, y = (place[:, None, :, c] - place[:, :, None, c] for c in (0, 1))
        square = x * x + y * y + softening**2
        influence = influence / (square * np.sqrt(square))
    force = influence @ place - influence.sum(-1, keepdims=True) * place
    return np.concatenate([velocity, force], axis=-1)


def generate(
    samples: int = 1000,
    bodies: int = 5,
    span: float = 10.0,
    density: float = 0.5,
    stiffness: float = 0.5,
    rows: Rows = Rows(noise=0.02),  # noqa: B008
    switches: bool = False,
    seed: int = 0,
) -> KnownTruth:
    """Bodies on springs; with `switches` the graph changes once in each sample."""
    check_size(samples, bodies, span)
    random = np.random.default_rng(seed)
    upper = np.triu(random_graph((samples, 2 if switches else 1), bodies, density, random))
    return _observed(slope, stiffness * (upper + np.swapaxes(upper, -1, -2)), span, rows, random)


def charged(
    samples: int = 1000,
    bodies: int = 5,
    span: float = 6.0,
    strength: float = 0.5,
    rows: Rows = Rows(noise=0.02),  # noqa: B008
    seed: int = 0,
) -> KnownTruth:
    """Charged particles; one in five has no charge."""
    check_size(samples, bodies, span)
    random = np.random.default_rng(seed)
    charge = random.choice([-1.0, 0.0, 1.0], (samples, bodies), p=[0.4, 0.2, 0.4])
    influence = np.where(np.eye(bodies, dtype=bool), 0.0, -strength * charge[:, :, None] * charge[:, None, :])
    return _observed(ft.partial(slope, softening=SOFTENING), influence[:, None], span, rows, random)


def _observed(slope, stages: np.ndarray, span: float, rows: Rows, random: np.random.Generator) -> KnownTruth:
    place = random.normal(0.0, 0.5, (len(stages), stages.shape[-1], 2))
    velocity = random.normal(0.0, 1.0, place.shape)
    velocity *= 0.5 / np.linalg.norm(velocity, axis=-1, keepdims=True)
    start = np.concatenate([place, velocity], axis=-1)
    return observe(slope, start, stages, lambda state: state, span, rows, random, "body", CHANNELS)
