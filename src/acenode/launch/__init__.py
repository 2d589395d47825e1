"""Rows of a table as jobs for an engine that is there already: Slurm by submitit, or Ray."""

from .job import Job as Job, Outcome as Outcome
from .ray import on_ray as on_ray
from .slurm import on_slurm as on_slurm
