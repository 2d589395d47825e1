"""Estimators with first weights, as quick to have as a model is to build: for tests of what is done with them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acenode.estimators.base import Estimator, leaderboard_frame
from acenode.estimators.calibration import Calibration
from acenode.estimators.inference import without_sampling
from acenode.estimators.members import Members
from acenode.estimators.training import Summary


def untrained(estimator, frame):
    """The estimator as if fitted to the frame, without a step of training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Estimator, "_train", _keep_first_weights)
        return estimator.fit(frame)


def _keep_first_weights(self, task, data, split, series, *rest):
    self.entry_ = self._entry(self.settings_.model)
    model = eqx.filter_jit(self._build)(jax.random.key(0))
    # Statistics of the training data, which are NaN until there are any.
    model = jax.tree.map(lambda x: jnp.nan_to_num(x, nan=0.5) if eqx.is_inexact_array(x) else x, model)
    self.model_ = without_sampling(eqx.nn.inference_mode(model))
    self.members_, self.calibration_ = Members((self.settings_.model,), (1.0,), (self.model_,)), Calibration()
    self.reading_ = None
    self.leaderboard_ = leaderboard_frame([{"model": self.settings_.model}])
    self.history_ = {"loss": np.zeros(1)}
    self.summary_ = Summary(
        series=len(series),
        validation_series=len(split.validation),
        observations=int(series.observed.sum()),
        epochs=1,
        best_epoch=1,
        metric=task.monitor,
        validation=0.5,
        seconds=1.0,
        parameters=sum(x.size for x in jax.tree.leaves(model) if eqx.is_array(x)),
        skipped_updates=0,
        failed_solves=0,
        notes=(),
    )
