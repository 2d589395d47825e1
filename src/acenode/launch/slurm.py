"""Jobs on Slurm, by submitit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .job import Job, Outcome

MINUTES = 24 * 60  # of a job, unless `timeout_min` says otherwise


@dataclass(frozen=True)
class Requeued:
    """A job that is put back into the queue when its time is over or its node is taken, and then resumes."""

    job: Job

    def __call__(self) -> Outcome:
        return self.job()

    def checkpoint(self) -> Any:
        """What submitit submits again; the checkpoint of the training is in a file already."""
        import submitit  # pyright: ignore[reportMissingImports]

        return submitit.helpers.DelayedSubmission(self)


def on_slurm(jobs: Sequence[Job], logs: Path, resources: Mapping[str, Any]) -> Iterator[tuple[Job, Outcome]]:
    """Submit all, and give each with its outcome, in order. Where this is cut short, what still runs is cancelled.

    `resources` are parameters of submitit, such as `slurm_partition`, `gpus_per_node` or `timeout_min`; `cluster` is
    `slurm`, or `local` for processes of this machine, or `debug` for this process.
    """
    try:
        import submitit  # pyright: ignore[reportMissingImports]
        from submitit.core.utils import UncompletedJobError  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ValueError("the launcher slurm needs submitit; install it with: pip install 'acenode[slurm]'") from error
    given = {"name": "acenode", "timeout_min": MINUTES, **resources}
    cluster = given.pop("cluster", "slurm")
    try:
        executor = submitit.AutoExecutor(folder=logs, cluster=cluster)
        executor.update_parameters(**given)
    except (ValueError, NameError, TypeError, RuntimeError) as error:
        raise ValueError(f"submitit refuses the resources: {error}") from error
    waiting = [(job, executor.submit(Requeued(job))) for job in jobs]
    try:
        for job, submitted in waiting:
            try:
                yield job, submitted.result()
            except UncompletedJobError as error:
                said = f"the job {submitted.job_id} did not end: {str(error).splitlines()[0]} Its log is in {logs}."
                yield job, Outcome(f"{said} The same call resumes it.", failed=True)
    finally:
        for _, submitted in waiting:
            if not submitted.done():
                submitted.cancel()
