"""Several models that are trained side by side and answer together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
from jax import lax
from jaxtyping import Array, PRNGKeyArray

from .classification import BinaryClassification, PointClassification, SeriesClassification
from .task import AttentionTask, Report, Task


class Ensemble(eqx.Module):
    """Models of one kind from different seeds: every array has a leading axis over them. `ensemble[k]` is one."""

    models: Any

    @classmethod
    def of(cls, size: int, build: Callable[..., Any]) -> Callable[..., "Ensemble"]:
        """From what builds one model, what builds an ensemble of `size`."""
        if size < 1:
            raise ValueError(f"Ensemble.of(size={size}): at least 1.")

        def build_all(key: PRNGKeyArray, **given) -> Ensemble:
            return cls(eqx.filter_vmap(lambda key: build(key, **given))(jax.random.split(key, size)))

        return build_all

    def __len__(self) -> int:
        return jax.tree.leaves(eqx.filter(self.models, eqx.is_array))[0].shape[0]

    def __getitem__(self, member: int) -> Any:
        if not -len(self) <= member < len(self):
            raise IndexError(f"an ensemble of {len(self)} has no member {member}.")
        return jax.tree.map(lambda x: x[member] if eqx.is_array(x) else x, self.models)


@dataclass(frozen=True)
class EnsembleTask:
    """An `Ensemble` whose members each learn `task` as if alone, and answer with the mean of their probabilities.

    The best epoch is that of the ensemble, and an update that is not finite in one member is skipped in all. A norm
    to clip gradients at (`Recipe.clip`) is that of all of them together.
    """

    task: Task

    def __post_init__(self):
        if not isinstance(self.task, BinaryClassification | SeriesClassification | PointClassification):
            raise TypeError(
                f"EnsembleTask(task={type(self.task).__name__}): its outputs are no probabilities, and their mean "
                "has no meaning. There are BinaryClassification, SeriesClassification and PointClassification."
            )

    @property
    def monitor(self) -> str:
        return self.task.monitor

    @property
    def better(self) -> Literal["lower", "higher"]:
        return self.task.better

    def loss(self, model: Ensemble, batch, key, epoch):
        """The sum of their losses: the gradient of each is then its own."""
        losses, reports = _each(lambda member, key: self.task.loss(member, batch, key, epoch), model, key)
        report = Report(reports.failed.sum(), reports.evaluations.mean(), reports.vjp_evaluations.mean())
        return losses.sum(), report

    def first_states(self, model: Ensemble, batch, key):
        return _each(lambda member, key: self.task.first_states(member, batch, key), model, key)

    def attention_path(self, model: Ensemble, batch, key):
        """That of the first member."""
        assert isinstance(self.task, AttentionTask)
        return self.task.attention_path(model[0], batch, key)

    def outputs(self, model: Ensemble, batch, key):
        """Of one member after the other: a GPU was seen to evaluate stacked models wrongly."""
        arrays, static = eqx.partition(model.models, eqx.is_array)

        def one(own):
            member, key = own
            return self.task.outputs(eqx.combine(member, static), batch, key)

        answers = lax.map(one, (arrays, jax.random.split(key, len(model))))
        return jax.tree.map(lambda x: x.mean(axis=0), answers)

    def metrics(self, outputs, batch, weight) -> dict[str, Array]:
        return self.task.metrics(outputs, batch, weight)


def _each(ask: Callable, ensemble: Ensemble, key: PRNGKeyArray):
    """What every member says, with a key of its own."""
    return eqx.filter_vmap(ask)(ensemble.models, jax.random.split(key, len(ensemble)))
