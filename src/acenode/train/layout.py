"""`Layout`: which device trains which members of an ensemble, and which samples of their mini-batches."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

MEMBERS, BATCH = "members", "batch"  # the axes of the mesh

Devices = int | Sequence[Any] | None


@dataclass(frozen=True)
class Layout:
    """`count` members over the devices of `mesh`; on one device, as ever, without one.

    The ensemble axis is filled up with copies of the last member, so that every device has the same number. Members
    never exchange anything: `shard_map` compiles the program of one device. Were it left to `jit` to cut the arrays up,
    every iteration of a solver would ask all devices whether to take another.

    A device computes `at_once` of its members at once, one such block after another; all of them by default.
    """

    count: int
    mesh: Mesh | None = None
    at_once: int | None = None

    @classmethod
    def of(cls, members: int, devices: Devices = None, batch_devices: int = 1, at_once: int | None = None) -> "Layout":
        """Over these devices, or so many, or all; fewer where there are not enough members for all."""
        chosen = _chosen(devices)
        if at_once is not None and at_once < 1:
            raise ValueError(f"fit(at_once={at_once}): at least 1, or None for all members of a device.")
        if batch_devices < 1 or batch_devices > len(chosen):
            raise ValueError(
                f"fit(batch_devices={batch_devices}): expected 1 to {len(chosen)}, as many as there are devices."
            )
        several = jax.process_count() > 1
        groups = len(chosen) // batch_devices
        if not several:
            # As few as hold the members evenly: 5 of them on 4 devices are 2 on each of 3.
            blocks = math.ceil(members / (at_once or 1))
            groups = math.ceil(blocks / math.ceil(blocks / groups))
        if groups * batch_devices == 1 and (devices is None or chosen[0] == jax.devices()[0]):
            return cls(members, at_once=at_once)
        if several and len(chosen) != groups * batch_devices:
            raise ValueError(
                f"fit(batch_devices={batch_devices}): has to divide the {len(chosen)} devices of all hosts."
            )
        grid = np.asarray(chosen[: groups * batch_devices], object).reshape(groups, batch_devices)
        return cls(members, Mesh(grid, (MEMBERS, BATCH)), at_once)

    @property
    def batch_devices(self) -> int:
        """How many devices share a mini-batch."""
        return 1 if self.mesh is None else self.mesh.shape[BATCH]

    @property
    def groups(self) -> int:
        """How many devices share the members."""
        return 1 if self.mesh is None else self.mesh.shape[MEMBERS]

    @property
    def padded(self) -> int:
        """The length of the ensemble axis with what fills it up."""
        part = self.groups * (self.at_once or 1)
        return part * math.ceil(self.count / part)

    def sharded(self, function: Callable[[PyTree, PyTree], PyTree]) -> Callable[[PyTree, PyTree], PyTree]:
        """`function(own, shared)` on every device: `own` has an ensemble axis, `shared` is the same everywhere."""
        if self.mesh is None:
            return function
        specs = (PartitionSpec(MEMBERS), PartitionSpec())
        return jax.shard_map(
            function, mesh=self.mesh, in_specs=specs, out_specs=PartitionSpec(MEMBERS), check_vma=False
        )

    def each(self, function: Callable[..., PyTree], *own: PyTree, at_once: int | None = None) -> PyTree:
        """`function` of every member of a device; a block of one is computed without the ensemble axis.

        An axis of one would make every product a batch of one, half as quick on a CPU.
        """
        count = jax.tree.leaves(own)[0].shape[0]
        block = min(at_once or self.at_once or count, count)
        if count == 1:
            return jax.tree.map(lambda x: x[None], function(*jax.tree.map(lambda x: x[0], own)))
        if block == 1:
            return jax.lax.map(lambda own: function(*own), own)
        if block == count:
            return jax.vmap(function)(*own)
        blocks = jax.tree.map(lambda x: x.reshape(count // block, block, *x.shape[1:]), own)
        done = jax.lax.map(lambda own: jax.vmap(function)(*own), blocks)
        return jax.tree.map(lambda x: x.reshape(count, *x.shape[2:]), done)

    def put(self, tree: PyTree) -> PyTree:
        """Arrays with an ensemble axis, filled up and each part on its device."""
        if self.padded == self.count and self.mesh is None:
            return tree
        fill = self.padded - self.count

        def filled(x):
            return np.concatenate([x, np.repeat(x[-1:], fill, axis=0)]) if fill else x

        return self._placed(jax.tree.map(lambda x: filled(np.asarray(x)), tree), PartitionSpec(MEMBERS))

    def share(self, tree: PyTree) -> PyTree:
        """Arrays that every device has whole."""
        return self._placed(tree, PartitionSpec())

    def get(self, tree: PyTree) -> PyTree:
        """The arrays of all members on the host, without what fills them up; on several hosts, on each of them."""
        if self.mesh is not None and jax.process_count() > 1:
            tree = multihost_utils.process_allgather(tree, tiled=True)
        return jax.tree.map(lambda x: np.asarray(x)[: self.count], tree)

    def _placed(self, tree: PyTree, spec: PartitionSpec) -> PyTree:
        if self.mesh is None:
            return jax.tree.map(jax.numpy.asarray, tree)
        sharding = NamedSharding(self.mesh, spec)

        def place(x):
            x = np.asarray(x)
            x = x.astype(jax.dtypes.canonicalize_dtype(x.dtype))
            return jax.make_array_from_callback(x.shape, sharding, lambda part: x[part])

        return jax.tree.map(place, tree)


def _chosen(devices: Devices) -> list[Any]:
    present = jax.devices()
    if devices is None:
        return list(present)
    if isinstance(devices, int):
        if not 1 <= devices <= len(present):
            raise ValueError(f"fit(devices={devices}): expected 1 to {len(present)}, as many as there are.")
        return list(present[:devices])
    if not devices or len(set(devices)) < len(devices):
        raise ValueError("fit(devices=...): give a number, or different devices from jax.devices().")
    return list(devices)
