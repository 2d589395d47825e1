"""Training on data that stay in host memory: a few mini-batches at a time are on the device."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..compiled import compiled
from .algorithm import choose
from .layout import Layout
from .program import (
    Carry,
    Program,
    Rows,
    State,
    Trained,
    finished,
    first_carry,
    lengths_of,
    one_step,
    passes,
    shuffled,
    steps_of,
)
from .recipe import Recipe


class Streamed(Program):
    """A `Program` whose data stay in host memory.

    `resident` is what the device has all the time, the validation samples and those that batch statistics are measured
    on, and `resident_rows` are positions in it. While the device computes one part of an epoch, `at_a_time`
    mini-batches, the host gathers the next: two are on the device at most.
    """

    def __init__(self, build, task, recipe: Recipe, rows: Rows, layout: Layout, data: PyTree, at_a_time: int):
        super().__init__(build, task, recipe, rows.train.shape[1], layout)
        self.at_a_time = min(at_a_time, self.steps)
        self.data = jax.tree.map(_canonical, data)
        reference = np.asarray(rows.train)[:, : recipe.reference]
        validation = np.asarray(rows.validation)
        kept = np.unique(np.concatenate([reference.ravel(), validation.ravel()]))
        self.resident = jax.tree.map(lambda x: jnp.asarray(x[kept]), self.data)
        self.resident_rows = rows._replace(
            train=jnp.asarray(np.searchsorted(kept, reference), jnp.int32),
            train_weight=rows.train_weight[:, : recipe.reference],
            validation=jnp.asarray(np.searchsorted(kept, validation), jnp.int32),
        )
        self._all_rows = layout.put(rows)
        lengths = lengths_of(self.data) if recipe.bucket else None
        self._lengths = None if lengths is None else layout.share(np.asarray(lengths))

    def train(
        self, layout: Layout, state: State, static, seeds, rows: Rows, rates, data, numbers, steps: int | None
    ) -> Trained:
        """As a whole epoch of `Program`, one part after another."""
        recipe, everywhere = self.recipe, self._all_rows
        limit = self.steps if steps is None else min(steps, self.steps)
        carry = _begin(layout, state)
        for number, kinds in enumerate(passes(recipe, eqx.combine(state.model, static))):
            order = _orders(layout, recipe, self.batch, self.steps, number, seeds, everywhere, numbers, self._lengths)
            carry = carry._replace(iteration=state.iteration)
            for first, part in _parts(layout, self.data, layout.get(order), self.at_a_time, limit):
                told = (static, carry, seeds, everywhere, rates, part, numbers)
                ends = (np.asarray(first), np.asarray(limit))
                carry = _part(layout, self.task, recipe, self.batch, kinds, *told, *ends)
                jax.block_until_ready(carry.iteration)
        return _end(layout, self.task, recipe, static, state, carry, seeds, rows, data, numbers)


def _parts(layout: Layout, data: PyTree, order: np.ndarray, at_a_time: int, limit: int) -> Iterator[tuple[int, Any]]:
    """The samples of so many mini-batches after another, (members, at_a_time, batch, ...), and the number of the first.

    The last part is filled up with mini-batches that no step is taken on.
    """

    def gathered(first: int) -> PyTree:
        numbers = np.arange(first, first + at_a_time) % order.shape[1]
        return jax.block_until_ready(layout.put(jax.tree.map(lambda x: x[order[:, numbers]], data)))

    firsts = range(0, limit, at_a_time)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(gathered, 0)
        for first in firsts:
            part = coming.result()
            if first != firsts[-1]:
                coming = pool.submit(gathered, first + at_a_time)
            yield first, part


@compiled
def _begin(layout: Layout, state: State) -> Carry:
    return layout.sharded(lambda own, _: jax.vmap(first_carry)(own))(state, ())


@compiled
def _orders(layout: Layout, recipe, batch, steps, number, seeds, rows: Rows, epochs, lengths) -> Array:
    def on_a_device(own, lengths):
        def one(seed, rows, epoch):
            return shuffled(recipe, batch, steps, rows, lengths, seed, epoch, number)

        return layout.each(one, *own)

    return layout.sharded(on_a_device)((seeds, rows, epochs), lengths)


@compiled
def _part(layout: Layout, task, recipe, batch, kinds, static, carry, seeds, rows, rates, part, epochs, first, limit):
    """The steps on one part of an epoch."""
    measured, described = eqx.partition(task, eqx.is_array)
    count = jax.tree.leaves(part)[0].shape[1]

    def on_a_device(own, shared):
        first, limit, measured = shared
        whole = eqx.combine(measured, described)

        def one(carry, seed, rows, rates, part, epoch):
            last = jnp.minimum(limit, steps_of(rows, batch))

            def body(k, old):
                samples = jax.tree.map(lambda x: x[k], part)
                new = one_step(whole, recipe, 1, kinds, static, old, samples, seed, rates, epoch, first + k)
                return choose(first + k < last, new, old)

            return jax.lax.fori_loop(0, count, body, carry)

        return layout.each(one, *own)

    return layout.sharded(on_a_device)((carry, seeds, rows, rates, part, epochs), (first, limit, measured))


@compiled
def _end(layout: Layout, task, recipe, static, state, carry, seeds, rows, data, epochs) -> Trained:
    measured, described = eqx.partition(task, eqx.is_array)

    def on_a_device(own, shared):
        data, measured = shared
        whole = eqx.combine(measured, described)

        def one(state, carry, seed, rows, epoch):
            return finished(whole, recipe, static, state, carry, seed, rows, data, epoch)

        return layout.each(one, *own)

    return layout.sharded(on_a_device)((state, carry, seeds, rows, epochs), (data, measured))


def _canonical(x: Any) -> np.ndarray:
    """With the precision that a device would give it."""
    x = np.asarray(x)
    return np.asarray(x, jax.dtypes.canonicalize_dtype(x.dtype))
