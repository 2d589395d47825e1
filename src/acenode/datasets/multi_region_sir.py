"""An epidemic in six regions whose mobility changes: who infects whom is another matrix after some moment.

    dS_i/dt = -beta S_i sum_j M_ij I_j
    dI_i/dt =  beta S_i sum_j M_ij I_j - gamma I_i,    R_i = 1 - S_i - I_i

S, I and R are the susceptible, infected and recovered parts of a region. `M_ij` is the part of the contacts of region i
that are with region j, so its rows sum to 1; `1 - mixing` are within the region. Each sample has its own links between
regions, and other ones from a moment on that lies between 20 % and 40 % of the span. One region has 2 % infected at
first, the others none but 0.01 %. Observed are the infected and the recovered of each region.
"""

import functools as ft

import numpy as np

from .known_truth import KnownTruth, Rows, check_size, observe, random_graph


def slope(state: np.ndarray, influence: np.ndarray, beta: float = 1.5, gamma: float = 0.5) -> np.ndarray:
    """The rate of change of (S, I) of each region (samples, regions, 2)."""
    susceptible, infected = state[..., 0], state[..., 1]
    new = beta * susceptible * (influence @ infected[..., None])[..., 0]
    return np.stack([-new, new - gamma * infected], axis=-1)


def mobility(shape: tuple[int, ...], regions: int, density: float, mixing: float, random: np.random.Generator):
    """Random mobility matrices (*shape, regions, regions): contacts outside are spread over the links of a region."""
    links = random_graph(shape, regions, density, random)
    # A region without any link has one to the next.
    links = np.where(links.any(-1, keepdims=True), links, np.roll(np.eye(regions), 1, axis=1))
    outside = links * random.uniform(0.5, 1.5, links.shape)
    return (1 - mixing) * np.eye(regions) + mixing * outside / outside.sum(-1, keepdims=True)


def generate(
    samples: int = 1000,
    regions: int = 6,
    span: float = 15.0,
    density: float = 0.4,
    mixing: float = 0.5,
    beta: float = 1.5,
    gamma: float = 0.5,
    rows: Rows = Rows(noise=0.005),  # noqa: B008
    seed: int = 0,
) -> KnownTruth:
    """Make the data set."""
    check_size(samples, regions, span)
    random = np.random.default_rng(seed)
    influence = mobility((samples, 2), regions, density, mixing, random)
    infected = np.where(np.arange(regions) == random.integers(0, regions, (samples, 1)), 0.02, 1e-4)
    start = np.stack([1 - infected, infected], axis=-1)

    def look(state: np.ndarray) -> np.ndarray:
        return np.stack([state[..., 1], 1 - state.sum(-1)], axis=-1)

    moved = ft.partial(slope, beta=beta, gamma=gamma)
    return observe(moved, start, influence, look, span, rows, random, "region", ("infected", "recovered"))
