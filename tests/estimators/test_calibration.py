"""Bands that are too narrow or too wide hold 90 % after the correction, at every horizon."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from acenode.estimators import Forecaster
from acenode.estimators.calibration import Calibration


def draw(rng, count: int):
    """Errors whose spread grows with the horizon, of a model that says it is always 0.5."""
    horizon = rng.uniform(0, 4, count)
    error = rng.standard_t(5, count) * (0.2 + 0.5 * horizon)
    return error, np.full(count, 0.5), horizon


def test_coverage_on_held_out_values():
    rng = np.random.default_rng(0)
    calibration = Calibration.fit(*draw(rng, 4000))
    error, sd, horizon = draw(rng, 20000)
    raw = np.abs(error) <= 1.6448536 * sd
    inside = np.abs(error) <= 1.6448536 * sd * calibration.factor(horizon)
    assert not 0.87 < raw.mean() < 0.93
    assert 0.87 < inside.mean() < 0.93
    for low in (0.5, 1.5, 2.5):  # and not only on average
        assert 0.84 < inside[(horizon > low) & (horizon < low + 1)].mean() < 0.96


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_band_of_a_forecaster_holds_what_it_says_near_and_far():
    """Noise within bounds: the band of a Gaussian with its spread is too wide."""
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"id": np.repeat(np.arange(1200), 24), "t": np.tile(np.arange(24.0), 1200)})
    frame["x"] = (0.1 * rng.normal(size=(1200, 1)) + rng.uniform(-1, 1, (1200, 24))).ravel()
    held = frame["id"] >= 1000
    made = Forecaster(id="id", time="t", model="linear").fit(frame[~held])
    known = frame[held & (frame["t"] < 16)]
    asked, truth = frame[held & (frame["t"] >= 16)], frame.loc[held & (frame["t"] >= 16), "x"].to_numpy()

    def coverage() -> np.ndarray:
        told = made.predict(known, at=asked[["id", "t"]])
        inside = (told["q0.05"].to_numpy() <= truth) & (truth <= told["q0.95"].to_numpy())
        return inside.reshape(200, 8)

    corrected = coverage()
    assert 0.87 < corrected.mean() < 0.93
    assert 0.82 < corrected[:, :2].mean() < 0.97 and 0.82 < corrected[:, -2:].mean() < 0.97
    assert 0.87 < made.evaluate(frame[held])["coverage"] < 0.93
    made.calibration_ = Calibration()
    assert 0.93 < coverage().mean()  # as it would be without


def test_of_few_values_there_is_no_correction():
    assert Calibration.fit(np.ones(5), np.ones(5), np.ones(5)) == Calibration()
    assert Calibration().factor(np.asarray([0.0, 3.0])).tolist() == [1.0, 1.0]


def test_values_at_one_horizon_have_one_factor():
    rng = np.random.default_rng(1)
    made = Calibration.fit(rng.normal(size=1000), np.full(1000, 2.0), np.zeros(1000))
    assert made.horizons == (0.0,) and made.factors[0] == pytest.approx(0.5, rel=0.1)


def test_the_same_factor_inside_a_program():
    made = Calibration((1.0, 2.0), (0.5, 1.5))
    at = np.asarray([0.0, 1.5, 9.0])
    np.testing.assert_allclose(made.factor(jnp.asarray(at)), made.factor(at))
