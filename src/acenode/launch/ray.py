"""Jobs as tasks of Ray."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .job import Job, Outcome

RETRIES = 3  # of a task whose worker dies; it resumes from its checkpoint


def on_ray(jobs: Sequence[Job], resources: Mapping[str, Any]) -> Iterator[tuple[Job, Outcome]]:
    """Submit all, and give each with its outcome, in order.

    `resources` are options of a Ray task, such as `num_gpus` or `num_cpus`; `address` is that of a cluster (`auto` for
    the one that runs here), or a cluster of this machine alone is started.
    """
    try:
        import ray  # pyright: ignore[reportMissingImports]
        from ray.exceptions import WorkerCrashedError  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ValueError("the launcher ray needs Ray; install it with: pip install 'acenode[ray]'") from error
    given = {"max_retries": RETRIES, **resources}
    address = given.pop("address", None)
    try:
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
        train = ray.remote(_train).options(**given)
        waiting = [(job, train.remote(job)) for job in jobs]
    except (ValueError, TypeError, ConnectionError) as error:
        raise ValueError(f"Ray refuses the resources: {error}") from error
    for job, task in waiting:
        try:
            yield job, ray.get(task)
        except WorkerCrashedError as error:
            said = f"its worker died {RETRIES + 1} times: {str(error).splitlines()[0]}"
            yield job, Outcome(f"{said} The same call resumes it.", failed=True)


def _train(job: Job) -> Outcome:
    return job()
