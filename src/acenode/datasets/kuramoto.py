"""Kuramoto oscillators on a signed graph that switches: who pulls or pushes whom differs from sample to sample.

    dtheta_i/dt = omega_i + sum_j W_ij sin(theta_j - theta_i)

`W_ij` is `coupling`, `-coupling` or 0: each sample has a directed signed graph, and another one from a moment on that
lies between 20 % and 40 % of the span. The natural frequencies `omega` are those of the oscillators, from -3 to 3, the
same in all samples: they are so far apart that the phases pass each other, without which no one could tell from the
motion who influences whom. Observed are the sine and cosine of each phase.
"""

import numpy as np

from .known_truth import KnownTruth, Rows, check_size, observe, random_graph


def frequencies(oscillators: int) -> np.ndarray:
    """omega."""
    return np.linspace(-3.0, 3.0, oscillators)


def slope(phase: np.ndarray, influence: np.ndarray) -> np.ndarray:
    """dtheta/dt of phases (samples, oscillators)."""
    # sin(a - b) = sin(a) cos(b) - cos(a) sin(b): as many sines as oscillators, not as pairs of them.
    sine, cosine = np.sin(phase)[..., None], np.cos(phase)[..., None]
    pull = (influence @ sine) * cosine - (influence @ cosine) * sine
    return frequencies(phase.shape[1]) + pull[..., 0]


def generate(
    samples: int = 1000,
    oscillators: int = 5,
    span: float = 10.0,
    density: float = 0.5,
    coupling: float = 1.0,
    rows: Rows = Rows(context=60, noise=0.02),  # noqa: B008
    switches: bool = True,
    seed: int = 0,
) -> KnownTruth:
    """Make the data set; without `switches` the graph of a sample stays."""
    check_size(samples, oscillators, span)
    random = np.random.default_rng(seed)
    shape = (samples, 2 if switches else 1)
    graphs = random_graph(shape, oscillators, density, random)
    signs = random.choice([-1.0, 1.0], graphs.shape)
    start = random.uniform(-np.pi, np.pi, (samples, oscillators))

    def look(phase: np.ndarray) -> np.ndarray:
        return np.stack([np.sin(phase), np.cos(phase)], axis=-1)

    return observe(slope, start, coupling * graphs * signs, look, span, rows, random, "oscillator", ("sine", "cosine"))
