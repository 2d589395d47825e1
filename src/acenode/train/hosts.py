"""Several hosts that train one ensemble together."""

import os
from collections.abc import Mapping
from typing import Any

import jax

HEARTBEAT = 100  # seconds after which a host that says nothing counts as lost


def connect_hosts(heartbeat: int = HEARTBEAT) -> int:
    """Connect the processes that were started together, and say how many there are; call it first, on each of them.

    Their devices are then those of `fit`, which spreads an ensemble over all. They are found in the environment: Slurm
    (`srun`), Open MPI (`mpirun`), `torchrun`, or `JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID`.
    A process that was started alone stays alone.

    All hosts read one checkpoint file, which the first of them writes. Where a host is lost, the others end after
    `heartbeat` seconds; started again, on as many hosts as there are, they resume from it.
    """
    if jax.distributed.is_initialized():
        return jax.process_count()
    given = _given(os.environ)
    if given is None:
        return 1
    jax.distributed.initialize(**given, heartbeat_timeout_seconds=heartbeat)
    return jax.process_count()


def _given(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """The arguments of `jax.distributed.initialize`; empty where it finds them itself, none for a process alone."""
    if "JAX_COORDINATOR_ADDRESS" in environment:
        names = {"num_processes": "JAX_NUM_PROCESSES", "process_id": "JAX_PROCESS_ID"}
        absent = [name for name in names.values() if name not in environment]
        if absent:
            raise ValueError(f"connect_hosts: JAX_COORDINATOR_ADDRESS is set and {absent[0]} is not; set it too.")
        numbers = {argument: int(environment[name]) for argument, name in names.items()}
        return {"coordinator_address": environment["JAX_COORDINATOR_ADDRESS"], **numbers}
    if {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"} <= environment.keys():
        if int(environment["WORLD_SIZE"]) == 1:
            return None
        address = f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}"
        numbers = {"num_processes": int(environment["WORLD_SIZE"]), "process_id": int(environment["RANK"])}
        return {"coordinator_address": address, **numbers}
    sizes = [environment.get(name, "1") for name in ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")]
    return {} if any(int(size) > 1 for size in sizes) else None
