"""Data that stay in host memory: the same numbers as on the device, and a bounded part of them there."""

import jax
import numpy as np
import pytest
from toy_task import Regression, build, leaves, pairs

from acenode.datasets.split import Split
from acenode.train import Member, Recipe, Run, fit, stream

DATA = pairs(40)
FOLDS = [
    Split(np.arange(32), np.arange(32, 40), np.arange(0)),  # seven batches of four an epoch, and eight
    Split(np.arange(4, 34), np.asarray([1, 3, 36]), np.arange(0)),
]
MEMBERS = (Member(0, 0, 0.03), Member(1, 1, 0.01, penalty=0.5))
RECIPE = Recipe(epochs=3, batch_size=4, unit="epoch", reference=8)


def train(members=MEMBERS, **given):
    return fit(build, Regression(), DATA, FOLDS, RECIPE, members, **given)


@pytest.fixture(scope="module")
def on_the_device():
    return train()


@pytest.mark.slow
def test_streaming_ends_with_the_numbers_of_data_on_the_device(on_the_device):
    done = train(stream=3)  # the last part of an epoch is not full
    for a, b in zip(leaves(done.models), leaves(on_the_device.models), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    for name, values in on_the_device.history.items():
        np.testing.assert_allclose(done.history[name], values, rtol=1e-11, atol=1e-13, err_msg=name)


@pytest.mark.slow
def test_a_checkpoint_of_data_on_the_device_is_resumed_while_streaming(on_the_device, tmp_path):
    path = tmp_path / "run.safetensors"
    Run(build, Regression(), DATA, FOLDS, RECIPE, MEMBERS, checkpoint=path).epoch()
    done = train(checkpoint=path, stream=3)
    np.testing.assert_allclose(done.best_score, on_the_device.best_score, rtol=1e-12)


@pytest.mark.slow
def test_the_device_has_two_parts_and_what_is_validated_at_most():
    most = []
    real = stream._parts

    def watched(layout, data, order, at_a_time, limit):
        for first, part in real(layout, data, order, at_a_time, limit):
            most.append(jax.tree.leaves(part)[0].shape[:3])
            yield first, part

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "_parts", watched)
        run = Run(build, Regression(), DATA, FOLDS[0], RECIPE, MEMBERS[:1], stream=2)
        run.epoch()
    assert set(most) == {(1, 2, 4)} and len(most) == 8  # four parts in each of the two passes
    assert jax.tree.leaves(run._data)[0].shape[0] == 16  # eight to validate, eight to measure


@pytest.mark.parametrize("given", [{"stream": 0}, {"stream": 2, "batch_devices": 2}])
def test_what_cannot_be_streamed_is_refused(given):
    with pytest.raises(ValueError, match="batch_devices" if "batch_devices" in given else "stream=0"):
        train(**given)
