"""The paper's grids of learning rate and lambda (Equation 6)."""

from itertools import product

IMAGE_GRID = tuple(product((1e-3, 5e-2, 1e-2), (1e-3, 1e-4)))

# The text ends at 1e-3, the appendix calls 1e-2 best: so without the smallest of the text, and with that of the
# appendix.
SERIES_GRID = tuple(product((1e-4, 1e-3, 1e-2), (0.1, 0.03, 0.01, 0.003, 0.001, 0.0001, 0.0)))

# Dropout, which the paper also varies here, is a part of the model and not of the grid.
CLIMATE_GRID = tuple(product((1e-5, 1e-4, 1e-3), (0.1, 0.03, 0.01, 0.003, 0.001, 0.0001, 0.0)))
