"""Values with a fixed noise: both squared errors against plain loops."""

import jax.numpy as jnp
import numpy as np

from acenode.series import Question, series, stack
from acenode.tasks import Reconstruct


def test_metrics_equal_plain_loops():
    random = np.random.default_rng(0)
    shape = (3, 4, 2)
    values, scored = random.normal(size=shape), random.random(shape) < 0.5
    scored[0, :, 1] = False  # a variable that a record does not have counts as an error of 0
    known = stack([series([0.0], [[1.0, 2.0]])] * 3)
    question = Question(known, np.zeros((3, 4), np.float32), values, scored, scored)
    samples = random.normal(size=(5, *shape))
    got = Reconstruct().metrics(
        (jnp.asarray(samples.mean(0)), jnp.asarray(samples.var(0))), question, jnp.asarray([1.0, 1.0, 0.0])
    )
    by_record = []
    for b in range(2):
        terms = []
        for v in range(2):
            seen = scored[b, :, v]
            terms.append(np.mean((samples[:, b, seen, v] - values[b, seen, v]) ** 2) if seen.any() else 0.0)
        by_record.append(np.mean(terms))
    np.testing.assert_allclose(got["mse"], np.mean(by_record), rtol=1e-6)
    error = (samples.mean(0) - values)[:2] ** 2
    np.testing.assert_allclose(got["mse_per_value"], error[scored[:2]].mean(), rtol=1e-6)
