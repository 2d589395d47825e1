"""`Statistics` against loops, and encoders side by side."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from acenode.models import GRUEncoder, Joined, Statistics
from acenode.series import series, stack

RECORDS = [
    series([0.0, 1.0, 2.0], [[3.0, np.nan], [np.nan, -2.0], [-1.0, np.nan]]),
    series([0.5], [[np.nan, 4.0]]),
    series(np.zeros(0), np.zeros((0, 2))),
]


def test_statistics_of_every_variable():
    expected = []
    for record in RECORDS:
        kept = [record.values[record.observed[:, j], j] for j in range(2)]
        of = lambda reduce: [reduce(k) if len(k) else 0.0 for k in kept]  # noqa: E731, B023
        expected.append([*of(lambda k: k[-1]), *of(np.mean), *of(min), *of(max), *np.log1p([len(k) for k in kept])])
    np.testing.assert_allclose(eqx.filter_jit(Statistics())(stack(RECORDS)), np.asarray(expected, float), rtol=1e-6)


def test_padding_is_no_value():
    np.testing.assert_array_equal(Statistics()(stack(RECORDS, rows=9)), Statistics()(stack(RECORDS)))


def test_encoders_side_by_side(key):
    unit = GRUEncoder(2, 3, key=key)
    both = eqx.filter_jit(Joined((unit, Statistics())))(stack(RECORDS))
    np.testing.assert_allclose(both, jnp.concatenate([unit(stack(RECORDS)), Statistics()(stack(RECORDS))], axis=1))
