"""Several models that are trained side by side and answer together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray

from .task import Report, Task


class Committee(eqx.Module):
    """Models of one kind from different seeds: every array has a leading axis over them."""

    models: Any

    @classmethod
    def of(cls, size: int, build: Callable[..., Any]) -> Callable[..., "Committee"]:
        """From what builds one model, what builds a committee of `size`."""

        def build_all(key: PRNGKeyArray, **given) -> Committee:
            return cls(eqx.filter_vmap(lambda key: build(key, **given))(jax.random.split(key, size)))

        return build_all

    def __getitem__(self, member: int) -> Any:
        return jax.tree.map(lambda x: x[member] if eqx.is_array(x) else x, self.models)


@dataclass(frozen=True)
class Pooled:
    """A `Committee` whose members each learn `task` as if alone, and answer with the mean of their outputs.

    For tasks whose outputs are probabilities. The best epoch is that of the committee.
    """

    task: Task

    @property
    def monitor(self) -> str:
        return self.task.monitor

    @property
    def better(self) -> Literal["lower", "higher"]:
        return self.task.better

    def loss(self, model: Committee, batch, key, epoch):
        """The sum of their losses: the gradient of each is then its own."""
        losses, reports = _each(lambda member, key: self.task.loss(member, batch, key, epoch), model, key)
        report = Report(reports.failed.sum(), reports.evaluations.mean(), reports.pullbacks.mean())
        return losses.sum(), report

    def first_states(self, model: Committee, batch, key):
        return _each(lambda member, key: self.task.first_states(member, batch, key), model, key)

    def outputs(self, model: Committee, batch, key):
        answers = _each(lambda member, key: self.task.outputs(member, batch, key), model, key)
        return jax.tree.map(lambda x: x.mean(axis=0), answers)

    def metrics(self, outputs, batch, weight) -> dict[str, Array]:
        return self.task.metrics(outputs, batch, weight)


def _each(ask: Callable, committee: Committee, key: PRNGKeyArray):
    """What every member says, with a key of its own."""
    size = jax.tree.leaves(eqx.filter(committee, eqx.is_array))[0].shape[0]
    return eqx.filter_vmap(ask)(committee.models, jax.random.split(key, size))
