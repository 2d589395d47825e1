"""Ten genes on a fixed regulatory graph, one of them knocked out in each sample.

    dx_i/dt = a_i (b_i + sum_j W_ij x_j^n / (K^n + x_j^n)) - x_i,    b_i = basal + sum_j max(-W_ij, 0)

`x_i` is the expression of gene i. `W_ij` is positive where gene j activates gene i and negative where it represses it;
a repressed gene is fully expressed where its repressors are absent, hence b. A gene that is knocked out has a_i = 0 and
x_i = 0, and neither influences nor is influenced: its row and column of the stored influence are 0. The first three
genes are a repressilator, which oscillates.
"""

import numpy as np

from .known_truth import KnownTruth, Rows, check_size, observe

GENES = 10
STRENGTH, BASAL, HILL, HALF = 2.0, 0.05, 4, 0.5  # W, basal, n and K
EDGES = (  # (regulator, target, sign)
    *((0, 1, -1), (1, 2, -1), (2, 0, -1)),
    *((0, 3, 1), (3, 4, 1), (4, 5, -1), (1, 5, 1), (5, 6, 1), (6, 3, -1)),
    *((2, 7, 1), (7, 8, 1), (8, 9, -1), (9, 7, -1), (4, 9, 1)),
)


GRAPH = np.zeros((GENES, GENES))  # W where all genes are active
for _regulator, _target, _sign in EDGES:
    GRAPH[_target, _regulator] = _sign * STRENGTH
LEVEL = BASAL + np.maximum(-GRAPH, 0.0).sum(axis=1)  # b


def slope(x: np.ndarray, influence: np.ndarray, active: np.ndarray) -> np.ndarray:
    """dx/dt of expressions (samples, genes); `active` is a, 0 for a gene that is knocked out and 1 for the others."""
    power = np.maximum(x, 0.0) ** HILL
    regulated = influence @ (power / (HALF**HILL + power))[..., None]
    return active * (LEVEL + regulated[..., 0]) - x


def generate(
    samples: int = 1000,
    span: float = 12.0,
    rows: Rows = Rows(),  # noqa: B008
    seed: int = 0,
) -> KnownTruth:
    """Make the data set."""
    check_size(samples, GENES, span)
    random = np.random.default_rng(seed)
    active = (np.arange(GENES) != random.integers(0, GENES, (samples, 1))).astype(float)
    influence = GRAPH * active[:, :, None] * active[:, None, :]
    start = active * random.uniform(0.0, 1.5, (samples, GENES))
    return observe(
        lambda x, weights: slope(x, weights, active),
        *(start, influence[:, None], lambda x: x[..., None], span, rows, random),
        *("gene", ("",)),
    )
